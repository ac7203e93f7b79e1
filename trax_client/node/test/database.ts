// A database for a test on the server that DATABASE_URL names, and workers in it.

import { after } from "node:test";
import { randomBytes } from "node:crypto";
import pg from "pg";

import { Client, type Logger, Worker, type WorkerOptions } from "../src/index.js";

export interface Database {
  url: string;
  db: pg.Client;
  client: Client;
  /** Returns the first column of the first row. */
  value(sql: string, ...values: unknown[]): Promise<unknown>;
  worker(options?: WorkerOptions): Worker;
  /** The workers' log messages. */
  said: string[];
}

const server = process.env["DATABASE_URL"];
if (server === undefined) throw new Error("DATABASE_URL names a server on which tests may make databases; scripts/node sets it");

/** Makes a database, with the extension unless `empty`, of this `version` if there is one; it is dropped after the tests of the file. */
export async function database({ empty = false, version = "" } = {}): Promise<Database> {
  const name = `node_${randomBytes(5).toString("hex")}`;
  const admin = new pg.Client(server);
  await admin.connect();
  await admin.query(`create database ${name}`);
  const url = new URL(server as string);
  url.pathname = name;
  const db = new pg.Client(url.href);
  db.on("error", () => undefined);
  await db.connect();
  if (!empty) await db.query(`create extension trax${version && ` version '${version}'`}`);
  after(async () => {
    await db.end();
    await admin.query(`drop database ${name} with (force)`);
    await admin.end();
  });
  const said: string[] = [];
  const say = (message: string): void => void said.push(message);
  const logger: Logger = { info: say, warn: say, error: say };
  return {
    url: url.href,
    db,
    client: new Client(db),
    value: async (sql, ...values) => Object.values(((await db.query(sql, values)).rows[0] as Record<string, unknown>) ?? {})[0],
    worker: (options = {}) => new Worker({ connection: url.href, signals: false, pollIntervalMs: 50, logger, ...options }),
    said,
  };
}

/** Waits until a condition holds. On timeout, reports the last value seen. */
export async function eventually(what: string, is: () => unknown, limit = 20_000): Promise<void> {
  const end = Date.now() + limit;
  for (;;) {
    const seen = await is();
    if (seen === true) return;
    if (Date.now() > end) throw new Error(`${what} within ${limit} ms; seen: ${JSON.stringify(seen)}`);
    await new Promise((wake) => setTimeout(wake, 20));
  }
}

/** Runs a worker until the test ends. */
export async function during(worker: Worker, test: () => Promise<void>): Promise<void> {
  const running = worker.run();
  try {
    await Promise.race([test(), running.then(() => Promise.reject(new Error("the worker ended")))]);
  } finally {
    worker.release();
    await running;
  }
}
