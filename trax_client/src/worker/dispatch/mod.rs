//! The worker's main loop: starts claimed jobs, collects the ended ones, and exchanges both with
//! the server.
//!
//! A claimed job is in one of three places: `waiting` (not started), `running`, or `outbox` (ended,
//! not yet reported). The job leaves when the server has answered. `HeldLeases` holds and extends
//! its lease from the claim to that answer.

mod times;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use super::cancellation::{Cancellation, cancellation};
use super::claim_connection::{ClaimConnection, Want};
use super::connection::{Notification, Notifications};
use super::context::Context;
use super::deadline::Deadlines;
use super::event::{Event, Events};
use super::exchange::Exchange;
use super::handler::attempt;
use super::health::{Health, Part};
use super::held_leases::HeldLeases;
use super::outcome::{JobError, TIMED_OUT, Verdict, verdict_on};
use super::places::Places;
use super::polling::{More, Polling};
use super::prefetch::Prefetch;
use super::pulse::{Change, Pulse};
use super::reply::Reply;
use super::setup::Setup;
use super::shutdown::{Phase, Shutdown};
use super::steps::{Caller, Steps};
use super::summary::{Counts, Stopped, Summary};
use super::unreported::{Answer, UnreportedOutcome};
use crate::clock::Moment;
use crate::error::Result;
use crate::id::JobId;
use crate::job::{Claimed, Failure};
use crate::trace;

/// If the server accepts none of this many outcomes, or of twice as many as may run at once,
/// nothing more is claimed.
const UNREPORTED_AT_MOST: usize = 1000;

/// The maximum pause before an outcome is reported again during a stop, which waits ten seconds for
/// it.
const LAST_PAUSE: Duration = Duration::from_millis(200);

struct Waiting {
    claimed: Claimed,
    cancellation: Cancellation,
    since: Instant,
}

struct Started {
    attempt: Arc<Claimed>,
    steps: Arc<Steps>,
    at: Instant,
}

pub(crate) struct Dispatch<S> {
    setup: Arc<Setup<S>>,
    held: Arc<HeldLeases>,
    /// Serves the calls of handlers that record steps.
    steps: Caller,
    events: Events,
    shutdown: Shutdown,
    health: Health,
    phase: watch::Receiver<Phase>,
    deadlines: Option<Deadlines>,
    waiting: VecDeque<Waiting>,
    running: JoinSet<Verdict>,
    started: HashMap<Id, Started>,
    outbox: Vec<UnreportedOutcome>,
    /// Outcomes that the server had no time for. They are reported again at `retry_at`.
    retries: Vec<UnreportedOutcome>,
    retry_at: Instant,
    /// Nothing is sent before this time.
    paused_until: Instant,
    /// No claim is sent before this time.
    no_claim_until: Instant,
    exchange: Exchange,
    notifications: Notifications,
    /// The connection is lost: the next exchange follows soon, even if there is no room for jobs.
    must_reconnect: bool,
    polling: Polling,
    prefetch: Prefetch,
    pulse: Pulse,
    places: Places,
    /// A claim is due, but branches of other databases hold the places.
    starved: bool,
    summary: Summary,
    counts: Counts,
}

impl<S: Send + Sync + 'static> Dispatch<S> {
    pub(crate) fn new(
        setup: Arc<Setup<S>>,
        held: Arc<HeldLeases>,
        connection: ClaimConnection,
        places: Places,
        counts: Counts,
        steps: Caller,
    ) -> Self {
        let now = Instant::now();
        let polling = Polling::new(setup.poll_interval, now);
        let prefetch = Prefetch::new(setup.concurrency, setup.prefetch);
        Dispatch {
            held,
            steps,
            events: connection.events.clone(),
            phase: connection.shutdown.subscribe(),
            shutdown: connection.shutdown.clone(),
            health: connection.health.clone(),
            deadlines: None,
            waiting: VecDeque::new(),
            running: JoinSet::new(),
            started: HashMap::new(),
            outbox: Vec::new(),
            retries: Vec::new(),
            retry_at: now,
            paused_until: now,
            no_claim_until: now,
            exchange: Exchange::new(connection),
            notifications: Notifications::none(),
            must_reconnect: false,
            polling,
            prefetch,
            pulse: Pulse::new(setup.lease),
            places,
            starved: false,
            summary: Summary::default(),
            counts,
            setup,
        }
    }

    pub(crate) async fn run(mut self) -> Result<Summary> {
        if self.shutdown.phase() != Phase::Running {
            self.stop_further();
        }
        loop {
            self.health.iterated(Part::Claim);
            self.start_waiting();
            if self.exchange.is_idle() {
                self.places.answered();
            }
            self.begin_exchange();
            if self.is_over() {
                return Ok(self.conclude());
            }
            let wake = self.wake_at();
            tokio::select! {
                biased;
                Ok(()) = self.phase.changed() => self.stop_further(),
                reply = self.exchange.reply() => self.take_reply(reply?),
                Some(ended) = self.running.join_next_with_id() => self.take_ended(ended),
                notification = self.notifications.next() => self.take_notification(notification),
                () = self.places.called() => self.take_call(),
                // The next iteration checks the leases.
                () = self.held.beaten() => {}
                () = tokio::time::sleep_until(wake.into()) => self.on_time(),
            }
        }
    }

    /// Starts waiting jobs while there are free places.
    fn start_waiting(&mut self) {
        while !self.waiting.is_empty() && self.places.take(Instant::now()) {
            let Some(next) = self.waiting.pop_front() else {
                return;
            };
            let (claimed, cancellation) = (next.claimed, next.cancellation);
            let Some(handler) = self.setup.handlers.get(&claimed.task) else {
                // Claims are limited to tasks that have a handler, so this is not expected.
                let error = format!("this worker has no handler for task \"{}\"", claimed.task);
                self.places.give_back();
                self.end_attempt(&claimed, Verdict::Fail(Failure::new(error)));
                continue;
            };
            if let (_, Some(malformed)) = trace::received(claimed.trace.as_ref()) {
                self.events.emit(Event::TraceDropped {
                    job_id: claimed.job_id,
                    error: malformed.to_string(),
                });
            }
            // The machine may have been suspended since the claim, and another worker may have the
            // job.
            if !self
                .held
                .begin(claimed.job_id, claimed.token, Moment::now())
            {
                self.places.give_back();
                self.end_attempt(&claimed, Verdict::Release(None));
                continue;
            }
            let state = Arc::clone(&self.setup.state);
            let held = Arc::clone(&self.held);
            let (input, ctx) = Context::new(claimed, cancellation, state, held, self.steps.clone());
            let (claimed, steps) = (ctx.claimed(), Arc::clone(&ctx.steps));
            let patience = self.setup.cancel_patience;
            let task = self.running.spawn(attempt(handler, input, ctx, patience));
            self.started.insert(
                task.id(),
                Started {
                    attempt: claimed,
                    steps,
                    at: Instant::now(),
                },
            );
        }
    }

    /// Sends the outbox, and claims if a claim is due and there is room.
    fn begin_exchange(&mut self) {
        let now = Instant::now();
        if !self.exchange.is_idle() || now < self.paused_until {
            return;
        }
        // New outcomes are sent in the pause that follows.
        if !self.retries.is_empty() && now >= self.retry_at {
            let retries = std::mem::take(&mut self.retries);
            self.exchange.begin(retries, Want::default(), false);
            return;
        }
        let extends = self.check_heartbeats();
        let due = now >= self.polling.next_claim() || !self.outbox.is_empty();
        let due = due && now >= self.no_claim_until;
        let may_claim = !self.is_full() && !self.pulse.is_lost();
        let claims = due && may_claim && self.shutdown.phase() == Phase::Running;
        let want = if claims { self.room(now) } else { 0 };
        let mut places = 0;
        // If other branches hold the places, this branch is notified when one is free.
        let here = self.running.len() + self.waiting.len();
        self.starved = claims && want == 0 && here < self.setup.concurrency;
        if self.starved {
            self.places.want(now);
        }
        if self.outbox.is_empty() && want == 0 && !self.must_reconnect && !extends {
            return;
        }
        self.must_reconnect = false;
        if want > 0 {
            self.polling.claim_sent(!self.outbox.is_empty());
            places = self.places.claim_sent(want, now);
        }
        let outbox = std::mem::take(&mut self.outbox);
        self.exchange
            .begin(outbox, Want { jobs: want, places }, extends);
    }

    /// Checks whether heartbeats are answered. Returns whether this connection must extend the
    /// leases.
    fn check_heartbeats(&mut self) -> bool {
        // Without a connection, both wait for the server.
        if self.must_reconnect {
            return false;
        }
        let now = Moment::now();
        match self.pulse.look(&self.held, now) {
            Some(Change::Lost) => {
                let limit = self.pulse.limit();
                let why = "no heartbeat is answered";
                self.health.troubled(Part::Heartbeat, why);
                self.events.emit(Event::Unheard { limit });
            }
            Some(Change::Found) => self.events.emit(Event::Recovered { during: "claim" }),
            None => {}
        }
        self.pulse.extends(&self.held, now)
    }

    fn take_notification(&mut self, notification: Notification) {
        let now = Instant::now();
        match notification {
            Notification::Work => self.polling.notified(now),
            // The next exchange opens another connection, which then listens.
            Notification::Gone => {
                self.health.troubled(Part::Claim, "the connection is lost");
                self.must_reconnect = true;
                self.polling.wake(now);
            }
        }
    }

    fn take_call(&mut self) {
        if self.places.must_claim_again() {
            self.polling.wake(Instant::now());
        }
    }

    fn take_reply(&mut self, reply: Reply) {
        let now = Instant::now();
        if let Some(notifications) = reply.notifications {
            self.notifications = notifications;
            self.polling.connected();
        }
        self.outbox.splice(0..0, reply.unreported);
        if let Some(pause) = reply.pause_for {
            self.paused_until = now + pause;
            self.must_reconnect = true;
            self.polling.wake(self.paused_until);
        }
        if !reply.retries.is_empty() {
            // During the pause the connection serves other calls. Outcomes added to the list do not
            // delay those already in it.
            let pause = match self.shutdown.phase() {
                Phase::Running => reply.retry_in,
                Phase::Draining | Phase::Releasing => reply.retry_in.min(LAST_PAUSE),
            };
            let at = now.max(self.paused_until) + pause;
            self.retry_at = match self.retries.is_empty() {
                true => at,
                false => at.min(self.retry_at),
            };
            self.retries.extend(reply.retries);
        }
        if let Some(pause) = reply.no_claim_for {
            self.no_claim_until = now + pause;
            self.polling.wake(self.no_claim_until);
        }
        for (job_id, token, answer) in reply.answers {
            self.held.remove(job_id, token);
            self.count(job_id, answer);
        }
        self.counts.set(&self.summary);
        if let Some(sent) = reply.sent {
            self.polling.claimed(reply.more, reply.claimed.len(), now);
            let empty = reply.claimed.is_empty() && reply.more == More::No;
            if self.setup.until_empty && self.places.all_empty(empty && self.in_hand() == 0) {
                self.summary.stopped = Stopped::Empty;
                self.shutdown.drain();
            }
            for claimed in reply.claimed {
                self.take_claimed(claimed, sent, now);
            }
        }
    }

    fn take_claimed(&mut self, claimed: Claimed, sent: Moment, now: Instant) {
        let (trigger, cancellation) = cancellation();
        let (job_id, token) = (claimed.job_id, claimed.token);
        self.held.insert(
            (job_id, token),
            trigger,
            sent,
            self.setup.lease,
            claimed.timeout,
        );
        if self.shutdown.phase() == Phase::Running {
            self.waiting.push_back(Waiting {
                claimed,
                cancellation,
                since: now,
            });
        } else {
            self.end_attempt(&claimed, Verdict::Release(None));
        }
    }

    fn take_ended(&mut self, ended: Result<(Id, Verdict), JoinError>) {
        self.take_one_ended(ended);
        while let Some(ended) = self.running.try_join_next_with_id() {
            self.take_one_ended(ended);
        }
    }

    fn take_one_ended(&mut self, ended: Result<(Id, Verdict), JoinError>) {
        let (id, verdict) = match ended {
            Ok((id, verdict)) => (id, verdict),
            Err(error) => {
                let id = error.id();
                let verdict = match error.try_into_panic() {
                    // A panic is caught where the handler runs, unless dropping the handler caused
                    // it.
                    Ok(payload) => verdict_on(Err(JobError::panicked(payload.as_ref())), None),
                    // The handler was dropped by a stop.
                    Err(_) => Verdict::Release(None),
                };
                (id, verdict)
            }
        };
        if let Some(Started { attempt, steps, at }) = self.started.remove(&id) {
            let unreached = steps.unreached();
            let is_done = matches!(verdict, Verdict::Complete(_) | Verdict::Recorded);
            if is_done && !unreached.is_empty() {
                self.events.emit(Event::StepsUnreached {
                    job_id: attempt.job_id,
                    steps: unreached,
                });
            }
            self.places.give_back();
            self.prefetch.handler_ended(at.elapsed());
            self.end_attempt(&attempt, verdict);
        }
    }

    fn end_attempt(&mut self, attempt: &Claimed, verdict: Verdict) {
        let (job_id, token) = (attempt.job_id, attempt.token);
        self.places.attempt_ended();
        match &verdict {
            Verdict::Suspended => {
                self.held.remove(job_id, token);
                self.count(job_id, Answer::Released);
                self.counts.set(&self.summary);
                return;
            }
            Verdict::Fail(failure) => self.say_failed(attempt, &failure.error),
            Verdict::TimedOut => self.say_failed(attempt, TIMED_OUT),
            _ => {}
        }
        self.outbox
            .push(UnreportedOutcome::new(job_id, token, verdict));
    }

    fn say_failed(&self, attempt: &Claimed, error: &str) {
        self.events.emit(Event::Failed {
            job_id: attempt.job_id,
            attempt: attempt.attempt,
            task: attempt.task.clone(),
            error: error.to_owned(),
        });
    }

    fn count(&mut self, job_id: JobId, answer: Answer) {
        self.summary.count(answer);
        if answer == Answer::Completed {
            self.events.emit(Event::Completed { job_id });
        }
    }

    /// Enters the next phase of a stop.
    fn stop_further(&mut self) {
        let now = Instant::now();
        // A stop skips the pauses.
        (self.paused_until, self.retry_at) = (now, now);
        while let Some(Waiting { claimed, .. }) = self.waiting.pop_front() {
            self.end_attempt(&claimed, Verdict::Release(None));
        }
        let grace = match self.shutdown.phase() {
            Phase::Running => return,
            Phase::Draining => self.setup.grace,
            Phase::Releasing => Duration::ZERO,
        };
        if !self.running.is_empty() {
            let running = self.running.len();
            self.events.emit(Event::Stopping { running, grace });
        }
        self.deadlines = Some(Deadlines::new(now, grace));
        self.on_time();
    }

    /// Returns whether too many outcomes wait to be reported again to claim more jobs.
    fn is_full(&self) -> bool {
        self.retries.len() >= UNREPORTED_AT_MOST.max(2 * self.setup.concurrency)
    }

    /// Returns the number of jobs to claim now.
    fn room(&self, now: Instant) -> usize {
        let (running, waiting) = (self.running.len(), self.waiting.len());
        self.prefetch.room(self.places.most(now), running, waiting)
    }

    fn in_hand(&self) -> usize {
        self.running.len() + self.waiting.len() + self.outbox.len() + self.retries.len()
    }

    fn is_over(&mut self) -> bool {
        let Some(deadlines) = &mut self.deadlines else {
            return false;
        };
        if self.running.is_empty() {
            deadlines.handlers_ended(Instant::now());
        }
        let give_up = deadlines.give_up;
        let reported = self.in_hand() == 0 && self.exchange.is_idle();
        reported || Instant::now() >= give_up
    }

    fn conclude(mut self) -> Summary {
        self.summary.unreported +=
            self.exchange.in_flight() + (self.outbox.len() + self.retries.len()) as u64;
        self.counts.set(&self.summary);
        self.summary
    }
}
