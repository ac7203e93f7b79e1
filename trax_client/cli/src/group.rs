//! `trax group`: sets of jobs that share a priority, a switch and a limit.

use std::process::ExitCode;

use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use trax_client::{Error, Group};

use crate::command::commands;
use crate::output::{Cell, Column, Listed, Moment, Options, Record, Tone};
use crate::session::{Argument, Session};
use crate::similar::{self, Kind};
use trax_terminal::{FAILED, Failure, quote};

const GROUP_LIST: &str = include_str!("query/group_list.sql");
const MOVE_GROUP: &str = "call trax_router.move_group($1, $2, null, $3)";
const GROUP_KNOWN: &str = include_str!("query/group_known.sql");
/// The limit up to which ready jobs of a group are counted.
const COUNTED: i64 = 10_000;

commands! {
    /// The groups, their settings, and what waits and runs
    List(ListArguments) => list,
    /// Change the settings of a group; omitted ones stay
    Set(SetArguments) => set,
    /// Claim no more jobs of groups until they are resumed; running jobs continue
    Pause(Arguments) => pause,
    /// Resume paused groups
    Resume(Arguments) => resume,
    /// At a router, move a group to another shard: new jobs at once, waiting ones with their ids
    ///
    /// Running jobs end on their old shard, and the command waits for them; manifests follow when
    /// none of their jobs runs. If the command is interrupted, nothing is lost: type it again.
    Move(MoveArguments) => move_group,
}

#[derive(clap::Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    output: Options,
}

#[derive(clap::Args)]
pub(crate) struct SetArguments {
    /// The group
    name: String,
    /// How many of its jobs may run at once; 0 is no limit
    #[arg(long, value_name = "N")]
    max_active_jobs: Option<i32>,
    /// 0 to 31; takes precedence over the jobs' own
    #[arg(long, value_name = "N")]
    priority: Option<i32>,
    /// How many jobs with the same concurrency key may run at once
    #[arg(long, value_name = "N")]
    max_per_key: Option<i32>,
    /// The rate under which its jobs start (trax rate set); an empty name is none
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// How many jobs that producers queue may wait; 0 is no limit
    #[arg(long, value_name = "N")]
    max_waiting: Option<i32>,
    /// The end of jobs beyond it: the call fails, or jobs end as cancelled
    #[arg(long, value_name = "WHAT", value_parser = ["reject", "drop_newest", "drop_oldest"])]
    overflow: Option<String>,
    #[command(flatten)]
    output: Options,
}

#[derive(clap::Args)]
pub(crate) struct MoveArguments {
    /// The group
    name: String,
    /// The number of the shard, as trax status shows it
    #[arg(long, value_name = "SHARD")]
    to: i32,
    /// Also if the group is spread over all shards, which ends its spreading
    #[arg(long)]
    gather: bool,
    #[command(flatten)]
    output: Options,
}

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The groups
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    output: Options,
}

/// A row of the list of groups. `ready` is counted up to 10,000.
#[derive(Debug, Serialize)]
struct GroupRow {
    name: String,
    enabled: bool,
    priority: i16,
    max_active_jobs: Option<i32>,
    max_per_key: i32,
    rate: Option<String>,
    max_waiting: Option<i32>,
    overflow: String,
    manifests: i64,
    ready: i64,
    running: i64,
}

/// A group that has moved.
#[derive(Serialize)]
struct GroupMove {
    name: String,
    shard: i32,
    /// The number of waiting jobs that moved with it.
    jobs: i64,
}

async fn list(url: Option<String>, arguments: ListArguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let groups = session
        .list::<GroupRow>(GROUP_LIST, &[(&COUNTED, Type::INT8)])
        .await?;
    arguments
        .output
        .list(&groups, session.now, "there is no group yet")?;
    Ok(session.outcome())
}

async fn set(url: Option<String>, arguments: SetArguments) -> Result<ExitCode, Failure> {
    let mut group = Group::new();
    let mut given = false;
    if let Some(jobs) = arguments.max_active_jobs {
        (group, given) = (group.max_active_jobs(jobs), true);
    }
    if let Some(priority) = arguments.priority {
        (group, given) = (group.priority(priority), true);
    }
    if let Some(jobs) = arguments.max_per_key {
        (group, given) = (group.max_per_key(jobs), true);
    }
    if let Some(rate) = arguments.rate {
        (group, given) = (group.rate(rate), true);
    }
    if let Some(jobs) = arguments.max_waiting {
        (group, given) = (group.max_waiting(jobs), true);
    }
    if let Some(what) = &arguments.overflow {
        (group, given) = (group.overflow(what), true);
    }
    if !given {
        return Err(Failure::usage("nothing to set").hint(
            "use --max-active-jobs, --priority, --max-per-key or --rate, --max-waiting or --overflow",
        ));
    }
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    session
        .client()
        .configure_group(&arguments.name, &group)
        .await?;
    arguments
        .output
        .named_changes("group", vec![arguments.name], "set")?;
    Ok(ExitCode::SUCCESS)
}

async fn move_group(url: Option<String>, arguments: MoveArguments) -> Result<ExitCode, Failure> {
    let MoveArguments {
        name,
        to,
        gather,
        output,
    } = arguments;
    let session = Session::open(url.as_deref(), &output).await?;
    if session.is_router() {
        refuse_unknown(&session, &name, to).await?;
    }
    let given: [Argument; 3] = [
        (&name, Type::TEXT),
        (&to, Type::INT4),
        (&gather, Type::BOOL),
    ];
    let moved = session.connection.call(MOVE_GROUP, &given).await;
    let moved = moved.map_err(|error| match Error::from(error) {
        Error::NotInstalled(_) => Failure::new("this database is no router")
            .hint("give its address: --database-url; create extension trax_router makes one"),
        error => Failure::from(error),
    })?;
    let jobs = moved.try_get(0)?;
    let moved = GroupMove {
        name,
        shard: to,
        jobs,
    };
    output.changes(&[moved], |moved| {
        let GroupMove { name, shard, jobs } = moved;
        format!(
            "group \"{name}\" is on shard {shard}; jobs that were waiting and went with it: {jobs}"
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses a group that no shard knows. A shard that is away may know it.
async fn refuse_unknown(session: &Session, name: &str, to: i32) -> Result<(), Failure> {
    let spread = "select trax_router.is_spread($1)";
    let names = vec![name];
    if session.value(spread, &[(&name, Type::TEXT)]).await?
        || !session
            .find(GROUP_KNOWN, &[(&names, Type::TEXT_ARRAY)])
            .await?
            .is_empty()
        || session.is_incomplete()
    {
        return Ok(());
    }
    let failure = similar::unknown(session, Kind::Group, name).await;
    let place = format!(
        "to place a new group: select trax_router.place_group({}, {to})",
        quote::literal(name)
    );
    let hint = failure.advice().unwrap_or_default().to_owned();
    Err(failure.hint(format!("{hint}; {place}")))
}

async fn pause(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    switch(url, arguments, false).await
}

async fn resume(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    switch(url, arguments, true).await
}

async fn switch(
    url: Option<String>,
    arguments: Arguments,
    enabled: bool,
) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let group = Group::new().enabled(enabled);
    let names = [(&arguments.names as _, Type::TEXT_ARRAY)];
    let rows = session.find(GROUP_KNOWN, &names).await?;
    let known: Vec<String> = rows
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()?;
    // A mistyped name would create a new group while the intended one continues.
    let (known, unknown): (Vec<String>, Vec<String>) = arguments
        .names
        .into_iter()
        .partition(|name| known.contains(name));
    for name in &known {
        session.client().configure_group(name, &group).await?;
    }
    for name in &unknown {
        similar::unknown(&session, Kind::Group, name).await.report();
    }
    let action = if enabled { "resumed" } else { "paused" };
    arguments.output.named_changes("group", known, action)?;
    Ok(match unknown.as_slice() {
        [] => ExitCode::SUCCESS,
        _ => ExitCode::from(FAILED),
    })
}

impl Listed for GroupRow {
    type Order = String;

    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(GroupRow {
            name: row.try_get("name")?,
            enabled: row.try_get("enabled")?,
            priority: row.try_get("priority")?,
            max_active_jobs: row.try_get("max_active_jobs")?,
            max_per_key: row.try_get("max_per_key")?,
            rate: row.try_get("rate")?,
            max_waiting: row.try_get("max_waiting")?,
            overflow: row.try_get("overflow")?,
            manifests: row.try_get("manifests")?,
            ready: row.try_get("ready")?,
            running: row.try_get("running")?,
        })
    }

    fn order(&self) -> Self::Order {
        self.name.clone()
    }
}

impl Record for GroupRow {
    const COLUMNS: &'static [Column] = &[
        Column::text("name"),
        Column::whole("state"),
        Column::number("priority"),
        Column::number("ready"),
        Column::number("running"),
        Column::number("limit"),
        Column::number("per key"),
        Column::text("rate"),
        Column::whole("waiting"),
        Column::number("manifests"),
    ];

    fn cells(&self, _: Moment) -> Vec<Cell> {
        let ready = if self.ready < COUNTED {
            self.ready.to_string()
        } else {
            format!("{COUNTED}+")
        };
        let full = self
            .max_active_jobs
            .is_some_and(|limit| self.running >= i64::from(limit));
        let running = if full { Tone::Warn } else { Tone::Plain };
        vec![
            Cell::new(&self.name, Tone::Strong),
            match self.enabled {
                true => Cell::new("enabled", Tone::Good),
                false => Cell::new("paused", Tone::Warn),
            },
            Cell::plain(self.priority),
            Cell::plain(ready),
            Cell::new(self.running, running),
            Cell::plain(
                self.max_active_jobs
                    .map_or("-".to_owned(), |n| n.to_string()),
            ),
            Cell::plain(self.max_per_key),
            Cell::maybe(self.rate.as_deref()),
            Cell::maybe(
                self.max_waiting
                    .map(|most| format!("{most}, {}", self.overflow)),
            ),
            Cell::plain(self.manifests),
        ]
    }

    fn key(&self) -> String {
        self.name.clone()
    }
}
