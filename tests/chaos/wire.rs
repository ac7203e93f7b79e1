//! A TCP proxy with one listener for each route from clients to the server. A route can be cut,
//! stalled or made silent; after a promotion all routes lead to the new primary.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How a route treats the bytes that it receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Forwards the bytes.
    #[default]
    Open,
    /// Holds the bytes until the route is open again.
    Stalled,
    /// Discards the bytes; the connection stays silent for ever.
    Silent,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    flow: Flow,
    /// Connections made before this count are closed.
    cuts: u64,
    /// The client side of connections made before this count is closed.
    halves: u64,
}

/// A route from clients to the server.
pub(crate) struct Route {
    port: u16,
    state: watch::Sender<State>,
}

/// All routes of a campaign, on 127.0.0.1.
pub(crate) struct Wire {
    upstream: Arc<AtomicU16>,
    routes: Vec<Route>,
}

impl Wire {
    /// Opens this many routes to the server at a port.
    pub(crate) async fn new(routes: usize, server_port: u16) -> Self {
        let upstream = Arc::new(AtomicU16::new(server_port));
        let mut made = Vec::new();
        for _ in 0..routes {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await;
            let listener = listener.expect("a port is free");
            let port = listener.local_addr().expect("it has an address").port();
            let state = watch::Sender::new(State::default());
            tokio::spawn(accept(listener, Arc::clone(&upstream), state.subscribe()));
            made.push(Route { port, state });
        }
        Wire {
            upstream,
            routes: made,
        }
    }

    /// The number of routes.
    pub(crate) fn len(&self) -> usize {
        self.routes.len()
    }

    /// The port on which a route listens.
    pub(crate) fn port(&self, route: usize) -> u16 {
        self.routes[route].port
    }

    /// Redirects all routes to another port; closes every connection to the old server.
    pub(crate) fn move_to(&self, server_port: u16) {
        self.upstream.store(server_port, Ordering::SeqCst);
        for route in &self.routes {
            route.state.send_modify(|state| state.cuts += 1);
        }
    }

    /// Breaks the connections of a route.
    pub(crate) fn cut(&self, route: usize) {
        self.routes[route]
            .state
            .send_modify(|state| state.cuts += 1);
    }

    /// Breaks the clients' side of a route's connections; the server's side stays open until the
    /// route is healed.
    pub(crate) fn halve(&self, route: usize) {
        self.routes[route]
            .state
            .send_modify(|state| state.halves += 1);
    }

    /// Changes the flow of a route.
    pub(crate) fn set(&self, route: usize, flow: Flow) {
        self.routes[route]
            .state
            .send_modify(|state| state.flow = flow);
    }

    /// Opens a route; connections that were silent or half open are closed.
    pub(crate) fn heal(&self, route: usize) {
        self.routes[route].state.send_modify(|state| {
            if state.flow != Flow::Stalled {
                state.cuts += 1;
            }
            state.flow = Flow::Open;
        });
    }
}

async fn accept(listener: TcpListener, upstream: Arc<AtomicU16>, state: watch::Receiver<State>) {
    while let Ok((client, _)) = listener.accept().await {
        let (upstream, state) = (Arc::clone(&upstream), state.clone());
        tokio::spawn(async move {
            let port = upstream.load(Ordering::SeqCst);
            if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                carry(client, server, state).await;
            }
        });
    }
}

/// Forwards both directions until one ends, then ends both.
async fn carry(mut client: TcpStream, mut server: TcpStream, state: watch::Receiver<State>) {
    let born = *state.borrow();
    let (mut cut, mut half) = (state.clone(), state.clone());
    let is_halved = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        tokio::select! {
            _ = cut.wait_for(|state| state.cuts > born.cuts) => false,
            _ = half.wait_for(|state| state.halves > born.halves) => true,
            () = pump(from_client, to_server, state.clone()) => false,
            () = pump(from_server, to_client, state) => false,
        }
    };
    if is_halved {
        drop(client);
        // An error means that the route was dropped.
        cut.wait_for(|state| state.cuts > born.cuts).await.ok();
    }
}

/// Forwards bytes; returns when either side ends.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<State>,
) {
    let mut piece = [0; 8192];
    loop {
        let Ok(length @ 1..) = from.read(&mut piece).await else {
            return;
        };
        let flow = state.wait_for(|state| state.flow != Flow::Stalled).await;
        let Ok(flow) = flow.map(|state| state.flow) else {
            return;
        };
        if flow == Flow::Silent {
            // Reads nothing more, so the sender gets neither an answer nor an error.
            return std::future::pending().await;
        }
        if to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}
