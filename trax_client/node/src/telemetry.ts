// Jobs in terms of OpenTelemetry's conventions for messaging, if the program has @opentelemetry/api: enqueueing sends
// a message, an execution processes it. The execution is linked to the span that enqueued the job and is not its
// child: hours, and many attempts, may lie between them.

import type * as Otel from "@opentelemetry/api";

import type { Context } from "./context.js";
import type { Trace } from "./enqueue.js";
import { ServerError } from "./errors.js";

export class Telemetry {
  readonly #api: typeof Otel | undefined;

  private constructor(api: typeof Otel | undefined) {
    this.#api = api;
  }

  static async load(): Promise<Telemetry> {
    try {
      return new Telemetry(await import("@opentelemetry/api"));
    } catch {
      return new Telemetry(undefined);
    }
  }

  /** Runs a call that enqueues jobs, with the trace to store with them. */
  async sending<T>(task: string, operation: string, run: (trace: Trace | undefined) => Promise<T>): Promise<T> {
    const api = this.#api;
    if (api === undefined) return run(undefined);
    const attributes = attributesOf("send", operation, task);
    return this.#tracer(api).startActiveSpan(`send ${task}`, { kind: api.SpanKind.PRODUCER, attributes }, async (span) => {
      try {
        const trace: Record<string, string> = {};
        api.propagation.inject(api.context.active(), trace);
        const { traceparent, tracestate } = trace;
        const result = await run(traceparent === undefined ? undefined : { traceparent, ...(tracestate && { tracestate }) });
        if (typeof result === "number") span.setAttribute("messaging.message.id", String(result));
        return result;
      } catch (error) {
        const sqlstate = error instanceof ServerError ? error.sqlstate : undefined;
        span.setAttribute("error.type", sqlstate ?? "_OTHER");
        span.setStatus({ code: api.SpanStatusCode.ERROR, message: String(error) });
        throw error;
      } finally {
        span.end();
      }
    });
  }

  /** Runs an attempt in a span. `run` reports the kind and the text of a failure, if any. */
  async executing<T>(ctx: Context, run: (failed: (kind: string, error: string) => void) => Promise<T>): Promise<T> {
    const api = this.#api;
    if (api === undefined) return run(() => undefined);
    const attributes = {
      ...attributesOf("process", "process", ctx.task),
      "messaging.message.id": String(ctx.jobId),
    };
    const sender = api.trace.getSpanContext(api.propagation.extract(api.ROOT_CONTEXT, ctx.trace ?? {}));
    const links = sender === undefined ? [] : [{ context: sender }];
    const options = { kind: api.SpanKind.CONSUMER, attributes, links };
    return this.#tracer(api).startActiveSpan(`process ${ctx.task}`, options, api.ROOT_CONTEXT, async (span) => {
      try {
        return await run((kind, error) => {
          span.setAttribute("error.type", kind);
          span.setStatus({ code: api.SpanStatusCode.ERROR, message: error });
        });
      } finally {
        span.end();
      }
    });
  }

  #tracer(api: typeof Otel): Otel.Tracer {
    return api.trace.getTracer("trax");
  }
}

function attributesOf(kind: string, operation: string, task: string): Otel.Attributes {
  return {
    "messaging.system": "trax",
    "messaging.operation.type": kind,
    "messaging.operation.name": operation,
    "messaging.destination.name": task,
  };
}
