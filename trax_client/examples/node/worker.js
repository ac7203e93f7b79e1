#!/usr/bin/env node
// A trax worker with pg; DATABASE_URL names the database. SIGTERM: jobs that do not end within GRACE are released.
const { Client } = require("pg"), os = require("os");
const lease = Number(process.env.LEASE || 30), grace = Number(process.env.GRACE || 30); // seconds
const name = process.env.WORKER_NAME || `${os.hostname()}:${process.pid}`;
const sleep = (ms) => new Promise((wake) => setTimeout(wake, ms));
const claim = "select * from trax.claim_next($1, tasks => $2, lease => make_interval(secs => $3))";
const heartbeat = "select * from trax.heartbeat(array[$1::bigint], array[$2::uuid], make_interval(secs => $3))";
const complete = "complete($1, $2, $3)", release = "release($1, $2, make_interval(secs => $3))";
const fail = "fail($1, $2, $3, retry_in => make_interval(secs => $4), permanent => $5)";
class Snooze extends Error { constructor(seconds) { super(); this.seconds = seconds; } } // without using up an attempt

// -- The tasks. A thrown error is a failure; its retry_in (seconds) and permanent (true) decide about retries.
const tasks = {
  "count.words": async (job, stop) => { // aborted: cancelled, lease lost, grace over; what it returns is not used
    for (let i = 0; i < 10 * (job.input.seconds || 0) && !stop.aborted; i++) await sleep(100);
    return { words: job.input.text.split(/\s+/).filter(Boolean).length };
  },
};
// -- End of the tasks.

let db = null, stopping = false, gone = new AbortController(); // aborted: the job in hand should stop
async function connect() {
  const client = new Client({ connectionString: process.env.DATABASE_URL, connectionTimeoutMillis: 2000 });
  client.on("error", () => {}); // the next query fails as well
  await client.connect();
  return client;
}

// Returns the row of a statement, on a new connection if the last one broke. Repeating an outcome changes nothing.
async function ask(sql, values, over) {
  while (!over()) {
    try {
      db = db || (await connect());
      return (await db.query(sql, values)).rows[0];
    } catch (error) {
      if (error.severity === "ERROR") throw error; // the server refuses what it was told
      if (db) db.end().catch(() => {});
      db = null;
      await sleep(200);
    }
  }
}

async function beat(job, gone) { // three times a lease, on a connection of its own
  const before = Date.now();
  try {
    job.db = job.db || (await connect());
    const { held, cancel_requested } = (await job.db.query(heartbeat, [job.job_id, job.token, lease])).rows[0];
    job.last = before;
    if (!held || cancel_requested) gone.abort();
  } catch { // nobody answers: the lease is ours until it has run out
    job.db = null;
    if (Date.now() - job.last > lease * 1000) gone.abort();
  }
}

async function work(job) {
  gone = new AbortController();
  job.last = Date.now(); // of the last word with the server
  const heart = setInterval(beat, (lease * 1000) / 3, job, gone);
  const end = await tasks[job.task](job, gone.signal).then(
    (output) => [complete, JSON.stringify(output)],
    (e) => e instanceof Snooze ? [release, e.seconds] : [fail, String(e), e.retry_in, Boolean(e.permanent)]);
  const until = Date.now() + lease * 1000; // then it is lost
  const tell = (call, ...values) => ask(`select trax.${call}`, [job.job_id, job.token, ...values], () => Date.now() > until);
  await tell(...(gone.signal.aborted ? [release, 0] : end)) // release also acknowledges a cancel
    .catch((error) => tell(fail, `the outcome was refused: ${error}`, null, true)); // too large, say
  clearInterval(heart);
  if (job.db) await job.db.end().catch(() => {});
}

const stop = () => { stopping = true; setTimeout(() => gone.abort(), grace * 1000).unref(); };
process.on("SIGTERM", stop).on("SIGINT", stop);
(async () => {
  while (!stopping) {
    const job = await ask(claim, [name, Object.keys(tasks), lease], () => stopping);
    await (job ? work(job) : sleep(200));
  }
  process.exit(0);
})();
