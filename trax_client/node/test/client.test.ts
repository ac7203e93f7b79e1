import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { INVALID_SPAN_CONTEXT, propagation, trace } from "@opentelemetry/api";
import knex from "knex";
import pg from "pg";

import { Client, InvalidArgumentError, NotPermittedError, TooLargeError, UnknownNameError, UsageError, WrongStateError } from "../src/index.js";
import { levelOf } from "../src/level.js";
import { database } from "./database.js";

const it = await database();
const { client, db, value } = it;

test("a job exists when the transaction of its producer commits, and not before", async () => {
  await db.query("begin");
  const gone = await client.enqueue("mail.send", { to: "a" });
  await db.query("rollback");
  assert.equal(await client.job(gone), undefined);
  await db.query("begin");
  const kept = await client.enqueue("mail.send", { to: "b" });
  await db.query("commit");
  assert.equal((await client.job(kept))?.state, "queued");
});

test("every option arrives", async () => {
  await db.query("select trax.configure_rate('api', 5, '1 min')");
  const runAt = new Date("2031-02-03T04:05:06.789Z");
  const options = {
    runAt, groupName: "g", priority: 7, maxRetries: 3, timeout: "5 min", uniqueKey: "u", uniqueForMs: 90_000,
    concurrencyKey: "c", version: "v1", rate: "api", rateKey: "r", cost: 2, retryDelayMs: 1500,
    trace: { traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" },
  };
  const job = await client.enqueue("all", [1, "two"], options);
  assert.equal(await client.enqueue("all", [], options), job, "the unique key is alive");
  const row = (await db.query("select * from trax.work_queue where job_id = $1", [job])).rows[0] as Record<string, unknown>;
  assert.deepEqual(row["input"], [1, "two"]);
  assert.deepEqual(row["trace"], options.trace);
  assert.equal(row["version"], "v1");
  assert.deepEqual([row["rate"], row["rate_key"], row["cost"]], ["api", "r", 2]);
  const seen = await client.job(job);
  assert.deepEqual([seen?.runAt, seen?.groupName, seen?.priority, seen?.attempt], [runAt, "g", 7, 0]);
});

test("every option of a statement arrives", async () => {
  const role = String(await value("select current_database()"));
  await db.query(`create role ${role} login`);
  const runAt = new Date("2031-02-03T04:05:06.789Z");
  const options = {
    runAt, groupName: "g", priority: 7, maxRetries: 3, timeout: "5 min", uniqueKey: "of sql", uniqueForMs: 90_000, concurrencyKey: "c",
    retryDelayMs: 1500, onDuplicate: "keep" as const, runAs: role,
  };
  const job = await client.enqueueSql("select 1", options);
  assert.equal(await client.enqueueSql("select 2", options), job, "the unique key is alive");
  const columns = `run_at, group_name, priority, max_retries, timeout = '5 min' as timeout, unique_key, concurrency_key,
    retry_delay = '1.5 s' as retry_delay, run_as, input ->> 'command' as command`;
  const { rows } = await db.query(`select ${columns} from trax.work_queue where job_id = $1`, [job]);
  assert.deepEqual(rows, [{
    run_at: runAt, group_name: "g", priority: 7, max_retries: 3, timeout: true, unique_key: "of sql", concurrency_key: "c",
    retry_delay: true, run_as: role, command: "select 1",
  }]);
  await client.cancel(job);
  await db.query(`drop role ${role}`);
});

test("a waiting job is replaced, postponed and changed", async () => {
  const runAt = new Date("2031-02-03T04:05:06.789Z");
  const job = await client.enqueue("index", 1, { uniqueKey: "of index" });
  assert.equal(await client.enqueue("index", 2, { uniqueKey: "of index", onDuplicate: "replace" }), job);
  assert.equal(await client.enqueue("index", 3, { uniqueKey: "of index", runAt, onDuplicate: "postpone" }), job);
  assert.equal(await client.changeJob(job, { input: 4, priority: 5, timeoutMs: 9000 }), "changed");
  assert.equal(await client.changeJob(4711, { priority: 5 }), "unknown");
  await assert.rejects(client.changeJob(job, {}), InvalidArgumentError);
  const row = (await db.query("select * from trax.work_queue where job_id = $1", [job])).rows[0] as Record<string, unknown>;
  assert.deepEqual([row["input"], row["run_at"], row["priority"]], [4, runAt, 5]);
  const input = (id: number): Promise<unknown> => value("select input::text from trax.job where job_id = $1", id);
  assert.equal(await client.changeJob(job, { input: null }), "changed");
  assert.equal(await input(job), "null", "null is an input");
  assert.equal(await client.changeJob(job, { input: [5] }), "changed");
  await client.cancel(job);
  assert.deepEqual([await input(await client.fork(job, { input: null })), await input(await client.fork(job))], ["null", "[5]"]);
});

test("many jobs have their ids in the order of their inputs", async () => {
  const texts = ["a\"b", "{c,d}", "e\\f", "", null, "NULL"];
  const ids = await client.enqueueMany("many", texts);
  const rows = await Promise.all(ids.map((id) => value("select input from trax.job where job_id = $1", id)));
  assert.deepEqual(rows, texts);
});

test("a unique key of several inputs is refused", async () => {
  await assert.rejects(client.enqueueMany("keyed", [1, 2], { uniqueKey: "of two" }), InvalidArgumentError);
  const [job] = await client.enqueueMany("keyed", [1], { uniqueKey: "of one" });
  assert.equal(await client.enqueue("keyed", 2, { uniqueKey: "of one" }), job);
});

test("null is the input null, and no input is an empty object", async () => {
  const ids = [await client.enqueue("bare"), await client.enqueue("bare", undefined), await client.enqueue("bare", null)];
  const inputs = await Promise.all(ids.map((id) => value("select input::text from trax.job where job_id = $1", id)));
  assert.deepEqual(inputs, ["{}", "{}", "null"]);
});

test("errors have a class for each SQLSTATE, with detail and hint", async () => {
  await assert.rejects(client.enqueue("a", {}, { priority: 99 }), (error: unknown) => {
    assert.ok(error instanceof InvalidArgumentError);
    assert.equal(error.sqlstate, "22023");
    assert.ok(error.detail && error.hint && error.message.includes(error.hint));
    return true;
  });
  await assert.rejects(client.awaitJob(999_999, "10 ms"), UnknownNameError);
  await assert.rejects(client.enqueue("a", "x".repeat(1_100_000)), TooLargeError);
  await assert.rejects(client.enqueue("a", { n: 1n }), UsageError);
  const job = await client.enqueue("waits");
  assert.equal((await client.awaitJob(job, "10 ms")).state, "queued");
  assert.equal(await client.cancel(job), "cancelled");
  assert.equal((await client.awaitJob(job)).state, "cancelled");
});

test("a transaction that takes no call says what to do", async () => {
  for (const [before, sqlstate, hint] of [["set transaction read only", "25006", /begin read write/], ["select 1 / 0", "25P02", /db.query\("rollback"\)/]] as const) {
    await db.query("begin");
    await db.query(before).catch(() => undefined);
    await assert.rejects(client.enqueue("a"), (error: unknown) => {
      assert.ok(error instanceof WrongStateError);
      assert.equal(error.sqlstate, sqlstate);
      assert.match(String(error.hint), hint);
      return true;
    });
    await db.query("rollback");
  }
});

test("a statement is executed by the server", async () => {
  const job = await client.enqueueSql("select 7 as n");
  const { state, output } = await client.awaitJob<{ result: unknown }>(job);
  assert.deepEqual([state, output?.result], ["completed", [[7]]]);
  const wrong = await client.enqueueSql("select 1 / 0", { maxRetries: 0 });
  const [failed] = await client.awaitJobs([wrong]);
  assert.deepEqual([failed?.jobId, failed?.state], [wrong, "failed"]);
  assert.match(String(failed?.error), /division by zero/);
});

test("the first of many jobs ends a wait, and each has its own result", async () => {
  const [first = 0, second = 0] = await client.enqueueMany("first", [1, 2]);
  const late = await client.enqueue("late");
  assert.deepEqual(await client.awaitJobs([late, first], "10 ms"), []);
  const waiting = client.awaitJobs([late, first], "20 s");
  const other = new pg.Client(it.url);
  await other.connect();
  await new Client(other).cancel(first);
  await other.end();
  assert.deepEqual((await waiting).map(({ jobId, state }) => [jobId, state]), [[first, "cancelled"]]);
  await db.query("select trax.complete(job_id, token, '[1.5]') from trax.claim_next(worker => 'w', tasks => '{first}', max_jobs => 9)");
  const ended = await client.awaitJobs([999_999, second, first, second]);
  assert.deepEqual(new Map(ended.map(({ jobId, state, output }) => [jobId, [state, output]])), new Map<number, unknown>([
    [first, ["cancelled", undefined]], [second, ["completed", [1.5]]], [999_999, ["unknown", undefined]],
  ]));
  await assert.rejects(client.awaitJobs(Array.from({ length: 70_000 }, (_, at) => at + 1)), TooLargeError);
});

test("a wait in a transaction is refused before it aborts the transaction", async () => {
  const older = new Client({ query: (text, values) => db.query(text, values) });
  for (const producer of [client, older]) {
    for (const [name, wait] of Object.entries({
      awaitJob: (job: number) => producer.awaitJob(job, "10 ms"),
      awaitJobs: (job: number) => producer.awaitJobs([job], "10 ms"),
    })) {
      const waits = { name: "UsageError", message: `${name} waits outside of transactions: commit first, or use another connection` };
      await db.query("begin");
      const job = await producer.enqueue("kept");
      await assert.rejects(wait(job), waits);
      await db.query("commit");
      assert.equal((await producer.awaitJob(job, "0")).state, "queued");
      await db.query("begin read only");
      await assert.rejects(wait(job), producer === client ? waits : WrongStateError);
      await db.query("rollback");
    }
  }
  const pool = new pg.Pool({ connectionString: it.url });
  assert.equal((await new Client(pool).awaitJob(await client.enqueue("kept"), "0")).state, "queued");
  await pool.end();
});

test("a missing right names the level that has it", async () => {
  const role = String(await value("select current_database()"));
  await db.query(`create role ${role}; set role ${role}`);
  const grant = (level: string): RegExp => new RegExp(`permission denied.*HINT: .*trax.grant_access\\('ROLE', '${level}'\\)`, "s");
  for (const [call, level] of [
    [() => client.job(1), "reader"],
    [() => client.cancel(1), "producer"],
    [() => client.complete({ jobId: 1, token: "00000000-0000-4000-8000-000000000000" }), "worker"],
  ] as const) {
    await assert.rejects(call(), (error: Error) => error instanceof NotPermittedError && grant(level).test(error.message));
  }
  await db.query(`reset role; drop role ${role}`);
});

test("every function has the level that the server grants", () => {
  const source = readFileSync(new URL("../../../../sql/api/access.sql", import.meta.url), "utf8");
  const granted = new Map<string, string>();
  for (const level of ["worker", "producer", "reader"]) {
    const list = new RegExp(`${level}_functions constant text\\[\\] := ([^;]*);`).exec(source)?.[1] ?? "";
    for (const [, name = ""] of list.matchAll(/'(\w+)'/g)) granted.set(name, level);
  }
  const sources = ["client", "exchange", "sql"].map((name) => readFileSync(new URL(`../../src/${name}.ts`, import.meta.url), "utf8"));
  const called = sources.join().matchAll(/(?:call|#value|value)\("(\w+)"|trax\.(\w{2,})\(/g);
  const names = new Set([...called].map(([, first, second]) => first ?? second ?? ""));
  assert.ok(names.size > 25, [...names].join());
  for (const name of names) assert.equal(levelOf(name), granted.get(name), name);
});

test("type parsers of the program, of big integers and of JSON, spoil nothing", async () => {
  const types = { getTypeParser: (oid: number) => (text: string) => (oid === 20 ? BigInt(text) : text) };
  const other = new pg.Client({ connectionString: it.url, types: types as pg.CustomTypesConfig });
  await other.connect();
  const odd = new Client(other);
  const job = await odd.enqueue("odd");
  assert.equal(typeof job, "number");
  await it.worker({ untilEmpty: true }).task("odd", () => "text").run();
  const result = { state: "completed", output: "text", error: undefined };
  assert.deepEqual(await odd.awaitJob(job), result);
  assert.deepEqual(await odd.awaitJobs([job]), [{ jobId: job, ...result }]);
  await other.end();
});

test("a transaction of Knex enqueues", async () => {
  const sql = knex({ client: "pg", connection: it.url });
  const over = (trx: knex.Knex): Client =>
    new Client({ query: (text, values) => trx.raw(text.replace(/\$\d+/g, "?"), values as knex.Knex.RawBinding[]) });
  const job = await sql.transaction((trx) => over(trx).enqueue("mail.send", { to: "what?" }, { priority: 3 }));
  await assert.rejects(sql.transaction(async (trx) => {
    await over(trx).enqueueMany("undone", [1, 2]);
    throw new Error("undo");
  }));
  await sql.destroy();
  assert.equal(await value("select input ->> 'to' from trax.job where job_id = $1", job), "what?");
  assert.equal(await value("select count(*)::int from trax.job where task = 'undone'"), 0);
});

test("the span of the producer travels with the job", async () => {
  const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  propagation.setGlobalPropagator({
    inject: (_, carrier: Record<string, string>) => void (carrier["traceparent"] = parent),
    extract: (from) => trace.setSpanContext(from, { traceId: parent.slice(3, 35), spanId: parent.slice(36, 52), traceFlags: 1 }),
    fields: () => ["traceparent"],
  });
  const spans: string[] = [];
  const span = trace.wrapSpanContext(INVALID_SPAN_CONTEXT);
  trace.setGlobalTracerProvider({
    getTracer: () => ({
      startSpan: () => span,
      startActiveSpan: (...args: unknown[]) => {
        const [name, options, run] = [args[0], args[1] as { links?: { context: { spanId: string } }[] }, args.at(-1)];
        spans.push([name, ...(options.links ?? []).map((link) => link.context.spanId)].join(" "));
        return (run as (span: unknown) => never)(span);
      },
    }),
  });
  const job = await client.enqueue("traced");
  const seen: unknown[] = [];
  await it.worker({ untilEmpty: true }).task("traced", (_, ctx) => void seen.push(ctx.trace)).run();
  assert.deepEqual(seen, [{ traceparent: parent }]);
  assert.deepEqual(spans, ["send traced", "process traced 00f067aa0ba902b7"]);
  assert.equal((await client.job(job))?.state, "completed");
});
