//! `trax status`: the components that run, those that are missing, and the commands that fix them.

use std::process::ExitCode;

use trax_client::StatusLine;

use crate::output::{Cell, Column, Moment, Options, Record, Tone, say, width};
use crate::session::Session;
use trax_terminal::print;
use trax_terminal::{Failure, UNHEALTHY, as_commands};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Options,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let refusal = session.of_another_version().await?;
    let mut lines = match session.client().status().await {
        // If its version contains a C function, the call is refused too.
        Err(_) if refusal.is_some() => Vec::new(),
        lines => lines?,
    };
    if let Some(refusal) = refusal {
        let first = StatusLine {
            item: "version".to_owned(),
            value: Some(refusal.message),
            healthy: Some(false),
            hint: refusal.hint,
            shard: None,
        };
        lines.insert(0, first);
    }
    let (output, now) = (arguments.output, session.now);
    let ill: Vec<StatusLine> = lines
        .iter()
        .filter(|line| line.healthy == Some(false))
        .cloned()
        .collect();
    if output.quiet && !ill.is_empty() {
        output.list(&ill, now, "")?;
    } else if !output.quiet {
        output.list(&lines, now, "")?;
    }
    if !output.json && !output.quiet {
        hints(&lines)?;
    }
    let healthy = ill.is_empty();
    Ok(if healthy {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(UNHEALTHY)
    })
}

/// Prints the hints in full below the table, as a column would cut them.
fn hints(lines: &[StatusLine]) -> Result<(), Failure> {
    for line in lines {
        if let Some(hint) = &line.hint {
            let item = of_shard(line.shard, &line.item);
            let text = format!("{item}: {}", as_commands(hint));
            say("")?;
            say(&print::folded_at(&text, 2, width()))?;
        }
    }
    Ok(())
}

/// Prefixes a text with its shard, if a router reports one.
pub(crate) fn of_shard(shard: Option<i32>, text: &str) -> String {
    match shard {
        Some(shard) => format!("shard {shard}: {text}"),
        None => text.to_owned(),
    }
}

impl Record for StatusLine {
    const COLUMNS: &'static [Column] = &[
        Column::text("item"),
        Column::text("value"),
        Column::whole(""),
    ];

    fn cells(&self, _: Moment) -> Vec<Cell> {
        let (sign, tone) = match self.healthy {
            Some(true) => ("ok", Tone::Good),
            Some(false) => ("!!", Tone::Bad),
            None => ("", Tone::Plain),
        };
        vec![
            Cell::plain(of_shard(self.shard, &self.item)),
            Cell::maybe(self.value.as_deref()),
            Cell::new(sign, tone),
        ]
    }

    fn key(&self) -> String {
        of_shard(self.shard, &self.item)
    }
}
