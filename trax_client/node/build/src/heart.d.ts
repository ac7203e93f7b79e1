import { type HeartbeatOptions, type Lease } from "./heartbeat.js";
import type { Logger } from "./logger.js";
import type { Reason } from "./outcome.js";
export declare class Heart {
    #private;
    constructor(options: HeartbeatOptions, log: Logger, onStop: (token: string, reason: Reason) => void);
    hold(leases: Lease[], claimedAt: number): void;
    drop(tokens: string[]): void;
    progress(token: string, progress: string): void;
    stopping(): void;
    /** Ends it, after a last report. */
    leave(): Promise<void>;
}
