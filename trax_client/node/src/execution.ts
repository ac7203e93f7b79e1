// An attempt of a job: decodes the input, runs the handler, and determines the verdict.

import { setTimeout as pause } from "node:timers/promises";

import type { Called, Calls } from "./calls.js";
import type { Row } from "./connection.js";
import type { Context, Durable } from "./context.js";
import { type Decoder, decode } from "./decoder.js";
import { describe } from "./describe.js";
import type { Claimed } from "./exchange.js";
import { toJson } from "./json.js";
import { Permanent, type Reason, Stopped, TIMED_OUT, type Verdict, failure, hasCompleted, noting, onError, onOutput, onStop } from "./outcome.js";
import type { Statement } from "./sql.js";
import { type Effect, Steps } from "./steps.js";
import type { Telemetry } from "./telemetry.js";

/** Runs for every job of a task. Its return value is the output. */
export type Handler<Input = unknown, Output = unknown> = (input: Input, ctx: Context) => Output | Promise<Output>;

export interface Registered {
  handler: Handler;
  decoder: Decoder<unknown> | undefined;
}

/** What an execution needs of its worker. */
export interface Means {
  progress: (progress: string) => void;
  /** Asks for a heartbeat of the attempt now. */
  ask: () => void;
  calls: Pick<Calls, "run" | "lockTimeout">;
  telemetry: Telemetry;
  warn: (message: string) => void;
}

/** How long to wait for the heartbeat that says why a job gets no child, in milliseconds. */
const ANSWER_LIMIT = 5000;

export class Execution {
  readonly claimed: Claimed;
  readonly #stop = new AbortController();
  readonly #ctx: Context;
  readonly #steps: Steps;
  readonly #calls: Means["calls"];
  readonly #telemetry: Telemetry;
  readonly #ask: () => void;
  readonly #warn: Means["warn"];
  /** The calls of the context that have not ended. */
  readonly #open = new Map<Promise<unknown>, string>();
  #reason: Reason | undefined;
  /** The calls that may suspend the job and have no answer yet, and whether a heartbeat has said that it is lost. */
  readonly #waits = new Set<Promise<Called>>();
  #isLost = false;
  #isSuspended = false;
  /** Why the attempt has failed for good, once the server has recorded that in the middle of it. */
  #failure: string | undefined;
  #suspend: (verdict: Verdict) => void = () => undefined;
  readonly #suspension = new Promise<Verdict>((resolve) => (this.#suspend = resolve));

  constructor(claimed: Claimed, { progress, ask, calls, telemetry, warn }: Means) {
    this.claimed = claimed;
    this.#ask = ask;
    this.#warn = warn;
    this.#calls = calls;
    this.#telemetry = telemetry;
    const { input: _, trace, steps: __, ...rest } = claimed;
    const reason = (): Reason | undefined => this.#reason;
    this.#steps = new Steps(claimed, {
      send: (statement, effect) => this.#send(statement, effect),
      check: () => {
        if (this.#failure !== undefined) throw new Permanent(this.#failure);
        this.#stop.signal.throwIfAborted();
      },
      lockTimeout: calls.lockTimeout,
      telemetry,
    });
    this.#ctx = {
      ...rest,
      ...this.#watched(this.#steps.methods()),
      trace: traceOf(trace),
      signal: this.#stop.signal,
      get reason() {
        return reason();
      },
      progress: (value) => progress(toJson("progress", value) ?? "null"),
    };
    this.#steps.belongTo(this.#ctx);
  }

  /** Describes the recorded steps that a handler completed without. */
  get unreached(): string | undefined {
    return this.#steps.unreached;
  }

  /** Asks the handler to stop. The first of several reasons is kept. */
  stop(reason: Reason): void {
    if (this.#reason !== undefined || this.#isSuspended || this.#failure !== undefined) return;
    // The lease of a job that its handler has completed ends with the handler's transaction.
    if (reason === "lease lost" && hasCompleted(this.claimed.token)) return;
    if (reason === "lease lost" && this.#waits.size > 0) {
      // The answer to its own call says whether it is suspended.
      this.#isLost = true;
      return;
    }
    this.#reason = reason;
    this.#stop.abort(new Stopped(reason));
  }

  /** Runs the handler, which is abandoned if it does not stop within `patience` milliseconds after being asked to. */
  async run(registered: Registered, patience: number): Promise<Verdict> {
    let timer: NodeJS.Timeout | undefined;
    const overdue = new Promise<Verdict>((resolve) => {
      this.#stop.signal.addEventListener("abort", () => {
        timer = setTimeout(() => resolve(onStop(this.#reason ?? "shutdown")), patience);
      });
    });
    return this.#telemetry.executing(this.#ctx, async (failed) => {
      const verdict = await noting(this.claimed.token, () => Promise.race([this.#handle(registered), overdue, this.#suspension]));
      clearTimeout(timer);
      if (this.#failure !== undefined) {
        failed("error", this.#failure);
        return { kind: "failed already", error: this.#failure };
      }
      if (verdict.kind === "complete" && this.unreached !== undefined) verdict.note = (read) => this.#steps.note(read);
      if (verdict.kind === "fail") failed("error", verdict.error);
      else if (verdict.kind === "timed out") failed("timeout", TIMED_OUT);
      return verdict;
    });
  }

  async #handle({ handler, decoder }: Registered): Promise<Verdict> {
    let input: unknown;
    try {
      input = JSON.parse(this.claimed.input);
    } catch (error) {
      return failure(`the input cannot be decoded: ${describe(error)}`, { permanent: true });
    }
    try {
      if (decoder !== undefined) input = await decode(decoder, input);
    } catch (error) {
      // Not permanent: during a rolling deployment the next attempt may run in newer code.
      return failure(`the input does not fit this handler: ${describe(error)}`);
    }
    try {
      const output = await handler(input, this.#ctx);
      if (this.#open.size > 0 && !this.#isSuspended) this.#warnOfOpen();
      return onOutput(output);
    } catch (error) {
      return onError(error, this.#reason);
    }
  }

  /** Watches the calls of the context: a rejection of a call that is not awaited ends no process. */
  #watched(calls: Durable): Durable {
    const watched = Object.entries(calls).map(([method, call]: [string, (...given: unknown[]) => Promise<unknown>]) => {
      return [method, (...given: unknown[]): Promise<unknown> => {
        const called = call(...given);
        this.#open.set(called, `ctx.${method}(${typeof given[0] === "string" ? JSON.stringify(given[0]) : ""})`);
        const ended = (): unknown => this.#open.delete(called);
        called.then(ended, ended);
        return called;
      }];
    });
    return Object.fromEntries(watched) as Durable;
  }

  #warnOfOpen(): void {
    const { jobId, task } = this.claimed;
    this.#warn(`job ${jobId} (${task}): its handler returned before ${[...this.#open.values()].join(", ")} had ended; await it`);
  }

  /** Sends a call of the handler. When the job is suspended, the promise never settles: the worker ends the attempt. */
  async #send(statement: Statement, effect: Effect): Promise<Row[]> {
    if (this.#isSuspended) return new Promise(() => undefined);
    const maySuspend = effect === "wait";
    const mayEnd = maySuspend || typeof effect === "object";
    const calling = this.#calls.run(statement, () => this.#isLost || this.#reason === "lease lost");
    if (mayEnd) this.#waits.add(calling);
    let called: Called;
    try {
      called = await calling;
    } catch (error) {
      this.#waits.delete(calling);
      if (error instanceof Stopped) await this.#giveUp();
      throw error;
    }
    this.#waits.delete(calling);
    const { rows, wasUnanswered } = called;
    const state: unknown = rows[0]?.["state"];
    // If an answer was lost before, the attempt has ended either way.
    if (this.#isSuspended || (maySuspend && (state === "suspended" || (state === "lost" && wasUnanswered)))) {
      this.#isSuspended = true;
      this.#suspend({ kind: "suspended" });
      return new Promise(() => undefined);
    }
    if (effect === "read") return rows;
    if (typeof effect === "object" && typeof state === "string" && state !== "lost") {
      this.#failure = effect.failure;
      return rows;
    }
    // A job that is asked to stop gets no child either; a heartbeat says which it is.
    if (state === null) await this.#askWhy();
    if (state === null || state === undefined || state === "lost" || this.#isLost) await this.#giveUp();
    return rows;
  }

  /** Stops the attempt, unless another of its calls has suspended the job, whose answer may come later. */
  async #giveUp(): Promise<void> {
    await Promise.allSettled(this.#waits);
    if (this.#isSuspended) return new Promise(() => undefined);
    this.stop("lease lost");
    throw new Stopped(this.#reason ?? "lease lost");
  }

  async #askWhy(): Promise<void> {
    const { signal } = this.#stop;
    if (signal.aborted) return;
    this.#ask();
    await pause(ANSWER_LIMIT, undefined, { signal, ref: false }).catch(() => undefined);
  }
}

function traceOf(text: string | undefined): Context["trace"] {
  try {
    const trace: unknown = JSON.parse(text ?? "null");
    return typeof trace === "object" && trace !== null ? (trace as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}
