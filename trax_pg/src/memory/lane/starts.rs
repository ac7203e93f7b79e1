//! The entries: a hash table for all databases, and a list for each, the last changed first, from
//! whose end entries are removed if there is no room.

use super::{
    AT_ONCE, BUCKETS, Database, ENTRIES, FOLLOW_AT_MOST, Finding, LaneStart, LaneStarts,
    LanesState, NO_DATABASE, NOWHERE, Section,
};
use std::sync::atomic::Ordering;

impl LaneStarts {
    pub(super) fn bucket(&self, database: usize, section: Section) -> usize {
        let mixed = (section.lane as u64 ^ self.seed)
            .wrapping_add((database as u64) << 5 | section.priority as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as usize % BUCKETS
    }

    pub(super) fn at(&mut self, number: u32) -> &mut LaneStart {
        &mut self.entries[number as usize - 1]
    }

    pub(super) fn find(&self, database: usize, section: Section) -> Option<u32> {
        let mut number = self.buckets[self.bucket(database, section)];
        while number != NOWHERE {
            let entry = &self.entries[number as usize - 1];
            if entry.lane == section.lane
                && entry.priority == section.priority
                && usize::from(entry.database) == database
            {
                return Some(number);
            }
            number = entry.next_in_bucket;
        }
        None
    }

    pub(super) fn has_room(&self, shared: &Database) -> bool {
        shared.count.load(Ordering::Relaxed) < (ENTRIES as u32 - self.taken).saturating_mul(2)
    }

    /// Returns the entry of a section, unless it was discarded.
    pub(super) fn valid(
        &self,
        shared: &Database,
        database: usize,
        section: Section,
    ) -> Option<u32> {
        let number = self.find(database, section)?;
        (!shared.is_discarded(&self.entries[number as usize - 1])).then_some(number)
    }

    /// Adds an entry for a section that has none, to its bucket but not to the list. There must be
    /// room.
    pub(super) fn add(&mut self, shared: &Database, database: usize, section: Section) -> u32 {
        let number = if self.free != NOWHERE {
            let number = self.free;
            self.free = self.at(number).next_in_bucket;
            number
        } else {
            self.unused += 1;
            self.unused
        };
        self.taken += 1;
        shared.count.fetch_add(1, Ordering::Relaxed);
        let bucket = self.bucket(database, section);
        *self.at(number) = LaneStart {
            lane: section.lane,
            start: i64::MAX,
            changed: 0,
            lowered: 0,
            next_in_bucket: self.buckets[bucket],
            newer: NOWHERE,
            older: NOWHERE,
            database: database as u16,
            priority: section.priority,
            exact: false,
        };
        self.buckets[bucket] = number;
        number
    }

    /// Adds an entry to the list, at its newest or its oldest end.
    pub(super) fn link(&mut self, shared: &Database, number: u32, as_newest: bool) {
        let (newest, oldest) = (&shared.newest, &shared.oldest);
        if as_newest {
            let next = newest.swap(number, Ordering::Relaxed);
            self.at(number).older = next;
            self.at(number).newer = NOWHERE;
            match next {
                NOWHERE => oldest.store(number, Ordering::Relaxed),
                next => self.at(next).newer = number,
            }
        } else {
            let next = oldest.swap(number, Ordering::Relaxed);
            self.at(number).newer = next;
            self.at(number).older = NOWHERE;
            match next {
                NOWHERE => newest.store(number, Ordering::Relaxed),
                next => self.at(next).older = number,
            }
        }
    }

    pub(super) fn unlink(&mut self, shared: &Database, number: u32) {
        let LaneStart { newer, older, .. } = *self.at(number);
        match newer {
            NOWHERE => shared.newest.store(older, Ordering::Relaxed),
            newer => self.at(newer).older = older,
        }
        match older {
            NOWHERE => shared.oldest.store(newer, Ordering::Relaxed),
            older => self.at(older).newer = newer,
        }
    }

    /// Makes the next change of the database: a row of a section has become claimable.
    pub(super) fn lower(&mut self, shared: &Database, database: usize, row: (Section, i64)) {
        let change = shared.next();
        let (section, start) = row;
        let exact = shared.is_complete();
        let (number, is_lower) = match self.find(database, section) {
            Some(number) => {
                self.unlink(shared, number);
                let entry = self.at(number);
                let begins = shared.is_discarded(entry);
                if begins {
                    entry.exact = exact;
                }
                (number, begins || start < entry.start)
            }
            None => {
                if !self.make_room(shared, database) {
                    shared.lose(change);
                    shared.changes.store(change, Ordering::SeqCst);
                    return;
                }
                let number = self.add(shared, database, section);
                self.at(number).exact = exact;
                (number, true)
            }
        };
        if is_lower {
            self.at(number).start = start;
            self.at(number).lowered = change;
            shared.lowered.store(change, Ordering::SeqCst);
        }
        self.at(number).changed = change;
        self.link(shared, number, true);
        shared.changes.store(change, Ordering::SeqCst);
    }

    /// Returns whether there is room for one more entry. A database without room loses its oldest
    /// entry, and one more, so that it shrinks as its share does.
    pub(super) fn make_room(&mut self, shared: &Database, database: usize) -> bool {
        if self.has_room(shared) {
            return true;
        }
        let mut made = false;
        for _ in 0..2 {
            let oldest = shared.oldest.load(Ordering::Relaxed);
            if oldest != NOWHERE {
                shared.lose(self.at(oldest).changed);
                self.remove(shared, database, oldest);
                made = true;
            }
        }
        made
    }

    /// Records that a section was read from the index, with this first row, after `since` changes.
    /// A row that contradicts an exact start, or complete entries, counts as a change; otherwise
    /// sessions that knew all sections need not read this one. False if there is no room.
    pub(super) fn record(
        &mut self,
        shared: &Database,
        database: usize,
        row: (Section, i64),
        since: u64,
    ) -> bool {
        let (section, first) = row;
        let lost = shared.lost();
        if let Some(number) = self.valid(shared, database, section) {
            let entry = self.at(number);
            if entry.exact && first < entry.start {
                if !self.may_skip(shared, database, row) {
                    self.lower(shared, database, row);
                }
            } else if !entry.exact {
                entry.start = first.min(entry.start);
                entry.exact = lost <= since;
            }
            return true;
        }
        if shared.is_complete() {
            if !self.may_skip(shared, database, row) {
                self.lower(shared, database, row);
            }
            return true;
        }
        let number = match self.find(database, section) {
            Some(void) => {
                self.unlink(shared, void);
                void
            }
            None if self.has_room(shared) => self.add(shared, database, section),
            None => return false,
        };
        let entry = self.at(number);
        entry.start = first;
        entry.exact = lost <= since;
        // A lost change may have been one of this section.
        entry.changed = lost;
        entry.lowered = lost;
        self.link(shared, number, false);
        true
    }

    pub(super) fn remove(&mut self, shared: &Database, database: usize, number: u32) {
        self.unlink(shared, number);
        let LaneStart { lane, priority, .. } = *self.at(number);
        let bucket = self.bucket(database, Section { lane, priority });
        let next = self.at(number).next_in_bucket;
        if self.buckets[bucket] == number {
            self.buckets[bucket] = next;
        } else {
            let mut before = self.buckets[bucket];
            while self.at(before).next_in_bucket != number {
                before = self.at(before).next_in_bucket;
            }
            self.at(before).next_in_bucket = next;
        }
        self.at(number).next_in_bucket = self.free;
        self.at(number).database = NO_DATABASE;
        self.free = number;
        self.taken -= 1;
        shared.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the sections lowered after a change, the last changed first; `None` if more than
    /// `FOLLOW_AT_MOST` entries have changed since.
    pub(super) fn since(&self, shared: &Database, change: u64) -> Option<Vec<(Section, i64)>> {
        let mut rows = Vec::new();
        let mut number = shared.newest.load(Ordering::Relaxed);
        for _ in 0..FOLLOW_AT_MOST {
            if number == NOWHERE {
                return Some(rows);
            }
            let entry = &self.entries[number as usize - 1];
            if entry.changed <= change {
                return Some(rows);
            }
            if entry.lowered > change {
                rows.push((entry.section(), entry.start));
            }
            number = entry.older;
        }
        None
    }

    /// Returns the entries of a database in the next part of the memory, which begins at `from`,
    /// and where the following part begins.
    pub(super) fn part(
        &self,
        database: usize,
        from: usize,
    ) -> (impl Iterator<Item = &LaneStart>, Option<usize>) {
        let end = (from + AT_ONCE * 4).min(self.unused as usize);
        let part = self.entries[from.min(end)..end].iter();
        (
            part.filter(move |entry| usize::from(entry.database) == database),
            (end < self.unused as usize).then_some(end),
        )
    }
}

impl LaneStarts {
    /// Applies a finding of a claim; returns whether it still holds. See [`super::raise`].
    pub(super) fn apply(
        &mut self,
        shared: &Database,
        database: usize,
        finding: &Finding,
        state: &LanesState,
        whole: bool,
    ) -> bool {
        if shared.void.load(Ordering::SeqCst) > state.changes {
            return false;
        }
        let Some(number) = self.valid(shared, database, finding.section) else {
            // A discarded entry of a section without rows is not needed.
            if finding.first.is_none()
                && let Some(void) = self.find(database, finding.section)
            {
                self.remove(shared, database, void);
            }
            return shared.lost() <= state.changes;
        };
        let entry = self.at(number);
        let holds = entry.changed <= state.changes;
        match finding.first {
            Some(first) if holds && entry.exact => entry.start = entry.start.max(first),
            Some(first) if holds && whole => {
                entry.start = first;
                entry.exact = true;
            }
            Some(first) if !holds && first < entry.start => {
                self.lower(shared, database, (finding.section, first));
            }
            None if holds && (entry.exact || whole) => self.remove(shared, database, number),
            _ => {}
        }
        holds
    }
}
