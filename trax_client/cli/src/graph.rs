//! `trax graph`: jobs of which some need others.

use std::process::ExitCode;

use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use trax_client::{JobId, Json};

use crate::command::commands;
use crate::document::{Kind, parse, text};
use crate::jobs::unknown;
use crate::output::{Cell, Column, Moment, Options, Record, Tone};
use crate::place::{self, places, refuse_nameless};
use crate::session::Session;
use trax_terminal::{FAILED, Failure};

const KIND: Kind = Kind {
    json: "a graph is {\"jobs\": [{\"name\": \"load\", \"task\": \"etl.load\"}, ...]}, or TOML",
    toml: "a job is [[jobs]], then lines such as name = \"load\", task = \"etl.load\", needs = [\"fetch\"]",
};

commands! {
    /// Queue the jobs of a file, all or none, and print their ids
    Apply(ApplyArguments) => apply,
    /// Show the jobs of the graph or batch that a job belongs to
    Show(ShowArguments) => show,
    /// Say that a batch has all its jobs: its own job runs when they have ended
    Seal(SealArguments) => seal,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  trax graph apply nightly.toml --unique-key nightly
  jq '{jobs: .}' jobs.json | trax graph apply -

A file:
  [[jobs]]
  name = \"load\"
  task = \"etl.load\"
  [[jobs]]
  name = \"sum\"
  sql = \"call rollup()\"
  needs = [\"load\"]")]
pub(crate) struct ApplyArguments {
    /// The file, TOML or JSON; - reads standard input
    file: String,
    /// While a job of a graph with this key waits or runs, print the ids of that graph and queue
    /// nothing
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,
    #[command(flatten)]
    output: Options,
}

#[derive(clap::Args)]
pub(crate) struct ShowArguments {
    /// A job of the graph, or the number of a batch
    #[arg(value_name = "ID")]
    id: i64,
    #[command(flatten)]
    output: Options,
}

#[derive(clap::Args)]
pub(crate) struct SealArguments {
    /// The batch: the id that trax enqueue --open-batch printed
    #[arg(value_name = "ID")]
    batch: i64,
    #[command(flatten)]
    output: Options,
}

/// A sealed batch and the number of its jobs.
#[derive(Serialize)]
struct Sealed {
    batch: i64,
    jobs: i64,
}

/// A job that was queued.
#[derive(Serialize)]
struct Queued {
    name: String,
    job_id: JobId,
}

impl Record for Queued {
    const COLUMNS: &'static [Column] = &[Column::number("id"), Column::text("name")];

    fn cells(&self, _: Moment) -> Vec<Cell> {
        vec![Cell::plain(self.job_id), Cell::plain(&self.name)]
    }

    fn key(&self) -> String {
        self.job_id.to_string()
    }
}

/// A job of a graph.
#[derive(Serialize)]
struct Shown {
    job_id: i64,
    name: Option<String>,
    task: Option<String>,
    state: Option<String>,
    needs: Vec<String>,
    condition: Option<String>,
    waits_for: Option<String>,
    attempt: Option<i32>,
    started_at: Option<Moment>,
    finished_at: Option<Moment>,
    error: Option<String>,
}

impl Shown {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Shown {
            job_id: row.try_get("job_id")?,
            name: row.try_get("name")?,
            task: row.try_get("task")?,
            state: row.try_get("state")?,
            needs: row.try_get::<_, Option<_>>("needs")?.unwrap_or_default(),
            condition: row.try_get("condition")?,
            waits_for: row.try_get("waits_for")?,
            attempt: row.try_get("attempt")?,
            started_at: row.try_get("started_at")?,
            finished_at: row.try_get("finished_at")?,
            error: row.try_get("error")?,
        })
    }
}

impl Record for Shown {
    const COLUMNS: &'static [Column] = &[
        Column::number("id"),
        Column::text("name"),
        Column::text("task"),
        Column::whole("state"),
        Column::whole("since"),
        Column::text("needs"),
        Column::text("error"),
    ];

    fn cells(&self, now: Moment) -> Vec<Cell> {
        let job = self;
        let state = match (job.state.as_deref(), job.waits_for.as_deref()) {
            (Some("queued"), Some(waits_for)) => Cell::plain(format!("waits: {waits_for}")),
            (Some("failed"), _) => Cell::new("failed", Tone::Bad),
            (Some("completed"), _) => Cell::new("completed", Tone::Good),
            (Some("in_progress"), _) => Cell::new("in_progress", Tone::Active),
            (state, _) => Cell::maybe(state),
        };
        let since = job.finished_at.or(job.started_at);
        let needs = match job.condition.as_deref() {
            Some(condition) if condition != "completed" && !job.needs.is_empty() => {
                format!("{} ({condition})", job.needs.join(", "))
            }
            _ => job.needs.join(", "),
        };
        vec![
            Cell::plain(job.job_id),
            Cell::maybe(job.name.as_deref()),
            Cell::maybe(job.task.as_deref()),
            state,
            Cell::maybe(since.map(|at| at.relative(now))),
            Cell::plain(needs),
            Cell::maybe(job.error.as_deref()),
        ]
    }

    fn key(&self) -> String {
        self.job_id.to_string()
    }
}

async fn apply(url: Option<String>, arguments: ApplyArguments) -> Result<ExitCode, Failure> {
    let text = text(&arguments.file)?;
    let value = parse(&arguments.file, &text, &KIND)?;
    // The text of JSON is sent as it is: no number loses a digit.
    let read: Result<Json, _> = text.parse();
    let is_toml = read.is_err();
    let document = read.unwrap_or_else(|_| Json::from(value));
    let places = places(&arguments.file, &text);
    refuse_nameless(&places)?;
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let client = session.client();
    let ids = client.enqueue_graph_document(&document, arguments.unique_key.as_deref());
    let ids = ids.await.map_err(|error| {
        let place = error.report().and_then(|report| place::of(report, &places));
        let failure = Failure::from(error);
        let failure = match failure.advice().filter(|_| is_toml).map(as_toml) {
            Some(hint) => failure.hint(hint),
            None => failure,
        };
        match place {
            Some(place) => failure.at(&place),
            None => failure,
        }
    })?;
    let queued = ids.iter().map(|(name, job_id)| Queued {
        name: name.to_owned(),
        job_id,
    });
    let mut queued: Vec<Queued> = queued.collect();
    queued.sort_by_key(|job| job.job_id);
    arguments.output.list(&queued, session.now, "no job")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a hint with the members of its object as TOML.
fn as_toml(hint: &str) -> String {
    let mut parts = hint.split("\": ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for value in parts {
        if let Some(quote) = text.rfind('"') {
            text.remove(quote);
        }
        text.push_str(" = ");
        text.push_str(value);
    }
    // A document, and an element that begins with [[jobs]], have no braces around their members.
    match text
        .strip_suffix('}')
        .and_then(|text| text.split_once(": {"))
    {
        Some((words, members)) => format!("{words}: {members}"),
        None => text,
    }
}

async fn show(url: Option<String>, arguments: ShowArguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let id = arguments.id;
    let sql = "select g.name, g.job_id, g.task, g.state, g.needs, g.condition, g.waits_for, g.attempt, \
               g.started_at, g.finished_at, g.error from trax.read_graph($1) g";
    let rows = session
        .connection
        .query_typed(sql, &[(&id, Type::INT8)])
        .await?;
    if rows.is_empty() {
        if session.client().job(JobId(id)).await?.is_none() {
            return Err(unknown(&session, id));
        }
        let nothing = format!("job {id} is of no graph");
        arguments.output.list::<Shown>(&[], session.now, &nothing)?;
        return Ok(ExitCode::from(FAILED));
    }
    let shown: Vec<Shown> = rows.iter().map(Shown::read).collect::<Result<_, _>>()?;
    arguments.output.list(&shown, session.now, "no job")?;
    Ok(ExitCode::SUCCESS)
}

async fn seal(url: Option<String>, arguments: SealArguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let batch = arguments.batch;
    let jobs = session.client().seal_batch(JobId(batch)).await?;
    let sealed = [Sealed { batch, jobs }];
    arguments.output.changes(&sealed, |sealed| {
        format!("batch {batch} is sealed with {} jobs", sealed.jobs)
    })?;
    Ok(ExitCode::SUCCESS)
}
