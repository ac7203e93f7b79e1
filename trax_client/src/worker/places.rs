//! The places for running jobs, shared by the databases of one worker.
//!
//! Words: a *branch* is the part of a worker that claims from one database. Enters: what each
//! would start or claim. Leaves: how much of it it may. Holds: never more jobs run than there are
//! places; a place that is free goes to the branch with the fewest among those that have work, of
//! several to the one that has waited longest for its turn; a branch without work keeps none from
//! the others, nor does one whose server does not answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// How long places are kept for the answer to a claim: many round trips, and nothing beside the
/// time that a dead server takes.
const KEPT: Duration = Duration::from_millis(100);
/// How long a branch counts as hungry after it was refused a place; it asks again before.
pub(crate) const HUNGRY: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Branch {
    running: usize,
    /// Kept for what a claim may return, until then.
    kept: Option<(usize, Instant)>,
    /// It was refused a place, and counts as wanting one until then.
    hungry: Option<Instant>,
    /// Which start of a job, of all that this worker has counted, was its last.
    turn: u64,
    /// It has found its queue empty, and holds no job.
    empty: bool,
    /// It has ended; another may have its entry.
    ended: bool,
    freed: Arc<Notify>,
}

impl Branch {
    fn held(&self, now: Instant) -> usize {
        self.running + self.kept(now)
    }

    fn kept(&self, now: Instant) -> usize {
        let kept = self.kept.filter(|(_, until)| now < *until);
        kept.map_or(0, |(places, _)| places)
    }

    /// Returns whether a free place is for this branch rather than for the other.
    fn goes_before(&self, other: &Branch, now: Instant) -> bool {
        let is_hungry = self.hungry.is_some_and(|until| now < until);
        is_hungry && (self.held(now), self.turn) < (other.held(now), other.turn)
    }
}

struct Shared {
    total: usize,
    branches: Mutex<Vec<Branch>>,
}

/// The places of a worker.
pub(crate) struct AllPlaces(Arc<Shared>);

impl AllPlaces {
    pub(crate) fn new(total: usize) -> Self {
        AllPlaces(Arc::new(Shared {
            total,
            branches: Mutex::default(),
        }))
    }

    /// Returns the view of one more branch.
    pub(crate) fn branch(&self) -> Places {
        let mut branches = self.0.lock();
        let branch = Branch::default();
        let freed = Arc::clone(&branch.freed);
        let at = branches.iter().position(|branch| branch.ended);
        let at = at.unwrap_or(branches.len());
        match branches.get_mut(at) {
            Some(ended) => *ended = branch,
            None => branches.push(branch),
        }
        Places {
            branch: at,
            shared: Arc::clone(&self.0),
            freed,
        }
    }
}

/// One branch's view of the places.
pub(crate) struct Places {
    shared: Arc<Shared>,
    branch: usize,
    freed: Arc<Notify>,
}

impl Places {
    /// Returns how many jobs this branch may have running or kept for at most, those that it has
    /// included. None beyond them, while one that goes before wants some.
    pub(crate) fn most(&self, now: Instant) -> usize {
        let branches = self.shared.lock();
        let own = branches[self.branch].running;
        own + self.free(&branches, now)
    }

    /// How many more this branch may take.
    fn free(&self, branches: &[Branch], now: Instant) -> usize {
        let own = &branches[self.branch];
        if branches.iter().any(|other| other.goes_before(own, now)) {
            return own.kept(now);
        }
        self.left(branches, now) + own.kept(now)
    }

    /// How many places nobody has.
    fn left(&self, branches: &[Branch], now: Instant) -> usize {
        let held: usize = branches.iter().map(|branch| branch.held(now)).sum();
        self.shared.total.saturating_sub(held)
    }

    /// Keeps places for the answer to a claim of so many jobs, as far as there are any.
    pub(crate) fn keep(&self, jobs: usize, now: Instant) {
        let mut branches = self.shared.lock();
        let jobs = jobs.min(self.free(&branches, now));
        let branch = &mut branches[self.branch];
        branch.kept = Some((jobs, now + KEPT));
        if jobs > 0 {
            branch.hungry = None;
            self.offer_what_is_left(&branches, now);
        }
    }

    /// Gives back what was kept and not taken.
    pub(crate) fn answered(&self) {
        let mut branches = self.shared.lock();
        if branches[self.branch].kept.take().is_some() {
            self.offer(&branches);
        }
    }

    /// Takes a place for a job that begins; false when there is none for this branch now.
    pub(crate) fn take(&self, now: Instant) -> bool {
        let mut branches = self.shared.lock();
        if self.free(&branches, now) == 0 {
            branches[self.branch].hungry = Some(now + HUNGRY);
            return false;
        }
        let last = branches.iter().map(|branch| branch.turn).max();
        let branch = &mut branches[self.branch];
        branch.running += 1;
        branch.turn = last.unwrap_or_default() + 1;
        branch.hungry = None;
        if let Some((kept, _)) = &mut branch.kept {
            *kept = kept.saturating_sub(1);
        }
        self.offer_what_is_left(&branches, now);
        true
    }

    /// Gives back the place of a job that has ended.
    pub(crate) fn give_back(&self) {
        let mut branches = self.shared.lock();
        let running = &mut branches[self.branch].running;
        *running = running.saturating_sub(1);
        self.offer(&branches);
    }

    /// Notes that this branch would claim if it had a place.
    pub(crate) fn want(&self, now: Instant) {
        self.shared.lock()[self.branch].hungry = Some(now + HUNGRY);
    }

    /// Returns when a place may have become free that another branch held.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Notes whether this branch is at the end of its queue; returns whether all are.
    pub(crate) fn all_empty(&self, empty: bool) -> bool {
        let mut branches = self.shared.lock();
        branches[self.branch].empty = empty;
        branches.iter().all(|branch| branch.empty)
    }

    /// One that had to wait for this branch may go on now.
    fn offer_what_is_left(&self, branches: &[Branch], now: Instant) {
        if self.left(branches, now) > 0 {
            self.offer(branches);
        }
    }

    fn offer(&self, branches: &[Branch]) {
        for (at, branch) in branches.iter().enumerate() {
            if at != self.branch && branch.hungry.is_some() {
                branch.freed.notify_one();
            }
        }
    }
}

impl Drop for Places {
    /// A branch that has ended wants nothing, and is at the end of its queue.
    fn drop(&mut self) {
        let mut branches = self.shared.lock();
        let branch = &mut branches[self.branch];
        *branch = Branch {
            empty: true,
            ended: true,
            ..Branch::default()
        };
        self.offer(&branches);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<Branch>> {
        // No code panics under the lock.
        self.branches.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        one.keep(4, now);
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
        idle.keep(4, now);
        assert_eq!(busy.most(now), 0, "for the time of a round trip");
        idle.answered();
        assert_eq!(take(&busy, 9, now), 4);
        // And one whose server does not answer gives up what it keeps.
        busy.give_back();
        idle.keep(4, now);
        assert!(!busy.take(now));
        assert!(busy.take(now + KEPT));
    }

    #[test]
    fn what_is_free_goes_to_whom_has_fewest_and_wants_some() {
        let now = Instant::now();
        let all = AllPlaces::new(4);
        let (first, second) = (all.branch(), all.branch());
        assert_eq!(take(&first, 4, now), 4);
        assert!(!second.take(now), "it is hungry now");
        for _ in 0..2 {
            first.give_back();
            assert!(!first.take(now));
            assert!(second.take(now));
            second.want(now);
        }
        // Two each: the first may have its own again.
        first.give_back();
        assert!(first.take(now));
        // Who wants nothing any more leaves all.
        second.give_back();
        assert!(first.take(now + HUNGRY));
        drop(second);
        assert!(first.take(now + HUNGRY));
        assert!(!first.take(now + HUNGRY));
    }

    /// Runs jobs of branches that always have some; returns how many each has begun. Whoever ends
    /// one is the first to ask for the place.
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
        second.keep(9, now);
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
        tokio::time::timeout(Duration::from_secs(60), second.freed())
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
        tokio::time::timeout(Duration::from_secs(60), first.freed())
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
        assert!(first.all_empty(true));
        // One that begins again is not.
        let again = all.branch();
        assert!(!first.all_empty(true));
        assert_eq!(again.branch, 1);
    }
}
