// The options of a job, as the arguments of `trax.enqueue`.

import { type Duration, interval, span, spanMs } from "./duration.js";
import { toJson } from "./json.js";
import { type Kinds, anything, id, key, nameLike, object, oneOf, time, whole } from "./options.js";
import type * as sql from "./sql.js";

/** The span that enqueued a job, as stored with it. */
export type Trace = Record<string, unknown>;

/** The options of `trax.enqueue`. Times are texts (`5 min`), or milliseconds in options whose names end in `Ms`. */
export interface EnqueueOptions {
  /** The time before which the job cannot be claimed; a text has its zone. */
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
  /** What happens to the job that waits with this key: it stays (the default), gets this input and these options, or
   * is also postponed to `runAt`. */
  onDuplicate?: "keep" | "replace" | "postpone";
  /** Jobs with the same key run one at a time. */
  concurrencyKey?: string;
  /** The version of the program that the job needs; see the option `versions` of a worker. */
  version?: string;
  /** The batch that the job is added to, from `openBatch`. */
  batch?: number;
  /** The rate under which the job starts, as `trax.configure_rate` has configured it. */
  rate?: string;
  /** The key of the rate that the job uses: each key has a rate of its own. */
  rateKey?: string;
  /** How much of its rate the job uses; by default 1. */
  cost?: number;
  retryDelay?: Duration;
  retryDelayMs?: number;
  /** `traceparent` and `tracestate`; by default those of OpenTelemetry's active span, if there is one. */
  trace?: Trace;
}

/** The options of `trax.enqueue_sql`: those of `trax.enqueue` that do not concern workers, and a role. */
export interface EnqueueSqlOptions extends Omit<EnqueueOptions, "version" | "batch" | "rate" | "rateKey" | "cost" | "trace"> {
  /** The role that the statement runs as, of which the caller is a member; by default the calling role. */
  runAs?: string;
}

const sharedKinds = {
  runAt: time, groupName: nameLike("mail"), priority: whole(7), maxRetries: whole(3), timeout: span, timeoutMs: spanMs,
  uniqueKey: key("order 7"), uniqueFor: span, uniqueForMs: spanMs, onDuplicate: oneOf("keep", "replace", "postpone"),
  concurrencyKey: key("customer 7"), retryDelay: span, retryDelayMs: spanMs,
};

export const optionKinds = {
  ...sharedKinds, version: nameLike("v2"), batch: id, rate: key("api"), rateKey: key("customer 7"), cost: whole(2),
  trace: object('{ traceparent: "00-..." }'),
} satisfies Kinds<EnqueueOptions>;

export const sqlKinds = { ...sharedKinds, runAs: key("reporter") } satisfies Kinds<EnqueueSqlOptions>;

/** Returns the arguments of `trax.enqueue` for the options. */
export function argumentsOf(options: EnqueueOptions): Record<string, sql.Argument> {
  return {
    run_at: ["timestamptz", timeOf(options.runAt)],
    group_name: ["text", options.groupName],
    priority: ["int", options.priority],
    max_retries: ["int", options.maxRetries],
    timeout: ["interval", interval(options, "timeout")],
    unique_key: ["text", options.uniqueKey],
    unique_for: ["interval", interval(options, "uniqueFor")],
    on_duplicate: ["text", options.onDuplicate],
    concurrency_key: ["text", options.concurrencyKey],
    version: ["text", options.version],
    batch: ["bigint", options.batch],
    rate: ["text", options.rate],
    rate_key: ["text", options.rateKey],
    cost: ["int", options.cost],
    retry_delay: ["interval", interval(options, "retryDelay")],
    trace: ["jsonb", toJson("trace", options.trace)],
  };
}

/** The values of a waiting job that can be changed; those that are left out stay. */
export interface JobChange extends Pick<EnqueueOptions, "runAt" | "priority" | "groupName" | "maxRetries" | "timeout" | "timeoutMs"> {
  input?: unknown;
}

const { runAt, priority, groupName, maxRetries, timeout, timeoutMs } = optionKinds;

export const changeKinds = {
  input: anything, runAt, priority, groupName, maxRetries, timeout, timeoutMs,
} satisfies Kinds<JobChange>;

/** Returns the arguments of `trax.change_job` for a change. */
export function changesOf(change: JobChange): Record<string, sql.Argument> {
  return {
    input: ["jsonb", newInputOf(change.input)],
    run_at: ["timestamptz", timeOf(change.runAt)],
    priority: ["int", change.priority],
    group_name: ["text", change.groupName],
    max_retries: ["int", change.maxRetries],
    timeout: ["interval", interval(change, "timeout")],
  };
}

/** Returns an input as JSON. */
export function inputOf(input: unknown, name = "input"): string {
  return toJson(name, input) ?? "null";
}

/** Returns the input that replaces another one as JSON; null is an input, too. */
export const newInputOf = (input: unknown): string | undefined => (input === undefined ? undefined : inputOf(input));

/** Returns a time as the server reads it: without the sign of years from 10000. */
export const timeOf = (time: Date | string | undefined): string | undefined =>
  time instanceof Date ? time.toISOString().replace(/^\+0*/, "") : time;
