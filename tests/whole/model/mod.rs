//! A model of claims, leases, heartbeats, the reaper, limits and outcomes, explored to its end.
//!
//! Words: a *session* is a worker's connection; what it *believes* to hold is what its last claim
//! gave it; a worker that is paused takes no step, which costs nothing here; one that is *killed*
//! loses its open transaction and its belief, and starts again.
//!
//! Every action is named after the function that it models, and does what these functions of
//! `trax_pg` and statements of `sql/query` do under the locks that they take. What a transaction
//! has done is seen by others after its `Commit`; a row that it has locked is stepped over (`skip
//! locked`) or waited for, which here is an action that is not possible yet.
//!
//! | action | functions, statements | locks |
//! |---|---|---|
//! | `ClaimNext` | `claim`: `group::room`, `limit::held`, `claim::grant`; `key_block` | the group's, exclusive and not waited for; the key's, not waited for; rows, skip locked |
//! | `Heartbeat` | `lease`: `lease_extend` | the lease's row |
//! | `Complete` | `outcome::completion` | the lease's row |
//! | `Fail` | `outcome`: `lease_take`, `run_fail` | the lease's row |
//! | `Release` | `lease`: `lease_release` | the lease's row |
//! | `FreeKeys` | `limit::free`, after what ended a lease; `unblock` | the key's, waited for and not kept |
//! | `ReapExpiredLeases` | `outcome`: `lease_overdue`, `run_fail`, `unblock` | rows, skip locked; the key's, not waited for |
//! | `Sweep` | `limit`: `sweep` | rows, skip locked |
//! | `ConfigureGroup` | `group`: `group_configure`, `lease_count_limited` | the group's, exclusive, waited for |
//! | `Commit` | the end of any of these transactions | |
//! | `Kill`, `LeaseExpires` | what the world does | |
//!
//! All jobs are of one lane, one group with a limit and one concurrency key or none. What the world
//! may do is counted, so that every path ends; a path may end only where all jobs have ended.
//!
//! Each rule can be left out (`Rules`), and the checker then finds what it is for (`check.rs`). An
//! outcome deletes the lease in the statement that records it, so without the token alone a stale
//! worker ends somebody else's attempt, and with no look at the lease at all a job completes twice:
//! the token and the delete are the fence together.

mod action;
mod check;

use stateright::Representative;

/// Attempts that a job may have beyond the first.
const MAX_RETRIES: u8 = 1;

/// What an outcome asks of the lease before it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fence {
    /// `where l.job_id = .. and l.token = ..`, in statements or by hand: what trax does.
    Token,
    /// `where l.job_id = ..`: any lease of the job will do.
    JobOnly,
    /// The worker's word is taken for it.
    Nothing,
}

/// What holds.
#[derive(Clone, Copy, Debug)]
struct Rules {
    fence: Fence,
    /// Claims of a limited group take its lock exclusively, not shared.
    group_lock: bool,
    /// Outcomes wait for the lock of the key that they free; they do not keep it.
    patient: bool,
    /// Claims block nothing behind a lease that is being ended.
    sees_ends: bool,
    /// The cycle looks for blocked jobs whose key has room.
    sweep: bool,
}

const ALL: Rules = Rules {
    fence: Fence::Token,
    group_lock: true,
    patient: true,
    sees_ends: true,
    sweep: true,
};

/// How large the world is, and how often it may do what.
#[derive(Clone, Debug)]
struct Model {
    rules: Rules,
    workers: usize,
    jobs: usize,
    /// The limit of the group at the beginning; 0 is none.
    limit: u8,
    /// What the limit may be changed to, in this order.
    resizes: Vec<u8>,
    /// Whether all jobs have one concurrency key, of which one may run.
    keyed: bool,
    kills: u8,
    expiries: u8,
    failures: u8,
    releases: u8,
}

/// Where a job is, which is its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Location {
    /// A row of `trax.work_queue`; `blocked` is `waits_for = 'key'`.
    Queue { attempts: u8, blocked: bool },
    /// A row of `trax.lease`.
    Lease {
        attempt: u8,
        token: u8,
        expired: bool,
    },
    /// Only rows of `trax.run`.
    Ended,
}

/// A job, with what `trax.run` says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Job {
    place: Location,
    /// Rows of completed and of failed attempts.
    completed: u8,
    failed: u8,
    /// Rows that are final.
    ends: u8,
    /// The number of the last attempt that ended, if it was completed.
    completed_as: u8,
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Outcome {
    Completed,
    Failed,
    Released,
}

/// What a session has been given, and will ask with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Held {
    job: usize,
    token: u8,
}

/// The rows that a transaction has changed and the locks that it keeps until it ends. Sets of jobs
/// are bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Transaction {
    /// Jobs that get a lease.
    granted: u8,
    /// Jobs that leave their lane, and that come back into it.
    blocked: u8,
    unblocked: u8,
    /// The lease that ends, and how; as the session believes it to be.
    ended: Option<(Held, Outcome)>,
    /// Leases that the reaper takes.
    reaped: u8,
    /// Whether the key of what ended has been looked after.
    freed: bool,
    group_lock: bool,
    key_lock: bool,
}

/// Everything that is stored, and what each session is in the middle of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    jobs: Vec<Job>,
    believes: Vec<Option<Held>>,
    /// Of the sessions; that of the cycle is the last.
    open: Vec<Option<Transaction>>,
    limit: u8,
    /// How many of the resizes have been made.
    resized: u8,
    next_token: u8,
    kills: u8,
    expiries: u8,
    failures: u8,
    releases: u8,
    /// What must never be true: a claim exceeded a limit in force at its commit, or an outcome was
    /// recorded for somebody who did not hold the lease.
    over_limit: bool,
    over_key: bool,
    usurped: bool,
    /// A worker was told that its lease is lost.
    refused: bool,
}

impl State {
    fn leases(&self) -> u8 {
        let leases = self.jobs.iter().filter(|job| job.is_leased());
        u8::try_from(leases.count()).expect("there are few jobs")
    }

    /// Whether this is the lease of the job.
    fn holds(&self, held: Held) -> bool {
        let place = self.jobs[held.job].place;
        matches!(place, Location::Lease { token, .. } if token == held.token)
    }

    fn all_ended(&self) -> bool {
        self.jobs.iter().all(|job| job.place == Location::Ended)
            && self.open.iter().all(Option::is_none)
    }

    /// Whether another transaction than that of `mine` has locked the row of a job.
    fn is_locked(&self, job: usize, mine: Option<usize>) -> bool {
        self.others(mine).any(|open| open.locks(job))
    }

    fn group_is_locked(&self) -> bool {
        self.others(None).any(|open| open.group_lock)
    }

    fn key_is_locked(&self, mine: Option<usize>) -> bool {
        self.others(mine).any(|open| open.key_lock)
    }

    fn a_lease_is_ending(&self) -> bool {
        let mut jobs = self.jobs.iter().enumerate();
        jobs.any(|(number, job)| job.is_leased() && self.is_locked(number, None))
    }

    fn others(&self, mine: Option<usize>) -> impl Iterator<Item = &Transaction> {
        let open = self.open.iter().enumerate();
        open.filter(move |(session, _)| Some(*session) != mine)
            .filter_map(|(_, open)| open.as_ref())
    }
}

/// Sessions are interchangeable, and of a token only counts whether it is that of the lease: of all
/// states that differ in these alone one is explored.
impl Representative for State {
    fn representative(&self) -> State {
        let mut state = self.clone();
        let renamed = |held: Held| Held {
            token: u8::from(self.holds(held)),
            ..held
        };
        let workers = self.believes.len();
        let mut sessions: Vec<_> = (0..workers)
            .map(|worker| {
                let open = self.open[worker].map(|open| Transaction {
                    ended: open.ended.map(|(held, outcome)| (renamed(held), outcome)),
                    ..open
                });
                (self.believes[worker].map(renamed), open)
            })
            .collect();
        sessions.sort_unstable();
        for (worker, (believes, open)) in sessions.into_iter().enumerate() {
            state.believes[worker] = believes;
            state.open[worker] = open;
        }
        for job in &mut state.jobs {
            if let Location::Lease { token, .. } = &mut job.place {
                *token = 1;
            }
        }
        // Neither a lease's nor a stale one.
        state.next_token = 2;
        state
    }
}

impl Job {
    fn is_leased(&self) -> bool {
        matches!(self.place, Location::Lease { .. })
    }

    fn is_blocked(&self) -> bool {
        matches!(self.place, Location::Queue { blocked: true, .. })
    }
}

impl Transaction {
    fn locks(&self, job: usize) -> bool {
        let rows = self.granted | self.blocked | self.unblocked | self.reaped;
        rows & bit(job) != 0 || self.ended.is_some_and(|(held, _)| held.job == job)
    }
}

fn bit(job: usize) -> u8 {
    1 << job
}
