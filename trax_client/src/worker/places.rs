//! The places for running jobs, shared by the databases of a worker, and the detection of empty
//! queues.
//!
//! A *branch* is the part of a worker that claims from one database. Input: the jobs that each
//! branch would start or claim. Output: how many of them it may. Invariants: no more jobs run than
//! there are places. A free place goes to the branch that holds the fewest among those that have
//! work, and among equals to the one whose last turn is the longest ago. A branch without work
//! reserves no place, nor does one whose server does not answer.
//!
//! A queue counts as empty if its branch holds no job and its last claim found none and was sent
//! after the end of every attempt at every database, as a handler may queue jobs at another
//! database.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// How long places are reserved for the answer to a claim: many round trips, but short compared
/// with the time to detect a dead server.
const KEPT: Duration = Duration::from_millis(100);
/// How long a branch that was refused a place counts as wanting one; it asks again sooner.
pub(crate) const WANTS_FOR: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Branch {
    running: usize,
    /// The number of places reserved for the answer to a claim, and until when.
    kept: Option<(usize, Instant)>,
    /// Until when the branch counts as wanting a place, since it was refused one.
    wants_until: Option<Instant>,
    /// The sequence number of the branch's last job start, counted over the whole worker.
    turn: u64,
    /// The number of ended attempts at all databases when the branch's last claim was sent.
    claim_sent: u64,
    /// The last claim found nothing, and the branch holds no job.
    empty: bool,
    /// The branch must claim again, as its last claim is outdated.
    look_again: bool,
    /// The branch has ended, and its entry may be reused.
    ended: bool,
    bell: Arc<Notify>,
}

impl Branch {
    fn held(&self, now: Instant) -> usize {
        self.running + self.kept(now)
    }

    fn kept(&self, now: Instant) -> usize {
        let kept = self.kept.filter(|(_, until)| now < *until);
        kept.map_or(0, |(places, _)| places)
    }

    /// Returns whether a free place belongs to this branch rather than to the other.
    fn goes_before(&self, other: &Branch, now: Instant) -> bool {
        let wants_place = self.wants_until.is_some_and(|until| now < until);
        wants_place && (self.held(now), self.turn) < (other.held(now), other.turn)
    }
}

/// The state of all branches.
struct State {
    total: usize,
    branches: Vec<Branch>,
    /// The number of ended attempts.
    ends: u64,
}

impl State {
    /// Returns how many more places a branch may take.
    fn free(&self, at: usize, now: Instant) -> usize {
        let own = &self.branches[at];
        let mut others = self.branches.iter();
        match others.any(|other| other.goes_before(own, now)) {
            true => own.kept(now),
            false => self.left(now) + own.kept(now),
        }
    }

    /// Returns the number of places that no branch holds.
    fn left(&self, now: Instant) -> usize {
        let held: usize = self.branches.iter().map(|branch| branch.held(now)).sum();
        self.total.saturating_sub(held)
    }

    /// Notifies the branches that want the places this branch released.
    fn offer(&self, from: usize) {
        for (at, branch) in self.branches.iter().enumerate() {
            if at != from && branch.wants_until.is_some() {
                branch.bell.notify_one();
            }
        }
    }

    /// Notifies the branches that waited for this branch to go first, if places remain.
    fn offer_remaining(&self, from: usize, now: Instant) {
        if self.left(now) > 0 {
            self.offer(from);
        }
    }

    /// Makes each branch claim again whose queue was found empty before the end of the last
    /// attempt.
    fn look_again(&mut self) {
        for branch in &mut self.branches {
            if branch.empty && branch.claim_sent < self.ends {
                branch.look_again = true;
                branch.bell.notify_one();
            }
        }
    }
}

/// The places of a worker.
pub(crate) struct AllPlaces(Arc<Mutex<State>>);

impl AllPlaces {
    pub(crate) fn new(total: usize) -> Self {
        AllPlaces(Arc::new(Mutex::new(State {
            total,
            branches: Vec::new(),
            ends: 0,
        })))
    }

    /// Adds a branch and returns its view.
    pub(crate) fn branch(&self) -> Places {
        let mut state = lock(&self.0);
        let branch = Branch::default();
        let bell = Arc::clone(&branch.bell);
        let at = state.branches.iter().position(|branch| branch.ended);
        let at = at.unwrap_or(state.branches.len());
        match state.branches.get_mut(at) {
            Some(ended) => *ended = branch,
            None => state.branches.push(branch),
        }
        Places {
            state: Arc::clone(&self.0),
            at,
            bell,
        }
    }
}

/// A branch's view of the places.
pub(crate) struct Places {
    state: Arc<Mutex<State>>,
    at: usize,
    bell: Arc<Notify>,
}

impl Places {
    /// Returns the maximum number of jobs that this branch may run or reserve places for, including
    /// its current ones. No more than the current ones while a branch with precedence wants a
    /// place.
    pub(crate) fn most(&self, now: Instant) -> usize {
        let state = self.lock();
        state.branches[self.at].running + state.free(self.at, now)
    }

    /// Records that a claim of `jobs` jobs is sent, and reserves up to as many free places for its
    /// answer. Returns how many are reserved.
    pub(crate) fn claim_sent(&self, jobs: usize, now: Instant) -> usize {
        let mut state = self.lock();
        let jobs = jobs.min(state.free(self.at, now));
        let ends = state.ends;
        let branch = &mut state.branches[self.at];
        (branch.claim_sent, branch.empty) = (ends, false);
        branch.kept = Some((jobs, now + KEPT));
        if jobs > 0 {
            branch.wants_until = None;
            state.offer_remaining(self.at, now);
        }
        jobs
    }

    /// Releases reserved places that were not taken.
    pub(crate) fn answered(&self) {
        let mut state = self.lock();
        if state.branches[self.at].kept.take().is_some() {
            state.offer(self.at);
        }
    }

    /// Takes a place for a job that begins. Returns false if none is available to this branch now.
    pub(crate) fn take(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let is_free = state.free(self.at, now) > 0;
        let last = state.branches.iter().map(|branch| branch.turn).max();
        let branch = &mut state.branches[self.at];
        if !is_free {
            branch.wants_until = Some(now + WANTS_FOR);
            return false;
        }
        branch.running += 1;
        branch.turn = last.unwrap_or_default() + 1;
        branch.wants_until = None;
        if let Some((kept, _)) = &mut branch.kept {
            *kept = kept.saturating_sub(1);
        }
        state.offer_remaining(self.at, now);
        true
    }

    /// Releases the place of a job that has ended.
    pub(crate) fn give_back(&self) {
        let mut state = self.lock();
        let running = &mut state.branches[self.at].running;
        *running = running.saturating_sub(1);
        state.offer(self.at);
    }

    /// Records that this branch would claim if it had a place.
    pub(crate) fn want(&self, now: Instant) {
        self.lock().branches[self.at].wants_until = Some(now + WANTS_FOR);
    }

    /// Records that an attempt has ended. Claims sent earlier cannot have seen jobs that it queued.
    pub(crate) fn attempt_ended(&self) {
        self.lock().ends += 1;
    }

    /// Records whether the last claim found nothing and this branch holds no job. Returns whether
    /// all queues are empty.
    pub(crate) fn all_empty(&self, empty: bool) -> bool {
        let mut state = self.lock();
        state.branches[self.at].empty = empty;
        if empty {
            state.look_again();
        }
        let ends = state.ends;
        let mut branches = state.branches.iter().filter(|branch| !branch.ended);
        branches.all(|branch| branch.empty && branch.claim_sent == ends)
    }

    /// Completes when another branch may have released a place, or this branch may have to claim
    /// again.
    pub(crate) async fn called(&self) {
        self.bell.notified().await;
    }

    /// Returns whether this branch must claim again, as its queue may no longer be empty.
    pub(crate) fn must_claim_again(&self) -> bool {
        std::mem::take(&mut self.lock().branches[self.at].look_again)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Places {
    /// Removes the branch: it wants no place, and its queue no longer counts.
    fn drop(&mut self) {
        let mut state = self.lock();
        state.branches[self.at] = Branch {
            ended: true,
            ..Branch::default()
        };
        // The branch may have queued jobs elsewhere, and other branches may have waited for it.
        state.ends += 1;
        state.look_again();
        state.offer(self.at);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // No code panics under the lock.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(places: &Places, jobs: usize, now: Instant) -> usize {
        (0..jobs).take_while(|_| places.take(now)).count()
    }

    #[test]
    fn one_branch_has_all_places() {
        let now = Instant::now();
        let one = AllPlaces::new(4).branch();
        assert_eq!(one.most(now), 4);
        one.claim_sent(4, now);
        assert_eq!(
            (one.most(now), take(&one, 9, now), one.most(now)),
            (4, 4, 4)
        );
        one.give_back();
        assert!(one.take(now));
    }

    #[test]
    fn an_idle_branch_keeps_nothing_from_the_other() {
        let now = Instant::now();
        let all = AllPlaces::new(4);
        let (busy, idle) = (all.branch(), all.branch());
        assert_eq!(idle.most(now), 4);
        idle.claim_sent(4, now);
        assert_eq!(busy.most(now), 0, "for the time of a round trip");
        idle.answered();
        assert_eq!(take(&busy, 9, now), 4);
        // A branch whose server does not answer loses its reserved places.
        busy.give_back();
        idle.claim_sent(4, now);
        assert!(!busy.take(now));
        assert!(busy.take(now + KEPT));
    }

    #[test]
    fn what_is_free_goes_to_whom_has_fewest_and_wants_some() {
        let now = Instant::now();
        let all = AllPlaces::new(4);
        let (first, second) = (all.branch(), all.branch());
        assert_eq!(take(&first, 4, now), 4);
        assert!(!second.take(now), "it wants a place now");
        for _ in 0..2 {
            first.give_back();
            assert!(!first.take(now));
            assert!(second.take(now));
            second.want(now);
        }
        // Each branch holds two, so the first may take its own place again.
        first.give_back();
        assert!(first.take(now));
        // A branch that wants nothing leaves all places to the other.
        second.give_back();
        assert!(first.take(now + WANTS_FOR));
        drop(second);
        assert!(first.take(now + WANTS_FOR));
        assert!(!first.take(now + WANTS_FOR));
    }

    /// Runs jobs of branches that always have work, and returns how many each has begun. The branch
    /// whose job ended is the first to ask for the place.
    fn shares(places: usize, branches: usize, jobs: usize) -> Vec<usize> {
        let now = Instant::now();
        let all = AllPlaces::new(places);
        let branches: Vec<Places> = (0..branches).map(|_| all.branch()).collect();
        let mut begun = vec![0; branches.len()];
        let mut running = std::collections::VecDeque::new();
        while begun.iter().sum::<usize>() < jobs {
            let ended = running
                .pop_front()
                .inspect(|at: &usize| branches[*at].give_back());
            for at in ended.into_iter().chain(0..branches.len()) {
                while branches[at].take(now) {
                    begun[at] += 1;
                    running.push_back(at);
                }
            }
        }
        begun
    }

    #[test]
    fn with_fewer_places_than_branches_each_has_its_turn() {
        for (places, branches) in [(1, 2), (1, 3), (4, 5), (3, 2), (4, 3)] {
            let begun = shares(places, branches, 300);
            let (least, most) = (begun.iter().min(), begun.iter().max());
            let apart = most.zip(least).map(|(most, least)| most - least);
            assert!(apart <= Some(places), "{places}: {begun:?}");
        }
    }

    #[test]
    fn one_that_fetches_ahead_still_wants_a_place() {
        let now = Instant::now();
        let all = AllPlaces::new(1);
        let (first, second) = (all.branch(), all.branch());
        assert!(first.take(now) && !second.take(now));
        second.claim_sent(9, now);
        first.give_back();
        assert!(!first.take(now), "the second has waited");
        assert!(second.take(now));
    }

    #[tokio::test]
    async fn whoever_wants_a_place_hears_that_one_is_free() {
        let now = Instant::now();
        let all = AllPlaces::new(1);
        let (first, second) = (all.branch(), all.branch());
        assert!(first.take(now) && !second.take(now));
        first.give_back();
        tokio::time::timeout(Duration::from_secs(60), second.called())
            .await
            .expect("it is told");
        assert!(second.take(now));
    }

    #[tokio::test]
    async fn whoever_let_another_go_first_hears_that_it_has_gone() {
        let now = Instant::now();
        let all = AllPlaces::new(2);
        let (first, second) = (all.branch(), all.branch());
        assert_eq!((take(&first, 2, now), take(&second, 1, now)), (2, 0));
        first.give_back();
        first.give_back();
        assert!(!first.take(now) && second.take(now));
        tokio::time::timeout(Duration::from_secs(60), first.called())
            .await
            .expect("it is told");
        assert!(first.take(now));
    }

    #[test]
    fn all_are_empty_when_each_is() {
        let all = AllPlaces::new(1);
        let (first, second) = (all.branch(), all.branch());
        assert!(!first.all_empty(true));
        assert!(second.all_empty(true));
        assert!(!second.all_empty(false));
        drop(second);
        first.claim_sent(1, Instant::now());
        assert!(first.all_empty(true));
        // A branch that begins again is not empty.
        let again = all.branch();
        assert!(!first.all_empty(true));
        assert_eq!(again.at, 1);
    }

    #[tokio::test]
    async fn a_queue_was_empty_only_if_no_attempt_has_ended_since() {
        let now = Instant::now();
        let all = AllPlaces::new(2);
        let (first, second) = (all.branch(), all.branch());
        first.claim_sent(1, now);
        assert!(!first.all_empty(true));
        // The second branch runs a job, which may queue one for the first.
        second.claim_sent(1, now);
        assert!(!second.all_empty(false) && !second.must_claim_again());
        second.attempt_ended();
        second.claim_sent(1, now);
        assert!(!second.all_empty(true), "the first has not looked since");
        tokio::time::timeout(Duration::from_secs(60), first.called())
            .await
            .expect("it is told");
        assert!(first.must_claim_again() && !first.must_claim_again());
        first.claim_sent(1, now);
        assert!(!second.all_empty(true), "the first waits for an answer");
        assert!(first.all_empty(true));
        // A claim sent before the end of the branch's own attempt does not count either.
        first.claim_sent(1, now);
        first.attempt_ended();
        assert!(!first.all_empty(true));
    }
}
