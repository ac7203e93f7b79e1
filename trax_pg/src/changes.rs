//! Changes: what a transaction reports to shared memory when it ends, so that claims need not read
//! what cannot be claimed.
//!
//! Enters: rows that became claimable, or that somebody wrote by hand, groups whose count of
//! running jobs changed or that were configured. Leaves: bounds lowered (`memory/lane.rs`) and
//! gates opened, after the commit and before anybody is woken; what a note says is checked when it
//! is taken, for after the commit nothing may fail. What belongs to a transaction that is undone is
//! forgotten, apart from gates: a claim that was undone makes room.

use crate::columns::HIGHEST_PRIORITY;
use crate::memory;
use crate::memory::prepared;
use crate::memory::{Floor, Gate, Section};
use crate::server::hash::name_hash;
use crate::server::spi::{Rows, row};
use crate::wake;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

#[derive(Default)]
struct Notes {
    /// The first job that became claimable, by section.
    claimable: HashMap<Section, i64>,
    /// Hashes of groups.
    groups: HashSet<u64>,
    configured: bool,
    /// Rows have been taken out of the queue.
    taken: bool,
    /// The first job whose lease has ended: if this is undone it counts again.
    ended: Option<i64>,
    /// Leases were granted beside the limit of the database.
    beside_limit: bool,
    /// Somebody has written to the queue, to leases or to groups by hand.
    by_hand: bool,
}

thread_local! {
    static NOTES: RefCell<Notes> = RefCell::default();
}

fn note(what: u32, write: impl FnOnce(&mut Notes)) {
    wake::mark(what);
    if memory::available() {
        NOTES.with_borrow_mut(write);
    }
}

/// A row of a lane is claimable from the commit on. One with a priority that no bound stands for
/// (written by hand, without the constraint) makes what is known void: at the commit nothing may
/// fail any more.
pub(crate) fn claimable(lane: i64, priority: i16, job_id: i64) {
    let is_known = (0..=HIGHEST_PRIORITY).contains(&i32::from(priority));
    note(wake::WORK, |notes| {
        if !is_known {
            notes.by_hand = true;
            return;
        }
        let section = Section { lane, priority };
        let first = notes.claimable.entry(section).or_insert(job_id);
        *first = job_id.min(*first);
    });
}

row! {
    /// A row of a lane that a statement has made claimable.
    pub(crate) struct Claimable {
        lane_id: i64,
        priority: i16,
        job_id: i64,
    }
}

/// Rows are claimable from the commit on. Returns how many.
pub(crate) fn rows_claimable(rows: &Rows<Claimable>) -> usize {
    for row in rows.iter() {
        claimable(row.lane_id, row.priority, row.job_id);
    }
    rows.len()
}

/// How many jobs of a group run has changed, or how many may.
pub(crate) fn group_changed(group: &str) {
    let hash = group_hash(group);
    note(0, |notes| {
        notes.groups.insert(hash);
    });
}

/// A group was configured.
pub(crate) fn group_configured(group: &str) {
    note(wake::WORK, |notes| notes.configured = true);
    group_changed(group);
}

/// Whether this transaction has configured groups, which nobody else knows of yet.
pub(crate) fn has_configured() -> bool {
    NOTES.with_borrow(|notes| notes.configured || notes.by_hand)
}

/// Whether this transaction has written to the queue, to leases or to groups by hand.
pub(crate) fn has_written_by_hand() -> bool {
    NOTES.with_borrow(|notes| notes.by_hand)
}

/// The first job of each section that this transaction has made claimable; nobody else knows of
/// them yet.
pub(crate) fn own_claimable() -> HashMap<Section, i64> {
    NOTES.with_borrow(|notes| notes.claimable.clone())
}

/// Rows of the queue are taken: until it ends this transaction sees less than others may find
/// again.
pub(crate) fn taken() {
    note(wake::CLAIMED, |notes| notes.taken = true);
}

pub(crate) fn has_taken() -> bool {
    NOTES.with_borrow(|notes| notes.taken)
}

/// The lease of a job ends with this transaction.
pub(crate) fn lease_ended(job_id: i64) {
    note(0, |notes| {
        notes.ended = Some(notes.ended.map_or(job_id, |first| first.min(job_id)));
    });
}

/// This transaction grants leases while it knows of no limit of the database.
pub(crate) fn granted_beside_limit() {
    note(0, |notes| notes.beside_limit = true);
}

/// The first job whose lease may count that this transaction does not see, at most `first`; `None`
/// when that is not known.
pub(crate) fn first_that_may_count(first: i64) -> Option<i64> {
    NOTES.with_borrow(|notes| {
        let ended = notes.ended.unwrap_or(i64::MAX);
        (!notes.by_hand).then_some(first.min(ended))
    })
}

/// Somebody changes the queue, leases or groups by hand: what is known of them is void.
pub(crate) fn by_hand() {
    taken();
    note(wake::WORK, |notes| notes.by_hand = true);
}

/// The gate of a group.
pub(crate) fn gate(group: &str) -> Gate {
    Gate::new(group_hash(group))
}

fn group_hash(group: &str) -> u64 {
    name_hash(&[group])
}

/// What this transaction has changed of groups counts for a claim of its own.
pub(crate) fn tell_own() {
    NOTES.with_borrow(|notes| {
        if notes.by_hand {
            memory::open_gates();
        }
        open_gates(notes);
    });
}

/// The transaction is about to commit: nobody may count what it made from a floor of before.
pub(crate) fn committing() {
    NOTES.with_borrow(|notes| {
        if notes.by_hand {
            memory::suspend_floors();
        }
        if notes.beside_limit {
            Floor::of_database().suspend();
        }
    });
}

/// The transaction has committed.
pub(crate) fn committed() {
    let notes = NOTES.take();
    if notes.by_hand {
        memory::forget();
    }
    memory::resume_floors();
    if !notes.claimable.is_empty() {
        memory::lower(
            notes
                .claimable
                .iter()
                .map(|(&section, &job_id)| (section, job_id)),
        );
    }
    if (notes.configured || notes.by_hand)
        && let Some(bell) = memory::bell()
    {
        bell.configure();
    }
    open_gates(&notes);
}

/// The transaction has been prepared under a name with this hash: another session will end it.
pub(crate) fn prepared(name: u64) {
    let notes = NOTES.take();
    open_gates(&notes);
    let rows = notes.claimable.iter();
    let claimable = prepared::claimable(rows.map(|(&section, &job_id)| (section, job_id)));
    let claimable = claimable.filter(|_| !notes.by_hand);
    prepared::remember(name, claimable, notes.configured || notes.by_hand);
}

/// What prepared transactions that have ended did counts from now on. Returns the hashes of the
/// names of those that had changed something of ours.
pub(crate) fn prepared_ended() -> Vec<u64> {
    let ended = prepared::ended();
    for prepared in &ended {
        match prepared.claimable {
            None => memory::forget(),
            Some(sections) => memory::lower(sections.into_iter().flatten()),
        }
        if prepared.configured
            && let Some(bell) = memory::bell()
        {
            bell.configure();
        }
        memory::open_gates();
        prepared::forget(prepared);
    }
    ended.iter().map(|prepared| prepared.name).collect()
}

/// The transaction, or a part of it, is undone.
pub(crate) fn undone(whole: bool) {
    if whole {
        memory::resume_floors();
        open_gates(&NOTES.take());
    } else {
        NOTES.with_borrow(open_gates);
    }
}

fn open_gates(notes: &Notes) {
    for group in &notes.groups {
        Gate::new(*group).open();
    }
}
