//! `trax workers`: lists the workers.

use std::process::ExitCode;

use serde::Serialize;
use tokio_postgres::Row;
use trax_client::Json;

use crate::output::{Cell, Column, Listed, Moment, Options, Record, Tone};
use crate::session::Session;
use trax_terminal::Failure;

const WORKER_LIST: &str = include_str!("query/worker_list.sql");

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Options,
}

/// A worker.
#[derive(Debug, Serialize)]
struct Worker {
    name: String,
    state: String,
    started_at: Option<Moment>,
    last_seen_at: Option<Moment>,
    running: i64,
    oldest_started_at: Option<Moment>,
    tasks: Vec<String>,
    host: Option<String>,
    version: Option<String>,
    info: Option<Json>,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let workers = session.list::<Worker>(WORKER_LIST, &[]).await?;
    arguments
        .output
        .list(&workers, session.now, "no live worker, now or recently")?;
    Ok(session.outcome())
}

impl Listed for Worker {
    type Order = (bool, String);

    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Worker {
            name: row.try_get("name")?,
            state: row.try_get("state")?,
            started_at: row.try_get("started_at")?,
            last_seen_at: row.try_get("last_seen_at")?,
            running: row.try_get("running")?,
            oldest_started_at: row.try_get("oldest_started_at")?,
            tasks: row.try_get("running_tasks")?,
            host: row.try_get("host")?,
            version: row.try_get("version")?,
            info: row.try_get("info")?,
        })
    }

    fn order(&self) -> Self::Order {
        (self.state == "gone", self.name.clone())
    }
}

impl Record for Worker {
    const COLUMNS: &'static [Column] = &[
        Column::text("name"),
        Column::whole("state"),
        Column::number("running"),
        Column::whole("oldest"),
        Column::text("tasks"),
        Column::whole("seen"),
        Column::whole("since"),
        Column::text("host").verbose(),
        Column::whole("version").verbose(),
        Column::text("info").verbose(),
    ];

    fn cells(&self, now: Moment) -> Vec<Cell> {
        let ago = |at: Option<Moment>| at.map(|at| at.relative(now));
        let tone = match self.state.as_str() {
            "working" => Tone::Active,
            "gone" => Tone::Bad,
            "idle" => Tone::Dim,
            _ => Tone::Plain,
        };
        vec![
            Cell::new(&self.name, Tone::Strong),
            Cell::new(&self.state, tone),
            Cell::plain(self.running),
            Cell::maybe(ago(self.oldest_started_at)),
            Cell::plain(self.tasks.join(", ")),
            Cell::maybe(ago(self.last_seen_at)),
            Cell::maybe(ago(self.started_at)),
            Cell::maybe(self.host.as_deref()),
            Cell::maybe(self.version.as_deref()),
            Cell::maybe(self.info.as_ref()),
        ]
    }

    fn key(&self) -> String {
        self.name.clone()
    }
}
