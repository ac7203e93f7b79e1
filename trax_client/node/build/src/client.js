// Enqueues jobs and asks about them, over a connection of the caller: in its transaction, if there is one.
import { interval } from "./duration.js";
import { TraxError, UsageError, translated } from "./errors.js";
import { describe } from "./outcome.js";
import { toJson } from "./json.js";
import * as sql from "./sql.js";
import { Telemetry } from "./telemetry.js";
export class Client {
    #db;
    #telemetry;
    /** @param db A connection, a pool, or a transaction that the caller has begun and commits. */
    constructor(db) {
        this.#db = db;
    }
    /** Queues a job and returns its id. In a transaction it exists when that commits, and not before. */
    async enqueue(task, input = {}, options = {}) {
        return this.#sending(task, "enqueue", options, async (rest) => {
            const named = { task: ["text", task], input: ["jsonb", inputOf(input)], ...rest };
            return Number(await this.#value("enqueue", named));
        });
    }
    /** Queues a job for each input in one round trip, and returns their ids in the order of the inputs. */
    async enqueueMany(task, inputs, options = {}) {
        return this.#sending(task, "enqueue_many", options, async (rest) => {
            const all = inputs.map(inputOf);
            const rows = await this.#rows(sql.enqueueMany({ task: ["text", task], inputs: ["jsonb[]", all], ...rest }));
            return rows.map(({ result }) => Number(result));
        });
    }
    /** Returns a job; undefined when there is none, or it ended longer ago than `trax.run_retention`. */
    async job(jobId) {
        const [row] = await this.#rows(sql.getJobs([jobId]));
        return row === undefined ? undefined : jobOf(row);
    }
    /** Waits until a job has ended, at most for `timeout` (30 s); when the time is up the state is what it is then.
     * Every other call on the connection waits for it.
     * @throws UnknownNameError without such a job, WrongStateError inside a transaction. */
    async awaitJob(jobId, timeout = 30_000) {
        const [row] = await this.#rows(sql.awaitJob(jobId, interval(timeout)));
        const state = row?.["state"];
        // Asked for as text: whether the driver has parsed the procedure's own output, nobody knows.
        const job = state === "completed" ? await this.job(jobId) : undefined;
        return { state, output: job?.output, error: textOf(row?.["error"]) };
    }
    /** Cancels a job that waits, and asks the worker of one that runs to stop. */
    async cancel(jobId) {
        return (await this.#value("cancel", { job_id: ["bigint", jobId] }));
    }
    /** Records the completion of an attempt in the caller's transaction, for effects that happen exactly once: the
     * handler then returns `RECORDED`. False when the lease is lost: roll back. */
    async complete(attempt, output) {
        const named = {
            job_id: ["bigint", attempt.jobId],
            token: ["uuid", attempt.token],
            output: ["jsonb", jsonOf("output", output)],
        };
        return Boolean(await this.#value("complete", named));
    }
    async #sending(task, operation, options, run) {
        this.#telemetry ??= Telemetry.load();
        const telemetry = await this.#telemetry;
        return telemetry.sending(task, operation, (trace) => run(argumentsOf({ ...(trace && { trace }), ...options })));
    }
    async #value(name, named) {
        const [row] = await this.#rows(sql.value(name, named));
        return row?.["result"];
    }
    async #rows({ text, values }) {
        try {
            return (await this.#db.query(text, values)).rows;
        }
        catch (error) {
            throw error instanceof TraxError ? error : translated(error);
        }
    }
}
function argumentsOf(options) {
    const span = (duration) => duration === undefined ? undefined : interval(duration);
    const { runAt } = options;
    return {
        run_at: ["timestamptz", runAt instanceof Date ? runAt.toISOString() : runAt],
        group_name: ["text", options.groupName],
        priority: ["int", options.priority],
        max_retries: ["int", options.maxRetries],
        timeout: ["interval", span(options.timeout)],
        unique_key: ["text", options.uniqueKey],
        unique_for: ["interval", span(options.uniqueFor)],
        concurrency_key: ["text", options.concurrencyKey],
        retry_delay: ["interval", span(options.retryDelay)],
        trace: ["jsonb", jsonOf("trace", options.trace)],
    };
}
function inputOf(input) {
    return jsonOf("input", input) ?? "null";
}
function jsonOf(what, value) {
    try {
        return toJson(value);
    }
    catch (error) {
        throw new UsageError(`the ${what} is not JSON: ${describe(error)}`, { cause: error });
    }
}
function jobOf(row) {
    return {
        jobId: Number(row["job_id"]),
        state: row["state"],
        attempt: Number(row["attempt"]),
        task: String(row["task"]),
        manifest: textOf(row["manifest"]),
        groupName: textOf(row["group_name"]),
        priority: Number(row["priority"]),
        runAt: dateOf(row["run_at"]),
        scheduledFor: dateOf(row["scheduled_for"]),
        queuedAt: dateOf(row["queued_at"]),
        startedAt: dateOf(row["started_at"]),
        finishedAt: dateOf(row["finished_at"]),
        worker: textOf(row["worker"]),
        error: textOf(row["error"]),
        output: fromJson(row["output"]),
        progress: fromJson(row["progress"]),
    };
}
const textOf = (value) => (typeof value === "string" ? value : undefined);
const fromJson = (value) => (typeof value === "string" ? JSON.parse(value) : undefined);
/** Returns the date of seconds since 1970. */
export const dateOf = (seconds) => seconds === null || seconds === undefined ? undefined : new Date(Number(seconds) * 1000);
