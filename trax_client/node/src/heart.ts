// The worker's side of the heartbeat: starts it in a thread, or in the worker's own event loop if a thread is not
// possible (a password that is a function, a bundle without the thread's file).

import { Worker as Thread } from "node:worker_threads";

import { type FromHeart, Heartbeat, type HeartbeatOptions, type Lease, type LeaseAnswer, type ToHeart } from "./heartbeat.js";
import { now } from "./clock.js";
import type { Logger } from "./logger.js";
import type { Reason } from "./outcome.js";

/** The time limit of a worker's last report, in milliseconds. */
const LAST_LIMIT = 700;

export class Heart {
  readonly #options: HeartbeatOptions;
  readonly #log: Logger;
  readonly #onStop: (token: string, reason: Reason) => void;
  /** The leases to pass to a new heartbeat if its thread ends. */
  readonly #held = new Map<string, { lease: Lease; claimedAt: number }>();
  #send: (message: ToHeart) => void;
  #thread: Thread | undefined;
  #left: (isKnown: boolean) => void = () => undefined;
  #leaving = false;
  /** When a heartbeat was last answered, or the wait for one began. */
  heardAt = now();

  constructor(options: HeartbeatOptions, log: Logger, onStop: (token: string, reason: Reason) => void) {
    this.#options = options;
    this.#log = log;
    this.#onStop = onStop;
    this.#send = this.#inThread() ?? this.#inLoop();
  }

  hold(leases: Lease[], claimedAt: number): void {
    if (leases.length === 0) return;
    for (const lease of leases) this.#held.set(lease.token, { lease, claimedAt });
    this.#send({ kind: "hold", leases, claimedAt });
  }

  drop(tokens: string[]): void {
    if (tokens.length === 0) return;
    for (const token of tokens) this.#held.delete(token);
    this.#send({ kind: "drop", tokens });
  }

  get holdsAny(): boolean {
    return this.#held.size > 0;
  }

  get leases(): Lease[] {
    return [...this.#held.values()].map(({ lease }) => lease);
  }

  /** Passes on the answers received over the other connection. */
  extended(answers: LeaseAnswer[], sentAt: number): void {
    this.#send({ kind: "extended", answers, sentAt });
  }

  progress(token: string, progress: string): void {
    this.#send({ kind: "progress", token, progress });
  }

  /** Asks for a heartbeat of this lease now. */
  ask(token: string): void {
    this.#send({ kind: "ask", token });
  }

  stopping(): void {
    this.#send({ kind: "stopping" });
  }

  /** Ends the heartbeat after a last report. Returns whether the server knows that the worker has ended. */
  async leave(): Promise<boolean> {
    this.#leaving = true;
    let timer: NodeJS.Timeout | undefined;
    const isKnown = await new Promise<boolean>((resolve) => {
      this.#left = resolve;
      timer = setTimeout(() => resolve(false), LAST_LIMIT);
      this.#send({ kind: "leave" });
    });
    clearTimeout(timer);
    await this.#thread?.terminate();
    return isKnown;
  }

  #inThread(): ((message: ToHeart) => void) | undefined {
    try {
      const file = new URL("./heartbeat-thread.js", import.meta.url);
      const thread = new Thread(file, { workerData: this.#options, name: "trax heartbeat" });
      thread.on("message", (message: FromHeart) => this.#receive(message));
      thread.on("error", (error) => this.#replace(error));
      this.#thread = thread;
      return (message) => thread.postMessage(message);
    } catch (error) {
      this.#log.info(`heartbeats run in the event loop, not in a thread: ${String(error)}`);
      return undefined;
    }
  }

  #inLoop(): (message: ToHeart) => void {
    const heartbeat = new Heartbeat(this.#options, (message) => this.#receive(message));
    heartbeat.run().catch((error: unknown) => this.#log.error(`the heartbeat ended: ${String(error)}`));
    return (message) => heartbeat.receive(message);
  }

  #replace(error: Error): void {
    if (this.#leaving) return this.#left(false);
    this.#log.warn(`heartbeats go on in the event loop, their thread has ended: ${error.message}`);
    this.#thread = undefined;
    this.#send = this.#inLoop();
    for (const { lease, claimedAt } of this.#held.values()) {
      this.#send({ kind: "hold", leases: [lease], claimedAt });
    }
  }

  #receive(message: FromHeart): void {
    switch (message.kind) {
      case "stop":
        return this.#onStop(message.token, message.reason);
      case "heard":
        this.heardAt = Math.max(this.heardAt, message.at);
        return;
      case "trouble":
        return this.#log.warn(`heartbeat: ${message.error}; again in ${Math.round(message.retryIn)} ms`);
      case "recovered":
        return this.#log.info("heartbeat: recovered");
      case "progress refused":
        return this.#log.warn(`job ${message.jobId}: its progress is refused: ${message.error}`);
      case "left":
        return this.#left(message.isKnown);
    }
  }
}
