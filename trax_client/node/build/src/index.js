export { Client } from "./client.js";
export { BusyError, ConflictError, DisconnectedError, InvalidArgumentError, NotInstalledError, NotPermittedError, ServerError, TooLargeError, TraxError, UnknownNameError, UnsupportedError, UsageError, VersionError, WrongStateError, } from "./errors.js";
export { Cancel, Permanent, RECORDED, RetryIn, Snooze, Stopped } from "./outcome.js";
export { Worker } from "./worker.js";
