// The types of values that are written as JSON and read back.

/** Types that JSON does not change. */
type Json = string | number | boolean | null | undefined | void | readonly Json[] | { readonly [key: string]: Json };

type Callable = (...args: never) => unknown;

/** Types that are refused at run time. */
type Refused = bigint | ReadonlyMap<unknown, unknown> | ReadonlySet<unknown> | Callable;

export interface NotJson {
  "is not JSON: write String(n), [...set] or Object.fromEntries(map)": never;
}

/** The type of a value when it is read back: of a Date, a text. */
export type Stored<T> = unknown extends T
  ? T
  : T extends Json | Callable | symbol
    ? T
    : T extends { toJSON(): infer Written }
      ? Stored<Written>
      : T extends Refused
        ? NotJson
        : { [Key in keyof T]: Stored<T[Key]> };

/** Every name if a type is refused, and none otherwise, as for a type parameter of a caller. */
type NameIfRefused<T> = [T] extends [never] ? never : [Exclude<T, Refused>] extends [never] ? any : never;

/** Beside the type of a function that returns a value: refuses what is refused at run time. */
export type IfJson<T> = { [Name in NameIfRefused<T>]: NotJson };
