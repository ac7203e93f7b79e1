//! `trax metrics --listen`: as much of an HTTP server as a scraper needs.
//!
//! Enters: requests for /metrics. Leaves: the numbers, asked for anew each time over one connection to the database that
//! is made again when it broke.
//! Holds: a database that does not answer is `trax_up 0`, not a failure of this program; one request at a time reaches the
//! database, however many scrape.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;
use tokio_postgres::Client;
use trax_client::Address;

use super::{Sample, scrape, text};
use crate::failure::Failure;
use crate::{address, print};

/// How long a request, and an answer of the database, may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest request that is read.
const REQUEST_BYTES: usize = 8 * 1024;
/// How many connections are served at once; further ones wait.
const CONNECTIONS: usize = 64;

const PAGE: &str =
    "<html><body><h1>trax</h1><p><a href=\"/metrics\">metrics</a></p></body></html>\n";
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The database behind the address.
struct Source {
    config: Address,
    client: Mutex<Option<Client>>,
}

pub(super) async fn run(config: Address, listen: &str) -> Result<ExitCode, Failure> {
    let address = if listen.contains(':') {
        listen.to_owned()
    } else {
        format!("127.0.0.1:{listen}")
    };
    let listener = TcpListener::bind(&address).await.map_err(|error| {
        Failure::usage(format!("cannot listen on {address}: {error}"))
            .hint("give a free address of this machine: --listen 127.0.0.1:9187")
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
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of descriptors, or a client that is gone already.
                Err(error) => {
                    print::log("trax", &format!("cannot accept a connection: {error}"));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        };
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            break;
        };
        let source = Arc::clone(&source);
        tokio::spawn(async move {
            // A client that breaks off or says nothing is its own affair.
            drop(timeout(2 * PATIENCE, answer(stream, &source)).await);
            drop(permit);
        });
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads one request and answers it.
async fn answer(mut stream: TcpStream, source: &Source) {
    let request = match timeout(PATIENCE, request(&mut stream)).await {
        Ok(Some(request)) => request,
        Ok(None) | Err(_) => return,
    };
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let path = target.split('?').next().unwrap_or("");
    let (status, kind, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => ("200 OK", EXPOSITION, source.exposition().await),
        ("GET" | "HEAD", "/") => ("200 OK", "text/html", PAGE.to_owned()),
        ("GET" | "HEAD", _) => ("404 Not Found", "text/plain", "see /metrics\n".to_owned()),
        _ => (
            "405 Method Not Allowed",
            "text/plain",
            "GET only\n".to_owned(),
        ),
    };
    let mut response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if method != "HEAD" {
        response.push_str(&body);
    }
    if stream.write_all(response.as_bytes()).await.is_ok() && stream.shutdown().await.is_err() {}
}

/// The first line of a request, once its head is there.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut part = [0_u8; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let length = stream.read(&mut part).await.ok()?;
        if length == 0 || head.len() + length > REQUEST_BYTES {
            return None;
        }
        head.extend_from_slice(&part[..length]);
    }
    let head = String::from_utf8_lossy(&head);
    head.lines().next().map(str::to_owned)
}

impl Source {
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
        if kept.as_ref().is_none_or(Client::is_closed) {
            let connected = timeout(PATIENCE, address::connect(&self.config)).await;
            let client = connected.map_err(|_| "the database does not answer".to_owned())?;
            *kept = Some(client.map_err(|failure| failure.to_string())?);
        }
        let Some(client) = kept.as_ref() else {
            return Err("there is no connection".to_owned());
        };
        match timeout(PATIENCE, scrape(client)).await {
            Ok(Ok(samples)) => Ok(samples),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => {
                // Its answer would come to the next who asks.
                *kept = None;
                Err("the database does not answer".to_owned())
            }
        }
    }
}
