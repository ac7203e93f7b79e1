// Converts JSON to the input type of a handler.

/** The part of the Standard Schema (standardschema.dev) that is used; zod, valibot and arktype implement it. */
export interface StandardSchema<T> {
  readonly "~standard": {
    readonly validate: (value: unknown) => StandardResult<T> | Promise<StandardResult<T>>;
  };
}
type StandardResult<T> =
  | { readonly value: T; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly unknown[] | undefined }[] };

/** Converts the parsed input to the handler's type, or throws: a function, an object with `parse`, or a Standard
 * Schema. */
export type Decoder<T> = ((input: unknown) => T | Promise<T>) | { parse(input: unknown): T } | StandardSchema<T>;

/** Returns whether a value can decode. */
export function isDecoder(value: unknown): boolean {
  const { parse, "~standard": standard } = Object(value) as { parse?: unknown; "~standard"?: unknown };
  return typeof value === "function" || typeof parse === "function" || standard !== undefined;
}

/** Returns the input as the handler's type. */
export async function decode<T>(decoder: Decoder<T>, input: unknown): Promise<T> {
  if ("~standard" in decoder) {
    const result = await decoder["~standard"].validate(input);
    if (result.issues === undefined) return result.value;
    throw new Error(result.issues.map(explain).join("; "));
  }
  return typeof decoder === "function" ? decoder(input) : decoder.parse(input);
}

function explain({ message, path = [] }: { message: string; path?: readonly unknown[] | undefined }): string {
  const steps = path.map((step) => (typeof step === "object" && step !== null && "key" in step ? step.key : step));
  return steps.length === 0 ? message : `${steps.join(".")}: ${message}`;
}
