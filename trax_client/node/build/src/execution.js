// One attempt of a job: decodes the input, runs the handler, and finds the verdict.
import { decode } from "./decoder.js";
import { toJson } from "./json.js";
import { Stopped, describe, failure, onError, onOutput, onStop } from "./outcome.js";
export class Execution {
    claimed;
    #stop = new AbortController();
    #ctx;
    #reason;
    constructor(claimed, report) {
        this.claimed = claimed;
        const { input: _, trace, ...rest } = claimed;
        const reason = () => this.#reason;
        this.#ctx = {
            ...rest,
            trace: traceOf(trace),
            signal: this.#stop.signal,
            get reason() {
                return reason();
            },
            progress: (value) => report(toJson(value) ?? "null"),
        };
    }
    /** Asks the handler to stop; of several reasons the first one stays. */
    stop(reason) {
        if (this.#reason !== undefined)
            return;
        this.#reason = reason;
        this.#stop.abort(new Stopped(reason));
    }
    /** Runs the handler, which is given up when it does not obey a stop within `patience` milliseconds. */
    async run(registered, telemetry, patience) {
        let timer;
        const overdue = new Promise((resolve) => {
            this.#stop.signal.addEventListener("abort", () => {
                timer = setTimeout(() => resolve(onStop(this.#reason ?? "shutdown")), patience);
            });
        });
        return telemetry.executing(this.#ctx, async (failed) => {
            const verdict = await Promise.race([this.#handle(registered), overdue]);
            clearTimeout(timer);
            if (verdict.kind === "fail")
                failed("error", verdict.error);
            else if (verdict.kind === "acknowledge cancel" && this.#reason === "timeout")
                failed("timeout", "it ran longer than its timeout");
            return verdict;
        });
    }
    async #handle({ handler, decoder }) {
        let input;
        try {
            input = JSON.parse(this.claimed.input);
        }
        catch (error) {
            return failure(`the input cannot be decoded: ${describe(error)}`, { permanent: true });
        }
        try {
            if (decoder !== undefined)
                input = await decode(decoder, input);
        }
        catch (error) {
            // Not permanent: in a rolling deployment the next attempt may meet the newer code.
            return failure(`the input does not fit this handler: ${describe(error)}`);
        }
        try {
            return onOutput(await handler(input, this.#ctx));
        }
        catch (error) {
            return this.#verdictOn(error);
        }
    }
    #verdictOn(error) {
        try {
            return onError(error, this.#reason);
        }
        catch (mistake) {
            // Of a delay that is none.
            return failure(describe(mistake));
        }
    }
}
function traceOf(text) {
    try {
        const trace = JSON.parse(text ?? "null");
        return typeof trace === "object" && trace !== null ? trace : undefined;
    }
    catch {
        return undefined;
    }
}
