#!/usr/bin/env node
// A trax worker with pg; DATABASE_URL names the database. SIGTERM: finish the job in hand; twice: give it back.
const { Client } = require("pg"), os = require("os");
const lease = Number(process.env.LEASE || 30); // seconds
const name = `${os.hostname()}:${process.pid}`;
const sleep = (ms) => new Promise((wake) => setTimeout(wake, ms));
const claim = "select * from trax.claim_next($1, tasks => $2, lease => make_interval(secs => $3))";
const heartbeat = "select * from trax.heartbeat(array[$1::bigint], array[$2::uuid], make_interval(secs => $3))";
const connect = async () => {
  const db = new Client(process.env.DATABASE_URL).on("error", () => {}); // the next query fails as well
  return db.connect().then(() => db);
};
let signals = 0, gone = new AbortController(); // aborted: the job in hand should stop
const tasks = {
  "count.words": async (job, stop) => {
    for (let i = 0; i < 10 * (job.seconds || 0) && !stop.aborted; i++) await sleep(100);
    return { words: job.text.split(/\s+/).filter(Boolean).length };
  },
};
const stop = () => {
  console.log("stopping: the job in hand", ++signals > 1 ? "goes back" : "may end");
  if (signals > 1) gone.abort();
};
async function beat(job) { // three times a lease; nobody answers: the lease is ours until it has run out
  const before = Date.now();
  try {
    job.db = job.db || (await connect());
    const { held, cancel_requested } = (await job.db.query(heartbeat, [job.job_id, job.token, lease])).rows[0];
    job.last = before;
    if (!held || cancel_requested) gone.abort();
  } catch {
    job.db = null;
    if (Date.now() - job.last > lease * 1000) gone.abort();
  }
}

async function work(db, job) {
  if (signals < 2) gone = new AbortController();
  job.last = Date.now(); // of the last word with the server
  const heart = setInterval(() => beat(job), (lease * 1000) / 3);
  const tell = (call, ...values) => db.query(`select trax.${call}`, [job.job_id, job.token, ...values]);
  await tasks[job.task](job.input, gone.signal).then(
    (output) => gone.signal.aborted
      ? tell("release($1, $2)") // also acknowledges a cancel
      : tell("complete($1, $2, $3)", JSON.stringify(output)), // after a lost lease: changes nothing
    (error) => tell("fail($1, $2, $3)", String(error)));
  clearInterval(heart);
  if (job.db) await job.db.end();
}

(async () => {
  process.on("SIGTERM", stop).on("SIGINT", stop);
  const db = await connect();
  while (!signals) {
    const job = (await db.query(claim, [name, Object.keys(tasks), lease])).rows[0];
    await (job ? work(db, job) : sleep(200));
  }
  await db.end();
})().catch((error) => { console.error(error); process.exit(1); });
