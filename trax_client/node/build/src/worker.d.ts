import { type Address } from "./address.js";
import type { Decoder } from "./decoder.js";
import type { Handler } from "./execution.js";
import { type Logger } from "./logger.js";
import { type Summary } from "./run.js";
/** Times are in milliseconds. */
export interface WorkerOptions {
    /** Where the database is; by default DATABASE_URL, or PGHOST and its kin. */
    connection?: Address;
    /** The name in leases and runs; by default host, process and a random part. */
    name?: string;
    /** How many handlers run at once (10). */
    concurrency?: number;
    /** Claims only from these groups. */
    groups?: string[];
    /** How long a lease lasts without a heartbeat (30 s); they come every third of it. */
    lease?: number;
    /** How often an empty queue is polled (200 ms), less often after a long idle time and while notifications come. */
    pollInterval?: number;
    /** How long handlers may go on after the first signal (30 s). */
    grace?: number;
    /** How long a handler may go on after its signal is aborted before it is given up (10 s). */
    cancelPatience?: number;
    /** Stop at SIGTERM and SIGINT (true). */
    signals?: boolean;
    /** Stop when a claim finds no job and none is held (false). */
    untilEmpty?: boolean;
    /** Where trouble is said; by default on standard error. */
    logger?: Logger;
}
/** Claims jobs and runs handlers until it is stopped.
 *
 *     const worker = new Worker({ connection: "postgresql://localhost/shop", concurrency: 20 });
 *     worker.task<{ to: string }>("mail.send", async ({ to }, ctx) => send(to, { signal: ctx.signal }));
 *     await worker.run();
 */
export declare class Worker {
    #private;
    constructor(options?: WorkerOptions);
    /** Runs a function for every job of a task; only tasks with a handler are claimed. The input is whatever JSON the
     * job has, or what the decoder makes of it.
     * @throws UsageError when the task has a handler already. */
    task<Input = unknown, Output = unknown>(name: string, handler: Handler<Input, Output>): this;
    task<Input, Output = unknown>(name: string, decoder: Decoder<Input>, handler: Handler<Input, Output>): this;
    /** Runs until a signal, `stop` or an empty queue ends it. It waits for a server that cannot be reached, also at
     * the start.
     * @throws UsageError without a handler, and at the start what the server refuses for good: no extension
     * (NotInstalledError), no right (NotPermittedError), another password. */
    run(): Promise<Summary>;
    /** Claims no more, and lets handlers end within the grace period: what the first signal does. */
    stop(): void;
    /** Gives everything back at once: what the second signal does. */
    release(): void;
}
