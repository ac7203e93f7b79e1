// The claim connection, which reports outcomes and claims jobs.
//
// An exchange reports the collected outcomes and then claims; completions and the claim are one call. An outcome is
// reported again if the connection broke, if the server had no time, lock or room for it, or if no answer arrived. If
// it had already been recorded, the answer is "lost" and nothing changes. Outcomes that were refused together, or in
// a call when the connection broke, are sent one by one.

import type { HostConfig } from "./address.js";
import { now } from "./clock.js";
import { Backoff, Connection, type Row } from "./connection.js";
import type { Context, Durable } from "./context.js";
import { DisconnectedError, NotPermittedError, ServerError, type TraxError, blame, isOfTheValues, notInstalled, translated } from "./errors.js";
import type { Lease, LeaseAnswer } from "./heartbeat.js";
import { dateOf } from "./json.js";
import { type Logger, few } from "./logger.js";
import { NOT_RECORDED, NOT_RETURNED, TIMED_OUT, type Verdict, instead } from "./outcome.js";
import * as sql from "./sql.js";
import { checkVersion, version } from "./version.js";

/** A claimed attempt, with JSON as text. */
export interface Claimed extends Omit<Context, "trace" | "signal" | "reason" | "progress" | keyof Durable> {
  input: string;
  /** How many steps the job has recorded before this attempt. */
  steps: number;
  trace: string | undefined;
}

/** An ended attempt that the server does not know of yet. */
export interface Unreported {
  jobId: number;
  token: string;
  verdict: Verdict;
  /** The outcome was sent before without success, and is now sent alone with a short lock timeout. */
  again: boolean;
  /**
   * The number of consecutive times that the connection broke while it was sent alone, or that its size left it
   * unanswered.
   */
  breaks: number;
  unanswered: number;
}

/** The server's answer to a reported outcome. */
export type Answer = "completed" | "retrying" | "dead" | "timed out" | "cancelled" | "released" | "lost" | "unreported";

/** The result of an exchange. */
export interface Reply {
  answers: { token: string; answer: Answer }[];
  /** The next exchange reports `unreported` again; `retries` follow after a pause. */
  unreported: Unreported[];
  retries: Unreported[];
  retryIn: number;
  /**
   * The claimed jobs, and when the claim was sent: leases are counted from that moment, which is before they begin.
   */
  claimed: Claimed[] | undefined;
  sentAt: number;
  /** The answers of a heartbeat over this connection, and when it was sent. */
  extended: { answers: LeaseAnswer[]; sentAt: number } | undefined;
  /** The server cannot be reached: nothing is sent for this long. */
  pauseFor: number | undefined;
  /** The claim failed: no claim is sent for this long. */
  noClaimFor: number | undefined;
}

export interface ExchangeOptions {
  hosts: HostConfig[];
  claim: Omit<sql.Claim, "maxJobs">;
  concurrency: number;
  /** In milliseconds. */
  lease: number;
  log: Logger;
  onWork: () => void;
  onConnected: () => void;
  onEnd: () => void;
}

/** The maximum number of jobs in a claim and completions in a call, and the maximum length of their text. */
export const BATCH = 1000;
const BATCH_TEXT = 4 << 20;
/** The maximum pause before an outcome is reported again. */
const LONGEST_PAUSE = 10_000;
/** Once the server had no time for this many outcomes of an exchange, the others are reported later. */
const FAILURES_AT_MOST = 2;
/** The errors of a server whose SQL is older: an unknown column or function, or the library's own refusal. */
const OF_OLDER_SQL = new Set(["42703", "42883", "55000"]);
/** The number of consecutive times that an outcome may break the connection before it is recorded as failed. */
const BREAKS_AT_MOST = 5;
/** The number of times that an outcome larger than `LARGE` may stay unanswered. By the second time its lease has ended,
 * or heartbeats were answered meanwhile, so its size is the cause. */
const UNANSWERED_AT_MOST = 2;
const LARGE = 64 << 10;
/** The maximum number of outcomes reported for an attempt, each replacing the previous one. */
const PLACES = 5;

/** A connection that reports outcomes. */
type Queried = Pick<Connection, "query">;

export class Exchange {
  readonly #options: ExchangeOptions;
  readonly #limit: number;
  readonly #backoff = new Backoff();
  #connection: Connection | undefined;
  #isChecked = false;
  #isAnnounced = false;
  #installed: string = version;
  #hasClaimed = false;
  /** Refused although the extension's version matches: the refusal may date from just before the update. */
  #wasRefused = false;
  #isTroubled = false;
  /** The last refusal logged. A refusal that repeats, as before an update, is logged once. */
  #refusal: string | undefined;
  #pause = 0;
  /** The addition to the first message about an unreachable server. */
  #remark: string;

  constructor(options: ExchangeOptions) {
    this.#options = options;
    this.#remark = options.hosts.some(({ isDefault }) => isDefault) ? "; DATABASE_URL is not set" : "";
    // An answer after more than half a lease is of little use.
    this.#limit = Math.min(Math.max(options.lease / 2, 2000), 30_000);
  }

  /** Reports outcomes and claims up to `wanted` jobs, after extending leases that no heartbeat extends.
   * @throws The server's refusal before the first claim has succeeded; nothing after it. */
  async run(outcomes: Unreported[], wanted: number, held: Lease[] = []): Promise<Reply> {
    const reply: Reply = {
      answers: [],
      unreported: outcomes,
      retries: [],
      retryIn: 0,
      claimed: undefined,
      sentAt: 0,
      extended: undefined,
      pauseFor: undefined,
      noClaimFor: undefined,
    };
    try {
      const connection = await this.#connected();
      if (held.length > 0) await this.#extend(connection, held, reply);
      await this.#report(connection, reply, wanted);
      this.#backoff.reset();
      if (this.#isTroubled) this.#options.log.info("recovered");
      this.#isTroubled = false;
      this.#refusal = undefined;
    } catch (error) {
      this.#failed(translated(error), reply);
    }
    if (reply.retries.length === 0) this.#pause = 0;
    else this.#pause = reply.answers.length > 0 ? 100 : Math.min(Math.max(this.#pause * 2, 100), LONGEST_PAUSE);
    reply.retryIn = this.#pause;
    return reply;
  }

  get isConnected(): boolean {
    return this.#connection !== undefined && !this.#connection.isClosed;
  }

  /** Reports that the worker has ended. If that fails too, the server soon counts it as gone. */
  async leave(): Promise<void> {
    const { claim, lease } = this.#options;
    if (!this.isConnected) return;
    await this.#connection?.query(sql.reportWorker(claim.worker, lease / 3, "stopped")).catch(() => undefined);
  }

  async close(): Promise<void> {
    await this.#connection?.close();
  }

  #failed(error: TraxError, reply: Reply): void {
    const atFault = blame(error);
    let prefix = "";
    if (!this.#hasClaimed && atFault === "call") {
      const isOurs = this.#installed === version;
      const mayBeStale = error instanceof ServerError && OF_OLDER_SQL.has(error.sqlstate ?? "") && !this.#wasRefused;
      if (error instanceof NotPermittedError || (isOurs && !mayBeStale)) throw error;
      this.#wasRefused = isOurs;
      // An update may bring the functions that this version calls. The next connection checks again.
      if (!isOurs) {
        prefix = `trax-worker ${version} waits: the extension trax is ${this.#installed}; if that is older, type: alter extension trax update; `;
      }
      this.#isChecked = false;
      void this.#connection?.close();
      this.#connection = undefined;
    }
    const retryIn = this.#backoff.next();
    // Without a connection no outcome can be reported either: a password or the database is wrong.
    if (atFault === "connection" || !this.isConnected) reply.pauseFor = retryIn;
    else reply.noClaimFor = retryIn;
    this.#isTroubled = true;
    const isKnown = atFault === "call" && this.#refusal === error.message;
    this.#refusal = atFault === "call" ? error.message : undefined;
    const remark = error instanceof DisconnectedError ? this.#remark : "";
    if (remark !== "") this.#remark = "";
    if (!isKnown) this.#options.log.warn(`${prefix}${error.message}${remark}; again in ${Math.round(retryIn)} ms`);
  }

  /** Extends leases over this connection, which also reports begun jobs. */
  async #extend(connection: Connection, held: Lease[], reply: Reply): Promise<void> {
    const { lease } = this.#options;
    for (let at = 0; at < held.length; at += BATCH) {
      const batch = held.slice(at, at + BATCH);
      const sentAt = now();
      const [ids, tokens] = [batch.map(({ jobId }) => jobId), batch.map(({ token }) => token)];
      const rows = await connection.query(sql.heartbeat(ids, tokens, `${lease} ms`));
      const answers = batch.map(({ token }, index): LeaseAnswer => ({ held: false, ...rows[index], token }));
      reply.extended = { answers: [...(reply.extended?.answers ?? []), ...answers], sentAt: reply.extended?.sentAt ?? sentAt };
    }
  }

  async #connected(): Promise<Connection> {
    if (this.#connection !== undefined && !this.#connection.isClosed) return this.#connection;
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

  /** Checks once whether the extension's version fits this package, and which tasks have waiting jobs but no worker; the
   * first time also says what runs here. */
  async #check(connection: Connection): Promise<void> {
    try {
      const [row] = await connection.query(sql.version);
      const installed = row?.["version"] as string | null;
      if (installed === null) throw notInstalled(String(row?.["database"]));
      checkVersion(installed);
      this.#installed = installed;
      this.#announce(String(row?.["database"]));
      const waiting = await connection.query(sql.waitingTasks(this.#options.claim.groups)).catch(() => []);
      const unhandled = waiting.map((one) => String(one["task"])).filter((task) => !this.#options.claim.tasks.includes(task));
      if (unhandled.length > 0) this.#options.log.warn(`jobs wait that this worker has no handler for: ${few(unhandled.sort())}`);
    } catch (error) {
      await connection.close();
      throw error;
    }
  }

  #announce(database: string): void {
    if (this.#isAnnounced) return;
    this.#isAnnounced = true;
    const { claim, concurrency, log } = this.#options;
    const where = `in database "${database}", of the tasks ${few(claim.tasks.toSorted())}`;
    log.info(`worker "${claim.worker}" runs ${concurrency} jobs at once ${where}`);
  }

  async #report(connection: Connection, reply: Reply, wanted: number): Promise<void> {
    const singly = ({ again, verdict }: Unreported): boolean =>
      again || verdict.kind !== "complete" || verdict.isNoted === true || verdict.note !== undefined;
    const singles = reply.unreported.filter(singly);
    reply.unreported = reply.unreported.filter((one) => !singly(one));
    await this.#reportEach(connection, singles, reply);
    while (reply.unreported.length > 0) {
      const batch = takeBatch(reply.unreported);
      const claims = wanted > 0 && reply.unreported.length === 0;
      if (await this.#complete(connection, batch, reply, claims ? wanted : 0)) {
        if (claims) return;
      }
    }
    if (wanted === 0) return;
    reply.sentAt = now();
    const rows = await connection.query(sql.claimNext(this.#claim(wanted), this.#limit / 5));
    this.#take(rows, reply);
  }

  /** Sends completions in one call, with the claim if jobs are wanted. Returns false if they were sent one by one. */
  async #complete(connection: Connection, batch: Unreported[], reply: Reply, wanted: number): Promise<boolean> {
    const done: sql.Completions = {
      jobIds: batch.map(({ jobId }) => jobId),
      tokens: batch.map(({ token }) => token),
      outputs: batch.map(({ verdict }) => (verdict.kind === "complete" ? (verdict.output ?? null) : null)),
    };
    const sentAt = now();
    let rows: Row[];
    try {
      rows = await connection.query(
        wanted > 0
          ? sql.completeAndClaim(done, this.#claim(wanted), this.#limit / 5)
          : sql.completeMany(done, this.#limit / 5),
      );
    } catch (error) {
      for (const one of batch) one.again = true;
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

  #claim(wanted: number): sql.Claim {
    return { ...this.#options.claim, maxJobs: Math.min(wanted, BATCH) };
  }

  #take(rows: Row[], reply: Reply): void {
    reply.claimed = rows.map(claimedOf);
    this.#hasClaimed = true;
  }

  async #reportEach(connection: Connection, all: Unreported[], reply: Reply): Promise<void> {
    let failures = 0;
    for (const [at, outcome] of all.entries()) {
      try {
        reply.answers.push({ token: outcome.token, answer: await this.#reportOne(connection, outcome, failures > 0) });
        continue;
      } catch (error) {
        const isFirst = !outcome.again;
        outcome.again = true;
        if (connection.isClosed) {
          this.#broke(outcome, connection, translated(error));
          // The outcome waits and delays no other.
          reply.retries.push(outcome);
          reply.unreported.unshift(...all.slice(at + 1));
          throw error;
        }
        if (isFirst) this.#options.log.warn(`job ${outcome.jobId}: its outcome is reported later: ${translated(error).message}`);
      }
      outcome.breaks = outcome.unanswered = 0;
      reply.retries.push(outcome);
      failures += 1;
      if (failures === FAILURES_AT_MOST) {
        // Their turn comes before that of the failed ones.
        reply.retries.unshift(...all.slice(at + 1));
        return;
      }
    }
  }

  async #reportOne(connection: Connection, outcome: Unreported, hasty: boolean): Promise<Answer> {
    const lockTimeout = outcome.again || hasty ? Math.max(100, Math.min(this.#pause, this.#limit) / 5) : this.#limit / 5;
    return report(connection, outcome, lockTimeout, this.#options.log);
  }

  /** Counts that the connection broke, or no answer arrived, while an outcome was sent alone, without an error of the
   * server. */
  #broke(outcome: Unreported, connection: Connection, error: TraxError): void {
    const size = sizeOf(outcome.verdict);
    const times = (count: number, what: string): string => `the ${size} bytes of the outcome ${what} ${count} times: ${error.message}`;
    if (error.message.startsWith("no answer")) {
      outcome.unanswered += size > LARGE ? 1 : 0;
      if (outcome.unanswered === UNANSWERED_AT_MOST) this.#giveUp(outcome, times(UNANSWERED_AT_MOST, "had no answer"));
      return;
    }
    if (connection.wasEnded || (error instanceof ServerError && error.sqlstate !== undefined)) return;
    outcome.breaks += 1;
    if (outcome.breaks === BREAKS_AT_MOST) this.#giveUp(outcome, times(BREAKS_AT_MOST, "ended the connection"));
  }

  #giveUp(outcome: Unreported, why: string): void {
    this.#options.log.warn(`job ${outcome.jobId}: ${why}`);
    const { verdict } = outcome;
    if (verdict.kind !== "fail") outcome.verdict = instead(verdict, why);
    else outcome.verdict = { ...verdict, error: `${verdict.error.slice(0, 1000)}; ${why}`, detail: undefined };
    // Without its note, a completion gets as many tries again.
    if (outcome.verdict.kind === "complete") outcome.breaks = outcome.unanswered = 0;
  }
}

function sizeOf(verdict: Verdict): number {
  if (verdict.kind === "complete") return verdict.output?.length ?? 0;
  return verdict.kind === "fail" ? verdict.error.length + (verdict.detail?.length ?? 0) : 0;
}

/** Reports an outcome. A refused outcome becomes a failed attempt, so that the job does not hang. */
export async function report(connection: Queried, outcome: Unreported, lockTimeout: number, log: Logger): Promise<Answer> {
  await takeNote(connection, outcome.verdict);
  let verdict = outcome.verdict;
  for (let place = 0; place < PLACES; place += 1) {
    try {
      const answer = await send(connection, outcome, verdict, lockTimeout);
      if (verdict.kind === "recorded" && answer !== "completed") log.warn(`job ${outcome.jobId}: ${NOT_RECORDED}`);
      if (verdict.kind !== "complete" || !verdict.isNoted || answer !== "lost") return answer;
      log.warn(`job ${outcome.jobId}: ${NOT_RETURNED}`);
      return "completed";
    } catch (error) {
      const ours = translated(error);
      if (!isOfTheValues(ours)) throw ours;
      log.warn(`job ${outcome.jobId}: its outcome is refused: ${ours.message}`);
      verdict = instead(verdict, ours.message, verdict !== outcome.verdict);
    }
  }
  return "unreported";
}

/** Reads the note of a completion, once: it is reported without the note if that fails. */
async function takeNote(connection: Queried, verdict: Verdict): Promise<void> {
  if (verdict.kind !== "complete" || verdict.note === undefined) return;
  const { note } = verdict;
  verdict.note = undefined;
  verdict.detail = await note((statement) => connection.query(statement));
}

async function send(connection: Queried, { jobId, token }: Unreported, verdict: Verdict, lockTimeout: number): Promise<Answer> {
  const call = async (name: string, named: Record<string, sql.Argument> = {}): Promise<unknown> => {
    const lease = { job_id: ["bigint", jobId], token: ["uuid", token] } as const;
    const [row] = await connection.query(sql.value(name, { ...lease, ...named }, lockTimeout));
    return row?.["result"];
  };
  const held = async (answer: Answer, result: Promise<unknown>): Promise<Answer> => ((await result) ? answer : "lost");
  switch (verdict.kind) {
    case "complete":
      return held("completed", call("complete", { output: ["jsonb", verdict.output], detail: ["jsonb", verdict.detail] }));
    case "fail": {
      const { error, detail, retryIn, permanent, closeRate } = verdict;
      return (await call("fail", {
        error: ["text", error],
        detail: ["jsonb", detail],
        retry_in: ["interval", retryIn],
        permanent: ["boolean", permanent],
        close_rate: ["boolean", closeRate],
      })) as Answer;
    }
    case "release":
      return held("released", call("release", { delay: ["interval", verdict.delay] }));
    case "acknowledge cancel":
      return held("cancelled", call("acknowledge_cancel"));
    case "timed out": {
      if (await call("acknowledge_cancel")) return "timed out";
      // By the server's clock the timeout is not over, or the lease is lost.
      return (await call("fail", { error: ["text", TIMED_OUT] })) === "lost" ? "lost" : "timed out";
    }
    case "cancel own":
      return held("cancelled", call("cancel_own", { reason: ["text", verdict.reason] }));
    case "recorded":
      return answerToRecorded(await call("fail", { error: ["text", NOT_RECORDED] }));
    case "suspended":
    case "failed already":
      return "dead";
  }
}

/** Lost if the handler has completed the job, as it says. */
const answerToRecorded = (answer: unknown): Answer => (answer === "lost" ? "completed" : (answer as Answer));

function takeBatch(outcomes: Unreported[]): Unreported[] {
  let text = 0;
  const tooMuch = outcomes.findIndex(({ verdict }, at) => {
    text += verdict.kind === "complete" ? (verdict.output?.length ?? 0) : 0;
    return at === BATCH || (text > BATCH_TEXT && at > 0);
  });
  return outcomes.splice(0, tooMuch === -1 ? outcomes.length : tooMuch);
}

/** Returns a claimed job. */
export function claimedOf(row: Row): Claimed {
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
    steps: Number(row["steps"]),
  };
}
