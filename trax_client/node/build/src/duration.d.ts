/** A span of time: milliseconds, as elsewhere in Node, or a text as PostgreSQL writes an interval (`5 min`). */
export type Duration = number | string;
/** Returns the text of an interval. */
export declare function interval(duration: Duration): string;
