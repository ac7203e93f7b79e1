//! The scan behind a pick: the best rows of many lanes, in the order of claiming.
//!
//! A *section* is one priority of one lane, a range of the index `work_queue_ready` in order of
//! age. A *candidate* is the next row of a section that has been scanned.
//!
//! The list of the session (`lane`) has the sections in the order of the best row that each may
//! have. A section is scanned when it is first in that order; then its candidate is kept with the
//! true order of its row. So a claim reads the index only for sections that may have rows that
//! it takes. When the scan ends, before the commit, it publishes its *findings* in shared memory:
//! the first row of each section that its snapshot showed. Rows that it takes itself count too,
//! since a rollback gives them back; a later claim whose snapshot shows them deleted passes them.

use super::claim_order::{ClaimOrder, HIGHEST_RANK};
use super::front::Fronts;
use super::lane;
use super::lane::{Lane, List, lane_of, names};
use super::pick::Full;
use super::sections::{all_sections, read_all};
use crate::changes;
use crate::columns::Waiting;
use crate::limit::Shared;
use crate::memory;
use crate::memory::{Changes, Finding, LanesState, Peek, Section};
use crate::server::clock::Timestamp;
use crate::server::running::Running;
use crate::server::table::{Index, Key, Scan, Table, View};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Most candidates that keep a scan; the others begin a new scan when they are the best. A scan
/// takes 30 kB, of which 27 kB are room for the positions of the rows of two index pages.
const SCANS_AT_MOST: usize = 64;
/// `trax.work_queue` and its index, open for one pick.
pub(super) struct Queue {
    pub(super) table: Table,
    index: Index,
    pub(super) view: View,
    list: List,
    /// The state of shared memory before the snapshot; `None` if this claim reads all sections from
    /// the index and publishes nothing.
    state: Option<LanesState>,
    /// How often the first jobs of rates had changed before the snapshot.
    changes: Changes,
    /// The first job of each section that this transaction has made claimable.
    own: HashMap<Section, i64>,
    /// The list has all sections that had rows when the claim began.
    pub(super) is_current: bool,
    /// How many candidates have their own scan.
    scans: usize,
    /// In the order of claiming.
    candidates: BTreeMap<ClaimOrder, Candidate>,
    scanned: Vec<Scanned>,
    fronts: Fronts,
    now: Timestamp,
    /// The waiting time that raises a job by one priority, in microseconds.
    aging: Option<i64>,
}

/// A section that was scanned from the job `from` on, and its first row.
struct Scanned {
    section: Section,
    from: i64,
    first: Option<i64>,
}

impl Scanned {
    fn is(&self, section: Section) -> bool {
        self.section == section
    }

    fn differs(&self) -> bool {
        self.first != Some(self.from)
    }
}

impl Queue {
    /// Opens the queue over the sections of a list.
    pub(super) fn open(mut list: List, now: Timestamp, aging: Option<i64>) -> Self {
        memory::end_skips();
        // Read before the snapshot is taken, so that changes after it are recognized.
        let state = memory::lanes().filter(|_| !changes::has_written_manually());
        let own = changes::own_claimable();
        let changes = Changes::read();
        let table = Table::open(Waiting::TABLE, Waiting::ALL);
        let index = Index::open(&table, c"work_queue_ready");
        let mut state = state;
        let view = match &mut state {
            Some(state) => {
                if !list.catch_up(state) {
                    read_all(&index, state, &mut list);
                }
                list.put_opened(now.0);
                View::of_transaction()
            }
            None => {
                let view = View::of_transaction();
                list.clear();
                list.add(all_sections(&index, &view));
                view
            }
        };
        list.add(own.iter().map(|(&section, &job_id)| (section, job_id)));
        let is_current = state.is_none() || list.is_whole();
        Self {
            table,
            index,
            view,
            list,
            state,
            changes,
            own,
            is_current,
            scans: 0,
            candidates: BTreeMap::new(),
            scanned: Vec::new(),
            fronts: Fronts::default(),
            now,
            aging,
        }
    }

    /// Returns the best remaining candidate, with its scan at the row.
    pub(super) fn next(&mut self) -> Option<Candidate> {
        loop {
            pgrx::check_for_interrupts!();
            let seen = self.candidates.first_key_value().map(|(order, _)| *order);
            let best = self.list.best();
            if best.is_some_and(|best| seen.is_none_or(|seen| best <= seen)) {
                self.scan_best();
                continue;
            }
            let (_, mut candidate) = self.candidates.pop_first()?;
            if candidate.scan.is_none() {
                candidate.scan = self.scan_of(candidate.section, candidate.order.job_id);
                debug_assert!(candidate.scan.is_some(), "seen under the same snapshot");
            }
            return Some(candidate);
        }
    }

    /// Continues after the row of `candidate`, which stays in its lane if its key or manifest is
    /// `busy`.
    pub(super) fn advance(&mut self, mut candidate: Candidate, busy: Option<Shared>) {
        let job_id = candidate.order.job_id;
        let next = candidate
            .scan
            .as_ref()
            .filter(|scan| scan.next())
            .map(|scan| scan.number(Waiting::JobId));
        if let Some(shared) = busy {
            let section = candidate.section;
            let mut scanned = self.scanned.iter();
            let is_first = || scanned.any(|seen| seen.is(section) && seen.first == Some(job_id));
            let next = next.unwrap_or(job_id + 1);
            self.fronts.add(section, job_id, shared, next, is_first);
        }
        if next.is_some()
            && let Some(scan) = &candidate.scan
            && let Some(lane) = self.first_wanted(scan, &candidate.lane)
        {
            candidate.order = self.order(candidate.section, &lane, scan);
            candidate.lane = lane;
            self.push_seen(candidate);
        } else {
            self.end(candidate);
        }
    }

    /// Keeps a candidate whose row has been seen, and its scan unless [`SCANS_AT_MOST`] are kept.
    fn push_seen(&mut self, mut candidate: Candidate) {
        if self.scans > SCANS_AT_MOST {
            self.end_scan(&mut candidate);
        }
        self.candidates.insert(candidate.order, candidate);
    }

    /// Drops `candidate`, and keeps the lanes behind the gates of a rate until it has room; not for
    /// long if other claims may find another first job of the key.
    pub(super) fn close_gates(&mut self, candidate: Candidate, full: &Full, may_differ: bool) {
        let gates = full.gates;
        if full.one_at > self.now.0 {
            self.list.close(gates.used, full.one_at);
            gates.used.raise(full.used, full.one_at);
        }
        let at = match may_differ {
            true => full.at.min(self.now.0 + memory::GATE_MICROS),
            false => full.at,
        };
        if at > full.one_at && gates.save_until(at, &self.changes) {
            self.list.close(gates.saved, at);
        }
        self.end(candidate);
    }

    /// Returns whether a gate of the lane has been found closed since this claim scanned it.
    pub(super) fn is_closed(&mut self, lane: &Lane) -> bool {
        self.list.has_closed() && self.list.closed_gate(lane, self.now.0).is_some()
    }

    /// Drops `candidate`.
    pub(super) fn end(&mut self, mut candidate: Candidate) {
        self.end_scan(&mut candidate);
    }

    fn end_scan(&mut self, candidate: &mut Candidate) {
        if let Some(scan) = candidate.scan.take() {
            scan.end();
            self.scans -= 1;
        }
    }

    /// Returns a scan of a section at its first row from a job on, if there is one.
    fn scan_of(&mut self, section: Section, job_id: i64) -> Option<Scan> {
        let scan = self.index.scan(&self.view, 3);
        scan.seek([
            Key::equals(1, section.lane),
            Key::equals_small(2, section.priority),
            Key::at_least(3, job_id),
        ]);
        if scan.next() {
            self.scans += 1;
            return Some(scan);
        }
        scan.end();
        None
    }

    /// Scans the best section that has not been scanned.
    fn scan_best(&mut self) {
        let Some((section, known)) = self.list.take_best() else {
            return;
        };
        let lane = lane::known(section.lane);
        if let Some(lane) = &lane {
            let closed = self.list.closed_gate(lane, self.now.0);
            if let Some(gate) = closed {
                self.list.put_behind(section, gate);
            }
            self.list.put_next_of(lane, self.now.0);
            if closed.is_some() {
                return;
            }
        }
        let own = self.own.get(&section).copied();
        let from = match self.state.as_ref().map(|_| memory::peek(section)) {
            Some(Peek::From(bound)) => own.map_or(bound, |own| own.min(bound)),
            Some(Peek::Empty) => match own {
                Some(own) => own,
                None => return self.list.drop(section),
            },
            Some(Peek::Unknown) | None => known,
        };
        // Other sessions have claimed from it, so it may no longer be the best.
        if from > known && self.aging.is_none() {
            return self.list.put(section, from);
        }
        let scan = self.scan_of(section, from);
        let first = scan.as_ref().map(|scan| scan.number(Waiting::JobId));
        let scanned = Scanned {
            section,
            from,
            first,
        };
        self.scanned.push(scanned);
        if let Some(scan) = scan {
            self.see(section, lane, scan);
        }
    }

    /// Keeps the first row of a section as its candidate, if the claim may take it.
    fn see(&mut self, section: Section, lane: Option<Rc<Lane>>, scan: Scan) {
        let lane = lane.unwrap_or_else(|| lane_of(&scan, section.lane));
        let mut candidate = Candidate {
            order: ClaimOrder::BEST,
            lane,
            section,
            scan: Some(scan),
        };
        if !self.list.wants(&candidate.lane) {
            self.list.drop(section);
            return self.end(candidate);
        }
        let lane = candidate
            .scan()
            .and_then(|scan| self.first_wanted(scan, &candidate.lane));
        match lane {
            Some(lane) if self.list.closed_gate(&lane, self.now.0).is_none() => {
                candidate.lane = lane;
                if let Some(scan) = candidate.scan() {
                    candidate.order = self.order(section, &candidate.lane, scan);
                }
                self.push_seen(candidate);
            }
            _ => self.end(candidate),
        }
    }

    /// Moves `scan` to the next row that the claim may take, which may be the current one, and
    /// returns its lane. The lane differs from `lane` only if two lanes have the same hash.
    fn first_wanted(&self, scan: &Scan, lane: &Rc<Lane>) -> Option<Rc<Lane>> {
        loop {
            pgrx::check_for_interrupts!();
            let names = names(scan);
            if lane.is(names) {
                return Some(Rc::clone(lane));
            }
            let other = Lane::new(names);
            if self.list.wants(&other) {
                return Some(other);
            }
            if !scan.next() {
                return None;
            }
        }
    }

    /// Returns the order of the row that `scan` shows.
    fn order(&self, section: Section, lane: &Lane, scan: &Scan) -> ClaimOrder {
        let steps = self.aging.map_or(0, |step| {
            let since = ready_since(scan);
            ((self.now.0 - since).max(0) / step).min(i64::from(HIGHEST_RANK)) as i32
        });
        let job_id = scan.number(Waiting::JobId);
        ClaimOrder::new(self.list.priority(lane), section.priority, job_id).lifted(steps)
    }

    /// Closes the queue and keeps the locks. Publishes the findings unless they are private: this
    /// transaction may see fewer rows than others. Returns when the next rate has room for which
    /// rows were left.
    pub(super) fn close(
        mut self,
        is_private: bool,
        holders_of: impl Fn(&Shared) -> Vec<Running>,
    ) -> Option<i64> {
        if self.state.is_some() && !is_private {
            for (section, bound) in self.fronts.skip(holders_of) {
                let seen = self.scanned.iter_mut().find(|seen| seen.is(section));
                seen.expect("a front that was scanned").first = Some(bound);
            }
        }
        let candidates = self.candidates.into_values();
        candidates
            .filter_map(|candidate| candidate.scan)
            .for_each(Scan::end);
        self.view.end();
        self.index.close();
        self.table.close();
        let opens_at = self.list.opens_at();
        let Some(state) = self.state else {
            return opens_at;
        };
        let findings: Vec<Finding> = self
            .scanned
            .iter()
            .filter(|scanned| !is_private && scanned.differs())
            .map(|scanned| Finding {
                section: scanned.section,
                first: scanned.first,
            })
            .collect();
        let mut holds = memory::raise(&state, &findings, self.is_current).into_iter();
        for scanned in &self.scanned {
            let holds = !is_private && (!scanned.differs() || holds.next().unwrap_or(false));
            self.list
                .put_back(scanned.section, scanned.first, holds, self.now.0);
        }
        self.list.keep();
        opens_at
    }
}

/// Returns since when the row that `scan` shows can be claimed.
pub(super) fn ready_since(scan: &Scan) -> i64 {
    let queued_at = scan.number(Waiting::QueuedAt);
    queued_at.max(scan.number(Waiting::RunAt))
}

/// The next row of a section.
pub(super) struct Candidate {
    order: ClaimOrder,
    pub(super) lane: Rc<Lane>,
    section: Section,
    /// At the row; always present once the candidate is the best.
    scan: Option<Scan>,
}

impl Candidate {
    /// Returns the scan that is positioned at the row.
    pub(super) fn scan(&self) -> Option<&Scan> {
        self.scan.as_ref()
    }
}
