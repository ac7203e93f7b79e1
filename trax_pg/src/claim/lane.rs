//! The lanes that a claim may pick from.
//!
//! A session keeps the lists of the filters that it claims with, until shared memory says that a lane was added or a
//! group configured. A list is a hint: whether a group may run is read again under its lock (`group::room`).

use super::Request;
use crate::hint;
use crate::shmem::{self, Gate, LaneKey, LaneVersion};
use crate::spi::{Spi, arg, statement};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Filters whose lists a session keeps.
const LISTS: usize = 16;
/// How long a list is believed at most: what changes it may be committed by another session than made the change.
const OLDEST: Duration = Duration::from_secs(1);
/// A list that takes long to read is kept for so many times that long.
const KEEP_TIMES: u32 = 20;

statement!(
    LANE_LIST,
    "lane_list.sql",
    TEXTARRAYOID,
    TEXTARRAYOID,
    INT8ARRAYOID
);

#[derive(Clone)]
pub(super) struct Lane {
    pub(super) id: i64,
    pub(super) key: LaneKey,
    pub(super) group_priority: i16,
    pub(super) group: String,
    pub(super) gate: Gate,
    /// Whether the group has a limit.
    pub(super) limited: bool,
}

type Filter = (Option<Vec<String>>, Option<Vec<String>>);

/// A list, and the state of the lanes when it was read.
struct Kept {
    lanes: Rc<Vec<Lane>>,
    version: LaneVersion,
    read_at: Instant,
    took: Duration,
}

thread_local! {
    static KEPT: RefCell<HashMap<Filter, Kept>> = RefCell::default();
}

/// The lanes that `request` asks for.
pub(super) fn lanes(spi: &Spi, request: &Request) -> Rc<Vec<Lane>> {
    filtered(spi, (request.tasks.clone(), request.groups.clone()))
}

/// All lanes that a claim may pick from.
pub(super) fn all(spi: &Spi) -> Rc<Vec<Lane>> {
    filtered(spi, (None, None))
}

fn filtered(spi: &Spi, filter: Filter) -> Rc<Vec<Lane>> {
    let bell = match shmem::bell() {
        // What this transaction has changed is for itself alone.
        Some(bell) if !hint::has_changed_lanes() => bell,
        _ => return Rc::new(read(spi, &filter, None)),
    };
    KEPT.with_borrow_mut(|lists| {
        // Read before the list: what changes meanwhile makes it old.
        let version = bell.lanes();
        let began = Instant::now();
        if let Some(kept) = lists.get_mut(&filter)
            && kept.read_at.elapsed() < OLDEST.max(kept.took * KEEP_TIMES)
            && let Some(added) = bell.lanes_since(kept.version)
        {
            if !added.is_empty() {
                add(
                    Rc::make_mut(&mut kept.lanes),
                    read(spi, &filter, Some(added)),
                );
                kept.version = version;
            }
            return Rc::clone(&kept.lanes);
        }
        let lanes = Rc::new(read(spi, &filter, None));
        if lists.len() >= LISTS {
            lists.clear();
        }
        let kept = Kept {
            lanes: Rc::clone(&lanes),
            version,
            read_at: began,
            took: began.elapsed(),
        };
        lists.insert(filter, kept);
        lanes
    })
}

fn read(spi: &Spi, filter: &Filter, only: Option<Vec<i64>>) -> Vec<Lane> {
    // Also in REPEATABLE READ: the list outlives the transaction.
    let rows = spi.query_latest(
        &LANE_LIST,
        &[
            filter.0.clone().and_then(arg),
            filter.1.clone().and_then(arg),
            only.and_then(arg),
        ],
    );
    let mut lanes: Vec<Lane> = rows
        .iter()
        .map(|row| {
            let (id, group) = (row.must(1), row.must::<String>(3));
            Lane {
                id,
                key: LaneKey::new(id),
                group_priority: row.must(2),
                gate: hint::gate(&group),
                group,
                limited: row.must(4),
            }
        })
        .collect();
    // The same lane may be registered twice.
    lanes.dedup_by_key(|lane| lane.id);
    lanes
}

fn add(lanes: &mut Vec<Lane>, added: Vec<Lane>) {
    for lane in added {
        if let Err(place) = lanes.binary_search_by_key(&lane.id, |known| known.id) {
            lanes.insert(place, lane);
        }
    }
}
