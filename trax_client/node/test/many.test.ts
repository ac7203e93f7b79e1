// A handler that takes many jobs in one call.

import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import {
  Cancel, type Context, type GatheredJob, type ManyHandler, type ManyOptions, Permanent, RECORDED, RetryIn, Snooze, Stopped,
  UsageError, type WorkerOptions,
} from "../src/index.js";
import { Many } from "../src/many.js";
import { database, during, eventually } from "./database.js";

const it = await database();
const { client, value } = it;

type Options = ManyOptions<any> & WorkerOptions;

let tasks = 0;

/** Returns a worker with a handler of many jobs, its task, and the inputs of each call. */
function many(handler: ManyHandler<any>, { maxJobs, maxWait, maxWaitMs, by, ...options }: Options) {
  const task = `many.${(tasks += 1)}`;
  const calls: unknown[][] = [];
  const logged = (jobs: GatheredJob<any>[]): ReturnType<typeof handler> => {
    calls.push(jobs.map(({ input }) => input));
    return handler(jobs);
  };
  const given = Object.entries({ maxJobs, maxWait, maxWaitMs, by }).filter(([, one]) => one !== undefined);
  return { worker: it.worker(options).handleMany(task, Object.fromEntries(given) as never, logged), task, calls };
}

/** Runs jobs of these inputs until none is left, and returns their runs and the inputs of each call. */
async function ran(inputs: unknown[], handler: ManyHandler<any>, options: Options): Promise<{ runs: unknown[]; calls: unknown[][] }> {
  const { worker, task, calls } = many(handler, { untilEmpty: true, ...options });
  const jobs = await client.enqueueMany(task, inputs, { maxRetries: 0 });
  await worker.run();
  return { runs: await Promise.all(jobs.map(runOf)), calls };
}

/** Returns the state and the output or error of a job's only run. */
const runOf = (job: number): Promise<unknown> =>
  value("select concat_ws(' ', state, failure_kind) || ': ' || coalesce(error, output::text, '') from trax.run where job_id = $1", job);

const begun = (job: number): Promise<void> =>
  eventually(`job ${job} is executed`, async () => (await client.job(job))?.state === "in_progress");

/** Returns a promise and the function that resolves it. */
function gate(): { isOpen: Promise<void>; open: () => void } {
  let open = (): void => undefined;
  const isOpen = new Promise<void>((resolve) => (open = resolve));
  return { isOpen, open };
}

const doubled = (jobs: GatheredJob<number>[]): number[] => jobs.map(({ input }) => 2 * input);

test("a full call begins at once, and each job has its own context and output", async () => {
  const seen: GatheredJob<number>[] = [];
  const { worker, task, calls } = many((jobs) => (seen.push(...jobs), doubled(jobs)), { maxJobs: 3, maxWait: "1 hour" });
  await during(worker, async () => {
    const jobs = await client.enqueueMany(task, [1, 2, 3, 4, 5, 6]);
    const outputs = await Promise.all(jobs.map(async (job) => (await client.awaitJob(job, "20 s")).output));
    assert.deepEqual(outputs, [2, 4, 6, 8, 10, 12]);
    assert.deepEqual(calls, [[1, 2, 3], [4, 5, 6]]);
    assert.deepEqual(seen.map(({ ctx }) => ctx.jobId), jobs);
    assert.deepEqual(seen.map(({ ctx }) => [ctx.task, ctx.attempt]), jobs.map(() => [task, 1]));
    assert.equal(new Set(seen.map(({ ctx }) => ctx.token)).size, 6);
  });
});

test("the rest begins when the first job has waited for maxWait", async () => {
  const inputs = [1, 2, 3, 4, 5];
  for (const times of [{ maxWait: "50 ms" }, { maxWaitMs: 0 }, {}]) {
    const { runs, calls } = await ran(inputs, doubled, { maxJobs: 3, ...times });
    assert.deepEqual(calls, [[1, 2, 3], [4, 5]]);
    assert.deepEqual(runs, inputs.map((input) => `completed: ${2 * input}`));
  }
});

test("the wait counts from the first job that is still there", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const calls: unknown[][] = [];
    const handler = (jobs: GatheredJob[]): void => void calls.push(jobs.map(({ input }) => input));
    const { handle } = new Many("a", { maxJobs: 3, maxWaitMs: 100 }, 10, handler);
    const first = new AbortController();
    const errors: unknown[] = [];
    const join = (input: number, { signal } = new AbortController()): void =>
      void Promise.resolve(handle(input, { signal } as Context)).catch((error: unknown) => errors.push(error));
    join(1, first);
    mock.timers.tick(60);
    join(2);
    first.abort(new Stopped("cancelled"));
    mock.timers.tick(60);
    join(3);
    assert.deepEqual(calls, []);
    mock.timers.tick(39);
    assert.deepEqual(calls, []);
    mock.timers.tick(1);
    assert.deepEqual(calls, [[2, 3]]);
    mock.timers.tick(1000);
    assert.deepEqual(calls, [[2, 3]], "no job is in two calls");
    join(4, first);
    mock.timers.tick(1000);
    assert.equal(calls.length, 1, "a job that was asked to stop before is in no call");
    await turn();
    assert.deepEqual(errors, [first.signal.reason, first.signal.reason]);
  } finally {
    mock.timers.reset();
  }
});

test("the jobs of a call have one key, and a by that throws fails its job alone", async () => {
  const by = (input: string): unknown => {
    if (input === "bad") throw new Permanent("no customer");
    return input === "list" ? [input] : input[0];
  };
  const inputs = ["a1", "b1", "bad", "a2", "list", "b2"];
  const { runs, calls } = await ran(inputs, () => undefined, { maxJobs: 2, maxWait: "1 hour", by: by as () => string });
  assert.deepEqual(calls, [["a1", "a2"], ["b1", "b2"]]);
  const done = "completed: ";
  const list = `failed error: UsageError: by of the handler of "many.${tasks}" returned a list; return a text or a number`;
  assert.deepEqual(runs, [done, done, "failed error: no customer", done, list, done]);
});

test("calls of a task run at the same time", async () => {
  const { isOpen, open } = gate();
  const handler = (): Promise<void> => (calls.length === 2 && open(), isOpen);
  const { worker, task, calls } = many(handler, { maxJobs: 2, maxWait: "1 hour", concurrency: 4, untilEmpty: true });
  await client.enqueueMany(task, [1, 2, 3, 4]);
  assert.equal((await worker.run()).completed, 4);
});

test("the inputs are decoded, and a misfit fails its job alone", async () => {
  const decoder = (input: unknown): string => {
    if (typeof input !== "string") throw new TypeError("no text");
    return input;
  };
  const worker = it.worker({ untilEmpty: true });
  worker.handleMany("decoded", { maxJobs: 2, maxWait: "1 hour", by: (text) => text.length }, decoder, (jobs) =>
    jobs.map(({ input }) => input.toUpperCase()),
  );
  const jobs = await client.enqueueMany("decoded", ["a", 7, "b"], { maxRetries: 0 });
  await worker.run();
  const misfit = "failed error: the input does not fit this handler: TypeError: no text";
  assert.deepEqual(await Promise.all(jobs.map(runOf)), ['completed: "A"', misfit, 'completed: "B"']);
});

test("an error among the results fails its job alone, as if its handler had thrown it", async () => {
  const results: Record<string, () => unknown> = {
    good: () => ({ n: 1 }),
    nothing: () => undefined,
    plain: () => new Error("it broke", { cause: new Error("a disk") }),
    permanent: () => new Permanent("never"),
    later: () => new RetryIn("10 min", "not now"),
    snooze: () => new Snooze("10 min"),
    cancel: () => new Cancel("no longer wanted"),
    promised: () => Promise.resolve("kept"),
    broken: () => Promise.reject(new Permanent("not kept")),
    big: () => 10n,
  };
  const inputs = Object.keys(results);
  const { worker, task } = many((jobs) => jobs.map(({ input }) => results[input]?.()), { maxJobs: 10, maxWait: "1 hour", untilEmpty: true });
  const jobs = await client.enqueueMany(task, inputs, { maxRetries: 1, retryDelay: "1 hour" });
  await worker.run();
  const seen: Record<string, unknown> = {};
  for (const [at, job] of jobs.entries()) seen[inputs[at] ?? ""] = [(await client.job(job))?.state, await runOf(job)];
  const minutes = "select round(extract(epoch from run_at - now()) / 60)::int from trax.job where job_id = $1";
  assert.deepEqual(await Promise.all([4, 5].map((at) => value(minutes, jobs[at]))), [10, 10]);
  assert.match(String((seen["big"] as unknown[])[1]), /^failed error: the output is a bigint, not JSON/);
  delete seen["big"];
  assert.deepEqual(seen, {
    good: ["completed", 'completed: {"n": 1}'],
    nothing: ["completed", "completed: "],
    plain: ["queued", "failed error: it broke: a disk"],
    permanent: ["failed", "failed error: never"],
    later: ["queued", "failed error: not now"],
    snooze: ["queued", undefined],
    cancel: ["cancelled", "cancelled: no longer wanted"],
    promised: ["completed", 'completed: "kept"'],
    broken: ["failed", "failed error: not kept"],
  });
});

test("a job that the function has completed in its own transaction is recorded", async () => {
  const handler = (jobs: GatheredJob[]): Promise<unknown[]> =>
    Promise.all(jobs.map(async ({ input, ctx }) => ((await client.complete(ctx, input)) ? RECORDED : new Error("lost"))));
  const { runs } = await ran([1, 2], handler, { maxJobs: 2, maxWait: "1 hour" });
  assert.deepEqual(runs, ["completed: 1", "completed: 2"]);
});

test("an error that the function throws fails all jobs of the call", async () => {
  const handler = (jobs: GatheredJob<number>[]): number[] => {
    if (jobs[0]?.input === 1) throw new Permanent("all of them");
    return doubled(jobs);
  };
  const { runs } = await ran([1, 2, 3, 4], handler, { maxJobs: 2, maxWait: "1 hour" });
  const failed = "failed error: all of them";
  assert.deepEqual(runs, [failed, failed, "completed: 6", "completed: 8"]);
});

test("a job of a call records steps, and a wait that would suspend it is refused", async () => {
  const waits: Record<string, (ctx: Context) => Promise<unknown>> = {
    sleep: (ctx) => ctx.sleep("nap", "1 hour"),
    awaitSignal: (ctx) => ctx.awaitSignal("go"),
    children: (ctx) => ctx.children(),
    step: (ctx) => ctx.step("charge", () => ctx.jobId > 0),
  };
  const handler = (jobs: GatheredJob<string>[]): Promise<unknown>[] =>
    jobs.map(({ input, ctx }) => (waits[input] as (ctx: Context) => Promise<unknown>)(ctx));
  const { runs } = await ran(Object.keys(waits), handler, { maxJobs: 4, maxWait: "1 hour" });
  const refused = (wait: string): string =>
    `failed error: ctx.${wait}() cannot suspend a job of a call of many; give "many.${tasks}" a handler with task() instead`;
  assert.deepEqual(runs, [refused("sleep"), refused("awaitSignal"), refused("children"), "completed: true"]);
  const { worker, task } = many(handler, { maxJobs: 1, untilEmpty: true });
  const job = await client.enqueue(task, "sleep", { maxRetries: 5 });
  await worker.run();
  assert.equal((await client.job(job))?.state, "failed", "no attempt follows");
});

test("results that are no list of one for each job fail all jobs of the call", async () => {
  const wrong: [number, () => unknown, string][] = [
    [3, () => [1, Promise.reject(new Error("unheard"))], "2 results for 3 jobs"],
    [2, () => [1], "1 result for 2 jobs"],
    [1, () => [], "0 results for 1 job"],
    [3, () => "done", "a text, not a list of 3 results"],
    [1, () => new Map(), "a Map, not a list of 1 result"],
  ];
  for (const [count, returned, words] of wrong) {
    const inputs = Array.from({ length: count }, (_, at) => at);
    const { runs } = await ran(inputs, returned as () => [], { maxJobs: count, maxWait: "1 hour" });
    assert.deepEqual(runs, inputs.map(() => `failed error: the handler of "many.${tasks}" returned ${words}`));
  }
});

test("a function that empties its list returns the results in the order of the jobs all the same", async () => {
  const handler = (jobs: GatheredJob<number>[]): number[] => {
    const results = doubled(jobs);
    jobs.reverse().length = 0;
    return results;
  };
  const { runs } = await ran([1, 2, 3], handler, { maxJobs: 3, maxWait: "1 hour" });
  assert.deepEqual(runs, ["completed: 2", "completed: 4", "completed: 6"]);
});

test("a job that is asked to stop while it is gathered is in no call", async () => {
  const { worker, task, calls } = many(doubled, { maxJobs: 3, maxWait: "1 hour" });
  await during(worker, async () => {
    const cancelled = await client.enqueue(task, 1);
    await begun(cancelled);
    assert.equal(await client.cancel(cancelled), "requested");
    assert.equal((await client.awaitJob(cancelled, "20 s")).state, "cancelled");
    const late = await client.enqueue(task, 2, { timeoutMs: 300, maxRetries: 0 });
    assert.equal((await client.awaitJob(late, "20 s")).state, "failed");
    assert.match(String(await runOf(late)), /^failed timeout/);
    assert.deepEqual(calls, []);
    const others = await client.enqueueMany(task, [3, 4, 5]);
    for (const job of others) assert.equal((await client.awaitJob(job, "20 s")).state, "completed");
    assert.deepEqual(calls, [[3, 4, 5]]);
  });
});

test("a job whose lease is lost while it is gathered is in no call", async () => {
  const options = { maxJobs: 2, maxWait: "1 hour", by: (input: string) => input[0], concurrency: 2, lease: "1 s" };
  const { worker, task, calls } = many(() => undefined, options);
  const token = "select token from trax.lease where job_id = $1";
  await during(worker, async () => {
    const lost = await client.enqueue(task, "a1");
    await begun(lost);
    await it.db.query("select trax.release($1, $2, '1 hour')", [lost, await value(token, lost)]);
    // Its place is free once the worker knows of the loss.
    const others = await client.enqueueMany(task, ["b1", "b2", "a2", "a3"]);
    for (const job of others) assert.equal((await client.awaitJob(job, "20 s")).state, "completed");
    assert.deepEqual(calls, [["b1", "b2"], ["a2", "a3"]]);
  });
});

test("a stop of the worker gives back the jobs that are gathered, and spends no attempt", async () => {
  const { worker, task, calls } = many(doubled, { maxJobs: 3, maxWait: "1 hour", graceMs: 100 });
  const running = worker.run();
  const jobs = await client.enqueueMany(task, [1, 2]);
  for (const job of jobs) await begun(job);
  worker.stop();
  assert.equal((await running).released, 2);
  assert.deepEqual(calls, []);
  for (const job of jobs) {
    assert.equal(await value("select attempt || ' ' || state from trax.job where job_id = $1", job), "0 queued");
    await client.cancel(job);
  }
});

test("a stop of the worker lets jobs that are gathered have their call within the grace period", async () => {
  const by = (): number => (worker.stop(), 0);
  const { worker, task, calls } = many(doubled, { maxJobs: 3, maxWait: "50 ms", by });
  await client.enqueue(task, 1);
  assert.equal((await worker.run()).completed, 1);
  assert.deepEqual(calls, [[1]]);
});

test("a job that is cancelled while its call runs is given up, and the call goes on for the others", async () => {
  const { isOpen, open } = gate();
  let reasons: unknown[] = [];
  const handler = async (jobs: GatheredJob<number>[]): Promise<number[]> => {
    await isOpen;
    reasons = jobs.map(({ ctx }) => ctx.reason);
    return doubled(jobs);
  };
  const { worker, task } = many(handler, { maxJobs: 3, maxWait: "1 hour", cancelPatienceMs: 100 });
  await during(worker, async () => {
    const jobs = await client.enqueueMany(task, [1, 2, 3]);
    const [first, second, third] = jobs as [number, number, number];
    for (const job of jobs) await begun(job);
    await client.cancel(second);
    assert.equal((await client.awaitJob(second, "20 s")).state, "cancelled");
    assert.equal((await client.job(first))?.state, "in_progress");
    open();
    assert.equal((await client.awaitJob(first, "20 s")).output, 2);
    assert.equal((await client.awaitJob(third, "20 s")).output, 6);
    assert.deepEqual(reasons, [undefined, "cancelled", undefined]);
    assert.equal(await runOf(second), "cancelled: ");
  });
});

test("mistakes in a handler of many jobs are said in words", async () => {
  const any = (value: unknown): never => value as never;
  const refused = (words: string, options: unknown, worker = it.worker(), handler: unknown = doubled): void =>
    assert.throws(() => worker.handleMany("index", any(options), any(handler)), new UsageError(words));
  const whole = "write a whole number from 1, such as maxJobs: 10";
  refused(`maxJobs is undefined; ${whole}`, {});
  refused(`maxJobs is undefined; ${whole}`, null);
  refused(`maxJobs is 0; ${whole}`, { maxJobs: 0 });
  refused(`maxJobs is 1.5; ${whole}`, { maxJobs: 1.5 });
  refused(`maxJobs is NaN; ${whole}`, { maxJobs: NaN });
  refused(`maxJobs is a text; ${whole}`, { maxJobs: "3" });
  const many = 'the handler of "index" takes 500 jobs at once, and the worker runs 10';
  refused(`${many}: set concurrency to 500 or maxJobs to at most 10`, { maxJobs: 500 });
  it.worker({ concurrency: 500 }).handleMany("index", { maxJobs: 500 }, doubled as ManyHandler);
  refused('maxWaitMs is -5; write maxWait: "90 s" or maxWaitMs: 90000', { maxJobs: 3, maxWaitMs: -5 });
  refused('maxWait is a number; write maxWait: "90 s" or maxWaitMs: 90000', { maxJobs: 3, maxWait: 100 });
  refused("by is a text; write by: (input) => input.customer", { maxJobs: 3, by: "customer" });
  refused('there is no option "max_jobs"; did you mean "maxJobs"?', { max_jobs: 3 });
  const usage = "handleMany() takes a name, options such as { maxJobs: 10 }, a decoder if you like, and a function";
  refused(usage, { maxJobs: 3 }, it.worker(), "index");
  assert.throws(() => it.worker().handleMany("index", any(doubled), ...(any([]) as [never])), new UsageError(usage));
  assert.throws(() => it.worker().handleMany("", { maxJobs: 3 }, any(doubled)), /the name of the task is ""; write a name/);
  function* generator(): Generator<number> {
    yield 1;
  }
  refused('the handler of "index" yields; return the output instead', { maxJobs: 3 }, it.worker(), generator);
  it.worker().handleMany<number>("typed", { maxJobs: 3 }, async (jobs) => jobs.map(({ input }) => (input > 0 ? input : new Error("negative"))));
  it.worker().handleMany("typed", { maxJobs: 3 }, async () => undefined);
  // @ts-expect-error a text is no list
  it.worker().handleMany("typed", { maxJobs: 3 }, () => "done");
  // @ts-expect-error maxJobs is missing
  assert.throws(() => it.worker().handleMany("typed", {}, () => undefined), UsageError);
  const twice = 'the task "index" has a handler already; a task has one';
  refused(twice, { maxJobs: 3 }, it.worker().task("index", () => 1));
  const worker = it.worker().handleMany("index", { maxJobs: 3, maxWait: any(null), by: any(null) }, any(doubled));
  refused(twice, { maxJobs: 3 }, worker);
  assert.throws(() => worker.task("index", () => 1), new UsageError(twice));
});
