//! What places promise, without a server.

use super::{Database, Finding, LanesState, Memory, PLACES, Places, Section};
use std::sync::atomic::Ordering;

fn empty() -> Box<Memory> {
    // SAFETY: all zero is a valid, empty memory.
    unsafe { Box::new_zeroed().assume_init() }
}

/// The places of a memory that nobody else has.
#[allow(clippy::mut_from_ref, reason = "as the lock lets one have them")]
fn places(memory: &Memory) -> &mut Places {
    // SAFETY: a test is alone with it, and uses one at a time.
    unsafe { &mut *memory.places.get() }
}

fn section(lane: i64) -> Section {
    Section { lane, priority: 3 }
}

fn state(head: &Database) -> LanesState {
    LanesState {
        changes: head.changes.load(Ordering::SeqCst),
        void: head.void.load(Ordering::SeqCst),
        losses: head.losses.load(Ordering::SeqCst),
        crowded: false,
    }
}

fn finding(lane: i64, first: Option<i64>) -> Finding {
    let section = section(lane);
    Finding { section, first }
}

#[test]
fn places_are_found_until_they_are_removed_and_then_used_again() {
    let memory = empty();
    let places = places(&memory);
    for round in 0..3 {
        for lane in 0..1000 {
            let (database, head) = (lane as usize % 2, &memory.databases[lane as usize % 2]);
            places.lower(head, database, (section(lane), 10 + lane));
        }
        assert_eq!(places.taken, 1000, "round {round}");
        assert!(places.find(1, section(2)).is_none(), "of another database");
        for lane in 0..1000 {
            let (database, head) = (lane as usize % 2, &memory.databases[lane as usize % 2]);
            let number = places.find(database, section(lane)).expect("it is there");
            assert_eq!(places.at(number).bound, 10 + lane);
            places.remove(head, database, number);
            assert!(places.find(database, section(lane)).is_none());
        }
        assert_eq!(places.taken, 0);
        assert!(places.unused <= 1000);
        assert_eq!(memory.databases[0].newest.load(Ordering::Relaxed), 0);
        assert_eq!(memory.databases[0].oldest.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn what_was_changed_last_comes_first_and_what_was_not_lowered_does_not_come() {
    let memory = empty();
    let head = &memory.databases[0];
    let places = places(&memory);
    for (lane, bound) in [(1, 50), (2, 50), (3, 50), (1, 60), (2, 40)] {
        places.lower(head, 0, (section(lane), bound));
    }
    let since = |change| -> Vec<(i64, i64)> {
        let rows = places.since(head, change).expect("few").into_iter();
        rows.map(|(section, bound)| (section.lane, bound)).collect()
    };
    assert_eq!(since(0), [(2, 40), (1, 50), (3, 50)]);
    assert_eq!(since(3), [(2, 40)]);
    assert_eq!(since(5), []);
}

#[test]
fn a_database_with_any_number_of_lanes_leaves_places_for_others() {
    let memory = empty();
    let places = places(&memory);
    let mut counts = Vec::new();
    for (database, head) in memory.databases.iter().enumerate().take(4) {
        for lane in 0..PLACES as i64 {
            places.lower(head, database, (section(lane), 1));
        }
        counts.push(head.count.load(Ordering::Relaxed));
        let last = places.find(database, section(PLACES as i64 - 1));
        assert!(last.is_some(), "the last has its place, the first has not");
        assert!(places.find(database, section(0)).is_none());
        // Who knew everything before the oldest that is left misses nothing.
        let lost = head.lost();
        let number = head.oldest.load(Ordering::Relaxed);
        assert!(lost < places.at(number).changed);
        assert_eq!(lost, PLACES as u64 - u64::from(counts[database]));
    }
    assert!(counts[0] > 80_000 && counts[3] > 3_000, "{counts:?}");
}

#[test]
fn a_place_made_while_not_all_are_known_hides_no_older_row() {
    let memory = empty();
    let head = &memory.databases[0];
    let places = places(&memory);
    let before = state(head);
    places.lower(head, 0, (section(1), 100));
    let number = places.find(0, section(1)).expect("it is there");
    assert!(!places.at(number).exact, "an older row may wait");
    // Somebody who saw less than there was does not make it exact, who read all does.
    assert!(!places.believe(head, 0, &finding(1, None), &before, true));
    assert!(places.believe(head, 0, &finding(1, Some(50)), &state(head), false));
    assert!(!places.at(number).exact);
    assert!(places.note(
        head,
        0,
        (section(1), 50),
        head.changes.load(Ordering::SeqCst)
    ));
    assert!(places.at(number).exact);
    assert_eq!(places.at(number).bound, 50);
}

#[test]
fn what_is_void_counts_for_nothing() {
    let memory = empty();
    let head = &memory.databases[0];
    let places = places(&memory);
    places.lower(head, 0, (section(1), 100));
    let before = state(head);
    head.make_void();
    assert!(places.valid(head, 0, section(1)).is_none());
    assert!(!places.believe(head, 0, &finding(1, None), &before, true));
    assert!(!places.believe(head, 0, &finding(2, None), &before, true));
    let now = state(head);
    assert!(head.lost() > before.changes && head.lost() <= now.changes);
    assert!(places.note(head, 0, (section(1), 7), now.changes));
    let number = places.valid(head, 0, section(1)).expect("it is noted");
    assert!(places.at(number).exact);
    assert_eq!(places.since(head, now.changes).expect("few"), []);
}

#[test]
fn an_empty_section_is_not_believed_to_be_so_when_its_place_was_lost() {
    let memory = empty();
    let head = &memory.databases[0];
    let places = places(&memory);
    places.lower(head, 0, (section(1), 100));
    let before = state(head);
    places.lower(head, 0, (section(1), 101));
    let oldest = head.oldest.load(Ordering::Relaxed);
    head.lose(places.at(oldest).changed);
    places.remove(head, 0, oldest);
    assert!(!places.believe(head, 0, &finding(1, None), &before, true));
    assert!(places.believe(head, 0, &finding(1, None), &state(head), true));
}
