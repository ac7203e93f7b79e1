//! The actions of the model and their effects.

use super::{Fence, Held, Job, Location, MAX_RETRIES, Model, Outcome, State, Transaction, bit};

/// A step of the model; the number is the session's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Action {
    ClaimNext(usize),
    Heartbeat(usize),
    Complete(usize),
    Fail(usize),
    Release(usize),
    FreeKeys(usize),
    ReapExpiredLeases,
    Repair,
    ConfigureGroup,
    /// The last session is the cycle.
    Commit(usize),
    Kill(usize),
    LeaseExpires(usize),
}

impl Model {
    pub(super) fn first(&self) -> State {
        let job = Job {
            place: Location::Queue {
                attempts: 0,
                blocked: false,
            },
            completed: 0,
            failed: 0,
            ends: 0,
            completed_as: 0,
        };
        State {
            jobs: vec![job; self.jobs],
            believes: vec![None; self.workers],
            open: vec![None; self.workers + 1],
            limit: self.limit,
            resized: 0,
            next_token: 1,
            kills: self.kills,
            expiries: self.expiries,
            failures: self.failures,
            releases: self.releases,
            over_limit: false,
            over_key: false,
            usurped: false,
            refused: false,
        }
    }

    /// All actions; `step` decides which are possible.
    pub(super) fn all_actions(&self) -> Vec<Action> {
        let mut all = vec![
            Action::ReapExpiredLeases,
            Action::Repair,
            Action::ConfigureGroup,
            Action::Commit(self.workers),
        ];
        for worker in 0..self.workers {
            all.extend([
                Action::ClaimNext(worker),
                Action::Heartbeat(worker),
                Action::Complete(worker),
                Action::Fail(worker),
                Action::Release(worker),
                Action::FreeKeys(worker),
                Action::Commit(worker),
                Action::Kill(worker),
            ]);
        }
        all.extend((0..self.jobs).map(Action::LeaseExpires));
        all
    }

    /// Returns the state after an action; `None` if it is not possible, has to wait, or changes
    /// nothing.
    pub(super) fn step(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::ClaimNext(worker) => self.claim_next(&mut state, worker)?,
            Action::Heartbeat(worker) => heartbeat(&mut state, worker)?,
            Action::Complete(worker) => self.end(&mut state, worker, Outcome::Completed)?,
            Action::Fail(worker) => {
                state.failures = state.failures.checked_sub(1)?;
                self.end(&mut state, worker, Outcome::Failed)?;
            }
            Action::Release(worker) => {
                state.releases = state.releases.checked_sub(1)?;
                self.end(&mut state, worker, Outcome::Released)?;
            }
            Action::FreeKeys(worker) => self.free_keys(&mut state, worker)?,
            Action::ReapExpiredLeases => self.reap_expired_leases(&mut state)?,
            Action::Repair => self.repair(&mut state)?,
            Action::ConfigureGroup => self.configure_group(&mut state)?,
            Action::Commit(session) => self.commit(&mut state, session)?,
            Action::Kill(worker) => kill(&mut state, worker)?,
            Action::LeaseExpires(job) => lease_expires(&mut state, job)?,
        }
        Some(state)
    }

    /// Takes the locks of the group and the key, skipping them if others hold them, counts
    /// committed leases, and takes the first row with room. Rows behind the key leave their lane.
    fn claim_next(&self, state: &mut State, worker: usize) -> Option<()> {
        if state.open[worker].is_some() || state.believes[worker].is_some() {
            return None;
        }
        let limited = state.limit > 0;
        let exclusive = limited && self.rules.group_lock;
        if exclusive && state.group_is_locked() || limited && state.leases() >= state.limit {
            return None;
        }
        // Shared without a limit: other claims run beside it, and a change of the limit waits.
        let mut claim = Transaction {
            group_lock: true,
            ..Transaction::default()
        };
        for (number, job) in state.jobs.iter().enumerate() {
            if !matches!(job.place, Location::Queue { blocked: false, .. })
                || state.is_locked(number, None)
                || self.keyed && state.key_is_locked(None)
            {
                continue;
            }
            claim.key_lock = self.keyed;
            if self.keyed && state.leases() >= 1 {
                if self.rules.sees_ends && state.a_lease_is_ending() {
                    continue;
                }
                claim.blocked |= bit(number);
            } else {
                claim.granted = bit(number);
                break;
            }
        }
        if claim.granted | claim.blocked == 0 {
            return None;
        }
        state.open[worker] = Some(claim);
        Some(())
    }

    /// Deletes the lease if the fence accepts the session; otherwise the session learns that its
    /// lease is lost.
    fn end(&self, state: &mut State, worker: usize, outcome: Outcome) -> Option<()> {
        let held = state.believes[worker]?;
        if state.open[worker].is_some() || state.is_locked(held.job, None) {
            return None;
        }
        let through = match (self.rules.fence, state.jobs[held.job].place) {
            (Fence::Nothing, _) => true,
            (Fence::JobOnly, Location::Lease { .. }) => true,
            (Fence::Token, Location::Lease { token, .. }) => token == held.token,
            _ => false,
        };
        if through {
            state.open[worker] = Some(Transaction {
                ended: Some((held, outcome)),
                freed: !self.keyed,
                ..Transaction::default()
            });
        } else {
            state.believes[worker] = None;
            state.refused = true;
        }
        Some(())
    }

    /// Lets in the next job of the key, once no claim that may be blocking one is open.
    fn free_keys(&self, state: &mut State, worker: usize) -> Option<()> {
        let open = state.open[worker].filter(|open| open.ended.is_some() && !open.freed)?;
        if self.rules.may_wait && state.key_is_locked(Some(worker)) {
            return None;
        }
        let unblocked = self.next_behind_key(state, Some(worker));
        state.open[worker] = Some(Transaction {
            unblocked,
            freed: true,
            ..open
        });
        Some(())
    }

    /// The first blocked job whose row is not locked.
    fn next_behind_key(&self, state: &State, mine: Option<usize>) -> u8 {
        let mut blocked = (0..self.jobs)
            .filter(|&job| state.jobs[job].is_blocked() && !state.is_locked(job, mine));
        blocked.next().map_or(0, bit)
    }

    /// Takes expired leases, and frees the key if it is not locked.
    fn reap_expired_leases(&self, state: &mut State) -> Option<()> {
        let cycle = self.workers;
        if state.open[cycle].is_some() {
            return None;
        }
        let mut reaped = 0;
        for (number, job) in state.jobs.iter().enumerate() {
            if matches!(job.place, Location::Lease { expired: true, .. })
                && !state.is_locked(number, None)
            {
                reaped |= bit(number);
            }
        }
        if reaped == 0 {
            return None;
        }
        let frees = self.keyed && !state.key_is_locked(None);
        state.open[cycle] = Some(Transaction {
            reaped,
            unblocked: if frees {
                self.next_behind_key(state, None)
            } else {
                0
            },
            freed: true,
            ..Transaction::default()
        });
        Some(())
    }

    /// A single statement: the first job behind a key without a lease.
    fn repair(&self, state: &mut State) -> Option<()> {
        if !self.rules.repair || state.open[self.workers].is_some() || state.leases() > 0 {
            return None;
        }
        // `distinct on` selects the first job even if it is locked; `skip locked` then omits it.
        let first = state.jobs.iter().position(Job::is_blocked)?;
        if state.is_locked(first, None) {
            return None;
        }
        let_in(&mut state.jobs[first]);
        Some(())
    }

    /// A single statement under the group's lock, for which it waits.
    fn configure_group(&self, state: &mut State) -> Option<()> {
        let limit = *self.resizes.get(usize::from(state.resized))?;
        if state.group_is_locked() {
            return None;
        }
        state.limit = limit;
        state.resized += 1;
        Some(())
    }

    fn commit(&self, state: &mut State, session: usize) -> Option<()> {
        let open = state.open[session].filter(|open| open.ended.is_none() || open.freed)?;
        state.open[session] = None;
        for job in 0..self.jobs {
            if open.blocked & bit(job) != 0
                && let Location::Queue { blocked, .. } = &mut state.jobs[job].place
            {
                *blocked = true;
            }
            if open.unblocked & bit(job) != 0 {
                let_in(&mut state.jobs[job]);
            }
            if open.reaped & bit(job) != 0 {
                run_fail(&mut state.jobs[job]);
            }
            if open.granted & bit(job) != 0 {
                self.lease_grant(state, session, job);
            }
        }
        if let Some((held, outcome)) = open.ended {
            state.believes[session] = None;
            self.record(state, held, outcome);
        }
        Some(())
    }

    fn lease_grant(&self, state: &mut State, worker: usize, number: usize) {
        let job = &mut state.jobs[number];
        let Location::Queue { attempts, .. } = job.place else {
            panic!("a claim locks a row of the queue: {job:?}");
        };
        let token = state.next_token;
        state.next_token += 1;
        job.place = Location::Lease {
            attempt: attempts + 1,
            token,
            expired: false,
        };
        state.believes[worker] = Some(Held { job: number, token });
        state.over_limit |= state.limit > 0 && state.leases() > state.limit;
        state.over_key |= self.keyed && state.leases() > 1;
    }

    fn record(&self, state: &mut State, held: Held, outcome: Outcome) {
        state.usurped |= !state.holds(held);
        let job = &mut state.jobs[held.job];
        match (outcome, job.place) {
            (Outcome::Completed, _) => {
                job.completed += 1;
                job.ends += 1;
                if let Location::Lease { attempt, .. } = job.place {
                    job.completed_as = attempt;
                    job.place = Location::Ended;
                }
            }
            (Outcome::Failed, Location::Lease { .. }) => run_fail(job),
            (Outcome::Released, Location::Lease { attempt, .. }) => {
                job.place = Location::Queue {
                    attempts: attempt - 1,
                    blocked: false,
                }
            }
            (Outcome::Failed | Outcome::Released, _) => {}
        }
    }
}

/// Extends the lease if the token holds it; otherwise the session learns that it is lost.
fn heartbeat(state: &mut State, worker: usize) -> Option<()> {
    let held = state.believes[worker]?;
    if state.open[worker].is_some() || state.is_locked(held.job, None) {
        return None;
    }
    match &mut state.jobs[held.job].place {
        Location::Lease { token, expired, .. } if *token == held.token => {
            if !*expired {
                return None;
            }
            *expired = false;
        }
        _ => {
            state.believes[worker] = None;
            state.refused = true;
        }
    }
    Some(())
}

/// Fails the attempt: the job is queued again while attempts are left, otherwise it is a dead
/// letter.
fn run_fail(job: &mut Job) {
    let Location::Lease { attempt, .. } = job.place else {
        panic!("what is reaped or fails is a lease: {job:?}");
    };
    job.failed += 1;
    job.place = if attempt <= MAX_RETRIES {
        Location::Queue {
            attempts: attempt,
            blocked: false,
        }
    } else {
        job.ends += 1;
        Location::Ended
    };
}

fn let_in(job: &mut Job) {
    if let Location::Queue { blocked, .. } = &mut job.place {
        *blocked = false;
    }
}

/// Ends the connection, which discards its open transaction and the worker's belief.
fn kill(state: &mut State, worker: usize) -> Option<()> {
    state.kills = state.kills.checked_sub(1)?;
    if state.open[worker].is_none() && state.believes[worker].is_none() {
        return None;
    }
    state.open[worker] = None;
    state.believes[worker] = None;
    Some(())
}

/// Passes the end of a lease: at any time if no worker can extend it, or as often as `expiries`
/// allows under a late worker.
fn lease_expires(state: &mut State, number: usize) -> Option<()> {
    let Location::Lease { expired, token, .. } = &mut state.jobs[number].place else {
        return None;
    };
    if *expired {
        return None;
    }
    *expired = true;
    let held = Held {
        job: number,
        token: *token,
    };
    if state.believes.contains(&Some(held)) {
        state.expiries = state.expiries.checked_sub(1)?;
    }
    Some(())
}
