//! Where the repair of sections stopped (`claim/sections.rs`), for all sessions of a database.

use super::{Section, own};
use std::sync::atomic::Ordering;

/// Returns the section after which the next pass continues; `None` without shared memory, or if
/// this database has no bell.
pub(crate) fn repaired_to() -> Option<Section> {
    let (memory, database) = own()?;
    let shared = &memory.databases[database];
    Some(Section {
        lane: shared.repaired_lane.load(Ordering::Relaxed) ^ i64::MIN,
        priority: shared.repaired_priority.load(Ordering::Relaxed) as i16,
    })
}

/// Stores where a pass stopped; `None` at the end.
pub(crate) fn repaired(stopped: Option<Section>) {
    let Some((memory, database)) = own() else {
        return;
    };
    let shared = &memory.databases[database];
    let next = stopped.unwrap_or(Section::BEFORE_ALL);
    shared
        .repaired_lane
        .store(next.lane ^ i64::MIN, Ordering::Relaxed);
    shared
        .repaired_priority
        .store(i64::from(next.priority), Ordering::Relaxed);
}

/// Returns the next sections that have an entry, about `at_most`. Perhaps no claim has read them
/// since their last rows were taken.
pub(crate) fn next_entries(at_most: usize) -> Vec<Section> {
    let Some((memory, database)) = own() else {
        return Vec::new();
    };
    let shared = &memory.databases[database];
    let mut sections = Vec::new();
    let mut at = Some(shared.repaired_entry.load(Ordering::Relaxed) as usize);
    while let Some(from) = at.filter(|_| sections.len() < at_most) {
        at = memory.read(|entries| {
            let (part, next) = entries.part(database, from);
            sections.extend(part.map(|entry| entry.section()));
            next
        });
    }
    shared
        .repaired_entry
        .store(at.unwrap_or(0) as u32, Ordering::Relaxed);
    sections
}
