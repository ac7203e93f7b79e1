//! `trax cron explain`: the meaning and the next times of a cron expression.
//!
//! The server parses the expression and computes its times, so the result matches a manifest's.
//! Only the sentence is made here, with the server's own parser.

use std::process::ExitCode;

use serde::Serialize;
use tokio_postgres::types::Type;

use crate::command::commands;
use crate::output::{Moment, Options, json, say, width};
use crate::session::Session;
use crate::upcoming::{self, UpcomingRun};
use trax_terminal::Failure;
use trax_terminal::print::folded_at;

commands! {
    /// Describe a cron expression in English and show its next times, in its zone and in yours
    Explain(Explain) => explain,
}

#[derive(clap::Args)]
pub(crate) struct Explain {
    /// Five fields (minute, hour, day of month, month, day of week), six with seconds in front, or
    /// @daily and the like
    #[arg(required = true)]
    expression: Vec<String>,
    /// Its time zone, an IANA name
    #[arg(long, short = 'z', value_name = "ZONE", default_value = "UTC")]
    timezone: String,
    /// How many times
    #[arg(long, short = 'n', value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(i32).range(1..=1000))]
    count: i32,
    /// Only times after this one; default: now
    #[arg(long, value_name = "TIME")]
    after: Option<String>,
    #[command(flatten)]
    output: Options,
}

/// An expression and its next times.
#[derive(Serialize)]
struct Explanation<'a> {
    expression: &'a str,
    timezone: &'a str,
    description: String,
    runs: Vec<UpcomingRun>,
}

async fn explain(url: Option<String>, arguments: Explain) -> Result<ExitCode, Failure> {
    let [expression] = arguments.expression.as_slice() else {
        return Err(Failure::usage("the expression is one argument")
            .hint("quote it for the shell: trax cron explain '0 2 * * *'"));
    };
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let after = match &arguments.after {
        Some(text) => Some(session.time(text).await?),
        None => None,
    };
    let sql = "select p.run_at, p.local_time, p.note \
               from trax.preview_cron($1, $2, coalesce($3, pg_catalog.now()), $4) p";
    let rows = session
        .rows(
            sql,
            &[
                (expression, Type::TEXT),
                (&arguments.timezone, Type::TEXT),
                (&after, Type::TIMESTAMPTZ),
                (&arguments.count, Type::INT4),
            ],
        )
        .await?;
    let explanation = Explanation {
        expression,
        timezone: &arguments.timezone,
        description: describe(expression, &arguments.timezone),
        runs: rows
            .iter()
            .map(UpcomingRun::read)
            .collect::<Result<_, _>>()?,
    };
    let output = arguments.output;
    if output.json {
        json(&[explanation])?;
    } else if output.quiet {
        output.list(&explanation.runs, session.now, "")?;
    } else {
        show(&explanation, session.now)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns "At 02:00 every day (Europe/Berlin)".
fn describe(expression: &str, timezone: &str) -> String {
    // The server has accepted the expression, and its version may differ.
    let sentence = trax_schedule::describe(expression)
        .unwrap_or_else(|_| format!("When \"{expression}\" matches"));
    format!("{sentence} ({timezone})")
}

fn show(explanation: &Explanation<'_>, now: Moment) -> Result<(), Failure> {
    say(&folded_at(&explanation.description, 2, width()))?;
    say("")?;
    say(&upcoming::text(&explanation.runs, now))
}
