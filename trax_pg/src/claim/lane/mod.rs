//! The lanes that a claim may pick from.
//!
//! A session keeps a list for each filter that it claims with: the sections that may have rows, the
//! best first. Shared memory has what was lowered since (`memory/lane`), so the cost of a claim
//! depends on what has changed and what it scans, not on how many lanes there are or ever were. If
//! shared memory does not have all sections, the list is read from the index.
//!
//! Sections of a group that was full are *parked* behind its gate, the best first. When that opens
//! the best one is scanned again, and the next when that has been taken: however many lanes a full
//! group has, a claim scans one.
//!
//! Which group and task a lane is of, its rows say; a session keeps what it has seen, which stays
//! true: the lane is a hash of the two. Until a row has been seen the section stands where the best
//! group would stand.
//!
//! A list may be out of date: whether a group may run is read again under its lock
//! (`limit::group::room`).

mod order;

use super::Request;
use super::scan::ClaimOrder;
use crate::access_scope::Scope;
use crate::changes;
use crate::memory;
use crate::memory::{Bound, LanesState, Section};
use crate::server::clock::Timestamp;
use crate::server::kept::Kept;
use crate::server::spi::{Spi, row, statement};
use std::cell::{Cell, RefCell};
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Filters whose lists a session keeps, and how many sections these may have together: 100 bytes
/// each. The list that it used last is kept whatever it has.
const LISTS: usize = 16;
const SECTIONS_KEPT: usize = 262_144;
/// How long what was read of groups is believed at most.
const OLDEST: Duration = Duration::from_secs(1);
/// What takes long to read is kept for so many times that long.
const KEEP_TIMES: u32 = 20;
/// Lanes whose names a session keeps.
const NAMES: usize = 65_536;

row! {
    struct LaneGroup {
        name: String,
        priority: i16,
        enabled: bool,
    }
}
statement!(LaneGroups, "claim/lane_groups.sql" -> LaneGroup);

/// What the jobs of a lane have in common, as a row shows it.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) group: &'a str,
    pub(super) task: &'a str,
    pub(super) run_as: Option<&'a str>,
}

/// The group and the task of a lane; of one with SQL jobs also the role that runs them.
pub(super) struct Lane {
    pub(super) group: String,
    pub(super) task: String,
    run_as: Option<String>,
    pub(super) gate: Bound,
}

impl Lane {
    pub(super) fn new(names: Names) -> Rc<Self> {
        Rc::new(Self {
            group: names.group.to_owned(),
            task: names.task.to_owned(),
            run_as: names.run_as.map(str::to_owned),
            gate: Bound::full_until(names.group),
        })
    }

    pub(super) fn is(&self, names: Names) -> bool {
        self.group == names.group
            && self.task == names.task
            && self.run_as.as_deref() == names.run_as
    }
}

/// Tasks, groups, what the caller may claim of them, and the role of an executor: workers claim no
/// SQL jobs, and executors nothing else.
type Filter = (
    Option<Vec<String>>,
    Option<Vec<String>>,
    Scope,
    Option<String>,
);

thread_local! {
    static LANES: RefCell<Kept<i64, Rc<Lane>, NAMES>> = RefCell::default();
    /// The change that made void what was known when these names were seen.
    static NAMES_SINCE: Cell<u64> = const { Cell::new(0) };
    /// How many lists were kept.
    static KEEPS: Cell<u64> = const { Cell::new(0) };
    static GROUPS: RefCell<Option<(Rc<Groups>, GroupsRead)>> = RefCell::default();
    static KEPT: RefCell<HashMap<Filter, List>> = RefCell::default();
    static LIMITED: RefCell<Kept<String, bool, NAMES>> = RefCell::default();
}

/// Returns the lane with this number, if a row of it has been seen.
pub(super) fn known(lane: i64) -> Option<Rc<Lane>> {
    LANES.with_borrow(|lanes| lanes.get(&lane).cloned())
}

/// Notes that a row of the lane has been seen.
pub(super) fn learn(number: i64, lane: &Rc<Lane>) {
    LANES.with_borrow_mut(|lanes| lanes.insert(number, Rc::clone(lane)));
}

/// Forgets the names: rows were written by hand, perhaps under numbers that are not those of their
/// names.
fn forget_names(void: u64) {
    if NAMES_SINCE.replace(void) != void {
        LANES.take();
    }
}

/// Returns whether a group had a limit when this session last looked; `read` looks.
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

/// Notes that what this session knows of a group's limit may be old.
pub(super) fn limit_may_differ(group: &str) {
    LIMITED.with_borrow_mut(|limited| limited.remove(group));
}

/// The groups that are not as groups are by themselves.
#[derive(PartialEq)]
pub(super) struct Groups {
    /// Priority, and whether it is switched on.
    special: HashMap<String, (i16, bool)>,
    highest: i16,
}

/// When groups were read, and how often one had been configured before.
struct GroupsRead {
    configured: u64,
    at: Instant,
    took: Duration,
}

impl Groups {
    /// Returns what is known of the groups, at most as old as a list may be.
    fn current(spi: &Spi) -> Rc<Self> {
        let bell = match memory::bell() {
            // What this transaction has changed is for itself alone.
            Some(bell) if !changes::has_configured() => bell,
            _ => {
                LIMITED.take();
                return Rc::new(Self::read(spi));
            }
        };
        GROUPS.with_borrow_mut(|kept| {
            // Read before the groups: what changes meanwhile makes them old.
            let configured = bell.configured();
            let at = Instant::now();
            if let Some((groups, read)) = kept
                && read.configured == configured
                && read.at.elapsed() < OLDEST.max(read.took * KEEP_TIMES)
            {
                return Rc::clone(groups);
            }
            LIMITED.take();
            let mut groups = Rc::new(Self::read(spi));
            if let Some((same, _)) = kept.take().filter(|(old, _)| *old == groups) {
                groups = same;
            }
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
        // Also in REPEATABLE READ: what is read outlives the transaction.
        let rows = spi.query_latest(LaneGroups);
        let special: HashMap<_, _> = rows
            .iter()
            .map(|row| (row.name, (row.priority, row.enabled)))
            .collect();
        let priorities = special.values().map(|&(priority, _)| priority);
        let highest = priorities.max().unwrap_or(0);
        Self { special, highest }
    }

    fn is_on(&self, group: &str) -> bool {
        self.special.get(group).is_none_or(|&(_, is_on)| is_on)
    }

    fn priority(&self, group: &str) -> i16 {
        self.special.get(group).map_or(0, |&(priority, _)| priority)
    }
}

/// The sections that a claim with one filter may find rows in.
pub(super) struct List {
    filter: Filter,
    groups: Rc<Groups>,
    /// Waiting counts: a section may stand anywhere until its row is seen.
    ages: bool,
    sections: HashMap<Section, KnownSection>,
    /// Those that are to be looked at, the best first; those whose place has changed since stand
    /// here more than once.
    best: BinaryHeap<(Best, Section)>,
    /// Those of groups that were full, by the places of their gates, and when to look whether these
    /// are still closed.
    parked: HashMap<usize, Parked>,
    parked_until: VecDeque<(i64, usize)>,
    openings: u64,
    /// What was read from shared memory: everything since this change, up to that one.
    void: u64,
    seen: u64,
    /// It has all sections that had rows then.
    is_whole: bool,
    /// When it was read from the index, and how long that took.
    read: Option<(Instant, Duration)>,
    /// When it was kept.
    kept: u64,
}

/// The sections behind a gate.
struct Parked {
    gate: Bound,
    /// When to look whether it is still closed.
    until: i64,
    /// The best first; some may have been put back or dropped since, or stand here more than once.
    sections: BinaryHeap<(Best, Section)>,
    /// The best one is to be looked at.
    is_open: bool,
}

/// What a list knows of a section.
struct KnownSection {
    /// No row comes before this job.
    start: i64,
    /// Its order, while it is to be scanned.
    order: Option<ClaimOrder>,
}

/// `BinaryHeap` returns its greatest element first: the smallest order.
type Best = std::cmp::Reverse<ClaimOrder>;

impl PartialOrd for Section {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Section {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.lane, self.priority).cmp(&(other.lane, other.priority))
    }
}

impl List {
    /// Returns the list for what `request` asks for, as this session last had it.
    pub(super) fn of(spi: &Spi, request: &Request, ages: bool) -> Self {
        let filter = (
            request.tasks.clone(),
            request.groups.clone(),
            request.scope.clone(),
            request.run_as.clone(),
        );
        Self::filtered(spi, filter, ages)
    }

    /// Returns the list of all sections.
    pub(super) fn of_all(spi: &Spi) -> Self {
        Self::filtered(spi, Filter::default(), false)
    }

    fn filtered(spi: &Spi, filter: Filter, ages: bool) -> Self {
        let groups = Groups::current(spi);
        let kept = KEPT.with_borrow_mut(|lists| lists.remove(&filter));
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
            best: BinaryHeap::new(),
            parked: HashMap::new(),
            parked_until: VecDeque::new(),
            openings: memory::openings(),
            void: 0,
            seen: 0,
            is_whole: false,
            read: None,
            kept: 0,
        }
    }

    /// Keeps the list for the next claim of this session.
    pub(super) fn keep(mut self) {
        // What has been many is not kept for.
        if self.sections.len() * 8 + 1024 < self.sections.capacity() {
            self.sections.shrink_to_fit();
            self.best.shrink_to_fit();
        }
        self.kept = KEEPS.replace(KEEPS.get() + 1);
        KEPT.with_borrow_mut(|lists| {
            lists.insert(self.filter.clone(), self);
            loop {
                let sections: usize = lists.values().map(|list| list.sections.len()).sum();
                let is_much = lists.len() > LISTS || lists.len() > 1 && sections > SECTIONS_KEPT;
                let oldest = lists.values().min_by_key(|list| list.kept);
                let Some(oldest) = oldest.filter(|_| is_much).map(|list| list.filter.clone())
                else {
                    break;
                };
                lists.remove(&oldest);
            }
        });
    }

    /// Learns what was lowered since the last claim; false when the sections have to be read from
    /// the index.
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
        // Where many changes are lost again and again it is not read all the time.
        let was_read = self
            .read
            .is_some_and(|(at, took)| at.elapsed() < took * KEEP_TIMES);
        if was_read {
            self.follow(state);
        }
        was_read
    }

    fn follow(&mut self, state: &LanesState) {
        let lowered = memory::lowered_since(state, self.seen);
        self.seen = lowered.last;
        self.is_whole &= lowered.whole;
        self.add(lowered.rows);
    }

    /// Returns whether the list has all that there was when the claim began.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Takes these as all sections, up to a change.
    fn begin(&mut self, rows: &[(Section, i64)], seen: u64) {
        self.clear();
        self.add(rows.iter().copied());
        self.seen = seen;
        self.is_whole = true;
    }

    /// Notes that these sections were read from the index after `state`, beginning at a time.
    pub(super) fn was_read(&mut self, rows: &[(Section, i64)], state: &LanesState, at: Instant) {
        self.begin(rows, state.changes);
        self.read = Some((at, at.elapsed()));
    }

    pub(super) fn clear(&mut self) {
        self.sections.clear();
        self.best.clear();
        self.parked.clear();
        self.parked_until.clear();
        self.seen = 0;
        self.is_whole = false;
        self.read = None;
    }

    /// Adds sections, and rows that come before those that were known.
    pub(super) fn add(&mut self, rows: impl IntoIterator<Item = (Section, i64)>) {
        for (section, start) in rows {
            if known(section.lane).is_some_and(|lane| !self.wants(&lane)) {
                continue;
            }
            match self.sections.get_mut(&section) {
                Some(known) if known.start <= start => {}
                Some(known) => {
                    known.start = start;
                    let is_parked = known.order.is_none();
                    match self.gate(section).filter(|_| is_parked) {
                        Some(gate) if self.parked.contains_key(&gate.place()) => {
                            self.park(section, gate);
                        }
                        _ => self.put(section, start),
                    }
                }
                None => self.put(section, start),
            }
        }
    }

    /// Returns whether a claim with this filter takes jobs of the lane.
    pub(super) fn wants(&self, lane: &Lane) -> bool {
        let (tasks, groups, scope, run_as) = &self.filter;
        *run_as == lane.run_as
            && self.groups.is_on(&lane.group)
            && tasks
                .as_ref()
                .is_none_or(|tasks| tasks.contains(&lane.task))
            && groups
                .as_ref()
                .is_none_or(|groups| groups.contains(&lane.group))
            && scope.allows(&lane.task, &lane.group)
    }

    pub(super) fn priority(&self, lane: &Lane) -> i16 {
        self.groups.priority(&lane.group)
    }
}
