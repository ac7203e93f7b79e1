//! `trax jobs watch`: follows jobs until they have ended.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use trax_client::Json;

use super::{tone, unknown};
use crate::output::{Moment, Options, json, one_line, paint, say};
use crate::session::Session;
use trax_terminal::{FAILED, Failure, TIMEOUT, duration};

const JOB_STATE: &str = include_str!("../query/job_state.sql");
/// The end of a job is reported at once; the progress of the others is read this often.
const LOOK: Duration = Duration::from_secs(2);

const CANCELLED: u8 = 4;

#[derive(clap::Args)]
#[command(after_help = "\
Exit codes:
  0  all are completed
  1  one failed for good
  3  the time is up
  4  one was cancelled, and none failed")]
pub(crate) struct Arguments {
    /// The jobs
    #[arg(required = true, value_name = "ID")]
    ids: Vec<i64>,
    /// Give up after this time, with exit code 3
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    output: Options,
}

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Job {
    job_id: i64,
    state: String,
    attempt: i32,
    task: String,
    run_at: Moment,
    worker: Option<String>,
    error: Option<String>,
    progress: Option<Json>,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let limit = arguments.timeout;
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let begun = Instant::now();
    let mut known = BTreeMap::new();
    loop {
        let jobs = look(&session, &arguments.ids).await?;
        for job in jobs {
            if known.get(&job.job_id) != Some(&job) {
                if !arguments.output.json && !arguments.output.quiet {
                    say(&job.line())?;
                }
                known.insert(job.job_id, job);
            }
        }
        if let Some(id) = arguments.ids.iter().find(|id| !known.contains_key(id)) {
            return Err(unknown(&session, *id));
        }
        let left = known.values().filter(|job| !job.has_ended());
        let left: Vec<i64> = left.map(|job| job.job_id).collect();
        let live = left.len();
        let late = limit.is_some_and(|limit| begun.elapsed() >= limit);
        if live == 0 || late {
            if arguments.output.json {
                json(&known.values().collect::<Vec<_>>())?;
            }
            return if live == 0 {
                Ok(verdict(known.values()))
            } else {
                let text = format!("timeout: {live} of {} jobs have not ended", known.len());
                Err(Failure::new(text).code(TIMEOUT))
            };
        }
        let time = limit.map_or(LOOK, |limit| {
            limit.saturating_sub(begun.elapsed()).min(LOOK)
        });
        let time = format!("{} ms", time.as_millis());
        session
            .connection
            .call(
                "call trax.await_jobs($1, cast($2 as text)::interval, null)",
                &[(&left, Type::INT8_ARRAY), (&time, Type::TEXT)],
            )
            .await?;
    }
}

async fn look(session: &Session, ids: &[i64]) -> Result<Vec<Job>, Failure> {
    let rows = session.find(JOB_STATE, &[(&ids, Type::INT8_ARRAY)]).await?;
    Ok(rows.iter().map(Job::read).collect::<Result<_, _>>()?)
}

fn verdict<'a>(jobs: impl Iterator<Item = &'a Job> + Clone) -> ExitCode {
    let any = |state: &str| jobs.clone().any(|job| job.state == state);
    if any("failed") {
        ExitCode::from(FAILED)
    } else if any("cancelled") {
        ExitCode::from(CANCELLED)
    } else {
        ExitCode::SUCCESS
    }
}

impl Job {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Job {
            job_id: row.try_get("job_id")?,
            state: row.try_get("state")?,
            attempt: row.try_get("attempt")?,
            task: row.try_get("task")?,
            run_at: row.try_get("run_at")?,
            worker: row.try_get("worker")?,
            error: row.try_get("error")?,
            progress: row.try_get("progress")?,
        })
    }

    fn has_ended(&self) -> bool {
        matches!(self.state.as_str(), "completed" | "failed" | "cancelled")
    }

    /// Returns "job 7 (mail.send): in_progress, attempt 2, worker w".
    fn line(&self) -> String {
        let mut text = format!(
            "job {} ({}): {}",
            self.job_id,
            one_line(&self.task),
            paint(&self.state, tone(&self.state))
        );
        if self.attempt > 0 {
            text.push_str(&format!(", attempt {}", self.attempt));
        }
        if self.state == "queued" && self.attempt > 0 {
            text.push_str(&format!(", again at {}", self.run_at.local()));
        }
        if let Some(worker) = &self.worker {
            text.push_str(&format!(", worker {}", one_line(worker)));
        }
        if let Some(progress) = &self.progress {
            text.push_str(&format!(", at {}", one_line(&progress.to_string())));
        }
        if let Some(error) = &self.error {
            text.push_str(&format!(": {}", one_line(error)));
        }
        text
    }
}
