//! Middleware: functions that run around every execution, to time, log, inspect or refuse it.
//!
//! Input: functions of the [`Context`] and of the [`Next`] step. Output: one handler in which each
//! function is wrapped around the later ones. Invariants: the worker's middleware is outside that
//! of a task, each in the order of addition, and the handler is innermost; a panic anywhere fails
//! only this attempt.

use std::future::Future;
use std::sync::Arc;

use super::context::Context;
use super::handler::{Handler, Running, caught};
use super::outcome::{HandlerResult, Outcome};
use crate::json::Json;

pub(crate) type Layer<S> = Arc<dyn Fn(Context<S>, Next<S>) -> Running + Send + Sync>;

/// The rest of an execution: the middleware added later, and the handler.
///
/// Middleware that does not run it refuses the job: with `Ok(Outcome::Snooze(..))`,
/// `Err(JobError::permanent(..))` or any other outcome.
pub struct Next<S = ()> {
    inner: Handler<S>,
    input: Json,
    ctx: Context<S>,
}

impl<S> Next<S> {
    /// Returns the input of the job.
    pub fn input(&self) -> &Json {
        &self.input
    }

    /// Runs the rest, and returns its outcome. A panic becomes an error for which
    /// [`JobError::is_panic`](crate::JobError::is_panic) is true.
    pub async fn run(self) -> HandlerResult<Outcome> {
        let Next { inner, input, ctx } = self;
        caught(move || inner(input, ctx)).await
    }
}

/// Turns a function into middleware.
pub(crate) fn layer<S, F, Fut>(function: F) -> Layer<S>
where
    F: Fn(Context<S>, Next<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult<Outcome>> + Send + 'static,
{
    Arc::new(move |ctx, next| Box::pin(function(ctx, next)))
}

/// Wraps `layer` around `handler`.
pub(crate) fn around<S: Send + Sync + 'static>(layer: Layer<S>, handler: Handler<S>) -> Handler<S> {
    Arc::new(move |input, ctx: Context<S>| {
        let next = Next {
            inner: Arc::clone(&handler),
            input,
            ctx: ctx.clone(),
        };
        layer(ctx, next)
    })
}
