import type { Context } from "./context.js";
import { type Decoder } from "./decoder.js";
import type { Claimed } from "./exchange.js";
import { type Reason, type Verdict } from "./outcome.js";
import type { Telemetry } from "./telemetry.js";
/** Runs for every job of a task. What it returns is the output. */
export type Handler<Input = unknown, Output = unknown> = (input: Input, ctx: Context) => Output | Promise<Output>;
export interface Registered {
    handler: Handler;
    decoder: Decoder<unknown> | undefined;
}
export declare class Execution {
    #private;
    readonly claimed: Claimed;
    constructor(claimed: Claimed, report: (progress: string) => void);
    /** Asks the handler to stop; of several reasons the first one stays. */
    stop(reason: Reason): void;
    /** Runs the handler, which is given up when it does not obey a stop within `patience` milliseconds. */
    run(registered: Registered, telemetry: Telemetry, patience: number): Promise<Verdict>;
}
