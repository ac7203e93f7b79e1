// A run of a worker: starts claimed jobs, collects the ended ones, and exchanges both with the server.
//
// A claimed job is in one of two places: `running`, or `outbox` (ended, not yet reported; `retries` are those that
// the server had no time for). The job leaves when the server has answered. The heartbeat holds its lease from the
// claim to that answer.

import { setImmediate as loopTurn } from "node:timers/promises";

import { Calls } from "./calls.js";
import { now } from "./clock.js";
import { type Answer, BATCH, Exchange, type ExchangeOptions, type Reply, type Unreported } from "./exchange.js";
import { Execution, type Registered } from "./execution.js";
import { Heart } from "./heart.js";
import type { HeartbeatOptions } from "./heartbeat.js";
import type { Logger } from "./logger.js";
import { TIMED_OUT, type Verdict, onStop } from "./outcome.js";
import { Polling } from "./polling.js";
import type { Telemetry } from "./telemetry.js";
import { Wakeup } from "./wakeup.js";

/** The configuration of a run. */
export interface Setup {
  tasks: ReadonlyMap<string, Registered>;
  concurrency: number;
  pollInterval: number;
  grace: number;
  cancelPatience: number;
  untilEmpty: boolean;
  log: Logger;
  telemetry: Telemetry;
  exchange: Pick<ExchangeOptions, "hosts" | "claim" | "concurrency" | "lease">;
  heartbeat: HeartbeatOptions;
}

/** The results of a worker. */
export interface Summary extends Record<Exclude<Answer, "retrying" | "dead" | "timed out">, number> {
  /** Failed attempts, including those that exceeded their timeout. */
  failed: number;
}

/** After the grace period: the time until handlers are abandoned, and then until the server is, in milliseconds. */
const STOP_PATIENCE = 1000;
const REPORT_PATIENCE = 10_000;
/** The maximum pause before an outcome is reported again during a stop. */
const LAST_PAUSE = 200;
/** How often to check whether heartbeats are answered again. */
const LOOK_PERIOD = 200;

export class Run {
  readonly #setup: Setup;
  readonly #wakeup = new Wakeup();
  readonly #polling: Polling;
  readonly #exchange: Exchange;
  readonly #heart: Heart;
  readonly #calls: Calls;
  /** The running attempts by token. */
  readonly #running = new Map<string, Execution>();
  #outbox: Unreported[] = [];
  #retries: Unreported[] = [];
  #retryAt = 0;
  /** The times before which nothing, or no claim, is sent. */
  #pausedUntil = 0;
  #noClaimUntil = 0;
  #mustReconnect = false;
  /** Whether no heartbeat has been answered for half a lease, and when to extend the leases here instead. */
  #isUnheard = false;
  #extendAt = 0;
  /** When handlers are asked to stop and abandoned, and the server is given up on; infinite while the worker runs. */
  #askAt = Infinity;
  #giveUpAt = Infinity;
  #leaveAt = Infinity;
  readonly #summary: Summary = { completed: 0, failed: 0, cancelled: 0, released: 0, lost: 0, unreported: 0 };

  constructor(setup: Setup) {
    this.#setup = setup;
    this.#polling = new Polling(setup.pollInterval, now());
    this.#heart = new Heart(setup.heartbeat, setup.log, (token, reason) => this.#running.get(token)?.stop(reason));
    const { hosts, lease, claim } = setup.exchange;
    this.#calls = new Calls({ hosts, lease, worker: claim.worker });
    this.#exchange = new Exchange({
      ...setup.exchange,
      log: setup.log,
      onWork: () => {
        this.#polling.notified(now());
        this.#wakeup.wake();
      },
      onConnected: () => {
        this.#polling.connected();
        // The heartbeat lost its connection as well, and gets time to reconnect.
        this.#heart.heardAt = now();
      },
      onEnd: () => {
        this.#mustReconnect = true;
        this.#wakeup.wake();
      },
    });
  }

  /** Stops claiming, and lets handlers end within the grace period; called again, at once. */
  stop(grace = this.#setup.grace): void {
    const moment = now();
    this.#askAt = Math.min(this.#askAt, moment + grace);
    this.#giveUpAt = this.#askAt + (grace === 0 ? 0 : STOP_PATIENCE);
    this.#leaveAt = this.#giveUpAt + REPORT_PATIENCE;
    // A stop skips the pauses.
    this.#pausedUntil = this.#retryAt = moment;
    this.#heart.stopping();
    this.#wakeup.wake();
  }

  get #isStopping(): boolean {
    return this.#askAt < Infinity;
  }

  async run(): Promise<Summary> {
    try {
      while (!this.#isOver()) {
        // Attempts that end in the same turn of the event loop are reported together.
        await loopTurn();
        this.#onTime();
        this.#feelPulse();
        const outcomes = this.#takeOutcomes();
        const wanted = this.#wanted();
        if (outcomes.length > 0 || wanted > 0 || this.#reconnects() || this.#mustExtend) await this.#exchangeNow(outcomes, wanted);
        else await this.#wakeup.wait(this.#wakeAt() - now());
      }
      this.#summary.unreported += this.#outbox.length + this.#retries.length;
      return this.#summary;
    } finally {
      // A heartbeat that had not begun, or was not answered, cannot remove the entry that the claims made for the
      // worker.
      if (!(await this.#heart.leave())) await this.#exchange.leave();
      await Promise.all([this.#exchange.close(), this.#calls.close()]);
    }
  }

  /** Takes the outcomes to report now. */
  #takeOutcomes(): Unreported[] {
    if (now() < this.#pausedUntil) return [];
    if (this.#retries.length > 0 && now() >= this.#retryAt) return this.#retries.splice(0);
    return this.#outbox.splice(0);
  }

  /** Returns the number of jobs to claim now. */
  #wanted(): number {
    const moment = now();
    const waits = moment < Math.max(this.#pausedUntil, this.#noClaimUntil);
    if (this.#isStopping || this.#isUnheard || waits || this.#isFull || moment < this.#polling.nextClaim) return 0;
    return this.#setup.concurrency - this.#running.size;
  }

  get #limit(): number {
    return this.#setup.exchange.lease / 2;
  }

  /** Stops claiming while no heartbeat is answered, as claimed jobs could not be kept. */
  #feelPulse(): void {
    // Without a connection, both wait for the server.
    const isUnheard = this.#exchange.isConnected && now() >= this.#heart.heardAt + this.#limit;
    if (isUnheard === this.#isUnheard) return;
    this.#isUnheard = isUnheard;
    if (isUnheard) this.#setup.log.warn(`nothing is claimed: no heartbeat was answered for ${this.#limit / 1000} s`);
    else if (this.#exchange.isConnected) this.#setup.log.info("heartbeats are answered again, and jobs claimed");
  }

  get #mustExtend(): boolean {
    return this.#isUnheard && now() >= Math.max(this.#extendAt, this.#pausedUntil) && this.#heart.holdsAny;
  }

  /** Whether too many outcomes wait to be reported again. */
  get #isFull(): boolean {
    return this.#retries.length >= Math.max(BATCH, 2 * this.#setup.concurrency);
  }

  #reconnects(): boolean {
    return this.#mustReconnect && now() >= this.#pausedUntil;
  }

  async #exchangeNow(outcomes: Unreported[], wanted: number): Promise<void> {
    this.#mustReconnect = false;
    if (wanted > 0) this.#polling.sent(outcomes.length > 0);
    const held = this.#mustExtend ? this.#heart.leases : [];
    if (held.length > 0) this.#extendAt = now() + this.#setup.exchange.lease / 3;
    const reply = await this.#exchange.run(outcomes, wanted, held);
    const moment = now();
    if (reply.extended !== undefined) this.#heart.extended(reply.extended.answers, reply.extended.sentAt);
    this.#outbox.unshift(...reply.unreported);
    this.#takeRetries(reply, moment);
    if (reply.pauseFor !== undefined) {
      this.#pausedUntil = moment + reply.pauseFor;
      this.#mustReconnect = true;
    }
    if (reply.noClaimFor !== undefined) {
      this.#noClaimUntil = moment + reply.noClaimFor;
      this.#polling.wake(this.#noClaimUntil);
    }
    for (const { answer } of reply.answers) {
      const hasFailed = answer === "retrying" || answer === "dead" || answer === "timed out";
      this.#summary[hasFailed ? "failed" : answer] += 1;
    }
    this.#heart.drop(reply.answers.map(({ token }) => token));
    this.#takeClaimed(reply, wanted, moment);
  }

  #takeRetries(reply: Reply, moment: number): void {
    if (reply.retries.length === 0) return;
    const at = moment + (this.#isStopping ? Math.min(reply.retryIn, LAST_PAUSE) : reply.retryIn);
    this.#retryAt = this.#retries.length === 0 ? at : Math.min(at, this.#retryAt);
    this.#retries.push(...reply.retries);
  }

  #takeClaimed({ claimed, sentAt }: Reply, wanted: number, moment: number): void {
    if (claimed === undefined) return;
    this.#polling.claimed(wanted, claimed.length, moment);
    if (claimed.length === 0 && this.#setup.untilEmpty && this.#inHand === 0) this.stop();
    this.#heart.hold(
      claimed.map(({ jobId, token, timeout }) => ({ jobId, token, timeout, beganAt: moment })),
      sentAt,
    );
    for (const one of claimed) {
      const execution = new Execution(one, {
        progress: (progress) => this.#heart.progress(one.token, progress),
        ask: () => this.#heart.ask(one.token),
        calls: this.#calls,
        telemetry: this.#setup.telemetry,
        warn: (message) => this.#setup.log.warn(message),
      });
      this.#running.set(one.token, execution);
      if (this.#isStopping) this.#ended(execution, onStop("shutdown"));
      else void this.#execute(execution);
    }
  }

  async #execute(execution: Execution): Promise<void> {
    const { task } = execution.claimed;
    const registered = this.#setup.tasks.get(task);
    // Claims are limited to tasks that have a handler, so this is not expected.
    if (registered === undefined) return this.#ended(execution, onStop("shutdown"));
    this.#ended(execution, await execution.run(registered, this.#setup.cancelPatience));
  }

  #ended(execution: Execution, verdict: Verdict): void {
    const { jobId, token, task, attempt } = execution.claimed;
    // An abandoned attempt has already been reported.
    if (!this.#running.delete(token)) return;
    if (verdict.kind === "suspended" || verdict.kind === "failed already") {
      if (verdict.kind === "failed already") {
        this.#summary.failed += 1;
        this.#setup.log.warn(`job ${jobId} (${task}), attempt ${attempt}: ${verdict.error}`);
      }
      this.#heart.drop([token]);
      this.#wakeup.wake();
      return;
    }
    const missed = verdict.kind === "complete" || verdict.kind === "recorded" ? execution.unreached : undefined;
    if (missed !== undefined) {
      this.#setup.log.warn(`job ${jobId} (${task}) completed without ${missed}: was its code changed meanwhile?`);
    }
    if (verdict.kind === "fail") this.#setup.log.warn(`job ${jobId} (${task}), attempt ${attempt}: ${verdict.error}`);
    if (verdict.kind === "timed out") this.#setup.log.warn(`job ${jobId} (${task}), attempt ${attempt}: ${TIMED_OUT}`);
    this.#outbox.push({ jobId, token, verdict, again: false, breaks: 0, unanswered: 0 });
    this.#wakeup.wake();
  }

  /** Handles the deadlines of a stop. */
  #onTime(): void {
    const moment = now();
    if (moment >= this.#askAt) {
      for (const execution of this.#running.values()) execution.stop("shutdown");
    }
    if (moment >= this.#giveUpAt) {
      for (const execution of this.#running.values()) this.#ended(execution, onStop("shutdown"));
    }
    if (this.#isStopping && this.#running.size === 0) {
      // The rest of the grace period is not spent on an unreachable server.
      this.#leaveAt = Math.min(this.#leaveAt, moment + REPORT_PATIENCE);
    }
  }

  #wakeAt(): number {
    const times = [this.#askAt, this.#giveUpAt, this.#leaveAt].filter((at) => at > now());
    if (this.#retries.length > 0) times.push(Math.max(this.#retryAt, this.#pausedUntil));
    if (this.#outbox.length > 0 || this.#mustReconnect) times.push(this.#pausedUntil);
    if (this.#exchange.isConnected && this.#heart.holdsAny) {
      times.push(Math.max(this.#isUnheard ? this.#extendAt : this.#heart.heardAt + this.#limit, this.#pausedUntil));
    }
    // No event is sent when heartbeats are answered again.
    if (this.#isUnheard) times.push(now() + LOOK_PERIOD);
    if (!this.#isStopping && !this.#isUnheard && !this.#isFull && this.#running.size < this.#setup.concurrency) {
      times.push(Math.max(this.#polling.nextClaim, this.#pausedUntil, this.#noClaimUntil));
    }
    return Math.min(...times);
  }

  get #inHand(): number {
    return this.#running.size + this.#outbox.length + this.#retries.length;
  }

  #isOver(): boolean {
    return this.#isStopping && (this.#inHand === 0 || now() >= this.#leaveAt);
  }
}

