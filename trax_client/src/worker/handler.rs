//! The handlers of a worker by task.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::context::Context;
use super::middleware::{Layer, around, caught};
use super::outcome::{
    HandlerResult, IntoOutcome, JobError, Outcome, TIMED_OUT, Verdict, verdict_on, verdict_on_stop,
};
use crate::json::Json;
use crate::telemetry::{Ended, Execution};

pub(crate) type Running = Pin<Box<dyn Future<Output = HandlerResult<Outcome>> + Send>>;
pub(crate) type Handler<S> = Arc<dyn Fn(Json, Context<S>) -> Running + Send + Sync>;

/// Handlers by task, and the handler for all other tasks.
pub(crate) struct Handlers<S> {
    by_task: HashMap<String, Handler<S>>,
    any: Option<Handler<S>>,
    /// The middleware around all handlers, the outermost first.
    layers: Vec<Layer<S>>,
    /// The middleware around the handlers of one task, inside `layers`.
    task_layers: Vec<(String, Layer<S>)>,
    /// A task with two handlers, which is refused when the worker starts.
    duplicate: Option<String>,
}

impl<S: Send + Sync + 'static> Handlers<S> {
    pub(crate) fn new() -> Self {
        Handlers {
            by_task: HashMap::new(),
            any: None,
            layers: Vec::new(),
            task_layers: Vec::new(),
            duplicate: None,
        }
    }

    pub(crate) fn insert(&mut self, task: String, handler: Handler<S>) {
        if self.by_task.insert(task.clone(), handler).is_some() {
            self.duplicate.get_or_insert(task);
        }
    }

    pub(crate) fn insert_any(&mut self, handler: Handler<S>) {
        self.any = Some(handler);
    }

    pub(crate) fn add_layer(&mut self, layer: Layer<S>) {
        self.layers.push(layer);
    }

    pub(crate) fn add_task_layer(&mut self, task: String, layer: Layer<S>) {
        self.task_layers.push((task, layer));
    }

    /// Returns the mistake in the handlers and its remedy, if there is one.
    pub(crate) fn mistake(&self) -> Option<String> {
        if let Some(task) = &self.duplicate {
            return Some(format!(
                "task \"{task}\" has two handlers in one worker; remove one"
            ));
        }
        if self.by_task.is_empty() && self.any.is_none() {
            return Some(
                "the worker has no handler; add one with .task(function) or .handle(name, function)"
                    .to_owned(),
            );
        }
        let (task, _) = self
            .task_layers
            .iter()
            .find(|(task, _)| !self.knows(task))?;
        Some(format!(
            "there is middleware for task \"{task}\", for which this worker has no handler; add one, or correct the name"
        ))
    }

    pub(crate) fn knows(&self, task: &str) -> bool {
        self.any.is_some() || self.by_task.contains_key(task)
    }

    /// Returns the claim's filter by task; `None` if there is a handler for all tasks.
    pub(crate) fn tasks(&self) -> Option<Vec<String>> {
        match self.any {
            Some(_) => None,
            None => Some(self.by_task.keys().cloned().collect()),
        }
    }

    /// Returns the handler of a task, wrapped in its middleware.
    pub(crate) fn get(&self, task: &str) -> Option<Handler<S>> {
        let handler = self.by_task.get(task).or(self.any.as_ref())?;
        let own = self.task_layers.iter().filter(|(name, _)| name == task);
        let inwards = self.layers.iter().chain(own.map(|(_, layer)| layer));
        Some(inwards.rev().fold(Arc::clone(handler), |inner, layer| {
            around(Arc::clone(layer), inner)
        }))
    }
}

/// Turns a typed async function into a handler.
pub(crate) fn handler<S, T, F, Fut, R>(function: F) -> Handler<S>
where
    S: Send + Sync + 'static,
    T: DeserializeOwned,
    F: Fn(T, Context<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult<R>> + Send + 'static,
    R: IntoOutcome + Send + 'static,
{
    Arc::new(move |input, ctx| match input.read::<T>() {
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

/// Runs an attempt to its verdict. A handler that does not stop within `patience` after being asked
/// to is dropped.
pub(crate) async fn attempt<S>(
    handler: Handler<S>,
    input: Json,
    ctx: Context<S>,
    patience: Duration,
) -> Verdict {
    let cancellation = ctx.cancellation().clone();
    if let Some(reason) = cancellation.reason() {
        return verdict_on_stop(reason);
    }
    let execution = Execution::of(&ctx);
    let running = execution.around(caught(|| handler(input, ctx)));
    let overdue = async {
        let reason = cancellation.cancelled().await;
        tokio::time::sleep(patience).await;
        reason
    };
    let (verdict, panicked) = tokio::select! {
        result = running => {
            let panicked = result.as_ref().is_err_and(JobError::is_panic);
            (verdict_on(result, cancellation.reason()), panicked)
        }
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
        Verdict::Release(_) => ("released", None),
        Verdict::TimedOut => ("timeout", Some(("timeout", TIMED_OUT))),
        Verdict::AcknowledgeCancel | Verdict::CancelOwn(_) => ("cancelled", None),
    };
    Ended { outcome, failure }
}
