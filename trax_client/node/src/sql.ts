// Calls of the contract with named arguments. JSON is sent as text and times as seconds, so that type parsers set in
// `pg` by the program do not affect rows. Arguments appear once and in order, so that a library which numbers its own
// parameters can use the text too.

/** A statement and its parameters. */
export interface Statement {
  text: string;
  values: unknown[];
}

/** The columns of a claim. */
const claimed = `job_id, token::text as token, attempt, max_attempts, task, input::text as input, manifest, group_name,
  extract(epoch from scheduled_for)::float8 as scheduled_for, extract(epoch from queued_at)::float8 as queued_at,
  extract(epoch from timeout)::float8 as timeout, trace::text as trace, coalesce(steps, 0) as steps`;

/** The columns of a job. */
const job = `job_id, state, attempt, task, manifest, group_name, priority,
  extract(epoch from run_at)::float8 as run_at, extract(epoch from scheduled_for)::float8 as scheduled_for,
  extract(epoch from queued_at)::float8 as queued_at, extract(epoch from started_at)::float8 as started_at,
  extract(epoch from finished_at)::float8 as finished_at, worker, error, output::text as output,
  progress::text as progress`;

/** The type and the value of an argument; an undefined value leaves it out. */
export type Argument = readonly [type: string, value: unknown];

/** Returns `trax.f(a => $1::t, b => $2::u)`, with only names written in this package, never a value. A lock timeout in
 * milliseconds is set while the first argument is evaluated: in the same statement, for its transaction alone. */
function call(name: string, named: Record<string, Argument>, lockTimeout?: number): Statement {
  const values: unknown[] = lockTimeout === undefined ? [] : [`${Math.ceil(lockTimeout)}ms`];
  const texts: string[] = [];
  for (const [argument, [type, value]] of Object.entries(named)) {
    if (value === undefined) continue;
    const parameter = `$${values.push(value)}::${type}`;
    texts.push(
      lockTimeout !== undefined && texts.length === 0
        ? `${argument} => case when pg_catalog.set_config('lock_timeout', $1::text, true) is not null then ${parameter} end`
        : `${argument} => ${parameter}`,
    );
  }
  return { text: `trax.${name}(${texts.join(", ")})`, values };
}

const selecting = (columns: string, { text, values }: Statement): Statement => ({
  text: `select ${columns} from ${text}`,
  values,
});

/** Returns the call of a function with one result, named `result`. */
export const value = (name: string, named: Record<string, Argument>, lockTimeout?: number): Statement => {
  const { text, values } = call(name, named, lockTimeout);
  return { text: `select ${text} as result`, values };
};

/** The parameters of a claim. */
export interface Claim {
  worker: string;
  maxJobs: number;
  tasks: string[];
  groups: string[] | undefined;
  versions: string[] | undefined;
  lease: string;
}

const claiming = ({ worker, maxJobs, tasks, groups, versions, lease }: Claim): Record<string, Argument> => ({
  worker: ["text", worker],
  max_jobs: ["int", maxJobs],
  tasks: ["text[]", tasks],
  groups: ["text[]", groups],
  versions: ["text[]", versions],
  lease: ["interval", lease],
});

/** The completions of one call, as three arrays of the same length. */
export interface Completions {
  jobIds: number[];
  tokens: string[];
  outputs: (string | null)[];
}

const completing = ({ jobIds, tokens, outputs }: Completions): Record<string, Argument> => ({
  job_ids: ["bigint[]", jobIds],
  tokens: ["uuid[]", tokens],
  outputs: ["jsonb[]", outputs.some((output) => output !== null) ? outputs : undefined],
});

export const claimNext = (claim: Claim, lockTimeout: number): Statement =>
  selecting(claimed, call("claim_next", claiming(claim), lockTimeout));

export const completeMany = (done: Completions, lockTimeout: number): Statement =>
  selecting("complete_many as completed_job_id", call("complete_many", completing(done), lockTimeout));

export const completeAndClaim = (done: Completions, claim: Claim, lockTimeout: number): Statement =>
  selecting(
    `completed_job_id, ${claimed}`,
    call("complete_and_claim", { ...completing(done), ...claiming(claim) }, lockTimeout),
  );

export const heartbeat = (jobIds: number[], tokens: string[], lease: string): Statement =>
  selecting(
    "job_id, held, cancel_requested",
    call("heartbeat", { job_ids: ["bigint[]", jobIds], tokens: ["uuid[]", tokens], lease: ["interval", lease] }),
  );

/** `period` is in milliseconds: the next report must follow within two periods. */
export const reportWorker = (name: string, period: number, state: string, info?: string): Statement =>
  value("report_worker", {
    name: ["text", name],
    period: ["interval", `${period} ms`],
    state: ["text", state],
    info: ["jsonb", info],
  });

export const enqueueMany = (named: Record<string, Argument>): Statement =>
  selecting("enqueue_many as result", call("enqueue_many", named));

export const getJobs = (jobIds: number[]): Statement =>
  selecting(job, call("get_jobs", { job_ids: ["bigint[]", jobIds] }));

/** The statements of steps name their first column `state`: null, "lost" or no row if the lease is lost. */
export const recordStep = (named: Record<string, Argument>, lockTimeout?: number): Statement =>
  selecting("recorded as state, output::text as output", call("record_step", named, lockTimeout));

/** The step has no result, so no attempt may follow: both are one transaction. */
export const recordStepAndFail = (named: Record<string, Argument>, error: string, lockTimeout: number): Statement => {
  const { text, values } = call("record_step", named, lockTimeout);
  const next = values.length + 1;
  const lease = `job_id => $${next}::bigint, token => $${next + 1}::uuid`;
  return {
    text: `select trax.fail(${lease}, error => $${next + 2}::text, permanent => true) as state from ${text}`,
    values: [...values, named["job_id"]?.[1], named["token"]?.[1], error],
  };
};

export const sleep = (named: Record<string, Argument>, lockTimeout: number): Statement =>
  selecting("sleep as state", call("sleep", named, lockTimeout));

export const awaitSignal = (named: Record<string, Argument>, lockTimeout: number): Statement =>
  selecting("state, payload::text as output", call("await_signal", named, lockTimeout));

export const spawn = (named: Record<string, Argument>, lockTimeout: number): Statement =>
  selecting("spawn as state", call("spawn", named, lockTimeout));

export const awaitChildren = (named: Record<string, Argument>, lockTimeout: number): Statement =>
  selecting("state, children::text as output", call("await_children", named, lockTimeout));

export const readSteps = (jobId: number): Statement =>
  selecting(
    `step, kind, output::text as output, attempt, extract(epoch from recorded_at)::float8 as recorded_at, timed_out,
  wait::text as wait, undo::text as undo`,
    call("read_steps", { job_id: ["bigint", jobId] }),
  );

export const enqueueGraph = (named: Record<string, Argument>): Statement =>
  selecting("name, job_id", call("enqueue_graph", named));

export const readNeeds = (jobId: number): Statement =>
  selecting("name, job_id, state, output::text as output, error", call("read_needs", { id: ["bigint", jobId] }));

export const readGraph = (jobId: number): Statement =>
  selecting(
    `name, job_id, task, state, pg_catalog.to_jsonb(needs)::text as needs, condition, waits_for, attempt,
  extract(epoch from started_at)::float8 as started_at, extract(epoch from finished_at)::float8 as finished_at, error`,
    call("read_graph", { id: ["bigint", jobId] }),
  );

/** The type of an argument that is a time, given as the time from now. */
export const FROM_NOW = "interval + pg_catalog.now()";

export const waitingTasks = (groups: string[] | undefined): Statement =>
  selecting("task", call("waiting_tasks", { groups: ["text[]", groups] }));

export const awaitJob = (jobId: number, timeout: string): Statement => ({
  text: "call trax.await_job(job_id => $1::bigint, timeout => $2::interval, state => null, output => null, error => null)",
  values: [jobId, timeout],
});

/** The result is named `ended`. */
export const awaitJobs = (jobIds: readonly number[], timeout: string): Statement => ({
  text: "call trax.await_jobs(job_ids => $1::bigint[], timeout => $2::interval, ended => null)",
  values: [jobIds, timeout],
});

/** Returns a row if a transaction is open that has written. */
export const ifWritten: Statement = {
  text: "select 1 as written where pg_catalog.pg_current_xact_id_if_assigned() is not null",
  values: [],
};

export const version: Statement = {
  text: `select pg_catalog.current_database()::text as database, (
    select e.extversion::text from pg_catalog.pg_extension e where e.extname = 'trax') as version`,
  values: [],
};
