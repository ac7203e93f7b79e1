//! The steps of an attempt: what a handler records and waits for.
//!
//! A handler calls the server through a channel. The other end serves the calls: in a worker over
//! one connection for all its handlers, which is opened at the first call; in a test that runs a
//! job inline, over the test's own connection.
//!
//! When the server has suspended the job, the handler's call never returns: the worker drops the
//! handler, which therefore cannot continue by mistake.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OnceCell, mpsc, oneshot};
use tokio_postgres::GenericClient;

use super::connection::{Connection, open};
use crate::address::Address;
use crate::client::Client;
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
    job_id: JobId,
    token: Token,
    call: Call,
}

/// The end of the channel for handlers.
pub(crate) type Caller = mpsc::UnboundedSender<Request>;

/// Answers one call. The handler may be gone.
pub(crate) async fn answer<C: GenericClient + Sync>(client: &Client<'_, C>, request: Request) {
    let Request {
        job_id,
        token,
        call,
    } = request;
    match call {
        Call::Read(reply) => drop(reply.send(client.read_steps(job_id).await)),
        Call::Record(step, output, undo, reply) => {
            let recorded = client.record_step(job_id, token, &step, &output, undo.as_ref());
            drop(reply.send(recorded.await));
        }
        Call::Sleep(step, time, reply) => {
            drop(reply.send(client.sleep(job_id, token, &step, time).await));
        }
        Call::Signal(step, name, timeout, reply) => {
            let received = client.await_signal(job_id, token, &step, &name, timeout);
            drop(reply.send(received.await));
        }
        Call::Spawn(step, child, reply) => {
            drop(reply.send(client.spawn(job_id, token, &step, &child).await));
        }
        Call::Children(step, children, timeout, reply) => {
            let ended = client.await_children(job_id, token, &step, children, timeout);
            drop(reply.send(ended.await));
        }
    }
}

/// Serves the calls of the handlers of a worker, each by itself, until no handler can call any
/// more.
pub(crate) fn serve(address: Address) -> Caller {
    let (caller, mut requests) = mpsc::unbounded_channel::<Request>();
    tokio::spawn(async move {
        let mut connection: Option<Arc<Connection>> = None;
        while let Some(request) = requests.recv().await {
            let is_open = connection.as_ref().is_some_and(|open| !open.is_closed());
            if !is_open {
                connection = open(&address).await.ok().map(Arc::new);
            }
            match &connection {
                Some(connection) => {
                    let connection = Arc::clone(connection);
                    tokio::spawn(async move {
                        answer(&Client::new(&**connection), request).await;
                    });
                }
                // The handler's end of the reply reports it, and calls again.
                None => drop(request),
            }
        }
    });
    caller
}

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
