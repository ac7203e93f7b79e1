// Queues jobs at DATABASE_URL and runs them: behind a pooler, over TLS.

import pg from "pg";

import { Client, Worker } from "../src/index.js";

const db = new pg.Client(process.env["DATABASE_URL"]);
await db.connect();
const inputs = Array.from({ length: 20 }, (_, n) => ({ n }));
await new Client(db).enqueueMany("node", inputs);
await db.end();

await new Worker({ untilEmpty: true, lease: 6000 })
  .task<{ n: number }>("node", (job, ctx) => {
    ctx.progress(0.5);
    return job.n;
  })
  .run();
