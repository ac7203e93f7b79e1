import { UsageError } from "./errors.js";

/** A span of time: milliseconds, as is usual in Node, or a text in PostgreSQL's interval format (`5 min`). */
export type Duration = number | string;

/** Returns the text of an interval. */
export function interval(duration: Duration): string {
  if (typeof duration === "string") return duration;
  if (!Number.isFinite(duration)) {
    throw new UsageError(`${duration} is not a span of time: give milliseconds, or a text like '5 min'`);
  }
  return `${duration} ms`;
}
