//! The steps of an attempt: what a handler records and waits for.
//!
//! A handler calls the server through a channel, whose other end serves the calls (`step_server`).
//!
//! When the server has suspended the job, the handler's call never returns: the worker drops the
//! handler, which therefore cannot continue by mistake.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OnceCell, mpsc, oneshot};

use crate::error::{Blame, Error, Result};
use crate::id::{JobId, Token};
use crate::job::{Claimed, NewJob};
use crate::json::Json;
use crate::workflow::{Child, Children, Recorded, RecordedStep, Undo, Waited};

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
    Sleep(String, Duration, oneshot::Sender<Result<Waited<()>>>),
    Signal(
        String,
        String,
        Option<Duration>,
        oneshot::Sender<Result<Waited<Json>>>,
    ),
    Spawn(String, NewJob<Json>, oneshot::Sender<Result<Option<JobId>>>),
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

/// The end of the channel for handlers.
pub(crate) type Caller = mpsc::UnboundedSender<Request>;

/// The steps of one attempt.
pub(crate) struct Steps {
    job_id: JobId,
    token: Token,
    has_kept: bool,
    caller: Caller,
    kept: OnceCell<HashMap<String, RecordedStep>>,
    /// How often each name was used, and the steps that were reached.
    used: Mutex<(HashMap<String, u32>, HashSet<String>)>,
    suspended: Notify,
}

impl Steps {
    pub(crate) fn new(claimed: &Claimed, caller: Caller) -> Self {
        Steps {
            job_id: claimed.job_id,
            token: claimed.token,
            has_kept: claimed.steps > 0,
            caller,
            kept: OnceCell::new(),
            used: Mutex::default(),
            suspended: Notify::new(),
        }
    }

    fn used(&self) -> MutexGuard<'_, (HashMap<String, u32>, HashSet<String>)> {
        // No code panics under the lock.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name under which this use of a name is recorded: the second is `name#2`.
    pub(crate) fn name(&self, name: &str) -> String {
        let mut used = self.used();
        let count = used.0.entry(name.to_owned()).or_default();
        *count += 1;
        let name = match *count {
            1 => name.to_owned(),
            more => format!("{name}#{more}"),
        };
        used.1.insert(name.clone());
        name
    }

    /// Returns the kept result of a step of an earlier attempt.
    pub(crate) async fn kept(&self, step: &str) -> Result<Option<Json>> {
        let kept = self.all_kept().await?;
        Ok(kept
            .get(step)
            .filter(|kept| kept.kind == "step")
            .map(|kept| kept.output.clone().unwrap_or_default()))
    }

    async fn all_kept(&self) -> Result<&HashMap<String, RecordedStep>> {
        let read = async {
            if !self.has_kept {
                return Ok(HashMap::new());
            }
            let steps = self.call(Call::Read).await?;
            Ok(steps
                .into_iter()
                .map(|step| (step.step.clone(), step))
                .collect())
        };
        self.kept.get_or_try_init(|| read).await
    }

    /// Returns the steps of earlier attempts that this one has not reached: the code has changed
    /// under a living job.
    pub(crate) fn unreached(&self) -> Vec<String> {
        let used = self.used();
        let kept = self.kept.get().into_iter().flat_map(HashMap::keys);
        let mut left: Vec<String> = kept
            .filter(|step| !used.1.contains(*step))
            .cloned()
            .collect();
        left.sort_unstable();
        left
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
