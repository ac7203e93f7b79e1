import assert from "node:assert/strict";
import { test } from "node:test";

import { database, during } from "./database.js";

const it = await database();

test("a handler that blocks the event loop for two leases keeps its job", async () => {
  const job = await it.client.enqueue("blocks", {}, { maxRetries: 0 });
  const worker = it.worker({ lease: 2000 }).task("blocks", () => {
    const end = Date.now() + 4500;
    while (Date.now() < end);
    return "kept";
  });
  await during(worker, async () => assert.equal((await it.client.awaitJob(job)).output, "kept"));
  assert.equal(await it.value("select string_agg(state, ' ') from trax.run where job_id = $1", job), "completed");
});
