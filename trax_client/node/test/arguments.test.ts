// Mistakes that a program in plain JavaScript can make in the arguments of each call.

import assert from "node:assert/strict";
import { test } from "node:test";

import { millisecondsOf } from "../src/duration.js";
import { Client, RetryIn, Snooze, UsageError, Worker } from "../src/index.js";
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
  enqueueMany: (options) => client.enqueueMany("a", [1], any(options)),
  worker: (options) => new Worker(any(options)),
};
const times: Record<string, string[]> = {
  enqueue: ["timeout", "uniqueFor", "retryDelay"],
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
  await refused("inputs is an object; write enqueueMany(", () => client.enqueueMany("a", any(new Set())));
  await refused('task is a list; write enqueue("', () => client.enqueue(any(["a", "b"])));
  await refused("task has a NUL (\\0), which PostgreSQL cannot store; leave it out", () => client.enqueue("a\0b"));
  await refused("task() takes a name", () => it.worker().task(any(["a", "b"]), () => 1));
  await refused("task() takes a name", () => it.worker().task("", () => 1));
  await refused('the task " mail" begins or ends with a space; write "mail"', () => it.worker().task(" mail", () => 1));
});

test("an option that does not exist is refused by name, with the nearest", async () => {
  for (const [call, pairs] of Object.entries({
    enqueue: { prio: "priority", group_name: "groupName", Timeout: "timeout", retries: "maxRetries", run_at: "runAt", uniqueKye: "uniqueKey" },
    enqueueMany: { prio: "priority", timeoutMS: "timeoutMs", retryDelya: "retryDelay" },
    worker: { group: "groups", concurency: "concurrency", lesae: "lease", poll_interval_ms: "pollIntervalMs", until_empty: "untilEmpty" },
  })) {
    for (const [mistyped, meant] of Object.entries(pairs)) {
      const words = `there is no option "${mistyped}"; did you mean "${meant}"?`;
      await refused(words, () => calls[call]?.({ [mistyped]: 1 }));
    }
    await refused('there is no option "xyzzy"; the options are ', () => calls[call]?.({ xyzzy: undefined }));
    await refused("the options are a text; write ", () => calls[call]?.("mail"));
    await refused("the options are a list; write ", () => calls[call]?.(["mail"]));
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
  await refused('delay is a number; write new RetryIn("90 s")', () => new RetryIn(any(90), "later"));
  await refused('delay is a number; write new Snooze("90 s")', () => new Snooze(any(90)));
  for (const Delay of [Snooze, RetryIn]) {
    await refused('delay is 3651 days; write at most "3650 days"', () => new Delay("3651 days"));
    assert.equal(new Delay("3650 days").delay, "3650 days");
  }
  await refused('lease is 500 ms; write at least lease: "1000 ms"', () => it.worker({ leaseMs: 500 }));
  await refused('grace is "soon"; write a number with its unit', () => it.worker({ grace: "soon" }));
  await refused('grace is "-5 ms"; write a number with its unit', () => it.worker({ graceMs: -5 }));
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
