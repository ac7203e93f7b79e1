//! What a throw-away server is made with.

use std::path::Path;

use super::Error;
use super::server::Server;

/// What a server is made with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    settings: Vec<(String, String)>,
    access: Vec<String>,
    pub(crate) tcp: bool,
    fast: bool,
    plain: bool,
}

impl Options {
    /// Adds one line to the configuration.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Adds one line to `pg_hba.conf`, before those that are there: users of sockets are trusted,
    /// users of TCP need a password.
    pub fn access(mut self, rule: impl Into<String>) -> Self {
        self.access.push(rule.into());
        self
    }

    /// Also listens on 127.0.0.1, for programs that cannot use a socket. The superuser has a random
    /// password there, which is part of [`Server::url`].
    pub fn tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    /// Turns fsync off: for tests that do not crash the machine.
    pub fn fast(mut self) -> Self {
        self.fast = true;
        self
    }

    /// Starts it without `shared_preload_libraries = 'trax'`.
    pub fn not_preloaded(mut self) -> Self {
        self.plain = true;
        self
    }

    /// Makes and starts the server; returns when it accepts connections.
    pub fn start(self) -> Result<Server, Error> {
        Server::make(&self)
    }

    /// Returns the given lines of `pg_hba.conf`.
    pub(crate) fn rules(&self) -> String {
        self.access.iter().map(|rule| format!("{rule}\n")).collect()
    }

    /// Returns the lines of the configuration, the given ones last: they count.
    pub(crate) fn lines(&self, port: u16, socket_dir: &Path) -> String {
        let listen = if self.tcp { "127.0.0.1" } else { "" };
        let mut lines = vec![
            ("listen_addresses", listen.to_owned()),
            ("port", port.to_string()),
            ("unix_socket_directories", socket_dir.display().to_string()),
            ("max_connections", "200".to_owned()),
            ("logging_collector", "off".to_owned()),
            // In the server's directory, which is removed also after it was killed.
            ("dynamic_shared_memory_type", "mmap".to_owned()),
            ("log_line_prefix", "%m [%p] %b %d ".to_owned()),
        ];
        if !self.plain {
            lines.push(("shared_preload_libraries", "trax".to_owned()));
        }
        if self.fast {
            for name in ["fsync", "full_page_writes", "synchronous_commit"] {
                lines.push((name, "off".to_owned()));
            }
        }
        let given = self
            .settings
            .iter()
            .map(|(name, value)| (name.as_str(), value.clone()));
        lines
            .into_iter()
            .chain(given)
            .map(|(name, value)| format!("{name} = '{}'\n", value.replace('\'', "''")))
            .collect()
    }
}
