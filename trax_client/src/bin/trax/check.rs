//! `trax check`: every invariant that SQL can see.

use std::process::ExitCode;

use trax_client::Client;

use crate::failure::{Failure, UNHEALTHY};
use crate::{address, print};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// One JSON array, for programs
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let config = address::from_environment(url.as_deref())?;
    let connection = address::connect(&config).await?;
    let violations = Client::new(&connection).check().await?;
    if arguments.json {
        println!(
            "{}",
            serde_json::to_string(&violations).map_err(trax_client::Error::from)?
        );
    } else if violations.is_empty() {
        println!("healthy: no rule is violated");
    } else {
        let rows: Vec<Vec<String>> = violations
            .iter()
            .map(|v| vec![v.rule.clone(), v.detail.clone().unwrap_or_default()])
            .collect();
        println!("{}", print::table(&["rule", "detail"], &rows));
    }
    Ok(if violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(UNHEALTHY)
    })
}
