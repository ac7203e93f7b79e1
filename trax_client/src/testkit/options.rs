//! The options of a throw-away server.

use std::path::Path;

/// The options of a server.
#[derive(Clone, Debug, Default)]
pub struct Options {
    settings: Vec<(String, String)>,
    access: Vec<String>,
    pub(crate) tcp: bool,
    fast: bool,
    plain: bool,
}

impl Options {
    /// Adds a line to the configuration.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Adds a line to `pg_hba.conf`, before the default ones: socket connections are trusted, TCP
    /// connections need a password.
    pub fn access(mut self, rule: impl Into<String>) -> Self {
        self.access.push(rule.into());
        self
    }

    /// Also listens on 127.0.0.1, for programs that cannot use a socket. There the superuser has a
    /// random password, which is part of [`Server::url`](super::Server::url).
    pub fn tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    /// Turns fsync off, for tests that do not crash the machine.
    pub fn fast(mut self) -> Self {
        self.fast = true;
        self
    }

    /// Starts the server without `shared_preload_libraries = 'trax'`.
    pub fn not_preloaded(mut self) -> Self {
        self.plain = true;
        self
    }

    /// Returns the lines added to `pg_hba.conf`.
    pub(crate) fn rules(&self) -> String {
        self.access.iter().map(|rule| format!("{rule}\n")).collect()
    }

    /// Returns the lines of the configuration. Added lines come last, as the last one takes effect.
    pub(crate) fn lines(&self, port: u16, socket_dir: &Path) -> String {
        let listen = if self.tcp { "127.0.0.1" } else { "" };
        let mut lines = vec![
            ("listen_addresses", listen.to_owned()),
            ("port", port.to_string()),
            ("unix_socket_directories", socket_dir.display().to_string()),
            ("max_connections", "200".to_owned()),
            ("logging_collector", "off".to_owned()),
            // In the server's directory, which is removed even if the server was killed.
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
