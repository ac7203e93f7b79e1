// The address of the database: as in libpq (with several hosts), options of `pg`, or the environment.

import pg from "pg";

import { UsageError } from "./errors.js";
import { nearest, noOption } from "./options.js";
import { type Given, completed, taken } from "./parameter.js";
import { encryptions } from "./tls.js";

/** How to reach the server, in the form that `pg` takes. */
export interface ConnectionOptions {
  host?: string;
  port?: number;
  user?: string;
  /** A function is called for each new connection, for passwords that expire. */
  password?: string | (() => string | Promise<string>);
  database?: string;
  /** False, true, or the options of Node's `tls.connect`. By default libpq's variables such as PGSSLMODE apply. */
  ssl?: boolean | object;
  application_name?: string;
  options?: string;
}

/** `postgresql://user@host1,host2:5432/database?sslmode=verify-full`, or options. */
export type Address = string | ConnectionOptions;

/** A host: the configuration for `pg`, and the parameters for TLS if they are not part of it. */
export interface HostConfig {
  config: ConnectionOptions & { connectionString?: string };
  tls?: Given;
  /** The name or IP address that the certificate must match. */
  name?: string;
  /** Neither the program nor the environment names a host: the driver takes its own default. */
  isDefault?: boolean;
}

const url = /^(postgres(?:ql)?:\/\/(?:[^/?#]*@)?)([^/?#@]*)(.*)$/s;

/** Returns a configuration for each host of an address, by default that of DATABASE_URL, or PGHOST and the related
 * variables.
 * @throws UsageError for an invalid address; its text does not contain the password. */
export function hosts(address: Address | undefined, env: Record<string, string | undefined> = process.env): HostConfig[] {
  const given = address ?? (env["DATABASE_URL"] || {});
  const all = typeof given === "string" ? ofText(given, env) : ofOptions(given, env);
  for (const one of all) {
    try {
      // Parses the address without connecting.
      const { host } = new pg.Client({ ...one.config, ssl: false });
      one.name = host;
      one.isDefault = (address ?? (env["DATABASE_URL"] || env["PGHOST"])) === undefined;
      // As in libpq, TLS is not used over a socket.
      if (host.startsWith("/") && one.tls !== undefined) one.tls = { sslmode: "disable" };
      if (one.tls !== undefined) encryptions(one.tls);
    } catch (error) {
      if (error instanceof UsageError) throw error;
      throw unreadable(error instanceof Error ? error.message : String(error));
    }
  }
  return all;
}

function ofText(text: string, env: Record<string, string | undefined>): HostConfig[] {
  if (/\0|%00/.test(text)) throw unreadable("it has a NUL, \\0 or %00");
  if (text.startsWith("/") || text.startsWith("socket:")) return [{ config: { connectionString: text, ssl: false } }];
  const [, before, authority, after] = url.exec(text) ?? [];
  if (before === undefined || authority === undefined || after === undefined) {
    throw unreadable("it does not begin with postgresql://");
  }
  const { rest, given } = taken(after, env);
  return authority.split(",").map((host) => ({ config: { connectionString: before + host + rest }, tls: { ...given } }));
}

/** The names of all options of `ConnectionOptions`, and similar names that `pg` knows. */
const optionNames = Object.keys({
  host: 0, port: 0, user: 0, password: 0, database: 0, ssl: 0, application_name: 0, options: 0,
} satisfies Record<keyof ConnectionOptions, 0>);
const similar = ["fallback_application_name", "sslNegotiation", "sslnegotiation"];

function ofOptions(options: ConnectionOptions, env: Record<string, string | undefined>): HostConfig[] {
  for (const name of Object.keys(options)) {
    // Other names may be options of `pg`, which gets them.
    const isKnown = optionNames.includes(name) || similar.includes(name);
    if (!isKnown && nearest(name, optionNames) !== undefined) throw new UsageError(noOption(name, optionNames));
  }
  const { connectionString, ...rest } = options as HostConfig["config"];
  if (typeof connectionString === "string" && options.ssl === undefined) {
    return ofText(connectionString, env).map((one) => ({ ...one, config: { ...rest, ...one.config } }));
  }
  const tls = (): Pick<HostConfig, "tls"> => (options.ssl === undefined ? { tls: completed({}, env) } : {});
  const names = (options.host ?? env["PGHOST"] ?? "").split(",");
  if (names.length === 1) return [{ config: options, ...tls() }];
  const ports = String(options.port ?? env["PGPORT"] ?? "5432").split(",");
  return names.map((host, at) => ({ config: { ...options, host, port: Number(ports[at] ?? ports[0]) }, ...tls() }));
}

function unreadable(why: string): UsageError {
  return new UsageError(
    `the address of the database cannot be read: ${why}; give one such as ` +
      "postgresql://user@host:5432/database, or set PGHOST, PGPORT, PGUSER and PGDATABASE",
  );
}
