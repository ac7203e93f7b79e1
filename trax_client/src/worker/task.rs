//! Handlers as async functions of an input and further arguments.
//!
//! Input: a function whose first argument is a [`Task`](crate::Task), the type of its input, and
//! whose other arguments are extractors ([`FromContext`]). Output: a handler under the task's name.
//! Invariant: the shape of a function alone decides whether it is a handler, and each of its types
//! is checked separately, so that a compiler error names the wrong type.

use std::future::Future;

use serde::de::DeserializeOwned;

use super::cancellation::Cancellation;
use super::context::Context;
use super::handler::{Handler, handler};
use super::outcome::{HandlerResult, IntoOutcome, JobError, Outcome};
use crate::id::JobId;

/// An argument that a handler can take beside its input.
#[diagnostic::on_unimplemented(
    message = "a handler cannot take `{Self}` from a worker whose state is `{S}`",
    note = "the input comes first; after it a handler takes any of: `Context<S>` with the state of the worker, \
            `State<T>` with a part of it, `Cancellation`, `JobId`"
)]
pub trait FromContext<S>: Sized {
    /// Extracts the argument from the attempt.
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
#[diagnostic::on_unimplemented(
    message = "the state of this worker, `{S}`, has no part `{Self}`",
    note = "begin with `Worker::with_state(address, state)`; for a part of it `impl FromState<{S}> for {Self}`"
)]
pub trait FromState<S> {
    /// Returns the part.
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

/// An async function of an input and of up to five extractors.
///
/// [`Worker::task`](super::Worker::task) describes the requirements on each.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    label = "this is not an async function of one to six arguments",
    note = "a handler is `async fn(input: T, ...) -> Result<R, E>`: its input, then up to five extractors"
)]
pub trait TaskHandler<Arguments> {
    /// The first argument.
    type Input;
    /// The other arguments, as a tuple.
    type Extractors;
    /// The future that the function returns.
    type Running;

    #[doc(hidden)]
    fn call(&self, input: Self::Input, extractors: Self::Extractors) -> Self::Running;
}

macro_rules! task_handler {
    ($($extractor:ident),*) => {
        impl<F, Running, Input, $($extractor,)*> TaskHandler<(Input, $($extractor,)*)> for F
        where
            F: Fn(Input, $($extractor,)*) -> Running,
        {
            type Input = Input;
            type Extractors = ($($extractor,)*);
            type Running = Running;

            #[allow(non_snake_case)]
            fn call(&self, input: Input, ($($extractor,)*): ($($extractor,)*)) -> Running {
                self(input, $($extractor,)*)
            }
        }

        impl<S, $($extractor: FromContext<S>,)*> FromContext<S> for ($($extractor,)*) {
            #[allow(clippy::unused_unit, unused_variables)]
            fn from_context(ctx: &Context<S>) -> Self {
                ($($extractor::from_context(ctx),)*)
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

/// The return type of a handler: `Result<R, E>`, where `R` is the output or an [`Outcome`], and `E`
/// any error that `?` turns into a [`JobError`].
#[diagnostic::on_unimplemented(
    message = "a handler returns a `Result`, not `{Self}`",
    note = "return `Result<R, E>`: `R` implements `serde::Serialize`, `E` is any error, `HandlerResult<R>` is short for one"
)]
pub trait HandlerOutput {
    #[doc(hidden)]
    fn into_result(self) -> HandlerResult<Outcome>;
}

impl<R: IntoOutcome, E: Into<JobError>> HandlerOutput for Result<R, E> {
    fn into_result(self) -> HandlerResult<Outcome> {
        let output = self.map_err(Into::into)?;
        output
            .into_outcome()
            .map_err(|error| JobError::permanent(format!("the output is not JSON: {error}")))
    }
}

/// Turns an async function into the handler of its task.
pub(crate) fn task_handler<S, Arguments, H>(function: H) -> Handler<S>
where
    S: Send + Sync + 'static,
    H: TaskHandler<Arguments> + Send + Sync + 'static,
    H::Input: DeserializeOwned,
    H::Extractors: FromContext<S>,
    H::Running: Future<Output: HandlerOutput> + Send + 'static,
{
    handler(move |input: H::Input, ctx: Context<S>| {
        let running = function.call(input, H::Extractors::from_context(&ctx));
        async move { running.await.into_result() }
    })
}
