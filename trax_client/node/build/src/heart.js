// The worker's side of its heartbeat: starts it in a thread, or in the worker's own event loop where no thread can
// have it (a password that is a function, a bundle without the thread's file).
import { Worker as Thread } from "node:worker_threads";
import { now } from "./clock.js";
import { Heartbeat } from "./heartbeat.js";
/** How long the last report of a worker may take, in milliseconds. */
const LAST_LIMIT = 700;
export class Heart {
    #options;
    #log;
    #onStop;
    /** What the heartbeat must be told again if its thread ends. */
    #held = new Map();
    #send;
    #thread;
    #left = () => undefined;
    #leaving = false;
    constructor(options, log, onStop) {
        this.#options = options;
        this.#log = log;
        this.#onStop = onStop;
        this.#send = this.#inThread() ?? this.#inLoop();
    }
    hold(leases, claimedAt) {
        if (leases.length === 0)
            return;
        for (const lease of leases)
            this.#held.set(lease.token, { lease, claimedAt });
        this.#send({ kind: "hold", leases, age: now() - claimedAt });
    }
    drop(tokens) {
        if (tokens.length === 0)
            return;
        for (const token of tokens)
            this.#held.delete(token);
        this.#send({ kind: "drop", tokens });
    }
    progress(token, progress) {
        this.#send({ kind: "progress", token, progress });
    }
    stopping() {
        this.#send({ kind: "stopping" });
    }
    /** Ends it, after a last report. */
    async leave() {
        this.#leaving = true;
        let timer;
        await new Promise((resolve) => {
            this.#left = resolve;
            timer = setTimeout(resolve, LAST_LIMIT);
            this.#send({ kind: "leave" });
        });
        clearTimeout(timer);
        await this.#thread?.terminate();
    }
    #inThread() {
        try {
            const file = new URL("./heartbeat-thread.js", import.meta.url);
            const thread = new Thread(file, { workerData: this.#options, name: "trax heartbeat" });
            thread.on("message", (message) => this.#receive(message));
            thread.on("error", (error) => this.#replace(error));
            this.#thread = thread;
            return (message) => thread.postMessage(message);
        }
        catch (error) {
            this.#log.info(`heartbeats run in the event loop, not in a thread: ${String(error)}`);
            return undefined;
        }
    }
    #inLoop() {
        const heartbeat = new Heartbeat(this.#options, (message) => this.#receive(message));
        heartbeat.run().catch((error) => this.#log.error(`the heartbeat ended: ${String(error)}`));
        return (message) => heartbeat.receive(message);
    }
    #replace(error) {
        if (this.#leaving)
            return this.#left();
        this.#log.warn(`heartbeats go on in the event loop, their thread has ended: ${error.message}`);
        this.#thread = undefined;
        this.#send = this.#inLoop();
        for (const { lease, claimedAt } of this.#held.values()) {
            this.#send({ kind: "hold", leases: [lease], age: now() - claimedAt });
        }
    }
    #receive(message) {
        switch (message.kind) {
            case "stop":
                return this.#onStop(message.token, message.reason);
            case "trouble":
                return this.#log.warn(`heartbeat: ${message.error}; again in ${Math.round(message.retryIn)} ms`);
            case "recovered":
                return this.#log.info("heartbeat: recovered");
            case "progress refused":
                return this.#log.warn(`job ${message.jobId}: its progress is refused: ${message.error}`);
            case "left":
                return this.#left();
        }
    }
}
