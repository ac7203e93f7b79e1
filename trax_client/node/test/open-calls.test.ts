// Handlers that end before the calls of their context, or begin several at once.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import type { Context } from "../src/index.js";
import { database, during, eventually } from "./database.js";

const it = await database();
const { client } = it;

const inHelper = async (ctx: Context): Promise<void> => {
  await ctx.step("first", () => pause(20));
  await ctx.step("second", () => 1);
};
const forgotten: Record<string, [handler: (ctx: Context) => unknown, named: string]> = {
  step: [(ctx) => void ctx.step("mail", () => pause(20)), 'ctx.step("mail")'],
  "a step that fails": [async (ctx) => (void ctx.step("mail", () => Promise.reject(new Error("down"))), pause(50)), 'ctx.step("mail")'],
  "a helper": [(ctx) => void inHelper(ctx), 'ctx.step("first")'],
  spawn: [(ctx) => void ctx.spawn("child", "letter"), 'ctx.spawn("child")'],
  "two calls": [(ctx) => void [ctx.awaitSignal("paid", { timeout: "1 ms" }), ctx.children()], 'ctx.awaitSignal("paid"), ctx.children()'],
  "an argument": [(ctx) => void ctx.sleep("nap", 7 as never), 'ctx.sleep("nap")'],
  "a race": [(ctx) => Promise.race([ctx.step("slow", () => pause(50)), pause(1)]), 'ctx.step("slow")'],
};

test("a handler that does not await a call fails its attempt, and no promise rejects unseen", async () => {
  const worker = it.worker({ untilEmpty: true }).task<string>("forgets", (name, ctx) => forgotten[name]?.[0](ctx));
  const names = Object.keys(forgotten);
  const jobs = await client.enqueueMany("forgets", names, { maxRetries: 0 });
  await worker.run();
  for (const [at, name] of names.entries()) {
    const { state, error } = (await client.job(jobs[at] ?? 0)) ?? {};
    assert.deepEqual([state, error], ["failed", `the handler returned before ${forgotten[name]?.[1]} had ended: await it`], name);
  }
});

test("a call that is awaited after it has failed has ended", async () => {
  const worker = it.worker({ untilEmpty: true }).task("late", async (_, ctx) => {
    const call = ctx.step("mail", () => Promise.reject(new Error("down")));
    await pause(20);
    return call.catch(String);
  });
  const job = await client.enqueue("late", {}, { maxRetries: 0 });
  await worker.run();
  assert.equal((await client.job(job))?.output, "Error: down");
});

test("a handler that goes on while its job is suspended is named", async () => {
  const worker = it.worker().task("goes.on", async (_, ctx) => {
    void ctx.sleep("nap", "1 hour");
    await pause(500);
    return "dropped";
  });
  const job = await client.enqueue("goes.on");
  const said = `job ${job} (goes.on) is suspended, but its handler went on: await ctx.sleep("nap")`;
  await during(worker, () => eventually("it is said", () => it.said.includes(said) || it.said));
});

test("calls that are begun at once and of which one suspends the job lose no lease", async () => {
  let done = 0;
  const worker = it.worker().task<string>("at.once", async (_, ctx) => {
    const both = [ctx.sleep("a", "300 ms"), ctx.sleep("b", "300 ms"), ctx.step("c", () => 7)];
    const results = await Promise.all(both);
    done += 1;
    return results[2];
  });
  const running = worker.run();
  const jobs = await client.enqueueMany("at.once", [1, 2, 3, 4, 5], { maxRetries: 0 });
  await eventually("all are done", () => done === jobs.length || it.said.slice(-3));
  worker.stop();
  const { completed, lost } = await running;
  assert.deepEqual([completed, lost], [jobs.length, 0]);
});
