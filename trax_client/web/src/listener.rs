//! Limits on connections, which apply before a user is known.
//!
//! Invariant: a connection without a request is closed after a timeout, or earlier if it is the
//! oldest of too many. A client that sends nothing cannot exhaust the file descriptors.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep, sleep};

/// The time limit for the head of the first request.
const FIRST_REQUEST: Duration = Duration::from_secs(10);
/// How long a connection may stay without a response: longer than any page takes, and longer than
/// the pauses of a live stream.
const SILENCE: Duration = Duration::from_secs(60);
/// After this time without a response a connection counts as waiting for a request. A live stream
/// sends something sooner.
const IDLE: Duration = Duration::from_secs(12);
/// The maximum number of connections that wait for a request.
const WAITING: usize = 64;
/// The maximum number of open connections: 128 pages with their live streams.
const OPEN: usize = 256;
/// The pause after a connection could not be accepted.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);

/// The state of a connection, as the listener tracks it.
#[derive(Default)]
struct Seen {
    state: Mutex<State>,
    closed: AtomicBool,
    task: AtomicWaker,
}

#[derive(Clone, Copy, Default)]
enum State {
    /// No complete head of a request has arrived.
    #[default]
    New,
    /// A request is being answered.
    Asked,
    /// Data was last sent at this time.
    Answered(Instant),
}

impl Seen {
    fn becomes(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn is_asked(&self) -> bool {
        let state = *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(state, State::Asked)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn waits(&self) -> bool {
        match *self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::New => true,
            State::Asked => false,
            State::Answered(at) => at.elapsed() > IDLE,
        }
    }
}

/// A listener for [`axum::serve()`].
pub(crate) struct Bounded {
    listener: TcpListener,
    /// All open connections, oldest first.
    open: VecDeque<Weak<Seen>>,
}

impl Bounded {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Bounded {
            listener,
            open: VecDeque::new(),
        }
    }

    /// Closes the oldest connection if too many wait for a request, or too many are open.
    fn make_room(&mut self) {
        self.open.retain(|seen| seen.strong_count() > 0);
        let open: Vec<_> = self.open.iter().filter_map(Weak::upgrade).collect();
        let open: Vec<_> = open.iter().filter(|seen| !seen.is_closed()).collect();
        let mut waiting = open.iter().filter(|seen| seen.waits());
        let oldest = waiting.next();
        let crowd = 1 + waiting.count();
        let oldest = match open.len() >= OPEN {
            true => oldest.or(open.first()),
            false => oldest.filter(|_| crowd >= WAITING),
        };
        if let Some(oldest) = oldest {
            oldest.closed.store(true, Ordering::Relaxed);
            oldest.task.wake();
        }
    }
}

impl axum::serve::Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    self.make_room();
                    let seen = Arc::new(Seen::default());
                    self.open.push_back(Arc::downgrade(&seen));
                    let limit = Box::pin(sleep(FIRST_REQUEST));
                    let connection = Connection {
                        stream,
                        seen,
                        limit,
                        begun: false,
                        matched: 0,
                    };
                    return (connection, address);
                }
                // Out of file descriptors, or the client has already gone.
                Err(_) => sleep(ACCEPT_DELAY).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that closes when no request arrives.
pub(crate) struct Connection {
    stream: TcpStream,
    seen: Arc<Seen>,
    limit: Pin<Box<Sleep>>,
    /// Whether a line of a head has begun. Empty lines before it do not count as a request.
    begun: bool,
    /// How many bytes of the end of a head have just arrived.
    matched: usize,
}

impl Connection {
    /// Records the arrival of bytes. While a request is being answered, further bytes do not extend
    /// the time limit.
    fn has_read(&mut self, bytes: &[u8]) {
        const END: &[u8] = b"\r\n\r\n";
        if self.seen.is_asked() {
            return;
        }
        for byte in bytes {
            self.begun |= !matches!(byte, b'\r' | b'\n');
            self.matched = match *byte == END[self.matched] {
                true => self.matched + 1,
                false => usize::from(*byte == b'\r'),
            };
            if self.matched == END.len() {
                self.matched = 0;
                if !self.begun {
                    continue;
                }
                self.begun = false;
                self.seen.becomes(State::Asked);
                self.limit.as_mut().reset(Instant::now() + SILENCE);
                return;
            }
        }
    }

    /// Returns whether the connection must end now. Otherwise its task will be woken at that time.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        self.seen.task.register(context.waker());
        self.limit.as_mut().poll(context).is_ready() || self.seen.is_closed()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_over(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        this.has_read(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_over(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let written = ready!(Pin::new(&mut this.stream).poll_write(context, bytes))?;
        this.limit.as_mut().reset(Instant::now() + SILENCE);
        this.seen.becomes(State::Answered(Instant::now()));
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::serve::Listener as _;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn listener() -> Bounded {
        Bounded::new(TcpListener::bind("127.0.0.1:0").await.expect("a port"))
    }

    /// Returns a client that has sent this text, and its connection, which has read it.
    async fn sent(listener: &mut Bounded, text: &[u8]) -> (TcpStream, Connection) {
        let address = listener.local_addr().expect("it has an address");
        let mut client = TcpStream::connect(address).await.expect("it listens");
        client.write_all(text).await.expect("it is sent");
        let (mut connection, _) = listener.accept().await;
        let mut read = vec![0; text.len()];
        let read = connection.read_exact(&mut read).await;
        read.expect("it is read");
        (client, connection)
    }

    #[tokio::test]
    async fn empty_lines_make_no_request() {
        let mut listener = listener().await;
        let (_client, connection) = sent(&mut listener, b"\r\n\r\n\r\n\r\n").await;
        assert!(connection.seen.waits());
        let (_client, connection) = sent(&mut listener, b"\r\nGET / HTTP/1.1\r\n\r\n").await;
        assert!(!connection.seen.waits());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_that_a_client_sends_extends_the_time_for_an_answer() {
        let mut listener = listener().await;
        let head = b"POST / HTTP/1.1\r\n\r\n";
        let (mut client, mut connection) = sent(&mut listener, head).await;
        let end = connection.limit.deadline();
        tokio::time::advance(Duration::from_secs(30)).await;
        client.write_all(b"a\r\n\r\n").await.expect("it is sent");
        connection
            .read_exact(&mut [0; 5])
            .await
            .expect("it is read");
        assert_eq!(connection.limit.deadline(), end);
        connection.write_all(b"HTTP").await.expect("it is sent");
        assert!(connection.limit.deadline() > end);
    }

    #[tokio::test]
    async fn the_oldest_of_too_many_is_closed_whatever_it_does() {
        let mut listener = listener().await;
        let mut open = Vec::new();
        for _ in 0..=OPEN {
            open.push(sent(&mut listener, b"GET / HTTP/1.1\r\n\r\n").await);
        }
        assert!(open[0].1.read(&mut [0; 1]).await.is_err());
        assert!(open[0].1.write(b"HTTP").await.is_err());
        assert!(!open[1].1.seen.is_closed());
    }
}
