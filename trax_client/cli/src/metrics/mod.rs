//! `trax metrics`: the metrics of `trax.metrics()` in Prometheus format, once or over HTTP.

mod family;
mod serve;
mod text;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;

use serde::Serialize;
use serde_json::{Value, json};
use tokio_postgres::Row;
use trax_client::Address;

use crate::outbox::Outboxes;
use crate::output::{Options, json as print_json, say};
use crate::session::Session;
use trax_terminal::{Connection, Failure, address};

const HELP: &str = "Give Prometheus the address:

  trax metrics --listen 0.0.0.0:9187
  scrape_configs: [{job_name: trax, static_configs: [{targets: ['host:9187']}]}]

A role of the level reader is enough. Dashboard and alert rules are in the folder monitoring of the source.";

#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Serve them on this address at /metrics until SIGTERM; a port alone is reachable from this
    /// machine only
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["json", "quiet"])]
    listen: Option<String>,
    #[command(flatten)]
    output: Options,
}

/// A sample of `trax.metrics()`.
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

    /// Returns a sample of this program.
    fn own(name: &str, value: f64) -> Self {
        Sample {
            name: name.to_owned(),
            labels: Value::Object(serde_json::Map::new()),
            value,
        }
    }
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    if let Some(listen) = &arguments.listen {
        return serve::run(address::from_environment(url.as_deref())?, listen).await;
    }
    let config = address::from_environment(url.as_deref())?;
    let session = Session::to(&config, &arguments.output).await?;
    let (samples, away) = scrape(&session.connection, &config).await?;
    away.iter().for_each(|failure| {
        failure.report();
    });
    if arguments.output.json {
        print_json(&samples)?;
    } else if arguments.output.quiet {
        let names: BTreeSet<&str> = samples.iter().map(|s| s.name.as_str()).collect();
        arguments
            .output
            .keys(names.into_iter().map(str::to_owned))?;
    } else {
        say(text::exposition(&samples).trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Queries the database. Also returns the errors of a router's shards whose outboxes could not be
/// read.
async fn scrape(
    client: &Connection,
    address: &Address,
) -> Result<(Vec<Sample>, Vec<Failure>), Failure> {
    let begin = Instant::now();
    let sql = "select m.name, m.labels, m.value from trax.metrics() m";
    let rows = client.query_typed(sql, &[]).await?;
    let mut samples: Vec<Sample> = rows.iter().map(Sample::read).collect::<Result<_, _>>()?;
    let outboxes = Outboxes::of(client, address).await?;
    for outbox in &outboxes.found {
        let mut labels = json!({"outbox": outbox.id, "database": outbox.name});
        if let Some(shard) = outbox.shard {
            labels["shard"] = shard.to_string().into();
        }
        let sample = |name: &str, value| Sample {
            name: name.to_owned(),
            labels: labels.clone(),
            value,
        };
        samples.extend([
            sample("trax_outbox_waiting", outbox.waiting as f64),
            sample(
                "trax_outbox_oldest_age_seconds",
                outbox.oldest.as_secs_f64(),
            ),
            sample("trax_outbox_refused", outbox.refused as f64),
            sample(
                "trax_outbox_last_report_timestamp_seconds",
                outbox.reported_at,
            ),
        ]);
    }
    samples.push(Sample::own("trax_up", 1.0));
    let took = begin.elapsed().as_secs_f64();
    samples.push(Sample::own("trax_scrape_duration_seconds", took));
    Ok((samples, outboxes.away))
}
