// Enqueues jobs and reads their state over a connection of the caller, in its transaction if there is one.

import type { Trace } from "./context.js";
import { type Duration, interval } from "./duration.js";
import { TraxError, UsageError, translated } from "./errors.js";
import { describe } from "./outcome.js";
import { toJson } from "./json.js";
import { checkList, checkOptions, checkText, nearest, noOption } from "./options.js";
import * as sql from "./sql.js";
import { Telemetry } from "./telemetry.js";

/** Runs statements with numbered parameters: a `Client`, `PoolClient` or `Pool` of `pg`, or an adapter for the
 * transaction of another library. */
export interface Queryable {
  query(text: string, values: unknown[]): PromiseLike<{ rows: unknown[] }>;
}

/** The options of `trax.enqueue`. Times are texts (`5 min`), or milliseconds in options whose names end in `Ms`. */
export interface EnqueueOptions {
  /** The time before which the job cannot be claimed. */
  runAt?: Date | string;
  groupName?: string;
  /** 0 to 31; a higher priority is claimed first. */
  priority?: number;
  maxRetries?: number;
  /** The time limit of an attempt. */
  timeout?: Duration;
  timeoutMs?: number;
  /** While a job with this key is alive, its id is returned and nothing is queued. */
  uniqueKey?: string;
  /** The minimum time that the unique key stays alive, counted from enqueueing. */
  uniqueFor?: Duration;
  uniqueForMs?: number;
  /** Jobs with the same key run one at a time. */
  concurrencyKey?: string;
  retryDelay?: Duration;
  retryDelayMs?: number;
  /** `traceparent` and `tracestate`; by default those of OpenTelemetry's active span, if there is one. */
  trace?: Trace;
}

/** The names of all options; the compiler reports a missing one. */
const optionNames = Object.keys({
  runAt: 0, groupName: 0, priority: 0, maxRetries: 0, timeout: 0, timeoutMs: 0, uniqueKey: 0, uniqueFor: 0, uniqueForMs: 0,
  concurrencyKey: 0, retryDelay: 0, retryDelayMs: 0, trace: 0,
} satisfies Record<keyof EnqueueOptions, 0>);

export type JobState = "queued" | "in_progress" | "completed" | "failed" | "cancelled";

/** A job in any state. */
export interface Job<Output = unknown> {
  jobId: number;
  state: JobState;
  /** The number of attempts, including one in progress. */
  attempt: number;
  task: string;
  manifest: string | undefined;
  groupName: string | undefined;
  priority: number;
  runAt: Date | undefined;
  scheduledFor: Date | undefined;
  queuedAt: Date | undefined;
  startedAt: Date | undefined;
  finishedAt: Date | undefined;
  worker: string | undefined;
  error: string | undefined;
  output: Output | undefined;
  progress: unknown;
}

/** The result of a job. */
export interface JobResult<Output = unknown> {
  state: JobState;
  output: Output | undefined;
  error: string | undefined;
}

export class Client {
  readonly #db: Queryable;
  #telemetry: Promise<Telemetry> | undefined;

  /** @param db A connection, a pool, or a transaction that the caller has begun and commits. */
  constructor(db: Queryable) {
    this.#db = db;
  }

  /** Queues a job and returns its id. In a transaction the job exists once it commits. */
  async enqueue(task: string, input: unknown = {}, options: EnqueueOptions = {}): Promise<number> {
    return this.#sending(task, "enqueue", options, async (rest) => {
      const named = { task: ["text", task], input: ["jsonb", inputOf(input)], ...rest } as const;
      return Number(await this.#value("enqueue", named));
    });
  }

  /** Queues a job for each input in one round trip, and returns their ids in the order of the inputs. */
  async enqueueMany(task: string, inputs: readonly unknown[], options: EnqueueOptions = {}): Promise<number[]> {
    checkList("inputs", inputs, 'enqueueMany("mail.send", [{ to: "ada" }])');
    return this.#sending(task, "enqueue_many", options, async (rest) => {
      const all = inputs.map(inputOf);
      const rows = await this.#rows(sql.enqueueMany({ task: ["text", task], inputs: ["jsonb[]", all], ...rest }));
      return rows.map(({ result }) => Number(result));
    });
  }

  /** Returns a job; undefined if it does not exist, or ended longer ago than `trax.run_retention`. */
  async job<Output = unknown>(jobId: number): Promise<Job<Output> | undefined> {
    const [row] = await this.#rows(sql.getJobs([jobId]));
    return row === undefined ? undefined : jobOf<Output>(row);
  }

  /** Waits until a job has ended, at most for `timeout` (default 30 s); on timeout returns the current state.
   * Other calls on the connection wait until this one returns.
   * @throws UnknownNameError if the job does not exist, WrongStateError inside a transaction. */
  async awaitJob<Output = unknown>(jobId: number, timeout: Duration = "30 s"): Promise<JobResult<Output>> {
    checkText("timeout", timeout, 'awaitJob(jobId, "90 s") or awaitJob(jobId, "90000 ms")');
    const [row] = await this.#rows(sql.awaitJob(jobId, timeout));
    const state = row?.["state"] as JobState;
    // Read separately as text, as the driver may or may not have parsed the procedure's own output.
    const job = state === "completed" ? await this.job<Output>(jobId) : undefined;
    return { state, output: job?.output, error: textOf(row?.["error"]) };
  }

  /** Cancels a waiting job, or asks the worker of an executing job to stop. */
  async cancel(jobId: number): Promise<"cancelled" | "requested" | "finished" | "unknown"> {
    return (await this.#value("cancel", { job_id: ["bigint", jobId] })) as "cancelled" | "requested" | "finished" | "unknown";
  }

  /** Records the completion of an attempt in the caller's transaction, so that its effects happen exactly once. The
   * handler then returns `RECORDED`. Returns false if the lease is lost: roll back. */
  async complete(attempt: { jobId: number; token: string }, output?: unknown): Promise<boolean> {
    checkAttempt(attempt);
    const named = {
      job_id: ["bigint", attempt.jobId],
      token: ["uuid", attempt.token],
      output: ["jsonb", jsonOf("output", output)],
    } as const;
    return Boolean(await this.#value("complete", named));
  }

  async #sending<T>(
    task: string,
    operation: string,
    options: EnqueueOptions,
    run: (rest: Record<string, sql.Argument>) => Promise<T>,
  ): Promise<T> {
    checkText("task", task, 'enqueue("mail.send", { to: "ada" })');
    checkOptions(options, optionNames, 'enqueue("mail.send", { to: "ada" }, { priority: 7 })');
    this.#telemetry ??= Telemetry.load();
    const telemetry = await this.#telemetry;
    return telemetry.sending(task, operation, (trace) => run(argumentsOf({ ...(trace && { trace }), ...options })));
  }

  async #value(name: string, named: Record<string, sql.Argument>): Promise<unknown> {
    const [row] = await this.#rows(sql.value(name, named));
    return row?.["result"];
  }

  async #rows({ text, values }: sql.Statement): Promise<Record<string, unknown>[]> {
    try {
      return (await this.#db.query(text, values)).rows as Record<string, unknown>[];
    } catch (error) {
      throw error instanceof TraxError ? error : translated(error);
    }
  }
}

/** Refuses an attempt without its id or its token. A context has more than those, so other names are no mistake. */
function checkAttempt(attempt: { jobId: number; token: string }): void {
  const given = Object(attempt) as Record<string, unknown>;
  const missing = ["jobId", "token"].filter((name) => given[name] === undefined);
  const [name] = Object.keys(given).filter((name) => nearest(name, missing) !== undefined);
  if (name !== undefined) throw new UsageError(noOption(name, missing));
  if (missing.length > 0) throw new UsageError("the attempt has no " + missing.join(" and no ") + "; write complete(ctx, output)");
}

function argumentsOf(options: EnqueueOptions): Record<string, sql.Argument> {
  const { runAt } = options;
  return {
    run_at: ["timestamptz", runAt instanceof Date ? runAt.toISOString() : runAt],
    group_name: ["text", options.groupName],
    priority: ["int", options.priority],
    max_retries: ["int", options.maxRetries],
    timeout: ["interval", interval(options, "timeout")],
    unique_key: ["text", options.uniqueKey],
    unique_for: ["interval", interval(options, "uniqueFor")],
    concurrency_key: ["text", options.concurrencyKey],
    retry_delay: ["interval", interval(options, "retryDelay")],
    trace: ["jsonb", jsonOf("trace", options.trace)],
  };
}

function inputOf(input: unknown): string {
  return jsonOf("input", input) ?? "null";
}

function jsonOf(what: string, value: unknown): string | undefined {
  try {
    return toJson(value);
  } catch (error) {
    throw new UsageError(`the ${what} is not JSON: ${describe(error)}`, { cause: error });
  }
}

function jobOf<Output>(row: Record<string, unknown>): Job<Output> {
  return {
    jobId: Number(row["job_id"]),
    state: row["state"] as JobState,
    attempt: Number(row["attempt"]),
    task: String(row["task"]),
    manifest: textOf(row["manifest"]),
    groupName: textOf(row["group_name"]),
    priority: Number(row["priority"]),
    runAt: dateOf(row["run_at"]),
    scheduledFor: dateOf(row["scheduled_for"]),
    queuedAt: dateOf(row["queued_at"]),
    startedAt: dateOf(row["started_at"]),
    finishedAt: dateOf(row["finished_at"]),
    worker: textOf(row["worker"]),
    error: textOf(row["error"]),
    output: fromJson(row["output"]) as Output | undefined,
    progress: fromJson(row["progress"]),
  };
}

const textOf = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);

const fromJson = (value: unknown): unknown => (typeof value === "string" ? JSON.parse(value) : undefined);

/** Returns the date of seconds since 1970. */
export const dateOf = (seconds: unknown): Date | undefined =>
  seconds === null || seconds === undefined ? undefined : new Date(Number(seconds) * 1000);
