//! A minimal HTTP server for probes and scrapers. hyper would add five crates to the library, and
//! leaves to its user most of what these lines do: the limits on time, size and connections.
//!
//! Input: GET and HEAD requests, one per connection. Output: the page that a function returns for
//! the path. Invariant: a client that sends nothing, or too much, delays no other client. A
//! connection without a request is closed after a timeout, or earlier if it is the oldest of too
//! many.

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

/// How long a client may take to send its first byte.
const SILENCE: Duration = Duration::from_secs(2);
/// How long a request may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long making and sending an answer may take. Scrapes wait for a database.
const ANSWER_PATIENCE: Duration = Duration::from_secs(20);
/// The longest request that is read, in bytes.
const REQUEST_BYTES: usize = 8 * 1024;
/// The limit on connections that wait for a request, and on those being answered.
const CONNECTIONS: usize = 64;
/// The pause after a connection could not be accepted.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);

/// An answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Page {
    /// The status code and its text: `200 OK`.
    pub status: &'static str,
    /// The Content-Type.
    pub kind: &'static str,
    /// The response body.
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

/// Listens on an address. A port alone binds to the loopback address.
///
/// # Errors
/// If the text is not an address, or the address is not local or is in use.
pub fn listen(address: &str) -> io::Result<std::net::TcpListener> {
    let address = match address.contains(':') {
        true => address.to_owned(),
        false => format!("127.0.0.1:{address}"),
    };
    let listener = std::net::TcpListener::bind(&address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers requests with the page that `page` returns for their path, until the future is dropped.
/// Calls `trouble` for connections that cannot be accepted.
///
/// # Errors
/// If the listener cannot be registered with this runtime.
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
            // Out of file descriptors, or the client has already gone.
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
            // A client that disconnects or is too slow gets no answer.
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
