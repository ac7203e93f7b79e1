import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { hosts } from "./address.js";
import { UsageError } from "./errors.js";
import { quiet } from "./logger.js";
import { Run } from "./run.js";
import { Telemetry } from "./telemetry.js";
import { version } from "./version.js";
/** Claims jobs and runs handlers until it is stopped.
 *
 *     const worker = new Worker({ connection: "postgresql://localhost/shop", concurrency: 20 });
 *     worker.task<{ to: string }>("mail.send", async ({ to }, ctx) => send(to, { signal: ctx.signal }));
 *     await worker.run();
 */
export class Worker {
    #options;
    #tasks = new Map();
    #run;
    #stopped = "no";
    constructor(options = {}) {
        this.#options = options;
        check(options);
    }
    task(name, ...rest) {
        const [decoder, handler] = (rest.length === 2 ? rest : [undefined, ...rest]);
        if (this.#tasks.has(name))
            throw new UsageError(`the task "${name}" has a handler already; a task has one`);
        if (name === "" || typeof handler !== "function")
            throw new UsageError("task() takes a name, a decoder if you like, and a function");
        this.#tasks.set(name, { handler, decoder });
        return this;
    }
    /** Runs until a signal, `stop` or an empty queue ends it. It waits for a server that cannot be reached, also at
     * the start.
     * @throws UsageError without a handler, and at the start what the server refuses for good: no extension
     * (NotInstalledError), no right (NotPermittedError), another password. */
    async run() {
        if (this.#tasks.size === 0)
            throw new UsageError('this worker has no handler: add one with worker.task("name", function)');
        if (this.#run !== undefined)
            throw new UsageError("this worker runs already");
        const run = (this.#run = new Run(await this.#setup()));
        const onSignal = () => this.#signalled();
        if (this.#options.signals ?? true)
            process.on("SIGTERM", onSignal).on("SIGINT", onSignal);
        try {
            if (this.#stopped !== "no")
                this.#apply();
            return await run.run();
        }
        finally {
            process.off("SIGTERM", onSignal).off("SIGINT", onSignal);
            this.#run = undefined;
        }
    }
    /** Claims no more, and lets handlers end within the grace period: what the first signal does. */
    stop() {
        if (this.#stopped === "no")
            this.#stopped = "drain";
        this.#apply();
    }
    /** Gives everything back at once: what the second signal does. */
    release() {
        this.#stopped = "release";
        this.#apply();
    }
    #signalled() {
        if (this.#stopped === "no")
            this.stop();
        else
            this.release();
    }
    #apply() {
        this.#run?.stop(this.#stopped === "release" ? 0 : undefined);
    }
    async #setup() {
        const options = this.#options;
        const name = options.name ?? `${hostname()}:${process.pid}:${randomBytes(3).toString("hex")}`;
        const at = hosts(options.connection);
        const lease = options.lease ?? 30_000;
        const concurrency = options.concurrency ?? 10;
        const tasks = [...this.#tasks.keys()];
        const info = { host: hostname(), pid: process.pid, version, language: "node", tasks: tasks.slice(0, 50), groups: options.groups, concurrency };
        return {
            tasks: this.#tasks,
            concurrency,
            pollInterval: options.pollInterval ?? 200,
            grace: options.grace ?? 30_000,
            cancelPatience: options.cancelPatience ?? 10_000,
            untilEmpty: options.untilEmpty ?? false,
            log: options.logger ?? quiet,
            telemetry: await Telemetry.load(),
            exchange: { hosts: at, lease, claim: { worker: name, tasks, groups: options.groups, lease: `${lease} ms` } },
            heartbeat: { hosts: at, name, lease, info: JSON.stringify(info) },
        };
    }
}
function check({ concurrency = 10, lease = 30_000, connection }) {
    if (!Number.isInteger(concurrency) || concurrency < 1) {
        throw new UsageError(`the concurrency is ${concurrency}: give a whole number from 1`);
    }
    if (!(lease >= 1000))
        throw new UsageError(`the lease is ${lease}: give milliseconds, at least 1000`);
    hosts(connection);
}
