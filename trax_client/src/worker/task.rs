//! Handlers as people like to write them: an async function of its input and of what else it needs.
//!
//! Enters: a function whose first argument is a [`Task`], the type of its input, and whose others
//! are extractors ([`FromContext`]). Leaves: a handler under the task's name. A mistake is an error
//! of the compiler that says what a handler looks like.

use std::future::Future;

use serde::de::DeserializeOwned;

use super::cancellation::Cancellation;
use super::context::Context;
use super::handler::{Handler, handler};
use super::outcome::{HandlerResult, IntoOutcome, JobError, Outcome};
use crate::id::JobId;
use crate::task::Task;

/// What a handler can take beside its input.
#[diagnostic::on_unimplemented(
    message = "a handler cannot take `{Self}` of a worker whose state is `{S}`",
    note = "after the input a handler takes any of: `Context<S>`, `State<T>` (a part of the state, by `FromState`), \
            `Cancellation`, `JobId`"
)]
pub trait FromContext<S>: Sized {
    /// Takes it out of the attempt.
    fn from_context(ctx: &Context<S>) -> Self;
}

impl<S> FromContext<S> for Context<S> {
    fn from_context(ctx: &Context<S>) -> Self {
        ctx.clone()
    }
}

impl<S> FromContext<S> for Cancellation {
    fn from_context(ctx: &Context<S>) -> Self {
        ctx.cancellation().clone()
    }
}

impl<S> FromContext<S> for JobId {
    fn from_context(ctx: &Context<S>) -> Self {
        ctx.job_id()
    }
}

/// The worker's shared state, or a part of it, as an argument of a handler.
#[derive(Clone, Copy, Debug)]
pub struct State<T>(pub T);

/// A part of the shared state `S`, cheap to clone (a pool, an `Arc`). The whole state is a part of
/// itself.
pub trait FromState<S> {
    /// Takes the part.
    fn from_state(state: &S) -> Self;
}

impl<S: Clone> FromState<S> for S {
    fn from_state(state: &S) -> Self {
        state.clone()
    }
}

impl<S, T: FromState<S>> FromContext<S> for State<T> {
    fn from_context(ctx: &Context<S>) -> Self {
        State(T::from_state(ctx.state()))
    }
}

/// An async function that can run the jobs of a task.
///
/// Its first argument is the input, a [`Task`]; up to five others are extractors. It gives
/// `Result<T, E>`: `T` is written as the output, or is an [`Outcome`]; every `std::error::Error` is
/// an `E`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of this worker",
    note = "a handler is `async fn(input: T, ...) -> Result<R, JobError>`: `T` implements `Task` and `Deserialize`, the \
            other arguments implement `FromContext`, `R` implements `Serialize`, and its future is `Send`"
)]
pub trait TaskHandler<S, Arguments>: Sized {
    /// The name of the task that it runs.
    const NAME: &'static str;

    #[doc(hidden)]
    fn into_handler(self) -> Handler<S>;
}

macro_rules! task_handler {
    ($($extractor:ident),*) => {
        impl<S, F, Fut, R, E, T, $($extractor,)*> TaskHandler<S, (T, $($extractor,)*)> for F
        where
            S: Send + Sync + 'static,
            F: Fn(T, $($extractor,)*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = Result<R, E>> + Send + 'static,
            R: IntoOutcome + Send + 'static,
            E: Into<JobError> + 'static,
            T: Task + DeserializeOwned + 'static,
            $($extractor: FromContext<S>,)*
        {
            const NAME: &'static str = T::NAME;

            #[allow(unused_variables)]
            fn into_handler(self) -> Handler<S> {
                handler(move |input: T, ctx: Context<S>| {
                    ended(self(input, $($extractor::from_context(&ctx),)*))
                })
            }
        }
    };
}

task_handler!();
task_handler!(A1);
task_handler!(A1, A2);
task_handler!(A1, A2, A3);
task_handler!(A1, A2, A3, A4);
task_handler!(A1, A2, A3, A4, A5);

/// Returns the result of a handler in the form that all handlers share.
async fn ended<R: IntoOutcome, E: Into<JobError>>(
    running: impl Future<Output = Result<R, E>>,
) -> HandlerResult<Outcome> {
    let output = running.await.map_err(Into::into)?;
    output
        .into_outcome()
        .map_err(|error| JobError::permanent(format!("the output is not JSON: {error}")))
}
