// Tests of handlers: runs jobs inline, skips time, and lists the jobs that wait.
//
// An attempt runs as in a worker, but over the connection of the test, and with nothing beside it: no heartbeat extends
// its lease, and neither a timeout nor a cancellation arrives. For databases of tests only, as the role that owns the
// tables of trax or a superuser: time is skipped by changing them.

import { setTimeout as pause } from "node:timers/promises";

import { type Queryable, checkDb, rowsOf } from "./client.js";
import { now } from "./clock.js";
import type { Read, Row } from "./connection.js";
import { type Duration, checkSpan } from "./duration.js";
import type { Trace } from "./enqueue.js";
import { NotPermittedError, TraxError, UsageError } from "./errors.js";
import { claimedOf, report } from "./exchange.js";
import { Execution } from "./execution.js";
import { dateOf, fromJson } from "./json.js";
import { kindOf } from "./kind.js";
import { few } from "./logger.js";
import { checkId, checkName } from "./options.js";
import * as sql from "./sql.js";
import { Worker, setupOf } from "./worker.js";

/** A waiting job. */
export interface Enqueued<Input = unknown> {
  jobId: number;
  task: string;
  input: Input;
  groupName: string;
  priority: number;
  /** The time before which the job cannot be claimed, and the milliseconds until then; 0 or less if it has passed. */
  runAt: Date;
  dueInMs: number;
  /** The reason that the job cannot be claimed; undefined if it is ready. */
  waitsFor: "time" | "key" | "manifest" | "signal" | "jobs" | undefined;
  /** The name of the signal that it waits for. */
  signal: string | undefined;
  /** The number of ended attempts. */
  attempts: number;
  /** The number of attempts that may follow the first; undefined for the server's default. */
  maxRetries: number | undefined;
  parentJobId: number | undefined;
  manifest: string | undefined;
  uniqueKey: string | undefined;
  concurrencyKey: string | undefined;
  trace: Trace | undefined;
}

/** An attempt that a test ran. */
export interface Ran<Output = unknown> {
  jobId: number;
  /** The number of the attempt; 1 is the first. */
  attempt: number;
  /** The state of the job after the attempt: `retrying` after a failure that another attempt follows, `dead` after the
   * last, `released` when it was snoozed, `lost` when its lease ended before. */
  ended: "completed" | "retrying" | "dead" | "cancelled" | "released" | "suspended" | "lost";
  /** The output of the job if it completed, as it is recorded. */
  output: Output | undefined;
  error: string | undefined;
}

/** Moves all times of jobs, attempts and tokens into the past. The server's clock is not touched. */
const PASS = `with waiting as (
        update trax.work_queue
        set run_at = run_at - $1, expires_at = expires_at - $1, wait_until = wait_until - $1
    ), suspended as (
        update trax.step
        set wait = wait || jsonb_build_object('until', (wait ->> 'until')::timestamptz - $1)
        where recorded_at is null and wait ->> 'until' is not null
    ), running as (
        update trax.lease
        set
            started_at = started_at - $1, run_at = run_at - $1, expires_at = expires_at - $1,
            lease_expires_at = lease_expires_at - $1, timeout_at = timeout_at - $1, reap_at = reap_at - $1
    )
    update trax.concurrency_token set acquired_at = acquired_at - $1, extended_at = extended_at - $1, expires_at = expires_at - $1`;

const WAITING = `select q.job_id, q.task, q.input::text as input, q.group_name, q.priority,
    extract(epoch from q.run_at)::float8 as run_at,
    1000 * extract(epoch from q.run_at - pg_catalog.clock_timestamp())::float8 as due_in,
    q.waits_for, q.attempts, q.max_retries, q.parent_job_id, q.manifest, q.unique_key, q.concurrency_key,
    q.trace::text as trace,
    (
      select max(s.wait ->> 'name')
      from trax.step s
      where s.job_id = q.job_id and s.kind = 'signal' and s.recorded_at is null and q.waits_for = 'signal'
    ) as signal
  from trax.work_queue q
  order by q.job_id`;

/** The longest time to try a cycle, the pause before another try, and the time limit of a lock, in milliseconds. */
const PATIENCE = 30_000;
const PAUSE = 5;
const LOCK_TIMEOUT = 5000;
/** The number of attempts, skipped times and cycles after which a job counts as endless. */
const ACTS_AT_MOST = 10_000;
/** The maximum number of waiting jobs in a message. */
const SHOWN = 20;

/** Lets a time pass for waiting and executing jobs, and then runs a cycle: delayed jobs and retries become ready, and
 * leases, timeouts, sleeps and the time limits of waits end. Schedules do not move. */
export async function passTime(db: Queryable, time: Duration): Promise<void> {
  checkDb(db, 'passTime(db, "3 days")');
  checkSpan("time", time, 'passTime(db, "3 days")');
  // An adapter may number the parameters, so each stands once.
  let count = 0;
  const text = PASS.replaceAll("$1", () => `$${(count += 1)}::interval`);
  await asOwner(db, { text, values: Array<string>(count).fill(time) });
  await cycle(db);
}

/** Returns the waiting jobs, or those of a task, ready or not, oldest first. */
export async function enqueued<Input = unknown>(db: Queryable, task?: string): Promise<Enqueued<Input>[]> {
  checkDb(db, 'enqueued(db, "mail.send")');
  if (task !== undefined) checkName("task", task, 'enqueued(db, "mail.send")');
  const jobs = (await asOwner(db, { text: WAITING, values: [] })).map((row) => enqueuedOf<Input>(row));
  return task === undefined ? jobs : jobs.filter((job) => job.task === task);
}

/** Claims the next job, of a task if one is given, runs its handler in this worker, and reports its outcome, all over
 * `db`, which may be a transaction. A failure of the handler is no error here but part of the result.
 * @throws TraxError if no job is ready; its text lists the waiting jobs. */
export async function runOne<Output = unknown>(worker: Worker, db: Queryable, task?: string): Promise<Ran<Output>> {
  checkWorker(worker, db, 'runOne(worker, db, "mail.send")');
  const { tasks, exchange, telemetry, log, cancelPatience } = await setupOf(worker);
  if (task !== undefined && !tasks.has(task)) {
    checkName("task", task, 'runOne(worker, db, "mail.send")');
    throw new UsageError(`this worker has no handler for task "${task}": add one with worker.task("${task}", function)`);
  }
  const query = inTurn(db);
  const claim = { ...exchange.claim, maxJobs: 1, ...(task !== undefined && { tasks: [task] }) };
  const [row] = await query(sql.claimNext(claim, LOCK_TIMEOUT));
  if (row === undefined) {
    const named = task === undefined ? `the tasks ${few(claim.tasks)}` : `task "${task}"`;
    throw await stuck(db, `no job of ${named} is ready`);
  }
  const claimed = claimedOf(row);
  const { jobId, token, attempt } = claimed;
  const execution = new Execution(claimed, {
    progress: () => undefined,
    ask: () => {
      const answer = query(sql.heartbeat([jobId], [token], exchange.claim.lease)).catch(() => []);
      void answer.then(([row]) => execution.stop(row?.["cancel_requested"] ? "cancelled" : "lease lost"));
    },
    calls: { lockTimeout: LOCK_TIMEOUT, run: async (statement) => ({ rows: await query(statement), wasUnanswered: false }) },
    telemetry,
    warn: (message) => log.warn(message),
  });
  const verdict = await execution.run(tasks.get(claimed.task)!, cancelPatience);
  const outcome = { jobId, token, verdict, again: false, breaks: 0, unanswered: 0 };
  const ended = verdict.kind === "suspended" ? verdict.kind : await report({ query }, outcome, LOCK_TIMEOUT, log);
  if (ended === "unreported" || ended === "timed out") throw new TraxError(`the server takes no outcome of job ${jobId}`);
  const ofRun = "select output::text as output, error from trax.run where job_id = $1 and attempt = $2";
  const [run] = await query({ text: ofRun, values: [jobId, attempt] });
  return { jobId, attempt, ended, output: fromJson(run?.["output"]) as Output, error: run?.["error"] ?? undefined };
}

/** Runs a job as `runOne` does, again and again until it has ended or waits for a signal, and returns its last attempt.
 * Sleeps and the delays of retries are skipped. While the job waits for its children, they run in the same way, so the
 * worker needs their handlers, too; older jobs of the same tasks run before. Send a signal with `Client.sendSignal`, or
 * let time pass, and call this again.
 * @throws TraxError if the job does not wait, or nothing here makes it ready. */
export async function runThrough<Output = unknown>(worker: Worker, db: Queryable, jobId: number): Promise<Ran<Output>> {
  checkWorker(worker, db, "runThrough(worker, db, jobId)");
  checkId("jobId", jobId, "runThrough(worker, db, jobId)");
  const id = Number(jobId);
  let last: Ran<Output> | undefined;
  let hasCycled = false;
  for (let act = 0; act < ACTS_AT_MOST; act += 1) {
    const next = nextOf(await enqueued(db), id);
    // The end of a child is only noticed in a cycle.
    const mustCycle: boolean = next?.waitsFor === "jobs" && !hasCycled;
    hasCycled = mustCycle;
    if (next === undefined) {
      if (last !== undefined) return last;
      throw new TraxError(`job ${id} has ended before, or does not exist`);
    } else if (mustCycle) {
      await cycle(db);
    } else if (next.waitsFor === undefined) {
      const ran = await runOne<Output>(worker, db, next.task);
      if (ran.jobId === id) last = ran;
      else await cycle(db);
    } else if (next.waitsFor === "time") {
      // A job is due at the very time.
      await passTime(db, `${Math.max(0, Math.ceil(next.dueInMs)) + 1} ms`);
    } else if (next.waitsFor === "signal") {
      if (next.jobId === id && last !== undefined) return last;
      const send = `sendSignal(${next.jobId}, ${JSON.stringify(next.signal)}) of a Client`;
      throw new TraxError(`job ${next.jobId} waits for the signal "${next.signal}"; send it with ${send}`);
    } else {
      throw await stuck(db, `job ${id} cannot run`);
    }
  }
  throw new TraxError(`job ${id} has not ended in ${ACTS_AT_MOST} attempts`);
}

/** Returns the job whose turn it is: this one or, while it waits for others, one below it. */
function nextOf(jobs: Enqueued[], jobId: number): Enqueued | undefined {
  const job = jobs.find((one) => one.jobId === jobId);
  if (job?.waitsFor !== "jobs") return job;
  const tree = new Set([jobId]);
  // A child is younger than its parent.
  for (const one of jobs) if (tree.has(one.parentJobId ?? NaN)) tree.add(one.jobId);
  const others = jobs.filter((one) => tree.has(one.jobId) && one.waitsFor !== "jobs");
  const first = (waitsFor: string | undefined): Enqueued | undefined => others.find((one) => one.waitsFor === waitsFor);
  return first(undefined) ?? first("time") ?? first("signal") ?? others[0] ?? job;
}

/** Returns the rows of a statement that the owner of the tables of trax may run. */
async function asOwner(db: Queryable, statement: sql.Statement): Promise<Row[]> {
  try {
    return await rowsOf(db, statement);
  } catch (error) {
    if (!(error instanceof NotPermittedError)) throw error;
    const [said] = error.message.split("\n");
    throw new UsageError(`${said}: connect as the owner of the extension, or a superuser`, { cause: error });
  }
}

/** Runs a cycle, after the one that the scheduler may be running, which has not seen the last changes. */
async function cycle(db: Queryable): Promise<void> {
  const end = now() + PATIENCE;
  while ((await asOwner(db, { text: "select step from trax.tick()", values: [] })).length === 0) {
    if (now() > end) throw new TraxError("no cycle could run: another session keeps one open; end its transaction");
    await pause(PAUSE);
  }
}

/** Returns a function that runs statements one after another, as the driver wants them on a connection. */
function inTurn(db: Queryable): Read {
  let last: Promise<unknown> = Promise.resolve();
  return (statement) => {
    const rows = last.then(() => rowsOf(db, statement));
    last = rows.catch(() => undefined);
    return rows;
  };
}

function checkWorker(worker: unknown, db: unknown, example: string): void {
  if (!(worker instanceof Worker)) throw new UsageError(`the worker is ${kindOf(worker)}; write ${example} with a Worker`);
  checkDb(db, example);
}

/** Returns an error with the waiting jobs. */
async function stuck(db: Queryable, what: string): Promise<TraxError> {
  const jobs = await enqueued(db);
  const lines = [what, jobs.length === 0 ? "no job is waiting" : "waiting jobs:", ...jobs.slice(0, SHOWN).map(lineOf)];
  if (jobs.length > SHOWN) lines.push(`  and ${jobs.length - SHOWN} more`);
  return new TraxError(lines.join("\n"));
}

function lineOf({ jobId, task, input, groupName, priority, waitsFor, signal, dueInMs, attempts }: Enqueued): string {
  const whys = {
    time: `due in ${(dueInMs / 1000).toFixed(1)} s`,
    signal: `waiting for the signal "${signal}"`,
    jobs: "waiting for other jobs",
    key: "waiting for its key",
    manifest: "waiting for its manifest",
  };
  const why = waitsFor === undefined ? "ready" : whys[waitsFor];
  const next = attempts === 0 ? "" : `, for attempt ${attempts + 1}`;
  return `  job ${jobId}: ${task} ${JSON.stringify(input)}, group ${groupName}, priority ${priority}, ${why}${next}`;
}

const enqueuedOf = <Input>(row: Row): Enqueued<Input> => ({
  jobId: Number(row["job_id"]),
  task: String(row["task"]),
  input: JSON.parse(row["input"]) as Input,
  groupName: String(row["group_name"]),
  priority: Number(row["priority"]),
  runAt: dateOf(row["run_at"]) ?? new Date(NaN),
  dueInMs: Number(row["due_in"]),
  waitsFor: row["waits_for"] ?? undefined,
  signal: row["signal"] ?? undefined,
  attempts: Number(row["attempts"]),
  maxRetries: row["max_retries"] ?? undefined,
  parentJobId: row["parent_job_id"] === null ? undefined : Number(row["parent_job_id"]),
  manifest: row["manifest"] ?? undefined,
  uniqueKey: row["unique_key"] ?? undefined,
  concurrencyKey: row["concurrency_key"] ?? undefined,
  trace: fromJson(row["trace"]) as Trace | undefined,
});
