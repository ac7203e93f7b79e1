// Values as JSON. JSON.stringify writes {} or null for a value that JSON cannot represent, or leaves
// the value out; here it is refused.

import { describe } from "./describe.js";
import { UsageError } from "./errors.js";
import { said } from "./kind.js";

/** Returns a value as JSON text; undefined for undefined and null, which the server stores as null.
 * @throws UsageError with the path, from `name`, of a part that JSON cannot represent or PostgreSQL
 * cannot store. */
export function toJson(name: string, value: unknown): string | undefined {
  let wrong: Wrong | undefined;
  let text: string | undefined;
  try {
    wrong = wrongIn(value, "", new Set());
    if (wrong === undefined) text = JSON.stringify(value);
  } catch (error) {
    throw new UsageError(`${name} is not JSON: ${describe(error)}`, { cause: error });
  }
  if (wrong !== undefined) throw new UsageError(`${name}${wrong.path} ${wrong.why}`);
  return text === "null" ? undefined : text;
}

/** A part of a value, by its path, and what is wrong with it. */
interface Wrong {
  path: string;
  why: string;
}

/** Returns the first wrong part of a value, which is in the objects `around`. */
function wrongIn(given: unknown, key: string, around: Set<object>): Wrong | undefined {
  const value = isInJson(given) ? given : converted(given, key);
  if (typeof value === "string") return wrongText(value, "has");
  const remedy = remedyOf(value);
  if (remedy !== undefined) return { path: "", why: `is ${said(value)}, not JSON; ${remedy}` };
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return undefined;
  if (around.has(value)) return { path: "", why: "is a part of itself; leave it out" };
  around.add(value);
  for (const part of Object.keys(value)) {
    const wrong = wrongIn((value as Record<string, unknown>)[part], part, around);
    if (wrong !== undefined) return { path: stepOf(value, part) + wrong.path, why: wrong.why };
    const wrongKey = wrongText(part, "has a key with");
    if (wrongKey !== undefined) return wrongKey;
  }
  around.delete(value);
  return undefined;
}

/** Returns the value that represents another in JSON. An error and an invalid date stay, whatever
 * their own method returns. */
function converted(given: unknown, key: string): unknown {
  const { toJSON } = Object(given ?? undefined) as { toJSON?: unknown };
  return typeof toJSON !== "function" || ["Error", "invalid Date"].includes(classOf(given)) ? given : toJSON.call(given, key);
}

const isInJson = (value: unknown): boolean => typeof value === "string" || typeof value === "number";

/** Returns the class of the language that an object belongs to, or the type of another value. */
function classOf(value: unknown): string {
  if (typeof value !== "object") return typeof value;
  // For speed, as nearly all values are of these.
  if (value === null || Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype) return "Object";
  const name = Object.prototype.toString.call(value).slice(8, -1);
  return name === "Date" && Number.isNaN(Number(value)) ? "invalid Date" : name;
}

/** The remedies for values that JSON does not have, by class. */
const remedies = new Map(Object.entries({
  bigint: "write String(n), or Number(n) below 2 ** 53",
  function: "call it, or leave it out",
  symbol: "write a text",
  "invalid Date": "write a valid one, or null",
  Error: "throw it, or write its message",
  Map: "write Object.fromEntries(map)",
  Promise: "await it",
  RegExp: "write its source",
  Set: "write [...set]",
}));

/** The classes whose values may be JSON without members. */
const bare = new Set("Object Array Arguments Boolean Date Number String".split(" "));

function remedyOf(value: unknown): string | undefined {
  if (typeof value === "number") return Number.isFinite(value) ? undefined : "write a finite number, or null";
  const name = classOf(value);
  const remedy = remedies.get(name);
  if (remedy !== undefined || typeof value !== "object" || value === null) return remedy;
  const isEmpty = !bare.has(name) && !ArrayBuffer.isView(value) && Object.keys(value).length === 0;
  return isEmpty ? "write a text, a list or an object" : undefined;
}

function wrongText(text: string, has: string): Wrong | undefined {
  const what = unstorable(text);
  return what === undefined ? undefined : { path: "", why: `${has} ${what}` };
}

function stepOf(value: object, key: string): string {
  if (Array.isArray(value)) return `[${key}]`;
  return /^[\w$]+$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`;
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
