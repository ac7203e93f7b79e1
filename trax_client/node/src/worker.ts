import { randomBytes } from "node:crypto";
import { hostname } from "node:os";

import { type Address, hosts } from "./address.js";
import { type Decoder, isDecoder } from "./decoder.js";
import { type Duration, milliseconds, span, spanMs } from "./duration.js";
import { UsageError } from "./errors.js";
import type { Handler, Registered } from "./execution.js";
import { kindOf } from "./kind.js";
import { type Logger, standardError } from "./logger.js";
import { Many, type ManyHandler, type ManyOptions } from "./many.js";
import { type Kinds, address, checkName, checkOptions, flag, key, logger, namesLike, whole } from "./options.js";
import { Run, type Setup, type Summary } from "./run.js";
import type { IfJson } from "./stored.js";
import { Telemetry } from "./telemetry.js";
import { version } from "./version.js";

/** The options of a worker. Times are texts (`30 s`), or milliseconds in options whose names end in `Ms`. */
export interface WorkerOptions {
  /** The address of the database; by default DATABASE_URL, or PGHOST and the related variables. */
  connection?: Address;
  /** The name shown in leases and runs; by default host, process id and a random part. */
  name?: string;
  /** How many handlers may run at once (default 10). */
  concurrency?: number;
  /** Limits claims to these groups. */
  groups?: string[];
  /** Limits claims to jobs of these versions and jobs without a version; by default all jobs. */
  versions?: string[];
  /** How long a lease lasts without a heartbeat (default 30 s). Heartbeats are sent every third of it. */
  lease?: Duration;
  leaseMs?: number;
  /**
   * How often to poll an empty queue (default 200 ms); less often after a long idle time and while notifications
   * arrive.
   */
  pollInterval?: Duration;
  pollIntervalMs?: number;
  /** How long running handlers may continue after the first signal (default 30 s). */
  grace?: Duration;
  graceMs?: number;
  /** How long a handler may continue after its signal is aborted before it is abandoned (default 10 s). */
  cancelPatience?: Duration;
  cancelPatienceMs?: number;
  /** Whether SIGTERM and SIGINT stop the worker (default true). */
  signals?: boolean;
  /** Whether to stop when a claim finds no job and none is held (default false). */
  untilEmpty?: boolean;
  /** The logger for messages; standard error by default. */
  logger?: Logger;
}

const optionKinds = {
  connection: address, name: key("mail 1"), concurrency: whole(20, 1), groups: namesLike("mail"), versions: namesLike("v2"),
  lease: span, leaseMs: spanMs, pollInterval: span, pollIntervalMs: spanMs, grace: span, graceMs: spanMs, cancelPatience: span,
  cancelPatienceMs: spanMs, signals: flag, untilEmpty: flag, logger,
} satisfies Kinds<WorkerOptions>;

/** Returns the configuration of a worker, for the test kit. */
export let setupOf: (worker: Worker) => Promise<Setup>;

/** Claims jobs and runs handlers until stopped.
 *
 *     const worker = new Worker({ connection: "postgresql://localhost/shop", concurrency: 20 });
 *     worker.task<{ to: string }>("mail.send", async ({ to }, ctx) => send(to, { signal: ctx.signal }));
 *     await worker.run();
 */
export class Worker {
  static {
    setupOf = (worker) => worker.#setup();
  }

  readonly #options: WorkerOptions;
  readonly #times: Times;
  readonly #tasks = new Map<string, Registered>();
  #run: Run | undefined;
  #stopped: "no" | "drain" | "release" = "no";

  constructor(options: WorkerOptions = {}) {
    checkOptions(options, optionKinds, "new Worker({ concurrency: 20 })");
    this.#options = options ?? {};
    hosts(this.#options.connection);
    this.#times = timesOf(this.#options);
  }

  /** Runs a function for every job of a task; only tasks with a handler are claimed. The input is the job's JSON, or
   * the result of the decoder.
   * @throws UsageError if the task has a handler already. */
  task<Input = unknown, Output = unknown>(name: string, handler: Handler<Input, Output> & IfJson<Output>): this;
  task<Input, Output = unknown>(name: string, decoder: Decoder<Input>, handler: Handler<Input, Output> & IfJson<Output>): this;
  task(name: string, ...rest: unknown[]): this {
    return this.#add(name, rest, "task() takes a name, a decoder if you like, and a function", (handler: Handler) => handler);
  }

  /** Runs a function for many jobs of a task at once: `maxJobs` of them, or fewer after `maxWait`. Each job has an
   * outcome of its own, and occupies one of the places of the worker.
   *
   *     worker.handleMany<{ id: number }>("index", { maxJobs: 10 }, async (jobs) => index(jobs.map(({ input }) => input.id)));
   *
   * @throws UsageError if the task has a handler already, or if `maxJobs` is more than the worker runs at once. */
  handleMany<Input = unknown, Output = unknown>(
    name: string, options: ManyOptions<Input>, handler: ManyHandler<Input, Output> & IfJson<Output>,
  ): this;
  handleMany<Input, Output = unknown>(
    name: string, options: ManyOptions<Input>, decoder: Decoder<Input>, handler: ManyHandler<Input, Output> & IfJson<Output>,
  ): this;
  handleMany(name: string, options: ManyOptions, ...rest: unknown[]): this {
    const usage = "handleMany() takes a name, options such as { maxJobs: 10 }, a decoder if you like, and a function";
    const concurrency = this.#options.concurrency ?? 10;
    return this.#add(name, rest, usage, (handler: ManyHandler) => new Many(name, options, concurrency, handler).handle);
  }

  /** Adds the handler of a task, from a decoder, if given, and a function. */
  #add<Given>(name: string, given: unknown[], usage: string, handlerOf: (given: Given) => Handler): this {
    const [decoder, handler] = (given.length === 2 ? given : [undefined, ...given]) as [Decoder<unknown> | undefined, Given];
    refuseOptions(name, given.at(-1));
    if (typeof name !== "string" || typeof handler !== "function") throw new UsageError(usage);
    checkName("the name of the task", name, 'task("mail.send", function)');
    if (decoder !== undefined && decoder !== null && !isDecoder(decoder)) {
      throw new UsageError(`the decoder of "${name}" is ${kindOf(decoder)}; write a function, an object with parse, or a Standard Schema`);
    }
    if (/Generator/.test(Object.prototype.toString.call(handler))) {
      throw new UsageError(`the handler of "${name}" yields; return the output instead`);
    }
    if (name === "sql") {
      throw new UsageError(`task "sql" is that of SQL jobs, which the server runs: enqueue them with enqueueSql("...")`);
    }
    if (this.#tasks.has(name)) throw new UsageError(`the task "${name}" has a handler already; a task has one`);
    this.#tasks.set(name, { handler: handlerOf(handler), decoder: decoder ?? undefined });
    return this;
  }

  /** Runs until a signal, `stop` or an empty queue ends it. Waits for a server that cannot be reached, also at startup.
   * @throws UsageError without a handler, and at startup the permanent refusals of the server: a missing extension
   * (NotInstalledError), a missing right (NotPermittedError), a wrong password. */
  async run(): Promise<Summary> {
    if (this.#run !== undefined) throw new UsageError("this worker runs already");
    const run = (this.#run = new Run(await this.#setup()));
    const onSignal = (): void => this.#signalled();
    if (this.#options.signals ?? true) process.on("SIGTERM", onSignal).on("SIGINT", onSignal);
    try {
      if (this.#stopped !== "no") this.#apply();
      return await run.run();
    } finally {
      process.off("SIGTERM", onSignal).off("SIGINT", onSignal);
      this.#run = undefined;
    }
  }

  /** Stops claiming and lets handlers end within the grace period, as the first signal does. */
  stop(): void {
    if (this.#stopped === "no") this.#stopped = "drain";
    this.#apply();
  }

  /** Releases all jobs at once, as the second signal does. */
  release(): void {
    this.#stopped = "release";
    this.#apply();
  }

  #signalled(): void {
    if (this.#stopped === "no") this.stop();
    else this.release();
  }

  #apply(): void {
    this.#run?.stop(this.#stopped === "release" ? 0 : undefined);
  }

  async #setup(): Promise<Setup> {
    if (this.#tasks.size === 0) throw new UsageError('this worker has no handler: add one with worker.task("name", function)');
    const options = this.#options;
    const name = options.name ?? `${hostname()}:${process.pid}:${randomBytes(3).toString("hex")}`;
    const at = hosts(options.connection);
    const { lease, ...times } = this.#times;
    const concurrency = options.concurrency ?? 10;
    const tasks = [...this.#tasks.keys()];
    const { groups, versions } = options;
    // Without a list the server takes the worker for one that claims all.
    const named = (names?: string[]) => (names && names.length <= 10 ? names : undefined);
    const what = { tasks: tasks.slice(0, 50), groups: named(groups), versions: named(versions), concurrency };
    const info = { host: hostname(), pid: process.pid, version, language: "node", ...what };
    return {
      tasks: this.#tasks,
      concurrency,
      ...times,
      untilEmpty: options.untilEmpty ?? false,
      log: options.logger ?? standardError,
      telemetry: await Telemetry.load(),
      exchange: { hosts: at, lease, concurrency, claim: { worker: name, tasks, groups, versions, lease: `${lease} ms` } },
      heartbeat: { hosts: at, name, lease, info: JSON.stringify(info) },
    };
  }
}

/** The options of jobs that a task has as defaults, and their columns. */
const ofTasks = { maxRetries: "max_retries", retryDelay: "retry_delay", timeout: "timeout" };

/** Refuses an option of a job that is given to its handler, with where to give it. */
function refuseOptions(task: string, given: unknown): void {
  for (const [option, column] of Object.entries(ofTasks)) {
    const value = typeof given === "object" ? (given as Record<string, unknown> | null)?.[option] : undefined;
    if (value === undefined) continue;
    const example = typeof value === "number" ? value : `'${String(value)}'`;
    const call = `select trax.configure_task('${task}', ${column} => ${example})`;
    throw new UsageError(`a handler has no option "${option}"; give it to enqueue, or type ${call}`);
  }
}

/** The times of a worker, in milliseconds. */
type Times = Pick<Setup, "pollInterval" | "grace" | "cancelPatience"> & { lease: number };

function timesOf(options: WorkerOptions): Times {
  return {
    lease: milliseconds(options, "lease", { otherwise: 30_000, least: 1000 }),
    pollInterval: milliseconds(options, "pollInterval", { otherwise: 200, least: 1 }),
    grace: milliseconds(options, "grace", { otherwise: 30_000 }),
    cancelPatience: milliseconds(options, "cancelPatience", { otherwise: 10_000 }),
  };
}
