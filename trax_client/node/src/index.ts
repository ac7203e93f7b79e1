export type { Address, ConnectionOptions } from "./address.js";
export { Client, type EndedJob, type Job, type JobResult, type JobState, type Queryable, type Step } from "./client.js";
export type { Child } from "./child.js";
export type { Context, Undo, WaitOptions } from "./context.js";
export type { Decoder, StandardSchema } from "./decoder.js";
export type { Duration } from "./duration.js";
export type { EnqueueOptions, EnqueueSqlOptions, JobChange, Trace } from "./enqueue.js";
export {
  BusyError,
  ConflictError,
  DisconnectedError,
  InvalidArgumentError,
  NotInstalledError,
  NotPermittedError,
  ServerError,
  TimedOutError,
  TooLargeError,
  TraxError,
  UnknownNameError,
  UnsupportedError,
  UsageError,
  VersionError,
  WrongStateError,
} from "./errors.js";
export type { Handler } from "./execution.js";
export { Graph, type GraphJobOptions, type GraphOptions, type Member, type Need, Node, type When } from "./graph.js";
export type { Logger } from "./logger.js";
export type { GatheredJob, Key, ManyHandler, ManyOptions } from "./many.js";
export { Cancel, Permanent, RECORDED, type Reason, RetryIn, Snooze, Stopped } from "./outcome.js";
export type { Stored } from "./stored.js";
export type { Summary } from "./run.js";
export { Worker, type WorkerOptions } from "./worker.js";
