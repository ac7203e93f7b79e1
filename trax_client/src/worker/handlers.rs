//! The handlers of a worker by task, and the middleware around them.

use std::collections::HashMap;
use std::sync::Arc;

use super::handler::Handler;
use super::middleware::{Layer, around};

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
    /// The tasks whose handlers take many jobs, and how many.
    has_two_of_any: bool,
    many: Vec<(String, usize)>,
}

impl<S: Send + Sync + 'static> Handlers<S> {
    pub(crate) fn new() -> Self {
        Handlers {
            by_task: HashMap::new(),
            any: None,
            layers: Vec::new(),
            task_layers: Vec::new(),
            duplicate: None,
            has_two_of_any: false,
            many: Vec::new(),
        }
    }

    pub(crate) fn insert(&mut self, task: String, handler: Handler<S>) {
        if self.by_task.insert(task.clone(), handler).is_some() {
            self.duplicate.get_or_insert(task);
        }
    }

    /// The handler of this task takes up to `max_jobs` in one call.
    pub(crate) fn takes_many(&mut self, task: &str, max_jobs: usize) {
        self.many.push((task.to_owned(), max_jobs));
    }

    pub(crate) fn insert_any(&mut self, handler: Handler<S>) {
        self.has_two_of_any |= self.any.replace(handler).is_some();
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
        if self.has_two_of_any {
            return Some(
                "the worker has two handlers of any task; remove one of .handle_any(...)"
                    .to_owned(),
            );
        }
        if self.by_task.is_empty() && self.any.is_none() {
            return Some(
                "the worker has no handler; add one with .task(function) or .handle(name, function)"
                    .to_owned(),
            );
        }
        if self.by_task.contains_key("sql") {
            return Some(
                "task \"sql\" is that of SQL jobs, which the server runs: queue them with Client::enqueue_sql"
                    .to_owned(),
            );
        }
        let is_no_name = |task: &&String| task.is_empty() || task.trim() != **task;
        if let Some(task) = self.by_task.keys().find(is_no_name) {
            return Some(format!(
                "task \"{task}\" is empty, or begins or ends with a space, as no task does; correct the name"
            ));
        }
        let (task, _) = self
            .task_layers
            .iter()
            .find(|(task, _)| !self.knows(task))?;
        Some(format!(
            "there is middleware for task \"{task}\", for which this worker has no handler; add one, or correct the name"
        ))
    }

    /// Returns the mistake in a handler of many jobs for a worker that runs `concurrency` at once.
    pub(crate) fn too_many(&self, concurrency: usize) -> Option<String> {
        if let Some((task, _)) = self.many.iter().find(|(_, max_jobs)| *max_jobs == 0) {
            return Some(format!(
                "the handler of \"{task}\" takes no job at once; type Many::up_to(100)"
            ));
        }
        let (task, max_jobs) = self.many.iter().find(|(_, most)| *most > concurrency)?;
        Some(format!(
            "the handler of \"{task}\" takes {max_jobs} jobs at once, and the worker runs {concurrency}: \
             type .concurrency({max_jobs}), or Many::up_to({concurrency})"
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
