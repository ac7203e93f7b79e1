import type { HostConfig } from "./address.js";
import type { Context } from "./context.js";
import type { Logger } from "./logger.js";
import { type Verdict } from "./outcome.js";
import * as sql from "./sql.js";
/** A claimed attempt; the JSON is still text. */
export interface Claimed extends Omit<Context, "trace" | "signal" | "reason" | "progress"> {
    input: string;
    trace: string | undefined;
}
/** An ended attempt that the server does not know of yet. */
export interface Unreported {
    jobId: number;
    token: string;
    verdict: Verdict;
    /** It was sent before without success: it is now sent by itself, with a short lock timeout. */
    again: boolean;
    /** How often in a row the connection broke while it was sent by itself. */
    breaks: number;
}
/** How the server answered a reported outcome. */
export type Answer = "completed" | "retrying" | "dead" | "cancelled" | "released" | "lost" | "unreported";
/** The result of an exchange. */
export interface Reply {
    answers: {
        token: string;
        answer: Answer;
    }[];
    /** The next exchange reports these again, and the others after a pause. */
    unreported: Unreported[];
    retries: Unreported[];
    retryIn: number;
    /** What was claimed, and when the claim was sent: leases count from before it. */
    claimed: Claimed[] | undefined;
    sentAt: number;
    /** The server cannot be reached: nothing is sent for so long. */
    pauseFor: number | undefined;
    /** The claim failed: none is sent for so long. */
    noClaimFor: number | undefined;
}
export interface ExchangeOptions {
    hosts: HostConfig[];
    claim: Omit<sql.Claim, "maxJobs">;
    /** In milliseconds. */
    lease: number;
    log: Logger;
    onWork: () => void;
    onConnected: () => void;
    onEnd: () => void;
}
/** The most jobs of one claim and completions of one call, and the most text in these. */
export declare const BATCH = 1000;
export declare class Exchange {
    #private;
    constructor(options: ExchangeOptions);
    /** Reports outcomes and claims up to `wanted` jobs.
     * @throws What the server refuses before the first claim has succeeded; nothing after it. */
    run(outcomes: Unreported[], wanted: number): Promise<Reply>;
    get isConnected(): boolean;
    close(): Promise<void>;
}
