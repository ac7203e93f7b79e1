//! The worker's side of `trax step`: serves the steps of one attempt.
//!
//! Input: calls of the program over the socket of its attempt. Output: answers, and the reason why
//! the program must end: the server has suspended the job, or the lease is lost. The worker makes
//! the calls of the server, so that the program needs neither a connection nor the token, and
//! counts the names that are used again.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::net;
use std::time::Duration;

use serde::ser::Error;
use serde::{Deserialize, Serialize, Serializer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use trax_client::{Children, Context, HandlerResult, JobError, Json, NewJob, Undo, Waited};

use super::wire::{self, Answer, Request};

/// The pause after a call that could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// The reason why the program of an attempt must end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stop {
    Suspended,
    Lost,
}

/// The steps of one attempt.
pub(crate) struct Steps {
    name: String,
    listener: UnixListener,
    calls: JoinSet<()>,
    tell: mpsc::UnboundedSender<Stop>,
    told: mpsc::UnboundedReceiver<Stop>,
}

impl Steps {
    pub(crate) fn open(ctx: &Context) -> io::Result<Self> {
        let (own, job) = (std::process::id(), ctx.job_id());
        // Attempts of one job may meet, if the program of the one takes its time to end.
        let random = RandomState::new().hash_one(own);
        let name = format!("trax-step-{own}-{job}-{random:016x}");
        let listener = net::UnixListener::bind_addr(&wire::address(&name)?)?;
        listener.set_nonblocking(true)?;
        let (tell, told) = mpsc::unbounded_channel();
        Ok(Steps {
            name,
            listener: UnixListener::from_std(listener)?,
            calls: JoinSet::new(),
            tell,
            told,
        })
    }

    /// Returns the name of the socket.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Serves the calls until the program must end. Cancel safe.
    pub(crate) async fn stopped(&mut self, ctx: &Context) -> Stop {
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        self.calls.spawn(serve(stream, ctx.clone(), self.tell.clone()));
                    }
                    Err(_) => tokio::time::sleep(PAUSE).await,
                },
                Some(_) = self.calls.join_next() => {}
                Some(stop) = self.told.recv() => return stop,
            }
        }
    }
}

async fn serve(mut stream: UnixStream, ctx: Context, tell: mpsc::UnboundedSender<Stop>) {
    let answer = match answer(&mut stream, &ctx).await {
        // Another version's message, or another user's.
        Err(error) => Some(Answer::Failed {
            error: format!("the worker refused the call: {error}"),
            is_permanent: false,
        }),
        Ok(answer) => answer,
    };
    let stop = match &answer {
        None => Some(Stop::Suspended),
        Some(Answer::Lost) => Some(Stop::Lost),
        Some(_) => None,
    };
    if let Some(answer) = answer {
        // A caller that has ended needs no answer.
        wire::write(&mut stream, &answer).await.ok();
    }
    if let Some(stop) = stop {
        tell.send(stop).ok();
    }
    if stop == Some(Stop::Suspended) {
        // The caller waits for an answer until it is ended with the program.
        std::future::pending::<()>().await;
    }
}

/// Returns the answer to a call; none if the server has suspended the job.
async fn answer(stream: &mut UnixStream, ctx: &Context) -> io::Result<Option<Answer>> {
    wire::check_peer(stream)?;
    Ok(match wire::read(stream).await? {
        Request::Step { name, undo } => {
            // Fails if the caller ends without an output: its command has failed.
            let work = move || async move {
                wire::write(stream, &Answer::Run).await?;
                wire::read(stream).await.map(Output)
            };
            let undo = undo.map(|(task, input)| Undo::new(task, input)).transpose();
            let kept = match undo {
                Ok(None) => ctx.step(&name, work).await,
                Ok(Some(undo)) => ctx.step_with_undo(&name, undo, work).await,
                Err(error) => Err(error.into()),
            };
            Some(match kept {
                Ok(Output(Ok(output))) => Answer::Kept(output),
                Ok(Output(Err(reason))) => failed(JobError::permanent(reason)),
                Err(error) => failed(error),
            })
        }
        Request::Sleep { name, time } => {
            let slept = ctx.begin_sleep(&name, time).await;
            waited(slept)
        }
        Request::Signal {
            name,
            signal,
            timeout,
        } => waited(ctx.begin_signal(&name, &signal, timeout).await),
        Request::Spawn { name, task, input } => {
            let child = ctx.spawn(&name, &NewJob::new(task, input)).await;
            let kept = child.and_then(|id| Ok(Json::of(&id)?));
            Some(kept.map_or_else(failed, Answer::Kept))
        }
        Request::Children { name, timeout } => {
            waited(ctx.begin_children(&name, Children::All, timeout).await)
        }
    })
}

/// The output of a command, or the reason why it cannot be kept: then it has no JSON, and the work
/// that was done is undone.
#[derive(Deserialize)]
#[serde(from = "Json")]
struct Output(Result<Json, String>);

impl From<Json> for Output {
    fn from(kept: Json) -> Self {
        Output(Ok(kept))
    }
}

impl Serialize for Output {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Ok(output) => output.serialize(serializer),
            Err(reason) => Err(S::Error::custom(reason)),
        }
    }
}

fn waited<T: Serialize>(waited: HandlerResult<Waited<T>>) -> Option<Answer> {
    match waited {
        Ok(Waited::Over(value)) => Some(match Json::of(&value) {
            Ok(value) => Answer::Kept(value),
            Err(error) => failed(error.into()),
        }),
        Ok(Waited::TimedOut(_)) => Some(Answer::TimedOut),
        Ok(Waited::Suspended) => None,
        Ok(Waited::Lost) => Some(Answer::Lost),
        Err(error) => Some(failed(error)),
    }
}

fn failed(error: JobError) -> Answer {
    match error.is_lease_lost() {
        true => Answer::Lost,
        false => Answer::Failed {
            error: error.to_string(),
            is_permanent: error.is_permanent(),
        },
    }
}
