// The result of a handler, and the verdict that the worker reports for it.
//
// Input: the value that a handler returned or threw, and the reason for which it was asked to stop. Output: a verdict
// to report to the server. A stop that the job did not cause never uses up an attempt.

import type { Read } from "./connection.js";
import { describe, messageOf } from "./describe.js";
import { type Duration, checkDelay } from "./duration.js";
import { UsageError } from "./errors.js";
import { sendable, toJson } from "./json.js";
import { checkOptions, flag } from "./options.js";

/** The reason why an attempt should stop. */
export type Reason = "cancelled" | "timeout" | "lease lost" | "shutdown";

/** The reason of `ctx.signal`: the attempt should stop. */
export class Stopped extends Error {
  override name = "Stopped";

  constructor(readonly reason: Reason) {
    super(`the attempt should stop: ${reason}`);
  }
}

/** Throw it to postpone the job by this delay, without using up an attempt. */
export class Snooze extends Error {
  override name = "Snooze";

  constructor(readonly delay: Duration) {
    checkDelay(delay, 'new Snooze("90 s") or new Snooze("90000 ms")');
    super(`snoozed for ${delay}`);
  }
}

/** Throw it to end the job as cancelled. No retry and no dead letter follows. */
export class Cancel extends Error {
  override name = "Cancel";

  constructor(reason = "cancelled by its handler") {
    super(reason);
  }
}

/** Throw it to fail and be retried after this delay instead of the job's own. `detail` is stored with the run. With
 * `closeRate`, nothing of the job's rate and key starts before, as an API asks for with `Retry-After`. */
export class RetryIn extends Error {
  override name = "RetryIn";

  readonly closeRate: boolean;

  constructor(
    readonly delay: Duration, message?: string, readonly detail?: unknown, options: { closeRate?: boolean } = {},
  ) {
    checkDelay(delay, 'new RetryIn("90 s") or new RetryIn("90000 ms")');
    const example = 'new RetryIn("90 s", "busy", undefined, { closeRate: true })';
    checkOptions(options, { closeRate: flag }, example);
    if (Object.keys(Object(detail)).join() === "closeRate") throw new UsageError(`the detail has the option closeRate; write ${example}`);
    super(message ?? `to be retried in ${delay}`);
    this.closeRate = options?.closeRate ?? false;
  }
}

/** Throw it to fail permanently: no attempt follows. `detail` is stored with the run. */
export class Permanent extends Error {
  override name = "Permanent";

  constructor(message = "failed for good", readonly detail?: unknown) {
    super(message);
  }
}

/** Returned by a handler that has called `Client.complete` in its own transaction. */
export const RECORDED: unique symbol = Symbol("the handler has recorded its outcome");

export const NOT_RECORDED =
  "the handler returned RECORDED, but has not completed the job: call complete of a Client, and commit";

export const NOT_RETURNED = "the handler has completed the job itself: return RECORDED";

/** The running attempts, by token, and whether their handlers have completed them. */
const attempts = new Map<string, boolean>();

/** Notes that an attempt was completed in a transaction of its handler. */
export function noteCompletion(token: string): void {
  if (attempts.has(token)) attempts.set(token, true);
}

/** Returns whether the handler of a running attempt has completed it. */
export const hasCompleted = (token: string): boolean => attempts.get(token) === true;

/** Runs an attempt; its completion says whether the handler has completed it, too. */
export async function noting(token: string, run: () => Promise<Verdict>): Promise<Verdict> {
  attempts.set(token, false);
  try {
    const verdict = await run();
    return verdict.kind === "complete" && hasCompleted(token) ? { ...verdict, isNoted: true } : verdict;
  } finally {
    attempts.delete(token);
  }
}

/** Reads the detail of a completion over a connection. */
export type Note = (read: Read) => Promise<string | undefined>;

/** The result to report for one lease, with JSON and text ready to send. */
export type Verdict =
  /** `note` reads the detail when the completion is reported. */
  | { kind: "complete"; output: string | undefined; isNoted?: boolean; note?: Note | undefined; detail?: string | undefined }
  | { kind: "fail"; error: string; detail?: string | undefined; retryIn?: string; permanent?: boolean; closeRate?: boolean }
  | { kind: "release"; delay?: string }
  | { kind: "acknowledge cancel" }
  | { kind: "timed out" }
  | { kind: "cancel own"; reason: string }
  | { kind: "recorded" }
  /** The server has ended the attempt already. */
  | { kind: "suspended" }
  | { kind: "failed already"; error: string };

/**
 * Returns the verdict on a returned value. The handler has completed; the server decides whether the lease is still
 * valid.
 */
export function onOutput(output: unknown): Verdict {
  if (output === RECORDED) return { kind: "recorded" };
  try {
    return { kind: "complete", output: toJson("the output", output) };
  } catch (error) {
    return failure(messageOf(error as Error), { permanent: true });
  }
}

/** Returns the verdict on a thrown value, which may be anything. `reason` is that for which the
 * handler was asked to stop. */
export function onError(error: unknown, reason: Reason | undefined): Verdict {
  try {
    return verdictOn(error, reason);
  } catch {
    return reason === undefined ? failure(describe(error)) : onStop(reason);
  }
}

function verdictOn(error: unknown, reason: Reason | undefined): Verdict {
  if (error instanceof Cancel) return { kind: "cancel own", reason: sendable(messageOf(error)) };
  if (reason !== undefined) return onStop(reason);
  if (error instanceof Snooze) return { kind: "release", delay: String(error.delay) };
  if (error instanceof RetryIn) {
    const { delay, closeRate } = error;
    return failure(messageOf(error), { detail: detailOf(error), retryIn: String(delay), closeRate: Boolean(closeRate) });
  }
  if (error instanceof Permanent) return failure(messageOf(error), { detail: detailOf(error), permanent: true });
  const stack = error instanceof Error ? error.stack : undefined;
  return failure(describe(error), { detail: stack && JSON.stringify({ stack: sendable(stack).slice(0, 4000) }) });
}

/** Returns the verdict on a handler that gave up, or was abandoned, because it was asked to stop. */
export function onStop(reason: Reason): Verdict {
  if (reason === "timeout") return { kind: "timed out" };
  // After a loss of contact the lease may only seem lost, so it is released.
  return { kind: reason === "cancelled" ? "acknowledge cancel" : "release" };
}

/** Returns a failure. */
export function failure(
  error: string,
  rest: { detail?: string | undefined; retryIn?: string; permanent?: boolean; closeRate?: boolean } = {},
): Verdict & { kind: "fail" } {
  return { kind: "fail", error: sendable(error), ...rest };
}

/** Returns the replacement for an outcome that the server would refuse each time. A completion loses its note, and then
 * becomes a permanent failure, so that finished work does not run again. A failure loses its detail, and at the second
 * refusal its delay; whether to retry stays as the handler requested. */
export function instead(refused: Verdict, why: string, again = false): Verdict & { kind: "complete" | "fail" } {
  if (refused.kind === "complete" && refused.detail !== undefined) return { ...refused, detail: undefined };
  if (refused.kind !== "fail") return failure(`the outcome was refused: ${why}`, { permanent: true });
  const { error, detail, retryIn, permanent, closeRate } = refused;
  const stays = permanent === undefined ? {} : { permanent };
  if (detail === undefined || again) return failure(error, { ...stays, detail });
  const leftOut = sendable(`left out, ${detail.length} bytes: ${why}`);
  const delayed = retryIn === undefined ? {} : { retryIn, closeRate: closeRate ?? false };
  return failure(error, { ...stays, ...delayed, detail: JSON.stringify({ detail: leftOut }) });
}

/** The error of an attempt that exceeded its timeout, with the same text as the server's. */
export const TIMED_OUT = "it ran longer than its timeout";

/** Returns the detail of an error as JSON, or as the text that says why it is left out. */
function detailOf(error: { detail?: unknown }): string | undefined {
  try {
    return toJson("the detail", error.detail);
  } catch (mistake) {
    return JSON.stringify(sendable(messageOf(mistake as Error)));
  }
}
