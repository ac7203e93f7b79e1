// TLS as in libpq, from the parameters of an address.

import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import type { ConnectionOptions, SecureVersion } from "node:tls";

import { UsageError } from "./errors.js";
import { type Given, type modes } from "./parameter.js";

type Mode = (typeof modes)[number];

/** Returns the ways to connect, in order: without TLS, or with these options.
 * @throws Error if a file cannot be read; files are read for each connection. */
export function encryptions(tls: Given): (false | ConnectionOptions)[] {
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

function secured(mode: Mode, tls: Given): ConnectionOptions {
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
function named(tls: Given, parameter: string, name: string): string | undefined {
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
