//! Jobs in terms of OpenTelemetry's conventions for messaging: enqueueing sends a message, an
//! execution processes it.
//!
//! See <https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans>. The execution is
//! linked to the span that enqueued the job and is not its child: hours, and many attempts, may lie
//! between them.

use ::opentelemetry::Context as Current;
use ::opentelemetry::trace::{
    SpanContext, SpanId, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
};
use tracing::{Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::{Ended, TARGET};
use crate::error::Error;
use crate::json::Json;
use crate::trace::TraceContext;
use crate::worker::context::Context;

/// Returns the span of a call that enqueues jobs, a child of the caller's span.
pub(super) fn enqueueing(task: &str, batch: Option<usize>) -> Span {
    let span = info_span!(
        target: TARGET,
        "enqueue",
        task,
        otel.name = format_args!("send {task}"),
        otel.kind = "producer",
    );
    let operation = match batch {
        None => "enqueue",
        Some(_) => "enqueue_many",
    };
    describe(&span, "send", operation, Some(task));
    if let Some(jobs) = batch {
        let jobs = i64::try_from(jobs).unwrap_or(i64::MAX);
        span.set_attribute("messaging.batch.message_count", jobs);
    }
    span
}

/// Returns the span of a statement that enqueues jobs of any tasks, a child of the caller's span.
pub(super) fn copying() -> Span {
    let span = info_span!(
        target: TARGET,
        "enqueue",
        otel.name = "send",
        otel.kind = "producer",
    );
    describe(&span, "send", "copy_in", None);
    span
}

fn describe(span: &Span, kind: &'static str, operation: &'static str, task: Option<&str>) {
    span.set_attribute("messaging.system", "trax");
    span.set_attribute("messaging.operation.type", kind);
    span.set_attribute("messaging.operation.name", operation);
    if let Some(task) = task {
        span.set_attribute("messaging.destination.name", task.to_owned());
    }
}

/// Returns the trace to store with jobs that this span enqueues. If this span is not recorded, the
/// caller's span is used.
pub(super) fn outgoing(span: &Span) -> Option<Json> {
    let own = span.context().span().span_context().clone();
    let sender = if own.is_valid() {
        own
    } else {
        Current::current().span().span_context().clone()
    };
    let context = TraceContext::of(
        u128::from_be_bytes(sender.trace_id().to_bytes()),
        u64::from_be_bytes(sender.span_id().to_bytes()),
        sender.trace_flags().to_u8(),
    )
    .ok()?;
    // An invalid tracestate is left out; the rest is kept.
    let state = sender.trace_state().header();
    let context = context.clone().with_state(&state).unwrap_or(context);
    Some(context.to_json())
}

/// Records the end of a call that enqueued jobs, with the id of a single job.
pub(super) fn enqueued(span: &Span, result: Result<Option<i64>, &Error>) {
    match result {
        Ok(Some(id)) => span.set_attribute("messaging.message.id", id.to_string()),
        Ok(None) => {}
        Err(error) => {
            let kind = match error.report() {
                Some(report) => report.sqlstate.clone(),
                None => "_OTHER".to_owned(),
            };
            span.set_attribute("error.type", kind);
            span.set_status(Status::error(error.to_string()));
        }
    }
}

/// Records the attributes known when an execution begins.
pub(super) fn executing<S>(span: &Span, ctx: &Context<S>) {
    describe(span, "process", "process", Some(ctx.task()));
    span.set_attribute("messaging.message.id", ctx.job_id().to_string());
    if let Some(trace) = ctx.trace_context() {
        span.add_link(remote(&trace));
    }
}

fn remote(trace: &TraceContext) -> SpanContext {
    let state = trace.tracestate().unwrap_or_default();
    SpanContext::new(
        TraceId::from_bytes(trace.trace_id().to_be_bytes()),
        SpanId::from_bytes(trace.span_id().to_be_bytes()),
        TraceFlags::new(trace.flags()),
        true,
        state.parse::<TraceState>().unwrap_or_default(),
    )
}

/// Records the outcome of the attempt as the status. Released and cancelled attempts are not
/// failures.
pub(super) fn executed(span: &Span, ended: Ended<'_>) {
    if let Some((kind, error)) = ended.failure {
        span.set_attribute("error.type", kind);
        span.set_status(Status::error(error.to_owned()));
    }
}
