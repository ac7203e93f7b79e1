import type { Child } from "./child.js";
import type { Duration } from "./duration.js";
import type { EnqueueOptions, Trace } from "./enqueue.js";
import type { Reason } from "./outcome.js";
import type { IfJson, Stored } from "./stored.js";

/** The job that undoes a step. */
export interface Undo {
  task: string;
  input?: unknown;
}

/** How long to wait: a text (`3 days`), milliseconds, or a time; without any, for ever. */
export interface WaitOptions {
  timeout?: Duration;
  timeoutMs?: number;
  until?: Date | string;
}

/** What a job remembers and waits for. A name that is used again in an attempt becomes `name#2`.
 *
 * When a wait suspends the job, the attempt has ended without being spent: the promise of the call never settles, so
 * no code of the handler runs after it (also no `finally`), and the next attempt gets past the wait. */
export interface Durable {
  /** Runs a function once and returns its result as it is recorded, now and in later attempts: JSON, undefined for
   * null, a text for a Date. `undo` is the job that is queued to undo the step if the job fails for
   * good or is cancelled. */
  step<Output>(
    name: string, run: (() => Output | Promise<Output>) & IfJson<Output>, options?: { undo?: Undo },
  ): Promise<Stored<Output>>;
  /** Suspends the job for a length of time (`3 days`), or until a time. */
  sleep(name: string, until: Duration | Date): Promise<void>;
  /** Returns the payload of the next signal of a name; suspends the job until one is sent. The step has the name of
   * the signal, or `step`.
   * @throws TimedOutError when the time is up, in later attempts too. */
  awaitSignal<Payload = unknown>(name: string, options?: WaitOptions & { step?: string }): Promise<Payload>;
  /** Queues a job as a child of this one, once, and returns its id. */
  spawn(name: string, task: string, input?: unknown, options?: EnqueueOptions): Promise<number>;
  /** Suspends the job until all its children, or any of them (`mode`), have ended. The name of the step is
   * `children`, or `name`.
   * @throws TimedOutError, with the `children`, when the time is up. */
  children(options?: WaitOptions & { name?: string; mode?: "all" | "any" }): Promise<Child[]>;
}

/** The context of an attempt, as a handler sees it. */
export interface Context extends Durable {
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
