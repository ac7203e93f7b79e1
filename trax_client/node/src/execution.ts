// An attempt of a job: decodes the input, runs the handler, and determines the verdict.

import type { Context } from "./context.js";
import { type Decoder, decode } from "./decoder.js";
import type { Claimed } from "./exchange.js";
import { toJson } from "./json.js";
import { type Reason, Stopped, TIMED_OUT, type Verdict, describe, failure, onError, onOutput, onStop } from "./outcome.js";
import type { Telemetry } from "./telemetry.js";

/** Runs for every job of a task. Its return value is the output. */
export type Handler<Input = unknown, Output = unknown> = (input: Input, ctx: Context) => Output | Promise<Output>;

export interface Registered {
  handler: Handler;
  decoder: Decoder<unknown> | undefined;
}

export class Execution {
  readonly claimed: Claimed;
  readonly #stop = new AbortController();
  readonly #ctx: Context;
  #reason: Reason | undefined;

  constructor(claimed: Claimed, report: (progress: string) => void) {
    this.claimed = claimed;
    const { input: _, trace, ...rest } = claimed;
    const reason = (): Reason | undefined => this.#reason;
    this.#ctx = {
      ...rest,
      trace: traceOf(trace),
      signal: this.#stop.signal,
      get reason() {
        return reason();
      },
      progress: (value) => report(toJson(value) ?? "null"),
    };
  }

  /** Asks the handler to stop. The first of several reasons is kept. */
  stop(reason: Reason): void {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    this.#stop.abort(new Stopped(reason));
  }

  /** Runs the handler, which is abandoned if it does not stop within `patience` milliseconds after being asked to. */
  async run(registered: Registered, telemetry: Telemetry, patience: number): Promise<Verdict> {
    let timer: NodeJS.Timeout | undefined;
    const overdue = new Promise<Verdict>((resolve) => {
      this.#stop.signal.addEventListener("abort", () => {
        timer = setTimeout(() => resolve(onStop(this.#reason ?? "shutdown")), patience);
      });
    });
    return telemetry.executing(this.#ctx, async (failed) => {
      const verdict = await Promise.race([this.#handle(registered), overdue]);
      clearTimeout(timer);
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
      return onOutput(await handler(input, this.#ctx));
    } catch (error) {
      return this.#verdictOn(error);
    }
  }

  #verdictOn(error: unknown): Verdict {
    try {
      return onError(error, this.#reason);
    } catch (mistake) {
      // The thrown value has no text.
      return failure(describe(mistake));
    }
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
