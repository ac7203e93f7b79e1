// The worker program of the conformance suite (tests/conformance/README.md) for this package.

import { randomBytes } from "node:crypto";
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { type Context, type GatheredJob, Permanent, RetryIn, Snooze, TimedOutError, type Undo, Worker } from "../src/index.js";

function setting(name: string): string {
  const value = process.env[`CONFORMANCE_${name}`];
  if (value === undefined) throw new Error(`CONFORMANCE_${name} is not set`);
  return value;
}

const log = setting("LOG");
const say = (what: string, { jobId, attempt }: Context, how = ""): void =>
  appendFileSync(log, `${what} ${jobId} ${attempt} ${Date.now()}${how}\n`);

/** Returns a handler that logs its begin and its end. */
function logged<Input>(
  handler: (input: Input, ctx: Context) => unknown,
  { begins = true } = {},
): (input: Input, ctx: Context) => Promise<unknown> {
  return async (input, ctx) => {
    if (begins) say("begin", ctx);
    try {
      return await handler(input, ctx);
    } finally {
      say("end", ctx, ctx.reason === undefined ? " done" : " stopped");
    }
  };
}

function counted(input: unknown): { count: number } {
  if (typeof input === "object" && input !== null && "count" in input && Number.isInteger(input.count)) {
    return { count: Number(input.count) };
  }
  throw new TypeError("count is not an integer");
}

type Act = { do: string; name: string; ms?: number; until_attempt?: number; undo?: Undo; task: string; input: unknown };

async function act(one: Act, ctx: Context): Promise<unknown> {
  const limit = one.ms === undefined ? {} : { timeoutMs: one.ms };
  const isTooLate = ctx.attempt > (one.until_attempt ?? Infinity);
  switch (one.do) {
    case "step": {
      const work = async (): Promise<string> => {
        say("step", ctx, ` ${one.name}`);
        await sleep(one.ms ?? 0);
        return randomBytes(8).toString("hex");
      };
      return isTooLate ? null : ctx.step(one.name, work, one.undo && { undo: one.undo });
    }
    case "fail":
      if (!isTooLate) throw new Error("not yet");
      return null;
    case "sleep":
      return ctx.sleep(one.name, `${one.ms} ms`);
    case "signal":
      return ctx.awaitSignal(one.name, limit).catch((error: unknown) =>
        error instanceof TimedOutError ? "timed out" : `caught ${String(error)}`,
      );
    case "spawn":
      return ctx.spawn(one.name, one.task, one.input);
    default:
      return ctx.children(limit);
  }
}

async function steps(all: Act[], ctx: Context): Promise<unknown[]> {
  const results: unknown[] = [];
  for (const one of all) results.push(await act(one, ctx));
  return results;
}

type Gathered = { key: string; do: string };

function many(jobs: GatheredJob<Gathered>[]): unknown[] {
  return jobs.map(({ input, ctx }) => {
    say("begin", ctx);
    say("end", ctx, " done");
    return input.do === "fail" ? new Error("as the input says") : jobs.length;
  });
}

const concurrency = Number(setting("CONCURRENCY"));
const worker = new Worker({
  name: setting("NAME"),
  concurrency,
  lease: `${setting("LEASE")} s`,
  grace: `${setting("GRACE")} s`,
  ...(setting("VERSION") && { versions: [setting("VERSION")] }),
});

worker
  .task("conformance.echo", logged((input) => input))
  .task("conformance.wait", logged<{ ms: number }>(async (input, ctx) => {
    await sleep(input.ms, undefined, { signal: ctx.signal });
    return input;
  }))
  .task("conformance.fail", logged<{ error: string }>(({ error }) => {
    throw new Error(error);
  }))
  .task("conformance.fail_permanently", logged<{ error: string }>(({ error }) => {
    throw new Permanent(error);
  }))
  .task("conformance.retry_in", logged<{ seconds: number }>(({ seconds }) => {
    throw new RetryIn(`${seconds} s`);
  }))
  .task("conformance.snooze", logged<{ seconds: number }>(({ seconds }) => {
    throw new Snooze(`${seconds} s`);
  }))
  .task("conformance.steps", logged(steps, { begins: false }))
  .task("conformance.large", logged<{ bytes: number }>(({ bytes }) => "x".repeat(bytes)))
  .task("conformance.typed", counted, logged<{ count: number }>(({ count }) => ({ count: count + 1 })));

// Only a full call begins: no scenario lasts as long as maxWait.
if (concurrency >= 3) {
  worker.handleMany<Gathered>("conformance.many", { maxJobs: 3, maxWait: "10 min", by: ({ key }) => key }, many);
}

await worker.run();
