//! Reads the sections that have rows from the index: all of them if shared memory does not have
//! all, and a few at a time for the rescan.

use super::lane;
use super::lane::{List, lane_of};
use crate::columns::Waiting;
use crate::memory;
use crate::memory::{Finding, LanesState, Section};
use crate::server::clock::Timestamp;
use crate::server::lock::{Lock, Mode};
use crate::server::table::{Index, Key, View};
use pgrx::pg_sys;
use std::time::Instant;

/// Sections that one rescan reads: 0.1 ms.
const RESCAN_AT_MOST: usize = 32;

/// Reads all sections from the index into `list`, and publishes them. If shared memory has room for
/// all, one session reads at a time, and the others wait for it and use its result.
pub(super) fn read_all(index: &Index, state: &mut LanesState, list: &mut List) {
    let is_alone = Lock::Sections.take_if_free(Mode::Alone);
    if !is_alone && !state.is_overfull && may_wait() {
        Lock::Sections.take(Mode::Share);
        Lock::Sections.give_back(Mode::Share);
        if let Some(now) = memory::lanes() {
            *state = now;
        }
        if list.catch_up(state) {
            return;
        }
    }
    let began = Instant::now();
    let view = View::latest();
    let (rows, _) = sections(index, &view, Section::BEFORE_ALL, usize::MAX);
    view.end();
    list.was_read(&rows, state, began);
    memory::publish(state, &rows, true);
    if is_alone {
        Lock::Sections.give_back(Mode::Alone);
    }
}

/// Returns whether this session may wait for another. With a `lock_timeout` it reads the index
/// itself, because the wait could raise an error.
fn may_wait() -> bool {
    // SAFETY: a plain number.
    unsafe { pg_sys::LockTimeout == 0 }
}

/// Reads the next few sections after `after` from their true beginning, and checks whether some
/// sections with entries still have rows.
pub(super) fn rescan(
    index: &Index,
    state: &LanesState,
    list: &mut List,
    after: Section,
    now: Timestamp,
) {
    let began = Instant::now();
    let view = View::latest();
    let (rows, stopped) = sections(index, &view, after, RESCAN_AT_MOST);
    let mut empty = Vec::new();
    let scan = index.scan(&view, 2);
    for section in memory::to_sweep() {
        scan.seek([
            Key::equals(1, section.lane),
            Key::equals_small(2, section.priority),
        ]);
        if !scan.next() {
            let first = None;
            empty.push(Finding { section, first });
        }
    }
    scan.end();
    view.end();
    memory::publish(state, &rows, false);
    memory::raise(state, &empty, true);
    list.add(rows);
    memory::rescanned(stopped, now.0, began.elapsed().as_micros() as i64);
}

/// Returns the sections after `after` that have rows, each with its first job, up to `at_most`; and
/// the last of them if it stopped there.
pub(super) fn sections(
    index: &Index,
    view: &View,
    after: Section,
    at_most: usize,
) -> (Vec<(Section, i64)>, Option<Section>) {
    let (within, beyond) = (index.scan(view, 2), index.scan(view, 1));
    let mut rows = Vec::new();
    let mut at = after;
    let stopped = loop {
        if rows.len() >= at_most {
            break Some(at);
        }
        pgrx::check_for_interrupts!();
        let lower = at.priority > 0 && {
            within.seek([Key::equals(1, at.lane), Key::less_small(2, at.priority)]);
            within.next()
        };
        let next = lower || {
            beyond.seek([Key::above(1, at.lane)]);
            beyond.next()
        };
        if !next {
            break None;
        }
        let scan = if lower { &within } else { &beyond };
        at = Section {
            lane: scan.number(Waiting::LaneId),
            priority: scan.number(Waiting::Priority) as i16,
        };
        if lane::known(at.lane).is_none() {
            lane_of(scan, at.lane);
        }
        rows.push((at, scan.number(Waiting::JobId)));
    };
    within.end();
    beyond.end();
    (rows, stopped)
}
