//! The look again: sections whose place nobody wants, and those whose start may be wrong, a few at
//! a time.

use super::{
    AT_ONCE, LONGEST_PAUSE_MICROS, LOOK_AGAIN_MICROS, LOOK_AGAIN_SHARE, SWEEP_AT_MOST, Section, own,
};
use std::sync::atomic::Ordering;

/// The next sections whose places are to be looked at again: nobody may want what they had.
pub(crate) fn to_sweep() -> Vec<Section> {
    let Some((memory, database)) = own() else {
        return Vec::new();
    };
    let head = &memory.databases[database];
    memory.read(|places| {
        let mut at = head.swept.load(Ordering::Relaxed) as usize;
        let end = (at + AT_ONCE * 4).min(places.unused as usize);
        let mut sections = Vec::new();
        while at < end && sections.len() < SWEEP_AT_MOST {
            let place = &places.places[at];
            if usize::from(place.database) == database {
                sections.push(place.section());
            }
            at += 1;
        }
        let next = if at < places.unused as usize { at } else { 0 };
        head.swept.store(next as u32, Ordering::Relaxed);
        sections
    })
}

/// The section after which to look again, if it is time to; `Some` for one of those who ask at
/// once.
pub(crate) fn look_again(now: i64) -> Option<Section> {
    let (memory, database) = own()?;
    let head = &memory.databases[database];
    let due = head.look_at.load(Ordering::Relaxed);
    // A clock that was set back must not make it wait for the old time.
    if due > now && due <= now + LONGEST_PAUSE_MICROS {
        return None;
    }
    let soon = now + LOOK_AGAIN_MICROS;
    head.look_at
        .compare_exchange(due, soon, Ordering::Relaxed, Ordering::Relaxed)
        .ok()?;
    Some(Section {
        lane: head.looked_lane.load(Ordering::Relaxed) ^ i64::MIN,
        priority: head.looked_priority.load(Ordering::Relaxed) as i16,
    })
}

/// Says where a look again stopped, `None` at the end, and how long it took in microseconds.
pub(crate) fn looked_again(stopped: Option<Section>, now: i64, took: i64) {
    let Some((memory, database)) = own() else {
        return;
    };
    let head = &memory.databases[database];
    let pause = took
        .saturating_mul(LOOK_AGAIN_SHARE)
        .min(LONGEST_PAUSE_MICROS);
    let pause = if stopped.is_none() {
        pause.max(LOOK_AGAIN_MICROS)
    } else {
        pause
    };
    let next = stopped.unwrap_or(Section::BEFORE_ALL);
    head.looked_lane
        .store(next.lane ^ i64::MIN, Ordering::Relaxed);
    head.looked_priority
        .store(i64::from(next.priority), Ordering::Relaxed);
    head.look_at.store(now + pause, Ordering::Relaxed);
}
