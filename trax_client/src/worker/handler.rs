//! A handler, and an attempt that it runs.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::context::Context;
use super::outcome::{
    HandlerResult, IntoOutcome, JobError, Outcome, TIMED_OUT, Verdict, verdict_on, verdict_on_stop,
};
use crate::json::Json;
use crate::telemetry::{Ended, Execution};

pub(crate) type Running = Pin<Box<dyn Future<Output = HandlerResult<Outcome>> + Send>>;
pub(crate) type Handler<S> = Arc<dyn Fn(Json, Context<S>) -> Running + Send + Sync>;

/// Turns a typed async function into a handler.
pub(crate) fn handler<S, T, F, Fut, R>(function: F) -> Handler<S>
where
    S: Send + Sync + 'static,
    T: DeserializeOwned,
    F: Fn(T, Context<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult<R>> + Send + 'static,
    R: IntoOutcome + Send + 'static,
{
    Arc::new(move |input, ctx| match read::<T>(&input) {
        Ok(input) => {
            let running = function(input, ctx);
            Box::pin(async move {
                running.await?.into_outcome().map_err(|error| {
                    JobError::permanent(format!("the output is not JSON: {error}"))
                })
            })
        }
        // JSON that no type can represent: nested too deeply, or with a number out of range.
        Err(error) if error.is_syntax() => Box::pin(async move {
            Err(JobError::permanent(format!(
                "the input cannot be decoded: {error}; a handler that takes trax_client::Json receives it as text"
            )))
        }),
        // Not permanent: during a rolling deployment the next attempt may run in newer code.
        Err(error) => Box::pin(async move {
            Err(JobError::new(format!(
                "the input does not fit this handler: {error}"
            )))
        }),
    })
}

/// Converts an input. The empty object, which a job has when no input is given, is also none.
fn read<T: DeserializeOwned>(input: &Json) -> serde_json::Result<T> {
    let is_empty = || input.text().trim() == "{}";
    input.read().or_else(|error| match is_empty() {
        true => Json::default().read().map_err(|_| error),
        false => Err(error),
    })
}

/// Runs an attempt to its verdict. A handler that does not stop within `patience` after being asked
/// to is dropped.
pub(crate) async fn attempt<S>(
    handler: Handler<S>,
    input: Json,
    ctx: Context<S>,
    patience: Duration,
) -> Verdict {
    let cancellation = ctx.cancellation().clone();
    let steps = Arc::clone(&ctx.steps);
    if let Some(reason) = cancellation.reason() {
        return verdict_on_stop(reason);
    }
    let execution = Execution::of(&ctx);
    let running = async {
        let result = execution.around(caught(|| handler(input, ctx))).await;
        if result.is_ok() {
            steps.look_back().await;
        }
        result
    };
    let overdue = async {
        let reason = cancellation.cancelled().await;
        tokio::time::sleep(patience).await;
        reason
    };
    let (verdict, panicked) = tokio::select! {
        result = running => {
            let panicked = result.as_ref().is_err_and(JobError::is_panic);
            let mut verdict = verdict_on(result, cancellation.reason());
            if let Verdict::Complete(completion) = &mut verdict {
                completion.is_noted = steps.has_completed();
                completion.note = steps.note();
            }
            (verdict, panicked)
        }
        // The handler waits in a call that never returns, and is dropped.
        () = steps.suspended() => (Verdict::Suspended, false),
        reason = overdue => (verdict_on_stop(reason), false),
    };
    execution.ended(in_short(&verdict, panicked));
    verdict
}

/// Returns the verdict in short form, for telemetry.
fn in_short(verdict: &Verdict, panicked: bool) -> Ended<'_> {
    let (outcome, failure) = match verdict {
        Verdict::Complete(_) | Verdict::Recorded => ("completed", None),
        Verdict::Fail(failure) => {
            let kind = if panicked { "panic" } else { "error" };
            ("failed", Some((kind, failure.error.as_str())))
        }
        Verdict::Suspended => ("suspended", None),
        Verdict::Release(_) => ("released", None),
        Verdict::TimedOut => ("timeout", Some(("timeout", TIMED_OUT))),
        Verdict::AcknowledgeCancel | Verdict::CancelOwn(_) => ("cancelled", None),
    };
    Ended { outcome, failure }
}

/// Runs a handler or middleware, and turns a panic into an error.
pub(crate) async fn caught<R>(
    start: impl FnOnce() -> Pin<Box<dyn Future<Output = HandlerResult<R>> + Send>>,
) -> HandlerResult<R> {
    // After a panic the future is only dropped, so its inconsistent state is never observed.
    let mut running = catch_unwind(AssertUnwindSafe(start)).map_err(panicked)?;
    poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx))) {
            Ok(poll) => poll,
            Err(payload) => Poll::Ready(Err(panicked(payload))),
        },
    )
    .await
}

fn panicked(payload: Box<dyn Any + Send>) -> JobError {
    JobError::panicked(payload.as_ref())
}
