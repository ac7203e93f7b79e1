//! `trax task`: the defaults of tasks.

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tokio_postgres::Row;
use trax_client::TaskDefaults;

use crate::command::commands;
use crate::output::{Cell, Column, Listed, Moment, Options, Record, Tone};
use crate::session::Session;
use crate::similar;
use trax_terminal::{Failure, duration};

const TASK_LIST: &str = include_str!("query/task_list.sql");

commands! {
    /// The tasks that have defaults of their own
    List(ListArguments) => list,
    /// Change the defaults of a task; omitted ones stay
    Set(SetArguments) => set,
    /// Remove the defaults of tasks, which then are those of the server
    Reset(ResetArguments) => reset,
}

#[derive(clap::Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    output: Options,
}

#[derive(clap::Args)]
pub(crate) struct SetArguments {
    /// The task
    name: String,
    /// Attempts after the first
    #[arg(long, value_name = "N")]
    max_retries: Option<i32>,
    /// The delay before the first retry, such as 30s or 5m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    retry_delay: Option<Duration>,
    /// The factor of each further delay, 1 to 100
    #[arg(long, value_name = "FACTOR")]
    backoff: Option<f64>,
    /// The longest delay
    #[arg(long, value_name = "TIME", value_parser = duration)]
    retry_delay_max: Option<Duration>,
    /// How long one attempt may run
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    /// The end of a job that fails for good: a dead letter that waits for a person, or one that is
    /// acknowledged already
    #[arg(long, value_name = "WHAT", value_parser = ["dead_letter", "acknowledge"])]
    on_final_failure: Option<String>,
    #[command(flatten)]
    output: Options,
}

#[derive(clap::Args)]
pub(crate) struct ResetArguments {
    /// The tasks
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    output: Options,
}

/// A task with defaults.
#[derive(Debug, Serialize)]
struct TaskRow {
    name: String,
    max_retries: Option<i32>,
    retry_delay: Option<String>,
    backoff: Option<f64>,
    retry_delay_max: Option<String>,
    timeout: Option<String>,
    on_final_failure: String,
}

async fn list(url: Option<String>, arguments: ListArguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let tasks = session.list::<TaskRow>(TASK_LIST, &[]).await?;
    let none = "no task has defaults of its own; trax task set gives some";
    arguments.output.list(&tasks, session.now, none)?;
    Ok(session.outcome())
}

async fn set(url: Option<String>, arguments: SetArguments) -> Result<ExitCode, Failure> {
    let defaults = defaults(&arguments).ok_or_else(|| {
        Failure::usage("nothing to set").hint(
            "use --max-retries, --retry-delay, --backoff, --retry-delay-max, --timeout or --on-final-failure",
        )
    })?;
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    session
        .client()
        .configure_task(&arguments.name, &defaults)
        .await?;
    arguments
        .output
        .named_changes("task", vec![arguments.name], "set")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the values that are given; `None` if there are none.
fn defaults(arguments: &SetArguments) -> Option<TaskDefaults> {
    let (mut defaults, mut given) = (TaskDefaults::new(), false);
    if let Some(retries) = arguments.max_retries {
        (defaults, given) = (defaults.max_retries(retries), true);
    }
    if let Some(delay) = arguments.retry_delay {
        (defaults, given) = (defaults.retry_delay(delay), true);
    }
    if let Some(factor) = arguments.backoff {
        (defaults, given) = (defaults.backoff(factor), true);
    }
    if let Some(delay) = arguments.retry_delay_max {
        (defaults, given) = (defaults.retry_delay_max(delay), true);
    }
    if let Some(timeout) = arguments.timeout {
        (defaults, given) = (defaults.timeout(timeout), true);
    }
    if let Some(what) = &arguments.on_final_failure {
        (defaults, given) = (defaults.on_final_failure(what), true);
    }
    given.then_some(defaults)
}

async fn reset(url: Option<String>, arguments: ResetArguments) -> Result<ExitCode, Failure> {
    let ResetArguments { names, output } = arguments;
    let session = Session::open(url.as_deref(), &output).await?;
    let tasks = session.list::<TaskRow>(TASK_LIST, &[]).await?;
    let known: Vec<String> = tasks.into_iter().map(|task| task.record.name).collect();
    let (names, others): (Vec<String>, Vec<String>) =
        names.into_iter().partition(|name| known.contains(name));
    for name in &others {
        let meant = similar::question(similar::closest(name, &known));
        output.note(&format!(
            "task \"{name}\" has no defaults of its own{meant}"
        ));
    }
    for name in &names {
        session.client().reset_task(name).await?;
    }
    output.named_changes("task", names, "reset")?;
    Ok(ExitCode::SUCCESS)
}

impl Listed for TaskRow {
    type Order = String;

    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(TaskRow {
            name: row.try_get("name")?,
            max_retries: row.try_get("max_retries")?,
            retry_delay: row.try_get("retry_delay")?,
            backoff: row.try_get("backoff")?,
            retry_delay_max: row.try_get("retry_delay_max")?,
            timeout: row.try_get("timeout")?,
            on_final_failure: row.try_get("on_final_failure")?,
        })
    }

    fn order(&self) -> Self::Order {
        self.name.clone()
    }
}

impl Record for TaskRow {
    const COLUMNS: &'static [Column] = &[
        Column::text("name"),
        Column::number("retries"),
        Column::whole("delay"),
        Column::number("backoff"),
        Column::whole("longest delay"),
        Column::whole("timeout"),
        Column::whole("on final failure"),
    ];

    fn cells(&self, _: Moment) -> Vec<Cell> {
        vec![
            Cell::new(&self.name, Tone::Strong),
            Cell::maybe(self.max_retries),
            Cell::maybe(self.retry_delay.as_deref()),
            Cell::maybe(self.backoff),
            Cell::maybe(self.retry_delay_max.as_deref()),
            Cell::maybe(self.timeout.as_deref()),
            Cell::plain(&self.on_final_failure),
        ]
    }

    fn key(&self) -> String {
        self.name.clone()
    }
}
