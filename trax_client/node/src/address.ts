// Where the database is: an address as libpq has it (several hosts too), options of `pg`, or the environment.

import pg from "pg";

import { UsageError } from "./errors.js";

/** How to reach the server, as `pg` takes it. */
export interface ConnectionOptions {
  host?: string;
  port?: number;
  user?: string;
  /** A function is asked at each new connection, for passwords that expire. */
  password?: string | (() => string | Promise<string>);
  database?: string;
  /** True, or the options of Node's `tls.connect`. */
  ssl?: boolean | object;
  application_name?: string;
  options?: string;
}

/** `postgresql://user@host1,host2:5432/database?sslmode=verify-full`, or options. */
export type Address = string | ConnectionOptions;

/** What `pg` gets for one host. */
export type HostConfig = ConnectionOptions & { connectionString?: string };

const url = /^(postgres(?:ql)?:\/\/(?:[^/?#]*@)?)([^/?#@]*)(.*)$/s;

/** Returns a configuration for each host of an address; without one, of DATABASE_URL or PGHOST and its kin.
 * @throws UsageError for an address that is none; its text has no password. */
export function hosts(address: Address | undefined, env: Record<string, string | undefined> = process.env): HostConfig[] {
  const given = address ?? (env["DATABASE_URL"] || {});
  const configs = typeof given === "string" ? ofText(given) : ofOptions(given, env);
  for (const config of configs) {
    try {
      // Reads the address and connects to nothing.
      new pg.Client(config);
    } catch (error) {
      throw unreadable(error instanceof Error ? error.message : String(error));
    }
  }
  return configs;
}

function ofText(text: string): HostConfig[] {
  if (text.startsWith("/") || text.startsWith("socket:")) return [{ connectionString: text }];
  const [, before, authority, after] = url.exec(text) ?? [];
  if (before === undefined || authority === undefined || after === undefined) {
    throw unreadable("it does not begin with postgresql://");
  }
  return authority.split(",").map((host) => ({ connectionString: before + host + after }));
}

function ofOptions(options: ConnectionOptions, env: Record<string, string | undefined>): HostConfig[] {
  const names = (options.host ?? env["PGHOST"] ?? "").split(",");
  if (names.length === 1) return [options];
  const ports = String(options.port ?? env["PGPORT"] ?? "5432").split(",");
  return names.map((host, at) => ({ ...options, host, port: Number(ports[at] ?? ports[0]) }));
}

function unreadable(why: string): UsageError {
  return new UsageError(
    `the address of the database cannot be read: ${why}; give one such as ` +
      "postgresql://user@host:5432/database, or set PGHOST, PGPORT, PGUSER and PGDATABASE",
  );
}
