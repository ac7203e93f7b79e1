// Values that a program throws or returns, and that throw when they are looked at.

import assert from "node:assert/strict";
import { test } from "node:test";

import { type Context, Permanent, RetryIn } from "../src/index.js";
import { database } from "./database.js";

const it = await database();
const { client, value } = it;

const raise = (): never => {
  throw Object.create(null);
};
const throwing = Object.fromEntries(["get", "has", "getPrototypeOf", "ownKeys"].map((trap) => [trap, raise]));
const withGetter = <T extends object>(object: T, ...names: string[]): T => {
  for (const name of names) Object.defineProperty(object, name, { get: raise });
  return object;
};

/** The error of a value that the program throws, without that of the place. */
const noText = "a value without a text was thrown; throw an Error";
const thrown: Record<string, [value: unknown, error: string]> = {
  bare: [Object.create(null), noText],
  proxy: [new Proxy({}, throwing), noText],
  "proxy of an error": [new Proxy(new Error("a"), throwing), noText],
  message: [withGetter(new Error("a"), "message"), noText],
  name: [withGetter(new TypeError("a"), "stack", "name"), "a"],
  cause: [withGetter(new Error("a"), "cause"), "a"],
  "cause's message": [new Error("a", { cause: withGetter(new Error("b"), "message") }), `a: ${noText}`],
  then: [withGetter({ toString: () => "a" }, "then"), "a"],
  symbol: [Symbol("a"), "Symbol(a)"],
  number: [Object.assign(new Error(), { message: 7 }), "7"],
  nothing: [undefined, "undefined"],
  class: [Permanent, "the class Permanent was thrown; write throw new Permanent(...)"],
  "object with a message": [{ message: "busy", status: 503 }, "busy"],
  object: [{ status: 503, token: "secret" }, "an object was thrown, with status, token; throw an Error"],
};

const runOf = (job: number): Promise<unknown> =>
  value("select concat_ws(' ', state, failure_kind) || ': ' || coalesce(error, output::text, '') from trax.run where job_id = $1", job);

test("a thrown value fails its job alone, whatever it is", async () => {
  const throws = (name: unknown): never => {
    throw thrown[String(name)]?.[0];
  };
  const worker = it.worker({ untilEmpty: true }).task("fine", () => "fine");
  worker.task("handler", throws).task("decoder", throws, () => 1).task("parse", { parse: throws }, () => 1);
  worker.handleMany("many", { maxJobs: 1 }, ([job]) => throws(job?.input));
  worker.task("step", (name, ctx) => ctx.step("a", () => throws(name)));
  const before: Record<string, string> = { decoder: "the input does not fit this handler: ", parse: "the input does not fit this handler: " };
  for (const task of ["handler", "decoder", "parse", "many", "step"]) {
    const names = Object.keys(thrown);
    const jobs = await client.enqueueMany(task, names, { maxRetries: 0 });
    const fine = await client.enqueue("fine");
    await worker.run();
    for (const [at, name] of names.entries()) {
      assert.equal(await runOf(jobs[at] ?? 0), `failed error: ${before[task] ?? ""}${thrown[name]?.[1]}`, `${task} ${name}`);
    }
    assert.equal(await runOf(fine), 'completed: "fine"');
  }
});

test("an error that has no text still says what becomes of its job", async () => {
  const errors: Record<string, Error> = {
    permanent: withGetter(new Permanent("a", 7), "message", "detail"),
    later: withGetter(new RetryIn("10 min", "a", withGetter({}, "toJSON")), "message"),
  };
  const worker = it.worker({ untilEmpty: true }).task<string>("kind", (name) => {
    throw errors[name];
  });
  const jobs = await client.enqueueMany("kind", Object.keys(errors), { maxRetries: 1 });
  await worker.run();
  assert.deepEqual(await Promise.all(jobs.map(async (job) => (await client.job(job))?.state)), ["failed", "queued"]);
  assert.deepEqual(await Promise.all(jobs.map(runOf)), [`failed error: ${noText}`, `failed error: ${noText}`]);
});

test("a result that throws when it is read fails its job for good, and a step is undone", async () => {
  const getter = Object.defineProperty({}, "a", { get: raise, enumerable: true });
  const results: Record<string, unknown> = { toJSON: { toJSON: raise }, getter };
  const undo = { task: "undone" };
  const worker = it.worker({ untilEmpty: true });
  worker.task<string>("output", (name) => results[name]);
  worker.task<string>("step.output", (name, ctx: Context) => ctx.step("a", () => results[name], { undo }));
  const names = Object.keys(results);
  for (const task of ["output", "step.output"]) {
    const jobs = await client.enqueueMany(task, names, { maxRetries: 3 });
    await worker.run();
    assert.deepEqual(await Promise.all(jobs.map(async (job) => (await client.job(job))?.state)), names.map(() => "failed"), task);
    for (const job of jobs) assert.ok(String(await runOf(job)).includes(noText), String(await runOf(job)));
  }
  assert.equal(await value("select count(*)::int from trax.work_queue where task = 'undone'"), names.length);
});
