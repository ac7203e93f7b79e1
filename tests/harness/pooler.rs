//! A transaction pooler (pgbouncer) between a test and a server, with few server connections.

use crate::process::{Process, Scratch};
use crate::{PATIENCE, eventually};
use std::net::TcpStream;
use trax_client::testkit::{Server, free_port};

/// A running pooler in front of every database of one server; it ends when this is dropped.
pub struct Pooler {
    port: u16,
    _process: Process,
    _files: Scratch,
}

impl Pooler {
    /// Starts a pooler; each database gets `connections` to the server, for any number of clients.
    pub async fn of(server: &Server, connections: u32) -> Self {
        let place = format!(
            "host={} port={}",
            server.socket_dir().display(),
            server.port()
        );
        Self::to(server, &format!("{place} user=postgres"), connections).await
    }

    /// As [`of`](Self::of), but to another address than the server, such as a proxy.
    pub async fn to(server: &Server, place: &str, connections: u32) -> Self {
        let files = Scratch::new("pooler");
        let port = free_port().expect("a port is free");
        let settings = format!(
            "[databases]\n* = {place}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = {connections}\nmax_client_conn = 1000\n"
        );
        let path = files.path().join("pgbouncer.ini");
        std::fs::write(&path, settings).expect("a file can be written");
        // pgbouncer refuses root, as the server does; the kernel ends it if this process is killed.
        let mut command = server.command("/usr/bin/setpriv");
        command
            .args(["--pdeathsig", "KILL", "/usr/sbin/pgbouncer"])
            .arg(&path);
        let process = Process::start(command);
        eventually(
            "the pooler takes connections",
            PATIENCE,
            async || match TcpStream::connect(("127.0.0.1", port)) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("{error}; it said: {}", process.output())),
            },
        )
        .await;
        Pooler {
            port,
            _process: process,
            _files: files,
        }
    }

    /// Starts a pooler that lasts as long as this process; returns its port.
    pub fn for_ever(server: &'static Server, connections: u32) -> u16 {
        let (tell, told) = std::sync::mpsc::channel();
        // The kernel ends the pooler when the thread that started it ends.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
            let pooler = runtime.block_on(Pooler::of(server, connections));
            tell.send(pooler.port).expect("somebody waits for it");
            loop {
                std::thread::park();
            }
        });
        told.recv_timeout(PATIENCE).expect("the pooler starts")
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
}
