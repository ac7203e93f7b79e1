//! The lanes that a claim may take jobs from.
//!
//! A session keeps a *list* for each filter that it claims with: the sections (one priority of one
//! lane) that may have rows, the best first. Before a claim, the sections that were lowered since
//! the last one are added from shared memory (`memory/lane`). So the cost of a claim depends on the
//! recent changes and on the rows that it scans, and not on the number of lanes. If shared memory
//! does not have all sections, the list is read from the index.
//!
//! The sections of a full group, or of a key of a rate that is used up, wait behind a gate
//! (`memory/bound.rs`). When the gate opens, or its time is over, the best of them is put in front
//! of it. The next one follows when a claim begins to scan that one,
//! and is put back if the gate has closed meanwhile. So a claim that finds the group full again has
//! scanned few of its sections, mostly one; and whatever waits for a rate, a claim reads one row of
//! it at the time at which the rate has room.
//!
//! The number of a lane is a hash of its names, which a session learns from the
//! first row that it sees. Until then a section is sorted as if its group had the highest
//! priority. Holds: a list may be out of date, so a claim checks again, under the lock of a group,
//! whether its jobs may run (`limit::group::room`).

mod order;

use super::Request;
use super::claim_order::ClaimOrder;
use crate::access_scope::Scope;
use crate::changes;
use crate::columns::Waiting;
use crate::memory;
use crate::memory::{Bound, LanesState, RateGates, Section};
use crate::server::bounded_cache::BoundedCache;
use crate::server::spi::{Spi, row, statement};
use crate::server::table::Scan;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Most lists that a session keeps, and most sections in them together, of 100 bytes each. The list
/// that was used last is always kept.
const LISTS: usize = 16;
const SECTIONS_KEPT: usize = 262_144;
/// How long the groups that were read are used, or longer if the read took long.
const OLDEST: Duration = Duration::from_secs(1);
/// Data whose read took long is used for this many times as long.
const KEEP_TIMES: u32 = 20;
/// Most lanes whose names a session keeps, and most groups of which it keeps whether they are
/// limited.
const NAMES: usize = 65_536;

row! {
    struct LaneGroup {
        name: String,
        priority: i16,
        enabled: bool,
        rate: Option<String>,
    }
}
statement!(LaneGroups, "claim/lane_groups.sql" -> LaneGroup);

/// The names that the jobs of a lane have in common, in a row.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) group: &'a str,
    pub(super) task: &'a str,
    pub(super) run_as: Option<&'a str>,
    pub(super) version: Option<&'a str>,
    pub(super) rate: Option<&'a str>,
    pub(super) rate_key: Option<&'a str>,
}

/// The group, the task and the version of a lane; for SQL jobs also the role that runs them.
pub(super) struct Lane {
    pub(super) group: String,
    pub(super) task: String,
    run_as: Option<String>,
    version: Option<String>,
    /// The gate of its group.
    pub(super) gate: Bound,
    pub(super) rate: Option<LaneRate>,
}

/// The rate and the key that each job of a lane uses.
pub(super) struct LaneRate {
    pub(super) name: String,
    pub(super) key: Option<String>,
    pub(super) gates: RateGates,
}

impl Lane {
    pub(super) fn new(names: Names) -> Rc<Self> {
        Rc::new(Self {
            group: names.group.to_owned(),
            task: names.task.to_owned(),
            run_as: names.run_as.map(str::to_owned),
            version: names.version.map(str::to_owned),
            gate: Bound::full_until(names.group),
            rate: names.rate.map(|name| LaneRate {
                name: name.to_owned(),
                key: names.rate_key.map(str::to_owned),
                gates: RateGates::of(name, names.rate_key.unwrap_or("")),
            }),
        })
    }

    pub(super) fn is(&self, names: Names) -> bool {
        self.group == names.group
            && self.task == names.task
            && self.run_as.as_deref() == names.run_as
            && self.version.as_deref() == names.version
            && self.rate.as_ref().map(|rate| rate.name.as_str()) == names.rate
            && self.rate.as_ref().and_then(|rate| rate.key.as_deref()) == names.rate_key
    }
}

/// What a claim asks for.
#[derive(Default, PartialEq)]
struct Filter {
    tasks: Option<Vec<String>>,
    groups: Option<Vec<String>>,
    /// Jobs without a version are taken beside these; `None` takes all.
    versions: Option<Vec<String>>,
    /// The scope of the caller.
    scope: Scope,
    /// The role of an executor: workers claim no SQL jobs, and executors nothing else.
    run_as: Option<String>,
}

thread_local! {
    static LANES: RefCell<BoundedCache<i64, Rc<Lane>, NAMES>> = RefCell::default();
    /// The last change that discarded all entries before these names were seen.
    static NAMES_SINCE: Cell<u64> = const { Cell::new(0) };
    static GROUPS: RefCell<Option<(Rc<Groups>, GroupsRead)>> = RefCell::default();
    /// The list that was used last is at the end.
    static KEPT: RefCell<Vec<List>> = RefCell::default();
    static LIMITED: RefCell<BoundedCache<String, bool, NAMES>> = RefCell::default();
}

/// Returns the lane with this number, if a row of it has been seen.
pub(super) fn known(lane: i64) -> Option<Rc<Lane>> {
    LANES.with_borrow(|lanes| lanes.get(&lane).cloned())
}

/// Returns the names of the lane of the row that `scan` shows.
pub(super) fn names(scan: &Scan) -> Names<'_> {
    let text = |column| scan.text(column).expect("a column that is not null");
    Names {
        group: text(Waiting::GroupName),
        task: text(Waiting::Task),
        run_as: scan.text(Waiting::RunAs),
        version: scan.text(Waiting::Version),
        rate: scan.text(Waiting::Rate),
        rate_key: scan.text(Waiting::RateKey),
    }
}

/// Returns the lane of the row that `scan` shows, and stores its names.
pub(super) fn lane_of(scan: &Scan, number: i64) -> Rc<Lane> {
    let lane = Lane::new(names(scan));
    learn(number, &lane);
    lane
}

/// Stores the names of a lane, of which a row has been seen.
fn learn(number: i64, lane: &Rc<Lane>) {
    LANES.with_borrow_mut(|lanes| lanes.insert(number, Rc::clone(lane)));
}

/// Forgets the names if rows were written by hand since, perhaps with a number that is not that of
/// their names.
fn forget_names(void: u64) {
    if NAMES_SINCE.replace(void) != void {
        LANES.take();
    }
}

/// Returns whether a group had a limit when this session last looked; `read` is called if it has
/// not.
pub(super) fn is_limited(group: &str, read: impl FnOnce() -> bool) -> bool {
    LIMITED.with_borrow_mut(|limited| {
        if let Some(known) = limited.get(group) {
            return *known;
        }
        let known = read();
        limited.insert(group.to_owned(), known);
        known
    })
}

/// Forgets whether a group has a limit, because that may have changed.
pub(super) fn limit_may_differ(group: &str) {
    LIMITED.with_borrow_mut(|limited| limited.remove(group));
}

/// The groups that are disabled or have a rate or a priority other than the default.
#[derive(PartialEq)]
pub(super) struct Groups {
    special: HashMap<String, Special>,
    highest: i16,
    any_rate: bool,
}

#[derive(PartialEq)]
struct Special {
    priority: i16,
    enabled: bool,
    rate: Option<RateGates>,
}

/// When the groups were read, and how often groups had been configured before.
struct GroupsRead {
    configured: u64,
    at: Instant,
    took: Duration,
}

impl Groups {
    /// Returns the groups, which may be as old as [`OLDEST`] allows.
    fn current(spi: &Spi) -> Rc<Self> {
        let bell = match memory::bell() {
            // The result is not kept if this transaction has changed groups itself.
            Some(bell) if !changes::has_configured() => bell,
            _ => {
                LIMITED.take();
                return Rc::new(Self::read(spi));
            }
        };
        GROUPS.with_borrow_mut(|kept| {
            // Read before the groups, so that a change meanwhile makes them out of date.
            let configured = bell.configured();
            let at = Instant::now();
            if let Some((groups, read)) = kept
                && read.configured == configured
                && read.at.elapsed() < OLDEST.max(read.took * KEEP_TIMES)
            {
                return Rc::clone(groups);
            }
            LIMITED.take();
            let groups = Self::read(spi);
            let groups = match kept.take() {
                // The lists of the session stay valid.
                Some((same, _)) if *same == groups => same,
                _ => Rc::new(groups),
            };
            let took = at.elapsed();
            let read = GroupsRead {
                configured,
                at,
                took,
            };
            *kept = Some((Rc::clone(&groups), read));
            groups
        })
    }

    fn read(spi: &Spi) -> Self {
        // The latest rows, also in REPEATABLE READ: the result is kept longer than the transaction.
        let rows = spi.query_latest(LaneGroups);
        let special: HashMap<_, _> = rows
            .iter()
            .map(|row| {
                let special = Special {
                    priority: row.priority,
                    enabled: row.enabled,
                    rate: row.rate.map(|rate| RateGates::of(&rate, "")),
                };
                (row.name, special)
            })
            .collect();
        let priorities = special.values().map(|special| special.priority);
        Self {
            highest: priorities.max().unwrap_or(0),
            any_rate: special.values().any(|special| special.rate.is_some()),
            special,
        }
    }

    fn is_on(&self, group: &str) -> bool {
        self.special
            .get(group)
            .is_none_or(|special| special.enabled)
    }

    fn priority(&self, group: &str) -> i16 {
        self.special
            .get(group)
            .map_or(0, |special| special.priority)
    }

    fn rate_gates(&self, group: &str) -> Option<RateGates> {
        if !self.any_rate {
            return None;
        }
        self.special.get(group).and_then(|special| special.rate)
    }
}

/// The sections in which a claim with one filter may find rows.
pub(super) struct List {
    filter: Filter,
    groups: Rc<Groups>,
    /// Jobs gain priority while they wait, so the order of a section is unknown until its first row
    /// is read.
    ages: bool,
    sections: HashMap<Section, KnownSection>,
    /// The sections to be scanned, the best first, then those behind gates.
    ordered: BTreeSet<Ordered>,
    /// The number of openings of gates that were applied, and when all gates were last taken for
    /// opened.
    openings: u64,
    opened_all_at: i64,
    /// The gates of rates that this session has found closed, with the time until which they are,
    /// also in the order of these times.
    closed: BTreeMap<Place, i64>,
    closings: BTreeSet<(i64, Place)>,
    /// The last change that discarded all entries, and the last change that was added.
    void: u64,
    seen: u64,
    /// The list has all sections that had rows after the change `seen`.
    is_whole: bool,
    /// When the list was read from the index, and how long that took.
    read: Option<(Instant, Duration)>,
}

/// Behind the gate with this number, or in front of all gates.
type Place = u128;
type Ordered = ((Place, ClaimOrder), Section);

/// A section in a list.
struct KnownSection {
    /// No row comes before this job.
    start: i64,
    /// Where it is in the order; `None` while it is being scanned.
    at: Option<(Place, ClaimOrder)>,
}

impl List {
    /// Returns the list for the filter of `request`, as this session last had it.
    pub(super) fn of(spi: &Spi, request: &Request, ages: bool) -> Self {
        let filter = Filter {
            tasks: request.tasks.clone(),
            groups: request.groups.clone(),
            versions: request.versions.clone(),
            scope: request.scope.clone(),
            run_as: request.run_as.clone(),
        };
        Self::filtered(spi, filter, ages)
    }

    /// Returns the list of all sections.
    pub(super) fn of_all(spi: &Spi) -> Self {
        Self::filtered(spi, Filter::default(), false)
    }

    fn filtered(spi: &Spi, filter: Filter, ages: bool) -> Self {
        let groups = Groups::current(spi);
        let kept = KEPT.with_borrow_mut(|lists| {
            let kept = lists.iter().position(|list| list.filter == filter);
            kept.map(|kept| lists.remove(kept))
        });
        if let Some(kept) = kept
            && Rc::ptr_eq(&kept.groups, &groups)
            && kept.ages == ages
        {
            return kept;
        }
        Self {
            filter,
            groups,
            ages,
            sections: HashMap::new(),
            ordered: BTreeSet::new(),
            openings: 0,
            opened_all_at: 0,
            closed: BTreeMap::new(),
            closings: BTreeSet::new(),
            void: 0,
            seen: 0,
            is_whole: false,
            read: None,
        }
    }

    /// Keeps the list for the next claim of this session.
    pub(super) fn keep(mut self) {
        // Frees memory after a list has shrunk.
        if self.sections.len() * 8 + 1024 < self.sections.capacity() {
            self.sections.shrink_to_fit();
        }
        KEPT.with_borrow_mut(|lists| {
            lists.push(self);
            let mut sections: usize = lists.iter().map(|list| list.sections.len()).sum();
            while lists.len() > LISTS || lists.len() > 1 && sections > SECTIONS_KEPT {
                sections -= lists.remove(0).sections.len();
            }
        });
    }

    /// Adds the sections that were lowered since the last claim; returns false if all sections must
    /// be read from the index.
    pub(super) fn catch_up(&mut self, state: &LanesState) -> bool {
        if self.void != state.void {
            forget_names(state.void);
            self.clear();
            self.void = state.void;
        }
        if self.is_whole {
            self.follow(state);
        }
        if self.is_whole {
            return true;
        }
        if let Some(all) = memory::all() {
            self.begin(&all.rows, all.last);
            return true;
        }
        // If changes are lost again and again, the index is not read at every claim.
        let was_read = self
            .read
            .is_some_and(|(at, took)| at.elapsed() < took * KEEP_TIMES);
        if was_read {
            self.follow(state);
        }
        was_read
    }

    /// Adds the sections that were lowered since the change `seen`.
    fn follow(&mut self, state: &LanesState) {
        let lowered = memory::lowered_since(state, self.seen);
        self.seen = lowered.last;
        self.is_whole &= lowered.whole;
        self.add(lowered.rows);
    }

    /// Returns whether the list has all sections that had rows when the claim began.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Replaces the list by all sections, as they were after the change `seen`.
    fn begin(&mut self, rows: &[(Section, i64)], seen: u64) {
        self.clear();
        self.add(rows.iter().copied());
        self.seen = seen;
        self.is_whole = true;
    }

    /// Replaces the list by all sections, which were read from the index since `at`, and after
    /// `state` was read.
    pub(super) fn was_read(&mut self, rows: &[(Section, i64)], state: &LanesState, at: Instant) {
        self.begin(rows, state.changes);
        self.read = Some((at, at.elapsed()));
    }

    pub(super) fn clear(&mut self) {
        self.sections.clear();
        self.ordered.clear();
        self.forget_closed();
        self.seen = 0;
        self.is_whole = false;
        self.read = None;
    }

    /// Adds sections, and lowers the starts of known ones.
    pub(super) fn add(&mut self, rows: impl IntoIterator<Item = (Section, i64)>) {
        for (section, start) in rows {
            if known(section.lane).is_none_or(|lane| self.wants(&lane)) {
                self.lower(section, start);
            }
        }
    }

    /// Returns whether a claim with this filter takes jobs of the lane.
    pub(super) fn wants(&self, lane: &Lane) -> bool {
        let contains = |names: &Option<Vec<String>>, name: &String| {
            names.as_ref().is_none_or(|names| names.contains(name))
        };
        let filter = &self.filter;
        filter.run_as == lane.run_as
            && self.groups.is_on(&lane.group)
            && contains(&filter.tasks, &lane.task)
            && contains(&filter.groups, &lane.group)
            && lane
                .version
                .as_ref()
                .is_none_or(|version| contains(&filter.versions, version))
            && filter.scope.allows(&lane.task, &lane.group)
    }

    pub(super) fn priority(&self, lane: &Lane) -> i16 {
        self.groups.priority(&lane.group)
    }
}
