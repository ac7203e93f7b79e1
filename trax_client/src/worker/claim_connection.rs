//! The claim connection, which reports outcomes and claims jobs.
//!
//! An *exchange* reports the collected outcomes to the server (`report`) and then claims;
//! completions and the claim are one call. While idle, the connection listens for work. Input:
//! outcomes, and the number of jobs wanted. Output: an answer for every reported outcome, the
//! outcomes not reported, and claimed jobs.
//!
//! Waits for locks are short: the server cancels the call and rolls it back. If only the client
//! gave up, the call would go on waiting in the server and hold the locks of everything it had
//! recorded before, with other calls queued behind it.

use std::sync::Arc;
use std::time::Duration;

use super::calls::{BATCH, BoundedCalls};
use super::connection::{Backoff, Connection, answer_within, open_listening};
use super::event::{Event, Events, Refusals};
use super::fair_share::{ClaimRequest, FairShare};
use super::health::{Health, Part};
use super::heartbeat;
use super::held_leases::HeldLeases;
use super::polling::More;
use super::reply::Reply;
use super::report::OutcomeReports;
use super::shutdown::Shutdown;
use super::start::Start;
use super::startup::{Startup, start_up};
use super::unreported::UnreportedOutcome;
use crate::address::Address;
use crate::clock::Moment;
use crate::error::{Blame, Error, Report, Result};
use crate::job::ClaimOptions;

/// The shortest and the longest pause before an outcome is reported again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The minimum time that a call may stay unanswered.
const LEAST_LIMIT: Duration = Duration::from_secs(2);
/// The shortest lock timeout of an outcome that is reported again. Otherwise the timeout is the
/// `LOCK_TIMEOUT_PART`-th part of the pause before it and of a call's limit, so that the connection
/// stays mostly free while rows are locked.
const LEAST_LOCK_TIMEOUT: Duration = Duration::from_millis(100);
const LOCK_TIMEOUT_PART: u32 = 5;

pub(crate) struct ClaimConnection {
    pub(crate) address: Address,
    pub(crate) options: ClaimOptions,
    pub(crate) fair_share: Option<FairShare>,
    pub(crate) events: Events,
    pub(crate) shutdown: Shutdown,
    pub(crate) health: Health,
    /// How long a call may stay unanswered.
    pub(crate) limit: Duration,
    pub(crate) held: Arc<HeldLeases>,
    pub(crate) lease: Duration,
    pub(crate) state: ExchangeState,
    /// The work left to do before the first claim.
    pub(crate) startup: Option<Startup>,
    /// The start of the whole worker.
    pub(crate) start: Start,
}

/// The state kept from one exchange to the next.
pub(crate) struct ExchangeState {
    connection: Option<Connection>,
    /// False until the first claim has succeeded. Until then a refusal by the server ends the run,
    /// unless it comes late.
    has_claimed: bool,
    /// An exchange failed before the first claim succeeded. Never reset: an exchange may succeed
    /// without a claim if other branches hold all places.
    failed_at_first: bool,
    /// The last exchange failed, perhaps because of its claim and not its connection. Only another
    /// claim can show that claims work again.
    exchange_failed: bool,
    claim_failed: bool,
    /// A refusal that an extension update may end arrived when no update was pending. The refusal
    /// may date from just before the update.
    was_refused: bool,
    /// The last attempt to report outcomes again failed.
    outcomes_delayed: bool,
    refused_claims: Refusals,
    refused_outcomes: Refusals,
    backoff: Backoff,
    /// The pause before outcomes are reported again that the server had no time for.
    pause: Duration,
    /// The maximum number of completions in a call, and of jobs in a claim. Both are reduced after
    /// a failed call.
    batch_size: usize,
    claim_size: usize,
}

impl ExchangeState {
    pub(crate) fn new() -> Self {
        ExchangeState {
            connection: None,
            has_claimed: false,
            failed_at_first: false,
            exchange_failed: false,
            claim_failed: false,
            was_refused: false,
            outcomes_delayed: false,
            refused_claims: Refusals::default(),
            refused_outcomes: Refusals::default(),
            backoff: Backoff::new(Duration::MAX),
            pause: Duration::ZERO,
            batch_size: BATCH,
            claim_size: BATCH,
        }
    }
}

/// The jobs that a worker can take.
#[derive(Clone, Copy, Default)]
pub(crate) struct Want {
    pub(crate) jobs: usize,
    /// How many of them begin as soon as they are here.
    pub(crate) places: usize,
}

impl Want {
    fn at_most(self, jobs: usize) -> Self {
        Want {
            jobs: self.jobs.min(jobs),
            places: self.places.min(jobs),
        }
    }
}

impl ClaimConnection {
    /// Returns how long a call may stay unanswered. An answer after more than half a lease is of
    /// little use.
    pub(crate) fn limit(lease: Duration) -> Duration {
        (lease / 2).clamp(LEAST_LIMIT, Duration::from_secs(30))
    }

    /// Reports the outbox and claims the jobs of `want`. Before that, extends the leases if no
    /// heartbeat does. With nothing to do, only replaces a broken connection.
    ///
    /// # Errors
    /// A refusal by the server before the first claim has succeeded. After it there are none; nor
    /// are there while the versions of the extension and this library differ, or from a server that
    /// was away until the worker's start was over.
    pub(crate) async fn exchange(
        &mut self,
        outbox: Vec<UnreportedOutcome>,
        want: Want,
        extends: bool,
    ) -> Result<Reply> {
        let mut reply = Reply {
            unreported: outbox,
            ..Reply::default()
        };
        if reply.unreported.is_empty() && want.jobs == 0 && !extends {
            if !self.is_broken() {
                return Ok(reply);
            }
            // No call would notice that the connection is broken.
            self.state.connection = None;
        }
        self.health.asking(Part::Claim);
        let again = reply.unreported.iter().any(|outcome| outcome.again);
        let mut outcome_error = None;
        match self
            .try_exchange(want, extends, &mut reply, &mut outcome_error)
            .await
        {
            Ok(()) => {
                self.health.reached(Part::Claim);
                if want.jobs > 0 || !self.state.claim_failed {
                    self.state.claim_failed = false;
                    self.state.backoff.reset();
                    self.state.refused_claims.recovered();
                    if std::mem::take(&mut self.state.exchange_failed) {
                        self.events.emit(Event::Recovered { during: "claim" });
                    }
                }
            }
            Err(error) => {
                let is_late = self.state.failed_at_first && self.start.is_over();
                let error = match self.state.has_claimed || is_late || error.is_transient() {
                    true => error,
                    false => self.before_update(error).await?,
                };
                let retry_in = self.state.backoff.after(&error);
                let unopened = self.state.connection.is_none();
                if error.blame() != Blame::Moment {
                    self.state.connection = None;
                }
                match error.blame() {
                    Blame::Connection => reply.pause_for = Some(retry_in),
                    // No outcome can be reported either: a password, a certificate or the database
                    // is wrong.
                    _ if unopened => reply.pause_for = Some(retry_in),
                    Blame::Moment | Blame::Call => reply.no_claim_for = Some(retry_in),
                }
                self.state.failed_at_first |= !self.state.has_claimed;
                self.state.exchange_failed = true;
                self.state.claim_failed = want.jobs > 0 && error.blame() != Blame::Connection;
                self.health.troubled(Part::Claim, &error.to_string());
                if self.state.refused_claims.is_new(&error) {
                    self.emit_trouble("claim", &error, retry_in);
                }
            }
        }
        self.schedule_retries(&mut reply, outcome_error, again);
        Ok(reply)
    }

    /// Returns a description of an error that an extension update may end.
    ///
    /// # Errors
    /// Any other error. The extension may have reached this library's version just after the server
    /// refused, so only the second refusal counts.
    async fn before_update(&mut self, error: Error) -> Result<Error> {
        const INSTALLED: &str =
            "select e.extversion from pg_catalog.pg_extension e where e.extname = 'trax'";
        const OURS: &str = env!("CARGO_PKG_VERSION");
        let (Error::NotInstalled(report) | Error::WrongState(report)) = &error else {
            return Err(error);
        };
        let Some(connection) = &self.state.connection else {
            return Err(error);
        };
        let asked = async { Ok(connection.query_typed(INSTALLED, &[]).await?) };
        let rows = answer_within(self.limit, asked).await.unwrap_or_default();
        let installed: Option<&str> = rows.first().and_then(|row| row.try_get(0).ok());
        match installed {
            None => Err(error),
            Some(OURS) if self.state.was_refused => Err(error),
            Some(OURS) => {
                self.state.was_refused = true;
                Ok(error)
            }
            Some(installed) => {
                self.state.was_refused = false;
                Ok(Error::WrongState(Report {
                    message: format!(
                        "trax {installed} is installed in the database, this worker is of {OURS}: \
                         type there \"alter extension trax update\", or run a worker of {installed}"
                    ),
                    hint: None,
                    ..report.clone()
                }))
            }
        }
    }

    /// Decides when to repeat the outcomes that the server had no time for or did not answer.
    fn schedule_retries(&mut self, reply: &mut Reply, outcome_error: Option<Error>, again: bool) {
        if !reply.retries.is_empty() {
            self.state.outcomes_delayed = true;
            let longer = (self.state.pause * 2).max(SHORTEST_PAUSE);
            self.state.pause = match reply.answers.is_empty() {
                true => longer.min(LONGEST_PAUSE),
                false => SHORTEST_PAUSE,
            };
        } else if again
            && reply.unreported.is_empty()
            && std::mem::take(&mut self.state.outcomes_delayed)
        {
            self.state.pause = Duration::ZERO;
            self.state.refused_outcomes.recovered();
            self.events.emit(Event::Recovered { during: "outcome" });
        }
        if let Some(error) = outcome_error
            && self.state.refused_outcomes.is_new(&error)
        {
            self.emit_trouble("outcome", &error, self.state.pause);
        }
        reply.retry_in = self.state.pause;
    }

    fn emit_trouble(&self, during: &'static str, error: &Error, retry_in: Duration) {
        self.events.emit(Event::Trouble {
            during,
            error: error.to_string(),
            retry_in,
        });
    }

    /// Returns whether the connection is missing or closed.
    fn is_broken(&self) -> bool {
        let connection = self.state.connection.as_ref();
        connection.is_none_or(|connection| connection.is_closed())
    }

    async fn try_exchange(
        &mut self,
        want: Want,
        extends: bool,
        reply: &mut Reply,
        outcome_error: &mut Option<Error>,
    ) -> Result<()> {
        if self.state.connection.is_none() {
            let (connection, notifications) = open_listening(&self.address, self.limit).await?;
            reply.notifications = Some(notifications);
            // The heartbeat lost its connection as well, and gets time to reconnect.
            self.held.beat();
            self.state.connection = Some(connection);
        }
        let ExchangeState {
            connection,
            has_claimed,
            pause,
            batch_size,
            claim_size,
            ..
        } = &mut self.state;
        let Some(connection) = connection else {
            return Ok(());
        };
        let lock_timeout = self.limit / LOCK_TIMEOUT_PART;
        let calls = BoundedCalls {
            connection,
            limit: self.limit,
            lock_timeout,
        };
        if extends {
            for leases in self.held.snapshot().chunks(heartbeat::BATCH) {
                let client = calls.client();
                let call = heartbeat::extend(&client, &self.held, leases, self.lease);
                calls.bounded(call).await?;
            }
        }
        if let Some(startup) = &self.startup {
            calls
                .bounded(start_up(
                    &calls.client(),
                    startup,
                    &self.options,
                    &self.events,
                ))
                .await?;
            self.startup = None;
        }
        let retry_timeout = (*pause / LOCK_TIMEOUT_PART).max(LEAST_LOCK_TIMEOUT);
        let mut reports = OutcomeReports {
            calls,
            retry_calls: BoundedCalls {
                lock_timeout: retry_timeout.min(lock_timeout),
                ..calls
            },
            events: &self.events,
            batch_size,
            reply,
            last_error: outcome_error,
            failures: 0,
        };
        reports.report_singles().await?;
        if want.jobs == 0 {
            return reports.report_completions().await;
        }
        let (request, options) = next_claim(
            &self.options,
            self.fair_share.as_ref(),
            want.at_most(*claim_size),
        );
        if let Some((sent, claimed)) = reports.report_completions_and_claim(&options).await? {
            let more = may_have_more(&mut self.fair_share, &request, claimed.len());
            reports.reply.take(sent, claimed, more);
            *has_claimed = true;
            self.start.claimed();
            return Ok(());
        }
        reports.report_completions().await?;
        let sent = Moment::now();
        let claimed = calls.bounded(calls.client().claim(&options)).await;
        *claim_size = match &claimed {
            Ok(_) => (*claim_size * 2).min(BATCH),
            Err(error) if error.is_unanswered() => (request.jobs / 2).max(1),
            Err(_) => *claim_size,
        };
        let claimed = claimed?;
        let more = may_have_more(&mut self.fair_share, &request, claimed.len());
        reply.take(sent, claimed, more);
        *has_claimed = true;
        self.start.claimed();
        Ok(())
    }
}

/// Returns the request of the next claim, and its options.
fn next_claim(
    options: &ClaimOptions,
    fair_share: Option<&FairShare>,
    want: Want,
) -> (ClaimRequest, ClaimOptions) {
    let want = want.at_most(BATCH);
    let request = match fair_share {
        Some(fair_share) => fair_share.request(want.jobs),
        None => ClaimRequest {
            jobs: want.jobs,
            task: None,
        },
    };
    let places = number(want.at_most(request.jobs).places);
    let options = options
        .clone()
        .max_jobs(number(request.jobs))
        .places(places);
    match &request.task {
        Some(task) => {
            let options = options.tasks([task]);
            (request, options)
        }
        None => (request, options),
    }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Records the result of a claim, and returns whether more jobs may be waiting.
fn may_have_more(fair_share: &mut Option<FairShare>, request: &ClaimRequest, got: usize) -> More {
    match fair_share {
        Some(fair_share) => fair_share.record(request, got),
        None => More::after(request.jobs, got),
    }
}
