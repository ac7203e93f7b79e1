//! systemd's protocol for services (`sd_notify(3)`): readiness, a line of status, the stop, and the watchdog.
//!
//! Enters: the worker's health. Leaves: datagrams to the socket that NOTIFY_SOCKET names. The watchdog is fed at half of
//! its time, and only while the worker lives, so that systemd restarts one that stands still.

use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::time::Instant;

use super::event::{Event, Events};
use super::health::Health;
use super::shutdown::{Phase, Shutdown};

/// How often the status is looked at when nothing tells of a change: stalls come with the time alone.
const LOOK: Duration = Duration::from_secs(1);

const STOPPING: &str = "STOPPING=1";

/// The manager of this process.
pub(crate) struct Systemd {
    socket: UnixDatagram,
    watchdog: Option<Duration>,
    told_stopping: bool,
}

impl Systemd {
    /// From NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID; none when no manager wants to hear.
    pub(crate) fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
    ) -> io::Result<Option<Self>> {
        let Some(name) = variable("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let socket = connect(&name)?;
        let is_mine =
            variable("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let watchdog = variable("WATCHDOG_USEC")
            .filter(|_| is_mine)
            .and_then(|usec| usec.parse().ok())
            .filter(|usec| *usec > 0)
            .map(Duration::from_micros);
        Ok(Some(Systemd {
            socket,
            watchdog,
            told_stopping: false,
        }))
    }

    /// Tells what changes; never returns.
    pub(crate) async fn run(mut self, health: &Health, shutdown: &Shutdown, events: &Events) {
        let mut phase = shutdown.subscribe();
        let mut told_ready = false;
        let mut status = String::new();
        let mut heard = true;
        let half = self.watchdog.map(|time| time / 2);
        let mut feed_at = Instant::now();
        loop {
            let ready = health.ready();
            let mut lines = Vec::new();
            if !told_ready && ready.is_ok() {
                told_ready = true;
                lines.push("READY=1".to_owned());
            }
            if !self.told_stopping && shutdown.phase() != Phase::Running {
                self.told_stopping = true;
                lines.push(STOPPING.to_owned());
            }
            let now = ready.err().unwrap_or_else(|| "takes jobs".to_owned());
            if now != status {
                lines.push(format!("STATUS={now}"));
                status = now;
            }
            if let Some(half) = half.filter(|_| Instant::now() >= feed_at && health.live().is_ok())
            {
                feed_at = Instant::now() + half;
                lines.push("WATCHDOG=1".to_owned());
            }
            let sent = self.send(&lines);
            if let (Err(error), true) = (&sent, heard) {
                let error = format!("systemd: {error}");
                events.tell(Event::Unwatched { error });
            }
            heard = sent.is_ok();
            let until_fed = feed_at.saturating_duration_since(Instant::now());
            let wake = match half {
                None => LOOK,
                // Not fed although it is time: a loop stands still.
                Some(half) if until_fed.is_zero() => LOOK.min(half / 4),
                Some(_) => LOOK.min(until_fed),
            };
            tokio::select! {
                () = health.changed() => {}
                Ok(()) = phase.changed() => {}
                () = tokio::time::sleep(wake) => {}
            }
        }
    }

    fn send(&self, lines: &[String]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        self.socket.send(lines.join("\n").as_bytes()).map(|_| ())
    }
}

impl Drop for Systemd {
    /// A stop that was over before it could be told.
    fn drop(&mut self) {
        if !self.told_stopping && self.socket.send(STOPPING.as_bytes()).is_err() {}
    }
}

/// A path, or with `@` in front a name of Linux' abstract sockets.
fn connect(name: &str) -> io::Result<UnixDatagram> {
    let address = match name.strip_prefix('@') {
        Some(name) => abstract_address(name)?,
        None if name.starts_with('/') => SocketAddr::from_pathname(name)?,
        None => return Err(io::Error::other("neither a path nor an abstract name")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // A manager that does not read must not stop the answers to probes.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &str) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &str) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}
