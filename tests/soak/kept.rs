//! The database between two runs: a copy of the server's files.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use trax_client::testkit::{Options, Server, Stop};

/// A directory for the files of a server that does not run.
pub(crate) struct Kept(PathBuf);

/// Returns the options of a server whose processes, but not whose machine, are killed.
pub(crate) fn options() -> Options {
    Server::options()
        .fast()
        // An acknowledged commit must survive a kill.
        .setting("synchronous_commit", "on")
        .setting("shared_buffers", "512MB")
        .setting("max_wal_size", "1GB")
}

impl Kept {
    pub(crate) fn at(dir: PathBuf) -> Self {
        Self(dir)
    }

    pub(crate) fn of_environment() -> Self {
        let dir = std::env::var_os("SOAK_DIR").filter(|dir| !dir.is_empty());
        Self::at(dir.map_or_else(|| PathBuf::from("target/soak"), PathBuf::from))
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    /// A complete copy that is to become `data`.
    fn complete(&self) -> PathBuf {
        self.0.join("complete")
    }

    /// Starts a server, with the kept files if there are some.
    pub(crate) fn open(&self) -> Server {
        fs::create_dir_all(&self.0).expect("the directory can be made");
        if self.complete().exists() {
            self.replace();
        }
        let mut server = options().start().expect("a server starts");
        if self.data().exists() {
            server.stop(Stop::Fast).expect("it stops");
            fs::remove_dir_all(server.data_dir()).expect("its files can be removed");
            copy(self.data(), server.data_dir());
            let place = format!(
                "port = '{}'\nunix_socket_directories = '{}'\n",
                server.port(),
                server.socket_dir().display()
            );
            server.append_settings(&place).expect("it has settings");
            server.start().expect("the kept server starts");
        }
        server
    }

    /// Stops a server, and keeps its files.
    pub(crate) fn keep(&self, mut server: Server) {
        if server.is_running() {
            server.stop(Stop::Fast).expect("it stops");
        }
        let copied = self.0.join("incomplete");
        if copied.exists() {
            fs::remove_dir_all(&copied).expect("an incomplete copy can be removed");
        }
        copy(server.data_dir(), copied.clone());
        fs::rename(copied, self.complete()).expect("the copy can be named");
        self.replace();
    }

    /// Replaces the kept files by the new ones.
    fn replace(&self) {
        if self.data().exists() {
            fs::remove_dir_all(self.data()).expect("the old files can be removed");
        }
        fs::rename(self.complete(), self.data()).expect("the copy can be named");
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.data().display().fmt(f)
    }
}

/// Copies a directory with its owner.
fn copy(from: PathBuf, to: PathBuf) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "cp -a");
}
