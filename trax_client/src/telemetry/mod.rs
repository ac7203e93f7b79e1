//! Jobs in tracing systems: a span around each execution and, with OpenTelemetry, one around each
//! enqueueing.
//!
//! The rest of the crate uses [`Execution`] and [`Enqueueing`] regardless of its features; without
//! the features they do nothing.

#[cfg(feature = "opentelemetry")]
mod opentelemetry;
#[cfg(feature = "tracing")]
mod span;

use std::future::Future;

use crate::error::Result;
use crate::json::Json;
use crate::worker::context::Context;

/// The `tracing` target of all events of this crate: `RUST_LOG=trax=debug` shows them.
#[cfg(feature = "tracing")]
pub(crate) const TARGET: &str = "trax";

/// The end of an execution, for a span.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "tracing"), expect(dead_code))]
pub(crate) struct Ended<'a> {
    /// `completed`, `failed`, `released`, `cancelled` or `timeout`.
    pub(crate) outcome: &'static str,
    /// The kind and the text of the failure, if any.
    pub(crate) failure: Option<(&'static str, &'a str)>,
}

/// The span of an execution.
pub(crate) struct Execution {
    #[cfg(feature = "tracing")]
    span: span::Span,
}

#[cfg(feature = "tracing")]
impl Execution {
    pub(crate) fn of<S>(ctx: &Context<S>) -> Self {
        let span = span::execution(ctx);
        Execution { span }
    }

    /// Runs a future within the span, so that its log events show the job.
    pub(crate) fn around<F: Future>(&self, running: F) -> impl Future<Output = F::Output> + use<F> {
        span::within(&self.span, running)
    }

    pub(crate) fn ended(&self, ended: Ended<'_>) {
        span::ended(&self.span, ended);
    }
}

#[cfg(not(feature = "tracing"))]
impl Execution {
    pub(crate) fn of<S>(_: &Context<S>) -> Self {
        Execution {}
    }

    pub(crate) fn around<F: Future>(&self, running: F) -> F {
        running
    }

    pub(crate) fn ended(&self, _: Ended<'_>) {}
}

/// The span of a call that enqueues jobs.
pub(crate) struct Enqueueing {
    #[cfg(feature = "opentelemetry")]
    span: span::Span,
}

#[cfg(feature = "opentelemetry")]
impl Enqueueing {
    /// Begins the span for one job, or for a batch of `batch` jobs.
    pub(crate) fn of(task: &str, batch: Option<usize>) -> Self {
        let span = opentelemetry::enqueueing(task, batch);
        Enqueueing { span }
    }

    /// Begins the span for any number of jobs of any tasks.
    pub(crate) fn of_any() -> Self {
        let span = opentelemetry::copying();
        Enqueueing { span }
    }

    /// Returns the trace that is stored with the jobs: the caller's if given, otherwise this
    /// span's.
    pub(crate) fn trace(&self, given: Option<&Json>) -> Option<Json> {
        given
            .cloned()
            .or_else(|| opentelemetry::outgoing(&self.span))
    }

    /// Makes the call and records its result. `id` returns the id if it enqueued a single job.
    pub(crate) async fn around<T>(
        &self,
        call: impl Future<Output = Result<T>>,
        id: impl Fn(&T) -> Option<i64>,
    ) -> Result<T> {
        let result = span::within(&self.span, call).await;
        opentelemetry::enqueued(&self.span, result.as_ref().map(id));
        result
    }
}

#[cfg(not(feature = "opentelemetry"))]
impl Enqueueing {
    pub(crate) fn of(_: &str, _: Option<usize>) -> Self {
        Enqueueing {}
    }

    pub(crate) fn of_any() -> Self {
        Enqueueing {}
    }

    pub(crate) fn trace(&self, given: Option<&Json>) -> Option<Json> {
        given.cloned()
    }

    pub(crate) async fn around<T>(
        &self,
        call: impl Future<Output = Result<T>>,
        _: impl Fn(&T) -> Option<i64>,
    ) -> Result<T> {
        call.await
    }
}
