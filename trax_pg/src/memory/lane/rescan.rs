//! The rescan: reads a few sections at a time from their true beginning in the index.
//!
//! A rescan corrects starts that are after a row, and frees entries of sections without rows. This
//! file decides when a rescan is due, and which sections are next; `claim/sections.rs` reads them.

use super::{
    AT_ONCE, LONGEST_PAUSE_MICROS, RESCAN_MICROS, RESCAN_SHARE, SWEEP_AT_MOST, Section, own,
};
use std::sync::atomic::Ordering;

/// Returns the next sections to check for remaining rows. Perhaps no claim has read them since
/// their last rows were taken.
pub(crate) fn to_sweep() -> Vec<Section> {
    let Some((memory, database)) = own() else {
        return Vec::new();
    };
    let shared = &memory.databases[database];
    memory.read(|entries| {
        let mut at = shared.swept.load(Ordering::Relaxed) as usize;
        let end = (at + AT_ONCE * 4).min(entries.unused as usize);
        let mut sections = Vec::new();
        while at < end && sections.len() < SWEEP_AT_MOST {
            let entry = &entries.entries[at];
            if usize::from(entry.database) == database {
                sections.push(entry.section());
            }
            at += 1;
        }
        let next = if at < entries.unused as usize { at } else { 0 };
        shared.swept.store(next as u32, Ordering::Relaxed);
        sections
    })
}

/// Returns the section after which to rescan, if a rescan is due; `Some` for only one of several
/// sessions that ask at the same time.
pub(crate) fn rescan_due(now: i64) -> Option<Section> {
    let (memory, database) = own()?;
    let shared = &memory.databases[database];
    let due = shared.rescan_at.load(Ordering::Relaxed);
    // After the clock was set back, do not wait for the old time.
    if due > now && due <= now + LONGEST_PAUSE_MICROS {
        return None;
    }
    let soon = now + RESCAN_MICROS;
    shared
        .rescan_at
        .compare_exchange(due, soon, Ordering::Relaxed, Ordering::Relaxed)
        .ok()?;
    Some(Section {
        lane: shared.rescanned_lane.load(Ordering::Relaxed) ^ i64::MIN,
        priority: shared.rescanned_priority.load(Ordering::Relaxed) as i16,
    })
}

/// Records where a rescan stopped, `None` at the end, and how many microseconds it took.
pub(crate) fn rescanned(stopped: Option<Section>, now: i64, took: i64) {
    let Some((memory, database)) = own() else {
        return;
    };
    let shared = &memory.databases[database];
    let pause = took.saturating_mul(RESCAN_SHARE).min(LONGEST_PAUSE_MICROS);
    let pause = if stopped.is_none() {
        pause.max(RESCAN_MICROS)
    } else {
        pause
    };
    let next = stopped.unwrap_or(Section::BEFORE_ALL);
    shared
        .rescanned_lane
        .store(next.lane ^ i64::MIN, Ordering::Relaxed);
    shared
        .rescanned_priority
        .store(i64::from(next.priority), Ordering::Relaxed);
    shared.rescan_at.store(now + pause, Ordering::Relaxed);
}
