// Spans of time. A bare number is refused, as its unit is a guess; options that take milliseconds end in `Ms`.

import { UsageError } from "./errors.js";
import { checkText, kindOf } from "./options.js";

/** A span of time: a text in PostgreSQL's interval format (`90 s`, `5 min`). */
export type Duration = string;

/** Options among which a span of time has two forms: a text, and milliseconds in a name that ends in `Ms`. */
type With<Name extends string> = { readonly [N in Name | `${Name}Ms`]?: unknown };

/** Returns the interval of an option, or undefined if it is left out. */
export function interval<Name extends string>(options: With<Name>, name: Name): string | undefined {
  const inMs = `${name}Ms` as const;
  const [text, ms] = [options[name] ?? undefined, options[inMs] ?? undefined];
  const remedy = `${name}: "90 s" or ${inMs}: 90000`;
  if (ms === undefined) {
    if (text !== undefined) checkText(name, text, remedy);
    return text;
  }
  if (text !== undefined) throw new UsageError(`${name} and ${inMs} are both given; write ${remedy}`);
  if (typeof ms !== "number" || !Number.isFinite(ms)) {
    throw new UsageError(`${inMs} is ${typeof ms === "number" ? ms : kindOf(ms)}; write ${remedy}`);
  }
  return `${ms} ms`;
}

/** Returns the milliseconds of an option of the worker, which the worker measures itself. */
export function milliseconds<Name extends string>(
  options: With<Name>,
  name: Name,
  { otherwise, least = 0 }: { otherwise: number; least?: number },
): number {
  const text = interval(options, name);
  if (text === undefined) return otherwise;
  const read = millisecondsOf(text);
  if (read === undefined) {
    throw new UsageError(`${name} is "${text}"; write a number with its unit, such as ${name}: "90 s" or ${name}Ms: 90000`);
  }
  if (read < least) throw new UsageError(`${name} is ${text}; write at least ${name}: "${least} ms" or ${name}Ms: ${least}`);
  return Math.min(read, longestTimer);
}

/** Refuses the delay of a job that the server would refuse when the attempt has ended. */
export function checkDelay(delay: unknown, remedy: string): asserts delay is Duration {
  checkText("delay", delay, remedy);
  if ((millisecondsOf(delay) ?? 0) > longestDelay) throw new UsageError(`delay is ${delay}; write at most "3650 days"`);
}

const longestDelay = 3650 * 86_400_000;

/** Timers of Node take 32 bits; a longer one would end at once. */
const longestTimer = 2 ** 31 - 1;

const units = new Map([
  ...each(0.001, "us", "usec", "microsecond"),
  ...each(1, "ms", "msec", "millisecond"),
  ...each(1000, "s", "sec", "second"),
  ...each(60_000, "m", "min", "minute"),
  ...each(3_600_000, "h", "hr", "hour"),
  ...each(86_400_000, "d", "day"),
  ...each(604_800_000, "w", "week"),
]);

function each(length: number, ...names: string[]): [string, number][] {
  return names.map((name) => [name, length]);
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
    const unit = units.get(name) ?? units.get(name.replace(/(?<=..)s$/, ""));
    if (unit === undefined || used.has(unit)) return undefined;
    used.add(unit);
    sum += Number(number) * unit;
  }
  return sum;
}
