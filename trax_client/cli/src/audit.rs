//! `trax audit`: the acts of operators.

use std::cmp::Reverse;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::output::{Cell, Column, Listed, Moment, Options, Record, Tone};
use crate::session::Session;
use crate::similar::{self, Kind};
use trax_terminal::Failure;

const AUDIT_LIST: &str = include_str!("query/audit_list.sql");
const ACTIONS: [&str; 24] = [
    "acknowledge",
    "adopt",
    "believe_clock",
    "cancel",
    "change",
    "close",
    "configure",
    "disable",
    "drop",
    "enable",
    "fork",
    "grant",
    "move",
    "open",
    "pause",
    "queue_again",
    "requeue",
    "resume",
    "revoke",
    "run_now",
    "schedule",
    "set_shard",
    "trigger",
    "unschedule",
];
const KINDS: [&str; 8] = [
    "dead_letter",
    "group",
    "job",
    "manifest",
    "rate",
    "role",
    "scheduler",
    "task",
];

#[derive(clap::Args)]
#[command(after_help = "\
Acts are kept for trax.audit_retention (90 days). What jobs did is in trax jobs list.
The role is authenticated; the program is only the name that the session reported.

Examples:
  trax audit --since '1 day'
  trax audit --kind manifest --name nightly-report
  trax audit --action cancel --role ada --json")]
pub(crate) struct Arguments {
    /// Only acts of this role; may be repeated
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<String>,
    /// Only this act; may be repeated
    #[arg(long = "action", value_name = "ACTION", value_parser = PossibleValuesParser::new(ACTIONS))]
    actions: Vec<String>,
    /// Only acts on this kind of object; may be repeated
    #[arg(long = "kind", value_name = "KIND", value_parser = PossibleValuesParser::new(KINDS))]
    kinds: Vec<String>,
    /// Only acts on what has this name or id; may be repeated
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// Only acts since: a time, or an age ('2 h')
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// The most rows to show
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..))]
    limit: i64,
    #[command(flatten)]
    output: Options,
}

/// An act of an operator.
#[derive(Debug, Serialize)]
struct Act {
    id: i64,
    at: Moment,
    role: String,
    program: String,
    action: String,
    kind: String,
    name: String,
    note: Option<String>,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let since = session.since(arguments.since.as_deref()).await?;
    let any = |names: &Vec<String>| Some(names.clone()).filter(|names| !names.is_empty());
    let mut acts = session
        .list::<Act>(
            AUDIT_LIST,
            &[
                (&any(&arguments.roles), Type::TEXT_ARRAY),
                (&any(&arguments.actions), Type::TEXT_ARRAY),
                (&any(&arguments.kinds), Type::TEXT_ARRAY),
                (&any(&arguments.names), Type::TEXT_ARRAY),
                (&since, Type::TIMESTAMPTZ),
                (&arguments.limit.saturating_add(1), Type::INT8),
            ],
        )
        .await?;
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    let more = acts.len() > limit;
    acts.truncate(limit);
    let output = arguments.output;
    output.list(&acts, session.now, "no act matches")?;
    if acts.is_empty() {
        let filters = [
            (Kind::Role, arguments.roles.as_slice()),
            (Kind::Audited, arguments.names.as_slice()),
        ];
        similar::note(&session, &output, &filters).await;
    }
    if more {
        output.note(&format!("there are more rows; --limit is {limit}"));
    }
    Ok(session.outcome())
}

impl Listed for Act {
    type Order = Reverse<Moment>;

    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Act {
            id: row.try_get("id")?,
            at: row.try_get("at")?,
            role: row.try_get("role")?,
            program: row.try_get("program")?,
            action: row.try_get("action")?,
            kind: row.try_get("kind")?,
            name: row.try_get("name")?,
            note: row.try_get("note")?,
        })
    }

    fn order(&self) -> Self::Order {
        Reverse(self.at)
    }
}

impl Record for Act {
    const COLUMNS: &'static [Column] = &[
        Column::whole("when"),
        Column::text("role"),
        Column::whole("action"),
        Column::whole("kind"),
        Column::text("name"),
        Column::text("note"),
        Column::text("program").verbose(),
        Column::number("id").verbose(),
    ];

    fn cells(&self, now: Moment) -> Vec<Cell> {
        vec![
            Cell::plain(self.at.relative(now)),
            Cell::plain(&self.role),
            Cell::new(&self.action, Tone::Strong),
            Cell::plain(&self.kind),
            Cell::plain(&self.name),
            Cell::maybe(self.note.as_deref()),
            Cell::dim(&self.program),
            Cell::plain(self.id),
        ]
    }

    fn key(&self) -> String {
        self.id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Adds the acts that the code in a directory records.
    fn recorded(place: &Path, found: &mut BTreeSet<String>) {
        if place.is_dir() {
            let entries = std::fs::read_dir(place).expect("a directory");
            entries.for_each(|entry| recorded(&entry.expect("an entry").path(), found));
            return;
        }
        let text = std::fs::read_to_string(place).unwrap_or_default();
        for call in [
            "audit::record(spi, \"",
            "audit::record_change(spi, \"",
            "audit::record_here(spi, \"",
        ] {
            let acts = text.split(call).skip(1);
            found.extend(acts.filter_map(|act| Some(act.split_once('"')?.0.to_owned())));
        }
        for inserted in text
            .split("insert into trax.audit (action, kind, name, note)")
            .skip(1)
        {
            let values = inserted.trim_start().strip_prefix("values ('");
            found.extend(values.and_then(|act| Some(act.split_once('\'')?.0.to_owned())));
        }
    }

    #[test]
    fn every_act_can_be_asked_for() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut found = BTreeSet::new();
        for place in ["trax_pg/src", "sql/api", "sql/shard"] {
            recorded(&root.join(place), &mut found);
        }
        assert!(
            found.contains("fork") && found.contains("move"),
            "{found:?}"
        );
        let missing: Vec<&String> = found
            .iter()
            .filter(|act| !ACTIONS.contains(&act.as_str()))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
        let sql = std::fs::read_to_string(root.join("sql/schema/audit.sql")).expect("a file");
        let (last, others) = ACTIONS.split_last().expect("there are some");
        let told = format!("What was done: {} or {last}.", others.join(", "));
        assert!(sql.contains(&told), "{told}");
    }
}
