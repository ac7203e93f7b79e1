//! A model of claims, leases, heartbeats, the reaper, limits and outcomes, explored exhaustively.
//!
//! Words: a *session* is a worker's connection; it *believes* in the lease of its last claim. A
//! paused worker takes no step, which needs no action here. A *killed* one loses its open
//! transaction and its belief, and starts again.
//!
//! Every action is named after the function that it models, and does the work of the functions of
//! `trax_pg` and the statements of `sql/query` listed below, under the same locks. Others see the
//! changes of a transaction after its `Commit`; a locked row is skipped (`skip locked`) or waited
//! for, which here means that the action is not possible yet.
//!
//! | action | functions, statements | locks |
//! |---|---|---|
//! | `ClaimNext` | `claim`: `group::room`, `limit::held`, `claim::grant`; `limit::block` | the group's, exclusive and not waited for; the key's, not waited for; rows, skip locked |
//! | `Heartbeat` | `lease`: `lease_extend` | the lease's row |
//! | `Complete` | `outcome::completion` | the lease's row |
//! | `Fail` | `outcome`: `lease_take`, `run_fail` | the lease's row |
//! | `Release` | `lease`: `lease_release` | the lease's row |
//! | `FreeKeys` | `limit::free`, after the end of a lease; `unblock` | the key's, waited for and not kept |
//! | `ReapExpiredLeases` | `outcome`: `lease_overdue`, `run_fail`, `unblock` | rows, skip locked; the key's, not waited for |
//! | `Repair` | `limit`: `repair` | rows, skip locked |
//! | `ConfigureGroup` | `group`: `group_configure`, `lease_count_limited` | the group's, exclusive, waited for |
//! | `Commit` | the end of any of these transactions | |
//! | `Kill`, `LeaseExpires` | events outside the sessions | |
//!
//! All jobs belong to one lane and to one group with a limit, with one concurrency key or none. The
//! number of outside events is limited, so that every path ends; a path may end only after all jobs
//! have ended.
//!
//! Each rule can be left out (`Rules`), and the checker then finds the failure it prevents
//! (`check.rs`). An outcome deletes the lease in the statement that records it. Without the token,
//! a stale worker ends another worker's attempt; without any check of the lease, a job completes
//! twice. The token and the delete together are the fence.

mod action;
mod check;
mod rate;

use stateright::Representative;

/// The number of retries of a job.
const MAX_RETRIES: u8 = 1;

/// The condition on the lease for recording an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fence {
    /// `where l.job_id = .. and l.token = ..`, in statements or by hand: the rule of trax.
    Token,
    /// `where l.job_id = ..`: any lease of the job.
    JobOnly,
    /// No check.
    Nothing,
}

/// The rules of the model.
#[derive(Clone, Copy, Debug)]
struct Rules {
    fence: Fence,
    /// Claims of a limited group take its lock exclusively, not shared.
    group_lock: bool,
    /// Outcomes wait for the lock of the key that they free, and do not keep it.
    may_wait: bool,
    /// Claims block no job behind a lease that is being ended.
    sees_ends: bool,
    /// The cycle looks for blocked jobs whose key has room.
    repair: bool,
}

const ALL: Rules = Rules {
    fence: Fence::Token,
    group_lock: true,
    may_wait: true,
    sees_ends: true,
    repair: true,
};

/// The size of the model, and the number of times each event may happen.
#[derive(Clone, Debug)]
struct Model {
    rules: Rules,
    workers: usize,
    jobs: usize,
    /// The initial limit of the group; 0 means none.
    limit: u8,
    /// Later values of the limit, in this order.
    resizes: Vec<u8>,
    /// Whether all jobs share one concurrency key, which allows one running job.
    keyed: bool,
    kills: u8,
    expiries: u8,
    failures: u8,
    releases: u8,
}

/// The place of a job, which is its state.
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
    /// Only rows in `trax.run`.
    Ended,
}

/// A job and its rows in `trax.run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Job {
    place: Location,
    /// The number of completed and failed attempts.
    completed: u8,
    failed: u8,
    /// The number of final rows.
    ends: u8,
    /// The number of the last completed attempt.
    completed_as: u8,
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Outcome {
    Completed,
    Failed,
    Released,
}

/// The job and token of a session's last claim, which it passes to later calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Held {
    job: usize,
    token: u8,
}

/// The rows that a transaction has changed and the locks that it keeps until it ends. Sets of jobs
/// are bit masks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Transaction {
    /// Jobs that get a lease.
    granted: u8,
    /// Jobs that leave their lane, and jobs that return to it.
    blocked: u8,
    unblocked: u8,
    /// The lease to end, as the session believes it, and the outcome.
    ended: Option<(Held, Outcome)>,
    /// Leases taken by the reaper.
    reaped: u8,
    /// Whether the key of the ended lease has been freed.
    freed: bool,
    group_lock: bool,
    key_lock: bool,
}

/// The stored state and the open transactions of the sessions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    jobs: Vec<Job>,
    believes: Vec<Option<Held>>,
    /// The sessions' transactions; the cycle's is the last.
    open: Vec<Option<Transaction>>,
    limit: u8,
    /// The number of resizes so far.
    resized: u8,
    next_token: u8,
    kills: u8,
    expiries: u8,
    failures: u8,
    releases: u8,
    /// These must never be true: a claim exceeded a limit in force at its commit, or an outcome was
    /// recorded for a session without the lease.
    over_limit: bool,
    over_key: bool,
    usurped: bool,
    /// Whether a worker learned that its lease is lost.
    refused: bool,
}

impl State {
    fn leases(&self) -> u8 {
        let leases = self.jobs.iter().filter(|job| job.is_leased());
        u8::try_from(leases.count()).expect("there are few jobs")
    }

    /// Whether the token is that of the job's lease.
    fn holds(&self, held: Held) -> bool {
        let place = self.jobs[held.job].place;
        matches!(place, Location::Lease { token, .. } if token == held.token)
    }

    fn all_ended(&self) -> bool {
        self.jobs.iter().all(|job| job.place == Location::Ended)
            && self.open.iter().all(Option::is_none)
    }

    /// Whether a transaction other than `mine` has locked the row of a job.
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

/// Sessions are interchangeable, and only whether a token belongs to the lease matters. Of all
/// states that differ only in these, one is explored.
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
        // Neither a lease's token nor a stale one.
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
