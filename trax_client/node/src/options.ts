// Checks of arguments at run time, for programs in plain JavaScript, where a text passes for a list and a mistyped
// option for none. As in the calls of the extension, null leaves an option out.

import { UsageError } from "./errors.js";
import { sendable } from "./json.js";

/** Returns the kind of a value, in the words of messages. */
export function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return "a list";
  if (typeof value === "string") return "a text";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

/** Refuses a value that is not a text; `remedy` says what to write. */
export function checkText(name: string, value: unknown, remedy: string): asserts value is string {
  if (typeof value !== "string") throw new UsageError(`${name} is ${kindOf(value)}; write ${remedy}`);
  if (value.includes("\0")) throw new UsageError(`${name} has a NUL (\\0), which PostgreSQL cannot store; leave it out`);
}

/** The server refuses names of more bytes. */
const LONGEST_NAME = 255;

/** Refuses a name of a task or a step that the server would refuse. */
export function checkName(name: string, value: unknown, remedy: string): asserts value is string {
  checkText(name, value, remedy);
  const said = JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}...` : value);
  if (value === "" || value !== value.trim()) {
    throw new UsageError(`${name} is ${said}; write a name that neither is empty nor begins or ends with a space: ${remedy}`);
  }
  if (value !== sendable(value)) throw new UsageError(`${name} is ${said}; remove NUL and halves of surrogate pairs`);
  const size = Buffer.byteLength(value);
  if (size > LONGEST_NAME) throw new UsageError(`${name} is ${said} of ${size} bytes; write at most ${LONGEST_NAME}`);
}

/** Refuses a value that is not a list. */
export function checkList(name: string, value: unknown, remedy: string): void {
  if (!Array.isArray(value)) throw new UsageError(`${name} is ${kindOf(value)}; write ${remedy}`);
}

/** Refuses options that do not exist, and a value that is not an object of options. */
export function checkOptions(options: unknown, names: readonly string[], remedy: string): void {
  if (options === null || options === undefined) return;
  if (typeof options !== "object" || Array.isArray(options)) {
    throw new UsageError(`the options are ${kindOf(options)}; write ${remedy}`);
  }
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) throw new UsageError(noOption(name, names));
  }
}

/** Returns the message about an option that does not exist. */
export function noOption(name: string, names: readonly string[]): string {
  const meant = nearest(name, names);
  const rest = meant === undefined ? `the options are ${names.join(", ")}` : `did you mean "${meant}"?`;
  return `there is no option "${name}"; ${rest}`;
}

/** Returns the name that is most similar to a mistyped one, or undefined if none is near: the other is a part of it, or
 * at most a third of the letters differ. */
export function nearest(mistyped: string, names: readonly string[]): string | undefined {
  const a = bare(mistyped);
  let found: string | undefined;
  let least = Infinity;
  for (const name of names) {
    const b = bare(name);
    const [short, long] = a.length < b.length ? [a, b] : [b, a];
    const differing = distance(a, b);
    const isNear = differing <= (long.length + 1) / 3 || (short.length >= 3 && long.includes(short));
    if (isNear && differing < least) [found, least] = [name, differing];
  }
  return found;
}

/** Returns a name as it is compared: `group_name` and `groupname` are `groupName`. */
const bare = (name: string): string => name.replace(/[_-]/g, "").toLowerCase();

/** Returns the number of letters to insert, to remove or to replace in order to turn a text into another. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (const [at, letter] of [...a].entries()) {
    const next = [at + 1];
    for (let to = 1; to <= b.length; to += 1) {
      const replaced = (row[to - 1] ?? 0) + (letter === b[to - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[to] ?? 0) + 1, (next[to - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
