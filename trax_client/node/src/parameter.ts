// The parameters of an address, after its ?: those of libpq, and the time limits of the driver. A
// name that does not exist, and a value that cannot be satisfied, is refused, never ignored.

import { UsageError } from "./errors.js";
import { nearest } from "./options.js";

interface Parameter {
  variable?: string;
  /** The allowed values: from one number to another, or one of these; by default any text. */
  range?: readonly [number, number];
  values?: readonly string[];
  /** What to write instead of other values. */
  remedy?: string;
  /** The allowed values that a worker can satisfy, and what cannot satisfy the others. */
  possible?: readonly string[];
  limit?: string;
  /** Whether the driver reads it from the address. */
  isOfDriver?: boolean;
}

const free = { isOfDriver: true };
const number = { range: [-1, 2 ** 31 - 1] } as const;
const limit = { ...number, isOfDriver: true };
const beyond = { possible: [] };
export const modes = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] as const;
const versions = ["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];

const parameters = new Map(Object.entries<Parameter>({
  host: free, port: { range: [1, 65_535], isOfDriver: true }, user: free, password: free, dbname: {}, options: free,
  application_name: free, fallback_application_name: free,
  statement_timeout: limit, lock_timeout: limit, query_timeout: limit, idle_in_transaction_session_timeout: limit,
  sslmode: { variable: "PGSSLMODE", values: modes },
  // The spelling of the JDBC driver.
  ssl: { values: ["true", "1"], remedy: `sslmode, one of ${modes.join(", ")}` },
  sslrootcert: { variable: "PGSSLROOTCERT" },
  sslcert: { variable: "PGSSLCERT" },
  sslkey: { variable: "PGSSLKEY" },
  sslpassword: {},
  sslcrl: { variable: "PGSSLCRL" },
  sslcrldir: { variable: "PGSSLCRLDIR", ...beyond },
  sslsni: { variable: "PGSSLSNI", values: ["0", "1"], possible: ["1"] },
  ssl_min_protocol_version: { variable: "PGSSLMINPROTOCOLVERSION", values: versions },
  ssl_max_protocol_version: { variable: "PGSSLMAXPROTOCOLVERSION", values: versions },
  channel_binding: {
    variable: "PGCHANNELBINDING", values: ["disable", "prefer", "require"], possible: ["disable", "prefer"],
  },
  sslnegotiation: { variable: "PGSSLNEGOTIATION", values: ["postgres", "direct"], possible: ["postgres"] },
  sslcertmode: { variable: "PGSSLCERTMODE", values: ["disable", "allow", "require"], possible: ["allow"] },
  gssencmode: { variable: "PGGSSENCMODE", values: ["disable", "prefer", "require"], possible: ["disable", "prefer"] },
  requirepeer: { variable: "PGREQUIREPEER", ...beyond },
  require_auth: { variable: "PGREQUIREAUTH", ...beyond },
  target_session_attrs: {
    variable: "PGTARGETSESSIONATTRS",
    values: ["any", "read-write", "read-only", "primary", "standby", "prefer-standby"],
    possible: ["any", "read-write", "primary"],
    limit: "a worker, which needs the primary,",
  },
  client_encoding: { possible: ["UTF8", "utf8", "auto"] },
  hostaddr: beyond, passfile: beyond, service: beyond, servicefile: beyond, replication: beyond,
  krbsrvname: beyond, gsslib: beyond, gssdelegation: beyond,
  // A worker limits its connections itself, tries all hosts at once, and compresses nothing.
  connect_timeout: number, tcp_user_timeout: number, keepalives: number, keepalives_idle: number,
  keepalives_interval: number, keepalives_count: number, sslcompression: number,
  load_balance_hosts: { values: ["disable", "random"] },
  // Whether the driver reads the TLS parameters as libpq does.
  uselibpqcompat: { values: ["true", "false"] },
}));

/** The parameters of an address that the driver does not get, by name; plain data for a thread. */
export type Given = Record<string, string>;

type Environment = Record<string, string | undefined>;

/** Removes the parameters that the driver does not read from an address, and completes them from
 * the environment. */
export function taken(text: string, env: Environment): { rest: string; given: Given } {
  const [, path = text, query = ""] = /^([^?]*)\?(.*)$/s.exec(text) ?? [];
  // Of a password that is not encoded, a part may stand here.
  const isSecret = /@|password/.test(query);
  const own: Given = {};
  const others = query.split("&").filter((part) => {
    if (part === "") return false;
    const [name = "", value, more] = part.split("=").map(decoded);
    const parameter = parameters.get(name);
    if (parameter === undefined) throw unknown(isSecret ? undefined : name);
    if (value === undefined) throw new UsageError(`${name} has no value; write ${name}=...`);
    check(name, value, parameter, isSecret);
    if (parameter.isOfDriver) return true;
    if (more !== undefined) throw new UsageError(`the value of ${name} has a second =; write it as %3D`);
    own[name] = value;
    return false;
  });
  const { dbname, ssl, ...given } = completed(own, env);
  // The stronger of the two modes applies.
  if (ssl !== undefined && !own["sslmode"] && rank(given) < modes.indexOf("require")) given["sslmode"] = "require";
  const place = dbname === undefined ? path : `/${encodeURIComponent(dbname)}`;
  return { rest: others.length === 0 ? place : `${place}?${others.join("&")}`, given };
}

const rank = ({ sslmode = "prefer" }: Given): number => (modes as readonly string[]).indexOf(sslmode);

/** Completes parameters that are not set from the environment.
 * @throws UsageError for a value that is invalid, or that a worker cannot satisfy. */
export function completed(given: Given, env: Environment): Given {
  const all: Given = {};
  for (const [name, parameter] of parameters) {
    const value = given[name] || env[parameter.variable ?? ""];
    if (value === undefined || value === "") continue;
    check(name, value, parameter);
    all[name] = value;
  }
  return all;
}

/** Refuses a wrong value. As in libpq, an empty one counts as not set. */
function check(name: string, value: string, parameter: Parameter, isSecret = false): void {
  if (value === "") return;
  const { range, values, remedy, possible = values, limit } = parameter;
  const invalid = `invalid ${name}${isSecret ? "" : ` ${JSON.stringify(value)}`}; use`;
  if (range !== undefined && !(/^-?\d+$/.test(value) && Number(value) >= range[0] && Number(value) <= range[1])) {
    throw new UsageError(`${invalid} a whole number from ${range.join(" to ")}`);
  }
  if (values?.includes(value) === false) throw new UsageError(`${invalid} ${remedy ?? `one of ${values.join(", ")}`}`);
  if (possible?.includes(value) !== false) return;
  const instead = possible.length === 0 ? "leave it out" : `use ${possible.join(" or ")}`;
  const other = limit === undefined ? ", or connect with another package" : "";
  throw new UsageError(`${name}=${isSecret ? "..." : value} is more than ${limit ?? "node-postgres"} can do; ${instead}${other}`);
}

/** Returns the error for a name that does not exist. */
function unknown(name: string | undefined): UsageError {
  const has = "the address of the database has an unknown parameter";
  if (name === undefined) return new UsageError(`${has}; write ? in a password as %3F, and @ as %40`);
  const meant = nearest(name, [...parameters.keys()]);
  const remedy = meant === undefined ? "leave it out" : `did you mean "${meant}"?`;
  return new UsageError(`${has} ${JSON.stringify(name)}; ${remedy}`);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
