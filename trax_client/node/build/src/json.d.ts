/** Returns a value as JSON text; undefined for undefined and null, which the server stores as nothing.
 * @throws TypeError for what JSON cannot say: a BigInt, a circular object, a function, a symbol. */
export declare function toJson(value: unknown): string | undefined;
/** Returns a text that PostgreSQL can store: without NUL and halves of characters. */
export declare function sendable(text: string): string;
