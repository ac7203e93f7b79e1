import type { Reason } from "./outcome.js";

/** The span that enqueued a job, as stored with it. */
export type Trace = Record<string, unknown>;

/** The context of an attempt, as a handler sees it. */
export interface Context {
  /** Exact, as ids stay below 2^53. */
  readonly jobId: number;
  /** The lease's fencing token, for a handler that calls `Client.complete` in its own transaction. */
  readonly token: string;
  /** The number of the attempt; 1 is the first, `maxAttempts` the last. */
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly task: string;
  /** The manifest that the job came from. */
  readonly manifest: string | undefined;
  readonly groupName: string | undefined;
  /** When the job was first queued, by the server's clock. */
  readonly queuedAt: Date;
  /** The time for which the manifest scheduled the job. */
  readonly scheduledFor: Date | undefined;
  /** The time limit of the attempt, in milliseconds. */
  readonly timeout: number | undefined;
  /** The trace data stored with the job: `traceparent` and `tracestate`. */
  readonly trace: Trace | undefined;
  /** Aborted when the attempt should stop: cancelled, timeout, lease lost, or shutdown. Its reason is a `Stopped`.
   * Pass it to functions that accept a signal (`fetch`, timers), or call `signal.throwIfAborted()` in a long loop. */
  readonly signal: AbortSignal;
  /** The reason why the attempt should stop, or undefined. */
  readonly reason: Reason | undefined;
  /** Reports the job's progress, which `trax.job` shows while it runs: a number, a text or a small document (at most
   * 8 KiB). The call is cheap: the worker sends the latest report of each job at most twice a second. */
  progress(value: unknown): void;
}
