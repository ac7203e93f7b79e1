// Enqueues jobs and reads their state over a connection of the caller, in its transaction if there is one.

import type pg from "pg";

import { type Duration, checkSpan } from "./duration.js";
import {
  type EnqueueOptions, type EnqueueSqlOptions, type JobChange, argumentsOf, changeKinds, changesOf, inputOf, newInputOf,
  optionKinds, sqlKinds,
} from "./enqueue.js";
import { UsageError, translated } from "./errors.js";
import { Graph, type Member, type Need, memberOf, needOf } from "./graph.js";
import { dateOf, fromJson, toJson } from "./json.js";
import { kindOf } from "./kind.js";
import {
  anything, checkId, checkList, checkName, checkOptions, checkText, flag, key, nearest, noOption,
} from "./options.js";
import { noteCompletion } from "./outcome.js";
import * as sql from "./sql.js";
import { type Undo, stepsOf, undoOf } from "./steps.js";
import type { Stored } from "./stored.js";
import { Telemetry } from "./telemetry.js";

/** Runs statements with numbered parameters: a `Client`, `PoolClient` or `Pool` of `pg`, or an adapter for the
 * transaction of another library. */
export interface Queryable {
  query(text: string, values: unknown[]): PromiseLike<{ rows: unknown[] }>;
}

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

/** A step of a job. */
export interface Step {
  step: string;
  kind: "step" | "sleep" | "signal" | "child" | "jobs";
  output: unknown;
  attempt: number;
  /** Undefined for the wait in which the job is suspended. */
  recordedAt: Date | undefined;
  timedOut: boolean;
  /** Of a wait: since when, and for what. */
  wait: unknown;
  undo: unknown;
}

/** The result of a job. */
export interface JobResult<Output = unknown> {
  state: JobState;
  output: Output | undefined;
  error: string | undefined;
}

/** The result of one of the jobs of `awaitJobs`; the state of a job that does not exist is "unknown". */
export interface EndedJob<Output = unknown> extends Omit<JobResult<Output>, "state"> {
  jobId: number;
  state: JobState | "unknown";
}

export class Client {
  readonly #db: Queryable;
  #telemetry: Promise<Telemetry> | undefined;

  /** @param db A connection, a pool, or a transaction that the caller has begun and commits. */
  constructor(db: Queryable) {
    checkDb(db, "new Client(db)");
    this.#db = db;
  }

  /** Queues a job and returns its id. In a transaction the job exists once it commits. */
  async enqueue(task: string, input: unknown = {}, options: EnqueueOptions = {}): Promise<number> {
    return this.#sending(task, "enqueue", options, async (rest) => {
      const named = { task: ["text", task], input: ["jsonb", inputOf(input)], ...rest } as const;
      return Number(await this.#value("enqueue", named));
    });
  }

  /** Queues a statement, or several that form one transaction, which the server runs, and returns the id of its job. */
  async enqueueSql(command: string, options: EnqueueSqlOptions = {}): Promise<number> {
    checkText("command", command, 'enqueueSql("call rollup()")');
    checkOptions(options, sqlKinds, 'enqueueSql("call rollup()", { runAs: "reporter" })');
    const { runAs, ...rest } = options ?? {};
    const named = { command: ["text", command], run_as: ["text", runAs], ...argumentsOf(rest) } as const;
    return Number(await this.#value("enqueue_sql", named));
  }

  /** Queues a job for each input in one round trip, and returns their ids in the order of the inputs. */
  async enqueueMany(task: string, inputs: readonly unknown[], options: EnqueueOptions = {}): Promise<number[]> {
    checkList("inputs", inputs, 'enqueueMany("mail.send", [{ to: "ada" }])');
    return this.#sending(task, "enqueue_many", options, async (rest) => {
      const all = inputs.map((input, at) => inputOf(input, `inputs[${at}]`));
      const rows = await this.#rows(sql.enqueueMany({ task: ["text", task], inputs: ["jsonb[]", all], ...rest }));
      return rows.map(({ result }) => Number(result));
    });
  }

  /** Queues the jobs of a graph, all or none, and returns their ids by name. */
  async enqueueGraph(graph: Graph): Promise<Map<string, number>> {
    if (!(graph instanceof Graph)) throw new UsageError("the graph is no Graph; write new Graph()");
    const named = { document: ["jsonb", graph.document()], unique_key: ["text", graph.uniqueKey] } as const;
    const rows = await this.#rows(sql.enqueueGraph(named));
    return new Map(rows.map((row) => [String(row["name"]), Number(row["job_id"])]));
  }

  /** Queues the job that runs after all jobs of a batch, and returns its id: the option `batch` of `enqueue` adds a job,
   * and `sealBatch` says that all have been added. */
  async openBatch(task: string, input: unknown = {}, options: EnqueueOptions = {}): Promise<number> {
    return this.#sending(task, "open_batch", options, async (rest) => {
      const named = { task: ["text", task], input: ["jsonb", inputOf(input)], ...rest } as const;
      return Number(await this.#value("open_batch", named));
    });
  }

  /** Lets the job of a batch run once all its jobs have ended; returns their number. */
  async sealBatch(batch: number): Promise<number> {
    checkId("batch", batch, "sealBatch(batch)");
    return Number(await this.#value("seal_batch", { batch: ["bigint", batch] }));
  }

  /** Returns the jobs that a job of a graph needed, or all of its batch. */
  async readNeeds<Output = unknown>(jobId: number): Promise<Need<Output>[]> {
    checkId("jobId", jobId, "readNeeds(jobId)");
    return (await this.#rows(sql.readNeeds(jobId))).map((row) => needOf<Output>(row));
  }

  /** Returns all jobs of the graph or batch that a job belongs to. */
  async readGraph(jobId: number): Promise<Member[]> {
    checkId("jobId", jobId, "readGraph(jobId)");
    return (await this.#rows(sql.readGraph(jobId))).map(memberOf);
  }

  /** Returns a job; undefined if it does not exist, or ended longer ago than `trax.run_retention`. */
  async job<Output = unknown>(jobId: number): Promise<Job<Output> | undefined> {
    checkId("jobId", jobId, "job(jobId)");
    const [row] = await this.#rows(sql.getJobs([jobId]));
    return row === undefined ? undefined : jobOf<Output>(row);
  }

  /** Waits until a job has ended, at most for `timeout` (default 30 s); on timeout returns the current state.
   * Other calls on the connection wait until this one returns.
   * @throws UnknownNameError if the job does not exist, UsageError inside a transaction. */
  async awaitJob<Output = unknown>(jobId: number, timeout: Duration = "30 s"): Promise<JobResult<Output>> {
    checkId("jobId", jobId, 'awaitJob(jobId, "90 s")');
    checkSpan("timeout", timeout, 'awaitJob(jobId, "90 s") or awaitJob(jobId, "90000 ms")');
    await this.#refuseTransaction("awaitJob");
    const [row] = await this.#rows(sql.awaitJob(jobId, timeout));
    const state = row?.["state"] as JobState;
    // Read separately as text, as the driver may or may not have parsed the procedure's own output.
    const job = state === "completed" ? await this.job<Output>(jobId) : undefined;
    return { state, output: job?.output, error: textOf(row?.["error"]) };
  }

  /** Waits until one of the jobs has ended, at most for `timeout` (default 30 s), and returns the results of all that
   * have, at most 1000 in a call; on timeout none. A job that does not exist is among them, with the state "unknown".
   * Other calls on the connection wait until this one returns.
   * @throws UsageError inside a transaction. */
  async awaitJobs<Output = unknown>(jobIds: readonly number[], timeout: Duration = "30 s"): Promise<EndedJob<Output>[]> {
    checkList("jobIds", jobIds, 'awaitJobs([7, 8], "90 s")');
    if (jobIds.length === 0) throw new UsageError('jobIds is empty: name a job at least, as in awaitJobs([7, 8], "90 s")');
    for (const [at, jobId] of jobIds.entries()) checkId(`jobIds[${at}]`, jobId, 'awaitJobs([7, 8], "90 s")');
    checkSpan("timeout", timeout, 'awaitJobs(jobIds, "90 s") or awaitJobs(jobIds, "90000 ms")');
    await this.#refuseTransaction("awaitJobs");
    const [row] = await this.#rows(sql.awaitJobs(jobIds, timeout));
    // The driver may have parsed the list or not.
    const ended = (String(row?.["ended"]).match(/-?\d+/g) ?? []).map(Number);
    const jobs = new Map((await this.#rows(sql.getJobs(ended))).map((row) => [Number(row["job_id"]), jobOf<Output>(row)]));
    return ended.map((jobId) => {
      const { state, output, error } = jobs.get(jobId) ?? { state: "unknown" };
      return { jobId, state, output, error };
    });
  }

  /** Cancels a waiting job, or asks the worker of an executing job to stop; also the living jobs that it and its
   * children have spawned, unless `tree` is false. */
  async cancel(
    jobId: number,
    options: { tree?: boolean } = {},
  ): Promise<"cancelled" | "requested" | "finished" | "unknown"> {
    checkId("jobId", jobId, "cancel(jobId)");
    checkOptions(options, { tree: flag }, "cancel(jobId, { tree: false })");
    const named = { job_id: ["bigint", jobId], tree: ["boolean", options?.tree ?? undefined] } as const;
    return (await this.#value("cancel", named)) as "cancelled" | "requested" | "finished" | "unknown";
  }

  /** Changes a job while it waits; values that are left out stay. Returns "changed", or why nothing changed:
   * "suspended" (it has no time to change), "in_progress", "finished" or "unknown". */
  async changeJob(
    jobId: number,
    change: JobChange,
  ): Promise<"changed" | "suspended" | "in_progress" | "finished" | "unknown"> {
    checkId("jobId", jobId, "changeJob(jobId, { priority: 7 })");
    checkOptions(change, changeKinds, "changeJob(jobId, { priority: 7 })");
    const named = { job_id: ["bigint", jobId], ...changesOf(change ?? {}) } as const;
    return (await this.#value("change_job", named)) as "changed" | "suspended" | "in_progress" | "finished" | "unknown";
  }

  /** Sends a signal to a job. A second one with the same `signalId` to the job is a duplicate. */
  async sendSignal(
    jobId: number,
    name: string,
    payload?: unknown,
    options: { signalId?: string } = {},
  ): Promise<"sent" | "duplicate" | "ended" | "unknown"> {
    checkId("jobId", jobId, 'sendSignal(jobId, "paid")');
    checkName("name", name, 'sendSignal(jobId, "paid")');
    checkOptions(options, { signalId: key("click 1") }, 'sendSignal(jobId, "paid", {}, { signalId: "click 1" })');
    const named = {
      job_id: ["bigint", jobId],
      name: ["text", name],
      payload: ["jsonb", toJson("payload", payload)],
      signal_id: ["text", options?.signalId],
    } as const;
    return (await this.#value("send_signal", named)) as "sent" | "duplicate" | "ended" | "unknown";
  }

  /** Returns the steps of a job, also of one that has ended, in the order of recording. */
  async readSteps(jobId: number): Promise<Step[]> {
    checkId("jobId", jobId, "readSteps(jobId)");
    return (await this.#rows(sql.readSteps(jobId))).map(stepOf);
  }

  /** Queues a new job like one that has ended and returns its id. The steps before `fromStep`, by default all, are
   * already recorded. The input is that of the ended job if none is given. */
  async fork(jobId: number, options: { fromStep?: string; input?: unknown } = {}): Promise<number> {
    checkId("jobId", jobId, "fork(jobId)");
    checkOptions(options, { fromStep: key("charge"), input: anything }, 'fork(jobId, { fromStep: "charge" })');
    const named = {
      job_id: ["bigint", jobId],
      from_step: ["text", options?.fromStep],
      input: ["jsonb", newInputOf(options?.input)],
    } as const;
    return Number(await this.#value("fork", named));
  }

  /** Records a step of an attempt in the caller's transaction, with its writes. The first record wins: if `recorded` is
   * false, take the kept output and write nothing. Returns undefined if the lease is lost: roll back. */
  async recordStep<Output = unknown>(
    attempt: { jobId: number; token: string },
    name: string,
    output?: Output,
    options: { undo?: Undo } = {},
  ): Promise<{ recorded: boolean; output: Stored<Output> } | undefined> {
    checkAttempt(attempt, "recordStep(ctx, name, output)");
    checkName("name", name, 'recordStep(ctx, "charge")');
    checkOptions(options, { undo: anything }, 'recordStep(ctx, "charge", 7, { undo: { task: "card.refund" } })');
    stepsOf(attempt)?.reach(name);
    const named = {
      job_id: ["bigint", attempt.jobId],
      token: ["uuid", attempt.token],
      step: ["text", name],
      output: ["jsonb", toJson("output", output)],
      undo: ["jsonb", undoOf(options?.undo)],
    } as const;
    const [row] = await this.#rows(sql.recordStep(named));
    return row && { recorded: Boolean(row["state"]), output: fromJson(row["output"]) as Stored<Output> };
  }

  /** Records the completion of an attempt in the caller's transaction, so that its effects happen exactly once. The
   * handler then returns `RECORDED`. Returns false if the lease is lost: roll back. */
  async complete(attempt: { jobId: number; token: string }, output?: unknown): Promise<boolean> {
    checkAttempt(attempt, "complete(ctx, output)");
    const named = {
      job_id: ["bigint", attempt.jobId],
      token: ["uuid", attempt.token],
      output: ["jsonb", toJson("output", output)],
      detail: ["jsonb", await stepsOf(attempt)?.noteOfOwn()],
    } as const;
    const isRecorded = Boolean(await this.#value("complete", named));
    if (isRecorded) noteCompletion(attempt.token);
    return isRecorded;
  }

  async #sending<T>(
    task: string,
    operation: string,
    options: EnqueueOptions,
    run: (rest: Record<string, sql.Argument>) => Promise<T>,
  ): Promise<T> {
    checkName("task", task, 'enqueue("mail.send", { to: "ada" })');
    checkOptions(options, optionKinds, 'enqueue("mail.send", { to: "ada" }, { priority: 7 })');
    this.#telemetry ??= Telemetry.load();
    const telemetry = await this.#telemetry;
    return telemetry.sending(task, operation, (trace) => run(argumentsOf({ ...(trace && { trace }), ...options })));
  }

  /** Refuses a call that waits outside of transactions, as the refusal of the server would abort the
   * transaction. A connection that does not tell its status is asked whether it has written. */
  async #refuseTransaction(name: string): Promise<void> {
    const { getTransactionStatus: status } = this.#db as Partial<pg.Client>;
    const isOpen = status === undefined ? (await this.#rows(sql.ifWritten)).length > 0 : status.call(this.#db) === "T";
    if (isOpen) throw new UsageError(`${name} waits outside of transactions: commit first, or use another connection`);
  }

  async #value(name: string, named: Record<string, sql.Argument>): Promise<unknown> {
    const [row] = await this.#rows(sql.value(name, named));
    return row?.["result"];
  }

  #rows(statement: sql.Statement): Promise<Record<string, unknown>[]> {
    return rowsOf(this.#db, statement);
  }
}

/** Returns the rows of a statement. */
export async function rowsOf(db: Queryable, { text, values }: sql.Statement): Promise<Record<string, unknown>[]> {
  try {
    return (await db.query(text, values)).rows as Record<string, unknown>[];
  } catch (error) {
    throw translated(error, text);
  }
}

/** Refuses a value that runs no statements. */
export function checkDb(db: unknown, example: string): asserts db is Queryable {
  if (typeof (db as Queryable | null | undefined)?.query === "function") return;
  throw new UsageError(`the connection is ${kindOf(db)}; write ${example} with a Client or Pool of pg`);
}

/** Refuses an attempt without its id or its token. A context has more than those, so other names are no mistake. */
function checkAttempt(attempt: { jobId: number; token: string }, example: string): void {
  const given = Object(attempt) as Record<string, unknown>;
  const missing = ["jobId", "token"].filter((name) => given[name] === undefined);
  const [name] = Object.keys(given).filter((name) => nearest(name, missing) !== undefined);
  if (name !== undefined) throw new UsageError(noOption(name, missing));
  if (missing.length > 0) throw new UsageError("the attempt has no " + missing.join(" and no ") + `; write ${example}`);
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

function stepOf(row: Record<string, unknown>): Step {
  return {
    step: String(row["step"]),
    kind: row["kind"] as Step["kind"],
    output: fromJson(row["output"]),
    attempt: Number(row["attempt"]),
    recordedAt: dateOf(row["recorded_at"]),
    timedOut: Boolean(row["timed_out"]),
    wait: fromJson(row["wait"]),
    undo: fromJson(row["undo"]),
  };
}

const textOf = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);

