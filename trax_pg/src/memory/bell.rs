//! Bells: one record for each database, for its scheduler and its sessions.
//!
//! A transaction *rings* the bell of its database after its commit, with bits that state the kinds
//! of its changes (`wake.rs`). A ring wakes the scheduler, unless it was woken for the same bits
//! since it last looked. For sessions the bell has the number of times that groups were configured,
//! and the limit of the database. Holds: a database keeps its bell until it is dropped.

use super::area::Area;
use crate::server::backend::my_database;
use pgrx::PgLwLock;
use pgrx::pg_sys;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The record of one database.
pub(crate) struct Bell {
    /// Its index among the bells.
    number: usize,
    database: AtomicU32,
    /// The bits that were rung since the scheduler last looked.
    rung: AtomicU32,
    /// How often a group was configured.
    configured: AtomicU64,
    /// A claim may have found that the database's limit is used up.
    full: AtomicBool,
    /// How many jobs may run in the database (0 for any number), when the scheduler published that
    /// (0 for never), and when it read the stored settings.
    limit: AtomicI64,
    limit_published_at: AtomicI64,
    limit_read_at: AtomicI64,
    /// When the next rate has room that a claim found used up; 0 for never.
    opens_at: AtomicI64,
    /// The latch of the database's scheduler, which is in shared memory and never freed; null while
    /// there is none.
    scheduler: AtomicPtr<pg_sys::Latch>,
    /// The last jobs whose workers must stop, each at the place of its number: the numbers that are
    /// assigned, how many are written, and the first that the scheduler has not taken.
    cancelled: [AtomicI64; CANCELS_AT_MOST],
    cancels: AtomicU32,
    cancels_written: AtomicU32,
    cancels_taken: AtomicU32,
    /// There may be transactions that were prepared before the start of the server; their names
    /// are not known here.
    older_prepared: AtomicBool,
}

/// Most databases that can have a bell.
pub(super) const BELLS_AT_MOST: usize = 1024;
/// Most jobs whose workers must stop that one notification names.
pub(crate) const CANCELS_AT_MOST: usize = 32;
/// More jobs than have a place.
const TOO_MANY: u32 = CANCELS_AT_MOST as u32 + 1;

/// The bells, by number.
pub(super) type Bells = [Bell; BELLS_AT_MOST];

pub(super) static BELLS: Area<Bells> = Area::new(c"trax bells by number", size_of::<Bells>, begin);
// Protects the assignment of bells to databases.
// SAFETY: no other lock has this name.
pub(super) static LOCK: PgLwLock<u32> = unsafe { PgLwLock::new(c"trax bells") };

/// The bell of this process's database, once found.
static BELL: AtomicPtr<Bell> = AtomicPtr::new(std::ptr::null_mut());

/// Writes the bells one by one, because all of them do not fit on the postmaster's stack.
unsafe fn begin(bells: *mut Bells) {
    for number in 0..BELLS_AT_MOST {
        // SAFETY: passed on to the caller: there is room for them.
        unsafe { bells.cast::<Bell>().add(number).write(silent_bell(number)) };
    }
}

fn silent_bell(number: usize) -> Bell {
    Bell {
        number,
        database: AtomicU32::new(0),
        rung: AtomicU32::new(0),
        configured: AtomicU64::new(0),
        full: AtomicBool::new(false),
        limit: AtomicI64::new(0),
        limit_published_at: AtomicI64::new(0),
        limit_read_at: AtomicI64::new(0),
        opens_at: AtomicI64::new(0),
        scheduler: AtomicPtr::new(std::ptr::null_mut()),
        cancelled: std::array::from_fn(|_| AtomicI64::new(0)),
        cancels: AtomicU32::new(0),
        cancels_written: AtomicU32::new(0),
        cancels_taken: AtomicU32::new(0),
        older_prepared: AtomicBool::new(true),
    }
}

/// Returns the bell of this process's database; `None` without shared memory, or if all bells are
/// in use.
pub(crate) fn bell() -> Option<&'static Bell> {
    let bells = BELLS.get()?;
    // SAFETY: null or a bell in shared memory, which lives as long as the server.
    if let Some(known) = unsafe { BELL.load(Ordering::Relaxed).as_ref() } {
        return Some(known);
    }
    let database = my_database().to_u32();
    if database == 0 {
        return None;
    }
    let bell = take(bells, database);
    if bell.is_none() {
        // The launcher frees the bells of dropped databases.
        super::wake_launcher();
    }
    let bell = bell?;
    BELL.store(std::ptr::from_ref(bell).cast_mut(), Ordering::Relaxed);
    Some(bell)
}

/// Returns the bell of a database; assigns it a free one if it has none.
fn take(bells: &'static Bells, database: u32) -> Option<&'static Bell> {
    let _lock = LOCK.exclusive();
    if let Some(bell) = of(bells, database) {
        return Some(bell);
    }
    let free = of(bells, 0)?;
    free.database.store(database, Ordering::Relaxed);
    Some(free)
}

/// Returns the bell of a database; for 0, a free one.
fn of(bells: &[Bell], database: u32) -> Option<&Bell> {
    bells
        .iter()
        .find(|bell| bell.database.load(Ordering::Relaxed) == database)
}

/// Returns whether the bell of a database has rung since its scheduler last looked.
pub(crate) fn has_rung(database: pg_sys::Oid) -> bool {
    let bell = BELLS.get().and_then(|bells| of(bells, database.to_u32()));
    bell.is_some_and(Bell::has_rung)
}

/// Returns the databases that have a bell.
pub(super) fn databases() -> Vec<u32> {
    let Some(bells) = BELLS.get() else {
        return Vec::new();
    };
    let _lock = LOCK.share();
    let owners = bells.iter();
    owners
        .map(|bell| bell.database.load(Ordering::Relaxed))
        .filter(|&owner| owner != 0)
        .collect()
}

/// Returns the numbers of the bells of these databases.
pub(super) fn numbers(databases: &[u32]) -> Vec<usize> {
    let Some(bells) = BELLS.get() else {
        return Vec::new();
    };
    let _lock = LOCK.share();
    of_any(bells, databases)
}

/// Frees the bells of dropped databases, to which no session is connected any more.
pub(super) fn free(gone: &[u32]) {
    if let Some(bells) = BELLS.get() {
        let _lock = LOCK.exclusive();
        silence(bells, gone);
    }
}

fn of_any(bells: &[Bell], databases: &[u32]) -> Vec<usize> {
    let of_them = databases.iter().filter_map(|&database| of(bells, database));
    of_them.map(|bell| bell.number).collect()
}

fn silence(bells: &[Bell], gone: &[u32]) {
    for number in of_any(bells, gone) {
        bells[number].silence();
    }
}

impl Bell {
    /// Returns its index among the bells.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    fn silence(&self) {
        self.scheduler
            .store(std::ptr::null_mut(), Ordering::Relaxed);
        self.rung.store(0, Ordering::Relaxed);
        self.full.store(false, Ordering::Relaxed);
        self.cancels.store(0, Ordering::Relaxed);
        self.cancels_written.store(0, Ordering::Relaxed);
        self.cancels_taken.store(0, Ordering::Relaxed);
        self.older_prepared.store(true, Ordering::Relaxed);
        self.limit.store(0, Ordering::Relaxed);
        self.limit_published_at.store(0, Ordering::Relaxed);
        self.opens_at.store(0, Ordering::Relaxed);
        self.database.store(0, Ordering::Relaxed);
    }

    /// Wakes the scheduler, unless it has been woken for all these bits since it last looked.
    pub(crate) fn ring(&self, what: u32) {
        if self.rung.fetch_or(what, Ordering::SeqCst) & what != what {
            self.wake_scheduler();
        }
    }

    fn wake_scheduler(&self) {
        let scheduler = self.scheduler.load(Ordering::SeqCst);
        if !scheduler.is_null() {
            // SAFETY: a latch in shared memory; after a new owner has taken it, that one wakes once
            // for nothing.
            unsafe { pg_sys::SetLatch(scheduler) };
        }
    }

    /// Returns how often a group was configured.
    pub(crate) fn configured(&self) -> u64 {
        self.configured.load(Ordering::SeqCst)
    }

    /// Counts that a group was configured.
    pub(crate) fn configure(&self) {
        self.configured.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether there may be transactions that were prepared before the start of the server.
    pub(crate) fn has_older_prepared(&self) -> bool {
        self.older_prepared.load(Ordering::SeqCst)
    }

    /// Stores whether there may be transactions that were prepared before the start of the server.
    pub(crate) fn set_older_prepared(&self, are_there: bool) {
        self.older_prepared.store(are_there, Ordering::SeqCst);
    }

    /// Notes that a claim is about to count under the database's limit.
    pub(crate) fn may_be_full(&self) {
        self.full.store(true, Ordering::SeqCst);
    }

    /// Returns whether a claim may have found the database full since the last call.
    pub(crate) fn found_full(&self) -> bool {
        self.full.swap(false, Ordering::SeqCst)
    }

    /// Publishes how many jobs may run in the database (`None` for any number) by the settings that
    /// were stored at `read_at`; returns true if an earlier value was different.
    pub(crate) fn publish_limit(&self, limit: Option<usize>, read_at: i64, now: i64) -> bool {
        let limit = limit.map_or(0, |limit| limit as i64);
        let before = self.limit.swap(limit, Ordering::SeqCst);
        // After the limit: who sees this time also sees the limit that was read then.
        self.limit_read_at.store(read_at, Ordering::SeqCst);
        let first = self.limit_published_at.swap(now, Ordering::SeqCst) == 0;
        !first && before != limit
    }

    /// Returns the limit that the scheduler published at `since` or later, by the settings that
    /// were stored after `connected_at`.
    pub(crate) fn published_limit(&self, since: i64, connected_at: i64) -> Option<Option<usize>> {
        let is_newer = self.limit_read_at.load(Ordering::SeqCst) > connected_at;
        (is_newer && self.limit_published_at.load(Ordering::SeqCst) >= since)
            .then(|| usize::try_from(self.limit.load(Ordering::SeqCst)).ok())
            .map(|limit| limit.filter(|&limit| limit > 0))
    }

    /// Stores the latch of this process as the scheduler's.
    pub(crate) fn set_scheduler(&self) {
        // SAFETY: the latch of this process, in shared memory.
        self.scheduler
            .store(unsafe { pg_sys::MyLatch }, Ordering::SeqCst);
    }

    /// Takes the bits that were rung since the last call; for the scheduler.
    pub(crate) fn take(&self) -> u32 {
        self.rung.swap(0, Ordering::SeqCst)
    }

    /// Returns whether the bell has rung since the last call of `take`.
    pub(crate) fn has_rung(&self) -> bool {
        self.rung.load(Ordering::SeqCst) != 0
    }

    /// Stores when a rate has room again, unless another has room earlier, and wakes the scheduler,
    /// which rings for work at that time.
    pub(crate) fn opens_at(&self, at: i64) {
        let is_earlier = |known: i64| (known == 0 || at < known).then_some(at);
        let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
        if self.opens_at.fetch_update(set, get, is_earlier).is_ok() {
            self.wake_scheduler();
        }
    }

    /// Returns when the next rate has room; takes the time if it has come. For the scheduler.
    pub(crate) fn next_opening(&self, now: i64) -> Option<i64> {
        let at = self.opens_at.load(Ordering::SeqCst);
        if at != 0 && at <= now {
            self.opens_at.store(0, Ordering::SeqCst);
        }
        (at != 0).then_some(at)
    }

    /// Adds jobs whose workers must stop. The caller rings afterwards.
    pub(crate) fn add_cancelled(&self, job_ids: &[i64]) {
        for &job_id in job_ids {
            let number = self.cancels.fetch_add(1, Ordering::SeqCst);
            self.write_cancelled(number, job_id);
        }
    }

    fn place_of(&self, number: u32) -> &AtomicI64 {
        &self.cancelled[number as usize % CANCELS_AT_MOST]
    }

    fn write_cancelled(&self, number: u32, job_id: i64) {
        self.place_of(number).store(job_id, Ordering::SeqCst);
        self.cancels_written.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes the jobs that were added since the last call; `None` if some of them are unknown. For
    /// the scheduler.
    pub(crate) fn take_cancelled(&self) -> Option<Vec<i64>> {
        let written = self.cancels_written.load(Ordering::SeqCst);
        let added = self.cancels.load(Ordering::SeqCst);
        // Equal if no job was being written between the two reads.
        let are_written = written == added;
        // A job that is written from here on may take the place of one that is added later: the
        // next call then returns `None` too.
        let taken = match are_written {
            true => added,
            false => added.wrapping_sub(TOO_MANY),
        };
        let first = self.cancels_taken.swap(taken, Ordering::SeqCst);
        let fits = |end: u32| end.wrapping_sub(first) < TOO_MANY;
        if !are_written || !fits(added) {
            return None;
        }
        let mut jobs = Vec::new();
        let mut number = first;
        while number != added {
            jobs.push(self.place_of(number).load(Ordering::SeqCst));
            number = number.wrapping_add(1);
        }
        // A later job may have taken the place of one of these.
        fits(self.cancels.load(Ordering::SeqCst)).then_some(jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::{AtomicBool, Bell, Ordering, of, of_any, silence, silent_bell};

    #[test]
    fn a_dropped_database_leaves_its_bell_to_others() {
        let bells: [Bell; 3] = std::array::from_fn(silent_bell);
        for (bell, database) in bells.iter().zip(7..) {
            bell.database.store(database, Ordering::Relaxed);
        }
        assert!(of(&bells, 0).is_none(), "all are in use");
        bells[1].limit.store(5, Ordering::Relaxed);
        silence(&bells, &[8, 100]);
        assert!(of_any(&bells, &[8, 100]).is_empty());
        assert_eq!(of_any(&bells, &[7, 9]), [0, 2], "the others keep theirs");
        let free = of(&bells, 0).expect("one is free");
        assert_eq!(free.number(), 1);
        assert_eq!(free.limit.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_limit_is_not_older_than_the_time_of_its_read() {
        let bell = silent_bell(0);
        bell.publish_limit(Some(1), 1, 1);
        let is_done = AtomicBool::new(false);
        let is_older = |_: &u32| {
            let read_at = bell.limit_read_at.load(Ordering::SeqCst);
            let limit = bell.published_limit(1, read_at - 1).flatten();
            limit.is_none_or(|limit| (limit as i64) < read_at)
        };
        std::thread::scope(|threads| {
            let older = threads.spawn(|| {
                let older = (0..1_000_000).filter(is_older).count();
                is_done.store(true, Ordering::SeqCst);
                older
            });
            for time in (2..).take_while(|_| !is_done.load(Ordering::SeqCst)) {
                bell.publish_limit(Some(time), time as i64, 1);
            }
            assert_eq!(older.join().expect("it ends"), 0);
        });
    }

    #[test]
    fn cancelled_jobs_are_named_unless_one_is_being_written() {
        let bell = silent_bell(0);
        assert_eq!(bell.take_cancelled(), Some(vec![]));
        bell.add_cancelled(&[3, 4]);
        assert_eq!(bell.take_cancelled(), Some(vec![3, 4]));
        let slow = bell.cancels.fetch_add(1, Ordering::SeqCst);
        assert_eq!(bell.take_cancelled(), None, "the first is being written");
        // The second has the number of the first's place, and is being written.
        let next = bell.cancels.fetch_add(1, Ordering::SeqCst);
        bell.write_cancelled(slow, 7);
        assert_eq!(bell.take_cancelled(), None, "the second is being written");
        bell.write_cancelled(next, 8);
        bell.add_cancelled(&[9]);
        assert_eq!(bell.take_cancelled(), None, "its place may have another");
        bell.add_cancelled(&[5]);
        assert_eq!(bell.take_cancelled(), Some(vec![5]));
        let many: Vec<i64> = (1..=32).collect();
        bell.add_cancelled(&many);
        assert_eq!(bell.take_cancelled(), Some(many.clone()));
        bell.add_cancelled(&many);
        bell.add_cancelled(&[33]);
        assert_eq!(bell.take_cancelled(), None, "more than have a place");
        bell.add_cancelled(&[34]);
        assert_eq!(bell.take_cancelled(), Some(vec![34]));
    }
}
