//! `trax metrics`: the numbers of `trax.metrics()` as Prometheus reads them, once or on an address.

mod family;
mod serve;
mod text;

use std::process::ExitCode;
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;
use tokio_postgres::{Client, Row};

use crate::address;
use crate::failure::Failure;
use crate::output::json;

const HELP: &str = "Give Prometheus the address:

  trax metrics --listen 0.0.0.0:9187
  scrape_configs: [{job_name: trax, static_configs: [{targets: ['host:9187']}]}]

A role of the level reader is enough. Dashboard and alert rules are in the folder monitoring of the source.";

#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Serve them on this address at /metrics until SIGTERM; a port alone is one of this machine only
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// One JSON array of objects instead: name, labels, value
    #[arg(long, conflicts_with = "listen")]
    json: bool,
}

/// One number of `trax.metrics()`.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Sample {
    name: String,
    labels: Value,
    value: f64,
}

impl Sample {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Sample {
            name: row.try_get(0)?,
            labels: row.try_get(1)?,
            value: row.try_get(2)?,
        })
    }

    /// A number of this program's own.
    fn own(name: &str, value: f64) -> Self {
        Sample {
            name: name.to_owned(),
            labels: Value::Object(serde_json::Map::new()),
            value,
        }
    }
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let config = address::from_environment(url.as_deref())?;
    if let Some(listen) = &arguments.listen {
        return serve::run(config, listen).await;
    }
    let client = address::connect(&config).await?;
    let samples = scrape(&client).await?;
    if arguments.json {
        json(&samples)?;
    } else {
        crate::output::say(text::exposition(&samples).trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks the database.
async fn scrape(client: &Client) -> Result<Vec<Sample>, trax_client::Error> {
    let begin = Instant::now();
    let sql = "select m.name, m.labels, m.value from trax.metrics() m";
    let rows = client.query_typed(sql, &[]).await?;
    let mut samples: Vec<Sample> = rows.iter().map(Sample::read).collect::<Result<_, _>>()?;
    samples.push(Sample::own("trax_up", 1.0));
    let took = begin.elapsed().as_secs_f64();
    samples.push(Sample::own("trax_scrape_duration_seconds", took));
    Ok(samples)
}
