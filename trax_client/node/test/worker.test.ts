import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate, setTimeout as sleep } from "node:timers/promises";

import { Cancel, Client, type Context, Permanent, RECORDED, RetryIn, Snooze, Stopped, UsageError, type WorkerOptions } from "../src/index.js";
import type { Called } from "../src/calls.js";
import type { Claimed } from "../src/exchange.js";
import { Execution } from "../src/execution.js";
import { noteCompletion } from "../src/outcome.js";
import { Telemetry } from "../src/telemetry.js";
import { Connection } from "../src/connection.js";
import { NotInstalledError } from "../src/errors.js";
import { database, during, eventually } from "./database.js";

const it = await database();
const { client, value } = it;

/** Returns the state and the error of a job's only run. */
const runOf = (job: number): Promise<unknown> =>
  value("select concat_ws(' ', state, failure_kind) || ': ' || coalesce(error, output::text, '') from trax.run where job_id = $1", job);

test("a handler gets its input and context and its output is recorded", async () => {
  const [first, second] = await client.enqueueMany("greet", [{ name: "Ada" }, { name: "Zoë \\ ' \u0001" }], { maxRetries: 2 });
  const worker = it.worker({ untilEmpty: true }).task<{ name: string }>("greet", ({ name }, ctx) => {
    assert.equal(ctx.task, "greet");
    assert.equal(ctx.groupName, "default");
    assert.deepEqual([ctx.attempt, ctx.maxAttempts, ctx.manifest, ctx.reason], [1, 3, undefined, undefined]);
    assert.ok(Math.abs(ctx.queuedAt.getTime() - Date.now()) < 60_000);
    return { id: ctx.jobId, text: `hello ${name}` };
  });
  const summary = await worker.run();
  assert.equal(summary.completed, 2, it.said.join("\n"));
  assert.deepEqual((await client.job(first ?? 0))?.output, { id: first, text: "hello Ada" });
  assert.deepEqual((await client.awaitJob(second ?? 0)).output, { id: second, text: "hello Zoë \\ ' \u0001" });
});

test("inputs are decoded by a function, by parse, by a standard schema, and a misfit fails its job alone", async () => {
  const isText = (input: unknown): string => {
    if (typeof input !== "string") throw new TypeError("no text");
    return input;
  };
  const schema = {
    "~standard": {
      validate: (input: unknown) =>
        typeof input === "string" ? { value: input.length } : { issues: [{ message: "no text", path: ["a", { key: "b" }] }] },
    },
  };
  const worker = it.worker({ untilEmpty: true });
  worker.task("by.function", isText, (text) => text.toUpperCase());
  worker.task("by.parse", { parse: isText }, (text) => text.toUpperCase());
  worker.task("by.schema", schema, (length) => length + 1);
  const good = await Promise.all(["by.function", "by.parse", "by.schema"].map((task) => client.enqueue(task, "abc")));
  const bad = await Promise.all(["by.function", "by.schema"].map((task) => client.enqueue(task, 7, { maxRetries: 0 })));
  await worker.run();
  assert.deepEqual(await Promise.all(good.map(runOf)), ['completed: "ABC"', 'completed: "ABC"', "completed: 4"]);
  assert.deepEqual(await Promise.all(bad.map(runOf)), [
    "failed error: the input does not fit this handler: TypeError: no text",
    "failed error: the input does not fit this handler: a.b: no text",
  ]);
});

test("a worker with older SQL says what to type, waits for the update and goes on", async () => {
  const older = await database({ version: "0.1.0" });
  await assert.rejects(older.client.enqueue("a"), /HINT: Type: alter extension trax update/);
  const worker = older.worker().task("a", () => "done");
  await during(worker, async () => {
    await eventually("the warning", () => /0.1.0; if that is older, type: alter extension trax update/.test(older.said.join("\n")));
    await older.db.query("alter extension trax update");
    const job = await older.client.enqueue("a");
    await eventually("its end", async () => (await older.client.job(job))?.state === "completed");
  });
});

test("a refusal from just before an update is not the end, a second one is", async () => {
  const query = Connection.prototype.query;
  let refusals = 1;
  Connection.prototype.query = function (...statement) {
    if (!statement[0].text.includes("trax.claim_next") || refusals-- <= 0) return query.apply(this, statement);
    return Promise.reject(new NotInstalledError("no such function", { sqlstate: "42883" }));
  };
  try {
    const job = await client.enqueue("refused once");
    await it.worker({ untilEmpty: true }).task("refused once", () => "done").run();
    assert.equal((await client.job(job))?.state, "completed");
    refusals = 2;
    await assert.rejects(it.worker().task("refused twice", () => "done").run(), /no such function/);
  } finally {
    Connection.prototype.query = query;
  }
});

test("a start is one line, and names tasks that wait and have no handler", async () => {
  const tasks = Array.from({ length: 12 }, (_, at) => `nobody\u001b ${String(at).padStart(2, "0")}`);
  const jobs = await Promise.all(tasks.map((task) => client.enqueue(task, {}, { groupName: "start" })));
  const options = { name: "w-start", concurrency: 3, groups: ["start"], untilEmpty: true };
  await it.worker(options).task("b", () => 1).task("a", () => 1).run();
  const name = await it.value("select current_database()");
  const of = (begin: string): string[] => it.said.filter((line) => line.startsWith(begin));
  assert.deepEqual(of('worker "w-start"'), [`worker "w-start" runs 3 jobs at once in database "${name}", of the tasks a, b`]);
  const shown = tasks.slice(0, 10).join(", ").replaceAll("\u001b", "\u00b7");
  assert.deepEqual(of("jobs wait that").slice(-1), [`jobs wait that this worker has no handler for: ${shown} and 2 more`]);
  for (const job of jobs) await client.cancel(job);
});

test("an output that is not JSON fails for good, and undefined is no output", async () => {
  const circular: unknown[] = [];
  circular.push(circular);
  const outputs: Record<string, unknown> = { nothing: undefined, big: 10n, circular, function: () => 1, nul: "\0", nan: [1, NaN], permanent: new Permanent("x") };
  const worker = it.worker({ untilEmpty: true }).task<string>("output", (name) => outputs[name]);
  const jobs = await client.enqueueMany("output", Object.keys(outputs), { maxRetries: 0 });
  await worker.run();
  const [nothing, ...refused] = await Promise.all(jobs.map(runOf));
  assert.equal(nothing, "completed: ");
  assert.deepEqual(refused, [
    "failed error: the output is a bigint, not JSON; write String(n), or Number(n) below 2 ** 53",
    "failed error: the output[0] is a part of itself; leave it out",
    "failed error: the output is a function, not JSON; call it, or leave it out",
    "failed error: the output has a NUL (\\0), which PostgreSQL cannot store; leave it out",
    "failed error: the output[1] is NaN, not JSON; write a finite number, or null",
    "failed error: the output is a Permanent, not JSON; throw it, or write its message",
  ]);
});

test("what a handler throws says what becomes of its job", async () => {
  const errors: Record<string, Error> = {
    plain: new Error("it broke", { cause: new Error("a disk") }),
    permanent: new Permanent("never", { code: 7 }),
    later: new RetryIn("10 min", "not now"),
    far: Object.assign(new RetryIn("1 s", "too far", { code: 8 }), { delay: "100 years" }),
    snooze: new Snooze("10 min"),
    cancel: new Cancel("no longer wanted"),
  };
  const worker = it.worker({ untilEmpty: true }).task<string>("throw", (name) => {
    throw errors[name];
  });
  const names = Object.keys(errors);
  const jobs = await client.enqueueMany("throw", names, { maxRetries: 1 });
  await worker.run();
  const seen: Record<string, unknown> = {};
  for (const [at, job] of jobs.entries()) {
    const state = await value("select attempt || ' ' || state || coalesce(round(extract(epoch from run_at - now()) / 60) || ' min', '') from trax.job where job_id = $1", job);
    seen[names[at] ?? ""] = [String(state).replace(/(?<=completed|failed|cancelled).*/, ""), await runOf(job)];
  }
  assert.equal((seen["plain"] as string[])[1], "failed error: it broke: a disk");
  assert.equal((seen["far"] as string[])[1], "failed error: too far", "the error outlives its delay");
  delete seen["plain"];
  delete seen["far"];
  assert.deepEqual(seen, {
    permanent: ["1 failed", "failed error: never"],
    later: ["1 queued10 min", "failed error: not now"],
    snooze: ["0 queued10 min", undefined],
    cancel: ["1 cancelled", "cancelled: no longer wanted"],
  });
  assert.equal(await value("select detail ->> 'code' from trax.run where error = 'never'"), "7");
});

test("a completion in the handler's own transaction is exactly once", async () => {
  await it.db.query("create table paid (job bigint)");
  const job = await client.enqueue("pay");
  const worker = it.worker({ untilEmpty: true }).task("pay", async (_, ctx) => {
    await it.db.query("begin");
    await it.db.query("insert into paid values ($1)", [ctx.jobId]);
    assert.equal(await client.complete(ctx, "paid"), true);
    await it.db.query("commit");
    return RECORDED;
  });
  await worker.run();
  assert.equal(await runOf(job), 'completed: "paid"');
  assert.equal(await client.complete({ jobId: job, token: "00000000-0000-4000-8000-000000000000" }), false);
});

test("a handler that has completed its job and returns a value is told to return RECORDED", async () => {
  const jobs = await client.enqueueMany("pay.value", ["commit", "rollback"]);
  const worker = it.worker({ untilEmpty: true, concurrency: 1 }).task<string>("pay.value", async (end, { jobId, token }) => {
    await it.db.query("begin");
    await client.complete({ jobId, token }, "recorded");
    await it.db.query(end);
    return "returned";
  });
  const { completed, lost } = await worker.run();
  assert.deepEqual([completed, lost], [2, 0]);
  assert.deepEqual(await Promise.all(jobs.map(runOf)), ['completed: "recorded"', 'completed: "returned"']);
  const told = it.said.filter((line) => line.includes("return RECORDED"));
  assert.deepEqual(told, [`job ${jobs[0]}: the handler has completed the job itself: return RECORDED`]);
});

test("a handler that has completed its job is not told that its lease is lost", async () => {
  const telemetry = await Telemetry.load();
  const none = (): void => undefined;
  const reasons = await Promise.all([true, false].map(async (completes) => {
    const claimed = { jobId: 1, token: `token ${completes}`, task: "t", input: "{}", steps: 0 } as Claimed;
    const means = { progress: none, ask: none, warn: none, calls: { run: assert.fail, lockTimeout: 0 }, telemetry };
    const execution = new Execution(claimed, means);
    let reason: string | undefined;
    await execution.run({ decoder: undefined, handler: (_, ctx) => {
      if (completes) noteCompletion(ctx.token);
      execution.stop("lease lost");
      reason = ctx.reason;
    } }, 0);
    return reason;
  }));
  assert.deepEqual(reasons, [undefined, "lease lost"]);
});

test("a call that is refused because another has suspended the job is no lost lease", async () => {
  const telemetry = await Telemetry.load();
  const none = (): void => undefined;
  const kinds = await Promise.all(["suspended", "lost"].map(async (late) => {
    let calls = 0;
    const run = async (): Promise<Called> => {
      const isFirst = (calls += 1) === 1;
      // Answered when the answer to the second call has had its effect.
      if (isFirst) await setImmediate();
      return { rows: [{ state: isFirst ? late : "lost" }], wasUnanswered: false };
    };
    const claimed = { jobId: 1, token: `token ${late}`, task: "t", input: "{}", steps: 0 } as Claimed;
    const means = { progress: none, ask: none, warn: none, calls: { run, lockTimeout: 0 }, telemetry };
    const execution = new Execution(claimed, means);
    const handler = (_: unknown, ctx: Context): unknown => Promise.all(["a", "b"].map((name) => ctx.sleep(name, "1 day")));
    return (await execution.run({ decoder: undefined, handler }, 0)).kind;
  }));
  assert.deepEqual(kinds, ["suspended", "release"]);
});

test("a call that a handler does not await ends no process, and is named", async () => {
  const jobs = await client.enqueueMany("forgets", ["step", "sleep"]);
  const worker = it.worker({ untilEmpty: true }).task<string>("forgets", async (call, ctx) => {
    if (call === "step") void ctx.step("mail", () => Promise.reject(new Error("no mail")));
    else void ctx.step("late", () => new Promise((resolve) => setTimeout(resolve, 100)));
    return "returned";
  });
  await worker.run();
  assert.deepEqual(await Promise.all(jobs.map(runOf)), ['completed: "returned"', 'completed: "returned"']);
  for (const name of ["mail", "late"]) {
    const text = `its handler returned before ctx.step("${name}") had ended; await it`;
    assert.ok(it.said.some((line) => line.includes(text)), it.said.join("\n"));
  }
});

test("a cancel aborts the signal of the handler, also of one that ends by the signal's own error", async () => {
  const job = await client.enqueue("endless");
  let reason: unknown;
  const worker = it.worker().task("endless", async (_, ctx) => {
    ctx.progress({ percent: 50 });
    ctx.signal.addEventListener("abort", () => (reason = ctx.signal.reason));
    await sleep(60_000, undefined, { signal: ctx.signal });
  });
  await during(worker, async () => {
    await eventually("its progress is seen", async () => (await client.job(job))?.progress !== undefined);
    assert.equal(await client.cancel(job), "requested");
    await eventually("it is cancelled", async () => (await client.job(job))?.state === "cancelled");
  });
  assert.ok(reason instanceof Stopped);
  assert.equal(reason.reason, "cancelled");
});

test("a handler that ignores its signal is given up, and its place is free", async () => {
  const job = await client.enqueue("deaf");
  const worker = it.worker({ concurrency: 1, cancelPatienceMs: 100 });
  worker.task("deaf", () => sleep(8000, undefined, { ref: false })).task("next", () => 1);
  await during(worker, async () => {
    await eventually("it runs", async () => (await client.job(job))?.state === "in_progress");
    await client.cancel(job);
    assert.equal((await client.awaitJob(job, "6 s")).state, "cancelled");
    assert.equal((await client.awaitJob(await client.enqueue("next"), "6 s")).state, "completed");
  });
});

test("a job over its timeout is stopped for that reason", async () => {
  const job = await client.enqueue("slow", {}, { timeoutMs: 300, maxRetries: 0 });
  let reason: unknown;
  const worker = it.worker().task("slow", async (_, ctx) => {
    assert.equal(ctx.timeout, 300);
    ctx.signal.addEventListener("abort", () => (reason = ctx.reason));
    await sleep(60_000, undefined, { signal: ctx.signal });
  });
  await during(worker, async () => assert.equal((await client.awaitJob(job, "30 s")).state, "failed"));
  assert.equal(reason, "timeout");
  assert.match(String(await runOf(job)), /^failed timeout/);
});

test("an outcome is told again after its connection was lost", async () => {
  const job = await client.enqueue("through", {}, { maxRetries: 0 });
  let go = (): void => undefined;
  const gate = new Promise<void>((resolve) => (go = resolve));
  const worker = it.worker({ name: "through" }).task("through", () => gate.then(() => "done"));
  await during(worker, async () => {
    await eventually("it runs", async () => (await client.job(job))?.state === "in_progress");
    const kill = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'trax worker through'";
    await eventually("two sessions are ended", async () => Number(await value(kill)) === 2);
    go();
    assert.equal((await client.awaitJob(job)).output, "done");
  });
  assert.equal(await runOf(job), 'completed: "done"');
});

test("a stop gives back what does not end within the grace, and spends no attempt", async () => {
  const job = await client.enqueue("patient");
  const worker = it.worker({ graceMs: 100, name: "stopper" }).task("patient", (_, ctx) => sleep(60_000, undefined, { signal: ctx.signal }));
  const running = worker.run();
  await eventually("it runs", async () => (await client.job(job))?.state === "in_progress");
  await eventually("it is registered", async () => Number(await value("select count(*) from trax.worker_state where name = 'stopper' and state = 'working'")) === 1 || (await it.db.query("select * from trax.worker_state")).rows);
  worker.stop();
  assert.equal((await running).released, 1);
  assert.equal(await value("select attempt || ' ' || state from trax.job where job_id = $1", job), "0 queued");
  // On a busy machine the worker's last report may be late; the server then counts it as gone.
  const left = "select count(*)::int from trax.worker_state where name = 'stopper' and state <> 'gone'";
  await eventually("it has left", async () => (await value(left)) === 0, 60_000);
  await client.cancel(job);
});

test("a password that is a function keeps the heartbeats in the event loop, and hosts that are dead are passed over", async () => {
  const { hostname, port, username, pathname, searchParams } = new URL(it.url);
  const host = searchParams.get("host") ?? hostname;
  const connection = { host, port: Number(port), user: username, database: pathname.slice(1), password: () => "none" };
  const job = await client.enqueue("alone");
  const first = it.worker({ connection, untilEmpty: true }).task("alone", () => 1);
  assert.equal((await first.run()).completed, 1);
  assert.ok(it.said.some((line) => line.startsWith("heartbeats run in the event loop")), it.said.join("\n"));
  assert.equal(await runOf(job), "completed: 1");
  const several = { ...connection, host: `127.0.0.1,${host}`, password: "x" };
  process.env["PGPORT"] = `1,${port}`;
  const { port: _, ...withoutPort } = several;
  const second = it.worker({ connection: withoutPort, untilEmpty: true }).task("alone", () => 1);
  await client.enqueue("alone");
  assert.equal((await second.run()).completed, 1);
  delete process.env["PGPORT"];
});

test("a worker without an address says once that DATABASE_URL is not set", async () => {
  const { DATABASE_URL, PGHOST, PGPORT } = process.env;
  const tries = async (options: WorkerOptions): Promise<string[]> => {
    const from = it.said.length;
    const lines = (): string[] => it.said.slice(from).filter((line) => line.includes("ECONNREFUSED"));
    await during(it.worker(options).task("a", () => 1), () => eventually("two tries", () => lines().length >= 2));
    return lines();
  };
  for (const name of ["DATABASE_URL", "PGHOST"]) delete process.env[name];
  process.env["PGPORT"] = "1";
  try {
    const [first = "", ...rest] = await tries({ connection: undefined as never });
    assert.match(first, /^connect ECONNREFUSED .*; DATABASE_URL is not set; again in \d+ ms$/);
    assert.ok(!rest.join().includes("DATABASE_URL"));
    assert.ok(!(await tries({ connection: { host: "127.0.0.1" } })).join().includes("DATABASE_URL"));
  } finally {
    for (const [name, value] of Object.entries({ DATABASE_URL, PGHOST, PGPORT })) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  }
});

test("mistakes are said in words", async () => {
  const worker = it.worker().task("twice", () => 1);
  assert.throws(() => worker.task("twice", () => 2), new UsageError('the task "twice" has a handler already; a task has one'));
  function* generator(): Generator<number> {
    yield 1;
  }
  async function* asyncGenerator(): AsyncGenerator<number> {
    yield 1;
  }
  for (const yields of [generator, asyncGenerator]) {
    assert.throws(() => it.worker().task("a", yields as () => unknown), new UsageError('the handler of "a" yields; return the output instead'));
  }
  assert.equal(new Permanent().message, "failed for good");
  assert.equal(new Cancel().message, "cancelled by its handler");
  assert.throws(() => it.worker({ connection: "mydb" }), /does not begin with postgresql:/);
  assert.throws(() => it.worker({ connection: "postgresql://u:geheim@[::1/x" }), (error: Error) => error instanceof UsageError && !error.message.includes("geheim"));
  assert.throws(() => it.worker({ concurrency: 0 }), UsageError);
  await assert.rejects(it.worker().run(), /has no handler/);
  for (const [changed, words] of [
    [{ pathname: "none_of_these" }, /does not exist \(3D000\)\nHINT: Name a database that exists, in the address or as PGDATABASE/],
    [{ search: "?sslmode=require" }, /not support SSL connections\nHINT: Write sslmode=prefer in the address, or set ssl = on/],
    [{ username: "none_of_these" }, /does not exist \(28000\)\nHINT: Correct user and password in the address, or PGUSER/],
  ] as [Partial<URL>, RegExp][]) {
    const connection = Object.assign(new URL(it.url), changed).href;
    await assert.rejects(it.worker({ connection }).task("a", () => 1).run(), words);
  }
  const empty = await database({ empty: true });
  await assert.rejects(empty.worker().task("a", () => 1).run(), (error: Error) => {
    assert.equal(error.name, "NotInstalledError");
    assert.match(error.message, /has no extension trax\n.*\nHINT: Type: create extension trax;/);
    return true;
  });
  await assert.rejects(new Client(empty.db).enqueue("a"), /NotInstalledError.*HINT: Type: create extension trax;/s);
});
