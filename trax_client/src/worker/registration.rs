//! A worker's reports about itself: that it is alive, whether it is stopping, and its properties.

use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;

use super::connection::{Connection, answer_within};
use super::shutdown::{Phase, Shutdown};
use crate::client::Client;
use crate::clock::Moment;
use crate::error::Result;
use crate::job::ClaimOptions;
use crate::json::Json;

/// The minimum time between reports.
const SHORTEST_PERIOD: Duration = Duration::from_secs(1);
/// The time limit of the last report, and of the call in progress when the worker stops.
pub(super) const LAST_LIMIT: Duration = Duration::from_millis(500);
/// The number of periods without reports after a server refused one.
const REFUSED_PERIODS: u32 = 3;
/// The maximum length of the task names in a report, in bytes.
const TASKS_BYTES: usize = 4096;

/// The entry of a worker in `trax.worker`.
pub(crate) struct Registration {
    name: String,
    period: Duration,
    info: Json,
    shutdown: Shutdown,
    /// When the server accepted the last report, and the state in it.
    reported: Option<(Moment, &'static str)>,
    /// Whether a report was sent or begun: the server may have recorded it even without an answer.
    may_be_known: bool,
    /// No report is sent until then, because the server refused one: its version is older, it is
    /// being updated, or this role has no right to the call.
    refused_until: Option<Moment>,
}

impl Registration {
    pub(crate) fn new(
        name: String,
        options: &ClaimOptions,
        lease: Duration,
        concurrency: usize,
        shutdown: Shutdown,
    ) -> Self {
        let mut room = TASKS_BYTES;
        let fits = |name: &&String| {
            let left = room.checked_sub(name.len());
            room = left.unwrap_or(0);
            left.is_some()
        };
        let tasks = options.tasks.as_ref();
        let tasks: Option<Vec<&String>> = tasks.map(|all| all.iter().take_while(fits).collect());
        let info = json!({
            "host": host(),
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "tasks": tasks,
            "groups": options.groups.as_ref().filter(|names| names.len() <= 10),
            "versions": options.versions.as_ref().filter(|names| names.len() <= 10),
            "concurrency": concurrency,
        });
        Registration {
            name,
            period: (lease / 3).max(SHORTEST_PERIOD),
            info: info.into(),
            shutdown,
            reported: None,
            may_be_known: false,
            refused_until: None,
        }
    }

    /// Returns a receiver that changes when the worker begins to stop.
    pub(crate) fn stop_begun(&self) -> watch::Receiver<Phase> {
        self.shutdown.subscribe()
    }

    fn state(&self) -> &'static str {
        match self.shutdown.phase() {
            Phase::Running => "running",
            Phase::Draining | Phase::Releasing => "stopping",
        }
    }

    /// Sends a report if one is due.
    pub(crate) async fn report(
        &mut self,
        connection: &Connection,
        lock_timeout: Duration,
    ) -> Result<()> {
        let (now, state) = (Moment::now(), self.state());
        // The margin allows for a heartbeat that comes a little early.
        let is_fresh = self.reported.is_some_and(|(at, said)| {
            said == state && (at + self.period * 3 / 4).after(now).is_some()
        });
        let is_refused = self
            .refused_until
            .is_some_and(|until| until.after(now).is_some());
        if is_refused || is_fresh {
            return Ok(());
        }
        let first = self.reported.is_none();
        let info = first.then(|| self.info.clone());
        let client = Client::new(&**connection).lock_timeout(lock_timeout);
        self.may_be_known = true;
        match client
            .report_worker(&self.name, self.period, state, info)
            .await
        {
            Ok(true) => (self.reported, self.refused_until) = (Some((now, state)), None),
            // Nothing was recorded; the next heartbeat repeats the full report.
            Ok(false) => {}
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => self.refused_until = Some(now + self.period * REFUSED_PERIODS),
        }
        Ok(())
    }

    /// Makes the next report complete. A lost connection may have lost reports that the server had
    /// not yet written.
    pub(crate) fn begin_anew(&mut self) {
        (self.reported, self.refused_until) = (None, None);
    }

    /// Reports that the worker has ended. If that fails, the server soon counts it as gone.
    pub(crate) async fn leave(&self, connection: &Connection) {
        if self.may_be_known && self.refused_until.is_none() {
            let client = Client::new(&**connection);
            let left = async {
                while !client
                    .report_worker(&self.name, self.period, "stopped", None)
                    .await?
                {
                    tokio::time::sleep(LAST_LIMIT / 20).await;
                }
                Ok(())
            };
            answer_within(LAST_LIMIT, left).await.ok();
        }
    }
}

/// Returns the name of this machine.
pub(crate) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_else(|| "host".to_owned());
    name.trim().to_owned()
}
