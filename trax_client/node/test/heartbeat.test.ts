import assert from "node:assert/strict";
import { test } from "node:test";
import pg from "pg";

import { database, during, eventually } from "./database.js";

const it = await database();

test("a handler that blocks the event loop for two leases keeps its job", async () => {
  const job = await it.client.enqueue("blocks", {}, { maxRetries: 0 });
  let begin = (): void => undefined;
  const begins = new Promise<void>((resolve) => (begin = resolve));
  const worker = it.worker({ lease: "4 s" }).task("blocks", async () => {
    await begins;
    const end = Date.now() + 8500;
    while (Date.now() < end);
    return "kept";
  });
  await during(worker, async () => {
    // The thread of the heartbeat has started.
    const extended = "select count(*)::int from trax.lease where job_id = $1 and extended_at is not null";
    await eventually("a heartbeat", async () => (await it.value(extended, job)) === 1);
    begin();
    const ended = await it.client.awaitJob(job);
    assert.equal(ended.output, "kept", JSON.stringify(ended));
  });
  assert.equal(await it.value("select string_agg(state, ' ') from trax.run where job_id = $1", job), "completed");
});

test("what a worker is is reported until it is taken", async () => {
  await it.client.enqueue("another");
  const holder = new pg.Client(it.url);
  await holder.connect();
  await holder.query("begin");
  await holder.query("select trax.claim_next(worker => 'w', tasks => '{another}')");
  const answered = `select count(*)::int from pg_stat_activity
    where datname = current_database() and query like '%report_worker%' and state = 'idle' and pid <> pg_backend_pid()`;
  await during(it.worker({ name: "w", lease: "3 s" }).task("t", () => undefined), async () => {
    await eventually("a report that was not taken", async () => (await it.value(answered)) === 1);
    await holder.query("commit");
    await holder.end();
    const tasks = "select info -> 'tasks' ->> 0 from trax.worker where name = 'w'";
    await eventually("its tasks", async () => (await it.value(tasks)) === "t");
  });
});
