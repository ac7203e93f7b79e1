//! The span of an execution, in `tracing`.

use std::future::Future;

pub(crate) use tracing::Span;
use tracing::{Instrument, debug, field, info_span};

use super::{Ended, TARGET};
use crate::worker::context::Context;

/// Begins a separate trace: the span that enqueued the job may have ended long ago.
#[cfg(not(feature = "opentelemetry"))]
pub(super) fn execution<S>(ctx: &Context<S>) -> Span {
    info_span!(
        target: TARGET,
        parent: None,
        "job",
        job_id = ctx.job_id().0,
        attempt = ctx.attempt(),
        task = ctx.task(),
        group = ctx.group(),
        outcome = field::Empty,
    )
}

/// Begins the same span with the attributes that OpenTelemetry needs. Some are fields, as its name
/// and kind can be set in no other way.
#[cfg(feature = "opentelemetry")]
pub(super) fn execution<S>(ctx: &Context<S>) -> Span {
    let span = info_span!(
        target: TARGET,
        parent: None,
        "job",
        job_id = ctx.job_id().0,
        attempt = ctx.attempt(),
        task = ctx.task(),
        group = ctx.group(),
        outcome = field::Empty,
        otel.name = format_args!("process {}", ctx.task()),
        otel.kind = "consumer",
    );
    super::opentelemetry::executing(&span, ctx);
    span
}

pub(super) fn within<F: Future>(
    span: &Span,
    running: F,
) -> impl Future<Output = F::Output> + use<F> {
    running.instrument(span.clone())
}

pub(super) fn ended(span: &Span, ended: Ended<'_>) {
    span.record("outcome", ended.outcome);
    let error = ended.failure.map(|(_, error)| error);
    span.in_scope(|| debug!(target: TARGET, error, "{}", ended.outcome));
    #[cfg(feature = "opentelemetry")]
    super::opentelemetry::executed(span, ended);
}
