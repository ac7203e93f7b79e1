// Graphs: jobs that are queued together, of which some need others.

import { interval } from "./duration.js";
import { type EnqueueOptions, inputOf, optionKinds, timeOf } from "./enqueue.js";
import { UsageError } from "./errors.js";
import { dateOf, fromJson, toJson } from "./json.js";
import { type Kinds, checkName, checkOptions, checkText, key, list, oneOf } from "./options.js";

/** How the jobs must end that another needs: `completed` (the default; else it is cancelled), `ended` (whatever they
 * became) or `failed` (as soon as one has failed for good or was cancelled; else it is cancelled). */
export type When = "completed" | "ended" | "failed";

/** A job that was added to a graph. */
export class Node {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

/** The options of a job of a graph: those of `enqueue` without a unique key, and the jobs that it needs. */
export interface GraphJobOptions extends Omit<EnqueueOptions, "uniqueKey" | "uniqueFor" | "uniqueForMs" | "onDuplicate"> {
  needs?: readonly Node[];
  when?: When;
}

export interface GraphOptions {
  /** While a job of a graph with this key waits or runs, queueing returns that graph. */
  uniqueKey?: string;
  /** `wait`: jobs wait while the dead letter of one that they need waits for a person; default `cancel`. */
  onFailure?: "cancel" | "wait";
}

/** A job that another one of its graph needed; a job of a batch has no name. */
export interface Need<Output = unknown> {
  name: string | undefined;
  jobId: number;
  state: string | undefined;
  output: Output | undefined;
  error: string | undefined;
}

/** A job of a graph or batch. */
export interface Member {
  name: string | undefined;
  jobId: number;
  task: string | undefined;
  state: string | undefined;
  needs: string[];
  /** How the jobs must end that it needs. */
  condition: When | undefined;
  waitsFor: string | undefined;
  attempt: number | undefined;
  startedAt: Date | undefined;
  finishedAt: Date | undefined;
  error: string | undefined;
}

const { uniqueKey, uniqueFor: _, uniqueForMs: __, onDuplicate: ___, ...ofJob } = optionKinds;
const graphKinds = { uniqueKey, onFailure: oneOf("cancel", "wait") } satisfies Kinds<GraphOptions>;
const jobKinds = {
  ...ofJob, needs: list("[load]"), when: oneOf("completed", "ended", "failed"),
} satisfies Kinds<GraphJobOptions>;

/** Jobs that `Client.enqueueGraph` queues together, all or none. A job needs only jobs that were added before it: no name
 * is missing, and no graph is a circle. */
export class Graph {
  readonly #jobs: string[] = [];
  readonly uniqueKey: string | undefined;
  readonly #onFailure: string;

  constructor(options: GraphOptions = {}) {
    checkOptions(options, graphKinds, 'new Graph({ uniqueKey: "night" })');
    this.uniqueKey = options?.uniqueKey ?? undefined;
    this.#onFailure = options?.onFailure ?? "cancel";
  }

  /** Adds a job of workers, which runs after the jobs that it needs. */
  add(name: string, task: string, input: unknown = {}, options: GraphJobOptions = {}): Node {
    checkName("task", task, 'graph.add("load", "etl.load")');
    return this.#add(name, { task: JSON.stringify(task), input: inputOf(input) }, options);
  }

  /** Adds a statement that the server runs. */
  addSql(name: string, command: string, options: GraphJobOptions & { runAs?: string } = {}): Node {
    checkText("command", command, 'graph.addSql("sum", "call rollup()")');
    checkOptions(options, { ...jobKinds, runAs: key("reporter") }, 'graph.addSql("sum", "call rollup()", { runAs: "reporter" })');
    const { runAs, ...rest } = options ?? {};
    return this.#add(name, { sql: JSON.stringify(command), run_as: textOf(runAs) }, rest);
  }

  #add(name: string, work: Record<string, string | undefined>, given: GraphJobOptions): Node {
    checkName("name", name, 'graph.add("load", "etl.load")');
    checkOptions(given, jobKinds, 'graph.add("sum", "etl.sum", {}, { needs: [load] })');
    const options = given ?? {};
    const needed = (options.needs ?? []).map((node) => {
      if (node instanceof Node) return node.name;
      throw new UsageError("needs has a value that graph.add did not return; write { needs: [load] }");
    });
    if (options.when && needed.length === 0) throw new UsageError("when says how other jobs must end; write { needs: [load] } too");
    const members: Record<string, string | undefined> = {
      name: JSON.stringify(name),
      ...work,
      needs: needed.length > 0 ? JSON.stringify(needed) : undefined,
      when: textOf(options.when),
      run_at: textOf(timeOf(options.runAt)),
      group_name: textOf(options.groupName),
      priority: numberOf(options.priority),
      max_retries: numberOf(options.maxRetries),
      timeout: textOf(interval(options, "timeout")),
      concurrency_key: textOf(options.concurrencyKey),
      version: textOf(options.version),
      retry_delay: textOf(interval(options, "retryDelay")),
      trace: toJson("trace", options.trace),
      batch: numberOf(options.batch),
      rate: textOf(options.rate),
      rate_key: textOf(options.rateKey),
      cost: numberOf(options.cost),
    };
    const present = Object.entries(members).filter(([, value]) => value !== undefined);
    this.#jobs.push(`{${present.map(([member, value]) => `"${member}": ${value}`).join(", ")}}`);
    return new Node(name);
  }

  /** Returns the document of `trax.enqueue_graph`. */
  document(): string {
    if (this.#jobs.length === 0) throw new UsageError('the graph has no jobs; write graph.add("load", "etl.load")');
    return `{"jobs": [${this.#jobs.join(", ")}], "on_failure": "${this.#onFailure}"}`;
  }
}

const textOf = (value: unknown): string | undefined => (value === undefined || value === null ? undefined : JSON.stringify(value));
const numberOf = (value: unknown): string | undefined => (value === undefined || value === null ? undefined : String(value));
const plain = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);

export const needOf = <Output>(row: Record<string, unknown>): Need<Output> => ({
  name: plain(row["name"]),
  jobId: Number(row["job_id"]),
  state: plain(row["state"]),
  output: fromJson(row["output"]) as Output | undefined,
  error: plain(row["error"]),
});

export const memberOf = (row: Record<string, unknown>): Member => ({
  name: plain(row["name"]),
  jobId: Number(row["job_id"]),
  task: plain(row["task"]),
  state: plain(row["state"]),
  needs: (fromJson(row["needs"]) as string[] | undefined) ?? [],
  condition: plain(row["condition"]) as When | undefined,
  waitsFor: plain(row["waits_for"]),
  attempt: row["attempt"] === null ? undefined : Number(row["attempt"]),
  startedAt: dateOf(row["started_at"]),
  finishedAt: dateOf(row["finished_at"]),
  error: plain(row["error"]),
});
