import type { Trace } from "./context.js";
import { type Duration } from "./duration.js";
/** What runs a statement with numbered parameters: a `Client`, `PoolClient` or `Pool` of `pg`, or a few lines around
 * the transaction of another library. */
export interface Queryable {
    query(text: string, values: unknown[]): PromiseLike<{
        rows: unknown[];
    }>;
}
/** The options of `trax.enqueue`. */
export interface EnqueueOptions {
    /** Not before this time. */
    runAt?: Date | string;
    groupName?: string;
    /** 0 to 31, the highest first. */
    priority?: number;
    maxRetries?: number;
    /** How long an attempt may run. */
    timeout?: Duration;
    /** While a job with this key is alive, its id is returned and nothing is queued. */
    uniqueKey?: string;
    /** Keeps the unique key alive at least so long after queueing. */
    uniqueFor?: Duration;
    /** One job of a key runs at a time. */
    concurrencyKey?: string;
    retryDelay?: Duration;
    /** `traceparent` and `tracestate`; without it those of OpenTelemetry's active span, if there is one. */
    trace?: Trace;
}
export type JobState = "queued" | "in_progress" | "completed" | "failed" | "cancelled";
/** A job, wherever it is. */
export interface Job<Output = unknown> {
    jobId: number;
    state: JobState;
    /** How many attempts it had. */
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
/** What became of a job. */
export interface JobResult<Output = unknown> {
    state: JobState;
    output: Output | undefined;
    error: string | undefined;
}
export declare class Client {
    #private;
    /** @param db A connection, a pool, or a transaction that the caller has begun and commits. */
    constructor(db: Queryable);
    /** Queues a job and returns its id. In a transaction it exists when that commits, and not before. */
    enqueue(task: string, input?: unknown, options?: EnqueueOptions): Promise<number>;
    /** Queues a job for each input in one round trip, and returns their ids in the order of the inputs. */
    enqueueMany(task: string, inputs: readonly unknown[], options?: EnqueueOptions): Promise<number[]>;
    /** Returns a job; undefined when there is none, or it ended longer ago than `trax.run_retention`. */
    job<Output = unknown>(jobId: number): Promise<Job<Output> | undefined>;
    /** Waits until a job has ended, at most for `timeout` (30 s); when the time is up the state is what it is then.
     * Every other call on the connection waits for it.
     * @throws UnknownNameError without such a job, WrongStateError inside a transaction. */
    awaitJob<Output = unknown>(jobId: number, timeout?: Duration): Promise<JobResult<Output>>;
    /** Cancels a job that waits, and asks the worker of one that runs to stop. */
    cancel(jobId: number): Promise<"cancelled" | "requested" | "finished" | "unknown">;
    /** Records the completion of an attempt in the caller's transaction, for effects that happen exactly once: the
     * handler then returns `RECORDED`. False when the lease is lost: roll back. */
    complete(attempt: {
        jobId: number;
        token: string;
    }, output?: unknown): Promise<boolean>;
}
/** Returns the date of seconds since 1970. */
export declare const dateOf: (seconds: unknown) => Date | undefined;
