// The claim connection: outcomes go out, jobs come in.
//
// One exchange reports the gathered outcomes and then claims; completions and the claim are one call. An outcome is
// reported again when the connection broke, when the server had no time, no lock or no room for it, and when no
// answer came; if it had been recorded already, the answer is then "lost" and nothing changes. Those that a call
// refused together, or that were in it when the connection broke, are sent one by one.
import { dateOf } from "./client.js";
import { now } from "./clock.js";
import { Backoff, Connection } from "./connection.js";
import { ServerError, VersionError, blame, isOfTheValues, notInstalled, translated } from "./errors.js";
import { failure } from "./outcome.js";
import * as sql from "./sql.js";
import { version as ownVersion } from "./version.js";
/** The most jobs of one claim and completions of one call, and the most text in these. */
export const BATCH = 1000;
const BATCH_TEXT = 4 << 20;
/** The longest pause before an outcome is reported again. */
const LONGEST_PAUSE = 10_000;
/** After the server had no time for so many outcomes of an exchange the rest is reported later. */
const FAILURES_AT_MOST = 2;
/** How often in a row one outcome may break the connection before it is recorded as failed. */
const BREAKS_AT_MOST = 5;
export class Exchange {
    #options;
    #limit;
    #backoff = new Backoff();
    #connection;
    #isChecked = false;
    #hasClaimed = false;
    #isTroubled = false;
    #pause = 0;
    constructor(options) {
        this.#options = options;
        // An answer after more than half a lease is of little use.
        this.#limit = Math.min(Math.max(options.lease / 2, 2000), 30_000);
    }
    /** Reports outcomes and claims up to `wanted` jobs.
     * @throws What the server refuses before the first claim has succeeded; nothing after it. */
    async run(outcomes, wanted) {
        const reply = {
            answers: [],
            unreported: outcomes,
            retries: [],
            retryIn: 0,
            claimed: undefined,
            sentAt: 0,
            pauseFor: undefined,
            noClaimFor: undefined,
        };
        try {
            const connection = await this.#connected();
            await this.#report(connection, reply, wanted);
            this.#backoff.reset();
            if (this.#isTroubled)
                this.#options.log.info("recovered");
            this.#isTroubled = false;
        }
        catch (error) {
            this.#failed(translated(error), reply);
        }
        if (reply.retries.length === 0)
            this.#pause = 0;
        else
            this.#pause = reply.answers.length > 0 ? 100 : Math.min(Math.max(this.#pause * 2, 100), LONGEST_PAUSE);
        reply.retryIn = this.#pause;
        return reply;
    }
    get isConnected() {
        return this.#connection !== undefined && !this.#connection.isClosed;
    }
    async close() {
        await this.#connection?.close();
    }
    #failed(error, reply) {
        const atFault = blame(error);
        if (!this.#hasClaimed && atFault === "call")
            throw error;
        const retryIn = this.#backoff.next();
        // Without a connection nothing can be reported either: a password or the database is wrong.
        if (atFault === "connection" || !this.isConnected)
            reply.pauseFor = retryIn;
        else
            reply.noClaimFor = retryIn;
        this.#isTroubled = true;
        this.#options.log.warn(`${error.message}; again in ${Math.round(retryIn)} ms`);
    }
    async #connected() {
        if (this.#connection !== undefined && !this.#connection.isClosed)
            return this.#connection;
        const { hosts, claim, lease, onWork, onConnected, onEnd } = this.#options;
        const connection = await Connection.open({
            hosts,
            applicationName: `trax worker ${claim.worker}`,
            connectLimit: Math.min(5000, Math.max(lease / 6, 1000)),
            limit: this.#limit,
            channel: "trax_work",
            onNotification: onWork,
            onEnd,
        });
        if (!this.#isChecked) {
            await this.#check(connection);
            this.#isChecked = true;
        }
        this.#connection = connection;
        onConnected();
        return connection;
    }
    /** Looks once whether the extension fits this package, and which tasks wait for a worker that nobody is. */
    async #check(connection) {
        try {
            const [row] = await connection.query(sql.version);
            const installed = row?.["version"];
            if (installed === null)
                throw notInstalled(String(row?.["database"]));
            checkVersion(installed, this.#options.log);
            const waiting = await connection.query(sql.waitingTasks(this.#options.claim.groups)).catch(() => []);
            const unhandled = waiting.map((one) => String(one["task"])).filter((task) => !this.#options.claim.tasks.includes(task));
            if (unhandled.length > 0)
                this.#options.log.warn(`jobs wait that this worker has no handler for: ${unhandled.join(", ")}`);
        }
        catch (error) {
            await connection.close();
            throw error;
        }
    }
    async #report(connection, reply, wanted) {
        const singly = (one) => one.again || one.verdict.kind !== "complete";
        const singles = reply.unreported.filter(singly);
        reply.unreported = reply.unreported.filter((one) => !singly(one));
        await this.#reportEach(connection, singles, reply);
        while (reply.unreported.length > 0) {
            const batch = takeBatch(reply.unreported);
            const claims = wanted > 0 && reply.unreported.length === 0;
            if (await this.#complete(connection, batch, reply, claims ? wanted : 0)) {
                if (claims)
                    return;
            }
        }
        if (wanted === 0)
            return;
        reply.sentAt = now();
        const rows = await connection.query(sql.claimNext(this.#claim(wanted), this.#limit / 5));
        this.#take(rows, reply);
    }
    /** Sends completions in one call, with the claim if any jobs are wanted. False when they were sent one by one. */
    async #complete(connection, batch, reply, wanted) {
        const done = {
            jobIds: batch.map(({ jobId }) => jobId),
            tokens: batch.map(({ token }) => token),
            outputs: batch.map(({ verdict }) => (verdict.kind === "complete" ? (verdict.output ?? null) : null)),
        };
        const sentAt = now();
        let rows;
        try {
            rows = await connection.query(wanted > 0
                ? sql.completeAndClaim(done, this.#claim(wanted), this.#limit / 5)
                : sql.completeMany(done, this.#limit / 5));
        }
        catch (error) {
            for (const one of batch)
                one.again = true;
            if (connection.isClosed) {
                reply.unreported.unshift(...batch);
                throw error;
            }
            await this.#reportEach(connection, batch, reply);
            return false;
        }
        const recorded = new Set(rows.map((row) => Number(row["completed_job_id"] ?? NaN)));
        for (const { jobId, token } of batch) {
            reply.answers.push({ token, answer: recorded.has(jobId) ? "completed" : "lost" });
        }
        if (wanted > 0) {
            reply.sentAt = sentAt;
            this.#take(rows.filter((row) => row["completed_job_id"] === null), reply);
        }
        return true;
    }
    #claim(wanted) {
        return { ...this.#options.claim, maxJobs: Math.min(wanted, BATCH) };
    }
    #take(rows, reply) {
        reply.claimed = rows.map(claimedOf);
        this.#hasClaimed = true;
    }
    async #reportEach(connection, all, reply) {
        let failures = 0;
        for (const [at, outcome] of all.entries()) {
            try {
                reply.answers.push({ token: outcome.token, answer: await this.#reportOne(connection, outcome, failures > 0) });
                continue;
            }
            catch (error) {
                outcome.again = true;
                if (connection.isClosed) {
                    this.#broke(outcome, connection, translated(error));
                    reply.unreported.unshift(...all.slice(at));
                    throw error;
                }
                this.#options.log.warn(`job ${outcome.jobId}: its outcome is reported later: ${translated(error).message}`);
            }
            outcome.breaks = 0;
            reply.retries.push(outcome);
            failures += 1;
            if (failures === FAILURES_AT_MOST) {
                reply.retries.push(...all.slice(at + 1));
                return;
            }
        }
    }
    /** Reports one outcome. A refusal becomes a failed attempt, so that the job does not hang. */
    async #reportOne(connection, outcome, hasty) {
        const lockTimeout = outcome.again || hasty ? Math.max(100, Math.min(this.#pause, this.#limit) / 5) : this.#limit / 5;
        try {
            return await send(connection, outcome, outcome.verdict, lockTimeout);
        }
        catch (error) {
            const ours = translated(error);
            if (!isOfTheValues(ours))
                throw ours;
            this.#options.log.warn(`job ${outcome.jobId}: its outcome is refused: ${ours.message}`);
            try {
                return await send(connection, outcome, failureInstead(outcome.verdict, ours), lockTimeout);
            }
            catch (second) {
                if (isOfTheValues(translated(second)))
                    return "unreported";
                throw second;
            }
        }
    }
    /** Counts that the connection broke while one outcome was sent by itself, and the server did not say why. */
    #broke(outcome, connection, error) {
        const said = connection.wasEnded || (error instanceof ServerError && error.sqlstate !== undefined);
        if (said || error.message.startsWith("no answer"))
            return;
        outcome.breaks += 1;
        if (outcome.breaks === BREAKS_AT_MOST) {
            const text = `the outcome ended the connection ${BREAKS_AT_MOST} times: ${error.message}`;
            outcome.verdict = failureInstead(outcome.verdict, new ServerError(text));
        }
    }
}
async function send(connection, { jobId, token }, verdict, lockTimeout) {
    const call = async (name, named = {}) => {
        const lease = { job_id: ["bigint", jobId], token: ["uuid", token] };
        const [row] = await connection.query(sql.value(name, { ...lease, ...named }, lockTimeout));
        return row?.["result"];
    };
    const held = async (answer, result) => ((await result) ? answer : "lost");
    switch (verdict.kind) {
        case "complete":
            return held("completed", call("complete", { output: ["jsonb", verdict.output] }));
        case "fail": {
            const { error, detail, retryIn, permanent } = verdict;
            return (await call("fail", {
                error: ["text", error],
                detail: ["jsonb", detail],
                retry_in: ["interval", retryIn],
                permanent: ["boolean", permanent],
            }));
        }
        case "release":
            return held("released", call("release", { delay: ["interval", verdict.delay] }));
        case "acknowledge cancel":
            return held("cancelled", call("acknowledge_cancel"));
        case "cancel own":
            return held("cancelled", call("cancel_own", { reason: ["text", verdict.reason] }));
        case "recorded":
            return "completed";
    }
}
/** Returns the failure to record in place of an outcome that the server refuses. */
function failureInstead(verdict, error) {
    // Whether to retry stays as the handler asked; what it asked for may be what is refused.
    if (verdict.kind === "fail") {
        const { permanent } = verdict;
        return failure(`${verdict.error.slice(0, 1000)}; ${error.message}`, permanent ? { permanent } : {});
    }
    return failure(`the outcome was refused: ${error.message}`);
}
function takeBatch(outcomes) {
    let text = 0;
    const tooMuch = outcomes.findIndex(({ verdict }, at) => {
        text += verdict.kind === "complete" ? (verdict.output?.length ?? 0) : 0;
        return at === BATCH || (text > BATCH_TEXT && at > 0);
    });
    return outcomes.splice(0, tooMuch === -1 ? outcomes.length : tooMuch);
}
function claimedOf(row) {
    return {
        jobId: Number(row["job_id"]),
        token: String(row["token"]),
        attempt: Number(row["attempt"]),
        maxAttempts: Number(row["max_attempts"]),
        task: String(row["task"]),
        input: String(row["input"]),
        manifest: row["manifest"] ?? undefined,
        groupName: row["group_name"] ?? undefined,
        scheduledFor: dateOf(row["scheduled_for"]),
        queuedAt: dateOf(row["queued_at"]) ?? new Date(NaN),
        timeout: row["timeout"] === null ? undefined : Number(row["timeout"]) * 1000,
        trace: row["trace"] ?? undefined,
    };
}
/** The contract only grows: what is newer than this package serves it, what is older may lack what it calls. */
function checkVersion(installed, log) {
    const [theirs, ours] = [installed, ownVersion].map((text) => text.split(".").map(Number));
    if (theirs[0] !== ours[0]) {
        const newer = (theirs[0] ?? 0) > (ours[0] ?? 0);
        throw new VersionError(`the extension trax is version ${installed}, and this package ${ownVersion}: ` +
            (newer ? "install a newer trax-worker" : "type: alter extension trax update;"));
    }
    if ((theirs[1] ?? 0) < (ours[1] ?? 0)) {
        log.warn(`the extension trax is version ${installed}, older than this package (${ownVersion}); type: alter extension trax update;`);
    }
}
