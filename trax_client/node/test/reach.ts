// Queues jobs at DATABASE_URL and runs them: behind a pooler, or over TLS.

import { hosts } from "../src/address.js";
import { Connection } from "../src/connection.js";
import { Client, Worker } from "../src/index.js";

// Connects as the worker does; node-postgres alone interprets the TLS parameters differently.
const connection = await Connection.open({
  hosts: hosts(undefined), applicationName: "reach", connectLimit: 10_000, limit: 10_000, channel: "reach",
  onNotification: () => undefined, onEnd: () => undefined,
});
const query = async (text: string, values: unknown[]) => ({ rows: await connection.query({ text, values }) });
const inputs = Array.from({ length: 20 }, (_, n) => ({ n }));
await new Client({ query }).enqueueMany("node", inputs);
await connection.close();

await new Worker({ untilEmpty: true, lease: "6 s" })
  .task<{ n: number }>("node", async (job, ctx) => {
    ctx.progress(0.5);
    await ctx.sleep("nap", "0 s");
    return ctx.step("number", () => job.n);
  })
  .run();
