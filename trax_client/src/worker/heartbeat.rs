//! Heartbeats, on their own thread, runtime and connection: a handler that blocks every thread of
//! the caller's runtime does not lose its lease by that.
//!
//! Every third of a lease one call extends all leases in hand. With none in hand it sends nothing.
//! What handlers say of their progress goes the same way, twice a second at most.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::connection::{Backoff, Connection, answered, open};
use super::event::{Event, Events};
use super::health::{Health, Part};
use super::held::Held;
use super::nudge::nudge;
use crate::address::Address;
use crate::client::Client;
use crate::clock::{LOOK, Moment};
use crate::error::{Error, Result};
use crate::id::{JobId, Token};

/// How many leases one call extends.
const BATCH: usize = 1000;
/// From one round of progress reports to the next.
const REPORT_PERIOD: Duration = Duration::from_millis(500);

/// A busy machine takes so long for a call.
const SHORTEST_LIMIT: Duration = Duration::from_millis(500);

/// The thread; it ends when this is dropped.
pub(crate) struct Heartbeat {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    pub(crate) fn start(
        address: Address,
        held: Arc<Held>,
        lease: Duration,
        events: Events,
        health: Health,
    ) -> Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::Conversion(error.into()))?;
        let worked_on = Handle::current();
        let mut heart = Heart {
            address,
            held: Arc::clone(&held),
            lease,
            events,
            health,
            connection: None,
            failing: false,
        };
        let thread = std::thread::Builder::new()
            .name("trax-heartbeat".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = heart.run(stopped) => {}
                        () = nudge(worked_on, &held) => {}
                    }
                });
            })
            .map_err(|error| Error::Conversion(error.into()))?;
        Ok(Heartbeat {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // It stops at its next await; a panic there has been printed already.
            if thread.join().is_err() {}
        }
    }
}

struct Heart {
    address: Address,
    held: Arc<Held>,
    lease: Duration,
    events: Events,
    health: Health,
    connection: Option<Connection>,
    failing: bool,
}

impl Heart {
    async fn run(&mut self, mut stopped: watch::Receiver<bool>) {
        let period = self.lease / 3;
        let mut backoff = Backoff::new(period);
        let mut next = Moment::now() + period;
        let mut next_report = Moment::now();
        let mut reported = false;
        let (health, held) = (self.health.clone(), Arc::clone(&self.held));
        loop {
            self.health.turned(Part::Heartbeat);
            let now = Moment::now();
            let wake = match self.held.earliest_end() {
                Some(end) => end.min(next).min(now + LOOK),
                None => next,
            };
            let wake = if reported {
                wake.min(next_report)
            } else {
                wake
            };
            let wait = wake.after(now).unwrap_or_default().min(health.round());
            tokio::select! {
                _ = stopped.changed() => return,
                () = self.held.reported(), if !reported => reported = true,
                () = tokio::time::sleep(wait) => {}
            }
            let now = Moment::now();
            self.held.expire(now);
            if reported
                && now >= next_report
                && let Some(left) = next.after(now)
            {
                let all = tokio::select! {
                    _ = stopped.changed() => return,
                    all = waited_for(&health, &held, self.report(left)) => all,
                };
                reported = !all;
                next_report = Moment::now() + REPORT_PERIOD;
            }
            if Moment::now() < next {
                continue;
            }
            health.asking(Part::Heartbeat);
            let beat = tokio::select! {
                _ = stopped.changed() => return,
                beat = waited_for(&health, &held, tokio::time::timeout(period, self.beat())) => beat,
            };
            let beat = beat.unwrap_or_else(|_| Err(Error::unanswered(period)));
            let wait = match beat {
                Ok(()) => {
                    backoff = Backoff::new(period);
                    self.succeeded();
                    period
                }
                Err(error) => self.failed(&error, backoff.after(&error)),
            };
            next = Moment::now() + wait;
        }
    }

    /// Tells what handlers reported, if that is done before the next heartbeat; false when
    /// something is left to tell.
    async fn report(&mut self, limit: Duration) -> bool {
        let reports = self.held.take_reports();
        let told = tokio::time::timeout(limit, self.tell(&reports)).await;
        let all = matches!(told, Ok(Ok(())));
        if !all {
            self.held.put_back(reports);
        }
        all
    }

    async fn tell(&mut self, reports: &[(JobId, Token, Value)]) -> Result<()> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => open(&self.address).await?,
        };
        let client = Client::new(&*connection).lock_timeout(self.limit());
        for (job_id, token, progress) in reports {
            match client.report_progress(*job_id, *token, progress).await {
                Ok(true) => {}
                Ok(false) => self.held.lost(*job_id, *token),
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => self.events.tell(Event::ProgressRefused {
                    job_id: *job_id,
                    error: error.to_string(),
                }),
            }
        }
        // Only a connection that answered is kept.
        self.connection = Some(connection);
        Ok(())
    }

    /// Extends every lease in hand.
    async fn beat(&mut self) -> Result<()> {
        let leases = self.held.snapshot();
        for batch in leases.chunks(BATCH) {
            let connection = match self.connection.take() {
                Some(connection) => connection,
                None => open(&self.address).await?,
            };
            let sent = Moment::now();
            let client = Client::new(&*connection);
            let ahead = self.held.ahead(batch);
            let call = client.heartbeat_ahead(batch, Some(self.lease), &ahead);
            let beats = answered(self.limit(), call).await?;
            self.held.note(batch, &beats, sent, self.lease);
            // Only a connection that answered is kept.
            self.connection = Some(connection);
        }
        Ok(())
    }

    /// How long a call may be unanswered: on another connection there is time for a second one
    /// before the lease ends.
    fn limit(&self) -> Duration {
        (self.lease / 6).max(SHORTEST_LIMIT).min(self.lease / 3)
    }

    fn succeeded(&mut self) {
        self.health.reached(Part::Heartbeat);
        if std::mem::take(&mut self.failing) {
            self.events.tell(Event::Recovered {
                during: "heartbeat",
            });
        }
    }

    fn failed(&mut self, error: &Error, retry_in: Duration) -> Duration {
        self.failing = true;
        let error = error.to_string();
        self.health.troubled(Part::Heartbeat, &error);
        self.events.tell(Event::Trouble {
            during: "heartbeat",
            error,
            retry_in,
        });
        retry_in
    }
}

/// Waits for a call of the server; the loop lives meanwhile, and leases end.
async fn waited_for<T>(health: &Health, held: &Held, call: impl Future<Output = T>) -> T {
    tokio::pin!(call);
    loop {
        tokio::select! {
            answer = &mut call => return answer,
            () = tokio::time::sleep(health.round().min(LOOK)) => {
                health.turned(Part::Heartbeat);
                held.expire(Moment::now());
            }
        }
    }
}
