//! The scan behind a pick: the best rows of many lanes, in the order of claiming.
//!
//! Words: a *section* is one priority of one lane, a range of the index `work_queue_ready`, in order of age. A *head* is
//! what is known of the next row of a lane or a section: a lower bound of its place until somebody has looked.
//!
//! Heads wait in a heap. The best one is looked at when it comes up, and goes back with its true place: so a claim
//! reads the index for no more lanes than may have what it takes.

use super::lane::Lane;
use crate::clock::Timestamp;
use crate::group;
use crate::shmem::{Finding, Found, Hint};
use crate::table::{Index, Key, Scan, Table, View};
use crate::work_queue::Waiting;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Instant;

/// Most heads that keep a scan, of 30 kB each; another head makes its own when it comes up.
const SCANS_AT_MOST: usize = 64;
const PRIORITIES: i16 = group::HIGHEST_PRIORITY as i16 + 1;

const HIGHEST_RANK: i32 = (PRIORITIES as i32) * (PRIORITIES as i32) - 1;

/// The priority of a group and of its jobs as one number; waiting lifts a job by steps of it, past 31 into the next
/// higher group.
fn rank(lane: &Lane, priority: i16) -> i32 {
    i32::from(lane.group_priority) * i32::from(PRIORITIES) + i32::from(priority)
}

/// Where a job stands in the order of claiming.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    rank: Reverse<i32>,
    job_id: i64,
}

/// `trax.work_queue` and its index, open for one pick.
pub(super) struct Queue<'lanes> {
    pub(super) table: Table,
    index: Index,
    pub(super) view: View,
    /// A scan by all priorities of a lane below one, once a lane is looked at of which nothing is known.
    below: Option<Scan>,
    /// How many heads have a scan of their own.
    scans: usize,
    heads: BinaryHeap<Head<'lanes>>,
    findings: Vec<Finding>,
    now: Timestamp,
    /// How much waiting is worth a step of priority, in microseconds.
    aging: Option<i64>,
}

impl<'lanes> Queue<'lanes> {
    /// Opens the queue over these lanes.
    pub(super) fn open(lanes: &'lanes [Lane], now: Timestamp, aging: Option<i64>) -> Self {
        // What is known is read before the snapshot is taken, so that findings can be told from news.
        let heads = lanes
            .iter()
            .filter(|lane| !lane.gate.is_closed(now.0))
            .filter_map(|lane| Head::of_lane(lane, now, aging.is_some()))
            .collect::<Vec<_>>();
        let table = Table::open(Waiting::TABLE, Waiting::ALL);
        let index = Index::open(&table, c"work_queue_ready");
        let view = View::of_transaction();
        Self {
            below: None,
            scans: 0,
            table,
            index,
            view,
            heads: BinaryHeap::from(heads),
            findings: Vec::new(),
            now,
            aging,
        }
    }

    /// The head of the best row that has not been looked at, with its scan at that row.
    pub(super) fn next(&mut self) -> Option<Head<'lanes>> {
        loop {
            let mut head = self.heads.pop()?;
            match head.stage {
                Stage::Row(priority) => {
                    if head.scan.is_none() {
                        head.scan = self.scan_of(head.lane, priority, head.place.job_id);
                        debug_assert!(head.scan.is_some(), "seen under the same snapshot");
                    }
                    return Some(head);
                }
                Stage::Lane => self.open_lane(&head),
                Stage::Section(priority, bound) => self.look_at_section(&head, priority, bound),
                Stage::Below(limit) => self.look_below(&head, limit),
            }
        }
    }

    /// Goes on after the row of `head`.
    pub(super) fn advance(&mut self, mut head: Head<'lanes>) {
        match (&head.scan, head.stage) {
            (Some(scan), Stage::Row(priority)) if scan.next() => {
                head.place = self.place(head.lane, priority, scan);
                self.push_seen(head);
            }
            _ => self.end(head),
        }
    }

    /// Keeps a head whose row has been seen, and its scan unless there are many: each takes 13 kB.
    fn push_seen(&mut self, mut head: Head<'lanes>) {
        if self.scans > SCANS_AT_MOST {
            self.end_scan(&mut head);
        }
        self.heads.push(head);
    }

    /// Goes no further with `head`.
    pub(super) fn end(&mut self, mut head: Head<'lanes>) {
        self.end_scan(&mut head);
    }

    fn end_scan(&mut self, head: &mut Head<'lanes>) {
        if let Some(scan) = head.scan.take() {
            scan.end();
            self.scans -= 1;
        }
    }

    /// A scan of a section at its first row from a job on, if there is one.
    fn scan_of(&mut self, lane: &Lane, priority: i16, job_id: i64) -> Option<Scan> {
        let scan = self.index.scan(&self.view, 3);
        scan.seek([
            Key::equals(1, lane.id),
            Key::equals_small(2, priority),
            Key::at_least(3, job_id),
        ]);
        if scan.next() {
            self.scans += 1;
            return Some(scan);
        }
        scan.end();
        None
    }

    fn open_lane(&mut self, head: &Head<'lanes>) {
        let (bounds, known) = head.lane.key.bounds();
        for (priority, bound) in bounds {
            let stage = Stage::Section(priority, bound);
            self.heads
                .push(head.at(stage, priority, bound, self.aging.is_some()));
        }
        if known > 0 {
            let stage = Stage::Below(known);
            self.heads
                .push(head.at(stage, known - 1, 0, self.aging.is_some()));
        }
    }

    fn look_at_section(&mut self, head: &Head<'lanes>, priority: i16, bound: i64) {
        let first = self.scan_of(head.lane, priority, bound).map(|scan| {
            let place = self.place(head.lane, priority, &scan);
            let mut seen = head.moved(Stage::Row(priority), place);
            seen.scan = Some(scan);
            self.push_seen(seen);
            place.job_id
        });
        if first != Some(bound) {
            self.find(head, Found::Of(priority, first));
        }
    }

    fn look_below(&mut self, head: &Head<'lanes>, limit: i16) {
        let began = Instant::now();
        let below = match self.below.take() {
            Some(scan) => scan,
            None => self.index.scan(&self.view, 2),
        };
        below.seek([Key::equals(1, head.lane.id), Key::less_small(2, limit)]);
        let first = below.next().then(|| {
            let priority = below.number(Waiting::Priority) as i16;
            let place = self.place(head.lane, priority, &below);
            self.heads.push(head.moved(Stage::Row(priority), place));
            (priority, place.job_id)
        });
        self.below = Some(below);
        let took = began.elapsed().as_micros() as i64;
        self.find(head, Found::Below(limit, first, took));
        if let Some((priority @ 1.., _)) = first {
            let stage = Stage::Below(priority);
            self.heads
                .push(head.at(stage, priority - 1, 0, self.aging.is_some()));
        }
    }

    fn find(&mut self, head: &Head, found: Found) {
        self.findings.push(Finding {
            lane: head.lane.key,
            changes: head.changes,
            found,
        });
    }

    /// Where the row that `scan` shows stands now.
    fn place(&self, lane: &Lane, priority: i16, scan: &Scan) -> Place {
        let steps = self.aging.map_or(0, |step| {
            let since = scan
                .number(Waiting::QueuedAt)
                .max(scan.number(Waiting::RunAt));
            ((self.now.0 - since).max(0) / step).min(i64::from(HIGHEST_RANK)) as i32
        });
        Place {
            rank: Reverse((rank(lane, priority) + steps).min(HIGHEST_RANK)),
            job_id: scan.number(Waiting::JobId),
        }
    }

    /// Closes the queue; the locks stay. What it found counts unless `selfish`: this transaction sees less than others.
    pub(super) fn close(self, selfish: bool) {
        for scan in self.heads.into_iter().filter_map(|head| head.scan) {
            scan.end();
        }
        if let Some(below) = self.below {
            below.end();
        }
        self.view.end();
        self.index.close();
        self.table.close();
        if !selfish {
            crate::shmem::raise(&self.findings, self.now.0);
        }
    }
}

#[derive(Clone, Copy)]
enum Stage {
    /// Nothing has been read but the best bound of the lane.
    Lane,
    /// Rows of this priority, from this job on.
    Section(i16, i64),
    /// Rows of all priorities below this one.
    Below(i16),
    /// A row of this priority has been seen.
    Row(i16),
}

/// The next row of a lane or a section.
pub(super) struct Head<'lanes> {
    place: Place,
    pub(super) lane: &'lanes Lane,
    /// The count of changes of the lane before the snapshot.
    changes: u64,
    stage: Stage,
    /// At the row, once the head has come up.
    scan: Option<Scan>,
}

impl<'lanes> Head<'lanes> {
    fn of_lane(lane: &'lanes Lane, now: Timestamp, ages: bool) -> Option<Self> {
        let known = lane.key.known(now.0);
        let (stage, priority, job_id) = match known.hint {
            Hint::Empty => return None,
            Hint::Best(priority, job_id) => (Stage::Lane, priority, job_id),
            Hint::Nothing => (Stage::Below(PRIORITIES), PRIORITIES - 1, 0),
        };
        let unplaced = Self {
            place: Place::BEST,
            lane,
            changes: known.changes,
            stage,
            scan: None,
        };
        Some(unplaced.at(stage, priority, job_id, ages))
    }

    /// A head of the same lane whose row has this priority and this job at best; with aging it may stand anywhere.
    fn at(&self, stage: Stage, priority: i16, job_id: i64, ages: bool) -> Self {
        let place = if ages {
            Place::BEST
        } else {
            Place {
                rank: Reverse(rank(self.lane, priority)),
                job_id,
            }
        };
        self.moved(stage, place)
    }

    fn moved(&self, stage: Stage, place: Place) -> Self {
        Self {
            place,
            lane: self.lane,
            changes: self.changes,
            stage,
            scan: None,
        }
    }

    /// The row.
    pub(super) fn scan(&self) -> Option<&Scan> {
        self.scan.as_ref()
    }
}

impl Place {
    const BEST: Self = Self {
        rank: Reverse(i32::MAX),
        job_id: i64::MIN,
    };
}

/// `BinaryHeap` gives its greatest element first: the head with the smallest place.
impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.place.cmp(&self.place)
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl Eq for Head<'_> {}
