// The text of a value that was thrown, which may be anything: each look at it may throw, too.

const NO_TEXT = "a value without a text was thrown; throw an Error";
/** How much of the names of an object's members is shown; their values may be secret. */
const LONGEST_NAMES = 200;

/** Returns an error and at most five causes on one line, without causes that it already names. */
export function describe(error: unknown, causes = 5): string {
  if (!isError(error)) return read(() => textOf(error), NO_TEXT);
  const message = messageOf(error);
  const text = read(() => (error.name === "Error" && message !== "" ? message : `${error.name}: ${message}`), message);
  const cause = read(() => error.cause, undefined);
  const named = !isError(cause) || text.includes(messageOf(cause));
  return named || causes === 0 ? text : `${text}: ${describe(cause, causes - 1)}`;
}

/** Returns the text of a value that is no error: of a plain object its message, or the names of its members. */
function textOf(value: unknown): string {
  if (typeof value === "function" && value.prototype instanceof Error) {
    return `the class ${value.name} was thrown; write throw new ${value.name}(...)`;
  }
  const text = String(value);
  if (!text.startsWith("[object ")) return text;
  const { message } = value as { message?: unknown };
  if (typeof message === "string" && message !== "") return message;
  return `an object was thrown, with ${Object.keys(value as object).join(", ").slice(0, LONGEST_NAMES)}; throw an Error`;
}

/** Returns the message of an error alone. */
export const messageOf = (error: Error): string => read(() => String(error.message), NO_TEXT);

const isError = (value: unknown): value is Error => read(() => value instanceof Error, false);

function read<T>(look: () => T, otherwise: T): T {
  try {
    return look();
  } catch {
    return otherwise;
  }
}
