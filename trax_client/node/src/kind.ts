/** Returns the kind of a value, in the words of messages. */
export function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return "a list";
  if (typeof value === "string") return "a text";
  if (typeof value !== "object") return `a ${typeof value}`;
  if (value instanceof Date && Number.isNaN(value.getTime())) return "an invalid Date";
  const made: unknown = (value as { constructor?: { name?: unknown } }).constructor?.name;
  if (typeof made !== "string" || made === "" || made === "Object") return "an object";
  return `${/^[AEIO]/.test(made) ? "an" : "a"} ${made}`;
}

/** Returns a number, true or false as it is, and another value as its kind. */
export const said = (value: unknown): string =>
  typeof value === "number" || typeof value === "boolean" ? String(value) : kindOf(value);
