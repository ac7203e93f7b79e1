//! `trax jobs show`.

use std::process::ExitCode;

use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use trax_client::Json;

use super::step::Step;
use super::{tone, unknown};
use crate::dead::last_of;
use crate::output::{Cell, Column, Facts, Moment, Options, Record, elapsed, json, say};
use crate::session::Session;
use trax_terminal::Failure;
use trax_terminal::sql_output::{as_psql, statement};

const JOB_SHOW: &str = include_str!("../query/job_show.sql");
const JOB_DEAD_LETTER: &str = include_str!("../query/job_dead_letter.sql");
const JOB_ATTEMPTS: &str = include_str!("../query/job_attempts.sql");
const JOB_STEPS: &str = include_str!("../query/job_steps.sql");

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The job; may be repeated
    #[arg(required = true, value_name = "ID")]
    ids: Vec<i64>,
    #[command(flatten)]
    output: Options,
}

/// A job with all its columns.
#[derive(Debug, Serialize)]
pub(super) struct Job {
    pub(super) job_id: i64,
    pub(super) state: String,
    pub(super) attempt: i32,
    task: String,
    input: Json,
    pub(super) manifest: Option<String>,
    group_name: String,
    priority: i16,
    pub(super) waits_for: Option<String>,
    run_at: Moment,
    scheduled_for: Option<Moment>,
    queued_at: Moment,
    started_at: Option<Moment>,
    finished_at: Option<Moment>,
    worker: Option<String>,
    error: Option<String>,
    output: Option<Json>,
    progress: Option<Json>,
    unique_key: Option<String>,
    concurrency_key: Option<String>,
    max_retries: Option<i32>,
    lease_expires_at: Option<Moment>,
    timeout_at: Option<Moment>,
    cancel_requested: bool,
    pub(super) dead_letter_id: Option<i64>,
    pub(super) dead_letter_status: Option<String>,
    dead_letter_reason: Option<String>,
    pub(super) requeued_job_id: Option<i64>,
    attempts: Vec<Attempt>,
    parent_job_id: Option<i64>,
    version: Option<String>,
    rate: Option<String>,
    steps: Vec<Step>,
}

/// An ended attempt.
#[derive(Debug, Serialize)]
struct Attempt {
    attempt: i32,
    state: String,
    failure_kind: Option<String>,
    worker: Option<String>,
    started_at: Option<Moment>,
    finished_at: Moment,
    error: Option<String>,
    detail: Option<Json>,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let mut jobs = Vec::with_capacity(arguments.ids.len());
    for id in arguments.ids {
        jobs.push(
            find(&session, id)
                .await?
                .ok_or_else(|| unknown(&session, id))?,
        );
    }
    let output = arguments.output;
    if output.json {
        json(&jobs)?;
    } else if output.quiet {
        output.keys(jobs.iter().map(|job| job.state.clone()))?;
    } else {
        let texts: Vec<String> = jobs.iter().map(|job| job.text(session.now)).collect();
        say(&texts.join("\n\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a job and its attempts.
pub(super) async fn find(session: &Session, id: i64) -> Result<Option<Job>, Failure> {
    // A job may move between tables between two statements, but not within one.
    let rows = session.find(JOB_SHOW, &[(&id, Type::INT8)]).await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let mut job = Job::read(row)?;
    if session.is_router() {
        let letters = session.find(JOB_DEAD_LETTER, &[(&id, Type::INT8)]).await?;
        if let Some(letter) = last_of(&letters)? {
            job.take_dead_letter(letter)?;
        }
    }
    for row in session.find(JOB_ATTEMPTS, &[(&id, Type::INT8)]).await? {
        job.attempts.push(Attempt::read(&row)?);
    }
    for row in session.find(JOB_STEPS, &[(&id, Type::INT8)]).await? {
        job.steps.push(Step::read(&row)?);
    }
    Ok(Some(job))
}

impl Job {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Job {
            job_id: row.try_get("job_id")?,
            state: row.try_get("state")?,
            attempt: row.try_get("attempt")?,
            task: row.try_get("task")?,
            input: row.try_get("input")?,
            manifest: row.try_get("manifest")?,
            group_name: row.try_get("group_name")?,
            priority: row.try_get("priority")?,
            waits_for: row.try_get("waits_for")?,
            run_at: row.try_get("run_at")?,
            scheduled_for: row.try_get("scheduled_for")?,
            queued_at: row.try_get("queued_at")?,
            started_at: row.try_get("started_at")?,
            finished_at: row.try_get("finished_at")?,
            worker: row.try_get("worker")?,
            error: row.try_get("error")?,
            output: row.try_get("output")?,
            progress: row.try_get("progress")?,
            unique_key: row.try_get("unique_key")?,
            concurrency_key: row.try_get("concurrency_key")?,
            max_retries: row.try_get("max_retries")?,
            lease_expires_at: row.try_get("lease_expires_at")?,
            timeout_at: row.try_get("timeout_at")?,
            cancel_requested: row.try_get("cancel_requested")?,
            dead_letter_id: row.try_get("dead_letter_id")?,
            dead_letter_status: row.try_get("dead_letter_status")?,
            dead_letter_reason: row.try_get("dead_letter_reason")?,
            requeued_job_id: row.try_get("requeued_job_id")?,
            attempts: Vec::new(),
            parent_job_id: row.try_get("parent_job_id")?,
            version: row.try_get("version")?,
            rate: row.try_get("rate")?,
            steps: Vec::new(),
        })
    }

    fn take_dead_letter(&mut self, row: &Row) -> Result<(), tokio_postgres::Error> {
        self.dead_letter_id = row.try_get("dead_letter_id")?;
        self.dead_letter_status = row.try_get("dead_letter_status")?;
        self.dead_letter_reason = row.try_get("dead_letter_reason")?;
        self.requeued_job_id = row.try_get("requeued_job_id")?;
        Ok(())
    }

    fn text(&self, now: Moment) -> String {
        let time = |at: Option<Moment>| at.map(|at| at.full(now));
        let mut facts = Facts::default();
        facts.add("job", self.job_id);
        facts.toned("state", self.state_text(), tone(&self.state));
        facts.add("task", &self.task);
        facts.add("group", &self.group_name);
        facts.maybe("manifest", self.manifest.as_deref());
        facts.maybe(
            "parent",
            self.parent_job_id.map(|parent| format!("job {parent}")),
        );
        facts.add("priority", self.priority);
        facts.add("attempts", self.attempts_text());
        facts.maybe("unique key", self.unique_key.as_deref());
        facts.maybe("concurrency key", self.concurrency_key.as_deref());
        facts.maybe("version", self.version.as_deref());
        facts.maybe("rate", self.rate.as_deref());
        facts.maybe("scheduled for", time(self.scheduled_for));
        facts.add("queued", self.queued_at.full(now));
        if self.state == "queued" {
            facts.add("waits", self.waits_text(now));
        }
        facts.maybe("started", time(self.started_at));
        facts.maybe("lease until", time(self.lease_expires_at));
        facts.maybe("timeout", time(self.timeout_at));
        facts.maybe("ended", time(self.finished_at));
        facts.maybe("worker", self.worker.as_deref());
        facts.maybe("dead letter", self.dead_letter_text());
        let statement = statement(&self.task, &self.input);
        match &statement {
            Some(statement) => facts.verbatim("statement", statement),
            None => facts.json("input", &self.input),
        }
        if let Some(progress) = &self.progress {
            facts.json("progress", progress);
        }
        if let Some(output) = &self.output {
            match statement.and_then(|_| as_psql(output)) {
                Some(text) => facts.verbatim("output", &text),
                None => facts.printed("output", output),
            }
        }
        facts.rows("steps", &self.steps, now);
        facts.rows("ended attempts", &self.attempts, now);
        if let Some(error) = &self.error {
            facts.block("error", error);
        }
        if let Some(detail) = self.attempts.last().and_then(|last| last.detail.as_ref()) {
            let of = if self.error.is_some() {
                " of the error"
            } else {
                ""
            };
            facts.printed(&format!("detail{of}"), detail);
        }
        facts.text()
    }

    fn state_text(&self) -> String {
        if self.cancel_requested {
            format!("{}, asked to stop", self.state)
        } else {
            self.state.clone()
        }
    }

    fn attempts_text(&self) -> String {
        match self.max_retries {
            Some(retries) => format!("{} of {}", self.attempt, i64::from(retries) + 1),
            None => self.attempt.to_string(),
        }
    }

    fn waits_text(&self, now: Moment) -> String {
        match self.waits_for.as_deref() {
            Some("time") => format!("until {}", self.run_at.full(now)),
            Some("key") => "until a job with its concurrency key ends".to_owned(),
            Some("manifest") => "until another job of its manifest ends".to_owned(),
            Some("signal") => "for a signal".to_owned(),
            Some("jobs") => "until other jobs end".to_owned(),
            _ => "for a worker".to_owned(),
        }
    }

    fn dead_letter_text(&self) -> Option<String> {
        let (id, status) = (self.dead_letter_id?, self.dead_letter_status.as_deref()?);
        let reason = self.dead_letter_reason.as_deref().unwrap_or_default();
        Some(match (status, self.requeued_job_id) {
            ("requeued", Some(job)) => format!("{id}: {reason}; requeued as job {job}"),
            ("awaiting_intervention", _) => {
                format!("{id}: {reason}; trax dead requeue {id}, or trax dead ack {id}")
            }
            (status, _) => format!("{id}: {reason}; {status}"),
        })
    }
}

impl Attempt {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Attempt {
            attempt: row.try_get("attempt")?,
            state: row.try_get("state")?,
            failure_kind: row.try_get("failure_kind")?,
            worker: row.try_get("worker")?,
            started_at: row.try_get("started_at")?,
            finished_at: row.try_get("finished_at")?,
            error: row.try_get("error")?,
            detail: row.try_get("detail")?,
        })
    }
}

impl Record for Attempt {
    const COLUMNS: &'static [Column] = &[
        Column::number("att"),
        Column::whole("state"),
        Column::whole("kind"),
        Column::whole("ended"),
        Column::number("took"),
        Column::text("worker"),
        Column::text("error"),
    ];

    fn cells(&self, now: Moment) -> Vec<Cell> {
        let took = self.started_at.and_then(|at| self.finished_at.since(at));
        vec![
            Cell::plain(self.attempt),
            Cell::new(&self.state, tone(&self.state)),
            Cell::maybe(self.failure_kind.as_deref()),
            Cell::plain(self.finished_at.relative(now)),
            Cell::maybe(took.map(elapsed)),
            Cell::maybe(self.worker.as_deref()),
            Cell::maybe(self.error.as_deref()),
        ]
    }

    fn key(&self) -> String {
        self.attempt.to_string()
    }
}
