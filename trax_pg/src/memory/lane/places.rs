//! The places: found by hash, listed by when they were changed, given up when there is no room.

use super::{
    AT_ONCE, BUCKETS, Database, FOLLOW_AT_MOST, Finding, LanesState, NOBODY, NOWHERE, PLACES,
    Place, Places, Section,
};
use std::sync::atomic::Ordering;

impl Places {
    pub(super) fn bucket(&self, database: usize, section: Section) -> usize {
        let mixed = (section.lane as u64 ^ self.seed)
            .wrapping_add((database as u64) << 5 | section.priority as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as usize % BUCKETS
    }

    pub(super) fn at(&mut self, number: u32) -> &mut Place {
        &mut self.places[number as usize - 1]
    }

    pub(super) fn find(&self, database: usize, section: Section) -> Option<u32> {
        let mut number = self.buckets[self.bucket(database, section)];
        while number != NOWHERE {
            let place = &self.places[number as usize - 1];
            if place.lane == section.lane
                && place.priority == section.priority
                && usize::from(place.database) == database
            {
                return Some(number);
            }
            number = place.next_in_bucket;
        }
        None
    }

    pub(super) fn has_room(&self, head: &Database) -> bool {
        head.count.load(Ordering::Relaxed) < (PLACES as u32 - self.taken).saturating_mul(2)
    }

    /// The place of a section, apart from one that counts for nothing.
    pub(super) fn valid(&self, head: &Database, database: usize, section: Section) -> Option<u32> {
        let number = self.find(database, section)?;
        (!head.is_void(&self.places[number as usize - 1])).then_some(number)
    }

    /// A new place for a section that has none, in its bucket and in no list. There must be room.
    pub(super) fn add(&mut self, head: &Database, database: usize, section: Section) -> u32 {
        let number = if self.free != NOWHERE {
            let number = self.free;
            self.free = self.at(number).next_in_bucket;
            number
        } else {
            self.unused += 1;
            self.unused
        };
        self.taken += 1;
        head.count.fetch_add(1, Ordering::Relaxed);
        let bucket = self.bucket(database, section);
        *self.at(number) = Place {
            lane: section.lane,
            bound: i64::MAX,
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

    /// Puts a place at the new end of the list, or at the old one.
    pub(super) fn link(&mut self, head: &Database, number: u32, as_newest: bool) {
        let (newest, oldest) = (&head.newest, &head.oldest);
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

    pub(super) fn unlink(&mut self, head: &Database, number: u32) {
        let Place { newer, older, .. } = *self.at(number);
        match newer {
            NOWHERE => head.newest.store(older, Ordering::Relaxed),
            newer => self.at(newer).older = older,
        }
        match older {
            NOWHERE => head.oldest.store(newer, Ordering::Relaxed),
            older => self.at(older).newer = newer,
        }
    }

    /// A row of a section has become claimable: the next change of the database.
    pub(super) fn lower(&mut self, head: &Database, database: usize, row: (Section, i64)) {
        let change = head.next();
        let (section, bound) = row;
        let exact = head.is_complete();
        let (number, is_news) = match self.find(database, section) {
            Some(number) => {
                self.unlink(head, number);
                let place = self.at(number);
                let begins = head.is_void(place);
                if begins {
                    place.exact = exact;
                }
                (number, begins || bound < place.bound)
            }
            None => {
                if !self.make_room(head, database) {
                    head.lose(change);
                    head.changes.store(change, Ordering::SeqCst);
                    return;
                }
                let number = self.add(head, database, section);
                self.at(number).exact = exact;
                (number, true)
            }
        };
        if is_news {
            self.at(number).bound = bound;
            self.at(number).lowered = change;
            head.lowered.store(change, Ordering::SeqCst);
        }
        self.at(number).changed = change;
        self.link(head, number, true);
        head.changes.store(change, Ordering::SeqCst);
    }

    /// Whether there is a place for one more section, for which the oldest may go; two, while a
    /// database has more than its share.
    pub(super) fn make_room(&mut self, head: &Database, database: usize) -> bool {
        if self.has_room(head) {
            return true;
        }
        let mut made = false;
        for _ in 0..2 {
            let oldest = head.oldest.load(Ordering::Relaxed);
            if oldest != NOWHERE {
                head.lose(self.at(oldest).changed);
                self.remove(head, database, oldest);
                made = true;
            }
        }
        made
    }

    /// A section has been read from the index, with this first row, after so many changes: news to
    /// nobody who knew all before, but where that row came as a surprise. False when there is no
    /// room for a place.
    pub(super) fn note(
        &mut self,
        head: &Database,
        database: usize,
        row: (Section, i64),
        since: u64,
    ) -> bool {
        let (section, first) = row;
        let lost = head.lost();
        if let Some(number) = self.valid(head, database, section) {
            let place = self.at(number);
            if place.exact && first < place.bound {
                self.lower(head, database, row);
            } else if !place.exact {
                place.bound = first.min(place.bound);
                place.exact = lost <= since;
            }
            return true;
        }
        if head.is_complete() {
            self.lower(head, database, row);
            return true;
        }
        let number = match self.find(database, section) {
            Some(void) => {
                self.unlink(head, void);
                void
            }
            None if self.has_room(head) => self.add(head, database, section),
            None => return false,
        };
        let place = self.at(number);
        place.bound = first;
        place.exact = lost <= since;
        // What is lost may have touched it.
        place.changed = lost;
        place.lowered = lost;
        self.link(head, number, false);
        true
    }

    pub(super) fn remove(&mut self, head: &Database, database: usize, number: u32) {
        self.unlink(head, number);
        let Place { lane, priority, .. } = *self.at(number);
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
        self.at(number).database = NOBODY;
        self.free = number;
        self.taken -= 1;
        head.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// The sections lowered after a change, the last changed first; `None` when too much was
    /// changed since.
    pub(super) fn since(&self, head: &Database, change: u64) -> Option<Vec<(Section, i64)>> {
        let mut rows = Vec::new();
        let mut number = head.newest.load(Ordering::Relaxed);
        for _ in 0..FOLLOW_AT_MOST {
            if number == NOWHERE {
                return Some(rows);
            }
            let place = &self.places[number as usize - 1];
            if place.changed <= change {
                return Some(rows);
            }
            if place.lowered > change {
                rows.push((place.section(), place.bound));
            }
            number = place.older;
        }
        None
    }

    /// The places of a database among those from one on, in their order in memory, and where to go
    /// on.
    pub(super) fn part(
        &self,
        database: usize,
        from: usize,
    ) -> (impl Iterator<Item = &Place>, Option<usize>) {
        let end = (from + AT_ONCE * 4).min(self.unused as usize);
        let part = self.places[from.min(end)..end].iter();
        (
            part.filter(move |place| usize::from(place.database) == database),
            (end < self.unused as usize).then_some(end),
        )
    }
}

impl Places {
    pub(super) fn believe(
        &mut self,
        head: &Database,
        database: usize,
        finding: &Finding,
        state: &LanesState,
        whole: bool,
    ) -> bool {
        if head.void.load(Ordering::SeqCst) > state.changes {
            return false;
        }
        let Some(number) = self.valid(head, database, finding.section) else {
            // Nobody needs what is void and has no rows.
            if finding.first.is_none()
                && let Some(void) = self.find(database, finding.section)
            {
                self.remove(head, database, void);
            }
            return head.lost() <= state.changes;
        };
        let place = self.at(number);
        let holds = place.changed <= state.changes;
        match finding.first {
            Some(first) if holds && place.exact => place.bound = place.bound.max(first),
            Some(first) if holds && whole => {
                place.bound = first;
                place.exact = true;
            }
            Some(first) if !holds && first < place.bound => {
                self.lower(head, database, (finding.section, first));
            }
            None if holds && (place.exact || whole) => self.remove(head, database, number),
            _ => {}
        }
        holds
    }
}
