//! `trax tokens`: the holders and waiters of tokens, limited by `trax lock` and
//! `trax.acquire_token`.

use std::process::ExitCode;

use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::output::{Cell, Column, Listed, Moment, Options, Record, Tone};
use crate::session::Session;
use crate::similar::{self, Kind};
use trax_terminal::Failure;

const TOKEN_LIST: &str = include_str!("query/token_list.sql");

#[derive(clap::Args)]
#[command(after_help = "\
The place of a holder is its slot; that of a waiter its place in the queue: 1 is served next.")]
pub(crate) struct Arguments {
    /// Only of this name
    name: Option<String>,
    #[command(flatten)]
    output: Options,
}

/// A holder of a token, or a waiter.
#[derive(Debug, Serialize)]
struct Holder {
    name: String,
    state: String,
    place: i32,
    max_holders: i32,
    holder: String,
    since: Moment,
    expires_at: Option<Moment>,
    pid: Option<i32>,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let holders = session
        .list::<Holder>(TOKEN_LIST, &[(&arguments.name, Type::TEXT)])
        .await?;
    let nothing = match &arguments.name {
        Some(name) => format!("no one holds or waits for \"{name}\""),
        None => "no one holds or waits for a token".to_owned(),
    };
    let output = arguments.output;
    output.list(&holders, session.now, &nothing)?;
    if holders.is_empty() {
        let name: Vec<String> = arguments.name.into_iter().collect();
        similar::note(&session, &output, &[(Kind::Token, name.as_slice())]).await;
    }
    Ok(session.outcome())
}

impl Listed for Holder {
    type Order = (String, String, i32);

    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Holder {
            name: row.try_get("name")?,
            state: row.try_get("state")?,
            place: row.try_get("slot")?,
            max_holders: row.try_get("max_holders")?,
            holder: row.try_get("holder")?,
            since: row.try_get("since")?,
            expires_at: row.try_get("expires_at")?,
            pid: row.try_get("pid")?,
        })
    }

    fn order(&self) -> Self::Order {
        (self.name.clone(), self.state.clone(), self.place)
    }
}

impl Record for Holder {
    const COLUMNS: &'static [Column] = &[
        Column::text("name"),
        Column::whole("state"),
        Column::number("place"),
        Column::number("of"),
        Column::text("holder"),
        Column::whole("since"),
        Column::whole("expires"),
        Column::number("pid"),
    ];

    fn cells(&self, now: Moment) -> Vec<Cell> {
        let held = self.state == "held";
        vec![
            Cell::new(&self.name, Tone::Strong),
            Cell::new(&self.state, if held { Tone::Active } else { Tone::Warn }),
            Cell::plain(self.place),
            Cell::plain(self.max_holders),
            Cell::plain(&self.holder),
            Cell::plain(self.since.relative(now)),
            Cell::maybe(self.expires_at.map(|at| at.relative(now))),
            Cell::maybe(self.pid),
        ]
    }

    fn key(&self) -> String {
        self.holder.clone()
    }
}
