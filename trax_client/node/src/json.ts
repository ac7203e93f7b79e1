/** Returns a value as JSON text; undefined for undefined and null, which the server stores as null.
 * @throws TypeError for values that JSON cannot represent: a BigInt, NaN, a circular object, a function, a symbol. */
export function toJson(value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined;
  const text: string | undefined = JSON.stringify(value);
  if (text === undefined) throw new TypeError(`a ${typeof value} is not JSON`);
  // JSON.stringify writes null for NaN and Infinity.
  if (text.includes("null")) JSON.stringify(value, finite);
  return text === "null" ? undefined : text;
}

function finite(_: string, value: unknown): unknown {
  if (typeof value !== "number" || Number.isFinite(value)) return value;
  throw new TypeError(`the number ${value} cannot be JSON; leave it out, or write it as a text`);
}

/** Describes what PostgreSQL cannot store in a text, with the remedy, or returns undefined. */
export function unstorable(text: string): string | undefined {
  if (text.includes("\0")) return "a NUL (\\0), which PostgreSQL cannot store; leave it out";
  return text.isWellFormed() ? undefined : "half of a surrogate pair, which PostgreSQL cannot store; leave it out";
}

/** Returns a text that PostgreSQL can store: without NUL and unpaired surrogates. */
export function sendable(text: string): string {
  return text.replaceAll("\0", "\ufffd").toWellFormed();
}

/** Returns the value of a JSON text; undefined for SQL's null. */
export const fromJson = (value: unknown): unknown => (typeof value === "string" ? JSON.parse(value) : undefined);

/** Returns the date of seconds since 1970. */
export const dateOf = (seconds: unknown): Date | undefined =>
  seconds === null || seconds === undefined ? undefined : new Date(Number(seconds) * 1000);
