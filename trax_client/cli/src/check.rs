//! `trax check`: the invariants that can be checked in SQL.

use std::process::ExitCode;

use trax_client::Violation;

use crate::output::{Cell, Column, Moment, Options, Record, say};
use crate::session::Session;
use crate::status::of_shard;
use trax_terminal::{Failure, UNHEALTHY};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Options,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let refusal = session.of_another_version().await?;
    let mut violations = match session.client().check().await {
        // If its version contains a C function, the call is refused too.
        Err(_) if refusal.is_some() => Vec::new(),
        violations => violations?,
    };
    if let Some(refusal) = refusal {
        let first = Violation {
            rule: refusal.message,
            detail: refusal.hint,
            shard: None,
        };
        violations.insert(0, first);
    }
    let healthy = violations.is_empty();
    if healthy && !arguments.output.json {
        if !arguments.output.quiet {
            say("healthy: no invariant is violated")?;
        }
    } else {
        arguments.output.list(&violations, session.now, "")?;
    }
    Ok(if healthy {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(UNHEALTHY)
    })
}

impl Record for Violation {
    const COLUMNS: &'static [Column] = &[Column::whole("rule"), Column::text("detail")];

    fn cells(&self, _: Moment) -> Vec<Cell> {
        vec![
            Cell::plain(of_shard(self.shard, &self.rule)),
            Cell::maybe(self.detail.as_deref()),
        ]
    }

    fn key(&self) -> String {
        self.rule.clone()
    }
}
