//! systemd's protocol for services (`sd_notify(3)`): readiness, a line of status, the stop, and the
//! watchdog. A crate for it would replace the 30 lines that find and write the socket.
//!
//! Input: the worker's health. Output: datagrams to the socket that NOTIFY_SOCKET names. The
//! watchdog is fed at half of its timeout, and only while the worker is live, so that systemd
//! restarts a stalled worker.

use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::time::Instant;

use super::event::{Event, Events};
use super::health::Health;
use super::shutdown::{Phase, Shutdown};

/// How often the status is checked without a reported change, as a stall shows only with time.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

const STOPPING: &str = "STOPPING=1";

/// The service manager of this process.
pub(crate) struct Systemd {
    socket: UnixDatagram,
    watchdog: Option<Duration>,
    sent_stopping: bool,
}

impl Systemd {
    /// Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID; `None` if no service manager expects
    /// messages.
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
            sent_stopping: false,
        }))
    }

    /// Reports every change. Never returns.
    pub(crate) async fn run(mut self, health: &Health, shutdown: &Shutdown, events: &Events) {
        let mut phase = shutdown.subscribe();
        let mut sent_ready = false;
        let mut status = String::new();
        let mut heard = true;
        let half = self.watchdog.map(|time| time / 2);
        let mut feed_at = Instant::now();
        loop {
            let ready = health.ready();
            let mut lines = Vec::new();
            if !sent_ready && ready.is_ok() {
                sent_ready = true;
                lines.push("READY=1".to_owned());
            }
            if !self.sent_stopping && shutdown.phase() != Phase::Running {
                self.sent_stopping = true;
                lines.push(STOPPING.to_owned());
            }
            let now = ready.err().unwrap_or_else(|| "claiming jobs".to_owned());
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
                events.emit(Event::Unwatched { error });
            }
            heard = sent.is_ok();
            let until_fed = feed_at.saturating_duration_since(Instant::now());
            let wake = match half {
                None => CHECK_PERIOD,
                // The watchdog should be fed and is not: a loop has stalled.
                Some(half) if until_fed.is_zero() => CHECK_PERIOD.min(half / 4),
                Some(_) => CHECK_PERIOD.min(until_fed),
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
    /// Reports a stop that ended before the loop could report it.
    fn drop(&mut self) {
        if !self.sent_stopping {
            // The worker has ended, so a failure cannot be reported.
            self.socket.send(STOPPING.as_bytes()).ok();
        }
    }
}

/// Connects to a path, or with a leading `@` to a name in Linux' abstract namespace.
fn connect(name: &str) -> io::Result<UnixDatagram> {
    let address = match name.strip_prefix('@') {
        Some(name) => abstract_address(name)?,
        None if name.starts_with('/') => SocketAddr::from_pathname(name)?,
        None => return Err(io::Error::other("neither a path nor an abstract name")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // A service manager that does not read must not block the answers to probes.
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::super::health::Part;
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);
    const STALL: Duration = Duration::from_millis(400);

    fn environment(
        socket: &str,
        watchdog: Option<&str>,
        pid: u32,
    ) -> impl Fn(&str) -> Option<String> {
        move |name| match name {
            "NOTIFY_SOCKET" => Some(socket.to_owned()),
            "WATCHDOG_USEC" => watchdog.map(str::to_owned),
            "WATCHDOG_PID" => Some(pid.to_string()),
            _ => None,
        }
    }

    /// Returns the socket of a service manager, under an abstract name of this process.
    fn manager(name: &str) -> io::Result<(tokio::net::UnixDatagram, String)> {
        let name = format!("trax-test-{name}-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&abstract_address(&name)?)?;
        socket.set_nonblocking(true)?;
        let socket = tokio::net::UnixDatagram::from_std(socket)?;
        Ok((socket, format!("@{name}")))
    }

    /// Returns the datagrams up to and including the one that has `line`.
    async fn until(socket: &tokio::net::UnixDatagram, line: &str) -> Vec<String> {
        let mut heard = Vec::new();
        let reading = async {
            let mut datagram = [0; 1024];
            loop {
                let Ok(length) = socket.recv(&mut datagram).await else {
                    continue;
                };
                heard.push(String::from_utf8_lossy(&datagram[..length]).into_owned());
                if heard
                    .iter()
                    .any(|said| said.lines().any(|said| said == line))
                {
                    return;
                }
            }
        };
        let found = tokio::time::timeout(DEADLINE, reading).await;
        assert!(found.is_ok(), "no {line:?} in {heard:?}");
        heard
    }

    #[tokio::test]
    async fn readiness_comes_with_the_first_contact_and_the_stop_is_reported_once() -> io::Result<()>
    {
        let (socket, name) = manager("ready")?;
        let systemd = Systemd::from_environment(environment(&name, None, 0))?;
        let shutdown = Shutdown::new();
        let health = Health::new(shutdown.clone());
        let _running = health.begin(DEADLINE);
        let running = {
            let (health, shutdown) = (health.clone(), shutdown.clone());
            tokio::spawn(async move {
                if let Some(systemd) = systemd {
                    let events = Events::to_logs();
                    systemd.run(&health, &shutdown, &events).await;
                }
            })
        };
        let first = until(
            &socket,
            "STATUS=claim: the database has not been reached yet",
        )
        .await;
        assert_eq!(first.len(), 1, "{first:?}");
        health.reached(Part::Claim);
        assert_eq!(
            until(&socket, "READY=1").await,
            ["READY=1\nSTATUS=claiming jobs"]
        );
        health.troubled(Part::Claim, "cut");
        assert_eq!(
            until(&socket, "STATUS=claim: cut").await,
            ["STATUS=claim: cut"]
        );
        health.reached(Part::Claim);
        assert_eq!(
            until(&socket, "STATUS=claiming jobs").await,
            ["STATUS=claiming jobs"]
        );
        shutdown.drain();
        let stopping = "STOPPING=1\nSTATUS=stopping: no more jobs are claimed";
        assert_eq!(until(&socket, "STOPPING=1").await, [stopping]);
        running.abort();
        assert!(running.await.is_err_and(|error| error.is_cancelled()));
        assert!(
            socket.try_recv(&mut [0; 64]).is_err(),
            "nothing is reported twice"
        );
        Ok(())
    }

    #[tokio::test]
    async fn the_watchdog_is_fed_only_while_the_loops_turn() -> io::Result<()> {
        let (socket, name) = manager("watchdog")?;
        let mine = environment(&name, Some("200000"), std::process::id());
        let systemd = Systemd::from_environment(mine)?.ok_or(io::ErrorKind::NotFound)?;
        assert_eq!(systemd.watchdog, Some(Duration::from_millis(200)));
        let shutdown = Shutdown::new();
        let health = Health::new(shutdown.clone());
        let _running = health.begin(STALL);
        let events = Events::to_logs();
        let begun = Instant::now();
        // No loop iterates: the watchdog is fed until that counts as a stall.
        let heard = tokio::select! {
            () = systemd.run(&health, &shutdown, &events) => Vec::new(),
            heard = async {
                let mut heard = Vec::new();
                while !heard.iter().any(|said: &String| said.contains("has stalled")) {
                    let mut datagram = [0; 1024];
                    if let Ok(length) = socket.recv(&mut datagram).await {
                        heard.push(String::from_utf8_lossy(&datagram[..length]).into_owned());
                    }
                    assert!(begun.elapsed() < DEADLINE, "{heard:?}");
                }
                heard
            } => heard,
        };
        let fed = heard
            .iter()
            .filter(|said| said.contains("WATCHDOG=1"))
            .count();
        assert!((2..=6).contains(&fed), "at half of its time: {heard:?}");
        assert!(
            heard.last().is_some_and(|last| !last.contains("WATCHDOG")),
            "{heard:?}"
        );
        Ok(())
    }

    #[test]
    fn a_watchdog_of_another_process_is_not_fed() -> io::Result<()> {
        let none = Systemd::from_environment(|_| None)?;
        assert!(none.is_none());
        let name = format!("trax-test-other-{}", std::process::id());
        let _manager = UnixDatagram::bind_addr(&abstract_address(&name)?)?;
        let address = format!("@{name}");
        for (watchdog, pid) in [(Some("200000"), 1), (Some("many"), std::process::id())] {
            let systemd = Systemd::from_environment(environment(&address, watchdog, pid))?;
            assert!(systemd.is_some_and(|systemd| systemd.watchdog.is_none()));
        }
        let wrong = Systemd::from_environment(environment("vsock:2:1", None, 0));
        assert!(wrong.is_err());
        Ok(())
    }
}
