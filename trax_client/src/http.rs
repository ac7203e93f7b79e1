//! As much of an HTTP server as a probe or a scraper needs.
//!
//! Enters: GET and HEAD requests, one on each connection. Leaves: the page that a function gives
//! for the path. Holds: a client that says nothing, or too much, holds up nobody else: of those
//! that have not said yet what they want the oldest is left when there are too many, or when its
//! patience is over.

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

/// How long a client may be silent at first.
const SILENCE: Duration = Duration::from_secs(2);
/// How long a request may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an answer may take to be made and sent; scrapes wait for a database.
const ANSWER_PATIENCE: Duration = Duration::from_secs(20);
/// The longest request that is read.
const REQUEST_BYTES: usize = 8 * 1024;
/// How many connections may be silent at once, and how many answers be made.
const CONNECTIONS: usize = 64;
/// After a connection that could not be accepted.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);

/// What is answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Page {
    /// Code and words: `200 OK`.
    pub status: &'static str,
    /// The Content-Type.
    pub kind: &'static str,
    /// What follows the head.
    pub body: String,
}

impl Page {
    /// Plain text.
    pub fn text(status: &'static str, body: impl Into<String>) -> Self {
        Page {
            status,
            kind: "text/plain; charset=utf-8",
            body: body.into(),
        }
    }
}

/// Takes an address; a port alone is one of this machine only.
///
/// # Errors
/// When it is no address, none of this machine, or taken.
pub fn listen(address: &str) -> io::Result<std::net::TcpListener> {
    let address = match address.contains(':') {
        true => address.to_owned(),
        false => format!("127.0.0.1:{address}"),
    };
    let listener = std::net::TcpListener::bind(&address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers with what `page` gives for a path, until it is dropped. `trouble` hears of connections
/// that cannot be accepted.
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
            // A client that breaks off or says nothing is its own affair.
            drop(timeout(ANSWER_PATIENCE, answer(stream, &*page, &asks, &room)).await);
        });
        silent.push_back((task.abort_handle(), asked));
    }
}

/// Reads one request and answers it.
async fn answer<F, Fut>(mut stream: TcpStream, page: &F, asked: &AtomicBool, room: &Semaphore)
where
    F: Fn(String) -> Fut,
    Fut: Future<Output = Page>,
{
    let request = match timeout(PATIENCE, request(&mut stream)).await {
        Ok(Some(request)) => request,
        Ok(None) | Err(_) => return,
    };
    asked.store(true, Ordering::Relaxed);
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let path = target.split('?').next().unwrap_or("");
    let Page { status, kind, body } = match method {
        "GET" | "HEAD" => match room.try_acquire() {
            Ok(_permit) => page(path.to_owned()).await,
            Err(_) => Page::text("503 Service Unavailable", "too many ask at once\n"),
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
    if stream.write_all(response.as_bytes()).await.is_ok() && stream.shutdown().await.is_err() {}
}

/// The first line of a request, once its head is there.
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
