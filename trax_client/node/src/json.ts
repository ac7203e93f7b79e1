/** Returns a value as JSON text; undefined for undefined and null, which the server stores as null.
 * @throws TypeError for values that JSON cannot represent: a BigInt, a circular object, a function, a symbol. */
export function toJson(value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined;
  const text: string | undefined = JSON.stringify(value);
  if (text === undefined) throw new TypeError(`a ${typeof value} is not JSON`);
  return text === "null" ? undefined : text;
}

/** Returns a text that PostgreSQL can store: without NUL and unpaired surrogates. */
export function sendable(text: string): string {
  return text.replaceAll("\0", "\ufffd").toWellFormed();
}
