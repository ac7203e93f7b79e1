// Checks of arguments at run time, for programs in plain JavaScript, where a text passes for a list and a mistyped
// option for none. As in the calls of the extension, null leaves an option out.

import { UsageError } from "./errors.js";
import { unstorable } from "./json.js";
import { kindOf, said } from "./kind.js";

/** Refuses a value that is not a text; `remedy` says what to write. */
export function checkText(name: string, value: unknown, remedy: string): asserts value is string {
  if (typeof value !== "string") throw new UsageError(`${name} is ${kindOf(value)}; write ${remedy}`);
  const has = unstorable(value);
  if (has !== undefined) throw new UsageError(`${name} has ${has}`);
}

/** The server refuses names of more bytes. */
const LONGEST_NAME = 255;

/** Refuses a key, or the name of something, that the server would refuse. */
export function checkKey(name: string, value: unknown, remedy: string): asserts value is string {
  checkText(name, value, remedy);
  if (value === "") throw new UsageError(`${name} is empty; write ${remedy}`);
  const size = Buffer.byteLength(value);
  if (size <= LONGEST_NAME) return;
  throw new UsageError(`${name} is ${shortened(value)} of ${size} bytes; write at most ${LONGEST_NAME}`);
}

/** Refuses a name of a task, a step, a group or a version that the server would refuse. */
export function checkName(name: string, value: unknown, remedy: string): asserts value is string {
  checkText(name, value, remedy);
  if (value === "" || value !== value.trim()) {
    const words = "write a name that neither is empty nor begins or ends with a space";
    throw new UsageError(`${name} is ${shortened(value)}; ${words}: ${remedy}`);
  }
  checkKey(name, value, remedy);
}

const shortened = (text: string): string => JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}...` : text);

/** Refuses a value that is not a list. */
export function checkList(name: string, value: unknown, remedy: string): asserts value is unknown[] {
  if (!Array.isArray(value)) throw new UsageError(`${name} is ${kindOf(value)}; write ${remedy}`);
}

/** Refuses a value that is not the id of a job; the driver returns ids as texts. */
export function checkId(name: string, value: unknown, remedy: string): void {
  const isWhole = Number.isSafeInteger(value) || typeof value === "bigint" || /^\d+$/.test(typeof value === "string" ? value : "");
  if (!isWhole) throw new UsageError(`${name} is ${said(value)}; write ${remedy}`);
  const id = BigInt(value as bigint);
  if (BigInt.asIntN(64, id) !== id) throw new UsageError(`${name} is ${id}, more than an id can be; write ${remedy}`);
}

/** The values of an option: the check of a value, and what to write instead of a wrong one. */
export interface Kind {
  check(name: string, value: unknown, remedy: string): void;
  remedy(name: string): string;
}

/** The kinds of all options of a call; the compiler reports a missing one. */
export type Kinds<Options> = Record<keyof Options, Kind>;

const kind = (example: string, check: Kind["check"]): Kind => ({ check, remedy: (name) => `${name}: ${example}` });

/** Returns the kind of the values that a function accepts. */
const fitting = (example: string, fits: (value: unknown) => boolean): Kind =>
  kind(example, (name, value, remedy) => {
    if (!fits(value)) throw new UsageError(`${name} is ${said(value)}; write ${remedy}`);
  });

export const key = (example: string): Kind => kind(JSON.stringify(example), checkKey);
export const nameLike = (example: string): Kind => kind(JSON.stringify(example), checkName);

/** The names that a worker is limited to. */
export const namesLike = (example: string): Kind =>
  kind(JSON.stringify([example]), (name, value, remedy) => {
    checkList(name, value, remedy);
    if (value.length === 0) throw new UsageError(`${name} is empty; write ${remedy}, or leave it out for all`);
    for (const [at, item] of value.entries()) checkName(`${name}[${at}]`, item, remedy);
  });

/** The largest integer of PostgreSQL. */
const LARGEST = 2 ** 31 - 1;

/** A whole number; the server knows how large it may be. */
export const whole = (example: number, least = -LARGEST): Kind => ({
  check: (name, value, remedy) => {
    if (!Number.isInteger(value) || Number(value) < least) throw new UsageError(`${name} is ${said(value)}; write ${remedy}`);
    if (Number(value) > LARGEST) throw new UsageError(`${name} is ${String(value)}; write at most ${LARGEST}`);
  },
  remedy: (name) => `a whole number${least > -LARGEST ? ` from ${least}` : ""}, such as ${name}: ${example}`,
});

/** Returns whether a value is an object with members of its own names, not a list, a map or a date. */
const isObject = (value: unknown): boolean => Object.prototype.toString.call(value) === "[object Object]";

export const anything = kind("", () => undefined);
export const id = kind("7", checkId);
export const flag = fitting("true or false", (value) => typeof value === "boolean");
export const time = kind('new Date("2030-01-31T09:00Z")', (name, value, remedy) => {
  // PostgreSQL has no year 0, and writes years before it in words.
  const fits = value instanceof Date ? value.getUTCFullYear() >= 1 : typeof value === "string" && !value.includes("\0");
  if (!fits) throw new UsageError(`${name} is ${said(value)}; write ${remedy}`);
  if (typeof value !== "string" || hasZone(value)) return;
  throw new UsageError(`${name} has no time zone: write new Date(...) or "2030-01-01T09:00:00Z"`);
});

/** Words at the end of a time that are no zone. */
const noZone = /^(am|pm|ad|bc|today|tomorrow|yesterday|allballs)$/i;

/** Returns whether a text ends with an offset after its time of day, or with the word of a zone. */
function hasZone(time: string): boolean {
  const text = time.trim();
  if (/[T:]\d[\d:.]*\s*[+-]\d{1,2}(:?\d{2}){0,2}$/i.test(text)) return true;
  const word = /(?<![a-z_/+-])[a-z][a-z_]*([/+-][a-z0-9_]+)*$/i.exec(text)?.[0];
  return word !== undefined && !noZone.test(word);
}
export const callback = (example: string): Kind => fitting(example, (value) => typeof value === "function");
export const object = (example: string): Kind => fitting(example, isObject);
export const list = (example: string): Kind => kind(example, checkList);
export const address = fitting('"postgresql://user@host:5432/database"', (value) => typeof value === "string" || isObject(value));
export const logger = fitting("console, or an object with info, warn and error", (value) => {
  const given = Object(value) as Record<string, unknown>;
  return ["info", "warn", "error"].every((name) => typeof given[name] === "function");
});

export const oneOf = (...known: string[]): Kind => ({
  check: (name, value, remedy) => {
    if (known.includes(value as string)) return;
    throw new UsageError(`${name} is ${typeof value === "string" ? JSON.stringify(value) : said(value)}; write ${remedy}`);
  },
  remedy: () => `one of: ${known.join(", ")}`,
});

/** Refuses options that do not exist, values of another kind, and a value that is not an object of
 * options. */
export function checkOptions(options: unknown, kinds: Record<string, Kind>, remedy: string): void {
  if (options === null || options === undefined) return;
  if (!isObject(options)) throw new UsageError(`the options are ${kindOf(options)}; write ${remedy}`);
  for (const [name, value] of Object.entries(options)) {
    const kind = Object.hasOwn(kinds, name) ? kinds[name] : undefined;
    if (kind === undefined) throw new UsageError(noOption(name, Object.keys(kinds)));
    if (value !== undefined && value !== null) kind.check(name, value, kind.remedy(name));
  }
}

const later = "write runAt: new Date(Date.now() + 90_000)";

/** The remedies for options that jobs have in other libraries, by their bare names. */
const elsewhere = new Map([
  ...["delay", "countdown", "eta", "startafter"].map((name) => [name, later] as const),
  ["expires", "type select trax.limit_queue_time(job_id, '1 hour')"],
]);

/** Returns the message about an option that does not exist. */
export function noOption(name: string, names: readonly string[]): string {
  const words = names.includes("runAt") ? elsewhere.get(bare(name)) : undefined;
  if (words !== undefined) return `there is no option "${name}"; ${words}`;
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
