//! Connections to the pages, before anybody has said who they are.
//!
//! Holds: a connection without a request is closed after a while, or earlier when it is the oldest
//! of too many: who connects and says nothing takes no descriptor from others.

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

/// How long the head of the first request may take.
const FIRST_REQUEST: Duration = Duration::from_secs(10);
/// How long a connection may stay without an answer: longer than any page takes, and longer than a
/// stream of live numbers is silent.
const SILENCE: Duration = Duration::from_secs(60);
/// After this time without an answer a connection waits for a request: a stream of live numbers
/// sends something sooner.
const IDLE: Duration = Duration::from_secs(12);
/// How many connections may wait for a request.
const WAITING: usize = 64;
/// The pause after a connection that could not be accepted.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);

/// What a listener knows of a connection.
#[derive(Default)]
struct Seen {
    state: Mutex<State>,
    closed: AtomicBool,
    reader: AtomicWaker,
}

#[derive(Clone, Copy, Default)]
enum State {
    /// No whole head of a request has arrived.
    #[default]
    New,
    /// A request is answered.
    Asked,
    /// Something was sent then.
    Answered(Instant),
}

impl Seen {
    fn becomes(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
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
    /// All that are open, the oldest first.
    open: VecDeque<Weak<Seen>>,
}

impl Bounded {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Bounded {
            listener,
            open: VecDeque::new(),
        }
    }

    /// Closes the oldest of too many connections that wait for a request.
    fn make_room(&mut self) {
        self.open.retain(|seen| seen.strong_count() > 0);
        let open = self.open.iter().filter_map(Weak::upgrade);
        let waiting: Vec<_> = open.filter(|seen| seen.waits()).collect();
        if let Some(oldest) = waiting.first()
            && waiting.len() >= WAITING
        {
            oldest.closed.store(true, Ordering::Relaxed);
            oldest.reader.wake();
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
                        matched: 0,
                    };
                    return (connection, address);
                }
                // Out of descriptors, or a client that is gone already.
                Err(_) => sleep(ACCEPT_DELAY).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when nothing is asked.
pub(crate) struct Connection {
    stream: TcpStream,
    seen: Arc<Seen>,
    limit: Pin<Box<Sleep>>,
    /// How much of the end of a head has just arrived.
    matched: usize,
}

impl Connection {
    /// Notes what has arrived.
    fn read(&mut self, bytes: &[u8]) {
        const END: &[u8] = b"\r\n\r\n";
        for byte in bytes {
            self.matched = match *byte == END[self.matched] {
                true => self.matched + 1,
                false => usize::from(*byte == b'\r'),
            };
            if self.matched == END.len() {
                self.matched = 0;
                self.seen.becomes(State::Asked);
                self.limit.as_mut().reset(Instant::now() + SILENCE);
            }
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.seen.reader.register(context.waker());
        let is_over = this.limit.as_mut().poll(context).is_ready();
        if is_over || this.seen.closed.load(Ordering::Relaxed) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        this.read(&buffer.filled()[before..]);
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
        this.limit.as_mut().reset(Instant::now() + SILENCE);
        this.seen.becomes(State::Answered(Instant::now()));
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
