//! Reads the sections that have rows from the index: all of them if shared memory does not have
//! all, and some of them in each repair.

use super::lane;
use super::lane::{List, lane_of};
use crate::changes;
use crate::columns::Waiting;
use crate::memory;
use crate::memory::{Finding, LanesState, Section};
use crate::server::lock::{Lock, Mode};
use crate::server::table::{Index, Key, Scan, Table, View};
use pgrx::pg_sys;
use std::time::Instant;

/// Sections that one repair reads from the index, and entries that it checks: 3 µs each.
const REPAIR_AT_MOST: usize = 2000;

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
    let rows = all_sections(index, &view);
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

/// Reads the next sections from their true beginning, and checks whether the next sections with
/// entries still have rows. So starts after a row are lowered, and the entries of sections without
/// rows are freed.
pub(crate) fn repair() {
    // Rows that this transaction has taken are not seen, and a rollback brings them back.
    if changes::has_taken() || changes::has_written_manually() {
        return;
    }
    let (Some(state), Some(after)) = (memory::lanes(), memory::repaired_to()) else {
        return;
    };
    let table = Table::open(Waiting::TABLE, Waiting::ALL);
    let index = Index::open(&table, c"work_queue_ready");
    let view = View::latest();
    let (rows, stopped) = sections(&index, &view, after, REPAIR_AT_MOST, |_, _| ());
    let scan = index.scan(&view, 2);
    let has_rows = |section: &Section| {
        scan.seek([
            Key::equals(1, section.lane),
            Key::equals_small(2, section.priority),
        ]);
        scan.next()
    };
    let mut entries = memory::next_entries(REPAIR_AT_MOST);
    entries.retain(|section| !has_rows(section));
    scan.end();
    view.end();
    index.close();
    table.close();
    let empty = entries.into_iter().map(|section| Finding {
        section,
        first: None,
    });
    memory::publish(&state, &rows, false);
    memory::raise(&state, &empty.collect::<Vec<_>>(), true);
    memory::repaired(stopped);
}

/// Reads all sections that have rows, each with its first job, and learns the names of their lanes.
pub(super) fn all_sections(index: &Index, view: &View) -> Vec<(Section, i64)> {
    let learn = |scan: &Scan, lane| {
        if lane::known(lane).is_none() {
            lane_of(scan, lane);
        }
    };
    sections(index, view, Section::BEFORE_ALL, usize::MAX, learn).0
}

/// Returns the sections after `after` that have rows, each with its first job, up to `at_most`; and
/// the last of them if it stopped there. Calls `at_row` at the first row of each, with its lane.
fn sections(
    index: &Index,
    view: &View,
    after: Section,
    at_most: usize,
    at_row: impl Fn(&Scan, i64),
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
        at_row(scan, at.lane);
        rows.push((at, scan.number(Waiting::JobId)));
    };
    within.end();
    beyond.end();
    (rows, stopped)
}
