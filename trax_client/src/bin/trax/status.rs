//! `trax status`: what runs, what is missing and what to type.

use std::process::ExitCode;

use trax_client::{Client, StatusLine};

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
    let lines = Client::new(&connection).status().await?;
    if arguments.json {
        println!(
            "{}",
            serde_json::to_string(&lines).map_err(trax_client::Error::from)?
        );
    } else {
        let rows: Vec<Vec<String>> = lines.iter().map(row).collect();
        println!("{}", print::table(&["item", "value", "", "hint"], &rows));
    }
    let healthy = lines.iter().all(|line| line.healthy != Some(false));
    Ok(if healthy {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(UNHEALTHY)
    })
}

fn row(line: &StatusLine) -> Vec<String> {
    let sign = match line.healthy {
        Some(true) => "ok",
        Some(false) => "!!",
        None => "",
    };
    vec![
        line.item.clone(),
        line.value.clone().unwrap_or_default(),
        sign.to_owned(),
        line.hint.clone().unwrap_or_default(),
    ]
}
