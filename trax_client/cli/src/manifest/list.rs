//! `trax manifest list`.

use std::process::ExitCode;

use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::output::{Cell, Column, Listed, Moment, Options, Record, Tone};
use crate::session::Session;
use crate::similar::{self, Kind};
use trax_terminal::Failure;

const MANIFEST_LIST: &str = include_str!("../query/manifest_list.sql");

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only names that contain this text
    #[arg(value_name = "TEXT")]
    name: Option<String>,
    /// Only of this task
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// Only of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Only enabled ones
    #[arg(long, conflicts_with = "disabled")]
    enabled: bool,
    /// Only disabled ones
    #[arg(long)]
    disabled: bool,
    /// The most rows to show
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(i64).range(1..))]
    limit: i64,
    #[command(flatten)]
    output: Options,
}

/// A row of the list of manifests.
#[derive(Debug, Serialize)]
struct Manifest {
    name: String,
    task: String,
    group_name: String,
    cron: Option<String>,
    timezone: String,
    every: Option<String>,
    run_at: Option<Moment>,
    depends_on: Vec<String>,
    depends_mode: Option<String>,
    dormant: bool,
    enabled: bool,
    next_run_at: Option<Moment>,
    parked_on: Option<String>,
    on_dead_letter: String,
    stopped_by: Option<i64>,
    last_queued_at: Option<Moment>,
    last_success_at: Option<Moment>,
    evaluation_error: Option<String>,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let enabled = (arguments.enabled || arguments.disabled).then_some(arguments.enabled);
    let mut manifests = session
        .list::<Manifest>(
            MANIFEST_LIST,
            &[
                (&arguments.task, Type::TEXT),
                (&arguments.group, Type::TEXT),
                (&arguments.name, Type::TEXT),
                (&enabled, Type::BOOL),
                (&arguments.limit.saturating_add(1), Type::INT8),
            ],
        )
        .await?;
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    let more = manifests.len() > limit;
    manifests.truncate(limit);
    let output = arguments.output;
    output.list(&manifests, session.now, "no manifest matches")?;
    if manifests.is_empty() {
        let one = |name: Option<String>| name.into_iter().collect::<Vec<_>>();
        let (task, group) = (one(arguments.task), one(arguments.group));
        let name = one(arguments.name);
        let filters = [
            (Kind::Task, task.as_slice()),
            (Kind::Group, group.as_slice()),
            (Kind::Manifest, name.as_slice()),
        ];
        similar::note(&session, &output, &filters).await;
    }
    if more {
        output.note(&format!("there are more rows; --limit is {limit}"));
    }
    Ok(session.outcome())
}

/// Returns PostgreSQL's 00:05:00 as 5 min. An interval with several units is returned unchanged.
fn interval(text: &str) -> String {
    let parts: Vec<u32> = text
        .split(':')
        .map_while(|part| part.parse().ok())
        .collect();
    match (parts.as_slice(), text.matches(':').count()) {
        ([hours, 0, 0], 2) if *hours > 0 => format!("{hours} h"),
        ([0, minutes, 0], 2) if *minutes > 0 => format!("{minutes} min"),
        ([0, 0, seconds], 2) => format!("{seconds} s"),
        _ => text.to_owned(),
    }
}

impl Manifest {
    /// Returns a short form of the schedule.
    fn schedule(&self) -> String {
        if let Some(cron) = &self.cron {
            return match self.timezone.as_str() {
                "UTC" => cron.clone(),
                zone => format!("{cron} {zone}"),
            };
        }
        if let Some(every) = &self.every {
            return format!("every {}", interval(every));
        }
        if let Some(at) = self.run_at {
            return format!("once, {}", at.local());
        }
        let parents = || match self.depends_mode.as_deref() {
            Some("any") => self.depends_on.join(" or "),
            _ => self.depends_on.join(" and "),
        };
        match self.depends_mode {
            Some(_) if self.dormant => format!("when {} activates it", parents()),
            Some(_) => format!("after {}", parents()),
            None => "when triggered".to_owned(),
        }
    }

    fn status(&self) -> Cell {
        if self.evaluation_error.is_some() {
            return Cell::new("cannot be evaluated", Tone::Bad);
        }
        if let Some(id) = self.stopped_by {
            return Cell::new(format!("stopped by dead letter {id}"), Tone::Bad);
        }
        match (self.enabled, self.parked_on.as_deref()) {
            (false, _) => Cell::dim("disabled"),
            (true, None) => Cell::new("enabled", Tone::Good),
            (true, Some("group_disabled")) => Cell::new("group disabled", Tone::Warn),
            (true, Some("dead_letter")) => Cell::new("dead letter", Tone::Bad),
            (true, Some("queued")) => Cell::new("queued", Tone::Active),
            (true, Some("executing" | "outcome")) => Cell::new("under way", Tone::Active),
            (true, Some(other)) => Cell::dim(other),
        }
    }
}

impl Listed for Manifest {
    type Order = (bool, String);

    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Manifest {
            name: row.try_get("name")?,
            task: row.try_get("task")?,
            group_name: row.try_get("group_name")?,
            cron: row.try_get("cron")?,
            timezone: row.try_get("timezone")?,
            every: row.try_get("every")?,
            run_at: row.try_get("run_at")?,
            depends_on: row.try_get("depends_on")?,
            depends_mode: row.try_get("depends_mode")?,
            dormant: row.try_get("dormant")?,
            enabled: row.try_get("enabled")?,
            next_run_at: row.try_get("next_run_at")?,
            parked_on: row.try_get("parked_on")?,
            on_dead_letter: row.try_get("on_dead_letter")?,
            stopped_by: row.try_get("stopped_by")?,
            last_queued_at: row.try_get("last_queued_at")?,
            last_success_at: row.try_get("last_success_at")?,
            evaluation_error: row.try_get("evaluation_error")?,
        })
    }

    fn order(&self) -> Self::Order {
        (self.stopped_by.is_none(), self.name.clone())
    }
}

impl Record for Manifest {
    const COLUMNS: &'static [Column] = &[
        Column::text("name"),
        Column::text("schedule"),
        Column::whole("next"),
        Column::whole("succeeded"),
        Column::whole("status"),
        Column::text("task"),
        Column::text("group"),
        Column::text("trouble"),
    ];

    fn cells(&self, now: Moment) -> Vec<Cell> {
        let ago = |at: Option<Moment>| at.map(|at| at.relative(now));
        vec![
            Cell::new(&self.name, Tone::Strong),
            Cell::plain(self.schedule()),
            Cell::maybe(ago(self.next_run_at.filter(|_| self.stopped_by.is_none()))),
            Cell::maybe(ago(self.last_success_at)),
            self.status(),
            Cell::plain(&self.task),
            Cell::maybe(Some(&self.group_name).filter(|name| *name != "default")),
            Cell::maybe(self.evaluation_error.as_deref()),
        ]
    }

    fn key(&self) -> String {
        self.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::interval;

    #[test]
    fn an_interval_of_one_unit_is_said_in_it() {
        for (text, said) in [
            ("00:05:00", "5 min"),
            ("36:00:00", "36 h"),
            ("00:00:30", "30 s"),
            ("00:00:00.5", "00:00:00.5"),
            ("01:30:00", "01:30:00"),
            ("1 day", "1 day"),
            ("1 day 02:00:00", "1 day 02:00:00"),
        ] {
            assert_eq!(interval(text), said);
        }
    }
}
