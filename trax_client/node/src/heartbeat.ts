// Extends the leases of a worker on a dedicated connection. Normally this runs in its own thread (started by
// `heart.ts`), so a handler that blocks the worker's event loop does not lose its lease.
//
// Every third of a lease one call extends all held leases, and another reports that the worker is alive. The
// connection listens for cancels. A lease that was not extended for its length, measured from before the call, counts
// as lost.

import type { HostConfig } from "./address.js";
import { now } from "./clock.js";
import { Backoff, Connection } from "./connection.js";
import { blame, translated } from "./errors.js";
import type { Reason } from "./outcome.js";
import * as sql from "./sql.js";
import { Wakeup } from "./wakeup.js";

export interface HeartbeatOptions {
  hosts: HostConfig[];
  name: string;
  /** In milliseconds. */
  lease: number;
  /** The worker's properties, as JSON. */
  info: string;
}

/** A lease held by the worker. */
export interface Lease {
  jobId: number;
  token: string;
  /** The time limit of the attempt, in milliseconds, and when it began. */
  timeout: number | undefined;
  beganAt: number;
}

/** The answer of a heartbeat for one lease. */
export interface LeaseAnswer {
  token: string;
  held?: boolean;
  cancel_requested?: boolean;
}

/** A message from the worker to its heartbeat. */
export type ToHeart =
  /** These leases are held; `claimedAt` is by the clock that all threads share. */
  | { kind: "hold"; leases: Lease[]; claimedAt: number }
  | { kind: "drop"; tokens: string[] }
  | { kind: "progress"; token: string; progress: string }
  /** The worker wants to know about this lease. */
  | { kind: "ask"; token: string }
  /** The worker has extended leases over its other connection. */
  | { kind: "extended"; answers: LeaseAnswer[]; sentAt: number }
  /** The worker no longer claims. */
  | { kind: "stopping" }
  /** The worker has ended. */
  | { kind: "leave" };

/** A message from the heartbeat to its worker. */
export type FromHeart =
  /** The attempt should stop. */
  | { kind: "stop"; token: string; reason: Reason }
  /** A heartbeat was answered. */
  | { kind: "heard"; at: number }
  | { kind: "trouble"; error: string; retryIn: number }
  | { kind: "recovered" }
  | { kind: "progress refused"; jobId: number; error: string }
  /** The heartbeat has ended; `isKnown` is whether the server knows that the worker has ended. */
  | { kind: "left"; isKnown: boolean };

interface Held extends Lease {
  validUntil: number;
  timesOutAt: number;
  /** When a notification named the job for cancellation; undefined once a heartbeat has checked. */
  askedAt: number | undefined;
  progress: string | undefined;
}

/** The maximum number of leases that one call extends. */
const BATCH = 1000;
/** The number of periods without reports after a server refused one. */
const REFUSED_PERIODS = 3;
/** The minimum time between heartbeats for cancels, and between rounds of progress reports, in milliseconds. */
const ASK_PERIOD = 100;
const PROGRESS_PERIOD = 500;
/** How often to look for leases that were not extended, in milliseconds. */
const CHECK_PERIOD = 200;
/** The server may count a timeout from a slightly later moment. */
const REPORT_DELAY = 250;

export class Heartbeat {
  readonly #options: HeartbeatOptions;
  readonly #post: (message: FromHeart) => void;
  readonly #held = new Map<string, Held>();
  readonly #wakeup = new Wakeup();
  readonly #period: number;
  readonly #backoff: Backoff;
  #connection: Connection | undefined;
  #nextBeat = 0;
  #nextAsk = 0;
  #nextProgress = 0;
  #failing = false;
  /** The last refusal reported. A refusal that repeats is reported once. */
  #refusal: string | undefined;
  #state: "running" | "stopping" | "stopped" = "running";
  /** When the last report of the worker was accepted, its content, and until when none is sent after a refusal. */
  #reportedAt = -Infinity;
  #reported = "";
  #refusedUntil: number | undefined;
  #mayBeKnown = false;

  constructor(options: HeartbeatOptions, post: (message: FromHeart) => void) {
    this.#options = options;
    this.#post = post;
    this.#period = options.lease / 3;
    this.#backoff = new Backoff(this.#period);
  }

  receive(message: ToHeart): void {
    switch (message.kind) {
      case "hold": {
        for (const lease of message.leases) {
          this.#held.set(lease.token, {
            ...lease,
            validUntil: message.claimedAt + this.#options.lease,
            timesOutAt: lease.beganAt + (lease.timeout ?? Infinity),
            askedAt: undefined,
            progress: undefined,
          });
        }
        return;
      }
      case "drop":
        for (const token of message.tokens) this.#held.delete(token);
        return;
      case "extended":
        for (const answer of message.answers) {
          const held = this.#held.get(answer.token);
          if (held !== undefined) this.#answered(held, answer, message.sentAt);
        }
        return;
      case "progress": {
        const held = this.#held.get(message.token);
        if (held !== undefined) held.progress = message.progress;
        break;
      }
      case "ask": {
        const held = this.#held.get(message.token);
        if (held !== undefined) held.askedAt = now();
        break;
      }
      case "stopping":
        this.#state = "stopping";
        this.#nextBeat = 0;
        break;
      case "leave":
        this.#state = "stopped";
        break;
    }
    this.#wakeup.wake();
  }

  async run(): Promise<void> {
    // On a separate timer, as any call may hang.
    const expiry = setInterval(() => this.#expire(), CHECK_PERIOD);
    while (this.#state !== "stopped") {
      try {
        await this.#doWhatIsDue();
        if (this.#failing) this.#post({ kind: "recovered" });
        this.#failing = false;
        this.#refusal = undefined;
        this.#backoff.reset();
      } catch (error) {
        this.#failed(error);
      }
      await this.#wakeup.wait(this.#nextTime() - now());
    }
    clearInterval(expiry);
    this.#post({ kind: "left", isKnown: await this.#leave() });
  }

  async #doWhatIsDue(): Promise<void> {
    if (now() >= this.#nextBeat) {
      await this.#extend([...this.#held.values()]);
      await this.#reportWorker();
      this.#post({ kind: "heard", at: now() });
      this.#nextBeat = now() + this.#period;
      return;
    }
    if (this.#isAsked() && now() >= this.#nextAsk) {
      await this.#extend([...this.#held.values()].filter((held) => held.askedAt !== undefined));
      this.#nextAsk = now() + ASK_PERIOD;
    }
    if (this.#hasProgress() && now() >= this.#nextProgress) {
      this.#nextProgress = now() + PROGRESS_PERIOD;
      await this.#sendProgress();
    }
  }

  #nextTime(): number {
    if (this.#failing) return this.#nextBeat;
    const ask = this.#isAsked() ? this.#nextAsk : Infinity;
    return Math.min(this.#nextBeat, ask, this.#hasProgress() ? this.#nextProgress : Infinity);
  }

  #isAsked(): boolean {
    return [...this.#held.values()].some((held) => held.askedAt !== undefined);
  }

  #hasProgress(): boolean {
    return [...this.#held.values()].some((held) => held.progress !== undefined);
  }

  async #extend(leases: Held[]): Promise<void> {
    for (let at = 0; at < leases.length; at += BATCH) {
      const batch = leases.slice(at, at + BATCH);
      const connection = await this.#connected();
      const sent = now();
      const ids = batch.map(({ jobId }) => jobId);
      const tokens = batch.map(({ token }) => token);
      const rows = await connection.query(sql.heartbeat(ids, tokens, `${this.#options.lease} ms`));
      // The rows are in the order of the arguments, one per lease.
      batch.forEach((held, index) => this.#answered(held, rows[index] ?? { held: false }, sent));
      this.#post({ kind: "heard", at: now() });
    }
  }

  #answered(held: Held, answer: Omit<LeaseAnswer, "token">, sent: number): void {
    if (!answer.held) return this.#stop(held, "lease lost");
    held.validUntil = sent + this.#options.lease;
    if (held.askedAt !== undefined && held.askedAt < sent) held.askedAt = undefined;
    if (answer.cancel_requested) this.#tell(held, now() >= held.timesOutAt ? "timeout" : "cancelled");
  }

  async #sendProgress(): Promise<void> {
    for (const held of this.#held.values()) {
      const progress = held.progress;
      if (progress === undefined) continue;
      const connection = await this.#connected();
      held.progress = undefined;
      try {
        const [row] = await connection.query(
          sql.value("report_progress", {
            job_id: ["bigint", held.jobId],
            token: ["uuid", held.token],
            progress: ["jsonb", progress],
          }),
        );
        if (row?.["result"] === false) this.#stop(held, "lease lost");
      } catch (error) {
        const ours = translated(error);
        if (blame(ours) !== "call") {
          held.progress ??= progress;
          throw ours;
        }
        this.#post({ kind: "progress refused", jobId: held.jobId, error: ours.message });
      }
    }
  }

  /** Reports that the worker is alive, if a report is due. */
  async #reportWorker(): Promise<void> {
    const period = Math.max(this.#period, 1000);
    const state = this.#state;
    const connection = await this.#connected();
    const fresh = this.#reported === state && now() < this.#reportedAt + period * 0.75;
    if (fresh || (this.#refusedUntil !== undefined && now() < this.#refusedUntil)) return;
    try {
      const info = this.#reported === "" ? this.#options.info : undefined;
      this.#mayBeKnown = true;
      const [row] = await connection.query(sql.reportWorker(this.#options.name, period, state, info));
      this.#refusedUntil = undefined;
      // Otherwise nothing was recorded; the next heartbeat repeats the full report.
      if (row?.["result"] === true) {
        this.#reported = state;
        this.#reportedAt = now();
      }
    } catch (error) {
      if (blame(translated(error)) !== "call") throw error;
      this.#refusedUntil = now() + REFUSED_PERIODS * period;
    }
  }

  /** Reports that the worker has ended. Returns whether the server recorded it. */
  async #leave(): Promise<boolean> {
    const connection = this.#connection;
    if (connection === undefined || connection.isClosed) return false;
    const report = async (): Promise<boolean> => {
      const isRefused = this.#refusedUntil !== undefined;
      if (isRefused || !this.#mayBeKnown) return isRefused;
      const [row] = await connection.query(sql.reportWorker(this.#options.name, this.#period, "stopped"));
      return row?.["result"] === true;
    };
    const isKnown = await report().catch(() => false);
    await connection.close();
    return isKnown;
  }

  async #connected(): Promise<Connection> {
    if (this.#connection !== undefined && !this.#connection.isClosed) return this.#connection;
    const { hosts, name, lease } = this.#options;
    // A second call on another connection must be possible before the lease ends.
    const limit = Math.min(Math.max(lease / 6, 500), lease / 3);
    this.#reported = "";
    this.#refusedUntil = undefined;
    this.#connection = await Connection.open({
      hosts,
      applicationName: `trax worker ${name}`,
      connectLimit: Math.min(5000, Math.max(limit, 1000)),
      limit,
      channel: "trax_cancel",
      onNotification: (payload) => this.#hearCancels(payload),
      onEnd: () => {
        // Notifications sent meanwhile were missed.
        if (this.#held.size > 0) this.#nextBeat = 0;
        this.#wakeup.wake();
      },
    });
    this.#hearCancels("");
    return this.#connection;
  }

  /** Records that jobs may be asked to stop: "7,8"; an empty payload means all. */
  #hearCancels(payload: string): void {
    const named = payload === "" ? undefined : new Set(payload.split(",").map(Number));
    for (const held of this.#held.values()) {
      if (named?.has(held.jobId) ?? true) held.askedAt = now();
    }
    this.#wakeup.wake();
  }

  #expire(): void {
    const moment = now();
    for (const held of this.#held.values()) {
      if (held.validUntil <= moment) this.#stop(held, "lease lost");
      else if (held.timesOutAt + REPORT_DELAY <= moment) {
        held.timesOutAt = Infinity;
        this.#tell(held, "timeout");
      }
    }
  }

  #stop(held: Held, reason: Reason): void {
    if (this.#held.delete(held.token)) this.#tell(held, reason);
  }

  #tell({ token }: Held, reason: Reason): void {
    this.#post({ kind: "stop", token, reason });
  }

  #failed(error: unknown): void {
    const retryIn = this.#backoff.next();
    this.#nextBeat = now() + retryIn;
    // Without a lease the heartbeat is not needed, and the claim connection reports the error.
    if (this.#held.size === 0) return;
    this.#failing = true;
    const ours = translated(error);
    const isKnown = blame(ours) === "call" && this.#refusal === ours.message;
    this.#refusal = blame(ours) === "call" ? ours.message : undefined;
    if (!isKnown) this.#post({ kind: "trouble", error: ours.message, retryIn });
  }
}
