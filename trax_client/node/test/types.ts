// The types of results that the compiler accepts and refuses. Compiled, and never run.

import { type Client, type Context, type Handler, RECORDED, type Stored, type Worker } from "../src/index.js";

interface Order {
  id: number;
  at: Date;
  lines: { sku: string; bought?: Date }[];
  parent?: Order;
}
type Tree = { name: string; children: Tree[] };
interface Node {
  name: string;
  next: Node | undefined;
  all: readonly Node[];
}
type Document = string | number | boolean | null | Document[] | { [name: string]: Document };

export async function results(ctx: Context, client: Client, order: Order, tree: Tree, node: Node, document: Document): Promise<void> {
  const text: string = await ctx.step("a", () => new Date());
  const same: [number, string | undefined] = await ctx.step("a", async (): Promise<[number, string | undefined]> => [1, undefined]);
  const literal: "a" | 7 = await ctx.step("a", () => (text ? ("a" as const) : (7 as const)));
  const read = await ctx.step("a", () => order);
  const at: string | undefined = read.parent?.lines[0]?.bought;
  const trees: Tree = await ctx.step("a", () => tree);
  const nodes: Node = await ctx.step("a", () => node);
  const documents: Document = await ctx.step("a", () => document);
  const unknown: unknown = await ctx.step("a", async () => (await fetch("")).json());
  const any: Date = await ctx.step("a", () => JSON.parse("1"));
  const nothing: void = await ctx.step("a", () => undefined);
  await ctx.step("a", () => {
    throw new Error("a");
  });
  const recorded = await client.recordStep(ctx, "a", { at: new Date() });
  const when: string | undefined = recorded?.output.at;
  // @ts-expect-error: a text is read back
  const date: Date = await ctx.step("a", () => new Date());
  // @ts-expect-error: also within
  const within: Date = read.at;
  // @ts-expect-error: a bigint is no JSON
  await ctx.step("a", () => 5n);
  // @ts-expect-error: neither is a Set
  await ctx.step("a", async () => new Set([1]).add(2));
  // @ts-expect-error: nor a Map
  const output: Map<string, number> | undefined = (await client.recordStep(ctx, "a", new Map([["a", 1]])))?.output;
  // @ts-expect-error: also within
  const map: Map<string, number> = (await ctx.step("a", () => ({ map: new Map([["a", 1]]) }))).map;
  void [text, same, literal, at, trees, nodes, documents, unknown, any, nothing, when, date, within, output, map];
}

export function outputs(worker: Worker, order: Order): void {
  worker.task("a", () => order).task("a", async () => RECORDED).task("a", () => undefined).task<number>("a", (input) => input + 1);
  worker.task("a", () => {
    throw new Error("a");
  });
  worker.task("a", (input: unknown) => Number(input), async (input) => [input]);
  worker.handleMany<number>("a", { maxJobs: 2 }, (jobs) => jobs.map(({ input }) => (input > 1 ? input : new Error("a"))));
  worker.handleMany("a", { maxJobs: 2 }, async (jobs) => void jobs);
  // @ts-expect-error: a bigint is no JSON
  worker.task("a", () => 5n);
  // @ts-expect-error: neither is a Set
  worker.task("a", String, async () => new Set([1]));
  // @ts-expect-error: nor a Map
  worker.handleMany("a", { maxJobs: 2 }, (jobs) => jobs.map(() => new Map<string, number>()));
}

export const once = <T>(ctx: Context, run: () => Promise<T>): Promise<Stored<T>> => ctx.step("once", run);

export const add = <Input, Output>(worker: Worker, handler: Handler<Input, Output>): Worker => worker.task("a", handler);

export const record = <T>(client: Client, ctx: Context, output: T): unknown => client.recordStep(ctx, "a", output);
