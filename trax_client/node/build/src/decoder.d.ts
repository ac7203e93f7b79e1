/** The part of the Standard Schema (standardschema.dev) that is used: zod, valibot and arktype have it. */
export interface StandardSchema<T> {
    readonly "~standard": {
        readonly validate: (value: unknown) => StandardResult<T> | Promise<StandardResult<T>>;
    };
}
type StandardResult<T> = {
    readonly value: T;
    readonly issues?: undefined;
} | {
    readonly issues: readonly {
        readonly message: string;
        readonly path?: readonly unknown[] | undefined;
    }[];
};
/** Turns the parsed input into what the handler takes, or throws: a function, an object with `parse`, or a
 * Standard Schema. */
export type Decoder<T> = ((input: unknown) => T | Promise<T>) | {
    parse(input: unknown): T;
} | StandardSchema<T>;
/** Returns the input as the handler takes it. */
export declare function decode<T>(decoder: Decoder<T>, input: unknown): Promise<T>;
export {};
