import { type Answer, type ExchangeOptions } from "./exchange.js";
import { type Registered } from "./execution.js";
import type { HeartbeatOptions } from "./heartbeat.js";
import type { Logger } from "./logger.js";
import type { Telemetry } from "./telemetry.js";
/** What a run needs. */
export interface Setup {
    tasks: ReadonlyMap<string, Registered>;
    concurrency: number;
    pollInterval: number;
    grace: number;
    cancelPatience: number;
    untilEmpty: boolean;
    log: Logger;
    telemetry: Telemetry;
    exchange: Pick<ExchangeOptions, "hosts" | "claim" | "lease">;
    heartbeat: HeartbeatOptions;
}
/** What a worker did. */
export interface Summary extends Record<Exclude<Answer, "retrying" | "dead">, number> {
    /** Attempts that failed. */
    failed: number;
}
export declare class Run {
    #private;
    constructor(setup: Setup);
    /** Claims no more, and lets handlers end within the grace period; at once, if asked again. */
    stop(grace?: number): void;
    run(): Promise<Summary>;
}
