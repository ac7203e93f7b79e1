import type { HostConfig } from "./address.js";
import type { Reason } from "./outcome.js";
export interface HeartbeatOptions {
    hosts: HostConfig[];
    name: string;
    /** In milliseconds. */
    lease: number;
    /** What the worker says of itself, as JSON. */
    info: string;
}
/** A lease that the worker holds. */
export interface Lease {
    jobId: number;
    token: string;
    /** How long the attempt may run, in milliseconds. */
    timeout: number | undefined;
}
/** What the worker says to its heartbeat. */
export type ToHeart = 
/** These began; they were claimed `age` milliseconds ago. */
{
    kind: "hold";
    leases: Lease[];
    age: number;
} | {
    kind: "drop";
    tokens: string[];
} | {
    kind: "progress";
    token: string;
    progress: string;
}
/** The worker claims no more. */
 | {
    kind: "stopping";
}
/** The worker has ended. */
 | {
    kind: "leave";
};
/** What the heartbeat says to its worker. */
export type FromHeart = 
/** The attempt should stop. */
{
    kind: "stop";
    token: string;
    reason: Reason;
} | {
    kind: "trouble";
    error: string;
    retryIn: number;
} | {
    kind: "recovered";
} | {
    kind: "progress refused";
    jobId: number;
    error: string;
} | {
    kind: "left";
};
export declare class Heartbeat {
    #private;
    constructor(options: HeartbeatOptions, post: (message: FromHeart) => void);
    receive(message: ToHeart): void;
    run(): Promise<void>;
}
