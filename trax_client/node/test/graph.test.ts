import assert from "node:assert/strict";
import { test } from "node:test";

import { Graph, InvalidArgumentError, UsageError, WrongStateError } from "../src/index.js";
import { database, eventually } from "./database.js";

const { client, db } = await database();

/** Completes the waiting jobs of a task. */
async function complete(task: string, output: unknown): Promise<void> {
  await db.query(
    "select trax.complete(job_id, token, $1::jsonb) from trax.claim_next(worker => 'w', tasks => array[$2])",
    [JSON.stringify(output), task],
  );
}

/** Waits until a job of a graph waits for no other. */
async function ready(jobId: number): Promise<void> {
  await eventually(`job ${jobId} is ready`, async () =>
    (await client.readGraph(jobId)).some((member) => member.jobId === jobId && member.waitsFor === undefined),
  );
}

test("the rate of a job of a graph arrives", async () => {
  await db.query("select trax.configure_rate('api', 5, '1 min')");
  const graph = new Graph();
  graph.add("a", "graph.rated", {}, { rate: "api", rateKey: "r", cost: 2 });
  const jobId = (await client.enqueueGraph(graph)).get("a");
  const { rows } = await db.query("select rate, rate_key, cost from trax.work_queue where job_id = $1", [jobId]);
  assert.deepEqual(rows, [{ rate: "api", rate_key: "r", cost: 2 }]);
});

test("a graph runs in the order of its needs", async () => {
  const graph = new Graph({ uniqueKey: "graph.night" });
  const load = graph.add("load", "graph.load", { n: 1 }, { timeoutMs: 60_000, trace: { t: "x" }, maxRetries: 2 });
  const sum = graph.add("sum", "graph.sum", {}, { needs: [load] });
  graph.add("alarm", "graph.alarm", {}, { needs: [load], when: "failed" });
  const ids = await client.enqueueGraph(graph);
  assert.deepEqual([...ids.keys()], ["load", "sum", "alarm"]);
  assert.deepEqual(await client.enqueueGraph(graph), ids, "the unique key is alive");
  const [loadId, sumId] = [ids.get(load.name) ?? 0, ids.get(sum.name) ?? 0];
  const row = (await db.query("select input, timeout::text, trace, max_retries from trax.work_queue where job_id = $1", [loadId])).rows[0];
  assert.deepEqual(row, { input: { n: 1 }, timeout: "00:01:00", trace: { t: "x" }, max_retries: 2 });
  await complete("graph.load", { rows: 7 });
  await ready(sumId);
  assert.deepEqual(await client.readNeeds(sumId), [
    { name: "load", jobId: loadId, state: "completed", output: { rows: 7 }, error: undefined },
  ]);
  const states = (await client.readGraph(loadId)).map(({ name, state, needs }) => [name, state, needs]);
  assert.deepEqual(states, [["load", "completed", []], ["sum", "queued", ["load"]], ["alarm", "cancelled", ["load"]]]);
});

test("a batch waits for its jobs", async () => {
  const batch = await client.openBatch("graph.report");
  const job = await client.enqueue("graph.mail", {}, { batch });
  assert.equal(await client.sealBatch(batch), 1);
  await complete("graph.mail", null);
  await ready(batch);
  assert.deepEqual((await client.readNeeds(batch)).map(({ jobId }) => jobId), [job]);
  await assert.rejects(client.enqueue("graph.mail", {}, { batch }), WrongStateError);
});

test("wrong use is refused", async () => {
  const graph = new Graph({ onFailure: "wait" });
  graph.addSql("a", "select 1");
  assert.throws(() => graph.add("b", "t", {}, { needs: ["a"] as never }), UsageError);
  assert.throws(() => graph.add("b", "t", {}, { when: "never" as never }), /write one of: completed, ended, failed/);
  assert.throws(() => graph.add("b", "t", {}, { when: "failed" }), /write \{ needs: \[load\] \} too/);
  await assert.rejects(client.enqueueGraph(new Graph()), /the graph has no jobs; write graph.add\("load", "etl.load"\)/);
  await assert.rejects(client.enqueueGraph({} as Graph), UsageError);
  graph.add("a", "t");
  await assert.rejects(client.enqueueGraph(graph), InvalidArgumentError);
});
