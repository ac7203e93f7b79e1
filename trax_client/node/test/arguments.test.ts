// Mistakes that a program in plain JavaScript can make in the arguments of each call.

import assert from "node:assert/strict";
import { test } from "node:test";

import { millisecondsOf } from "../src/duration.js";
import { Client, Graph, RetryIn, Snooze, UsageError, Worker } from "../src/index.js";
import { nearest } from "../src/options.js";
import { database } from "./database.js";

const it = await database();
let sent = 0;
const client = new Client({
  query: (text, values) => {
    sent += 1;
    return it.db.query(text, values);
  },
});
/** A value as plain JavaScript passes it, of any type. */
const any = (value: unknown): never => value as never;
const connection = it.url;
const token = "00000000-0000-4000-8000-000000000000";

/** Each call that takes options. */
const calls: Record<string, (options: unknown) => unknown> = {
  enqueue: (options) => client.enqueue("a", {}, any(options)),
  enqueueSql: (options) => client.enqueueSql("select 1", any(options)),
  enqueueMany: (options) => client.enqueueMany("a", [1], any(options)),
  worker: (options) => new Worker(any(options)),
  openBatch: (options) => client.openBatch("a", {}, any(options)),
  cancel: (options) => client.cancel(1, any(options)),
  fork: (options) => client.fork(1, any(options)),
  sendSignal: (options) => client.sendSignal(1, "s", 1, any(options)),
  recordStep: (options) => client.recordStep({ jobId: 1, token }, "s", 1, any(options)),
  retryIn: (options) => new RetryIn("300 s", "429", undefined, any(options)),
  graphs: (options) => new Graph(any(options)),
  graphSql: (options) => new Graph().addSql("a", "select 1", any(options)),
  graph: (options) => new Graph().add("a", "a", {}, any(options)),
};
const times: Record<string, string[]> = {
  enqueue: ["timeout", "uniqueFor", "retryDelay"],
  enqueueSql: ["timeout", "uniqueFor", "retryDelay"],
  enqueueMany: ["timeout", "uniqueFor", "retryDelay"],
  worker: ["lease", "pollInterval", "grace", "cancelPatience"],
};

/** Checks that a call is refused in these words, with nothing sent. */
async function refused(words: string, call: () => unknown): Promise<void> {
  const before = sent;
  await assert.rejects(async () => call(), (error: unknown) => {
    assert.ok(error instanceof UsageError, `${words}: ${String(error)}`);
    assert.ok(error.message.includes(words), `${words}: ${error.message}`);
    return true;
  });
  assert.equal(sent, before, words);
}

test("a list is no text, and a text no list", async () => {
  await refused('groups is a text; write groups: ["mail"]', () => new Worker({ connection, groups: any("mail") }));
  await refused('groups is an object; write groups: ["mail"]', () => new Worker({ connection, groups: any({}) }));
  await refused('versions is a text; write versions: ["v2"]', () => new Worker({ connection, versions: any("v2") }));
  await refused("inputs is a text; write enqueueMany(", () => client.enqueueMany("a", any("input")));
  await refused("inputs is a Set; write enqueueMany(", () => client.enqueueMany("a", any(new Set())));
  await refused('task is a list; write enqueue("', () => client.enqueue(any(["a", "b"])));
  await refused("task has a NUL (\\0), which PostgreSQL cannot store; leave it out", () => client.enqueue("a\0b"));
  await refused("task() takes a name", () => it.worker().task(any(["a", "b"]), () => 1));
  const ofServer = `task "sql" is that of SQL jobs, which the server runs: enqueue them with enqueueSql("...")`;
  await refused(ofServer, () => it.worker().task("sql", () => 1));
  await refused(ofServer, () => it.worker().handleMany("sql", { maxJobs: 2 }, () => []));
});

test("a name that the server would refuse is refused before it is sent", async () => {
  const attempt = { jobId: 1, token };
  const takers: Record<string, (name: string) => unknown> = {
    task: (name) => it.worker().task(name, () => 1),
    handleMany: (name) => it.worker().handleMany(name, { maxJobs: 2 }, () => []),
    enqueue: (name) => client.enqueue(name),
    group: (name) => client.enqueue("a", 1, { groupName: name }),
    version: (name) => client.enqueue("a", 1, { version: name }),
    groups: (name) => it.worker({ groups: ["a", name] }),
    versions: (name) => it.worker({ versions: [name] }),
    graph: (name) => new Graph().add(name, "a"),
    graphTask: (name) => new Graph().add("a", name),
    signal: (name) => client.sendSignal(1, name),
    step: (name) => client.recordStep(attempt, name),
  };
  const keys: Record<string, (key: string) => unknown> = {
    unique: (key) => client.enqueue("a", 1, { uniqueKey: key }),
    concurrency: (key) => client.enqueue("a", 1, { concurrencyKey: key }),
    rate: (key) => client.enqueue("a", 1, { rate: key }),
    rateKey: (key) => client.enqueue("a", 1, { rate: "a", rateKey: key }),
    ofGraph: (key) => new Graph({ uniqueKey: key }),
    worker: (key) => it.worker({ name: key }),
    signalId: (key) => client.sendSignal(1, "a", 1, { signalId: key }),
    fromStep: (key) => client.fork(1, { fromStep: key }),
  };
  for (const take of Object.values({ ...takers, ...keys })) {
    await refused('has a NUL (\\0), which PostgreSQL cannot store', () => take("a\0b"));
    await refused("has half of a surrogate pair, which", () => take("\ud800"));
    await refused("of 256 bytes; write at most 255", () => take("é".repeat(128)));
  }
  for (const take of Object.values(takers)) {
    for (const name of ["", " a", "a\n"]) await refused("; write a name that neither is empty nor begins or ends with a space: ", () => take(name));
  }
  for (const take of Object.values(keys)) await refused(" is empty; write ", () => take(""));
  for (const option of ["groups", "versions"]) await refused(`${option} is empty; write ${option}: ["`, () => it.worker({ [option]: [] }));
  const [longest, job] = ["x".repeat(255), await client.enqueue("a")];
  assert.equal(await client.enqueue(longest, 1, { groupName: longest, version: longest, uniqueKey: longest, concurrencyKey: " " }), job + 1);
  for (const id of ["9223372036854775808", 2n ** 64n]) await refused("jobId is ", () => client.job(any(id)));
});

test("an option of a job is refused at its handler, with where to give it", async () => {
  const worker = it.worker();
  for (const [options, call] of [[{ maxRetries: 3 }, "max_retries => 3"], [{ retryDelay: "90 s" }, "retry_delay => '90 s'"]] as const) {
    const words = `give it to enqueue, or type select trax.configure_task('o', ${call})`;
    await refused(words, () => worker.task("o", any(() => 1), any(options)));
    await refused(words, () => worker.handleMany("o", any({ maxJobs: 1 }), any(() => []), any(options)));
  }
});

test("an option that does not exist is refused by name, with the nearest", async () => {
  for (const [call, pairs] of Object.entries({
    enqueue: { prio: "priority", group_name: "groupName", Timeout: "timeout", retries: "maxRetries", run_at: "runAt", uniqueKye: "uniqueKey" },
    enqueueSql: { run_as: "runAs", prio: "priority", unique_key: "uniqueKey" },
    enqueueMany: { prio: "priority", timeoutMS: "timeoutMs", retryDelya: "retryDelay" },
    cancel: { three: "tree" },
    fork: { from_step: "fromStep" },
    sendSignal: { signal_id: "signalId" },
    recordStep: { undoo: "undo" },
    retryIn: { closerate: "closeRate" },
    graphs: { unique_key: "uniqueKey" },
    graph: { need: "needs", rate_key: "rateKey" },
    graphSql: { runas: "runAs" },
    worker: { group: "groups", concurency: "concurrency", lesae: "lease", poll_interval_ms: "pollIntervalMs", until_empty: "untilEmpty" },
  })) {
    for (const [mistyped, meant] of Object.entries(pairs)) {
      const words = `there is no option "${mistyped}"; did you mean "${meant}"?`;
      await refused(words, () => calls[call]?.({ [mistyped]: 1 }));
    }
    await refused('there is no option "xyzzy"; ', () => calls[call]?.({ xyzzy: undefined }));
    await refused("the options are a text; write ", () => calls[call]?.("mail"));
    await refused("the options are a list; write ", () => calls[call]?.(["mail"]));
    await refused("the options are a Map; write ", () => calls[call]?.(new Map()));
  }
  for (const call of ["enqueue", "enqueueSql", "enqueueMany", "graph"]) {
    for (const name of ["delay", "countdown", "eta", "startAfter", "start_after"]) {
      await refused(`there is no option "${name}"; write runAt: new Date(Date.now() + 90_000)`, () => calls[call]?.({ [name]: 90 }));
    }
    await refused(`there is no option "expires"; type select trax.limit_queue_time(job_id, '1 hour')`, () => calls[call]?.({ expires: 90 }));
  }
  for (const name of ["version", "batch", "rate", "rateKey", "cost", "trace", "input", "task"]) {
    await refused(`there is no option "${name}"; `, () => calls["enqueueSql"]?.({ [name]: null }));
  }
  await refused('there is no option "sslmode"; did you mean "ssl"?', () => new Worker({ connection: any({ sslmode: "verify-full" }) }));
  await refused('there is no option "databse"; did you mean "database"?', () => new Worker({ connection: any({ databse: "shop" }) }));
  await refused('there is no option "job_id"; did you mean "jobId"?', () => client.complete(any({ job_id: 1, token })));
  await refused("the attempt has no token; write complete(ctx, output)", () => client.complete(any({ jobId: 1 })));
  await refused("the attempt has no jobId and no token", () => client.complete(any(1)));
  assert.equal(nearest("id", ["name", "groups"]), undefined);
  const ofPg = `connectionString keepAlive stream statement_timeout query_timeout lock_timeout keepAliveInitialDelayMillis
    idle_in_transaction_session_timeout fallback_application_name connectionTimeoutMillis types client_encoding binary
    enableChannelBinding scramMaxIterations sslNegotiation sslnegotiation replication pipeline max min idleTimeoutMillis
    allowExitOnIdle maxUses maxLifetimeSeconds`;
  for (const name of ofPg.split(/\s+/)) new Worker({ connection: any({ host: "a", [name]: undefined }) });
});

test("missing arguments are said, and what a client is made of", async () => {
  for (const db of [undefined, null, 5, "postgresql://", {}]) {
    await refused("; write new Client(db) with a Client or Pool of pg", () => new Client(any(db)));
  }
  for (const name of ["cancel", "readSteps", "readGraph", "readNeeds", "job", "awaitJob", "fork", "changeJob", "sendSignal"] as const) {
    await refused(`jobId is undefined; write ${name}(jobId`, () => (client[name] as (id: unknown) => unknown)(undefined));
    await refused(`jobId is NaN; write ${name}(jobId`, () => (client[name] as (id: unknown) => unknown)(NaN));
  }
  await refused("jobIds is a number; write awaitJobs([7, 8]", () => client.awaitJobs(any(7)));
  await refused("jobIds is empty: name a job at least", () => client.awaitJobs([]));
  await refused("jobIds[1] is NaN; write awaitJobs([7, 8]", () => client.awaitJobs([7, NaN]));
  await refused('command is undefined; write enqueueSql("', () => client.enqueueSql(any(undefined)));
  await refused("command has a NUL (\\0), which PostgreSQL cannot store; leave it out", () => client.enqueueSql("select '\0'"));
  await refused("batch is undefined; write sealBatch(batch)", () => client.sealBatch(any(undefined)));
  assert.equal(await client.cancel(any("4711")), "unknown");
});

test("a value of another kind is refused by the name of its option", async () => {
  const wrong: Record<string, Record<string, unknown[]>> = {
    enqueue: {
      "priority is": [5.5, NaN, true, "7"], "maxRetries is": ["many"], "runAt is": [1.9e12, new Date(NaN), {}], "groupName is": [["a"]],
      'timeout is': ["abc", "", "-5 s", "5 min ago", "5 parsecs"], "timeoutMs is": [-1], "trace is": ["00", []], "batch is": [1.5, "a"],
      "uniqueKey has a NUL": ["a\0"], "uniqueKey has half of a surrogate pair": ["a\ud800"], "rate is": [5],
    },
    enqueueSql: { "runAs is": [7, ["reporter"]], "priority is": ["7"] },
    worker: {
      "groups[0] is": [[1]], "connection is": [5, []], "logger is": [5, {}], "concurrency is": [0, 1.5, "3"], "untilEmpty is": ["no"],
      "name is": [5],
    },
    cancel: { "tree is": ["no", 0] },
    fork: { "fromStep is": [2] },
    graph: { "cost is": ["a"], "needs is": ["a"], "when is": ["never"] },
  };
  for (const [call, options] of Object.entries(wrong)) {
    for (const [words, values] of Object.entries(options)) {
      const name = /^\w+/.exec(words)?.[0] ?? "";
      for (const value of values) await refused(words, () => calls[call]?.({ [name]: value }));
    }
  }
  await refused("priority is 5.5; write a whole number, such as priority: 7", () => calls["enqueue"]?.({ priority: 5.5 }));
  await refused("maxRetries is 2147483648; write at most 2147483647", () => calls["enqueue"]?.({ maxRetries: 2 ** 31 }));
  await refused("timeoutMs is 1e+21; write at most timeoutMs: 315360000000", () => calls["enqueue"]?.({ timeoutMs: 1e21 }));
  await refused('runAt is a Date; write runAt: new Date("', () => calls["enqueue"]?.({ runAt: new Date("0000-12-31") }));
  await refused('runAt is an invalid Date; write runAt: new Date("', () => calls["enqueue"]?.({ runAt: new Date(NaN) }));
  await refused("tree is 0; write tree: true or false", () => calls["cancel"]?.({ tree: 0 }));
  for (const delay of ["abc", "-5 s"]) await refused(`delay is "${delay}"; write new RetryIn("90 s")`, () => new RetryIn(delay));
  await refused("the detail has the option closeRate; write new RetryIn(", () => new RetryIn("300 s", "429", { closeRate: true }));
  await refused('the decoder of "a" is an object; write a function', () => it.worker().task("a", any({ parser: 1 }), () => 1));
  for (const [options, words] of [
    [{ timeoutMs: 1e-9 }, "timeout: '30 s'"], [{ runAt: "foo+bar" }, 'HINT: Write a time such as new Date("'],
    [{ runAt: new Date(8.64e15) }, "before the year 200000"],
  ] as const) {
    await assert.rejects(client.enqueue("a", {}, options), (error: Error) => error.message.includes(words));
  }
  const runAt = new Date("+010000-01-01");
  const job = await client.enqueue("a", {}, { runAt });
  assert.deepEqual(await it.value("select extract(epoch from run_at)::float8 from trax.job where job_id = $1", job), runAt.getTime() / 1000);
  for (const timeout of ["1 month", "P1DT2H", "1-2", "@ 3 4:05:06", "1 decade -3 mons", "5"]) {
    await client.enqueue("a", {}, { timeout, uniqueKey: "u" });
  }
});

test("a value that JSON cannot represent or PostgreSQL cannot store is refused with its path", async () => {
  const around: Record<string, unknown> = {};
  around["self"] = around;
  const wrong: [unknown, string][] = [
    [{ a: new Set() }, "input.a is a Set, not JSON; write [...set]"],
    [[new Map()], "input[0] is a Map, not JSON; write Object.fromEntries(map)"],
    [new RangeError("far"), "input is a RangeError, not JSON; throw it, or write its message"],
    [{ "a b": [/x/] }, 'input["a b"][0] is a RegExp, not JSON; write its source'],
    [{ a: () => 1 }, "input.a is a function, not JSON; call it, or leave it out"],
    [{ a: Promise.resolve() }, "input.a is a Promise, not JSON; await it"],
    [new Date(NaN), "input is an invalid Date, not JSON; write a valid one, or null"],
    [{ a: 7n }, "input.a is a bigint, not JSON; write String(n)"],
    [{ a: Infinity }, "input.a is Infinity, not JSON; write a finite number, or null"],
    [around, "input.self is a part of itself; leave it out"],
    [{ a: ["a\0b"] }, "input.a[0] has a NUL (\\0), which PostgreSQL cannot store; leave it out"],
    [{ "a\0": 1 }, "input has a key with a NUL"],
    ["\ud800", "input has half of a surrogate pair, which PostgreSQL cannot store; leave it out"],
    [new URLSearchParams(), "input is a URLSearchParams, not JSON; write a text, a list or an object"],
  ];
  for (const [value, words] of wrong) {
    await refused(words, () => client.enqueue("a", value));
    await refused(words.replace("input", "inputs[1]"), () => client.enqueueMany("a", [1, value]));
    await refused(words.replace("input", "payload"), () => client.sendSignal(1, "s", value));
    await refused(words.replace("input", "output"), () => client.complete({ jobId: 1, token }, value));
  }
  class Mail { to = "ada"; }
  const twice = { n: 1 };
  const right = [new Date(0), new Mail(), { a: undefined, b: null }, [twice, twice], Object.create(null), Buffer.from("a"), new Uint8Array(2), "\\u0000"];
  for (const value of right) {
    const job = await client.enqueue("a", value);
    assert.deepEqual(await it.value("select input from trax.job where job_id = $1", job), JSON.parse(JSON.stringify(value)));
  }
});

test("a time without a unit is refused, and milliseconds are named", async () => {
  for (const [call, names] of Object.entries(times)) {
    for (const name of names) {
      const remedy = `write ${name}: "90 s" or ${name}Ms: 90000`;
      const given = (options: object): (() => unknown) => () => calls[call]?.(options);
      await refused(`${name} is a number; ${remedy}`, given({ [name]: 90 }));
      await refused(`${name} is an object; ${remedy}`, given({ [name]: { seconds: 90 } }));
      await refused(`${name}Ms is a text; ${remedy}`, given({ [`${name}Ms`]: "90 s" }));
      await refused(`${name}Ms is NaN; ${remedy}`, given({ [`${name}Ms`]: NaN }));
      await refused(`${name} and ${name}Ms are both given; ${remedy}`, given({ [name]: "90 s", [`${name}Ms`]: 90_000 }));
      for (const right of [{ [name]: "90 s" }, { [`${name}Ms`]: 90_000 }, { [name]: null, [`${name}Ms`]: undefined }]) {
        await calls[call]?.(call === "worker" ? { connection, ...right } : { uniqueKey: "u", ...right });
      }
    }
  }
  await refused('timeout is a number; write awaitJob(jobId, "90 s")', () => client.awaitJob(1, any(90)));
  await refused('timeout is a number; write awaitJobs(jobIds, "90 s")', () => client.awaitJobs([1], any(90)));
  await refused('delay is a number; write new RetryIn("90 s")', () => new RetryIn(any(90), "later"));
  await refused('delay is a number; write new Snooze("90 s")', () => new Snooze(any(90)));
  for (const Delay of [Snooze, RetryIn]) {
    await refused('delay is 3651 days; write at most "3650 days"', () => new Delay("3651 days"));
    assert.equal(new Delay("3650 days").delay, "3650 days");
  }
  const limits = `3650 days;3651 days;10 years;10 years 51 days;11 years;1 decade 2 mons;1 century;P5E3D;P3E3D;520 weeks;522 weeks;P20Y;P10Y
    P121M;P122M;P3650D;P3651DT1H;PT87600H;PT87601H;PT99M;P0011-00-00;P0009-11-30T10:00:00;9-11;11-0;@ 1 mil;87601:00:00;1 day 87600:00
    12 years -30 mons;12 years;3651 days -50 h;315360001;315360000`;
  for (const delay of limits.split(/;|\n */)) {
    const isLonger = await it.value("select $1::interval > interval '3650 days'", delay);
    if (isLonger) await refused(`delay is ${delay}; write at most "3650 days"`, () => new RetryIn(delay));
    else assert.equal(new Snooze(delay).delay, delay);
  }
  await refused('lease is 500 ms; write at least lease: "1000 ms"', () => it.worker({ leaseMs: 500 }));
  await refused('pollInterval is 0; write at least pollInterval: "1 ms" or pollIntervalMs: 1', () => it.worker({ pollInterval: "0", pollIntervalMs: any(null) }));
  await refused("pollInterval is 0.5 ms; write at least", () => it.worker({ pollIntervalMs: 0.5 }));
  await refused('grace is "1 month"; write a number with its unit', () => it.worker({ grace: "1 month" }));
  await refused('graceMs is -5; write grace: "90 s" or graceMs: 90000', () => it.worker({ graceMs: -5 }));
});

test("a time without a zone is refused", async () => {
  const late = "2030-01-01";
  const begins = ["", " 09:00", "T09:00:00.5", " 09:00 PM", " BC"].map((end) => late + end);
  for (const wrong of [...begins, "20300101T090000", "01-Jan-2030", "tomorrow", ""]) {
    const words = 'runAt has no time zone: write new Date(...) or "2030-01-01T09:00:00Z"';
    for (const call of ["enqueue", "enqueueSql", "enqueueMany", "graph"].map((name) => calls[name])) await refused(words, () => call?.({ runAt: wrong }));
    await refused(words, () => client.changeJob(1, { runAt: wrong }));
  }
  const zones = "Z z +02 -0330 +05:30 UTC CEST Europe/Berlin America/Port-au-Prince Etc/GMT+2 America/Argentina/Buenos_Aires".split(" ");
  const ends = zones.flatMap((zone) => [`T09:00:00${zone}`, ` 09:00 ${zone}`]);
  for (const right of [...ends.map((end) => late + end), "20300101T090000Z", "now"]) {
    await client.enqueue("a", {}, { runAt: right });
  }
});

test("the worker reads a time as PostgreSQL does", async () => {
  const units = "us usecs microseconds ms msecs milliseconds s sec secs seconds m min mins minutes h hr hrs hours d days w weeks";
  const texts = ["90", "1.5", "00:01:30", "1:30", "100:00:00.25", "1 h 30 min", "1h30m", "2 Days 3 HOURS", " 5 min ", "0"];
  for (const text of [...texts, ...units.split(" ").flatMap((unit) => [`3 ${unit}`, `1.5${unit}`])]) {
    const read = await it.value("select (extract(epoch from $1::interval) * 1000)::float8", text);
    // PostgreSQL rounds to microseconds.
    assert.ok(Math.abs((millisecondsOf(text) ?? NaN) - Number(read)) <= 0.001, `${text}: ${millisecondsOf(text)}, ${read}`);
  }
  for (const text of ["", "s", "5 parsecs", "1 month", "1 s 2 s", "-1 s", "1 s ago", "1 ds", "1 constructor", "1e3 s", "soon"]) {
    assert.equal(millisecondsOf(text), undefined, text);
  }
});
