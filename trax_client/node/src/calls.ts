// The calls of handlers in the middle of an attempt: steps, waits and children.
//
// They run on a few connections of their own, opened when first needed, so that a call that waits for a lock delays
// neither claims nor heartbeats. Each call may be repeated: the server answers with the recorded result. A call is
// therefore sent again, until the lease is lost, when the connection breaks or the server has no time, lock or room for
// it.

import { setTimeout as pause } from "node:timers/promises";

import type { HostConfig } from "./address.js";
import { Backoff, Connection, type Row } from "./connection.js";
import { blame, translated } from "./errors.js";
import { Stopped } from "./outcome.js";
import type { Statement } from "./sql.js";

/** The maximum number of connections. */
const CONNECTIONS_AT_MOST = 4;

/** The rows of a call, and whether it was sent before without an answer. */
export interface Called {
  rows: Row[];
  wasUnanswered: boolean;
}

export class Calls {
  readonly #hosts: HostConfig[];
  readonly #applicationName: string;
  readonly #limit: number;
  readonly #lease: number;
  #idle: Connection[] = [];
  #used = 0;
  readonly #waiting: (() => void)[] = [];
  #isOver = false;

  constructor({ hosts, worker, lease }: { hosts: HostConfig[]; worker: string; lease: number }) {
    this.#hosts = hosts;
    this.#applicationName = `trax worker ${worker}`;
    this.#lease = lease;
    this.#limit = Math.min(Math.max(lease / 2, 2000), 30_000);
  }

  /** The time limit of a lock, in milliseconds. */
  get lockTimeout(): number {
    return this.#limit / 5;
  }

  /** Returns the answer to a statement.
   * @throws Stopped if the lease is lost meanwhile, or the server's refusal. */
  async run(statement: Statement, isLost: () => boolean): Promise<Called> {
    const backoff = new Backoff();
    let wasUnanswered = false;
    for (;;) {
      if (isLost() || this.#isOver) throw new Stopped("lease lost");
      let connection: Connection | undefined;
      await this.#place();
      try {
        connection = await this.#open();
        return { rows: await connection.query(statement), wasUnanswered };
      } catch (error) {
        const ours = translated(error);
        const atFault = connection === undefined ? "connection" : blame(ours);
        if (atFault === "call") throw ours;
        wasUnanswered ||= connection !== undefined && atFault === "connection";
      } finally {
        this.#leave(connection);
      }
      await pause(backoff.next(), undefined, { ref: false });
    }
  }

  async close(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#idle.splice(0).map((connection) => connection.close()));
  }

  async #place(): Promise<void> {
    if (this.#used < CONNECTIONS_AT_MOST) this.#used += 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  async #open(): Promise<Connection> {
    for (let idle = this.#idle.pop(); idle !== undefined; idle = this.#idle.pop()) {
      if (!idle.isClosed) return idle;
    }
    return Connection.open({
      hosts: this.#hosts,
      applicationName: this.#applicationName,
      connectLimit: Math.min(5000, Math.max(this.#lease / 6, 1000)),
      limit: this.#limit,
    });
  }

  #leave(connection: Connection | undefined): void {
    if (connection !== undefined && !connection.isClosed) {
      if (this.#isOver) void connection.close();
      else this.#idle.push(connection);
    }
    const next = this.#waiting.shift();
    if (next === undefined) this.#used -= 1;
    else next();
  }
}
