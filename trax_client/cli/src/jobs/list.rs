//! `trax jobs list`.

use std::cmp::Reverse;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::tone;
use crate::output::{Cell, Column, Listed, Moment, Options, Record, elapsed};
use crate::session::Session;
use crate::similar::{self, Kind};
use trax_terminal::Failure;

const JOB_LIST: &str = include_str!("../query/job_list.sql");
const STATES: [&str; 5] = ["queued", "in_progress", "completed", "failed", "cancelled"];

#[derive(clap::Args)]
#[command(after_help = "\
A filter that few ended jobs match reads the whole history, which takes about a fifth of a second for 1,000,000 runs. \
--state failed and --manifest are found by an index, and with --since only its days are read.")]
pub(crate) struct Arguments {
    /// Only jobs in this state; may be repeated
    #[arg(long = "state", value_name = "STATE", value_parser = PossibleValuesParser::new(STATES))]
    states: Vec<String>,
    /// Only jobs of this task; may be repeated
    #[arg(long = "task", value_name = "TASK")]
    tasks: Vec<String>,
    /// Only jobs of this group; may be repeated
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Only jobs of this manifest
    #[arg(long, value_name = "NAME")]
    manifest: Option<String>,
    /// Only jobs that this worker executes or executed; may be repeated
    #[arg(long = "worker", value_name = "NAME")]
    workers: Vec<String>,
    /// Only jobs queued, executed or ended since: a time, or an age ('2 h')
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// The most rows to show
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..))]
    limit: i64,
    #[command(flatten)]
    output: Options,
}

/// A row of the list of jobs.
#[derive(Debug, Serialize)]
struct Job {
    job_id: i64,
    state: String,
    attempt: i32,
    task: String,
    group_name: String,
    manifest: Option<String>,
    priority: i16,
    waits_for: Option<String>,
    run_at: Moment,
    scheduled_for: Option<Moment>,
    queued_at: Moment,
    started_at: Option<Moment>,
    finished_at: Option<Moment>,
    worker: Option<String>,
    error: Option<String>,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let since = session.since(arguments.since.as_deref()).await?;
    let any = |names: &Vec<String>| Some(names.clone()).filter(|names| !names.is_empty());
    let (states, workers) = (any(&arguments.states), any(&arguments.workers));
    let (tasks, groups) = (any(&arguments.tasks), any(&arguments.groups));
    let manifest = arguments.manifest.as_deref();
    let mut jobs = session
        .list::<Job>(
            JOB_LIST,
            &[
                (&states, Type::TEXT_ARRAY),
                (&tasks, Type::TEXT_ARRAY),
                (&groups, Type::TEXT_ARRAY),
                (&manifest, Type::TEXT),
                (&manifest_id(&session, manifest).await?, Type::INT8),
                (&workers, Type::TEXT_ARRAY),
                (&since, Type::TIMESTAMPTZ),
                (&arguments.limit.saturating_add(1), Type::INT8),
            ],
        )
        .await?;
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    let more = jobs.len() > limit;
    jobs.truncate(limit);
    let output = arguments.output;
    output.list(&jobs, session.now, "no job matches")?;
    if jobs.is_empty() {
        let manifest: Vec<String> = arguments.manifest.into_iter().collect();
        let filters = [
            (Kind::Task, arguments.tasks.as_slice()),
            (Kind::Group, arguments.groups.as_slice()),
            (Kind::Manifest, manifest.as_slice()),
            (Kind::Worker, arguments.workers.as_slice()),
        ];
        similar::note(&session, &output, &filters).await;
    }
    if more {
        output.note(&format!("there are more rows; --limit is {limit}"));
    }
    Ok(session.outcome())
}

/// Returns the id of a manifest, as the history has an index by id and none by name. `None` at a
/// router, as each shard has its own ids.
async fn manifest_id(session: &Session, name: Option<&str>) -> Result<Option<i64>, Failure> {
    if session.is_router() {
        return Ok(None);
    }
    let sql = "select m.manifest_id from trax.manifest m where m.name = $1";
    let rows = session.rows(sql, &[(&name, Type::TEXT)]).await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
}

impl Job {
    /// Returns the time of the last change of state, or the reason for waiting.
    fn when(&self, now: Moment) -> String {
        match (self.finished_at, self.started_at, self.waits_for.as_deref()) {
            (Some(at), _, _) | (None, Some(at), _) => at.relative(now),
            (None, None, Some("time")) => format!("due {}", self.run_at.relative(now)),
            (None, None, Some("key")) => "for its key".to_owned(),
            (None, None, Some("manifest")) => "for its manifest".to_owned(),
            (None, None, Some("signal")) => "for a signal".to_owned(),
            (None, None, Some("jobs")) => "for other jobs".to_owned(),
            (None, None, _) => self.run_at.relative(now),
        }
    }

    fn took(&self, now: Moment) -> Option<String> {
        let end = self.finished_at.unwrap_or(now);
        end.since(self.started_at?).map(elapsed)
    }
}

impl Listed for Job {
    type Order = Reverse<Moment>;

    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Job {
            job_id: row.try_get("job_id")?,
            state: row.try_get("state")?,
            attempt: row.try_get("attempt")?,
            task: row.try_get("task")?,
            group_name: row.try_get("group_name")?,
            manifest: row.try_get("manifest")?,
            priority: row.try_get("priority")?,
            waits_for: row.try_get("waits_for")?,
            run_at: row.try_get("run_at")?,
            scheduled_for: row.try_get("scheduled_for")?,
            queued_at: row.try_get("queued_at")?,
            started_at: row.try_get("started_at")?,
            finished_at: row.try_get("finished_at")?,
            worker: row.try_get("worker")?,
            error: row.try_get("error")?,
        })
    }

    fn order(&self) -> Self::Order {
        Reverse(self.queued_at)
    }
}

impl Record for Job {
    const COLUMNS: &'static [Column] = &[
        Column::number("id"),
        Column::whole("state"),
        Column::text("task"),
        Column::text("group"),
        Column::text("manifest"),
        Column::number("att"),
        Column::whole("queued").verbose(),
        Column::whole("when"),
        Column::number("took"),
        Column::number("priority").verbose(),
        Column::text("worker").verbose(),
        Column::text("error"),
    ];

    fn cells(&self, now: Moment) -> Vec<Cell> {
        vec![
            Cell::plain(self.job_id),
            Cell::new(&self.state, tone(&self.state)),
            Cell::plain(&self.task),
            Cell::maybe(Some(&self.group_name).filter(|name| *name != "default")),
            Cell::maybe(self.manifest.as_deref()),
            Cell::maybe(Some(self.attempt).filter(|attempt| *attempt > 0)),
            Cell::dim(self.queued_at.relative(now)),
            Cell::plain(self.when(now)),
            Cell::maybe(self.took(now)),
            Cell::plain(self.priority),
            Cell::maybe(self.worker.as_deref()),
            Cell::maybe(self.error.as_deref()),
        ]
    }

    fn key(&self) -> String {
        self.job_id.to_string()
    }
}
