//! Heartbeats, on a dedicated thread, runtime and connection: a handler that blocks every thread of
//! the caller's runtime does not lose its lease.
//!
//! Every third of a lease, one call extends all held leases, and another reports that the worker is
//! alive (`registration`), even if it holds no lease. Progress reports of handlers use the same
//! connection, at most twice a second.
//!
//! The connection listens for cancels. For a job named in a notification an extra heartbeat is
//! sent, as for a job that begins. While leases are held, a broken connection is replaced at once,
//! and all leases are checked, as notifications may have been missed.
//!
//! A claim marks no job as begun, because its answer may be lost. A begin is reported by a separate
//! heartbeat, at most every [`BEGIN_PERIOD`]. In a stream of jobs only those that last longer than
//! that are reported: a worker busy with short jobs sends nothing.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio_postgres::GenericClient;

use super::connection::{Backoff, Connection, answer_within, open_hearing_cancels};
use super::event::{Event, Events, Refusals};
use super::health::{Health, Part};
use super::held_leases::HeldLeases;
use super::keep_polling::keep_polling;
use super::registration::{LAST_LIMIT, Registration};
use crate::address::Address;
use crate::client::Client;
use crate::clock::{CHECK_PERIOD, Moment};
use crate::error::{Error, Result};
use crate::id::{JobId, Token};
use crate::json::Json;

/// The maximum number of leases that one call extends.
pub(super) const BATCH: usize = 1000;
/// The time between reports of begun jobs, and half the time within which every begin is reported.
const BEGIN_PERIOD: Duration = Duration::from_millis(50);
/// The time between rounds of progress reports.
const REPORT_PERIOD: Duration = Duration::from_millis(500);

/// The minimum time limits of a call, for a busy machine (never more than a third of the lease),
/// and of a heartbeat, which may have to open its connection.
const SHORTEST_LIMIT: Duration = Duration::from_millis(500);
const LEAST_BEAT: Duration = Duration::from_secs(1);

/// The thread. Dropping this value ends it.
pub(crate) struct Heartbeat {
    stop: watch::Sender<bool>,
    /// Closed when the thread ends.
    ended: oneshot::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    pub(crate) fn start(
        address: Address,
        held: Arc<HeldLeases>,
        lease: Duration,
        events: Events,
        health: Health,
        registration: Registration,
    ) -> Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::Conversion(error.into()))?;
        let workers_runtime = Handle::current();
        let mut heart = HeartbeatLoop {
            address,
            held: Arc::clone(&held),
            lease,
            events,
            health,
            connection: None,
            registration,
            failing: false,
            refusals: Refusals::default(),
        };
        let thread = std::thread::Builder::new()
            .name("trax-heartbeat".to_owned())
            .spawn(move || {
                let _end = end;
                runtime.block_on(async {
                    tokio::select! {
                        () = heart.run(stopped) => {}
                        () = keep_polling(workers_runtime, &held) => {}
                    }
                    heart.leave().await;
                });
                // A pending name lookup must not delay the end.
                runtime.shutdown_background();
            })
            .map_err(|error| Error::Conversion(error.into()))?;
        Ok(Heartbeat {
            stop,
            ended,
            thread: Some(thread),
        })
    }

    /// Ends the thread without blocking a thread of the caller.
    pub(crate) async fn end(mut self) {
        self.stop.send_replace(true);
        // The channel closes; no value is ever sent.
        (&mut self.ended).await.ok();
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // The thread stops at its next await. An error is a panic, which has been printed
            // already.
            thread.join().ok();
        }
    }
}

struct HeartbeatLoop {
    address: Address,
    held: Arc<HeldLeases>,
    lease: Duration,
    events: Events,
    health: Health,
    connection: Option<Connection>,
    registration: Registration,
    failing: bool,
    refusals: Refusals,
}

impl HeartbeatLoop {
    async fn run(&mut self, mut stopped: watch::Receiver<bool>) {
        let period = self.lease / 3;
        let mut backoff = Backoff::new(period);
        // The first heartbeat is sent at once, so that a worker is registered before it has claimed
        // a job.
        let mut next = Moment::now();
        let mut stop_begun = self.registration.stop_begun();
        let mut next_report = Moment::now();
        let mut next_begun: Option<Moment> = None;
        let mut last_begun: Option<Moment> = None;
        let mut reported = false;
        let (health, held) = (self.health.clone(), Arc::clone(&self.held));
        loop {
            self.health.iterated(Part::Heartbeat);
            let now = Moment::now();
            let wake = match self.held.earliest_end() {
                Some(end) => end.min(next).min(now + CHECK_PERIOD),
                None => next,
            };
            let wake = if reported {
                wake.min(next_report)
            } else {
                wake
            };
            let wake = next_begun.map_or(wake, |at| wake.min(at));
            let wait = wake.after(now).unwrap_or_default().min(health.round());
            tokio::select! {
                _ = stopped.changed() => return,
                () = held.begun(), if next_begun.is_none() => {
                    let soonest = last_begun.map(|last| last + BEGIN_PERIOD);
                    next_begun = soonest.max(Some(Moment::now()));
                }
                () = self.held.reported(), if !reported => reported = true,
                Ok(()) = stop_begun.changed() => next = Moment::now(),
                () = tokio::time::sleep(wait) => {}
            }
            let now = Moment::now();
            self.held.expire(now);
            if self.cannot_hear_cancels() && self.held.earliest_end().is_some() {
                self.connection = None;
                next = next.min(now);
            }
            if next_begun.is_some_and(|at| now >= at)
                && let Some(left) = next.after(now)
            {
                // After a pause, all jobs that have begun; in a stream, those that began before the
                // last report.
                let in_stream = |last: &Moment| (*last + BEGIN_PERIOD * 2).after(now).is_some();
                let until = last_begun.filter(in_stream).unwrap_or(now);
                let report = self.report_begun(until, left);
                let Some(is_reported) = wait_for(report, &health, &held, &mut stopped).await else {
                    return;
                };
                last_begun = Some(now);
                next_begun = if is_reported {
                    held.is_any_unreported().then_some(now + BEGIN_PERIOD)
                } else {
                    Some(next)
                };
            }
            let now = Moment::now();
            if reported
                && now >= next_report
                && let Some(left) = next.after(now)
            {
                let report = self.report(left);
                let Some(all) = wait_for(report, &health, &held, &mut stopped).await else {
                    return;
                };
                reported = !all;
                next_report = Moment::now() + REPORT_PERIOD;
            }
            if Moment::now() < next {
                continue;
            }
            let holds_any = held.earliest_end().is_some();
            if holds_any {
                health.asking(Part::Heartbeat);
            }
            let beat = tokio::time::timeout(period.max(LEAST_BEAT), self.beat());
            let Some(beat) = wait_for(beat, &health, &held, &mut stopped).await else {
                return;
            };
            let beat = beat.unwrap_or_else(|_| Err(Error::unanswered(period)));
            let wait = match beat {
                Ok(()) => {
                    backoff = Backoff::new(period);
                    self.succeeded();
                    period
                }
                Err(error) if holds_any => self.failed(&error, backoff.after(&error)),
                // No lease depends on it, and the claim connection reports the error.
                Err(error) => backoff.after(&error),
            };
            next = Moment::now() + wait;
        }
    }

    /// Reports the handlers that have begun by `until`, unless that takes until the next heartbeat,
    /// which includes them. Returns false if it does.
    async fn report_begun(&mut self, until: Moment, limit: Duration) -> bool {
        if self.failing {
            return false;
        }
        let begun = self.held.unreported(until);
        let sent = tokio::time::timeout(limit, self.extend(&begun)).await;
        matches!(sent, Ok(Ok(())))
    }

    /// Sends the progress reports of handlers, unless that takes until the next heartbeat. Returns
    /// false if some remain.
    async fn report(&mut self, limit: Duration) -> bool {
        let reports = self.held.take_reports();
        let sent = tokio::time::timeout(limit, self.send(&reports)).await;
        let all = matches!(sent, Ok(Ok(())));
        if !all {
            self.held.restore_reports(reports);
        }
        all
    }

    async fn send(&mut self, reports: &[(JobId, Token, Json)]) -> Result<()> {
        let connection = self.connected().await?;
        let client = Client::new(&*connection).lock_timeout(self.lock_timeout());
        for (job_id, token, progress) in reports {
            match client.report_progress(*job_id, *token, progress).await {
                Ok(true) => {}
                Ok(false) => self.held.lost(*job_id, *token),
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => self.events.emit(Event::ProgressRefused {
                    job_id: *job_id,
                    error: error.to_string(),
                }),
            }
        }
        // A connection is kept only after it has answered.
        self.connection = Some(connection);
        Ok(())
    }

    /// Extends every held lease.
    async fn beat(&mut self) -> Result<()> {
        let leases = self.held.snapshot();
        self.extend(&leases).await?;
        let connection = self.connected().await?;
        let reported = self.registration.report(&connection, self.lock_timeout());
        answer_within((self.lease / 3).max(SHORTEST_LIMIT), reported).await?;
        self.connection = Some(connection);
        Ok(())
    }

    /// Reports that the worker has ended.
    async fn leave(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.registration.leave(&connection).await;
        }
    }

    async fn extend(&mut self, leases: &[(JobId, Token)]) -> Result<()> {
        for batch in leases.chunks(BATCH) {
            let connection = self.connected().await?;
            let client = Client::new(&*connection).lock_timeout(self.lock_timeout());
            let call = extend(&client, &self.held, batch, self.lease);
            answer_within(self.limit(), call).await?;
            self.held.beat();
            // A connection is kept only after it has answered.
            self.connection = Some(connection);
        }
        Ok(())
    }

    /// Takes the connection, or opens a new one.
    async fn connected(&mut self) -> Result<Connection> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        self.registration.begin_anew();
        let held = Arc::clone(&self.held);
        let heard = move |payload: &str| held.hear_cancels(payload);
        let connection = open_hearing_cancels(&self.address, self.limit(), heard).await?;
        // Checks all leases, as notifications sent before LISTEN were missed.
        self.held.hear_cancels("");
        Ok(connection)
    }

    /// Returns whether the connection that receives cancels is closed.
    fn cannot_hear_cancels(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| connection.is_closed())
    }

    /// Returns how long a call may stay unanswered. A second call on another connection must be
    /// possible before the lease ends.
    fn limit(&self) -> Duration {
        (self.lease / 6).max(SHORTEST_LIMIT).min(self.lease / 3)
    }

    /// Returns how long a call may wait for a lock, for example on a table. The server ends the
    /// call before the client gives up; otherwise each attempt would leave a waiting session
    /// behind.
    fn lock_timeout(&self) -> Duration {
        self.limit() * 3 / 4
    }

    fn succeeded(&mut self) {
        self.health.reached(Part::Heartbeat);
        self.held.beat();
        self.refusals.recovered();
        if std::mem::take(&mut self.failing) {
            self.events.emit(Event::Recovered {
                during: "heartbeat",
            });
        }
    }

    fn failed(&mut self, error: &Error, retry_in: Duration) -> Duration {
        self.failing = true;
        self.health.troubled(Part::Heartbeat, &error.to_string());
        if self.refusals.is_new(error) {
            self.events.emit(Event::Trouble {
                during: "heartbeat",
                error: error.to_string(),
                retry_in,
            });
        }
        retry_in
    }
}

/// Extends leases, at most [`BATCH`], in one call.
pub(super) async fn extend<C: GenericClient + Sync>(
    client: &Client<'_, C>,
    held: &HeldLeases,
    leases: &[(JobId, Token)],
    lease: Duration,
) -> Result<()> {
    let sent = Moment::now();
    let ahead = held.ahead(leases);
    let beats = client.heartbeat_ahead(leases, Some(lease), &ahead).await?;
    held.record_beats(leases, &beats, sent, lease);
    Ok(())
}

/// Waits for a call, while keeping the loop alive and expiring leases. Returns `None` if the worker
/// has stopped. The call is then given a moment to end: dropping it would also drop the connection,
/// which is needed to report the worker's end.
async fn wait_for<T>(
    call: impl Future<Output = T>,
    health: &Health,
    held: &HeldLeases,
    stopped: &mut watch::Receiver<bool>,
) -> Option<T> {
    tokio::pin!(call);
    loop {
        tokio::select! {
            answer = &mut call => return Some(answer),
            _ = stopped.changed() => {
                tokio::time::timeout(LAST_LIMIT, call).await.ok();
                return None;
            }
            () = tokio::time::sleep(until_a_look(held).min(health.round())) => {
                health.iterated(Part::Heartbeat);
                held.expire(Moment::now());
            }
        }
    }
}

/// Returns the time until a lease or timeout may end.
fn until_a_look(held: &HeldLeases) -> Duration {
    let end = held.earliest_end();
    let left = end.map_or(CHECK_PERIOD, |end| {
        end.after(Moment::now()).unwrap_or_default()
    });
    // The minimum avoids a busy loop.
    left.clamp(Duration::from_millis(10), CHECK_PERIOD)
}
