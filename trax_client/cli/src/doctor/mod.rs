//! `trax doctor`: problems and the commands that fix them, from `trax.diagnose()` and from checks
//! that only a client can make.

mod connection;
mod group;
mod outbox;

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::output::{
    Cell, Column, Moment, Options, Record, Tone, json, one_line, paint, say, width,
};
use connection::Reached;
use trax_terminal::address;
use trax_terminal::print;
use trax_terminal::quote::{self, literal};
use trax_terminal::{Failure, UNHEALTHY, as_commands, duration};

const HELP: &str = "A finding is critical (jobs do not run, or soon will not), a warning, or a notice, which is not a \
problem. Exit code 2 when there is a critical finding or a warning.";

#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// How long jobs may wait, snapshots be held and no cycle run before it counts as a problem
    #[arg(long, value_name = "TIME", default_value = "5 min", value_parser = duration)]
    patience: Duration,
    #[command(flatten)]
    output: Options,
}

/// The severity, the most severe first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    Critical,
    Warning,
    Notice,
}

/// A problem found, and its fix.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Finding {
    cause: String,
    severity: Severity,
    detail: String,
    fix: String,
}

impl Finding {
    fn new(
        severity: Severity,
        cause: &str,
        detail: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Finding {
            cause: cause.to_owned(),
            severity,
            detail: detail.into(),
            fix: fix.into(),
        }
    }

    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let severity: String = row.try_get("severity")?;
        let severity = match severity.as_str() {
            "critical" => Severity::Critical,
            _ => Severity::Warning,
        };
        let fix: Option<String> = row.try_get("fix")?;
        let (cause, detail): (String, String) = (row.try_get("cause")?, row.try_get("detail")?);
        Ok(Finding::new(
            severity,
            &cause,
            detail,
            fix.unwrap_or_default(),
        ))
    }

    /// Returns several lines of text; `--json` keeps the fix as the server words it.
    fn text(&self) -> String {
        let indent = "  ";
        let folded = |label: &str, text: &str| {
            let line = format!("{indent}{label}{}", one_line(text));
            print::folded_at(&line, indent.len() + label.len(), width())
        };
        let heading = format!(
            "{} {}",
            paint(self.severity.name(), self.severity.tone()),
            paint(&self.cause, Tone::Strong)
        );
        let mut lines = vec![heading, folded("", &self.detail)];
        if !self.fix.is_empty() {
            lines.push(folded("-> ", &as_commands(&self.fix)));
        }
        lines.join("\n")
    }
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
            Severity::Notice => "notice",
        }
    }

    fn tone(self) -> Tone {
        match self {
            Severity::Critical => Tone::Bad,
            Severity::Warning => Tone::Warn,
            Severity::Notice => Tone::Active,
        }
    }
}

impl Record for Finding {
    const COLUMNS: &'static [Column] = &[
        Column::whole("severity"),
        Column::whole("cause"),
        Column::text("detail"),
    ];

    fn cells(&self, _: Moment) -> Vec<Cell> {
        vec![
            Cell::new(self.severity.name(), self.severity.tone()),
            Cell::plain(&self.cause),
            Cell::plain(&self.detail),
        ]
    }

    fn key(&self) -> String {
        self.cause.clone()
    }
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let config = address::from_environment(url.as_deref())?;
    let output = arguments.output;
    if output.verbose {
        print::log(
            "trax",
            &format!("connecting to {}", address::describe(&config)),
        );
    }
    let mut findings = Vec::new();
    let mut examined = None;
    match connection::reach(&config).await {
        Ok(reached) => {
            findings.extend(reached.findings.iter().cloned());
            findings.extend(inside(&reached, arguments.patience).await?);
            findings.extend(group::mistyped(&reached).await);
            findings.extend(outbox::findings(&reached, &config, arguments.patience).await?);
            examined = Some(reached);
        }
        Err(unreachable) => findings.push(*unreachable),
    }
    findings.sort_by_key(|finding| finding.severity);
    show(&findings, examined.as_ref(), output)?;
    let ill = findings.iter().any(|f| f.severity < Severity::Notice);
    Ok(if ill {
        ExitCode::from(UNHEALTHY)
    } else {
        ExitCode::SUCCESS
    })
}

/// Returns the database's own findings.
async fn inside(reached: &Reached, patience: Duration) -> Result<Vec<Finding>, Failure> {
    if !reached.installed {
        return Ok(Vec::new());
    }
    let patience = patience.as_secs_f64();
    // A router adds the number of the shard.
    let sql = "select d.cause, d.severity, \
               coalesce('Shard ' || (pg_catalog.to_jsonb(d) ->> 'shard') || ': ', '') || d.detail as detail, d.fix \
               from trax.diagnose(patience => pg_catalog.make_interval(secs => $1)) d";
    let rows = reached
        .client
        .query_typed(sql, &[(&patience, Type::FLOAT8)])
        .await;
    match rows.map_err(trax_client::Error::from) {
        Ok(rows) => Ok(rows.iter().map(Finding::read).collect::<Result<_, _>>()?),
        Err(trax_client::Error::NotPermitted(_)) => Ok(vec![Finding::new(
            Severity::Critical,
            "missing_grants",
            format!(
                "Role \"{}\" may not call trax.diagnose(): there are no further checks.",
                reached.role
            ),
            format!(
                "As an administrator of trax: select trax.grant_access({}, 'reader'){}",
                literal(&quote::name(&reached.role)),
                trax_client::Access::KEEPS_BOTH
            ),
        )]),
        // The library's version differs.
        Err(trax_client::Error::WrongState(report)) => Ok(vec![Finding::new(
            Severity::Critical,
            "refused",
            format!("Calls are refused: {}.", report.message),
            report.hint.unwrap_or_default(),
        )]),
        Err(error) => Err(error.into()),
    }
}

fn show(findings: &[Finding], examined: Option<&Reached>, output: Options) -> Result<(), Failure> {
    if output.json {
        return json(findings);
    }
    if output.quiet {
        return output.keys(findings.iter().map(|finding| finding.cause.clone()));
    }
    let mut texts: Vec<String> = findings.iter().map(Finding::text).collect();
    if let Some(examined) = examined {
        if !findings.iter().any(|f| f.severity < Severity::Notice) {
            texts.push(format!(
                "{}: no problem was found",
                paint("healthy", Tone::Good)
            ));
        }
        let summary = print::folded_at(&examined.summary(), 2, width());
        texts.push(paint(&summary, Tone::Dim));
    }
    say(&texts.join("\n\n"))
}
