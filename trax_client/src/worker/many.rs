//! Handlers that take many jobs in one call.
//!
//! Enters: the handlers of single jobs, each with its input and context; every job is an attempt
//! of its own. Leaves: a result for each. Holds: a call begins when it is full, or when its first
//! job has waited for `max_wait`; a job that is asked to stop before is in no call; when no handler
//! waits for a call any more, it is dropped.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::Worker;
use super::context::Context;
use super::handler::{caught, handler};
use super::outcome::{HandlerResult, JobError, Outcome};
use super::task::HandlerOutput;
use crate::id::Token;

type Key<T> = Box<dyn Fn(&T) -> String + Send + Sync>;
type Results = HandlerResult<Vec<HandlerResult<Outcome>>>;
type Call<T, S> = Box<
    dyn Fn(Vec<(T, Context<S>)>) -> Pin<Box<dyn Future<Output = Results> + Send>> + Send + Sync,
>;

/// How a worker gathers the jobs of one call of [`Worker::handle_many`].
pub struct Many<T> {
    max_jobs: usize,
    max_wait: Duration,
    key: Option<Key<T>>,
}

impl<T> Many<T> {
    /// Up to this many jobs in a call, and as many as arrive within 100 ms. The worker must be able
    /// to run as many at once: [`Worker::concurrency`].
    pub fn up_to(max_jobs: usize) -> Self {
        Many {
            max_jobs,
            max_wait: Duration::from_millis(100),
            key: None,
        }
    }

    /// How long the first job of a call waits for others at most.
    pub fn max_wait(mut self, time: Duration) -> Self {
        self.max_wait = time;
        self
    }

    /// Only jobs with equal keys are in one call.
    pub fn by<K: ToString>(mut self, key: impl Fn(&T) -> K + Send + Sync + 'static) -> Self {
        self.key = Some(Box::new(move |input| key(input).to_string()));
        self
    }
}

/// The results of one call: `()` completes all of its jobs without output, a `Vec` of `Result`s has
/// one for each, in the order of the jobs.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the result of a call with many jobs",
    note = "return `Result<(), E>`, or `Result<Vec<Result<R, E>>, E>` with a result for each job"
)]
pub trait ManyOutput {
    #[doc(hidden)]
    fn into_results(self, jobs: usize) -> Vec<HandlerResult<Outcome>>;
}

impl ManyOutput for () {
    fn into_results(self, jobs: usize) -> Vec<HandlerResult<Outcome>> {
        let each = || HandlerResult::Ok(()).into_result();
        std::iter::repeat_with(each).take(jobs).collect()
    }
}

impl<O: HandlerOutput> ManyOutput for Vec<O> {
    fn into_results(self, _: usize) -> Vec<HandlerResult<Outcome>> {
        self.into_iter().map(HandlerOutput::into_result).collect()
    }
}

impl<S: Send + Sync + 'static> Worker<S> {
    /// Runs `function` for many jobs of `task` at once: a request for a hundred rows, not a hundred
    /// requests.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use trax_client::{Context, HandlerResult, Many, Worker};
    /// # #[derive(serde::Deserialize)] struct Document { index: String }
    /// # async fn store(_: &[(Document, Context)]) -> HandlerResult<()> { Ok(()) }
    /// # fn worker(worker: Worker) -> Worker {
    /// let many = Many::up_to(100).by(|document: &Document| document.index.clone());
    /// let store_all = |documents: Vec<(Document, Context)>| async move {
    ///     store(&documents).await // An error fails all of them.
    /// };
    /// worker.concurrency(200).handle_many("index", many, store_all)
    /// # }
    /// ```
    ///
    /// Each job keeps a lease, a time limit, an attempt and an outcome of its own. An error of the
    /// function fails all jobs of the call; to fail some of them, return a `Vec` with a `Result`
    /// for each job. Waits that suspend a job (`sleep`, `signal`, `children`) are refused.
    pub fn handle_many<T, F, Fut, M, E>(
        mut self,
        task: impl Into<String>,
        many: Many<T>,
        function: F,
    ) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(Vec<(T, Context<S>)>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<M, E>> + Send + 'static,
        M: ManyOutput + Send + 'static,
        E: Into<JobError> + 'static,
    {
        let task = task.into();
        self.setup.handlers.takes_many(&task, many.max_jobs);
        let call: Call<T, S> = Box::new(move |jobs| {
            let count = jobs.len();
            let running = function(jobs);
            Box::pin(async move { Ok(running.await.map_err(Into::into)?.into_results(count)) })
        });
        let gatherer = Arc::new(Gatherer {
            task: task.clone(),
            many,
            call,
            open: Mutex::default(),
        });
        let one = move |input: T, ctx| Arc::clone(&gatherer).result_of(input, ctx);
        self.setup.handlers.insert(task, handler(one));
        self
    }
}

/// A job whose call has not begun.
struct Member<T, S> {
    input: T,
    ctx: Context<S>,
    result: oneshot::Sender<HandlerResult<Outcome>>,
}

/// The jobs of one key whose call has not begun.
struct Gathering<T, S> {
    /// The token of its first job, which may have left.
    id: Token,
    members: Vec<Member<T, S>>,
    timer: AbortHandle,
}

type Gatherings<T, S> = HashMap<String, Gathering<T, S>>;

struct Gatherer<T, S> {
    task: String,
    many: Many<T>,
    call: Call<T, S>,
    /// By key.
    open: Mutex<Gatherings<T, S>>,
}

impl<T: Send + 'static, S: Send + Sync + 'static> Gatherer<T, S> {
    fn open(&self) -> MutexGuard<'_, Gatherings<T, S>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the result of a job from the call that it is in.
    async fn result_of(self: Arc<Self>, input: T, ctx: Context<S>) -> HandlerResult<Outcome> {
        ctx.steps.joins_call();
        let key = self.many.key.as_ref().map(|key| key(&input));
        let key = key.unwrap_or_default();
        let (sender, mut result) = oneshot::channel();
        let member = Member {
            input,
            ctx: ctx.clone(),
            result: sender,
        };
        self.add(&key, member);
        let ended = tokio::select! {
            ended = &mut result => ended,
            _ = ctx.cancelled() => {
                self.leave(&key, ctx.token());
                // A call that has begun goes on, and its result counts.
                result.await
            }
        };
        ended.unwrap_or_else(|_| Err(JobError::new("asked to stop before its call began")))
    }

    fn add(self: &Arc<Self>, key: &str, member: Member<T, S>) {
        let mut open = self.open();
        let id = member.ctx.token();
        let gathering = open.entry(key.to_owned()).or_insert_with(|| Gathering {
            id,
            members: Vec::new(),
            timer: self.begin_later(key.to_owned(), id),
        });
        gathering.members.push(member);
        if gathering.members.len() >= self.many.max_jobs {
            gathering.timer.abort();
            let full = open.remove(key);
            self.begin(full);
        }
    }

    fn leave(&self, key: &str, token: Token) {
        if let Some(gathering) = self.open().get_mut(key) {
            let members = &mut gathering.members;
            members.retain(|member| member.ctx.token() != token);
        }
    }

    /// Begins the call of a gathering once its time is up, unless it was full before.
    fn begin_later(self: &Arc<Self>, key: String, id: Token) -> AbortHandle {
        let gatherer = Arc::clone(self);
        let timer = tokio::spawn(async move {
            tokio::time::sleep(gatherer.many.max_wait).await;
            let late = {
                let mut open = gatherer.open();
                let is_late = open.get(&key).is_some_and(|gathering| gathering.id == id);
                is_late.then(|| open.remove(&key)).flatten()
            };
            gatherer.begin(late);
        });
        timer.abort_handle()
    }

    /// Begins the call of the jobs whose handlers still wait.
    fn begin(self: &Arc<Self>, gathering: Option<Gathering<T, S>>) {
        let members = gathering.map(|gathering| gathering.members);
        let waiting = members.into_iter().flatten();
        let waiting = waiting.filter(|member| {
            !member.result.is_closed() && member.ctx.cancellation().reason().is_none()
        });
        let (jobs, mut waiting): (Vec<_>, Vec<_>) = waiting
            .map(|member| ((member.input, member.ctx), member.result))
            .unzip();
        if jobs.is_empty() {
            return;
        }
        let gatherer = Arc::clone(self);
        tokio::spawn(async move {
            let results = tokio::select! {
                results = caught(|| (gatherer.call)(jobs)) => results,
                () = all_closed(&mut waiting) => return,
            };
            let (wanted, task) = (waiting.len(), &gatherer.task);
            let results = results.and_then(|results| match results.len() {
                given if given == wanted => Ok(results),
                given => Err(JobError::new(format!(
                    "the handler of \"{task}\" returned {} for {}",
                    numbered(given, "result"),
                    numbered(wanted, "job")
                ))),
            });
            let results = results.unwrap_or_else(|error| vec![Err(error); wanted]);
            for (waiting, result) in waiting.into_iter().zip(results) {
                // A handler that has stopped waits for no result.
                waiting.send(result).ok();
            }
        });
    }
}

async fn all_closed<R>(waiting: &mut [oneshot::Sender<R>]) {
    for waiting in waiting {
        waiting.closed().await;
    }
}

fn numbered(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
