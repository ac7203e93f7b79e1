//! The order in which a list returns its sections: the best first, without those behind gates.

use super::*;
use std::ops::RangeInclusive;

/// The place in front of all gates.
const IN_FRONT: Place = 0;

/// Returns the gate of a section if it is known and closed.
fn closed_gate(section: Section, now: i64) -> Option<Bound> {
    let gate = known(section.lane).map(|lane| lane.gate);
    gate.filter(|gate| gate.is_closed(now))
}

impl List {
    fn order(&self, section: Section, start: i64) -> ClaimOrder {
        if self.ages {
            return ClaimOrder::BEST;
        }
        let of_group = known(section.lane).map_or(self.groups.highest, |lane| {
            self.groups.priority(&lane.group)
        });
        ClaimOrder::new(of_group, section.priority, start)
    }

    fn put_at(&mut self, place: Place, section: Section, start: i64) {
        let at = (place, self.order(section, start));
        let known = KnownSection {
            start,
            at: Some(at),
        };
        let before = self.sections.insert(section, known);
        self.remove(section, before);
        self.ordered.insert((at, section));
    }

    fn remove(&mut self, section: Section, known: Option<KnownSection>) {
        if let Some(at) = known.and_then(|known| known.at) {
            self.ordered.remove(&(at, section));
        }
    }

    /// Puts a section into the order, to be scanned from the job `start` on.
    pub(in crate::claim) fn put(&mut self, section: Section, start: i64) {
        self.put_at(IN_FRONT, section, start);
    }

    /// Puts a section whose group is full behind the group's gate.
    pub(in crate::claim) fn put_behind(&mut self, section: Section, gate: Bound) {
        if let Some(known) = self.sections.get(&section) {
            self.put_at(gate.number(), section, known.start);
        }
    }

    /// Adds a section, or lowers its start; it stays behind its gate.
    pub(super) fn lower(&mut self, section: Section, start: i64) {
        let place = match self.sections.get(&section) {
            Some(known) if known.start <= start => return,
            Some(KnownSection { at: Some(at), .. }) => at.0,
            _ => IN_FRONT,
        };
        self.put_at(place, section, start);
    }

    /// Puts the best section behind each gate that has opened in front of it; looks at all gates
    /// again after [`memory::GATE_MICROS`], for which a gate stays closed at most.
    pub(in crate::claim) fn put_opened(&mut self, now: i64) {
        let opened = memory::opened_since(&mut self.openings);
        let is_recent = (0..memory::GATE_MICROS).contains(&(now - self.opened_all_at));
        let Some(opened) = opened.filter(|_| is_recent) else {
            self.opened_all_at = now;
            return self.put_next(IN_FRONT + 1..=Place::MAX, now);
        };
        for gates in opened {
            self.put_next(gates, now);
        }
    }

    /// Puts the best section behind each of these gates in front of it, unless it is closed. The
    /// next one follows when this one is scanned.
    pub(in crate::claim) fn put_next(&mut self, gates: RangeInclusive<Place>, now: i64) {
        let (mut from, last) = gates.into_inner();
        while self.has_gated()
            && let Some(((place, _), section)) = self.first_from(from)
            && place <= last
        {
            if let Some(known) = self.sections.get(&section)
                && closed_gate(section, now).is_none()
            {
                self.put(section, known.start);
            }
            from = place.saturating_add(1);
        }
    }

    fn has_gated(&self) -> bool {
        let last = self.ordered.last();
        last.is_some_and(|((place, _), _)| *place != IN_FRONT)
    }

    fn first_from(&self, place: Place) -> Option<Ordered> {
        let least = ((place, ClaimOrder::BEST), Section::BEFORE_ALL);
        self.ordered.range(least..).next().copied()
    }

    fn first(&self) -> Option<Ordered> {
        let first = self.ordered.first().copied();
        first.filter(|first| first.0.0 == IN_FRONT)
    }

    /// Returns the order of the best section to be scanned.
    pub(in crate::claim) fn best(&self) -> Option<ClaimOrder> {
        self.first().map(|((_, order), _)| order)
    }

    /// Returns the best section and the job to scan it from, and removes it from the order until it
    /// is put back.
    pub(in crate::claim) fn take_best(&mut self) -> Option<(Section, i64)> {
        let first = self.first()?;
        self.ordered.remove(&first);
        let known = self.sections.get_mut(&first.1)?;
        known.at = None;
        Some((first.1, known.start))
    }

    /// Puts a section back after a scan that found `first` as its first row; `holds` is false if
    /// earlier rows may have come since.
    pub(in crate::claim) fn put_back(
        &mut self,
        section: Section,
        first: Option<i64>,
        holds: bool,
        now: i64,
    ) {
        let Some(known) = self.sections.get_mut(&section) else {
            return;
        };
        match first {
            None if holds => return self.drop(section),
            Some(first) if holds => known.start = first,
            _ => {}
        }
        let start = known.start;
        match closed_gate(section, now) {
            Some(gate) => self.put_behind(section, gate),
            None => self.put(section, start),
        }
    }

    /// Removes a section that has no rows, or none that pass the filter.
    pub(in crate::claim) fn drop(&mut self, section: Section) {
        let known = self.sections.remove(&section);
        self.remove(section, known);
    }
}
