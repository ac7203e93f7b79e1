import { UsageError } from "./errors.js";
/** Returns the text of an interval. */
export function interval(duration) {
    if (typeof duration === "string")
        return duration;
    if (!Number.isFinite(duration)) {
        throw new UsageError(`${duration} is not a span of time: give milliseconds, or a text like '5 min'`);
    }
    return `${duration} ms`;
}
