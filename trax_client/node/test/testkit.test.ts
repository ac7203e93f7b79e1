import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import knex from "knex";
import pg from "pg";

import { Cancel, type Context, type Queryable, RECORDED, RetryIn, Snooze, TimedOutError, TraxError, UsageError } from "../src/index.js";
import { enqueued, passTime, runOne, runThrough } from "../src/testkit.js";
import { database } from "./database.js";

const it = await database();
const { client, db, value } = it;
const nothingIsWrong = async (): Promise<void> => assert.deepEqual((await db.query("select * from trax.check()")).rows, []);

test("sleeps, retries and children of years take no time", async () => {
  const worker = it.worker();
  worker.task("parent", async (_input, ctx) => {
    await ctx.sleep("year", "1 year");
    await ctx.spawn("fast", "leaf", 1);
    await ctx.spawn("slow", "branch", 1);
    const first = await ctx.children({ name: "first", mode: "any" });
    return [first.filter(({ output }) => output !== undefined).length, (await ctx.children()).length, ctx.attempt];
  });
  worker.task<number>("branch", async (n, ctx) => {
    await ctx.sleep("month", "1 month");
    if (ctx.attempt === 1) throw new RetryIn("10 days", "again");
    await ctx.spawn("leaf", "leaf", n);
    await ctx.children();
    return n;
  });
  worker.task<number>("leaf", (n) => n);
  const began = Date.now();
  const job = await client.enqueue("parent");
  const ran = await runThrough<number[]>(worker, db, job);
  assert.deepEqual(ran, { jobId: job, attempt: 1, ended: "completed", output: [1, 2, 1], error: undefined });
  assert.ok(Date.now() - began < 60_000);
  await assert.rejects(runThrough(worker, db, job), new TraxError(`job ${job} has ended before, or does not exist`));
  await nothingIsWrong();
});

test("a wait ends by a signal, or when its time has passed", async () => {
  const late = (error: unknown): string => {
    assert.ok(error instanceof TimedOutError);
    return "late";
  };
  const worker = it.worker().task("waits", async (_input, ctx) => [
    await ctx.awaitSignal("go", { timeout: "1 day" }),
    await ctx.awaitSignal("go", { timeout: "1 day" }).catch(late),
  ]);
  const job = await client.enqueue("waits");
  const { ended, attempt } = await runThrough(worker, db, job);
  assert.deepEqual([ended, attempt], ["suspended", 1]);
  const waiting = new TraxError(`job ${job} waits for the signal "go"; send it with sendSignal(${job}, "go") of a Client`);
  await assert.rejects(runThrough(worker, db, job), waiting);
  await client.sendSignal(job, "go", 7);
  assert.equal((await runThrough(worker, db, job)).ended, "suspended");
  await passTime(db, "12 h");
  await assert.rejects(runThrough(worker, db, job), waiting);
  await passTime(db, "12 h");
  assert.deepEqual((await runThrough(worker, db, job)).output, [7, "late"]);
  await nothingIsWrong();
});

test("a job that no test can run is named with the reason", async () => {
  const worker = it.worker();
  worker.task<string>("parent", async (task, ctx) => {
    await ctx.spawn("child", task);
    await ctx.children();
  });
  worker.task("listens", (_input, ctx) => ctx.awaitSignal("go"));
  const stuck = async (job: number, words: RegExp): Promise<void> => assert.rejects(runThrough(worker, db, job), words);
  await stuck(await client.enqueue("parent", "elsewhere"), /^UsageError: this worker has no handler for task "elsewhere": add/);
  await stuck(await client.enqueue("parent", "listens"), /^TraxError: job \d+ waits for the signal "go"; send it with sendSignal/);
  await stuck(77_000, /^TraxError: job 77000 has ended before, or does not exist$/);
  const held = await client.enqueue("parent", "held", { concurrencyKey: "c" });
  await value("select trax.claim_next(tasks => '{parent}')");
  const blocked = await client.enqueue("parent", "blocked", { concurrencyKey: "c" });
  await stuck(held, /job \d+ has ended before, or does not exist$/);
  const listed = `waiting jobs:\n(.*\n)*  job ${blocked}: parent "blocked", group default, priority 0, waiting for its key$`;
  // The claim finds that the key is taken.
  await stuck(blocked, new RegExp(`^TraxError: no job of task "parent" is ready\n${listed}`));
  await stuck(blocked, new RegExp(`^TraxError: job ${blocked} cannot run\n${listed}`));
});

test("an attempt ends as it does in a worker", async () => {
  const ends: Record<string, (ctx: Context) => unknown> = {
    completes: () => ({ at: new Date(0) }),
    retries: () => Promise.reject(new Error("once")),
    dies: (ctx) => ctx.step("a", () => 7n as unknown),
    undoes: (ctx) => ctx.step("a", () => 7n as unknown, { undo: { task: "undo" } }),
    cancels: () => Promise.reject(new Cancel("no longer wanted")),
    snoozes: () => Promise.reject(new Snooze("1 h")),
    sleeps: (ctx) => ctx.sleep("nap", "1 h"),
    loses: (ctx) => value("select trax.release(job_id, token) from trax.lease where job_id = $1", ctx.jobId),
    records: async (ctx) => ((await client.complete(ctx, "in its transaction")) ? RECORDED : undefined),
    forgets: () => RECORDED,
    refuses: () => "x".repeat(2_000_000),
  };
  const worker = it.worker().task<string>("ends", (how, ctx) => ends[how]?.(ctx));
  const ran: Record<string, unknown[]> = {};
  for (const how of Object.keys(ends)) {
    const job = await client.enqueue("ends", how, { maxRetries: 1 });
    const { jobId, attempt, ended, output, error } = await runOne(worker, db, "ends");
    assert.deepEqual([jobId, attempt], [job, 1]);
    ran[how] = [ended, output, error?.slice(0, 30)];
    await client.cancel(job);
  }
  assert.deepEqual(ran, {
    completes: ["completed", { at: "1970-01-01T00:00:00.000Z" }, undefined],
    retries: ["retrying", undefined, "once"],
    dies: ["dead", undefined, 'the result of step "a" cannot '],
    undoes: ["dead", undefined, 'step "a" is recorded without a'],
    cancels: ["cancelled", undefined, "no longer wanted"],
    snoozes: ["released", undefined, undefined],
    sleeps: ["suspended", undefined, undefined],
    loses: ["lost", undefined, undefined],
    records: ["completed", "in its transaction", undefined],
    forgets: ["retrying", undefined, "the handler returned RECORDED,"],
    refuses: ["dead", undefined, "the outcome was refused: the o"],
  });
});

test("a job that was cancelled meanwhile gets no child", async () => {
  const worker = it.worker().task("spawns", async (_input, ctx) => {
    await client.cancel(ctx.jobId);
    await ctx.spawn("child", "child");
  });
  await client.enqueue("spawns");
  assert.equal((await runOne(worker, db)).ended, "cancelled");
});

test("a job of many runs alone, with its decoder", async () => {
  const worker = it.worker().handleMany("many", { maxJobs: 10, maxWaitMs: 1 }, Number, (jobs) => jobs.map(({ input }) => input + 1));
  await client.enqueue("many", "6");
  assert.equal((await runOne(worker, db)).output, 7);
});

test("without a ready job the error lists those that wait, and why", async () => {
  const quiet = await database();
  const worker = quiet.worker().task("mail", () => 1).task("other", () => 1);
  const failed = async (task?: string): Promise<string> => runOne(worker, quiet.db, task).then(String, String);
  assert.equal(await failed(), 'TraxError: no job of the tasks mail, other is ready\nno job is waiting');
  const job = await quiet.client.enqueue("mail", { to: "ada" }, { priority: 7, runAt: new Date(Date.now() + 3_600_000) });
  const [first, title, line] = (await failed("mail")).split("\n");
  assert.deepEqual([first, title], ['TraxError: no job of task "mail" is ready', "waiting jobs:"]);
  assert.match(line ?? "", new RegExp(`^  job ${job}: mail {"to":"ada"}, group default, priority 7, due in 3\\d\\d\\d\\.\\d s$`));
  await quiet.client.enqueueMany("mail", Array(25).fill(1), { runAt: "2100-01-01 UTC" });
  assert.match(await failed(), /\n  and 6 more$/);
});

test("waiting jobs are typed, and oldest first", async () => {
  const quiet = await database();
  const options = { uniqueKey: "u", concurrencyKey: "c", maxRetries: 2, groupName: "mails", trace: { traceparent: "t" } };
  const first = await quiet.client.enqueue("mail", { to: "ada" }, options);
  await quiet.client.enqueue("mail", { to: "bob" }, { concurrencyKey: "c", runAt: "2100-01-01 UTC" });
  await quiet.client.enqueue("other");
  const [ada, bob, ...others] = await enqueued<{ to: string }>(quiet.db, "mail");
  const { runAt, dueInMs, ...rest } = ada ?? assert.fail("no job");
  assert.ok(dueInMs <= 0 && Math.abs(runAt.getTime() - Date.now()) < 60_000);
  assert.deepEqual(rest, {
    jobId: first, task: "mail", input: { to: "ada" }, priority: 0, waitsFor: undefined, signal: undefined, attempts: 0,
    parentJobId: undefined, manifest: undefined, ...options,
  });
  assert.deepEqual([bob?.input.to, bob?.waitsFor, bob?.runAt], ["bob", "time", new Date("2100-01-01")]);
  assert.deepEqual([others, (await enqueued(quiet.db)).length], [[], 3]);
});

test("a test may run in a transaction that is rolled back, over a pool, and over another library", async () => {
  const worker = it.worker().task("steps", async (_input, ctx) => {
    const both = await Promise.all([ctx.step("a", () => 1), ctx.step("b", () => 2)]);
    await ctx.sleep("nap", "3 days");
    return both;
  });
  await db.query("begin");
  const job = await client.enqueue("steps");
  assert.deepEqual((await runThrough(worker, db, job)).output, [1, 2]);
  await db.query("rollback");
  assert.equal(await client.job(job), undefined);
  const pool = new pg.Pool({ connectionString: it.url });
  assert.deepEqual((await runThrough(worker, pool, await client.enqueue("steps"))).output, [1, 2]);
  await pool.end();
  const knexed = knex({ client: "pg", connection: it.url });
  const adapter: Queryable = {
    query: (text, values) => knexed.raw(text.replace(/\$\d+/g, "?"), values as knex.Knex.RawBinding[]),
  };
  assert.deepEqual((await runThrough(worker, adapter, await client.enqueue("steps"))).output, [1, 2]);
  await knexed.destroy();
});

test("mistakes in the arguments of the kit are refused in words", async () => {
  const any = (it: unknown): any => it;
  const worker = it.worker().task("mail", () => 1);
  const calls: [() => Promise<unknown>, string][] = [
    [() => passTime(db, any(90)), 'time is a number; write passTime(db, "3 days")'],
    [() => passTime(db, "3 dyas"), 'time is "3 dyas"; write passTime(db, "3 days")'],
    [() => passTime(any(it.url), "3 days"), 'the connection is a text; write passTime(db, "3 days") with a Client or Pool of pg'],
    [() => enqueued(db, any(7)), 'task is a number; write enqueued(db, "mail.send")'],
    [() => runOne(any(db), any(worker)), 'the worker is a Client; write runOne(worker, db, "mail.send") with a Worker'],
    [() => runOne(worker, any(undefined)), 'the connection is undefined; write runOne(worker, db, "mail.send") with a Client or Pool of pg'],
    [() => runOne(worker, db, any(7)), 'task is a number; write runOne(worker, db, "mail.send")'],
    [() => runOne(worker, db, "mial"), 'this worker has no handler for task "mial": add one with worker.task("mial", function)'],
    [() => runOne(it.worker(), db), 'this worker has no handler: add one with worker.task("name", function)'],
    [() => runThrough(worker, db, any("seven")), "jobId is a text; write runThrough(worker, db, jobId)"],
  ];
  for (const [call, said] of calls) await assert.rejects(call, new UsageError(said));
});

test("a role that does not own the tables is told whose connection it needs", async () => {
  const role = `kit_${randomBytes(5).toString("hex")}`;
  const other = new pg.Client(it.url);
  await other.connect();
  await db.query(`create role ${role}`);
  try {
    await other.query(`set role ${role}`);
    for (const call of [() => passTime(other, "1 h"), () => enqueued(other)]) {
      await assert.rejects(call, { name: "UsageError", message: /^permission denied .*: connect as the owner of the extension, or a superuser$/ });
    }
  } finally {
    await other.end();
    await db.query(`drop role ${role}`);
  }
});

test("a cycle waits for that of another session, up to a limit", async (t) => {
  const other = new pg.Client(it.url);
  await other.connect();
  await other.query("begin");
  await other.query("select trax.tick()");
  const job = await client.enqueue("later", {}, { runAt: new Date(Date.now() + 3_600_000) });
  const passed = passTime(db, "1 h");
  assert.equal(await Promise.race([passed, pause(100, "waits")]), "waits");
  await other.query("commit");
  await passed;
  await other.end();
  assert.deepEqual((await enqueued(db, "later")).map(({ jobId, waitsFor }) => [jobId, waitsFor]), [[job, undefined]]);

  let time = process.hrtime.bigint();
  t.mock.method(process.hrtime, "bigint", () => (time += 1_000_000_000n));
  const isHeld = { query: async () => ({ rows: [] }) };
  await assert.rejects(passTime(isHeld, "1 h"), new TraxError("no cycle could run: another session keeps one open; end its transaction"));
});
