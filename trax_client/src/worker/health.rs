//! The liveness and readiness of a worker, for probes and supervisors.
//!
//! A worker is *live* while each of its loops (claims, heartbeats) iterates at least once per stall
//! limit. A live worker is *ready* if it has reached the database, no call has been failing or
//! unanswered for that long, and no stop has begun. Input: iterations of the loops, successes and
//! failures of calls. Output: ready or live, or one line with the reason why not.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::event::brief;
use super::shutdown::{Phase, Shutdown};

/// The health of a worker, available on any thread, even while the worker's runtime is blocked.
///
/// [`Worker::health_address`](super::Worker::health_address) serves it as `/livez` and `/readyz`.
#[derive(Clone, Debug)]
pub struct Health(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    facts: Mutex<Facts>,
    /// The health of each branch of a worker of several databases; `None` for a single database.
    branches: Mutex<Option<Vec<Health>>>,
    shutdown: Shutdown,
    changed: Arc<Notify>,
}

/// The parts of a worker that call the database.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    Claim,
    Heartbeat,
}

#[derive(Debug)]
struct Facts {
    stage: Stage,
    stall_limit: Duration,
    claim: Round,
    heartbeat: Round,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    NotStarted,
    Running,
    Ended,
}

/// A loop and its connection.
#[derive(Debug)]
struct Round {
    /// When the loop last iterated.
    at: Instant,
    /// When the unanswered call began.
    asking: Option<Instant>,
    /// The error of the last call, if it failed.
    trouble: Option<String>,
}

impl Round {
    fn new(trouble: Option<String>) -> Self {
        Round {
            at: Instant::now(),
            asking: None,
            trouble,
        }
    }
}

impl Health {
    pub(crate) fn new(shutdown: Shutdown) -> Self {
        Health(Arc::new(Shared {
            facts: Mutex::new(Facts {
                stage: Stage::NotStarted,
                stall_limit: Duration::ZERO,
                claim: Round::new(None),
                heartbeat: Round::new(None),
            }),
            branches: Mutex::default(),
            shutdown,
            changed: Arc::default(),
        }))
    }

    /// Makes the health of this worker that of its branches, of which there are none yet.
    pub(crate) fn has_branches(&self) {
        self.lock_branches().get_or_insert_default();
    }

    /// Returns the health of a new branch, for one of several databases.
    pub(crate) fn branch(&self) -> Self {
        let mut branch = Self::new(self.0.shutdown.clone());
        if let Some(shared) = Arc::get_mut(&mut branch.0) {
            shared.changed = Arc::clone(&self.0.changed);
        }
        let mut branches = self.lock_branches();
        let branches = branches.get_or_insert_default();
        branches.retain(|branch| branch.facts().stage != Stage::Ended);
        branches.push(branch.clone());
        branch
    }

    /// Returns the branches that have not ended.
    fn branches(&self) -> Option<Vec<Health>> {
        let mut branches = self.lock_branches();
        let branches = branches.as_mut()?;
        branches.retain(|branch| branch.facts().stage != Stage::Ended);
        Some(branches.clone())
    }

    fn lock_branches(&self) -> MutexGuard<'_, Option<Vec<Health>>> {
        // No code panics under the lock.
        self.0
            .branches
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the worker's loops run. A worker whose loops stall claims and reports
    /// nothing and must be restarted.
    ///
    /// # Errors
    /// A line that names the stalled loop, or states that the worker has ended.
    pub fn live(&self) -> Result<(), String> {
        let Some(branches) = self.branches() else {
            return self.facts().live(Instant::now());
        };
        self.facts().has_not_ended()?;
        branches.iter().try_for_each(Health::live)
    }

    /// Returns whether the worker takes jobs from its database, or from at least one of several.
    ///
    /// # Errors
    /// A line with the reason why the worker is not ready.
    pub fn ready(&self) -> Result<(), String> {
        self.live()?;
        if self.facts().stage == Stage::Running && self.0.shutdown.phase() != Phase::Running {
            return Err("stopping: no more jobs are claimed".to_owned());
        }
        let Some(branches) = self.branches() else {
            return self.facts().ready(Instant::now());
        };
        let answers = || branches.iter().map(Health::ready);
        let best = answers().find(Result::is_ok).or_else(|| answers().next());
        best.unwrap_or_else(|| Err("no database is known yet".to_owned()))
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        // No code panics under the lock.
        self.0.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the worker as running until the returned guard is dropped.
    pub(crate) fn begin(&self, stall_limit: Duration) -> Running {
        let mut facts = self.facts();
        facts.stage = Stage::Running;
        facts.stall_limit = stall_limit;
        facts.claim = Round::new(Some("the database has not been reached yet".to_owned()));
        facts.heartbeat = Round::new(None);
        Running(self.clone())
    }

    /// Returns how often each loop must iterate in order not to count as stalled.
    pub(crate) fn round(&self) -> Duration {
        self.facts().stall_limit / 4
    }

    pub(crate) fn iterated(&self, part: Part) {
        self.facts().of(part).at = Instant::now();
    }

    /// Records that a call begins.
    pub(crate) fn asking(&self, part: Part) {
        self.facts().of(part).asking = Some(Instant::now());
    }

    /// Records that a call was answered.
    pub(crate) fn reached(&self, part: Part) {
        let mut facts = self.facts();
        let round = facts.of(part);
        round.asking = None;
        if round.trouble.take().is_some() {
            self.0.changed.notify_one();
        }
    }

    /// Records that a call failed.
    pub(crate) fn troubled(&self, part: Part, error: &str) {
        let mut facts = self.facts();
        let round = facts.of(part);
        round.asking = None;
        let trouble = Some(brief(error));
        if round.trouble != trouble {
            round.trouble = trouble;
            self.0.changed.notify_one();
        }
    }

    /// Completes when the results may have changed for a reason other than elapsed time.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }
}

/// Marks a worker as running. Dropping it marks the worker as ended.
pub(crate) struct Running(Health);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.facts().stage = Stage::Ended;
        self.0.0.changed.notify_one();
    }
}

impl Facts {
    fn of(&mut self, part: Part) -> &mut Round {
        match part {
            Part::Claim => &mut self.claim,
            Part::Heartbeat => &mut self.heartbeat,
        }
    }

    fn has_not_ended(&self) -> Result<(), String> {
        match self.stage {
            Stage::NotStarted | Stage::Running => Ok(()),
            Stage::Ended => Err("the worker has ended".to_owned()),
        }
    }

    fn live(&self, now: Instant) -> Result<(), String> {
        self.has_not_ended()?;
        if self.stage == Stage::NotStarted {
            return Ok(());
        }
        for (what, round) in [("claim", &self.claim), ("heartbeat", &self.heartbeat)] {
            let stalled = now.saturating_duration_since(round.at);
            if stalled > self.stall_limit {
                return Err(format!(
                    "the {what} loop has stalled for {:.1} s",
                    stalled.as_secs_f64()
                ));
            }
        }
        Ok(())
    }

    fn ready(&self, now: Instant) -> Result<(), String> {
        if self.stage == Stage::NotStarted {
            return Err("the worker has not started".to_owned());
        }
        for (what, round) in [("claim", &self.claim), ("heartbeat", &self.heartbeat)] {
            if let Some(trouble) = &round.trouble {
                return Err(format!("{what}: {trouble}"));
            }
            let silence = round.asking.map(|at| now.saturating_duration_since(at));
            if let Some(silence) = silence.filter(|silence| *silence > self.stall_limit) {
                return Err(format!(
                    "{what}: the database has not answered for {:.1} s",
                    silence.as_secs_f64()
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn running() -> (Health, Shutdown, Running) {
        let shutdown = Shutdown::new();
        let health = Health::new(shutdown.clone());
        let running = health.begin(LIMIT);
        (health, shutdown, running)
    }

    fn why_not(answer: Result<(), String>) -> String {
        answer.err().unwrap_or_default()
    }

    #[test]
    fn a_worker_is_ready_from_its_first_contact_to_its_stop() {
        let (health, shutdown, running) = running();
        assert!(health.live().is_ok());
        assert!(why_not(health.ready()).contains("not been reached yet"));
        health.reached(Part::Claim);
        assert_eq!(health.ready(), Ok(()));
        health.troubled(Part::Heartbeat, "cut");
        assert_eq!(why_not(health.ready()), "heartbeat: cut");
        health.reached(Part::Heartbeat);
        shutdown.drain();
        assert!(why_not(health.ready()).starts_with("stopping"));
        assert!(health.live().is_ok(), "it drains");
        drop(running);
        assert_eq!(why_not(health.live()), "the worker has ended");
    }

    #[test]
    fn of_several_databases_one_makes_a_worker_ready() {
        let (health, _, _running) = running();
        health.has_branches();
        let later = health.facts().claim.at + 2 * LIMIT;
        assert!(
            health.facts().live(later).is_err(),
            "its own loops do not run"
        );
        assert_eq!(health.live(), Ok(()));
        assert_eq!(why_not(health.ready()), "no database is known yet");
        let branches = [health.branch(), health.branch()];
        let refused = health.branch();
        drop(refused.begin(LIMIT));
        assert_eq!(health.live(), Ok(()), "one has ended, the others work");
        let _branches = branches.each_ref().map(|branch| branch.begin(LIMIT));
        assert!(why_not(health.ready()).contains("not been reached yet"));
        branches[1].reached(Part::Claim);
        assert_eq!(health.ready(), Ok(()));
        branches[1].troubled(Part::Claim, "cut");
        assert!(health.ready().is_err());
        assert!(health.live().is_ok());
    }

    #[test]
    fn a_loop_that_stands_still_for_longer_than_the_limit_is_named() {
        let (health, _, _running) = running();
        let facts = health.facts();
        let later = facts.claim.at + LIMIT;
        assert_eq!(facts.live(later), Ok(()));
        let said = why_not(facts.live(later + Duration::from_secs(1)));
        assert_eq!(said, "the claim loop has stalled for 11.0 s");
    }

    #[test]
    fn a_call_without_an_answer_makes_it_unready_and_not_dead() {
        let (health, _, _running) = running();
        health.reached(Part::Claim);
        health.asking(Part::Claim);
        assert_eq!(health.ready(), Ok(()));
        let facts = health.facts();
        let later = Instant::now() + 2 * LIMIT;
        let said = why_not(facts.ready(later));
        assert!(
            said.starts_with("claim: the database has not answered for 20."),
            "{said}"
        );
    }
}
