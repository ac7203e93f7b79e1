// Opens connections, limits calls, and delays retries.

import { Socket } from "node:net";
import pg from "pg";

import type { HostConfig } from "./address.js";
import { DisconnectedError, ServerError, blame, ofOnlyHost, translated } from "./errors.js";
import type { Statement } from "./sql.js";
import { encryptions } from "./tls.js";

/** A row of a result. The caller knows the types of the columns that it names. */
export type Row = Record<string, any>;

/** Sends a statement and returns its rows. */
export type Read = (statement: Statement) => Promise<Row[]>;

/** The parameters for opening a connection. */
export interface Opening {
  hosts: HostConfig[];
  applicationName: string;
  /** The time limits for connecting and for every call, in milliseconds. */
  connectLimit: number;
  limit: number;
  /** The channel to listen on, if any, and the callback for its notifications. */
  channel?: string;
  onNotification?: (payload: string) => void;
  /** Called when the connection is lost, other than by `close`. */
  onEnd?: () => void;
}

/** A connection of a worker. Its calls run one after another, each with a time limit. */
export class Connection {
  #client: pg.Client;
  #socket: Socket;
  #limit: number;
  #closed = false;
  #closedByUs = false;
  /** Whether the server announced the end of the session, other than in the answer to a call. */
  wasEnded = false;

  private constructor(client: pg.Client, socket: Socket, limit: number) {
    this.#client = client;
    this.#socket = socket;
    this.#limit = limit;
  }

  /** Connects to the first host that answers and accepts writes. All hosts are tried concurrently. */
  static async open(opening: Opening): Promise<Connection> {
    const tries = opening.hosts.map((host) => Connection.#openAt(host, opening));
    try {
      const first = await Promise.any(tries);
      for (const other of tries) other.then((it) => it !== first && it.destroy()).catch(() => undefined);
      await first.#listen(opening);
      return first;
    } catch (error) {
      const errors = (error instanceof AggregateError ? (error.errors as unknown[]) : [error]).map((one) => translated(one));
      if (errors[0] !== undefined && errors.length === 1) throw ofOnlyHost(errors[0]);
      // A server's error is more informative than an unreachable host.
      throw errors.find((one) => blame(one) !== "connection") ?? errors[0] ?? new DisconnectedError("there is no host");
    }
  }

  /** Connects to a host, with and without TLS as its address allows. */
  static async #openAt({ config, tls, name }: HostConfig, opening: Opening): Promise<Connection> {
    if (tls === undefined) return Connection.#try(config, opening);
    // Before 8.23.1 the driver verifies the certificate for "localhost" if the host is an IP address.
    const [first = false, second] = encryptions(tls).map((ssl) => ssl && { ...ssl, host: name });
    try {
      return await Connection.#try({ ...config, ssl: first }, opening);
    } catch (error) {
      if (second === undefined || !mayDoOtherwise(error)) throw error;
      return Connection.#try({ ...config, ssl: second }, opening);
    }
  }

  static async #try(config: HostConfig["config"], { applicationName, connectLimit, limit }: Opening): Promise<Connection> {
    const socket = new Socket();
    const client = new pg.Client({
      application_name: applicationName,
      keepAlive: true,
      keepAliveInitialDelayMillis: 5000,
      ...(config as pg.ClientConfig),
      // A socket of this class, so that it can be closed in any state of the driver.
      stream: () => socket,
    });
    const connection = new Connection(client, socket, limit);
    client.on("error", (error) => {
      connection.wasEnded ||= "severity" in error;
      connection.#closed = true;
    });
    client.on("notice", (notice) => {
      connection.wasEnded ||= notice.code?.startsWith("57P") ?? false;
    });
    try {
      await within(client.connect(), connectLimit);
      const [row] = await connection.query({
        text: "select pg_catalog.pg_is_in_recovery() or pg_catalog.current_setting('transaction_read_only') = 'on' as refuses",
        values: [],
      });
      if (row?.["refuses"]) throw new DisconnectedError("the server is a standby or read-only: a worker needs the primary");
      return connection;
    } catch (error) {
      connection.destroy();
      throw translated(error);
    }
  }

  async #listen({ channel, onNotification, onEnd }: Opening): Promise<void> {
    // A pooler may pass on notifications of other clients' channels.
    this.#client.on("notification", (heard) => heard.channel === channel && onNotification?.(heard.payload ?? ""));
    this.#client.on("end", () => {
      this.#closed = true;
      if (!this.#closedByUs) onEnd?.();
    });
    if (channel === undefined) return;
    try {
      await this.query({ text: `listen ${channel}`, values: [] });
    } catch (error) {
      // If LISTEN is refused, other calls may still work; they find new work later.
      if (this.#closed) throw error;
    }
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  /** Returns the rows of a result. After a connection error the connection is closed. */
  async query({ text, values }: Statement): Promise<Row[]> {
    try {
      return (await within(this.#client.query<Row>(text, values), this.#limit)).rows;
    } catch (error) {
      const ours = translated(error, text);
      if (blame(ours) === "connection") this.destroy();
      throw ours;
    }
  }

  /** Closes the connection, with a message to the server if that takes at most a second. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = this.#closedByUs = true;
    await within(this.#client.end(), 1000).catch(() => undefined);
    this.#socket.destroy();
  }

  destroy(): void {
    this.#closed = this.#closedByUs = true;
    this.#socket.destroy();
  }
}

/** Returns whether a server that refused a connection with TLS may accept one without, or the reverse. */
function mayDoOtherwise(error: unknown): boolean {
  if (!(error instanceof ServerError)) return false;
  if (error.sqlstate !== undefined) return error.sqlstate === "28000";
  // The server answered: it has no TLS, or its certificate is not accepted.
  const cause = error.cause as NodeJS.ErrnoException | undefined;
  return cause !== undefined && cause.syscall === undefined;
}

/** How long reading an answer that has arrived may take. */
const READ_TIME = 100;

/** Returns the result of a call if it arrives in time. */
async function within<T>(call: Promise<T>, limit: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const give = (): void => reject(new DisconnectedError(`no answer within ${limit / 1000} s`));
    timer = setTimeout(() => {
      // A handler may have blocked the event loop all this time, so read any answer that has arrived.
      timer = setTimeout(give, READ_TIME);
    }, limit);
  });
  try {
    return await Promise.race([call, late]);
  } finally {
    clearTimeout(timer);
    // A later failure of the call is ignored.
    call.catch(() => undefined);
  }
}

/** Exponential backoff with full jitter. The cap is also the time within which a recovered server is found. */
export class Backoff {
  #tries = 0;
  readonly #cap: number;

  constructor(cap = 1000) {
    this.#cap = Math.min(cap, 1000);
  }

  next(): number {
    const ceiling = Math.min(100 * 2 ** Math.min(this.#tries, 16), this.#cap);
    this.#tries += 1;
    return ceiling * Math.random();
  }

  reset(): void {
    this.#tries = 0;
  }
}
