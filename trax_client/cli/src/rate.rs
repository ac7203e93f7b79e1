//! `trax rate`: how much may start in a time.

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tokio_postgres::Row;
use trax_client::{Closed, Rate};

use crate::command::commands;
use crate::output::{Cell, Column, Listed, Moment, Options, Record, Tone};
use crate::session::Session;
use trax_terminal::{Failure, duration, quote};

const RATE_LIST: &str = include_str!("query/rate_list.sql");

commands! {
    /// The rates, with what is left of each
    List(ListArguments) => list,
    /// Create or change a rate
    Set(SetArguments) => set,
    /// Let nothing of a rate start before a time
    Close(CloseArguments) => close,
    /// Open a rate that is closed
    Open(OpenArguments) => open,
    /// Remove a rate that no job and no group names
    Drop(DropArguments) => drop_rate,
}

#[derive(clap::Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    output: Options,
}

#[derive(clap::Args)]
pub(crate) struct SetArguments {
    /// The rate
    name: String,
    /// How much of each key may start in each period
    #[arg(long, value_name = "N")]
    allowed: i32,
    /// The period, such as 1s or 1h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    per: Duration,
    /// How much may start at once after a pause; default as much as in a period
    #[arg(long, value_name = "N")]
    burst: Option<i32>,
    #[command(flatten)]
    output: Options,
}

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("end").required(true))]
pub(crate) struct CloseArguments {
    /// The rate
    name: String,
    /// Only this key of it
    #[arg(long)]
    key: Option<String>,
    /// Closed for this time, such as 5m
    #[arg(long = "for", value_name = "TIME", value_parser = duration, group = "end")]
    span: Option<Duration>,
    /// Closed until this time, in PostgreSQL's syntax and your time zone
    #[arg(long, value_name = "TIME", group = "end")]
    until: Option<String>,
    #[command(flatten)]
    output: Options,
}

#[derive(clap::Args)]
pub(crate) struct OpenArguments {
    /// The rate
    name: String,
    /// Only this key of it
    #[arg(long)]
    key: Option<String>,
    #[command(flatten)]
    output: Options,
}

#[derive(clap::Args)]
pub(crate) struct DropArguments {
    /// The rate
    name: String,
    #[command(flatten)]
    output: Options,
}

/// A row of the list of rates.
#[derive(Debug, Serialize)]
struct RateRow {
    name: String,
    allowed: i32,
    period: String,
    burst: i32,
    available: Option<i32>,
    free_at: Option<Moment>,
    closed_until: Option<Moment>,
    #[serde(skip)]
    closed_for_good: bool,
    waiting: i64,
}

async fn list(url: Option<String>, arguments: ListArguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let rates = session.list::<RateRow>(RATE_LIST, &[]).await?;
    let nothing = "there is no rate yet";
    arguments.output.list(&rates, session.now, nothing)?;
    Ok(session.outcome())
}

async fn set(url: Option<String>, arguments: SetArguments) -> Result<ExitCode, Failure> {
    let mut rate = Rate::new(arguments.allowed, arguments.per);
    if let Some(burst) = arguments.burst {
        rate = rate.burst(burst);
    }
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let client = session.client();
    client.configure_rate(&arguments.name, &rate).await?;
    changed(&arguments.output, arguments.name, "set")
}

async fn close(url: Option<String>, arguments: CloseArguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let CloseArguments {
        name, key, output, ..
    } = arguments;
    let closed = match (arguments.span, &arguments.until) {
        (Some(Duration::ZERO), _) => return Err(over("that time", &name)),
        (Some(span), _) => Closed::For(span),
        (None, Some(until)) => match session.time(until).await? {
            at if Moment::from(at) <= session.now => return Err(over(until, &name)),
            at => Closed::Until(at),
        },
        (None, None) => return Err(Failure::usage("until when is missing").hint("use --for 5m")),
    };
    let client = session.client();
    client.close_rate(&name, key.as_deref(), closed).await?;
    changed(&output, name, "closed")
}

/// Returns the error for a time before which nothing can start any more.
fn over(until: &str, name: &str) -> Failure {
    Failure::usage(format!("{until} is over: the rate would be open")).hint(format!(
        "type a later time, such as --for 5m; to open it: trax rate open {}",
        quote::word(name)
    ))
}

async fn open(url: Option<String>, arguments: OpenArguments) -> Result<ExitCode, Failure> {
    let OpenArguments { name, key, output } = arguments;
    let session = Session::open(url.as_deref(), &output).await?;
    let client = session.client();
    client
        .close_rate(&name, key.as_deref(), Closed::Open)
        .await?;
    changed(&output, name, "opened")
}

async fn drop_rate(url: Option<String>, arguments: DropArguments) -> Result<ExitCode, Failure> {
    let DropArguments { name, output } = arguments;
    let session = Session::open(url.as_deref(), &output).await?;
    session.client().drop_rate(&name).await?;
    changed(&output, name, "dropped")
}

fn changed(output: &Options, name: String, action: &'static str) -> Result<ExitCode, Failure> {
    output.named_changes("rate", vec![name], action)?;
    Ok(ExitCode::SUCCESS)
}

impl Listed for RateRow {
    type Order = String;

    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(RateRow {
            name: row.try_get("name")?,
            allowed: row.try_get("allowed")?,
            period: row.try_get("period")?,
            burst: row.try_get("burst")?,
            available: row.try_get("available")?,
            free_at: row.try_get("free_at")?,
            closed_until: row.try_get("closed_until")?,
            closed_for_good: row.try_get("closed_for_good")?,
            waiting: row.try_get("waiting")?,
        })
    }

    fn order(&self) -> Self::Order {
        self.name.clone()
    }
}

impl Record for RateRow {
    const COLUMNS: &'static [Column] = &[
        Column::text("name"),
        Column::number("allowed"),
        Column::whole("per"),
        Column::number("burst"),
        Column::number("available"),
        Column::whole("next"),
        Column::whole("closed until"),
        Column::number("waiting"),
    ];

    fn cells(&self, now: Moment) -> Vec<Cell> {
        let closed = match self.closed_until {
            Some(until) => Some(until.relative(now)),
            None if self.closed_for_good => Some("it is opened".to_owned()),
            None => None,
        };
        vec![
            Cell::new(&self.name, Tone::Strong),
            Cell::plain(self.allowed),
            Cell::plain(&self.period),
            Cell::plain(self.burst),
            Cell::maybe(self.available),
            Cell::maybe(self.free_at.map(|at| at.relative(now))),
            Cell::maybe(closed),
            Cell::plain(self.waiting),
        ]
    }

    fn key(&self) -> String {
        self.name.clone()
    }
}
