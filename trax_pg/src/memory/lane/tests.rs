//! Tests of the entries, without a server.

use super::{Database, ENTRIES, Finding, LaneStarts, LanesState, Memory, Section};
use crate::server::running::Running;
use pgrx::pg_sys;
use std::sync::atomic::Ordering;

fn empty() -> Box<Memory> {
    // SAFETY: all zero is a valid, empty memory.
    unsafe { Box::new_zeroed().assume_init() }
}

/// Returns the entries of a memory that only this test uses.
#[allow(clippy::mut_from_ref, reason = "as the lock lets one have them")]
fn entries(memory: &Memory) -> &mut LaneStarts {
    // SAFETY: only this test uses the memory, and one reference at a time.
    unsafe { &mut *memory.entries.get() }
}

fn section(lane: i64) -> Section {
    Section { lane, priority: 3 }
}

fn state(shared: &Database) -> LanesState {
    LanesState {
        changes: shared.changes.load(Ordering::SeqCst),
        void: shared.void.load(Ordering::SeqCst),
        losses: shared.losses.load(Ordering::SeqCst),
        is_overfull: false,
    }
}

fn finding(lane: i64, first: Option<i64>) -> Finding {
    let section = section(lane);
    Finding { section, first }
}

#[test]
fn places_are_found_until_they_are_removed_and_then_used_again() {
    let memory = empty();
    let entries = entries(&memory);
    for round in 0..3 {
        for lane in 0..1000 {
            let (database, shared) = (lane as usize % 2, &memory.databases[lane as usize % 2]);
            entries.lower(shared, database, (section(lane), 10 + lane));
        }
        assert_eq!(entries.taken, 1000, "round {round}");
        assert!(entries.find(1, section(2)).is_none(), "of another database");
        for lane in 0..1000 {
            let (database, shared) = (lane as usize % 2, &memory.databases[lane as usize % 2]);
            let number = entries.find(database, section(lane)).expect("it is there");
            assert_eq!(entries.at(number).start, 10 + lane);
            entries.remove(shared, database, number);
            assert!(entries.find(database, section(lane)).is_none());
        }
        assert_eq!(entries.taken, 0);
        assert!(entries.unused <= 1000);
        assert_eq!(memory.databases[0].newest.load(Ordering::Relaxed), 0);
        assert_eq!(memory.databases[0].oldest.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn what_was_changed_last_comes_first_and_what_was_not_lowered_does_not_come() {
    let memory = empty();
    let shared = &memory.databases[0];
    let entries = entries(&memory);
    for (lane, start) in [(1, 50), (2, 50), (3, 50), (1, 60), (2, 40)] {
        entries.lower(shared, 0, (section(lane), start));
    }
    let since = |change| -> Vec<(i64, i64)> {
        let rows = entries.since(shared, change).expect("few").into_iter();
        rows.map(|(section, start)| (section.lane, start)).collect()
    };
    assert_eq!(since(0), [(2, 40), (1, 50), (3, 50)]);
    assert_eq!(since(3), [(2, 40)]);
    assert_eq!(since(5), []);
}

#[test]
fn a_database_with_any_number_of_lanes_leaves_places_for_others() {
    let memory = empty();
    let entries = entries(&memory);
    let mut counts = Vec::new();
    for (database, shared) in memory.databases.iter().enumerate().take(4) {
        for lane in 0..ENTRIES as i64 {
            entries.lower(shared, database, (section(lane), 1));
        }
        counts.push(shared.count.load(Ordering::Relaxed));
        let last = entries.find(database, section(ENTRIES as i64 - 1));
        assert!(last.is_some(), "the last has its entry, the first has not");
        assert!(entries.find(database, section(0)).is_none());
        // A session that knew all changes before the oldest remaining entry misses none.
        let lost = shared.lost();
        let number = shared.oldest.load(Ordering::Relaxed);
        assert!(lost < entries.at(number).changed);
        assert_eq!(lost, ENTRIES as u64 - u64::from(counts[database]));
    }
    assert!(counts[0] > 80_000 && counts[3] > 3_000, "{counts:?}");
}

#[test]
fn a_place_made_while_not_all_are_known_hides_no_older_row() {
    let memory = empty();
    let shared = &memory.databases[0];
    let entries = entries(&memory);
    let before = state(shared);
    entries.lower(shared, 0, (section(1), 100));
    let number = entries.find(0, section(1)).expect("it is there");
    assert!(!entries.at(number).exact, "an older row may wait");
    // A claim that did not know all sections does not make the start exact; a read of all does.
    assert!(!entries.apply(shared, 0, &finding(1, None), &before, true));
    assert!(entries.apply(shared, 0, &finding(1, Some(50)), &state(shared), false));
    assert!(!entries.at(number).exact);
    assert!(entries.record(
        shared,
        0,
        (section(1), 50),
        shared.changes.load(Ordering::SeqCst)
    ));
    assert!(entries.at(number).exact);
    assert_eq!(entries.at(number).start, 50);
}

#[test]
fn what_is_void_counts_for_nothing() {
    let memory = empty();
    let shared = &memory.databases[0];
    let entries = entries(&memory);
    entries.lower(shared, 0, (section(1), 100));
    let before = state(shared);
    shared.discard_all();
    assert!(entries.valid(shared, 0, section(1)).is_none());
    assert!(!entries.apply(shared, 0, &finding(1, None), &before, true));
    assert!(!entries.apply(shared, 0, &finding(2, None), &before, true));
    let now = state(shared);
    assert!(shared.lost() > before.changes && shared.lost() <= now.changes);
    assert!(entries.record(shared, 0, (section(1), 7), now.changes));
    let number = entries.valid(shared, 0, section(1)).expect("it is noted");
    assert!(entries.at(number).exact);
    assert_eq!(entries.since(shared, now.changes).expect("few"), []);
}

#[test]
fn an_empty_section_is_not_believed_to_be_so_when_its_place_was_lost() {
    let memory = empty();
    let shared = &memory.databases[0];
    let entries = entries(&memory);
    entries.lower(shared, 0, (section(1), 100));
    let before = state(shared);
    entries.lower(shared, 0, (section(1), 101));
    let oldest = shared.oldest.load(Ordering::Relaxed);
    shared.lose(entries.at(oldest).changed);
    entries.remove(shared, 0, oldest);
    assert!(!entries.apply(shared, 0, &finding(1, None), &before, true));
    assert!(entries.apply(shared, 0, &finding(1, None), &state(shared), true));
}

#[test]
fn rows_that_rest_are_found_when_the_transaction_has_ended_and_not_by_a_rescan() {
    let memory = empty();
    let (entries, shared) = (entries(&memory), &memory.databases[7]);
    shared.complete.store(true, Ordering::SeqCst);
    let until = Running::of(pg_sys::TransactionId::from_inner(1000));
    entries.lower(shared, 7, (section(1), 10));
    let before = state(shared);
    assert!(entries.add_skip(shared, 7, (section(1), 10), until));
    entries.apply(shared, 7, &finding(1, Some(50)), &before, true);
    let number = entries.find(7, section(1)).expect("it is there");
    for (seen, start) in [(10, 50), (20, 50), (9, 9)] {
        assert!(entries.record(shared, 7, (section(1), seen), before.changes));
        assert_eq!(entries.at(number).start, start, "a row {seen} was read");
    }
    entries.apply(shared, 7, &finding(1, None), &state(shared), true);
    assert!(entries.record(shared, 7, (section(1), 10), state(shared).changes));
    assert!(entries.find(7, section(1)).is_none(), "it rests");
    entries.end_skips(shared, 7, Some(&[until]));
    let number = entries.find(7, section(1)).expect("it is there again");
    assert_eq!(entries.at(number).start, 10);
    assert_eq!(shared.skips.load(Ordering::Relaxed), 0);
}
