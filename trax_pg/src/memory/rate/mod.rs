//! Rates: until when each key of a rate is used up.
//!
//! A *unit* is the time in which a rate allows one more start: its period divided by what it
//! allows. Each key has a time *until* which it is used: a start of a cost moves it on by as many
//! units, from now if it has passed. A start is granted if that time then lies at most the units of
//! a burst ahead of now. So in any window starts at most burst + allowed * window / period (the
//! generic cell rate algorithm): the first start in the window leaves the time at one unit after
//! the window's beginning or later, each start moves it by a unit, and at the last it lies at most
//! a burst after the window's end. That holds for starts in any order, also if one session reads
//! the clock before another and is granted after it.
//!
//! All of this holds for two clocks, and a start needs both: the server's clock, by which starts
//! are recorded, and the machine's uptime, which cannot be set. After the server's clock went back,
//! a key waits until it has caught up, or until the correction of clocks ([`correct`]).
//!
//! Holds: never too many. A key without an entry is unused, except that:
//! - after a start of the server, and after a standby was promoted, all keys count as just used up
//!   at the first use of this memory, which the scheduler makes when it begins;
//! - an entry from before the last change of its rate counts as just used up at that change;
//! - of entries whose place was needed for another key, the bucket keeps the latest time: it counts
//!   for each key of the bucket that has no entry.
//!
//! A start that is undone is given back if no other start of its keys came in between.

use super::area::Area;
use crate::server::clock::{Reading, TOLERANCE_MICROS, Timestamp};
use pgrx::PgLwLock;

/// Number of entries of a bucket, and of buckets: room for 131,072 keys in use at once, 5.3 MiB.
/// With half as many, 2 % of the buckets are full.
const WAYS: usize = 8;
const BUCKETS: usize = 1 << 14;
/// The longest time, in nanoseconds, that the units of a burst may take together: 100 years.
pub(crate) const LONGEST_BURST: i64 = 100 * 366 * 86_400 * 1_000_000_000;

/// A time on both clocks, in nanoseconds. All zero is the distant past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Moment {
    shown: i64,
    uptime: i64,
}

impl Moment {
    const PAST: Self = Self {
        shown: 0,
        uptime: 0,
    };

    fn of(reading: Reading) -> Self {
        Self {
            shown: nanos(reading.shown),
            uptime: reading.uptime.saturating_mul(1000),
        }
    }

    fn plus(self, nanos: i64) -> Self {
        Self {
            shown: self.shown.saturating_add(nanos),
            uptime: self.uptime.saturating_add(nanos),
        }
    }

    /// Returns an earlier moment, seen from this one, by what the clock showed.
    fn at(self, shown: i64) -> Self {
        let since = self.shown.saturating_sub(shown).max(0);
        Self {
            shown,
            uptime: self.uptime.saturating_sub(since),
        }
    }

    fn latest(self, other: Self) -> Self {
        Self {
            shown: self.shown.max(other.shown),
            uptime: self.uptime.max(other.uptime),
        }
    }

    /// Returns how far it is ahead of `now`, by the clock for which that is more.
    fn ahead_of(self, now: Self) -> i64 {
        let shown = self.shown.saturating_sub(now.shown);
        shown.max(self.uptime.saturating_sub(now.uptime))
    }
}

fn nanos(time: Timestamp) -> i64 {
    time.0.saturating_mul(1000)
}

/// The settings of a rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// The time for one start, in nanoseconds, rounded up.
    unit: i64,
    burst: i64,
    created_at: Timestamp,
    changed_at: Timestamp,
}

impl Limit {
    /// Returns the limit of `allowed` starts in each period of these microseconds; `None` if the
    /// unit is shorter than a microsecond, or the burst longer than [`LONGEST_BURST`].
    pub(crate) fn new(
        (allowed, period, burst): (i64, i64, i64),
        created_at: Timestamp,
        changed_at: Timestamp,
    ) -> Option<Self> {
        let unit = i128::from(period) * 1000;
        let unit = (unit + i128::from(allowed) - 1) / i128::from(allowed.max(1));
        let is_possible = unit >= 1000 && unit * i128::from(burst) <= i128::from(LONGEST_BURST);
        is_possible.then_some(Self {
            unit: unit as i64,
            burst,
            created_at,
            changed_at,
        })
    }

    pub(crate) fn burst(self) -> i64 {
        self.burst
    }

    /// Returns the time that a burst takes.
    fn full(self) -> i64 {
        self.unit.saturating_mul(self.burst)
    }

    /// Returns the time that a cost takes.
    fn of_cost(self, cost: i64) -> i64 {
        self.unit.saturating_mul(cost)
    }

    /// Returns when the rate was last changed.
    fn changed(self, now: Moment) -> Moment {
        now.at(nanos(self.changed_at))
    }
}

/// What a start uses: a key of a rate, which a hash identifies, and how much of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) key: u128,
    pub(crate) limit: Limit,
    pub(crate) cost: i64,
}

/// The answer to the demands of one start.
#[derive(Debug)]
pub(crate) enum Answer {
    Granted(Grant),
    /// The demand with this number is granted at this time, after this many microseconds, if
    /// nothing else uses the key before.
    Later {
        demand: usize,
        at: Timestamp,
        micros: i64,
        /// When a cost of 1 is granted.
        one_at: Timestamp,
    },
}

/// A granted start.
#[derive(Debug)]
pub(crate) struct Grant {
    /// The time for which it was granted: the start must be recorded with it.
    pub(crate) at: Timestamp,
    used: Vec<Used>,
}

/// The change of one key.
#[derive(Debug)]
struct Used {
    key: u128,
    before: Moment,
    after: Moment,
}

/// All zero is free.
#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    key: [u64; 2],
    until: Moment,
    /// The last change of the rate when the entry was written.
    changed_at: i64,
}

#[repr(C)]
struct Bucket {
    entries: [Entry; WAYS],
    /// The latest time of the entries that were replaced.
    floor: Moment,
}

#[repr(C)]
pub(super) struct Memory {
    /// The first use, before which nothing is known.
    began: Moment,
    buckets: [Bucket; BUCKETS],
}

pub(super) static RATES: Area<Memory> = Area::zeroed(c"trax rates");
// SAFETY: no other lock has this name.
pub(super) static LOCK: PgLwLock<u32> = unsafe { PgLwLock::new(c"trax rating") };

/// Runs `work` under the lock; returns `None` without shared memory.
fn exclusive<T>(work: impl FnOnce(&mut Memory) -> T) -> Option<T> {
    let memory = RATES.start();
    if memory.is_null() {
        return None;
    }
    let _lock = LOCK.exclusive();
    // SAFETY: the lock is exclusive.
    Some(work(unsafe { &mut *memory }))
}

/// Begins to know what is used, unless that has begun. Only on a primary.
pub(crate) fn begin() {
    let now = Moment::of(Reading::now());
    exclusive(|memory| memory.begin(now));
}

/// Uses the keys of all demands, or none of them. `None` without shared memory.
pub(crate) fn consume(demands: &[Demand]) -> Option<Answer> {
    // Allocated outside the lock, because an allocation may fail.
    let mut used = Vec::with_capacity(demands.len());
    let reading = Reading::now();
    let now = Moment::of(reading);
    let later = exclusive(|memory| memory.consume(demands, now, &mut used))?;
    Some(match later {
        Some((demand, nanos)) => {
            let Demand { limit, cost, .. } = demands[demand];
            let of_one = nanos.saturating_sub(limit.of_cost(cost - 1)).max(0);
            Answer::Later {
                demand,
                at: reading.shown.plus(micros(nanos)),
                micros: micros(nanos),
                one_at: reading.shown.plus(micros(of_one)),
            }
        }
        None => Answer::Granted(Grant {
            at: reading.shown,
            used,
        }),
    })
}

/// Gives back what a start has used that did not come about, if that cannot be too much.
pub(crate) fn give_back(grant: &Grant) {
    exclusive(|memory| grant.used.iter().for_each(|used| memory.restore(used)));
}

/// Returns how much of a key may start now, and when a cost may. `None` without shared memory.
pub(crate) fn left(demand: &Demand) -> Option<(i64, Timestamp)> {
    let reading = Reading::now();
    let now = Moment::of(reading);
    let limit = demand.limit;
    exclusive(|memory| {
        memory.begin(now);
        let ahead = memory.until(demand.key, limit, now).ahead_of(now).max(0);
        let free = limit.full().saturating_sub(ahead);
        let wait = limit.of_cost(demand.cost).saturating_sub(free).max(0);
        ((free / limit.unit).max(0), reading.shown.plus(micros(wait)))
    })
}

/// Corrects the times of keys that were used while the server's clock was ahead of `now`; returns
/// how many. The uptime says how far ahead they should be.
pub(crate) fn correct(now: Timestamp) -> usize {
    let now = Moment::of(Reading::of(now));
    exclusive(|memory| memory.correct(now)).unwrap_or(0)
}

fn micros(nanos: i64) -> i64 {
    nanos.saturating_add(999) / 1000
}

impl Memory {
    fn begin(&mut self, now: Moment) {
        if self.began == Moment::PAST {
            self.began = now;
        }
    }

    fn bucket(&mut self, key: u128) -> &mut Bucket {
        &mut self.buckets[key as usize % BUCKETS]
    }

    /// Returns until when a key is used.
    fn until(&mut self, key: u128, limit: Limit, now: Moment) -> Moment {
        let began = self.began;
        let changed = limit.changed(now);
        let used_up = changed.plus(limit.full());
        let bucket = self.bucket(key);
        let was_in_use = |until: Moment| until.ahead_of(changed) > 0;
        match bucket.entries.iter().find(|entry| entry.is(key)) {
            Some(entry) if entry.changed_at == limit.changed_at.0 => entry.until,
            Some(entry) => {
                // The change of the entry may have been rolled back since.
                let shown = nanos(Timestamp(entry.changed_at));
                let changed = changed.latest(now.at(shown));
                match entry.until.ahead_of(changed) > 0 {
                    true => changed.plus(limit.full()),
                    false => Moment::PAST,
                }
            }
            None => {
                let floor = bucket.floor;
                let floor = if was_in_use(floor) {
                    floor.latest(used_up)
                } else {
                    floor
                };
                let is_newer = nanos(limit.created_at) > began.shown;
                let since = if is_newer {
                    Moment::PAST
                } else {
                    began.latest(changed)
                };
                floor.latest(since.plus(if is_newer { 0 } else { limit.full() }))
            }
        }
    }

    /// Uses the keys of all demands, or returns the one that must wait longest and for how long.
    fn consume(
        &mut self,
        demands: &[Demand],
        now: Moment,
        used: &mut Vec<Used>,
    ) -> Option<(usize, i64)> {
        self.begin(now);
        let mut later = None;
        for (number, demand) in demands.iter().enumerate() {
            let before = self.until(demand.key, demand.limit, now);
            let after = before.latest(now).plus(demand.limit.of_cost(demand.cost));
            let wait = after.plus(-demand.limit.full()).ahead_of(now);
            if wait > later.map_or(0, |(_, longest)| longest) {
                later = Some((number, wait));
            }
            let key = demand.key;
            used.push(Used { key, before, after });
        }
        if later.is_none() {
            for (demand, used) in demands.iter().zip(used) {
                self.write(demand, used.after, now);
            }
        }
        later
    }

    fn write(&mut self, demand: &Demand, until: Moment, now: Moment) {
        let bucket = self.bucket(demand.key);
        let entry = bucket.place(demand.key, now);
        *entry = Entry {
            key: halves(demand.key),
            until,
            changed_at: demand.limit.changed_at.0,
        };
    }

    fn restore(&mut self, used: &Used) {
        let bucket = self.bucket(used.key);
        let mut entries = bucket.entries.iter_mut();
        let same = entries.find(|entry| entry.is(used.key) && entry.until == used.after);
        if let Some(entry) = same {
            entry.until = used.before;
        }
    }

    fn correct(&mut self, now: Moment) -> usize {
        let mut corrected = 0;
        let mut correct = |time: &mut Moment| {
            let ahead = time.uptime.saturating_sub(now.uptime).max(0);
            let right = now.shown.saturating_add(ahead);
            if time.shown.saturating_sub(right) > TOLERANCE_MICROS * 1000 {
                time.shown = right;
                corrected += 1;
            }
        };
        correct(&mut self.began);
        for bucket in &mut self.buckets {
            correct(&mut bucket.floor);
            bucket
                .entries
                .iter_mut()
                .for_each(|entry| correct(&mut entry.until));
        }
        corrected
    }
}

impl Bucket {
    /// Returns the entry of a key, or the one whose time comes first, which is given to the key.
    fn place(&mut self, key: u128, now: Moment) -> &mut Entry {
        let own = self.entries.iter().position(|entry| entry.is(key));
        let index = own.unwrap_or_else(|| {
            let ahead = |index: &usize| self.entries[*index].until.ahead_of(now);
            let first = (0..WAYS).min_by_key(ahead).expect("there are entries");
            self.floor = self.floor.latest(self.entries[first].until);
            first
        });
        &mut self.entries[index]
    }
}

impl Entry {
    fn is(&self, key: u128) -> bool {
        self.key == halves(key)
    }
}

fn halves(key: u128) -> [u64; 2] {
    [(key >> 64) as u64, key as u64]
}

#[cfg(test)]
mod tests;
