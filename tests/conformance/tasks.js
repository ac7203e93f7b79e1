// The tasks of README.md, in place of the example's own.
const note = (kind, job, how = "") => require("fs").appendFileSync(
  process.env.CONFORMANCE_LOG, `${kind} ${job.job_id} ${job.attempt} ${Date.now()}${how}\n`);
const failing = (text, what) => { throw Object.assign(new Error(text), what); };
const all = {
  echo: (input) => input,
  wait: (input, stop) => new Promise((done) => {
    const end = setTimeout(() => done(input), input.ms);
    stop.addEventListener("abort", () => { clearTimeout(end); done(input); });
  }),
  fail: (input) => failing(input.error),
  fail_permanently: (input) => failing(input.error, { permanent: true }),
  retry_in: (input) => failing("not now", { retry_in: input.seconds }),
  snooze: (input) => { throw new Snooze(input.seconds); },
  large: (input) => "x".repeat(input.bytes),
  typed: (input) => ({ count: input.count + 1 }),
};
const tasks = Object.fromEntries(Object.entries(all).map(([name, task]) => ["conformance." + name, async (job, stop) => {
  if (name === "typed" && !Number.isInteger(job.input.count)) throw new TypeError("count is no whole number");
  note("begin", job);
  try {
    return await task(job.input, stop);
  } finally {
    note("end", job, stop.aborted ? " stopped" : " done");
  }
}]));
