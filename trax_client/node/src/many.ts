// A handler that takes many jobs in one call.
//
// Each job runs as a handler of its own, which joins a gathering (the jobs of one key that wait for a call) and then
// returns the job's own result of the call. So its lease, timeout, cancel, attempt and outcome are those of any job.

import type { Context } from "./context.js";
import { type Duration, milliseconds, span, spanMs } from "./duration.js";
import { UsageError } from "./errors.js";
import type { Handler } from "./execution.js";
import { kindOf } from "./kind.js";
import { type Kinds, callback, checkOptions, whole } from "./options.js";
import { Permanent } from "./outcome.js";

/** One of the jobs of a call. */
export interface GatheredJob<Input = unknown> {
  readonly input: Input;
  readonly ctx: Context;
}

/** Runs for many jobs of a task at once. Returns their outputs in the order of the jobs, or nothing if there are none.
 * An Error in the list, or a promise that rejects, fails its job alone; a thrown error fails all jobs of the call. The
 * contexts have `step` and `spawn`; their waits (`sleep`, `awaitSignal`, `children`) are refused. */
export type ManyHandler<Input = unknown, Output = unknown> = (
  jobs: GatheredJob<Input>[],
) => ManyResults<Output> | Promise<ManyResults<Output>>;

type ManyResults<Output> = readonly (Output | Error | Promise<Output | Error>)[] | null | undefined | void;

/** The value that the jobs of one call have in common. */
export type Key = string | number | bigint | boolean | symbol | null | undefined;

export interface ManyOptions<Input = unknown> {
  /** The maximum number of jobs in a call, at most the worker's concurrency. */
  maxJobs: number;
  /** How long the first job of a call may wait for others (default 100 ms). */
  maxWait?: Duration;
  maxWaitMs?: number;
  /** Returns the key of a job; the jobs of a call have the same one. */
  by?: (input: Input) => Key;
}

const optionKinds = {
  maxJobs: whole(10, 1), maxWait: span, maxWaitMs: spanMs, by: callback("(input) => input.customer"),
} satisfies Kinds<ManyOptions>;

/** A job's position in a call. */
interface Place {
  results: Promise<readonly unknown[]>;
  at: number;
}

/** The jobs that wait for a call, with the functions that tell them of it. */
type Gathering = Map<GatheredJob, (place: Place) => void>;

export class Many {
  readonly #task: string;
  readonly #handler: ManyHandler;
  readonly #maxJobs: number;
  readonly #maxWait: number;
  readonly #by: (input: unknown) => Key;
  readonly #gatherings = new Map<Key, Gathering>();

  constructor(task: string, options: ManyOptions, concurrency: number, handler: ManyHandler) {
    checkOptions(options, optionKinds, `handleMany("${task}", { maxJobs: 10 }, function)`);
    const { maxJobs, by } = options ?? {};
    optionKinds.maxJobs.check("maxJobs", maxJobs, optionKinds.maxJobs.remedy("maxJobs"));
    if (maxJobs > concurrency) {
      const remedy = `set concurrency to ${maxJobs} or maxJobs to at most ${concurrency}`;
      throw new UsageError(`the handler of "${task}" takes ${maxJobs} jobs at once, and the worker runs ${concurrency}: ${remedy}`);
    }
    this.#task = task;
    this.#handler = handler;
    this.#maxJobs = maxJobs;
    this.#maxWait = milliseconds(options, "maxWait", { otherwise: 100 });
    this.#by = by ?? (() => undefined);
  }

  /** Returns the result of a job of a call that begins once enough jobs are gathered. */
  readonly handle: Handler = async (input, ctx) => {
    ctx.signal.throwIfAborted();
    refuseWaits(ctx);
    const { results, at } = await this.#gather({ input, ctx }, this.#keyOf(input));
    const result = await (await results)[at];
    if (result instanceof Error) throw result;
    return result;
  };

  #keyOf(input: unknown): Key {
    const key = this.#by(input);
    // Two objects are never the same key, so their jobs would never meet.
    if ((typeof key === "object" && key !== null) || typeof key === "function") {
      throw new UsageError(`by of the handler of "${this.#task}" returned ${kindOf(key)}; return a text or a number`);
    }
    return key;
  }

  /** Waits for a call. A job that is asked to stop before leaves the gathering.
   * @throws Stopped */
  #gather(job: GatheredJob, key: Key): Promise<Place> {
    const { signal } = job.ctx;
    const gathering: Gathering = this.#gatherings.get(key) ?? new Map();
    this.#gatherings.set(key, gathering);
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        clearTimeout(timer);
        signal.removeEventListener("abort", stop);
        gathering.delete(job);
        if (gathering.size === 0) this.#gatherings.delete(key);
      };
      const stop = (): void => {
        leave();
        reject(signal.reason);
      };
      // The timer of the first job ends before those of the others.
      const timer = setTimeout(() => this.#begin(gathering), this.#maxWait);
      signal.addEventListener("abort", stop);
      gathering.set(job, (place) => {
        leave();
        resolve(place);
      });
      if (gathering.size === this.#maxJobs) this.#begin(gathering);
    });
  }

  #begin(gathering: Gathering): void {
    const results = this.#call([...gathering.keys()]);
    for (const [at, enter] of [...gathering.values()].entries()) enter({ results, at });
  }

  async #call(jobs: GatheredJob[]): Promise<readonly unknown[]> {
    // The handler may change its list.
    const count = jobs.length;
    const results: unknown = await this.#handler(jobs);
    if (results === undefined || results === null) return [];
    const returned = `the handler of "${this.#task}" returned`;
    if (!Array.isArray(results)) throw new Error(`${returned} ${kindOf(results)}, not a list of ${numbered(count, "result")}`);
    if (results.length === count) return results;
    // Node ends a program in which nothing waits for a promise that rejects.
    void Promise.allSettled(results);
    throw new Error(`${returned} ${numbered(results.length, "result")} for ${numbered(count, "job")}`);
  }
}

/** Refuses the waits that suspend a job: their promises never settle, and a function that awaits one
 * would never end. Another attempt would come to the same wait, so the job fails for good. */
function refuseWaits(ctx: Context): void {
  for (const name of ["sleep", "awaitSignal", "children"] as const) {
    const words = `ctx.${name}() cannot suspend a job of a call of many; give "${ctx.task}" a handler with task() instead`;
    ctx[name] = () => Promise.reject(new Permanent(words));
  }
}

const numbered = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`;
