//! A TCP proxy that knows where the messages of the PostgreSQL protocol end, and cuts the connection there.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A running proxy in front of one server; it ends when this is dropped.
pub struct Proxy {
    port: u16,
    left: Arc<AtomicI64>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Cuts the connection whose message is number `cut_at` of all, in either direction, in place of passing that
    /// message on; from then on it passes everything.
    pub async fn before(server_port: u16, cut_at: i64) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let left = Arc::new(AtomicI64::new(cut_at));
        let task = tokio::spawn(accept(listener, server_port, Arc::clone(&left)));
        Proxy { port, left, task }
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it has cut a connection.
    pub fn has_cut(&self) -> bool {
        self.left.load(Ordering::SeqCst) <= 0
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, server_port: u16, left: Arc<AtomicI64>) {
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else {
            continue;
        };
        let (cut, is_cut) = watch::channel(false);
        let cut = Arc::new(cut);
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        for (from, to, is_first) in [
            (from_client, to_server, true),
            (from_server, to_client, false),
        ] {
            let (left, cut, mut is_cut) = (Arc::clone(&left), Arc::clone(&cut), is_cut.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = pass(from, to, is_first, &left) => {}
                    _ = is_cut.wait_for(|cut| *cut) => {}
                }
                // Both directions end together, as those of a broken connection.
                cut.send_replace(true);
            });
        }
    }
}

/// Passes whole messages on until the connection ends or the count does.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut is_first: bool,
    left: &AtomicI64,
) {
    loop {
        // The first message of a client has no type.
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
        if left.fetch_sub(1, Ordering::SeqCst) == 1 || to.write_all(&message).await.is_err() {
            return;
        }
        is_first = false;
    }
}
