//! Events that a worker reports while it runs, for logs.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Blame, Error};
use crate::id::JobId;
use crate::operate::AppliedChange;

/// The maximum number of tasks named in a line.
const TASKS_SHOWN: usize = 10;

/// An event of interest to an operator. `Display` writes one line, which shortens a long error to
/// its beginning and end.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A call failed and is retried after the delay.
    Trouble {
        /// The part of the worker: `claim`, `outcome` or `heartbeat`.
        during: &'static str,
        /// The error.
        error: String,
        /// The time until the next attempt.
        retry_in: Duration,
    },
    /// A call succeeded after one that had failed.
    Recovered {
        /// The part of the worker.
        during: &'static str,
    },
    /// A handler failed or panicked.
    Failed {
        /// The job.
        job_id: JobId,
        /// The number of the attempt; 1 is the first.
        attempt: i32,
        /// The name of the task.
        task: String,
        /// The text of the error.
        error: String,
    },
    /// No heartbeat has been answered for half a lease: no job is claimed, and held leases are
    /// extended over the claim connection.
    Unheard {
        /// Half of the lease.
        limit: Duration,
    },
    /// The worker is stopping while handlers run.
    Stopping {
        /// The number of running handlers.
        running: usize,
        /// How long the handlers may continue.
        grace: Duration,
    },
    /// Jobs of these tasks are waiting, and this worker has no handler for them. Reported once, at
    /// startup.
    Unhandled {
        /// The tasks.
        tasks: Vec<String>,
    },
    /// The manifests declared in code differed from the stored ones, which were changed. Reported
    /// at startup.
    Declared {
        /// The source that the manifests belong to.
        source: String,
        /// The changes made.
        changes: Vec<AppliedChange>,
    },
    /// The server has recorded a completion. Not written to standard error or logs.
    Completed {
        /// The job.
        job_id: JobId,
    },
    /// Probes are answered at this address.
    Serving {
        /// The address.
        address: SocketAddr,
    },
    /// systemd cannot be notified, or probes cannot be answered.
    Unwatched {
        /// The reason.
        error: String,
    },
    /// The server refused a handler's progress report.
    ProgressRefused {
        /// The job.
        job_id: JobId,
        /// The reason.
        error: String,
    },
    /// The trace context of the job, or a part of it, is invalid by the W3C's specification, and is
    /// ignored.
    TraceDropped {
        /// The job.
        job_id: JobId,
        /// The reason.
        error: String,
    },
    /// The attempt completed without reaching these steps, which an earlier attempt has recorded:
    /// the code has changed under the job.
    StepsUnreached {
        /// The job.
        job_id: JobId,
        /// The names of the steps.
        steps: Vec<String>,
    },
    /// An event of one of several databases: trouble, recovery, or jobs without a handler.
    At {
        /// The host and the name of the database.
        database: Arc<str>,
        /// The event.
        event: Box<Event>,
    },
    /// The server refused an outcome. The attempt was recorded as failed, or its lease will expire.
    Refused {
        /// The job.
        job_id: JobId,
        /// The reason.
        error: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Trouble {
                during,
                error,
                retry_in,
            } => {
                let wait = retry_in.as_secs_f64();
                write!(f, "{during}: next try in {wait:.1} s: {}", brief(error))
            }
            Event::Recovered { during } => write!(f, "{during}: works again"),
            Event::Failed { job_id, error, .. } => {
                write!(f, "job {job_id} failed: {}", brief(error))
            }
            Event::Unheard { limit } => {
                let limit = limit.as_secs_f64();
                write!(
                    f,
                    "claim: nothing is claimed: no heartbeat was answered for {limit:.1} s"
                )
            }
            Event::Stopping { running, grace } => {
                let jobs = if *running == 1 { "job" } else { "jobs" };
                match grace.as_secs() {
                    _ if grace.is_zero() => {
                        write!(f, "stopping: releasing {running} running {jobs}")
                    }
                    seconds => write!(
                        f,
                        "stopping: waiting up to {seconds} s for {running} running {jobs}"
                    ),
                }
            }
            Event::Unhandled { tasks } => {
                write!(f, "jobs are waiting for which this worker has no handler: ")?;
                let shown = &tasks[..tasks.len().min(TASKS_SHOWN)];
                f.write_str(&one_line(&shown.join(", ")))?;
                match tasks.len() - shown.len() {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            Event::Declared { source, changes } => {
                let changes: Vec<String> = changes
                    .iter()
                    .map(|change| format!("{} {}", change.name, change.action))
                    .collect();
                write!(
                    f,
                    "manifests of \"{source}\": {}",
                    brief(&changes.join(", "))
                )
            }
            Event::Completed { job_id } => write!(f, "job {job_id} completed"),
            Event::Serving { address } => write!(f, "serving http://{address}/livez and /readyz"),
            Event::Unwatched { error } => write!(f, "health: {}", brief(error)),
            Event::ProgressRefused { job_id, error } => {
                write!(
                    f,
                    "job {job_id}: its progress report was refused: {}",
                    brief(error)
                )
            }
            Event::TraceDropped { job_id, error } => {
                write!(
                    f,
                    "job {job_id}: its trace context is malformed: {}",
                    brief(error)
                )
            }
            Event::StepsUnreached { job_id, steps } => {
                write!(
                    f,
                    "job {job_id}: completed without its recorded steps {}",
                    brief(&format!("\"{}\"", steps.join("\", \"")))
                )
            }
            Event::At { database, event } => write!(f, "{}: {event}", one_line(database)),
            Event::Refused { job_id, error } => {
                write!(f, "job {job_id}: the outcome was refused: {}", brief(error))
            }
        }
    }
}

/// The number of characters that a line shows of the beginning and the end of an error. The server
/// stores the full text.
const HEAD: usize = 80;
const TAIL: usize = 240;

/// Returns untrusted text as one line, without terminal control characters.
fn one_line(text: &str) -> String {
    let harmless = |c: char| match c {
        '\n' | '\t' => ' ',
        c if c.is_control() => '·',
        '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}' => '·',
        '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' => '·',
        c => c,
    };
    text.chars().map(harmless).collect()
}

/// Returns an error as one short line: line breaks become blanks, and the middle of a long text is
/// left out.
pub(crate) fn brief(error: &str) -> String {
    let line = one_line(&error.split_whitespace().collect::<Vec<_>>().join(" "));
    let length = line.chars().count();
    if length <= HEAD + TAIL {
        return line;
    }
    let head: String = line.chars().take(HEAD).collect();
    let tail: String = line.chars().skip(length - TAIL).collect();
    let head = head.rsplit_once(' ').map_or(&head[..], |(whole, _)| whole);
    let tail = tail.split_once(' ').map_or(&tail[..], |(_, whole)| whole);
    format!("{head} ... {tail}")
}

/// The last trouble reported. A refusal that repeats unchanged, for example while the extension
/// waits for its update, is reported once; a connection that fails unchanged, after a while again.
#[derive(Default)]
pub(crate) struct Refusals(Option<(String, Instant)>);

/// How long a connection that fails unchanged is not reported again.
const AGAIN: Duration = Duration::from_secs(10);

impl Refusals {
    /// Returns whether an error should be reported.
    pub(crate) fn is_new(&mut self, error: &Error) -> bool {
        let (text, now) = (error.to_string(), Instant::now());
        let known = self.0.as_ref().filter(|(reported, _)| *reported == text);
        let is_known = known.is_some_and(|(_, at)| match error.blame() {
            Blame::Call => true,
            Blame::Connection => now.duration_since(*at) < AGAIN,
            Blame::Moment => false,
        });
        if is_known {
            return false;
        }
        self.0 = Some((text, now));
        true
    }

    pub(crate) fn recovered(&mut self) {
        self.0 = None;
    }
}

/// The listener for events.
#[derive(Clone)]
pub(crate) struct Events(Arc<dyn Fn(&Event) + Send + Sync>);

impl Events {
    pub(crate) fn new(listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Events(Arc::new(listener))
    }

    /// Sends events to the program's `tracing` subscriber, or to standard error if it has none.
    pub(crate) fn to_logs() -> Self {
        Events::new(|event| {
            // The span of the execution already shows it.
            if matches!(event, Event::Completed { .. }) {
                return;
            }
            #[cfg(feature = "tracing")]
            if tracing::dispatcher::has_been_set() {
                return log(event);
            }
            to_stderr(event);
        })
    }

    /// Returns a listener for the events of one of several databases.
    pub(crate) fn at(&self, database: &str) -> Self {
        let (all, database) = (self.clone(), Arc::from(database));
        Events::new(move |event| match event {
            Event::Trouble { .. }
            | Event::Recovered { .. }
            | Event::Unheard { .. }
            | Event::Unhandled { .. } => {
                (all.0)(&Event::At {
                    database: Arc::clone(&database),
                    event: Box::new(event.clone()),
                });
            }
            other => (all.0)(other),
        })
    }

    /// Calls the listener. A panic in it stops neither claims nor heartbeats.
    pub(crate) fn emit(&self, event: Event) {
        // The panic has been printed already.
        catch_unwind(AssertUnwindSafe(|| (self.0)(&event))).ok();
    }
}

fn to_stderr(event: &Event) {
    // A closed standard error must not stop the worker.
    writeln!(io::stderr().lock(), "trax: {event}").ok();
}

#[cfg(feature = "tracing")]
fn log(event: &Event) {
    use crate::telemetry::TARGET;
    use tracing::{error, info, warn};

    match event {
        Event::Failed {
            job_id,
            attempt,
            task,
            error,
        } => {
            let (job_id, error) = (job_id.0, brief(error));
            warn!(target: TARGET, job_id, attempt, task, error, "job failed");
        }
        Event::Refused { .. } => error!(target: TARGET, "{event}"),
        Event::Completed { .. } => {}
        Event::Recovered { .. }
        | Event::Stopping { .. }
        | Event::Declared { .. }
        | Event::Serving { .. } => info!(target: TARGET, "{event}"),
        Event::At { .. }
        | Event::Trouble { .. }
        | Event::Unheard { .. }
        | Event::Unhandled { .. }
        | Event::Unwatched { .. }
        | Event::TraceDropped { .. }
        | Event::StepsUnreached { .. }
        | Event::ProgressRefused { .. } => warn!(target: TARGET, "{event}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_tasks_without_a_handler_the_first_are_named() {
        let tasks = (1..=12).map(|n| format!("t{n}")).collect();
        let said = Event::Unhandled { tasks }.to_string();
        assert!(
            said.ends_with(": t1, t2, t3, t4, t5, t6, t7, t8, t9, t10 and 2 more"),
            "{said}"
        );
    }

    #[test]
    fn no_text_of_others_begins_a_line_of_an_event_or_steers_a_terminal() {
        let evil = "x\ntrax: job 99\r\u{1b}[2J\u{9b}31m\u{202e}\u{2028}\u{8}y".to_owned();
        let error = evil.clone();
        let events = [
            Event::Unhandled { tasks: vec![evil] },
            Event::Unwatched { error },
        ];
        for event in events {
            let said = event.to_string();
            let steers = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{202e}');
            assert!(said.contains("x trax: job 99"), "{said}");
            assert!(!said.contains(steers), "{said:?}");
        }
    }

    #[test]
    fn an_event_is_one_line_with_both_ends_of_its_error() {
        let failed = |error: &str| {
            let event = Event::Failed {
                job_id: JobId(7),
                attempt: 1,
                task: "t".to_owned(),
                error: error.to_owned(),
            };
            event.to_string()
        };
        assert_eq!(
            failed("exit code 1: no\n  such file"),
            "job 7 failed: exit code 1: no such file"
        );
        let long = failed(&format!("exit code 3: {}the end", "a line\n".repeat(1000)));
        assert!(
            long.starts_with("job 7 failed: exit code 3: a line"),
            "{long}"
        );
        assert!(
            long.ends_with("a line the end") && long.len() < 400,
            "{long}"
        );
    }
}
