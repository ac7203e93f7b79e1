//! The worker's one loop: starts what was claimed, gathers what ended, exchanges both with the
//! server.
//!
//! A claimed job is here in one of three places: `waiting` (not started), `running`, or `outbox`
//! (ended, the server does not know yet). It leaves when the server answered. `Held` has it from
//! the claim to that answer, so that its lease is extended all the time.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use super::Setup;
use super::cancellation::{Cancellation, Reason, cancellation};
use super::connection::{Notice, Notices};
use super::context::Context;
use super::deadline::Deadlines;
use super::event::{Event, Events};
use super::handler::attempt;
use super::health::{Health, Part};
use super::held::Held;
use super::line::Line;
use super::link::{Link, Reply};
use super::outcome::{JobError, Verdict, settle};
use super::pace::Pace;
use super::shutdown::{Phase, Shutdown};
use super::summary::{Stopped, Summary};
use super::telling::{Answer, Settled};
use crate::clock::Moment;
use crate::error::Result;
use crate::job::{Claimed, Failure};
use crate::trace;

/// A job fetched ahead goes back when it was not started within this time.
const PREFETCH_PATIENCE: Duration = Duration::from_secs(2);

/// With so many outcomes that the server takes none of, or twice as many as run at once, nothing
/// more is claimed.
const UNTOLD_AT_MOST: usize = 1000;

/// The longest pause before an outcome is told again in a stop, which waits ten seconds for it.
const LAST_PAUSE: Duration = Duration::from_millis(200);

struct Waiting {
    claimed: Claimed,
    cancellation: Cancellation,
    since: Instant,
}

struct Started {
    attempt: Arc<Claimed>,
    at: Instant,
}

pub(crate) struct Dispatch<S> {
    setup: Arc<Setup<S>>,
    held: Arc<Held>,
    events: Events,
    shutdown: Shutdown,
    health: Health,
    phase: watch::Receiver<Phase>,
    deadlines: Option<Deadlines>,
    waiting: VecDeque<Waiting>,
    running: JoinSet<Verdict>,
    started: HashMap<Id, Started>,
    outbox: Vec<Settled>,
    /// Outcomes that the server had no time for, and when they are told again.
    later: Vec<Settled>,
    later_at: Instant,
    /// Nothing is sent before.
    silent_until: Instant,
    /// No claim is sent before.
    no_claim_until: Instant,
    line: Line,
    notices: Notices,
    /// The connection is gone: the next exchange comes soon, also when there is no room.
    cut: bool,
    /// An attempt ended since the claim in the line was sent: it may have queued what the claim
    /// could not see.
    stirred: bool,
    pace: Pace,
    summary: Summary,
}

impl<S: Send + Sync + 'static> Dispatch<S> {
    pub(crate) fn new(setup: Arc<Setup<S>>, held: Arc<Held>, link: Link) -> Self {
        let now = Instant::now();
        let pace = Pace::new(setup.concurrency, setup.prefetch, setup.poll_interval, now);
        Dispatch {
            held,
            events: link.events.clone(),
            phase: link.shutdown.subscribe(),
            shutdown: link.shutdown.clone(),
            health: link.health.clone(),
            deadlines: None,
            waiting: VecDeque::new(),
            running: JoinSet::new(),
            started: HashMap::new(),
            outbox: Vec::new(),
            later: Vec::new(),
            later_at: now,
            silent_until: now,
            no_claim_until: now,
            line: Line::new(link),
            notices: Notices::none(),
            cut: false,
            stirred: false,
            pace,
            summary: Summary::default(),
            setup,
        }
    }

    pub(crate) async fn run(mut self) -> Result<Summary> {
        if self.shutdown.phase() != Phase::Running {
            self.stop_further();
        }
        loop {
            self.health.turned(Part::Claim);
            self.start_waiting();
            self.begin_exchange();
            if self.is_over() {
                return Ok(self.conclude());
            }
            let wake = self.wake_at();
            tokio::select! {
                biased;
                Ok(()) = self.phase.changed() => self.stop_further(),
                reply = self.line.answer() => self.take_reply(reply?),
                Some(ended) = self.running.join_next_with_id() => self.take_ended(ended),
                notice = self.notices.next() => self.take_notice(notice),
                () = tokio::time::sleep_until(wake.into()) => self.on_time(),
            }
        }
    }

    /// Starts waiting jobs while there are free places.
    fn start_waiting(&mut self) {
        while self.running.len() < self.setup.concurrency {
            let Some(Waiting {
                claimed,
                cancellation,
                ..
            }) = self.waiting.pop_front()
            else {
                return;
            };
            let Some(handler) = self.setup.handlers.get(&claimed.task) else {
                // The claim's filter names only tasks that have a handler.
                let error = format!("this worker has no handler for task \"{}\"", claimed.task);
                self.settle(&claimed, Verdict::Fail(Failure::new(error)));
                continue;
            };
            if let (_, Some(malformed)) = trace::received(claimed.trace.as_ref()) {
                self.events.tell(Event::TraceDropped {
                    job_id: claimed.job_id,
                    error: malformed.to_string(),
                });
            }
            // The machine may have slept since the claim: another worker has it then.
            if !self
                .held
                .begin(claimed.job_id, claimed.token, Moment::now())
            {
                self.settle(&claimed, Verdict::Release(None));
                continue;
            }
            let state = Arc::clone(&self.setup.state);
            let (input, ctx) = Context::new(claimed, cancellation, state, Arc::clone(&self.held));
            let claimed = ctx.claimed();
            let patience = self.setup.cancel_patience;
            let task = self.running.spawn(attempt(handler, input, ctx, patience));
            self.started.insert(
                task.id(),
                Started {
                    attempt: claimed,
                    at: Instant::now(),
                },
            );
        }
    }

    /// Sends the outbox, and claims when it is time and there is room.
    fn begin_exchange(&mut self) {
        let now = Instant::now();
        if !self.line.is_idle() || now < self.silent_until {
            return;
        }
        // What is new has its turn in the pause that follows.
        if !self.later.is_empty() && now >= self.later_at {
            self.line.begin(std::mem::take(&mut self.later), 0, 0);
            return;
        }
        let due = now >= self.pace.next_claim() || !self.outbox.is_empty();
        let due = due && now >= self.no_claim_until;
        let full = self.later.len() >= UNTOLD_AT_MOST.max(2 * self.setup.concurrency);
        let claims = due && !full && self.shutdown.phase() == Phase::Running;
        let want = if claims {
            self.pace.room(self.running.len(), self.waiting.len())
        } else {
            0
        };
        if self.outbox.is_empty() && want == 0 && !self.cut {
            return;
        }
        self.cut = false;
        if want > 0 {
            self.pace.claims(!self.outbox.is_empty());
        }
        self.stirred = false;
        let in_hand = self.running.len() + self.waiting.len();
        let places = self.setup.concurrency.saturating_sub(in_hand);
        self.line
            .begin(std::mem::take(&mut self.outbox), want, places);
    }

    fn take_notice(&mut self, notice: Notice) {
        let now = Instant::now();
        match notice {
            Notice::Work => self.pace.notified(now),
            // The next exchange opens another one, which hears what is sent from then on.
            Notice::Gone => {
                self.health.troubled(Part::Claim, "the connection is lost");
                self.cut = true;
                self.pace.summon(now);
            }
        }
    }

    fn take_reply(&mut self, reply: Reply) {
        let now = Instant::now();
        if let Some(notices) = reply.notices {
            self.notices = notices;
            self.pace.connected();
        }
        self.outbox.splice(0..0, reply.untold);
        if let Some(pause) = reply.silent_for {
            self.silent_until = now + pause;
            self.cut = true;
            self.pace.summon(self.silent_until);
        }
        if !reply.later.is_empty() {
            // The pause is what others have the line for; what waits already is not put off by what
            // is added.
            let pause = match self.shutdown.phase() {
                Phase::Running => reply.later_in,
                Phase::Draining | Phase::Releasing => reply.later_in.min(LAST_PAUSE),
            };
            let at = now.max(self.silent_until) + pause;
            self.later_at = match self.later.is_empty() {
                true => at,
                false => at.min(self.later_at),
            };
            self.later.extend(reply.later);
        }
        if let Some(pause) = reply.no_claim_for {
            self.no_claim_until = now + pause;
            self.pace.summon(self.no_claim_until);
        }
        for (job_id, token, answer) in reply.answers {
            self.held.remove(job_id, token);
            self.summary.count(answer);
        }
        if let Some(sent) = reply.sent {
            self.pace.claimed(reply.more, reply.claimed.len(), now);
            let empty = reply.claimed.is_empty() && !reply.more;
            if empty && self.setup.until_empty && self.is_quiet() {
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
            self.settle(&claimed, Verdict::Release(None));
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
                    // Caught where it runs, unless it comes from dropping what ran.
                    Ok(payload) => settle(Err(JobError::panicked(payload.as_ref())), None),
                    // Dropped by a stop.
                    Err(_) => Verdict::Release(None),
                };
                (id, verdict)
            }
        };
        if let Some(Started { attempt, at }) = self.started.remove(&id) {
            self.pace.ended(at.elapsed());
            self.settle(&attempt, verdict);
        }
    }

    fn settle(&mut self, attempt: &Claimed, verdict: Verdict) {
        let (job_id, token) = (attempt.job_id, attempt.token);
        self.stirred = true;
        match &verdict {
            Verdict::Recorded => {
                self.held.remove(job_id, token);
                self.summary.count(Answer::Completed);
                return;
            }
            Verdict::Fail(failure) => {
                self.events.tell(Event::Failed {
                    job_id,
                    attempt: attempt.attempt,
                    task: attempt.task.clone(),
                    error: failure.error.clone(),
                });
            }
            _ => {}
        }
        self.outbox.push(Settled::new(job_id, token, verdict));
    }

    /// The next phase of a stop has begun.
    fn stop_further(&mut self) {
        let now = Instant::now();
        // A stop waits for nothing that may come at once.
        (self.silent_until, self.later_at) = (now, now);
        while let Some(Waiting { claimed, .. }) = self.waiting.pop_front() {
            self.settle(&claimed, Verdict::Release(None));
        }
        let grace = match self.shutdown.phase() {
            Phase::Running => return,
            Phase::Draining => self.setup.grace,
            Phase::Releasing => Duration::ZERO,
        };
        if !self.running.is_empty() {
            let running = self.running.len();
            self.events.tell(Event::Stopping { running, grace });
        }
        self.deadlines = Some(Deadlines::new(now, grace));
        self.on_time();
    }

    /// A moment came: deadlines of a stop, and jobs fetched ahead in vain.
    fn on_time(&mut self) {
        let now = Instant::now();
        while self
            .waiting
            .front()
            .is_some_and(|w| w.since + PREFETCH_PATIENCE <= now)
        {
            if let Some(Waiting { claimed, .. }) = self.waiting.pop_front() {
                self.pace.stalled();
                self.settle(&claimed, Verdict::Release(None));
            }
        }
        let Some(Deadlines {
            ask, drop, leave, ..
        }) = self.deadlines
        else {
            return;
        };
        if now >= ask && !self.running.is_empty() {
            self.summary.stopped = Stopped::Released;
            self.held.fire_all(Reason::Shutdown);
        }
        if now >= drop {
            // Waited for: only when a handler is gone what it started is gone with it.
            self.running.abort_all();
        }
        if now >= leave && !self.started.is_empty() {
            // A handler that blocks its thread cannot be dropped; its job goes back all the same.
            self.running.detach_all();
            for (_, Started { attempt, .. }) in std::mem::take(&mut self.started) {
                self.settle(&attempt, Verdict::Release(None));
            }
        }
    }

    fn wake_at(&self) -> Instant {
        let now = Instant::now();
        let mut moments = vec![now + self.health.round()];
        if let Some(deadlines) = &self.deadlines {
            moments.extend(deadlines.next(now));
        } else if self.line.is_idle() && self.pace.room(self.running.len(), self.waiting.len()) > 0
        {
            let claim = self.pace.next_claim().max(self.no_claim_until);
            moments.push(claim.max(self.silent_until));
        }
        if self.line.is_idle() {
            // Whatever is there is sent then.
            moments.extend(Some(self.silent_until).filter(|at| *at > now));
            let later = (!self.later.is_empty()).then_some(self.later_at.max(self.silent_until));
            moments.extend(later);
        }
        moments.extend(
            self.waiting
                .front()
                .map(|waiting| waiting.since + PREFETCH_PATIENCE),
        );
        moments.into_iter().min().unwrap_or(now)
    }

    /// Nothing is in hand, and nothing was since the claim was sent.
    fn is_quiet(&self) -> bool {
        self.in_hand() == 0 && !self.stirred
    }

    fn in_hand(&self) -> usize {
        self.running.len() + self.waiting.len() + self.outbox.len() + self.later.len()
    }

    fn is_over(&mut self) -> bool {
        let Some(deadlines) = &mut self.deadlines else {
            return false;
        };
        if self.running.is_empty() {
            deadlines.handlers_ended(Instant::now());
        }
        let give_up = deadlines.give_up;
        let told = self.in_hand() == 0 && self.line.is_idle();
        told || Instant::now() >= give_up
    }

    fn conclude(mut self) -> Summary {
        self.summary.untold += self.line.telling() + (self.outbox.len() + self.later.len()) as u64;
        self.summary
    }
}
