// Spans of time. A bare number is refused, as its unit is a guess; options that take milliseconds end in `Ms`.

import { UsageError } from "./errors.js";
import { said } from "./kind.js";
import { type Kind, checkText } from "./options.js";

/** A span of time: a text in PostgreSQL's interval format (`90 s`, `5 min`). */
export type Duration = string;

/** Options among which a span of time has two forms: a text, and milliseconds in a name that ends in `Ms`. */
type With<Name extends string> = { readonly [N in Name | `${Name}Ms`]?: unknown };

const remedy = (name: string): string => `${name}: "90 s" or ${name}Ms: 90000`;

/** The kind of an option that is a span of time, in its two forms. */
export const span: Kind = { check: checkSpan, remedy };
export const spanMs: Kind = {
  check: (name, ms, remedy) => {
    if (!Number.isFinite(ms) || Number(ms) < 0) {
      throw new UsageError(`${name} is ${said(ms)}; write ${remedy}`);
    }
  },
  remedy: (name) => remedy(name.replace(/Ms$/, "")),
};

/** Refuses a text that PostgreSQL reads as no span of time, or as a negative one. */
export function checkSpan(name: string, value: unknown, remedy: string): asserts value is Duration {
  checkText(name, value, remedy);
  if (!isSpan(value)) throw new UsageError(`${name} is ${JSON.stringify(value)}; write ${remedy}`);
}

/** Returns the text or the milliseconds of an option that has been checked; undefined without it. */
function chosen<Name extends string>(options: With<Name>, name: Name): string | number | undefined {
  const inMs = `${name}Ms` as const;
  const [text, ms] = [options[name] ?? undefined, options[inMs] ?? undefined];
  if (ms === undefined) return text as string | undefined;
  if (text !== undefined) throw new UsageError(`${name} and ${inMs} are both given; write ${remedy(name)}`);
  return Number(ms);
}

/** Returns the interval of an option that has been checked, or undefined if it is left out. */
export function interval<Name extends string>(options: With<Name>, name: Name): string | undefined {
  const given = chosen(options, name);
  if (typeof given !== "number") return given;
  if (given > longest) throw new UsageError(`${name}Ms is ${given}; write at most ${name}Ms: ${longest}`);
  // PostgreSQL takes microseconds, and no exponent.
  return `${Number(given.toFixed(3))} ms`;
}

/** Returns the milliseconds of an option of the worker, which the worker measures itself. */
export function milliseconds<Name extends string>(
  options: With<Name>,
  name: Name,
  { otherwise, least = 0 }: { otherwise: number; least?: number },
): number {
  const given = chosen(options, name);
  if (given === undefined) return otherwise;
  const read = typeof given === "number" ? given : millisecondsOf(given);
  if (read === undefined) {
    throw new UsageError(`${name} is "${given}"; write a number with its unit, such as ${remedy(name)}`);
  }
  const text = typeof given === "number" ? `${given} ms` : given;
  if (read < least) throw new UsageError(`${name} is ${text}; write at least ${name}: "${least} ms" or ${name}Ms: ${least}`);
  return Math.min(read, longestTimer);
}

/** Refuses the delay of a job that the server would refuse when the attempt has ended. */
export function checkDelay(delay: unknown, remedy: string): asserts delay is Duration {
  checkSpan("delay", delay, remedy);
  if (estimated(delay) > longest) throw new UsageError(`delay is ${delay}; write at most "3650 days"`);
}

const day = 86_400_000;
const longest = 3650 * day;

/** Timers of Node take 32 bits; a longer one would end at once. */
const longestTimer = 2 ** 31 - 1;

const units = new Map([
  ...each(0.001, "us", "usec", "microsecond"),
  ...each(1, "ms", "msec", "millisecond"),
  ...each(1000, "s", "sec", "second"),
  ...each(60_000, "m", "min", "minute"),
  ...each(3_600_000, "h", "hr", "hour"),
  ...each(day, "d", "day"),
  ...each(7 * day, "w", "week"),
]);

/** Units whose length varies; the server compares a month as 30 days. */
const calendar = new Map([
  ...each(30 * day, "mon", "month"),
  ...each(360 * day, "y", "yr", "year"),
  ...each(3600 * day, "dec", "decade"),
  ...each(36_000 * day, "c", "cent", "century", "centuries"),
  ...each(360_000 * day, "mil", "millennium", "millennia"),
]);

function each(length: number, ...names: string[]): [string, number][] {
  return names.map((name) => [name, length]);
}

/** Returns the length of a unit, which may have an s at its end. */
const found = (known: Map<string, number>, unit: string): number | undefined =>
  known.get(unit) ?? known.get(unit.replace(/(?<=..)s$/, ""));

const lengthOf = (unit: string): number | undefined => found(units, unit);
const estimateOf = (unit: string): number | undefined => lengthOf(unit) ?? found(calendar, unit);

/** Returns whether a text may be a span of time from 0; the server decides about the rest. */
function isSpan(text: string): boolean {
  const plain = text.trim().toLowerCase();
  if (!/\d/.test(plain) || plain.startsWith("-")) return false;
  // A P begins the format of ISO 8601.
  return plain.startsWith("p") || (plain.match(/[a-z]+/g) ?? []).every((unit) => estimateOf(unit) !== undefined);
}

/** Returns the milliseconds of a span that PostgreSQL reads, as the server compares them. */
function estimated(text: string): number {
  const plain = text.trim().toLowerCase();
  const [, date, time = ""] = /^p([^t]*)(?:t(.*))?$/.exec(plain) ?? [];
  const words = date === undefined ? plain : `${date.replace(/m/g, "mon")} ${time.replace(/m/g, "min")}`;
  const spelled = words
    .replace(/(\d+)-(\d+)(?:-(\d+))?/g, "$1y $2mon $3d")
    .replace(/(\d+):(\d+)(?::([\d.]+))?/g, "$1h $2min $3s");
  const parts = spelled.matchAll(/([+-]?[\d.]+(?:e[+-]?\d+)?)\s*([a-z]*)/g);
  return [...parts].reduce((sum, [, number, unit = ""]) => sum + Number(number) * (estimateOf(unit || "s") ?? 0), 0);
}

/** Returns the milliseconds of an interval as PostgreSQL reads it: `1 h 30 min`, `00:01:30`, or seconds without a unit.
 * Undefined for other texts, also for those with months, whose length varies. */
export function millisecondsOf(text: string): number | undefined {
  const plain = text.trim().toLowerCase();
  const [, hours, minutes, seconds = "0"] = /^(\d+):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?$/.exec(plain) ?? [];
  if (hours !== undefined) return Number(hours) * 3_600_000 + Number(minutes) * 60_000 + Number(seconds) * 1000;
  if (/^\d+(\.\d+)?$/.test(plain)) return Number(plain) * 1000;
  if (!/^(\d+(\.\d+)?\s*[a-z]+\s*)+$/.test(plain)) return undefined;
  const used = new Set<number>();
  let sum = 0;
  for (const [, number, name = ""] of plain.matchAll(/([\d.]+)\s*([a-z]+)/g)) {
    const unit = lengthOf(name);
    if (unit === undefined || used.has(unit)) return undefined;
    used.add(unit);
    sum += Number(number) * unit;
  }
  return sum;
}
