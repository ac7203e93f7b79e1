//! `trax metrics --listen`: serves the metrics over HTTP.
//!
//! Input: requests for /metrics. Output: the metrics, queried each time over one database
//! connection, which is reopened when it breaks. Invariants: if the database does not answer, the
//! result is `trax_up 0` and this program continues; only one request at a time reaches the
//! database.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;
use tokio::time::timeout;
use trax_client::Address;
use trax_client::http::{self, Page};

use super::{Sample, scrape, text};
use trax_terminal::{Connection, Failure, address, print};

/// The time limit for an answer of the database.
const PATIENCE: Duration = Duration::from_secs(10);

const PAGE: &str =
    "<html><body><h1>trax</h1><p><a href=\"/metrics\">metrics</a></p></body></html>\n";
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The database behind the address.
struct Source {
    config: Address,
    client: Mutex<Option<Connection>>,
}

pub(super) async fn run(config: Address, listen: &str) -> Result<ExitCode, Failure> {
    let listener = http::listen(listen).map_err(|error| {
        Failure::usage(format!("cannot listen on {listen}: {error}"))
            .hint("use a free address of this machine: --listen 127.0.0.1:9187")
    })?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let bound = listener.local_addr()?;
    let database = address::describe(&config);
    print::log(
        "trax",
        &format!("serves http://{bound}/metrics of {database}"),
    );
    let source = Arc::new(Source {
        config,
        client: Mutex::new(None),
    });
    let trouble = |error| print::log("trax", &format!("cannot accept a connection: {error}"));
    let page = move |path: String| {
        let source = Arc::clone(&source);
        async move { source.page(&path).await }
    };
    tokio::select! {
        served = http::serve(listener, trouble, page) => served?,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(ExitCode::SUCCESS)
}

impl Source {
    async fn page(&self, path: &str) -> Page {
        let found = |kind, body| Page {
            status: "200 OK",
            kind,
            body,
        };
        match path {
            "/metrics" => found(EXPOSITION, self.exposition().await),
            "/" => found("text/html", PAGE.to_owned()),
            _ => Page::text("404 Not Found", "see /metrics\n"),
        }
    }

    async fn exposition(&self) -> String {
        let begin = Instant::now();
        match self.samples().await {
            Ok(samples) => text::exposition(&samples),
            Err(error) => {
                print::log("trax", &error);
                let took = begin.elapsed().as_secs_f64();
                text::exposition(&[
                    Sample::own("trax_up", 0.0),
                    Sample::own("trax_scrape_duration_seconds", took),
                ])
            }
        }
    }

    async fn samples(&self) -> Result<Vec<Sample>, String> {
        let mut kept = self.client.lock().await;
        if kept.as_ref().is_none_or(|client| client.is_closed()) {
            let connected = timeout(PATIENCE, address::connect(&self.config)).await;
            let client = connected.map_err(|_| "the database does not answer".to_owned())?;
            *kept = Some(client.map_err(|failure| failure.to_string())?);
        }
        let Some(client) = kept.as_ref() else {
            return Err("there is no connection".to_owned());
        };
        match timeout(PATIENCE, scrape(client, &self.config)).await {
            Ok(Ok((samples, away))) => {
                for failure in away {
                    print::log("trax", &failure.to_string());
                }
                Ok(samples)
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => {
                // Otherwise the late answer would be taken for that of the next request.
                *kept = None;
                Err("the database does not answer".to_owned())
            }
        }
    }
}
