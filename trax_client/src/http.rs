//! As much of an HTTP server as a probe or a scraper needs.
//!
//! Enters: GET and HEAD requests, one on each connection. Leaves: the page that a function returns
//! for the path. Holds: a client that sends nothing, or too much, delays no other: a connection
//! without a request is closed after a while, or earlier when it is the oldest of too many.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// How long a client may wait before it sends anything.
const SILENCE: Duration = Duration::from_secs(2);
/// How long a request may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long making and sending an answer may take; scrapes wait for a database.
const ANSWER_PATIENCE: Duration = Duration::from_secs(20);
/// The longest request that is read.
const REQUEST_BYTES: usize = 8 * 1024;
/// How many connections may wait without a request, and how many be answered, at once.
const CONNECTIONS: usize = 64;
/// The pause after a connection that could not be accepted.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);

/// An answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Page {
    /// Code and text: `200 OK`.
    pub status: &'static str,
    /// The Content-Type.
    pub kind: &'static str,
    /// What follows the headers.
    pub body: String,
}

impl Page {
    /// Returns a page of plain text.
    pub fn text(status: &'static str, body: impl Into<String>) -> Self {
        Page {
            status,
            kind: "text/plain; charset=utf-8",
            body: body.into(),
        }
    }
}

/// Listens on an address; a port alone is reachable from this machine only.
///
/// # Errors
/// When it is not an address, not one of this machine, or in use.
pub fn listen(address: &str) -> io::Result<std::net::TcpListener> {
    let address = match address.contains(':') {
        true => address.to_owned(),
        false => format!("127.0.0.1:{address}"),
    };
    let listener = std::net::TcpListener::bind(&address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers with what `page` returns for a path, until it is dropped. `trouble` is called for
/// connections that cannot be accepted.
///
/// # Errors
/// When the listener is not one of this runtime's kind.
pub async fn serve<F, Fut>(
    listener: std::net::TcpListener,
    trouble: impl Fn(io::Error),
    page: F,
) -> io::Result<()>
where
    F: Fn(String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Page> + Send,
{
    let listener = TcpListener::from_std(listener)?;
    let (page, room) = (Arc::new(page), Arc::new(Semaphore::new(CONNECTIONS)));
    let mut silent: VecDeque<(AbortHandle, Arc<AtomicBool>)> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Out of descriptors, or a client that is gone already.
            Err(error) => {
                trouble(error);
                tokio::time::sleep(ACCEPT_DELAY).await;
                continue;
            }
        };
        silent.retain(|(task, asked)| !task.is_finished() && !asked.load(Ordering::Relaxed));
        if silent.len() >= CONNECTIONS
            && let Some((oldest, _)) = silent.pop_front()
        {
            oldest.abort();
        }
        let (page, room) = (Arc::clone(&page), Arc::clone(&room));
        let asked = Arc::new(AtomicBool::new(false));
        let asks = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            // A client that disconnects or is too slow gets no answer, and needs none.
            drop(timeout(ANSWER_PATIENCE, answer(stream, &*page, &asks, &room)).await);
        });
        silent.push_back((task.abort_handle(), asked));
    }
}

/// Reads one request and answers it.
async fn answer<F, Fut>(
    mut stream: TcpStream,
    page: &F,
    asked: &AtomicBool,
    room: &Semaphore,
) -> io::Result<()>
where
    F: Fn(String) -> Fut,
    Fut: Future<Output = Page>,
{
    let request = match timeout(PATIENCE, request(&mut stream)).await {
        Ok(Some(request)) => request,
        Ok(None) | Err(_) => return Ok(()),
    };
    asked.store(true, Ordering::Relaxed);
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let path = target.split('?').next().unwrap_or("");
    let Page { status, kind, body } = match method {
        "GET" | "HEAD" => match room.try_acquire() {
            Ok(_permit) => page(path.to_owned()).await,
            Err(_) => Page::text("503 Service Unavailable", "too many requests at once\n"),
        },
        _ => Page::text("405 Method Not Allowed", "GET only\n"),
    };
    let mut response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if method != "HEAD" {
        response.push_str(&body);
    }
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}

/// Reads the headers of a request, and returns its first line.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut part = [0_u8; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let reading = stream.read(&mut part);
        let length = match head.is_empty() {
            true => timeout(SILENCE, reading).await.ok()?,
            false => reading.await,
        };
        let length = length.ok()?;
        if length == 0 || head.len() + length > REQUEST_BYTES {
            return None;
        }
        head.extend_from_slice(&part[..length]);
    }
    let head = String::from_utf8_lossy(&head);
    head.lines().next().map(str::to_owned)
}
