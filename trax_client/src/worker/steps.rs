//! The steps of an attempt: what a handler records and waits for.
//!
//! A handler calls the server through a channel, whose other end serves the calls (`step_server`).
//!
//! When the server has suspended the job, the handler's call never returns: the worker drops the
//! handler, which therefore cannot continue by mistake.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OnceCell, mpsc, oneshot};

use super::outcome::{HandlerResult, JobError};
use crate::error::{Blame, Error, Result};
use crate::id::{JobId, Token};
use crate::job::{Claimed, NewJob};
use crate::json::Json;
use crate::note::Note;
use crate::reached;
use crate::reached::Reached;
use crate::workflow::{Child, Children, NewStep, Recorded, RecordedStep, Undo, Waited};

/// The number of times that a call is made again over a new connection, and the pause before.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// A call of a handler.
pub(crate) enum Call {
    Read(oneshot::Sender<Result<Vec<RecordedStep>>>),
    Record(
        String,
        Json,
        Option<Undo>,
        oneshot::Sender<Result<Option<Recorded>>>,
    ),
    /// A step that is done and cannot be recorded, with its undo and the error.
    Fail(String, Undo, String, oneshot::Sender<Result<()>>),
    Sleep(String, Duration, oneshot::Sender<Result<Waited<()>>>),
    Signal(
        String,
        String,
        Option<Duration>,
        oneshot::Sender<Result<Waited<Json>>>,
    ),
    Spawn(
        String,
        Box<NewJob<Json>>,
        oneshot::Sender<Result<Option<JobId>>>,
    ),
    Children(
        String,
        Children,
        Option<Duration>,
        oneshot::Sender<Result<Waited<Vec<Child>>>>,
    ),
}

/// A call and the lease of its job.
pub(crate) struct Request {
    pub(super) job_id: JobId,
    pub(super) token: Token,
    pub(super) call: Call,
}

impl Request {
    /// Returns the step that the call records.
    pub(super) fn step(&self) -> Option<NewStep<'_>> {
        match &self.call {
            Call::Record(step, output, undo, _) => Some(NewStep {
                job_id: self.job_id,
                token: self.token,
                step,
                output,
                undo: undo.as_ref(),
            }),
            _ => None,
        }
    }
}

/// The end of the channel for handlers.
pub(crate) type Caller = mpsc::UnboundedSender<Request>;

/// A use of a step's name. If it ends before the step is done, because the work has failed or was
/// dropped, the next use gets the name.
pub(crate) struct Use<'steps> {
    steps: &'steps Steps,
    step: String,
    is_done: bool,
}

impl Use<'_> {
    pub(crate) fn step(&self) -> &str {
        &self.step
    }

    /// The name is used up; returns it.
    pub(crate) fn done(mut self) -> String {
        self.is_done = true;
        std::mem::take(&mut self.step)
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.steps.used().remove(&self.step);
        }
    }
}

/// The steps of one attempt.
pub(crate) struct Steps {
    job_id: JobId,
    token: Token,
    /// How many steps earlier attempts have recorded.
    recorded: usize,
    /// The calls that the handler makes by its own clients.
    by_itself: Reached,
    caller: Caller,
    kept: OnceCell<HashMap<String, RecordedStep>>,
    /// The names that are in use, or done.
    used: Mutex<HashSet<String>>,
    suspended: Notify,
    /// The job is in a call with others, which a wait would suspend.
    is_in_call: AtomicBool,
}

impl Steps {
    pub(crate) fn new(claimed: &Claimed, caller: Caller) -> Self {
        let recorded = usize::try_from(claimed.steps).unwrap_or(0);
        Steps {
            job_id: claimed.job_id,
            token: claimed.token,
            recorded,
            by_itself: Reached::of(claimed.token, recorded),
            caller,
            kept: OnceCell::new(),
            used: Mutex::default(),
            suspended: Notify::new(),
            is_in_call: AtomicBool::new(false),
        }
    }

    fn used(&self) -> MutexGuard<'_, HashSet<String>> {
        // No code panics under the lock.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to use a name: the second is `name#2`.
    pub(crate) fn begin(&self, name: &str) -> HandlerResult<Use<'_>> {
        let mut used = self.used();
        let mut step = name.to_owned();
        let mut number = 1;
        while used.contains(&step) {
            number += 1;
            step = format!("{name}#{number}");
        }
        check_name("the name of a step", &step)?;
        reached::reach(self.token, &step);
        used.insert(step.clone());
        Ok(Use {
            steps: self,
            step,
            is_done: false,
        })
    }

    /// Refuses waits from here on.
    pub(crate) fn joins_call(&self) {
        self.is_in_call.store(true, Ordering::Relaxed);
    }

    /// Begins to use the name of a wait.
    pub(crate) fn begin_wait(&self, name: &str) -> HandlerResult<Use<'_>> {
        if self.is_in_call.load(Ordering::Relaxed) {
            return Err(JobError::permanent(format!(
                "step \"{name}\" cannot suspend a job of a call with others; write a handler for one job"
            )));
        }
        self.begin(name)
    }

    /// Returns the kept result of a step of an earlier attempt.
    pub(crate) async fn kept(&self, step: &str) -> HandlerResult<Option<Json>> {
        match self.all_kept().await?.get(step) {
            None => Ok(None),
            Some(kept) if kept.kind == "step" => Ok(Some(kept.output.clone().unwrap_or_default())),
            Some(kept) => Err(JobError::permanent(format!(
                "step \"{step}\" was recorded as {}; give each step of a job a name of its own",
                kept.kind
            ))),
        }
    }

    async fn all_kept(&self) -> Result<&HashMap<String, RecordedStep>> {
        let read = async {
            if self.recorded == 0 {
                return Ok(HashMap::new());
            }
            let steps = self.call(Call::Read).await?;
            reached::were_recorded(self.token, steps.iter().map(|step| step.step.clone()));
            Ok(steps
                .into_iter()
                .map(|step| (step.step.clone(), step))
                .collect())
        };
        self.kept.get_or_try_init(|| read).await
    }

    /// Reads the recorded steps for [`unreached`](Self::unreached), if the handler has read none
    /// and has reached fewer by its own clients.
    pub(crate) async fn look_back(&self) {
        if reached::needs_names(self.token) {
            // Without an answer the event and the note are left out.
            self.all_kept().await.ok();
        }
    }

    /// Returns the steps of earlier attempts that this one has not reached.
    pub(crate) fn unreached(&self) -> Vec<String> {
        match self.recorded {
            0 => Vec::new(),
            _ => reached::unreached(self.token),
        }
    }

    /// Returns the note for the completion of a job.
    pub(crate) fn note(&self) -> Note {
        match self.recorded {
            0 => Note::default(),
            _ => Note::of(self.token),
        }
    }

    /// Returns whether the handler has completed the job by its own client.
    pub(crate) fn has_completed(&self) -> bool {
        self.by_itself.has_completed()
    }

    /// Makes a call, and again over a new connection when one breaks: each call may be repeated.
    pub(crate) async fn call<T>(
        &self,
        mut call: impl FnMut(oneshot::Sender<Result<T>>) -> Call,
    ) -> Result<T> {
        let mut tries = 0;
        loop {
            tries += 1;
            let (reply, answer) = oneshot::channel();
            let request = Request {
                job_id: self.job_id,
                token: self.token,
                call: call(reply),
            };
            // Dropped with the request while the server cannot be reached.
            self.caller.send(request).ok();
            let unreachable = || Error::Connection("the server cannot be reached".into());
            match answer.await.unwrap_or_else(|_| Err(unreachable())) {
                Err(error) if error.blame() == Blame::Connection && tries < TRIES => {
                    tokio::time::sleep(PAUSE * tries).await;
                }
                answer => return answer,
            }
        }
    }

    /// Ends the handler: the job is suspended. Never returns.
    pub(crate) async fn suspend<T>(&self) -> T {
        self.suspended.notify_one();
        std::future::pending().await
    }

    /// Completes when the server has suspended the job.
    pub(crate) async fn suspended(&self) {
        self.suspended.notified().await;
    }
}

/// The most bytes of a name.
const NAME_BYTES: usize = 255;

/// Refuses a name that the server would refuse after the work is done.
pub(crate) fn check_name(what: &str, name: &str) -> HandlerResult<()> {
    let wrong = if name.is_empty() {
        "is empty".to_owned()
    } else if name.trim() != name {
        format!("\"{name}\" begins or ends with white space")
    } else if name.contains('\0') {
        format!("{name:?} has the character NUL")
    } else if name.len() > NAME_BYTES {
        let begin: String = name.chars().take(20).collect();
        format!(
            "\"{begin}...\" has {} bytes; write at most {NAME_BYTES}",
            name.len()
        )
    } else {
        return Ok(());
    };
    Err(JobError::permanent(format!("{what} {wrong}")))
}
