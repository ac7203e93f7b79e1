import type { Context, Trace } from "./context.js";
export declare class Telemetry {
    #private;
    private constructor();
    static load(): Promise<Telemetry>;
    /** Runs a call that enqueues, with what is to travel with its jobs. */
    sending<T>(task: string, operation: string, run: (trace: Trace | undefined) => Promise<T>): Promise<T>;
    /** Runs an attempt in a span, which `run` ends with the kind and the text of a failure, if it is one. */
    executing<T>(ctx: Context, run: (failed: (kind: string, error: string) => void) => Promise<T>): Promise<T>;
}
