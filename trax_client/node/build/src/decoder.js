// From JSON to what a handler takes.
/** Returns the input as the handler takes it. */
export async function decode(decoder, input) {
    if ("~standard" in decoder) {
        const result = await decoder["~standard"].validate(input);
        if (result.issues === undefined)
            return result.value;
        throw new Error(result.issues.map(explain).join("; "));
    }
    return typeof decoder === "function" ? decoder(input) : decoder.parse(input);
}
function explain({ message, path = [] }) {
    const steps = path.map((step) => (typeof step === "object" && step !== null && "key" in step ? step.key : step));
    return steps.length === 0 ? message : `${steps.join(".")}: ${message}`;
}
