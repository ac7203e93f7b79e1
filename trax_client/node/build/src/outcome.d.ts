import { type Duration } from "./duration.js";
/** Why an attempt should stop. */
export type Reason = "cancelled" | "timeout" | "lease lost" | "shutdown";
/** The reason of `ctx.signal`: the attempt should stop. */
export declare class Stopped extends Error {
    readonly reason: Reason;
    name: string;
    constructor(reason: Reason);
}
/** Throw it to put the job off: it waits this long, without using up an attempt. */
export declare class Snooze extends Error {
    readonly delay: Duration;
    name: string;
    constructor(delay: Duration);
}
/** Throw it to end the job as cancelled, neither retried nor a dead letter. */
export declare class Cancel extends Error {
    name: string;
}
/** Throw it to fail, and be retried after this delay instead of the job's own. `detail` is stored in the run. */
export declare class RetryIn extends Error {
    readonly delay: Duration;
    readonly detail?: unknown | undefined;
    name: string;
    constructor(delay: Duration, message?: string, detail?: unknown | undefined);
}
/** Throw it to fail for good: there is no further attempt. `detail` is stored in the run. */
export declare class Permanent extends Error {
    readonly detail?: unknown | undefined;
    name: string;
    constructor(message: string, detail?: unknown | undefined);
}
/** Returned by a handler that has called `Client.complete` in its own transaction. */
export declare const RECORDED: unique symbol;
/** What to report about one lease, with its JSON and texts ready to be sent. */
export type Verdict = {
    kind: "complete";
    output: string | undefined;
} | {
    kind: "fail";
    error: string;
    detail?: string | undefined;
    retryIn?: string;
    permanent?: boolean;
} | {
    kind: "release";
    delay?: string;
} | {
    kind: "acknowledge cancel";
} | {
    kind: "cancel own";
    reason: string;
} | {
    kind: "recorded";
};
/** Returns the verdict on what a handler returned. Done is done: the server decides whether the lease still counts. */
export declare function onOutput(output: unknown): Verdict;
/** Returns the verdict on what a handler threw; the reason is that for which it was asked to stop. */
export declare function onError(error: unknown, reason: Reason | undefined): Verdict;
/** Returns the verdict on a handler that gave up, or was given up, because it was asked to stop. */
export declare function onStop(reason: Reason): Verdict;
/** Returns a failure. */
export declare function failure(error: string, rest?: {
    detail?: string | undefined;
    retryIn?: string;
    permanent?: boolean;
}): Verdict & {
    kind: "fail";
};
/** Returns an error and its causes, at most five, on one line; a cause that the error already names is left out. */
export declare function describe(error: unknown, causes?: number): string;
