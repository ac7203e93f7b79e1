//! The pick: takes rows in the order of claiming, under all limits.
//!
//! Enters: candidate rows (`scan`). Leaves: rows deleted from the queue, rows to block behind a key
//! or manifest, and unreadable rows. Holds: a row is taken only under the locks of its database,
//! group, key and manifest, as far as these have limits. The locks are taken only if they are free.
//! Those under which a row is taken or blocked are kept until the commit, the other locks of
//! limited groups, keys and manifests are released when the pick ends.
//!
//! A key or manifest is *busy* if another transaction has its lock, or if it has no room and
//! another transaction is ending one of its jobs. The rows of a busy one are left in their lanes.

use super::*;
use crate::changes;
use crate::columns::Group;
use crate::columns::Waiting;
use crate::limit;
use crate::limit::{Blocked, Counter, Room, Shared, database, group};
use crate::memory;
use crate::memory::RateGates;
use crate::memory::rate::Grant;
use crate::memory::{GATE_MICROS, Reading};
use crate::rate::{Rates, Start, Use};
use crate::server::clock::Timestamp;
use crate::server::lock;
use crate::server::spi;
use crate::server::spi::Spi;
use crate::server::table::Scan;
use crate::server::toast;
use lane::{Lane, List};
use scan::Queue;
use std::collections::HashMap;

/// What a claim has done with a row, and how its scan goes on.
enum Taken {
    /// The next row of the lane follows.
    Next,
    /// The row is left because its key or manifest is busy.
    Busy(Shared),
    /// The row and its lane are left behind the gates of a rate.
    Later(Full),
    /// The row and its lane are left to another claim.
    LeaveLane,
}

/// The time at which a rate has room for a job, and for a cost of 1.
pub(super) struct Full {
    pub(super) gates: RateGates,
    /// The gate of used keys before the start.
    pub(super) used: Reading,
    pub(super) at: i64,
    pub(super) one_at: i64,
}

impl Pick {
    pub(super) fn begin(request: &Request) -> Self {
        // Changes that this transaction has made by hand count too.
        changes::apply_own();
        let counter = Counter::open();
        let room = database::room(&counter);
        let max_jobs = match room {
            Room::Unlimited => request.max_jobs,
            Room::For(left) => request.max_jobs.min(left.max(0) as usize),
            Room::Busy => 0,
        };
        Self {
            counter,
            now: Timestamp::now(),
            jobs: Vec::with_capacity(max_jobs),
            max_jobs,
            places: request.places.unwrap_or(usize::MAX),
            rates: None,
            opens_at: None,
            groups: HashMap::new(),
            kept: group::LockedGroups::default(),
            shared: HashMap::new(),
            locks: 0,
            idle: Vec::new(),
            only_blocked: 0,
            is_out_of_locks: false,
            is_out_of_places: false,
            blocked: Vec::new(),
            unreadable: Vec::new(),
            above_burst: HashMap::new(),
            passed_jobs: spi::keeps_snapshot(),
            in_limited_database: room != Room::Unlimited,
            saw_all: room != Room::Busy,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.jobs.len() >= self.max_jobs
    }

    pub(super) fn claimed(&self) -> Claimed {
        let limited = self.in_limited_database
            || self.jobs.iter().any(|job| {
                job.limited
                    || job.row.value(Waiting::ConcurrencyKey).is_some()
                    || job.row.value(Waiting::ManifestId).is_some()
            });
        if limited {
            Claimed::Limited
        } else {
            Claimed::Free
        }
    }

    /// Takes the best rows of the lanes in `list`. `aging` is the waiting time that raises a job by
    /// one priority, in microseconds.
    pub(super) fn take_from(&mut self, spi: &Spi, list: List, aging: Option<i64>) {
        let is_private = changes::has_taken() || spi::keeps_snapshot();
        let mut queue = Queue::open(list, self.now, aging);
        // Skipped rows become claimable when another transaction ends, which may not ring.
        self.saw_all &= queue.is_current && !memory::has_skips();
        while !self.is_full() {
            let Some(candidate) = queue.next() else { break };
            if !self.has_locks_left() {
                self.is_out_of_locks = true;
                queue.end(candidate);
                break;
            }
            let has_no_room = self.group_room(&candidate.lane).is_none();
            if has_no_room || queue.is_closed(&candidate.lane) {
                self.passed_jobs |= has_no_room;
                queue.end(candidate);
                continue;
            }
            let taken = match candidate.scan() {
                Some(scan) => self.take(spi, &queue, &candidate.lane, scan),
                None => Taken::Next,
            };
            match taken {
                Taken::Next => queue.advance(candidate, None),
                Taken::Busy(shared) => {
                    self.passed_jobs = true;
                    queue.advance(candidate, Some(shared));
                }
                Taken::Later(full) => {
                    queue.close_gates(candidate, &full, self.passed_jobs || is_private);
                }
                Taken::LeaveLane => queue.end(candidate),
            }
        }
        self.opens_at = queue.close(is_private, |shared| {
            limit::holders_of(&self.counter, shared)
        });
        if !self.jobs.is_empty() {
            changes::taken();
        }
    }

    /// Takes the row that `scan` shows, or blocks it, or leaves it in its lane.
    fn take(&mut self, spi: &Spi, queue: &Queue, lane: &Lane, scan: &Scan) -> Taken {
        let shares: Vec<Shared> = Shared::of(
            scan.get(Waiting::ConcurrencyKey),
            scan.get(Waiting::ManifestId),
        )
        .collect();
        for shared in &shares {
            match self.shared_room(spi, lane, shared) {
                // The row is left without being locked.
                Room::Busy => return Taken::Busy(shared.clone()),
                // If very many rows wait behind one key, each claim blocks some and leaves the
                // others.
                room if room.is_none() => {
                    if self.blocked.len() < BLOCK_AT_MOST
                        && queue.table.lock_if_free(scan.tid(), &queue.view)
                    {
                        self.blocked.push(Blocked {
                            tid: scan.tid(),
                            waits_for: shared.waits_for(),
                        });
                        if let Some(Some(of)) = self.shared.get_mut(shared) {
                            self.only_blocked += usize::from(!of.is_used);
                            of.is_used = true;
                        }
                    }
                    return Taken::Next;
                }
                _ => {}
            }
        }
        let job_id = scan.number(Waiting::JobId);
        let beside = match values_beside(scan) {
            Ok(values) => values,
            Err(error) if error.is_unreadable() => {
                if queue.table.lock_if_free(scan.tid(), &queue.view) {
                    self.unreadable.push((job_id, error));
                }
                if self.unreadable.len() >= UNREADABLE_AT_MOST {
                    self.saw_all = false;
                    self.max_jobs = self.jobs.len();
                }
                return Taken::Next;
            }
            Err(error) => error.raise(),
        };
        let grant = match self.start(lane, scan) {
            Ok(grant) => grant,
            Err(taken) => return taken,
        };
        if !queue.table.delete_if_free(scan.tid(), &queue.view) {
            grant.iter().for_each(|grant| self.give_back(lane, grant));
            self.passed_jobs = true;
            return Taken::Next;
        }
        for shared in &shares {
            if let Some(Some(of)) = self.shared.get_mut(shared) {
                of.held.count += 1;
                of.is_used = true;
            }
            shared.lower_bound(job_id);
        }
        if self.in_limited_database {
            database::lower_bound(job_id);
        } else {
            changes::granted_beside_limit();
        }
        if grant.is_some() {
            changes::started_under_rate(scan.number(Waiting::LaneId));
        }
        let mut limited = false;
        if let Some(group) = self.groups.get_mut(&lane.group) {
            limited = matches!(group.room, Room::For(_));
            group.room.take();
            group.is_used = true;
        }
        if limited {
            group::lower_bound(&lane.group, job_id);
        }
        let mut row = scan.row();
        for (column, value) in beside.into_iter().flatten() {
            row.set(column, value);
        }
        self.jobs.push(Picked {
            row,
            limited,
            started_at: grant.map(|grant| grant.at),
        });
        Taken::Next
    }

    /// Gives back what the rates of a lane have granted for a row that another transaction took.
    /// Sessions that have found them used up meanwhile look again.
    fn give_back(&self, lane: &Lane, grant: &Grant) {
        memory::rate::give_back(grant);
        let own = lane.rate.as_ref().map(|rate| rate.gates);
        let of_group = self.groups.get(&lane.group);
        let of_group = of_group.and_then(|group| group.rate.as_ref());
        let of_group = of_group.map(|&(_, gates)| gates);
        own.into_iter().chain(of_group).for_each(RateGates::open);
        wake::mark(wake::WORK);
    }

    /// Uses the rates under which the job that `scan` shows starts; `None` if it has none.
    fn start(&mut self, lane: &Lane, scan: &Scan) -> std::result::Result<Option<Grant>, Taken> {
        let own = lane.rate.as_ref().map(|rate| {
            let wanted = Use {
                rate: &rate.name,
                key: rate.key.as_deref().unwrap_or(""),
                cost: scan.number(Waiting::Cost),
            };
            (wanted, rate.gates)
        });
        let of_group = self.groups.get(&lane.group);
        let of_group = of_group.and_then(|group| group.rate.as_ref());
        let of_group = of_group.map(|(rate, gates)| {
            let wanted = Use {
                rate,
                key: "",
                cost: 1,
            };
            (wanted, *gates)
        });
        // A job that names the rate of its group uses it once.
        let of_group = of_group.filter(|(group, _)| own.is_none_or(|(own, _)| !own.is_of(group)));
        let (uses, gates): (Vec<Use>, Vec<RateGates>) = own.into_iter().chain(of_group).unzip();
        if uses.is_empty() {
            return Ok(None);
        }
        if self.jobs.len() >= self.places {
            self.is_out_of_places = true;
            return Err(Taken::LeaveLane);
        }
        // Another claim takes it, for which this one need not use the rate.
        if scan.is_changing() {
            self.passed_jobs = true;
            return Err(Taken::Next);
        }
        // Read before the settings and closures: a change of these opens the gates.
        let used: Vec<Reading> = gates.iter().map(|gates| gates.used.read()).collect();
        let full = |number: usize, at, one_at| {
            Taken::Later(Full {
                gates: gates[number],
                used: used[number],
                at,
                one_at,
            })
        };
        let rates = self.rates.get_or_insert_with(Rates::open);
        match rates.start(&uses) {
            Start::Granted(grant) => Ok(Some(grant)),
            Start::Later {
                number, at, one_at, ..
            } => Err(full(number, at, one_at)),
            // The next row of the lane follows, unless the claim has passed many of this key.
            Start::AboveBurst => {
                let passed = self.above_burst.entry(gates[0].used).or_default();
                *passed += 1;
                if *passed <= ABOVE_BURST_AT_MOST {
                    return Err(Taken::Next);
                }
                Err(full(0, self.now.0 + GATE_MICROS, 0))
            }
            Start::Busy => {
                self.saw_all = false;
                Err(Taken::LeaveLane)
            }
        }
    }

    pub(super) fn group_room(&mut self, lane: &Lane) -> Room {
        if let Some(group) = self.groups.get(&lane.group) {
            return group.room;
        }
        let limited = lane::is_limited(&lane.group, || {
            let row = self.counter.group(&lane.group);
            row.is_some_and(|row| row.value(Group::MaxActiveJobs).is_some())
        });
        let (counter, kept) = (&self.counter, &mut self.kept);
        let group::GroupRoom { room, rate } =
            group::room(counter, kept, &lane.group, limited, self.now);
        if limited == (room == Room::Unlimited) || room == Room::Busy {
            lane::limit_may_differ(&lane.group);
        }
        self.saw_all &= room != Room::Busy;
        if matches!(room, Room::For(1..)) {
            changes::group_changed(&lane.group);
        }
        if limited && !room.is_none() {
            self.locks += 1;
            self.idle.push(Idle::Group(lane.group.clone()));
        }
        let is_used = false;
        self.groups.insert(
            lane.group.clone(),
            PickedGroup {
                room,
                rate: rate.map(|rate| {
                    let gates = RateGates::of(&rate, "");
                    (rate, gates)
                }),
                is_used,
            },
        );
        room
    }

    /// Returns whether the claim may take the locks of one more job: group, key and manifest.
    pub(super) fn has_locks_left(&mut self) -> bool {
        if self.locks + 3 <= lock::AT_MOST {
            return true;
        }
        // There may be more rows under the locks that are released.
        self.saw_all &= self.idle.is_empty();
        self.unlock_idle();
        self.locks + 3 <= lock::AT_MOST
    }

    /// Releases the locks under which no row was taken or blocked.
    pub(super) fn unlock_idle(&mut self) {
        for idle in self.idle.drain(..) {
            let is_idle = match &idle {
                Idle::Group(name) => self.groups.get_mut(name).is_some_and(|group| {
                    let is_idle = !group.is_used;
                    if is_idle {
                        group.room = Room::Busy;
                        group::unlock(name);
                    }
                    is_idle
                }),
                Idle::Shared(shared) => self.shared.get_mut(shared).is_some_and(|of| {
                    let is_idle = of.as_ref().is_some_and(|of| !of.is_used);
                    if is_idle {
                        *of = None;
                        shared.unlock();
                    }
                    is_idle
                }),
            };
            self.locks -= usize::from(is_idle);
        }
    }

    pub(super) fn shared_room(&mut self, spi: &Spi, lane: &Lane, shared: &Shared) -> Room {
        if !self.shared.contains_key(shared) {
            self.lock_shared(shared);
        }
        let Some(Some(of)) = self.shared.get_mut(shared) else {
            return Room::Busy;
        };
        let allowed = match of.allowed.get(&lane.group) {
            Some(allowed) => *allowed,
            None => {
                let allowed = limit::allowed(spi, &self.counter, shared, &lane.group);
                of.allowed.insert(lane.group.clone(), allowed);
                allowed
            }
        };
        let room = Room::For(allowed - of.held.count);
        // A transaction that is ending one of these jobs would not see a row that is blocked now;
        // its commit rings.
        let must_wait =
            of.held.may_end || !of.is_used && self.only_blocked >= lock::BLOCKED_AT_MOST;
        if room.is_none() && must_wait {
            self.saw_all = false;
            return Room::Busy;
        }
        room
    }

    /// Locks a key or manifest, if its lock is free, and counts its running jobs.
    fn lock_shared(&mut self, shared: &Shared) {
        let held = limit::held(&self.counter, shared);
        // The holder still has the lock when it rings, so a session that waits only for the ring
        // would find the lock taken again.
        self.saw_all &= held.is_some();
        if held.is_some() {
            self.locks += 1;
            self.idle.push(Idle::Shared(shared.clone()));
        }
        let of = held.map(|held| PickedShared {
            held,
            is_used: false,
            allowed: HashMap::new(),
        });
        self.shared.insert(shared.clone(), of);
    }

    pub(super) fn block(&self) {
        if !self.blocked.is_empty() {
            limit::block(&self.blocked);
        }
    }
}

/// Returns the values of a row that are stored out of line, each read once.
fn values_beside(scan: &Scan) -> Result<[Option<(Waiting, pg_sys::Datum)>; 2]> {
    let fetch = |column| match scan.value(column) {
        Some(value) if toast::is_beside(value) => Ok(Some((column, toast::fetched(value)?))),
        _ => Ok(None),
    };
    Ok([fetch(Waiting::Input)?, fetch(Waiting::Trace)?])
}
