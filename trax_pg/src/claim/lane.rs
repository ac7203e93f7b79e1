//! The lanes that a claim may pick from.
//!
//! A session keeps a list for each filter that it claims with: the sections that may have rows, the best first. Shared
//! memory says what was lowered since (`shmem/lane.rs`), so a claim costs what has changed and what it looks at, not
//! how many lanes there are or ever were. Where shared memory does not know all sections the list is read from the
//! index.
//!
//! Which group and task a lane is of, its rows say; a session keeps what it has seen, which stays true: the lane is a
//! hash of the two. Until a row has been seen the section stands where the best group would stand.
//!
//! A list is a hint: whether a group may run is read again under its lock (`group::room`).

use super::Request;
use super::scan::Place;
use crate::hint;
use crate::scope::Scope;
use crate::shmem::{self, Gate, LanesState, Section};
use crate::spi::{Spi, statement};
use std::cell::RefCell;
use std::collections::{BinaryHeap, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Filters whose lists a session keeps.
const LISTS: usize = 16;
/// How long what was read of groups, and a list that shared memory does not keep, is believed at most.
const OLDEST: Duration = Duration::from_secs(1);
/// What takes long to read is kept for so many times that long.
const KEEP_TIMES: u32 = 20;
/// Lanes whose names a session keeps.
const NAMES: usize = 65_536;

statement!(LANE_GROUPS, "lane_groups.sql");

/// The group and the task of a lane.
pub(super) struct Lane {
    pub(super) group: String,
    pub(super) task: String,
    pub(super) gate: Gate,
}

impl Lane {
    pub(super) fn new(group: &str, task: &str) -> Rc<Self> {
        Rc::new(Self {
            group: group.to_owned(),
            task: task.to_owned(),
            gate: hint::gate(group),
        })
    }
}

/// Tasks, groups, and what the caller may claim of them.
type Filter = (Option<Vec<String>>, Option<Vec<String>>, Scope);

thread_local! {
    static LANES: RefCell<HashMap<i64, Rc<Lane>>> = RefCell::default();
    static GROUPS: RefCell<Option<(Rc<Groups>, GroupsRead)>> = RefCell::default();
    static KEPT: RefCell<HashMap<Filter, List>> = RefCell::default();
    static LIMITED: RefCell<HashMap<String, bool>> = RefCell::default();
}

/// The lane with this number, if a row of it has been seen.
pub(super) fn known(lane: i64) -> Option<Rc<Lane>> {
    LANES.with_borrow(|lanes| lanes.get(&lane).cloned())
}

/// A row of the lane has been seen.
pub(super) fn learn(number: i64, lane: &Rc<Lane>) {
    LANES.with_borrow_mut(|lanes| {
        if lanes.len() >= NAMES {
            lanes.clear();
        }
        lanes.insert(number, Rc::clone(lane));
    });
}

/// Whether a group had a limit when this session last looked; `read` looks.
pub(super) fn is_limited(group: &str, read: impl FnOnce() -> bool) -> bool {
    LIMITED.with_borrow_mut(|limited| {
        if let Some(known) = limited.get(group) {
            return *known;
        }
        if limited.len() >= NAMES {
            limited.clear();
        }
        let known = read();
        limited.insert(group.to_owned(), known);
        known
    })
}

/// What this session knows of a group's limit may be old.
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
    /// What is known of the groups, at most as old as a list may be.
    fn current(spi: &Spi) -> Rc<Self> {
        let bell = match shmem::bell() {
            // What this transaction has changed is for itself alone.
            Some(bell) if !hint::has_configured() => bell,
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
        let rows = spi.query_latest(&LANE_GROUPS, &[]);
        let special: HashMap<_, _> = rows
            .iter()
            .map(|row| (row.must(1), (row.must(2), row.must(3))))
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
    sections: HashMap<Section, Known>,
    /// Those that are to be looked at, the best first; those whose place has changed since stand here more than once.
    best: BinaryHeap<(Best, Section)>,
    /// Those of groups that were full.
    parked: Vec<Section>,
    /// The generation of shared memory, and the change up to which the list knows what was lowered.
    generation: Option<u64>,
    seen: u64,
    /// When it was read from the index, unless shared memory had all.
    read: Option<(Instant, Duration)>,
}

/// What a list knows of a section.
struct Known {
    /// No row comes before this job.
    bound: i64,
    /// Where it stands, while it is to be looked at.
    place: Option<Place>,
}

/// `BinaryHeap` gives its greatest element first: the smallest place.
type Best = std::cmp::Reverse<Place>;

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
    /// The list for what `request` asks for, as this session last had it.
    pub(super) fn of(spi: &Spi, request: &Request, ages: bool) -> Self {
        let filter = (
            request.tasks.clone(),
            request.groups.clone(),
            request.scope.clone(),
        );
        Self::filtered(spi, filter, ages)
    }

    /// The list of all sections.
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
            parked: Vec::new(),
            generation: None,
            seen: 0,
            read: None,
        }
    }

    /// Keeps the list for the next claim of this session.
    pub(super) fn keep(self) {
        KEPT.with_borrow_mut(|lists| {
            if lists.len() >= LISTS {
                lists.clear();
            }
            lists.insert(self.filter.clone(), self);
        });
    }

    /// Learns what was lowered since the last claim; false when sections have to be read from the index.
    pub(super) fn catch_up(&mut self, state: &LanesState) -> bool {
        let is_known = self.generation == Some(state.generation)
            && (state.complete
                || self
                    .read
                    .is_some_and(|(at, took)| at.elapsed() < OLDEST.max(took * KEEP_TIMES)));
        if is_known {
            let lowered = shmem::lowered_since(state, self.seen);
            self.seen = lowered.last;
            self.add(lowered.rows);
            return true;
        }
        self.clear();
        let lowered = shmem::lowered_since(state, 0);
        self.seen = lowered.last;
        self.generation = Some(state.generation);
        self.add(lowered.rows);
        lowered.all
    }

    /// Whether the list has all that there was when the claim began.
    pub(super) fn is_current(&self, state: &LanesState, began: Instant) -> bool {
        state.complete || self.read.is_some_and(|(at, _)| at >= began)
    }

    pub(super) fn clear(&mut self) {
        self.sections.clear();
        self.best.clear();
        self.parked.clear();
        self.generation = None;
        self.seen = 0;
        self.read = None;
    }

    /// Sections were read from the index, beginning at a time.
    pub(super) fn was_read(&mut self, at: Instant) {
        self.read = Some((at, at.elapsed()));
    }

    /// Adds sections, and rows that come before those that were known.
    pub(super) fn add(&mut self, rows: impl IntoIterator<Item = (Section, i64)>) {
        for (section, bound) in rows {
            if known(section.lane).is_some_and(|lane| !self.wants(&lane)) {
                continue;
            }
            match self.sections.get_mut(&section) {
                Some(known) if known.bound <= bound => {}
                Some(known) => {
                    known.bound = bound;
                    if known.place.is_some() {
                        self.put(section, bound);
                    }
                }
                None => self.put(section, bound),
            }
        }
    }

    /// Whether a claim with this filter takes jobs of the lane.
    pub(super) fn wants(&self, lane: &Lane) -> bool {
        let (tasks, groups, scope) = &self.filter;
        self.groups.is_on(&lane.group)
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

    /// The section is to be looked at, from this job on.
    pub(super) fn put(&mut self, section: Section, bound: i64) {
        let place = if self.ages {
            Place::BEST
        } else {
            let of_group = known(section.lane).map_or(self.groups.highest, |lane| {
                self.groups.priority(&lane.group)
            });
            Place::new(of_group, section.priority, bound)
        };
        let known = Known {
            bound,
            place: Some(place),
        };
        self.sections.insert(section, known);
        self.best.push((std::cmp::Reverse(place), section));
        if self.best.len() > 2 * self.sections.len() + 64 {
            let places = self.sections.iter();
            self.best = places
                .filter_map(|(section, known)| Some((std::cmp::Reverse(known.place?), *section)))
                .collect();
        }
    }

    /// The section's group was full.
    pub(super) fn park(&mut self, section: Section) {
        self.parked.push(section);
    }

    /// Looks at parked sections again whose group may have room.
    pub(super) fn unpark(&mut self, now: i64) {
        let parked = std::mem::take(&mut self.parked);
        for section in parked {
            let Some(Known { bound, .. }) = self.sections.get(&section) else {
                continue;
            };
            let bound = *bound;
            match known(section.lane) {
                Some(lane) if lane.gate.is_closed(now) => self.parked.push(section),
                _ => self.put(section, bound),
            }
        }
    }

    /// Where the best section stands that is to be looked at.
    pub(super) fn best(&mut self) -> Option<Place> {
        while let Some((place, section)) = self.best.peek() {
            let known = self.sections.get(section);
            if known.is_some_and(|known| known.place == Some(place.0)) {
                return Some(place.0);
            }
            self.best.pop();
        }
        None
    }

    /// The best section, and from which job on; it is to be looked at no more until it is put back.
    pub(super) fn take_best(&mut self) -> Option<(Section, i64)> {
        self.best()?;
        let (_, section) = self.best.pop()?;
        let known = self.sections.get_mut(&section)?;
        known.place = None;
        Some((section, known.bound))
    }

    /// The section has been looked at, and `first` is its first row. That `holds` unless it may have got others meanwhile.
    pub(super) fn put_back(&mut self, section: Section, first: Option<i64>, holds: bool, now: i64) {
        let Some(of_section) = self.sections.get_mut(&section) else {
            return;
        };
        match first {
            None if holds => return self.drop(section),
            Some(first) if holds => of_section.bound = first,
            _ => {}
        }
        let bound = of_section.bound;
        if known(section.lane).is_some_and(|lane| lane.gate.is_closed(now)) {
            self.park(section);
        } else {
            self.put(section, bound);
        }
    }

    /// The section has no rows, or none that this list is for.
    pub(super) fn drop(&mut self, section: Section) {
        self.sections.remove(&section);
    }
}
