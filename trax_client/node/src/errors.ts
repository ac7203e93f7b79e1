// The errors of calls, classified by SQLSTATE.

import type { Child } from "./child.js";
import { inJavaScript } from "./hint.js";
import { hintToGrant } from "./level.js";

/** The base of all errors of this package. */
export class TraxError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** A mistake in a worker, a handler or a call; the text has the remedy. */
export class UsageError extends TraxError {}

/** The extension in the database is older than this package needs. */
export class VersionError extends TraxError {}

/** The time of a wait was up: no signal was sent, or not all `children` have ended. */
export class TimedOutError extends TraxError {
  constructor(message: string, readonly children: readonly Child[] = []) {
    super(message);
  }
}

/** The fields of a server's error. */
export interface Report {
  sqlstate?: string | undefined;
  /** Full sentences about the cause. */
  detail?: string | undefined;
  /** The action to take, often a command. */
  hint?: string | undefined;
  /** The error of the driver. */
  cause?: unknown;
}

/** An error of the server: the message, and DETAIL and HINT if present. */
export class ServerError extends TraxError {
  readonly sqlstate: string | undefined;
  readonly detail: string | undefined;
  readonly hint: string | undefined;

  constructor(message: string, { sqlstate, detail, hint, cause }: Report = {}) {
    const lines = [sqlstate === undefined ? message : `${message} (${sqlstate})`];
    if (detail) lines.push(`DETAIL: ${detail}`);
    if (hint) lines.push(`HINT: ${hint}`);
    super(lines.join("\n"), { cause });
    this.sqlstate = sqlstate;
    this.detail = detail;
    this.hint = hint;
  }
}

/** 42704: no manifest, group, rate, dead letter, job or role has this name. */
export class UnknownNameError extends ServerError {}
/** 22004, 22023 and the rest of class 22: an argument is missing or out of range. */
export class InvalidArgumentError extends ServerError {}
/** Class 54: the input or output is over a size limit, or nested too deeply. */
export class TooLargeError extends ServerError {}
/** 55000, 25001, 25006, 25P02: the state of the server or of the transaction refuses the call. */
export class WrongStateError extends ServerError {}
/** 40001, 40P01, 23505: a conflict with a concurrent transaction; a retry may succeed. */
export class ConflictError extends ServerError {}
/**
 * 57014, 55P03 and the classes 53 and 58: out of time or resources, or a lock was not available; a retry may succeed.
 */
export class BusyError extends ServerError {}
/** 42501: the role lacks the right; `trax.grant_access` grants it. */
export class NotPermittedError extends ServerError {}
/** 42883, 3F000, 42P01: the extension, or a part of it, is not in this database. */
export class NotInstalledError extends ServerError {}
/** 0A000: a feature that the server's version of the extension does not have. */
export class UnsupportedError extends ServerError {}
/** The server cannot be reached, or the connection broke; whether the call succeeded is unknown. */
export class DisconnectedError extends ServerError {}

/** The cause of an error, which decides whether to retry and on which connection: the connection is gone or its
 * server accepts no calls; another session held a lock or the server was busy; the call itself. */
export type Blame = "connection" | "moment" | "call";

const ofConnection = new Set("57P01 57P02 57P03 57P04 57P05 25P03 25P04 53300 25006".split(" "));
const ofMoment = new Set("57014 55P03 55006 23505".split(" "));
const byCode: Record<string, typeof ServerError> = {
  "42704": UnknownNameError,
  "55000": WrongStateError,
  "25001": WrongStateError,
  "25006": WrongStateError,
  "25P02": WrongStateError,
  "23505": ConflictError,
  "42501": NotPermittedError,
  "42883": NotInstalledError,
  "3F000": NotInstalledError,
  "0A000": UnsupportedError,
};

/** The driver's words for a server without TLS. */
const noTls = /server does not support SSL/;

/** An error of the driver; only a server's error has a severity. */
interface DriverError {
  message: string;
  code?: string;
  severity?: string;
  detail?: string;
  hint?: string;
  errors?: Error[];
}

/** Returns the error of the only host of an address: a server without TLS gets none by a retry. */
export function ofOnlyHost(error: TraxError): TraxError {
  const hint = "Write sslmode=prefer in the address, or set ssl = on in the server.";
  return noTls.test(error.message) ? new ServerError(error.message, { hint, cause: error }) : error;
}

/** Converts an error of the driver to an error of this package. The statement tells which right is
 * missing. */
export function translated(error: unknown, statement = ""): TraxError {
  if (error instanceof TraxError) return error;
  const driver = (error instanceof Error ? error : new Error(String(error))) as DriverError;
  if (driver.severity === undefined) {
    // Node's error for several addresses of a host has no message.
    return new DisconnectedError(driver.message || driver.errors?.[0]?.message || String(driver.code), { cause: error });
  }
  const sqlstate = driver.code ?? "XX000";
  const kind = kindOf(sqlstate, driver.message);
  const hint = driver.hint ? inJavaScript(driver.hint) : hintOf(kind, sqlstate, statement);
  return new kind(driver.message, { sqlstate, detail: driver.detail, hint, cause: error });
}

/** Returns the blame for an SQLSTATE. The only place that lists them. */
function blameOfState(sqlstate: string): Blame {
  if (ofConnection.has(sqlstate) || sqlstate.startsWith("08")) return "connection";
  if (ofMoment.has(sqlstate) || /^(40|53|58)/.test(sqlstate)) return "moment";
  return "call";
}

/** Returns the blame for an error of this package. */
export function blame(error: TraxError): Blame {
  if (error instanceof DisconnectedError) return "connection";
  return error instanceof ServerError && error.sqlstate !== undefined ? blameOfState(error.sqlstate) : "call";
}

/** Returns whether the server would refuse the same values again. */
export function isOfTheValues(error: TraxError): boolean {
  return error instanceof ServerError && /^(22|23|54|P0)/.test(error.sqlstate ?? "") && blame(error) === "call";
}

/** Returns the error for a database without the extension. */
export function notInstalled(database: string): NotInstalledError {
  return new NotInstalledError(`the database "${database}" has no extension trax`, {
    detail: "A worker and a client need it in the database that they connect to.",
    hint: hintToInstall("3F000"),
  });
}

const hintOfTime = 'Write a time such as new Date("2030-01-31T09:00Z"), or a length of time such as "90 s".';
const hintOfRole =
  "Correct user and password in the address, or PGUSER and PGPASSWORD; pg_hba.conf of the server says who may connect.";

/** The hints for errors of PostgreSQL itself, by SQLSTATE. */
const hints: Record<string, string> = {
  "22007": hintOfTime,
  "22008": hintOfTime,
  "22009": hintOfTime,
  "22015": hintOfTime,
  "25P02": 'Type: await db.query("rollback")',
  "28000": hintOfRole,
  "28P01": hintOfRole,
  "3D000": "Name a database that exists, in the address or as PGDATABASE; psql --list shows them.",
};

function hintOf(kind: typeof ServerError, sqlstate: string, statement: string): string | undefined {
  if (kind === NotInstalledError) return hintToInstall(sqlstate);
  return kind === NotPermittedError ? hintToGrant(statement) : hints[sqlstate];
}

function hintToInstall(sqlstate: string): string {
  return sqlstate === "42883"
    ? "Type: alter extension trax update; or, where it is missing: create extension trax;"
    : "Type: create extension trax;";
}

function kindOf(sqlstate: string, message: string): typeof ServerError {
  const known = byCode[sqlstate];
  if (known !== undefined) return known;
  const atFault = blameOfState(sqlstate);
  if (atFault === "connection") return DisconnectedError;
  if (sqlstate.startsWith("22")) return InvalidArgumentError;
  if (sqlstate.startsWith("54")) return TooLargeError;
  // Only tables in the schema `trax`, not those of the caller's own statement.
  if (sqlstate === "42P01" && /(?<!\w)trax\./.test(message)) return NotInstalledError;
  if (atFault === "moment") return sqlstate.startsWith("40") ? ConflictError : BusyError;
  return ServerError;
}
