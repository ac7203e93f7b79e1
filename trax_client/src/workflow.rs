//! Steps, waits, signals and children of jobs: the answers of the server.

use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::id::{JobId, Token};
use crate::json::Json;
use crate::not_completed::NotCompleted;

/// The job that undoes a step if its job fails for good or is cancelled.
#[derive(Clone, Debug)]
pub struct Undo {
    task: String,
    input: Json,
}

impl Undo {
    /// Returns the description of a job with this task and input.
    ///
    /// # Errors
    /// If the input cannot be represented as JSON.
    pub fn new<T: Serialize>(task: impl Into<String>, input: T) -> Result<Self> {
        Ok(Undo {
            task: task.into(),
            input: Json::of(&input)?,
        })
    }

    pub(crate) fn task(&self) -> &str {
        &self.task
    }

    pub(crate) fn document(&self) -> Result<Json> {
        #[derive(Serialize)]
        struct Document<'undo> {
            task: &'undo str,
            input: &'undo Json,
        }
        let (task, input) = (self.task.as_str(), &self.input);
        Ok(Json::of(&Document { task, input })?)
    }
}

/// The result of a step as the job keeps it.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Whether this call has recorded it; false if the job had a step of this name.
    pub recorded: bool,
    /// The kept output.
    pub output: Json,
}

/// A step that is to be recorded.
pub(crate) struct NewStep<'step> {
    pub(crate) job_id: JobId,
    pub(crate) token: Token,
    pub(crate) step: &'step str,
    pub(crate) output: &'step Json,
    pub(crate) undo: Option<&'step Undo>,
}

/// A step of a job, from [`Client::read_steps`](crate::Client::read_steps).
#[derive(Clone, Debug)]
pub struct RecordedStep {
    /// The name of the step, unique in the job.
    pub step: String,
    /// `step`, `sleep`, `signal`, `child` or `jobs`.
    pub kind: String,
    /// The result, the payload of a signal, the id of a child, or the children as they ended.
    pub output: Option<Json>,
    /// The attempt that recorded it.
    pub attempt: i32,
    /// When it was recorded. `None` for the wait in which the job is suspended.
    pub recorded_at: Option<SystemTime>,
    /// Whether the time of a wait was up before it ended otherwise.
    pub timed_out: bool,
}

/// The answer to a call that may suspend the job.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Waited<T> {
    /// The wait is over.
    Over(T),
    /// The time of the wait was up.
    TimedOut(T),
    /// The attempt has ended without being used up: the handler returns, and the job continues in
    /// another attempt when the wait is over.
    Suspended,
    /// The lease is lost. Nothing has changed.
    Lost,
}

/// The result of sending a signal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sent {
    /// The job has the signal.
    Sent,
    /// A signal with the same id was sent to the job before.
    Duplicate,
    /// The job has ended.
    Ended,
    /// The job does not exist.
    Unknown,
}

/// The children whose end a job waits for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Children {
    /// All of them.
    #[default]
    All,
    /// The first that ends.
    Any,
}

impl Children {
    pub(crate) fn mode(self) -> &'static str {
        match self {
            Children::All => "all",
            Children::Any => "any",
        }
    }
}

/// A child of a job at the end of a wait for it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Child {
    /// The step that spawned it.
    pub step: String,
    /// The job.
    pub job_id: JobId,
    /// `queued`, `in_progress`, `completed`, `failed` or `cancelled`; `None` if its history was
    /// deleted.
    pub state: Option<String>,
    /// The output of a completed child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// The error of a failed child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether outputs and errors were left out because they are together too large; `trax.job` has
    /// them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
}

impl Child {
    /// Parses the output of a completed child as `T`; a child without an output has `null`.
    ///
    /// # Errors
    /// If the child has not completed; the text has its error. If its output was left out or does
    /// not fit the type.
    pub fn output<T: DeserializeOwned>(&self) -> Result<T> {
        let state = self.state.as_deref().unwrap_or("unknown");
        let why = match (state, &self.error, self.left_out) {
            ("completed", _, false) => {
                return Ok(self.output.clone().unwrap_or_default().read()?);
            }
            (_, _, true) => {
                format!("{state}, and its output and error were left out: call Client::job")
            }
            (_, Some(error), false) => format!("{state}: {error}"),
            (_, None, false) => state.to_owned(),
        };
        Err(NotCompleted(format!("the child of step {:?} is {why}", self.step)).into())
    }
}
