//! Proxies between a client and a server: one that parses the messages of the PostgreSQL protocol
//! and cuts the connection at a message, one that freezes, one that is slow, and a host that drops
//! every packet.

use crate::PATIENCE;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A running proxy in front of one server; it ends when this is dropped.
pub struct Proxy {
    port: u16,
    cut: Arc<Cut>,
    task: JoinHandle<()>,
}

/// The message at which a connection is cut instead.
enum Cut {
    /// The number of messages left.
    At(AtomicI64),
    /// The first message from the server that contains these bytes.
    Answer(Vec<u8>, AtomicBool),
    /// Each message from a client that is longer than this.
    Longer(usize, AtomicBool),
    /// As the inner value, but the connection stalls until its client ends.
    Still(Box<Cut>),
}

impl Cut {
    fn strikes(&self, message: &[u8], from_server: bool) -> bool {
        match self {
            Cut::At(left) => left.fetch_sub(1, Ordering::SeqCst) == 1,
            Cut::Answer(text, done) => {
                from_server
                    && message.windows(text.len()).any(|part| part == text)
                    && !done.swap(true, Ordering::SeqCst)
            }
            Cut::Longer(length, done) => {
                let strikes = !from_server && message.len() > *length;
                done.fetch_or(strikes, Ordering::SeqCst);
                strikes
            }
            Cut::Still(cut) => cut.strikes(message, from_server),
        }
    }

    fn has_struck(&self) -> bool {
        match self {
            Cut::At(left) => left.load(Ordering::SeqCst) <= 0,
            Cut::Answer(_, done) | Cut::Longer(_, done) => done.load(Ordering::SeqCst),
            Cut::Still(cut) => cut.has_struck(),
        }
    }
}

impl Proxy {
    /// Cuts the connection at the message number `cut_at` of all, in either direction, instead of
    /// forwarding it; from then on everything is forwarded.
    pub async fn before(server_port: u16, cut_at: i64) -> Self {
        Self::cutting(server_port, Cut::At(AtomicI64::new(cut_at))).await
    }

    /// Cuts the first connection on which an answer contains `text`, instead of forwarding it. The
    /// server sends a short answer after its commit.
    pub async fn before_answer(server_port: u16, text: &str) -> Self {
        let cut = Cut::Answer(text.into(), AtomicBool::new(false));
        Self::cutting(server_port, cut).await
    }

    /// Cuts every connection on which a client sends a message of more bytes, without an error, as
    /// a server does that does not accept that length.
    pub async fn before_longer(server_port: u16, length: usize) -> Self {
        let cut = Cut::Longer(length, AtomicBool::new(false));
        Self::cutting(server_port, cut).await
    }

    /// Stalls every message of a client that has more bytes, as a slow network does.
    pub async fn still_before_longer(server_port: u16, length: usize) -> Self {
        let cut = Cut::Longer(length, AtomicBool::new(false));
        Self::cutting(server_port, Cut::Still(Box::new(cut))).await
    }

    /// Stalls the message with this number, counted as in `before`, so that a process that waits
    /// for it can be killed there. Other connections are not affected.
    pub async fn still_before(server_port: u16, message: i64) -> Self {
        let cut = Cut::At(AtomicI64::new(message));
        Self::cutting(server_port, Cut::Still(Box::new(cut))).await
    }

    /// Stalls the first answer that contains `text` for ever.
    pub async fn still_before_answer(server_port: u16, text: &str) -> Self {
        let cut = Cut::Answer(text.into(), AtomicBool::new(false));
        Self::cutting(server_port, Cut::Still(Box::new(cut))).await
    }

    async fn cutting(server_port: u16, cut: Cut) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let cut = Arc::new(cut);
        let task = tokio::spawn(accept(listener, server_port, Arc::clone(&cut)));
        Proxy { port, cut, task }
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the proxy has cut a connection.
    pub fn has_cut(&self) -> bool {
        self.cut.has_struck()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, server_port: u16, wanted: Arc<Cut>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(connect(client, server_port, Arc::clone(&wanted)));
    }
}

async fn connect(mut client: TcpStream, server_port: u16, wanted: Arc<Cut>) {
    if refuse_tls(&mut client).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else {
        return;
    };
    let (cut, is_cut) = watch::channel(false);
    let cut = Arc::new(cut);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    for (from, to, is_first) in [
        (from_client, to_server, true),
        (from_server, to_client, false),
    ] {
        let (wanted, cut, mut is_cut) = (Arc::clone(&wanted), Arc::clone(&cut), is_cut.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = pass(from, to, is_first, &wanted) => {}
                _ = is_cut.wait_for(|cut| *cut) => {}
            }
            // Both directions end together, as with a broken connection.
            cut.send_replace(true);
        });
    }
}

/// Refuses a client's request for TLS as a server without TLS does. The request is not counted.
async fn refuse_tls(client: &mut TcpStream) -> std::io::Result<()> {
    const TLS: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
    let mut first = [0; 8];
    // A startup message is longer.
    while client.peek(&mut first).await? < first.len() {
        client.readable().await?;
        tokio::task::yield_now().await;
    }
    if first == TLS {
        client.read_exact(&mut first).await?;
        client.write_all(b"N").await?;
    }
    Ok(())
}

/// Forwards whole messages until the connection ends or is cut.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut is_first: bool, cut: &Cut) {
    let from_server = !is_first;
    loop {
        // The first message of a client has no type byte.
        let mut message = vec![0; if is_first { 4 } else { 5 }];
        if from.read_exact(&mut message).await.is_err() {
            return;
        }
        let head = message.len();
        let length = u32::from_be_bytes([
            message[head - 4],
            message[head - 3],
            message[head - 2],
            message[head - 1],
        ]);
        message.resize(head + length as usize - 4, 0);
        if from.read_exact(&mut message[head..]).await.is_err() {
            return;
        }
        let strikes = cut.strikes(&message, from_server);
        if let (true, Cut::Still(_)) = (strikes, cut) {
            if from_server {
                return std::future::pending().await;
            }
            // If the client ends, the connection to the server ends too.
            let mut rest = [0; 1024];
            while let Ok(1..) = from.read(&mut rest).await {}
            return;
        }
        if strikes || to.write_all(&message).await.is_err() {
            return;
        }
        is_first = false;
    }
}

/// A proxy whose server can be frozen: connections are accepted and stay open, but no data passes.
pub struct Freezer {
    port: u16,
    state: Arc<watch::Sender<Flow>>,
    task: JoinHandle<()>,
}

/// The connections of a freezer, and whether data passes.
#[derive(Default)]
struct Flow {
    frozen: bool,
    /// The connections on which the client sent the last message.
    unanswered: HashSet<u16>,
}

impl Freezer {
    /// Starts a freezer in front of one server.
    pub async fn before(server_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        Self::at(listener, port, server_port)
    }

    fn at(listener: TcpListener, port: u16, server_port: u16) -> Self {
        let state = Arc::new(watch::channel(Flow::default()).0);
        let flow = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((client, address)) = listener.accept().await {
                let flow = Arc::clone(&flow);
                tokio::spawn(async move {
                    between(client, address.port(), server_port, &flow).await;
                    flow.send_modify(|flow| {
                        flow.unanswered.remove(&address.port());
                    });
                });
            }
        });
        Freezer { port, state, task }
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops all data on every connection.
    pub fn freeze(&self) {
        self.state.send_modify(|flow| flow.frozen = true);
    }

    /// Freezes at a moment when the server has answered every request, so that later requests have
    /// no effect.
    pub async fn freeze_when_answered(&self) {
        let mut changes = self.state.subscribe();
        let frozen = async {
            while !self.state.send_if_modified(|flow| {
                flow.frozen = flow.unanswered.is_empty();
                flow.frozen
            }) {
                changes.changed().await.expect("the sender is here");
            }
        };
        let frozen = tokio::time::timeout(PATIENCE, frozen).await;
        frozen.expect("the server answers");
    }

    /// Delivers all data that was held.
    pub fn thaw(&self) {
        self.state.send_modify(|flow| flow.frozen = false);
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn between(client: TcpStream, id: u16, server_port: u16, flow: &watch::Sender<Flow>) {
    let mut changes = flow.subscribe();
    if changes.wait_for(|flow| !flow.frozen).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        thawed(from_client, to_server, flow, |unanswered| unanswered
            .insert(id)),
        thawed(from_server, to_client, flow, |unanswered| unanswered
            .remove(&id)),
    );
}

async fn thawed(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    flow: &watch::Sender<Flow>,
    note: impl Fn(&mut HashSet<u16>) -> bool,
) {
    let mut changes = flow.subscribe();
    let mut piece = vec![0; 8192];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        loop {
            let mut frozen = false;
            flow.send_if_modified(|flow| {
                frozen = flow.frozen;
                !frozen && note(&mut flow.unanswered)
            });
            if !frozen {
                break;
            }
            if changes.wait_for(|flow| !flow.frozen).await.is_err() {
                return;
            }
        }
        if to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}

/// A proxy that delays all data in both directions.
pub struct Slow {
    port: u16,
    task: JoinHandle<()>,
}

impl Slow {
    /// Starts a proxy in front of one server.
    pub async fn before(server_port: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else {
                    continue;
                };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(later(from_client, to_server, delay));
                tokio::spawn(later(from_server, to_client, delay));
            }
        });
        Slow { port, task }
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn later(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let mut piece = vec![0; 8192];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        tokio::time::sleep(delay).await;
        if to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}

/// A port of 127.0.0.1 whose packets are dropped: a connection to it neither opens nor fails.
pub struct BlackHole {
    port: u16,
    full: (TcpListener, Vec<TcpStream>),
}

impl BlackHole {
    /// Fills the queue of unaccepted connections, so that the kernel drops further attempts.
    pub async fn open() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket is made");
        socket
            .bind(([127, 0, 0, 1], 0).into())
            .expect("a port is free");
        let listener = socket.listen(1).expect("it listens");
        let port = listener.local_addr().expect("it has an address").port();
        let mut full = Vec::new();
        let patience = Duration::from_millis(300);
        while let Ok(opened) =
            tokio::time::timeout(patience, TcpStream::connect(("127.0.0.1", port))).await
        {
            full.push(opened.expect("it listens"));
        }
        BlackHole {
            port,
            full: (listener, full),
        }
    }

    /// Delivers packets to a server from now on.
    pub fn lead_to(self, server_port: u16) -> Freezer {
        let (listener, full) = self.full;
        drop(full);
        Freezer::at(listener, self.port, server_port)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
}
