// TLS as in libpq: the parameters of an address, their environment variables and their defaults. A setting that the
// driver cannot satisfy is refused, never ignored.

import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import type { ConnectionOptions, SecureVersion } from "node:tls";

import { UsageError } from "./errors.js";

const modes = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] as const;
type Mode = (typeof modes)[number];
const versions = ["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"] as const;

interface Parameter {
  variable?: string;
  /** The allowed values, if the parameter does not name a file. */
  values?: readonly string[];
  /** The allowed values that the driver supports. */
  possible?: readonly string[];
}

const parameters: Record<string, Parameter> = {
  sslmode: { variable: "PGSSLMODE", values: modes },
  sslrootcert: { variable: "PGSSLROOTCERT" },
  sslcert: { variable: "PGSSLCERT" },
  sslkey: { variable: "PGSSLKEY" },
  sslpassword: {},
  sslcrl: { variable: "PGSSLCRL" },
  sslcrldir: { variable: "PGSSLCRLDIR", possible: [] },
  sslsni: { variable: "PGSSLSNI", values: ["0", "1"], possible: ["1"] },
  ssl_min_protocol_version: { variable: "PGSSLMINPROTOCOLVERSION", values: versions },
  ssl_max_protocol_version: { variable: "PGSSLMAXPROTOCOLVERSION", values: versions },
  channel_binding: {
    variable: "PGCHANNELBINDING", values: ["disable", "prefer", "require"], possible: ["disable", "prefer"],
  },
  sslnegotiation: { variable: "PGSSLNEGOTIATION", values: ["postgres", "direct"], possible: ["postgres"] },
  sslcertmode: { variable: "PGSSLCERTMODE", values: ["disable", "allow", "require"], possible: ["allow"] },
  gssencmode: { variable: "PGGSSENCMODE", values: ["disable", "prefer", "require"], possible: ["disable", "prefer"] },
  requirepeer: { variable: "PGREQUIREPEER", possible: [] },
  require_auth: { variable: "PGREQUIREAUTH", possible: [] },
};

/** The TLS parameters that an address sets, by name; plain data that can be passed to a thread. */
export type Tls = Record<string, string>;

/** Removes the TLS parameters from an address, and completes them from the environment. */
export function taken(text: string, env: Record<string, string | undefined>): { rest: string; tls: Tls } {
  const [, before = text, query = ""] = /^([^?]*)\?(.*)$/s.exec(text) ?? [];
  const given: Tls = {};
  let old: Mode | undefined;
  const others = query.split("&").filter((part) => {
    const [name = "", value = "", more] = part.split("=").map(decoded);
    // The spelling of the JDBC driver.
    const isOld = name === "ssl";
    if (!isOld && !(name in parameters)) return name !== "uselibpqcompat";
    if (more !== undefined) throw new UsageError(`the value of ${name} has a second =; write it as %3D`);
    if (!isOld) given[name] = value;
    else if (value === "true" || value === "1") old = "require";
    else throw new UsageError(`invalid ssl ${JSON.stringify(value)}; use sslmode, one of ${modes.join(", ")}`);
    return false;
  });
  const tls = completed(given, env);
  // The stronger of the two modes applies.
  if (old !== undefined && given["sslmode"] === undefined && rank(tls) < modes.indexOf(old)) tls["sslmode"] = old;
  const rest = others.join("&");
  return { rest: rest === "" ? before : `${before}?${rest}`, tls };
}

function rank(tls: Tls): number {
  return modes.indexOf((tls["sslmode"] ?? "prefer") as Mode);
}

/** Completes parameters that are not set from the environment.
 * @throws UsageError for a value that is invalid or that the driver does not support. */
export function completed(given: Tls, env: Record<string, string | undefined>): Tls {
  const all: Tls = {};
  for (const [name, { variable = "", values, possible = values }] of Object.entries(parameters)) {
    const value = given[name] || env[variable];
    if (value === undefined || value === "") continue;
    if (values?.includes(value) === false) {
      throw new UsageError(`invalid ${name} ${JSON.stringify(value)}; use one of ${values.join(", ")}`);
    }
    if (possible?.includes(value) === false) {
      const instead = possible.length === 0 ? "leave it out" : `use ${possible.join(" or ")}`;
      throw new UsageError(`${name}=${value} is more than node-postgres can do; ${instead}, or connect with another package`);
    }
    all[name] = value;
  }
  return all;
}

/** Returns the ways to connect, in order: without TLS, or with these options.
 * @throws Error if a file cannot be read; files are read for each connection. */
export function encryptions(tls: Tls): (false | ConnectionOptions)[] {
  const root = tls["sslrootcert"];
  const mode = (tls["sslmode"] ?? (root === "system" ? "verify-full" : "prefer")) as Mode;
  if (mode === "disable") return [false];
  if (root === "system" && mode !== "verify-full") {
    throw new UsageError(`sslmode=${mode} is too weak for sslrootcert=system; use verify-full`);
  }
  const secure = secured(mode, tls);
  if (mode === "allow") return [false, secure];
  return mode === "prefer" ? [secure, false] : [secure];
}

function secured(mode: Mode, tls: Tls): ConnectionOptions {
  const options: ConnectionOptions = { rejectUnauthorized: false };
  const [min, max] = [tls["ssl_min_protocol_version"], tls["ssl_max_protocol_version"]];
  if (min !== undefined) options.minVersion = min as SecureVersion;
  if (max !== undefined) options.maxVersion = max as SecureVersion;
  const cert = named(tls, "sslcert", "postgresql.crt");
  if (cert !== undefined) {
    options.cert = content("sslcert", cert);
    options.key = content("sslkey", tls["sslkey"] ?? inHome("postgresql.key"));
    if (tls["sslpassword"] !== undefined) options.passphrase = tls["sslpassword"];
  }
  const isSystem = tls["sslrootcert"] === "system";
  const root = isSystem ? undefined : named(tls, "sslrootcert", "root.crt");
  if (root === undefined && !isSystem) {
    if (!mode.startsWith("verify")) return options;
    throw new UsageError(
      `sslmode=${mode} needs the certificate of who signs servers': ${inHome("root.crt")} does not exist; ` +
        "name a file with sslrootcert, or take those of Node with sslrootcert=system",
    );
  }
  // As in libpq, a root certificate that exists is used in every mode.
  options.rejectUnauthorized = true;
  if (root !== undefined) options.ca = content("sslrootcert", root);
  const revoked = named(tls, "sslcrl", "root.crl");
  if (revoked !== undefined) options.crl = content("sslcrl", revoked);
  if (mode !== "verify-full") options.checkServerIdentity = () => undefined;
  return options;
}

/** Returns the file that a parameter names, or libpq's default file if it exists. */
function named(tls: Tls, parameter: string, name: string): string | undefined {
  const file = tls[parameter];
  if (file !== undefined) return file;
  return existsSync(inHome(name)) ? inHome(name) : undefined;
}

function content(parameter: string, file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    throw new Error(`${parameter}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  }
}

function inHome(name: string): string {
  return join(homedir(), ".postgresql", name);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
