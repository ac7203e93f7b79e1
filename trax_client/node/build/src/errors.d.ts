/** The base of all errors of this package. */
export declare class TraxError extends Error {
    name: any;
}
/** A worker, a handler or a call is written wrong; the text says what to do. */
export declare class UsageError extends TraxError {
}
/** The extension in the database and this package do not fit together. */
export declare class VersionError extends TraxError {
}
/** What the server says of an error. */
export interface Report {
    sqlstate?: string | undefined;
    /** Full sentences about the cause. */
    detail?: string | undefined;
    /** What to type. */
    hint?: string | undefined;
    /** The error of the driver. */
    cause?: unknown;
}
/** An error of the server: the message, and its DETAIL and HINT if there are any. */
export declare class ServerError extends TraxError {
    readonly sqlstate: string | undefined;
    readonly detail: string | undefined;
    readonly hint: string | undefined;
    constructor(message: string, { sqlstate, detail, hint, cause }?: Report);
}
/** 42704: no manifest, group, dead letter, job or role has this name. */
export declare class UnknownNameError extends ServerError {
}
/** 22004, 22023 and the rest of class 22: an argument is missing or out of range. */
export declare class InvalidArgumentError extends ServerError {
}
/** 54000: the input or output is over a size limit. */
export declare class TooLargeError extends ServerError {
}
/** 55000, 25001: the call is not possible in the present state of the server. */
export declare class WrongStateError extends ServerError {
}
/** 40001, 40P01, 23505: a conflict with a concurrent transaction; a retry may succeed. */
export declare class ConflictError extends ServerError {
}
/** 57014, 55P03, classes 53 and 58: no time, no lock or no room; a retry may succeed. */
export declare class BusyError extends ServerError {
}
/** 42501: the role lacks the right; `trax.grant_access` grants it. */
export declare class NotPermittedError extends ServerError {
}
/** 42883, 3F000, 42P01: the extension, or a part of it, is not in this database. */
export declare class NotInstalledError extends ServerError {
}
/** 0A000: a part of the contract that the server does not have. */
export declare class UnsupportedError extends ServerError {
}
/** The server cannot be reached, or the connection broke; whether the call succeeded is unknown. */
export declare class DisconnectedError extends ServerError {
}
/** What is to blame for an error, which decides whether to retry and on which connection: the connection is gone
 * or its server accepts no calls; another session was in the way or the server was busy; the call itself. */
export type Blame = "connection" | "moment" | "call";
/** Returns an error of the driver as one of ours. */
export declare function translated(error: unknown): TraxError;
/** Returns what is to blame for an error of ours. */
export declare function blame(error: TraxError): Blame;
/** Returns whether the server would refuse the same values again. */
export declare function isOfTheValues(error: TraxError): boolean;
/** Returns the error for a database without the extension. */
export declare function notInstalled(database: string): NotInstalledError;
