// An attempt of a job: decodes the input, runs the handler, and determines the verdict.

import { setTimeout as pause } from "node:timers/promises";

import type { Calls } from "./calls.js";
import type { Row } from "./connection.js";
import type { Context } from "./context.js";
import { type Decoder, decode } from "./decoder.js";
import { describe } from "./describe.js";
import type { Claimed } from "./exchange.js";
import { toJson } from "./json.js";
import { OpenCalls } from "./open-calls.js";
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
  readonly #open = new OpenCalls();
  #reason: Reason | undefined;
  /** The calls that may end the attempt and have no answer yet. */
  readonly #waits = new Set<Promise<unknown>>();
  /** Whether a heartbeat or the answer to a call says that the lease is lost. */
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
      ...this.#steps.methods(this.#open),
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
    if (this.#reason !== undefined || this.#open.isOver || this.#failure !== undefined) return;
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
      const open = this.#open.named;
      return open === undefined ? onOutput(output) : failure(`the handler returned before ${open} had ended: await it`);
    } catch (error) {
      return onError(error, this.#reason);
    } finally {
      if (this.#isSuspended) this.#wentOn();
      this.#open.end();
    }
  }

  #wentOn(): void {
    const { jobId, task } = this.claimed;
    this.#warn(`job ${jobId} (${task}) is suspended, but its handler went on: await ${this.#open.named ?? "its calls"}`);
  }

  /** Sends a call of the handler.
   * @throws Stopped if the attempt is over. */
  async #send(statement: Statement, effect: Effect): Promise<Row[]> {
    try {
      if (this.#open.isOver) throw new Stopped("lease lost");
      const mayFail = typeof effect === "object";
      const rows = await this.#waited(this.#answer(statement, effect), mayFail || effect === "wait");
      if (this.#open.isOver) throw new Stopped("lease lost");
      if (effect === "read" || (mayFail && this.#failure !== undefined)) return rows;
      const state: unknown = rows[0]?.["state"];
      // A job that is asked to stop gets no child either; a heartbeat says which it is.
      if (state === null) await this.#askWhy();
      if (state === null || state === undefined || state === "lost" || this.#isLost) throw new Stopped("lease lost");
      return rows;
    } catch (error) {
      if (error instanceof Stopped) await this.#giveUp();
      throw error;
    }
  }

  /** Returns the answer to a call. Until then a call that may end the attempt is one of the waits. */
  async #waited(answer: Promise<Row[]>, mayEnd: boolean): Promise<Row[]> {
    if (mayEnd) this.#waits.add(answer);
    try {
      return await answer;
    } finally {
      this.#waits.delete(answer);
    }
  }

  /** Sends a statement, and notes whether its answer ends the attempt. */
  async #answer(statement: Statement, effect: Effect): Promise<Row[]> {
    const { rows, wasUnanswered } = await this.#calls.run(statement, () => this.#isLost || this.#reason === "lease lost");
    const state: unknown = rows[0]?.["state"];
    // If an answer was lost before, the attempt has ended either way.
    if (effect === "wait" && (state === "suspended" || (state === "lost" && wasUnanswered))) {
      this.#isSuspended = true;
      this.#open.end();
      this.#suspend({ kind: "suspended" });
    }
    if (typeof effect === "object" && typeof state === "string" && state !== "lost") this.#failure = effect.failure;
    return rows;
  }

  /** Ends a call of an attempt that is over, unless the answer to another call suspends the job. */
  async #giveUp(): Promise<never> {
    this.#isLost = true;
    await Promise.allSettled(this.#waits);
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
