//! The faults, their frequency, and the plan of one campaign: fault, time, duration and target. The
//! seed decides the whole plan in advance.

use crate::random::Random;
use std::time::Duration;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// SIGKILL of a worker process; another takes its place.
    WorkerKill,
    /// SIGSTOP of a worker process, longer than its leases or shorter.
    WorkerFreeze,
    /// SIGTERM of a worker process, which stops cleanly.
    WorkerStop,
    /// `pg_terminate_backend` of a client's session.
    SessionEnd,
    /// `pg_terminate_backend` of the scheduler or the launcher.
    SchedulerEnd,
    /// `pg_cancel_backend` of a client's statement.
    Cancel,
    /// SIGSTOP of a client's backend.
    BackendFreeze,
    /// SIGSTOP of the scheduler.
    SchedulerFreeze,
    /// SIGKILL of a backend or the scheduler: all sessions end, the server recovers.
    BackendKill,
    /// SIGKILL of the postmaster.
    ServerKill,
    /// SIGSTOP of the postmaster: existing sessions go on, new ones cannot start.
    ServerFreeze,
    /// A fast restart.
    ServerRestart,
    /// An immediate stop and a start.
    ServerImmediate,
    /// Connections of a route break.
    Cut,
    /// Connections of a route deliver nothing for a while, and everything later.
    Stall,
    /// Connections of a route stay silent for ever, without an error.
    Silence,
    /// The client's side of a route's connections breaks; the server's side stays open for a while.
    HalfOpen,
    /// The primary crashes and the standby takes over.
    Promote,
    /// The standby stops for a while.
    StandbyStop,
    /// A prepared transaction with jobs in it stays open for a while.
    Prepared,
    /// A snapshot stays open.
    Snapshot,
    /// An administrator locks a table against writers for a while.
    TableLock,
    /// VACUUM FULL, REINDEX, CLUSTER or ANALYZE of the tables of trax.
    Maintenance,
    /// Default settings of a role or of the database.
    Setting,
    /// The scheduler is paused, a group is switched off, a job is cancelled.
    Operator,
    /// The limit of a group is reduced for a while.
    Limit,
    /// A row trigger on a busy table.
    Trigger,
    /// A publication for all tables.
    Publication,
    /// A dump is restored over its own database.
    Restore,
    /// The clock of the machine steps forwards or backwards, and back after a while.
    ClockStep,
    /// The primary's disk is full for a while.
    DiskFull,
    /// The server's zone data is updated.
    ZoneData,
    /// Calls for a shard are refused for a while.
    ShardClose,
}

use Fault::{
    BackendFreeze, BackendKill, Cancel, ClockStep, Cut, DiskFull, HalfOpen, Limit, Maintenance,
    Operator, Prepared, Promote, Publication, Restore, SchedulerEnd, SchedulerFreeze, ServerFreeze,
    ServerImmediate, ServerKill, ServerRestart, SessionEnd, Setting, ShardClose, Silence, Snapshot,
    Stall, StandbyStop, TableLock, Trigger, WorkerFreeze, WorkerKill, WorkerStop, ZoneData,
};

/// The weight of each fault, and its shortest and longest duration in milliseconds.
const KINDS: [(Fault, u64, u64, u64); 33] = [
    (WorkerKill, 10, 0, 3_000),
    (WorkerFreeze, 8, 500, 9_000),
    (WorkerStop, 5, 0, 1_000),
    (SessionEnd, 12, 0, 0),
    (SchedulerEnd, 6, 0, 0),
    (Cancel, 8, 0, 0),
    (BackendFreeze, 4, 200, 4_000),
    (SchedulerFreeze, 3, 500, 4_000),
    (BackendKill, 3, 0, 0),
    (ServerKill, 3, 0, 2_000),
    (ServerFreeze, 3, 500, 8_000),
    (ServerRestart, 2, 0, 1_000),
    (ServerImmediate, 2, 0, 1_000),
    (Cut, 6, 0, 0),
    (Stall, 6, 300, 8_000),
    (Silence, 4, 1_000, 8_000),
    (HalfOpen, 4, 500, 8_000),
    (Promote, 2, 0, 3_000),
    (StandbyStop, 2, 500, 4_000),
    (Prepared, 5, 500, 8_000),
    (Snapshot, 4, 1_000, 15_000),
    (TableLock, 4, 200, 4_000),
    (Maintenance, 4, 0, 0),
    (Setting, 6, 2_000, 10_000),
    (Operator, 8, 300, 3_000),
    (Limit, 4, 500, 5_000),
    (Restore, 2, 0, 0),
    (Trigger, 4, 1_000, 8_000),
    (Publication, 3, 1_000, 8_000),
    (ClockStep, 4, 500, 8_000),
    (DiskFull, 3, 500, 5_000),
    (ZoneData, 2, 0, 0),
    (ShardClose, 4, 500, 4_000),
];

impl Fault {
    /// The longest pause between a statement's start and its effect, for a fault that lasts `hold`.
    pub(crate) fn lag(self, hold: Duration) -> Option<Duration> {
        match self {
            BackendFreeze | SchedulerFreeze | TableLock => Some(hold),
            Maintenance => Some(hold + Duration::from_secs(20)),
            _ => None,
        }
    }

    /// Whether the fault applies to a server with its standby.
    pub(crate) fn is_for_one_server(self) -> bool {
        self != ShardClose
    }

    /// Whether the fault applies to a router and its shards.
    pub(crate) fn is_for_shards(self) -> bool {
        let of_the_fleet = matches!(self, WorkerKill | WorkerFreeze | WorkerStop);
        let of_a_session = matches!(
            self,
            SessionEnd | SchedulerEnd | Cancel | BackendFreeze | SchedulerFreeze | BackendKill
        );
        let of_a_server = matches!(
            self,
            ServerKill | ServerFreeze | ServerRestart | ServerImmediate | ShardClose
        );
        let of_a_route = matches!(self, Cut | Stall | Silence | HalfOpen);
        let of_an_administrator = matches!(self, TableLock | Snapshot | Maintenance | Setting);
        of_the_fleet || of_a_session || of_a_server || of_a_route || of_an_administrator
    }

    /// Whether the fault affects the whole server; no other fault may then be active.
    pub(crate) fn is_of_the_server(self) -> bool {
        matches!(
            self,
            BackendKill | ServerKill | ServerRestart | ServerImmediate | Promote | Restore
        )
    }
}

/// A fault of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strike {
    /// The time since the start of the campaign.
    pub(crate) at: Duration,
    pub(crate) fault: Fault,
    /// The duration.
    pub(crate) hold: Duration,
    /// Selects one of the targets.
    pub(crate) pick: u64,
}

/// Returns the plan of a seed. `only` excludes all other kinds of faults.
pub(crate) fn plan(
    seed: u64,
    time: Duration,
    may_come: impl Fn(Fault) -> bool,
    only: Option<&str>,
) -> Vec<Strike> {
    let mut random = Random::new(seed, "plan");
    let wanted = |fault: Fault| {
        only.is_none_or(|only| only.split(',').any(|name| name == format!("{fault:?}")))
    };
    let kinds: Vec<_> = KINDS
        .into_iter()
        .filter(|(fault, ..)| wanted(*fault) && may_come(*fault))
        .collect();
    let total: u64 = kinds.iter().map(|(_, weight, ..)| weight).sum();
    let mut strikes = Vec::new();
    let mut at = Duration::from_secs(3);
    while at < time && total > 0 {
        let mut place = random.below(total);
        let kind = kinds.iter().find(|(_, weight, ..)| {
            let found = place < *weight;
            place = place.saturating_sub(*weight);
            found
        });
        let Some((fault, _, least, most)) = kind else {
            break;
        };
        strikes.push(Strike {
            at,
            fault: *fault,
            hold: Duration::from_millis(random.between(*least, *most)),
            pick: random.next(),
        });
        // A server that comes back gets some time to work.
        let rest = if fault.is_of_the_server() { 4_000 } else { 0 };
        at += Duration::from_millis(rest + random.between(200, 2_000));
    }
    strikes
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(600);

    #[test]
    fn a_seed_gives_the_same_plan_and_another_seed_another() {
        let plan = |seed: u64| plan(seed, TIME, Fault::is_for_shards, None);
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
    }

    #[test]
    fn every_kind_comes() {
        for may_come in [Fault::is_for_one_server, Fault::is_for_shards] {
            let plan = plan(1, TIME * 20, may_come, None);
            for (fault, ..) in KINDS {
                let comes = plan.iter().any(|strike| strike.fault == fault);
                assert_eq!(comes, may_come(fault), "{fault:?}");
            }
        }
    }

    #[test]
    fn named_kinds_come_alone() {
        let plan = plan(1, TIME, Fault::is_for_one_server, Some("Trigger,Cut"));
        let is_one = |strike: &Strike| matches!(strike.fault, Trigger | Cut);
        assert!(plan.iter().all(is_one) && plan.iter().any(|strike| strike.fault == Trigger));
    }
}
