// The steps of an attempt: what its job remembers, and what it waits for.
//
// The steps recorded by earlier attempts are read once, and only if the claim says that there are any.

import { setTimeout as pause } from "node:timers/promises";

import type { Child } from "./child.js";
import type { Read, Row } from "./connection.js";
import type { Context, Durable, Undo, WaitOptions } from "./context.js";
import { checkSpan, interval, span, spanMs } from "./duration.js";
import { type EnqueueOptions, argumentsOf, inputOf, optionKinds, timeOf } from "./enqueue.js";
import { ServerError, TimedOutError, UsageError, isOfTheValues } from "./errors.js";
import type { Claimed } from "./exchange.js";
import { fromJson, sendable, toJson } from "./json.js";
import { type Kinds, anything, checkName, checkOptions, nameLike, oneOf, time } from "./options.js";
import { Permanent } from "./outcome.js";
import * as sql from "./sql.js";
import type { Telemetry } from "./telemetry.js";

export type { Undo } from "./context.js";

/** What a statement does to the attempt: `wait` may suspend it, `failure` is the error with which it then has failed. */
export type Effect = "read" | "record" | "wait" | { failure: string };

/** Sends a statement for an attempt; never returns if the attempt is suspended. */
export type Send = (statement: sql.Statement, effect: Effect) => Promise<Row[]>;

/** A recorded step, with its output as JSON. */
interface Kept {
  kind: string;
  output: unknown;
  timedOut: boolean;
}

/** The maximum number of names in a note. */
const NAMED_AT_MOST = 100;
/** How long a handler that completes its job itself waits for the names, in milliseconds. */
const READ_LIMIT = 2000;
/** The maximum size of a note in the handler's own transaction, which a refusal would abort: every server takes 1 kB. */
const SURELY_TAKEN = 800;

/** The steps of the attempts that have these contexts. */
const byContext = new WeakMap<object, Steps>();

/** Returns the steps of the attempt that has a context. */
export const stepsOf = (ctx: object): Steps | undefined => byContext.get(ctx);

export class Steps {
  readonly #claimed: Claimed;
  readonly #send: Send;
  readonly #check: () => void;
  readonly #lockTimeout: number;
  readonly #telemetry: Telemetry;
  readonly #reached = new Set<string>();
  #kept: Promise<Map<string, Kept>> | undefined;
  #names: string[] | undefined;

  constructor(claimed: Claimed, how: { send: Send; check: () => void; lockTimeout: number; telemetry: Telemetry }) {
    this.#claimed = claimed;
    this.#send = how.send;
    this.#check = how.check;
    this.#lockTimeout = how.lockTimeout;
    this.#telemetry = how.telemetry;
  }

  /** Returns the methods for a context. */
  methods(): Durable {
    return {
      // As in the calls of the extension, null leaves an option out.
      step: (name, run, options) => this.#step(name, run, options ?? {}) as Promise<never>,
      sleep: (name, until) => this.#sleep(name, until),
      awaitSignal: (name, options) => this.#signal(name, options ?? {}) as Promise<never>,
      spawn: (name, task, input, options) => this.#spawn(name, task, input, options ?? {}),
      children: (options) => this.#children(options ?? {}),
    };
  }

  /** Lets `stepsOf` find the steps by a context. */
  belongTo(ctx: Context): void {
    byContext.set(ctx, this);
  }

  /** Notes a step that the handler records in a transaction of its own. */
  reach(name: string): void {
    this.#reached.add(name);
  }

  /** Describes the recorded steps that a handler completed without. */
  get unreached(): string | undefined {
    const { steps } = this.#claimed;
    const names = this.#missed?.slice(0, 5);
    // No step was read: the handler has reached only those of its own transactions.
    if (names === undefined) return steps > this.#reached.size ? `its ${steps} recorded steps` : undefined;
    return names.length === 0 ? undefined : `its recorded steps ${names.map((name) => `"${name}"`).join(", ")}`;
  }

  /** Returns the recorded steps that a handler completes without, as the note of the run in JSON. Names that are not
   * known are read first; undefined if that fails. */
  async note(read: Read, limit = Infinity): Promise<string | undefined> {
    if (this.unreached === undefined) return undefined;
    try {
      this.#names ??= namesOf(recorded(await read(sql.readSteps(this.#claimed.jobId))));
    } catch {
      return undefined;
    }
    const names = (this.#missed ?? []).sort().slice(0, NAMED_AT_MOST);
    for (; names.length > 0; names.pop()) {
      const note = JSON.stringify({ unreached_steps: names });
      if (Buffer.byteLength(note) <= limit) return note;
    }
    return undefined;
  }

  /** Returns the note for a completion in a transaction of the handler, in which no name is read. */
  async noteOfOwn(): Promise<string | undefined> {
    const late = async (): Promise<never> => {
      await pause(READ_LIMIT, undefined, { ref: false });
      throw new TimedOutError("the steps were not read in time");
    };
    return this.note((statement) => Promise.race([this.#send(statement, "read"), late()]), SURELY_TAKEN);
  }

  /** The recorded steps that the handler has not reached, or undefined if they were not read. */
  get #missed(): string[] | undefined {
    return this.#names?.filter((name) => !this.#reached.has(name));
  }

  async #step(name: string, run: () => unknown, options: { undo?: Undo }): Promise<unknown> {
    if (typeof run !== "function") throw new UsageError(`step "${name}" has no function; write step("${name}", () => ...)`);
    checkOptions(options, { undo: anything }, 'step("charge", charge, { undo: { task: "card.refund" } })');
    const undo = undoOf(options.undo);
    const step = this.#named(name);
    const kept = await this.#find(step, "step");
    if (kept !== undefined) return fromJson(kept.output);
    let result: unknown;
    try {
      result = await run();
    } catch (error) {
      // The work is not done: the next use gets the name.
      this.#reached.delete(step);
      throw error;
    }
    let output: string | undefined;
    try {
      output = toJson("result", result);
    } catch (error) {
      return this.#fail(`the result of step "${step}" cannot be recorded: ${(error as Error).message}`, step, undo);
    }
    try {
      const named = { output: ["jsonb", output], undo: ["jsonb", undo] } as const;
      const [row] = await this.#send(sql.recordStep(this.#of(step, named), this.#lockTimeout), "record");
      return fromJson(row?.["output"]);
    } catch (error) {
      if (!(error instanceof ServerError) || !isOfTheValues(error)) throw error;
      return this.#fail(`the result of step "${step}" was refused: ${error.message}`, step, undo);
    }
  }

  /** Fails the job for good, as another attempt would run the function again. A step with an undo is recorded without
   * its result, in the same transaction, so that the undo job is queued. */
  async #fail(error: string, step: string, undo: string | undefined): Promise<never> {
    if (undo === undefined) throw new Permanent(error);
    const failure = `step "${step}" is recorded without a result, and its undo job queued: ${error}`;
    const named = this.#of(step, { undo: ["jsonb", undo] });
    try {
      await this.#send(sql.recordStepAndFail(named, sendable(failure), this.#lockTimeout), { failure });
    } catch (refusal) {
      if (!(refusal instanceof ServerError) || !isOfTheValues(refusal)) throw refusal;
      throw new Permanent(`${error}; its undo was refused, too: ${refusal.message}`);
    }
    throw new Permanent(failure);
  }

  async #sleep(name: string, until: string | Date): Promise<void> {
    const isTime = until instanceof Date;
    const example = 'sleep("pause", "3 days") or sleep("pause", new Date(...))';
    if (isTime) time.check("until", until, example);
    else checkSpan("until", until, example);
    const at: sql.Argument = isTime ? ["timestamptz", timeOf(until)] : [sql.FROM_NOW, until];
    const step = this.#named(name);
    if ((await this.#find(step, "sleep")) !== undefined) return;
    await this.#send(sql.sleep(this.#of(step, { until: at }), this.#lockTimeout), "wait");
  }

  async #signal(name: string, options: WaitOptions & { step?: string }): Promise<unknown> {
    checkName("name", name, 'awaitSignal("paid")');
    checkOptions(options, { step: nameLike("paid"), ...waitKinds }, 'awaitSignal("paid", { timeout: "3 days" })');
    const named = { name: ["text", name], until: untilOf(options) } as const;
    const step = this.#named(options.step ?? name);
    const kept = await this.#wait(step, "signal", () => sql.awaitSignal(this.#of(step, named), this.#lockTimeout));
    if (kept.timedOut) throw new TimedOutError(`no signal "${name}" was sent in time`);
    return fromJson(kept.output);
  }

  async #spawn(name: string, task: string, input: unknown = {}, options: EnqueueOptions): Promise<number> {
    checkName("task", task, 'spawn("letter", "letter.send", { to: "ada" })');
    checkOptions(options, optionKinds, 'spawn("letter", "letter.send", { to: "ada" }, { priority: 7 })');
    const text = inputOf(input);
    const step = this.#named(name);
    const kept = await this.#find(step, "child");
    if (kept !== undefined) return Number(kept.output);
    const [row] = await this.#telemetry.sending(task, "spawn", (trace) => {
      const rest = argumentsOf({ ...(trace && { trace }), ...options });
      const named = { task: ["text", task], input: ["jsonb", text], ...rest } as const;
      return this.#send(sql.spawn(this.#of(step, named), this.#lockTimeout), "record");
    });
    return Number(row?.["state"]);
  }

  async #children(options: WaitOptions & { name?: string; mode?: "all" | "any" }): Promise<Child[]> {
    checkOptions(options, { name: nameLike("letters"), mode: oneOf("all", "any"), ...waitKinds }, 'children({ mode: "any" })');
    const [name, mode] = [options.name ?? "children", options.mode ?? "all"];
    const named = { mode: ["text", mode], until: untilOf(options) } as const;
    const step = this.#named(name);
    const kept = await this.#wait(step, "jobs", () => sql.awaitChildren(this.#of(step, named), this.#lockTimeout));
    const children = ((fromJson(kept.output) ?? []) as Record<string, unknown>[]).map(childOf);
    if (kept.timedOut) throw new TimedOutError("not all awaited children ended in time", children);
    return children;
  }

  async #wait(step: string, kind: string, statement: () => sql.Statement): Promise<Kept> {
    const kept = await this.#find(step, kind);
    if (kept !== undefined) return kept;
    const [row] = await this.#send(statement(), "wait");
    return { kind, output: row?.["output"], timedOut: row?.["state"] === "timed_out" };
  }

  /** Returns the name of a step; a name that is used again gets a number. */
  #named(name: string): string {
    this.#check();
    checkName("name", name, 'step("charge", charge)');
    let step = name;
    for (let number = 2; this.#reached.has(step); number += 1) step = `${name}#${number}`;
    checkName("the numbered name", step, 'step("charge", charge)');
    this.#reached.add(step);
    return step;
  }

  async #find(step: string, kind: string): Promise<Kept | undefined> {
    if (this.#claimed.steps === 0) return undefined;
    const kept = (await (this.#kept ??= this.#read())).get(step);
    if (kept === undefined || kept.kind === kind) return kept;
    const what = `step "${step}" of job ${this.#claimed.jobId} was recorded as ${kept.kind}, not as ${kind}`;
    throw new Permanent(`${what}; give each step of a job a name of its own`);
  }

  async #read(): Promise<Map<string, Kept>> {
    try {
      const rows = recorded(await this.#send(sql.readSteps(this.#claimed.jobId), "read"));
      this.#names = namesOf(rows);
      const keptOf = (row: Row): Kept => ({ kind: row["kind"], output: row["output"], timedOut: row["timed_out"] });
      return new Map(rows.map((row) => [String(row["step"]), keptOf(row)]));
    } catch (error) {
      // The next call reads them again.
      this.#kept = undefined;
      throw error;
    }
  }

  #of(step: string, named: Record<string, sql.Argument>): Record<string, sql.Argument> {
    const { jobId, token } = this.#claimed;
    return { job_id: ["bigint", jobId], token: ["uuid", token], step: ["text", step], ...named };
  }
}

const recorded = (rows: Row[]): Row[] => rows.filter((row) => row["recorded_at"] !== null);
const namesOf = (rows: Row[]): string[] => rows.map((row) => String(row["step"]));

const waitKinds = { timeout: span, timeoutMs: spanMs, until: time } satisfies Kinds<WaitOptions>;

function untilOf(options: WaitOptions): sql.Argument {
  const timeout = interval(options, "timeout");
  if (timeout === undefined) return ["timestamptz", timeOf(options.until)];
  if (options.until !== undefined && options.until !== null) throw new UsageError('timeout and until are both given; write timeout: "3 days" or until: date');
  return [sql.FROM_NOW, timeout];
}

/** Returns the job that undoes a step as JSON, checked before the step is run. */
export function undoOf(undo: Undo | undefined): string | undefined {
  if (undo === undefined || undo === null) return undefined;
  const example = 'undo: { task: "card.refund", input: { order: 7 } }';
  checkOptions(undo, { task: anything, input: anything }, example);
  checkName("the task of undo", undo.task, example);
  return toJson("undo", undo);
}

function childOf(given: Record<string, unknown>): Child {
  return {
    step: String(given["step"]),
    jobId: Number(given["job_id"]),
    state: given["state"] as Child["state"],
    output: given["output"] ?? undefined,
    error: (given["error"] as string | null | undefined) ?? undefined,
  };
}
