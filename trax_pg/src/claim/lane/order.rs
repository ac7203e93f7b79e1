//! The order in which a list returns its sections: the best first, without those behind gates.

use super::*;
use std::ops::RangeInclusive;

/// The place in front of all gates.
const IN_FRONT: Place = 0;
const ALL_GATES: RangeInclusive<Place> = IN_FRONT + 1..=Place::MAX;

impl List {
    /// Returns the place of a section whose lane is known and has a closed gate.
    fn closed_place(&mut self, section: Section, now: i64) -> Option<Place> {
        known(section.lane).and_then(|lane| self.closed_gate(&lane, now))
    }

    /// Returns the number of a gate of the lane that is closed, as this session or another has
    /// found it.
    pub(in crate::claim) fn closed_gate(&mut self, lane: &Lane, now: i64) -> Option<Place> {
        if lane.gate.is_closed(now) {
            return Some(lane.gate.number());
        }
        self.rate_gates(lane).find_map(|gate| {
            let known = self.closed.get(&gate.number()).copied();
            if known.is_none_or(|until| until <= now) {
                self.close(gate, gate.closed_until(now)?);
            }
            Some(gate.number())
        })
    }

    /// Returns the gates of the rates under which the jobs of a lane start.
    fn rate_gates(&self, lane: &Lane) -> impl Iterator<Item = Bound> + use<> {
        let own = lane.rate.as_ref().map(|rate| rate.gates);
        let of_both = [own, self.groups.rate_gates(&lane.group)];
        let gates = of_both.into_iter().flatten();
        gates.flat_map(|gates| [gates.used, gates.saved])
    }

    /// Puts the next section behind each gate of a lane, which are open, in front of it.
    pub(in crate::claim) fn put_next_of(&mut self, lane: &Lane, now: i64) {
        for gate in std::iter::once(lane.gate).chain(self.rate_gates(lane)) {
            self.put_next(gate.number()..=gate.number(), now);
        }
    }

    /// Keeps the sections of a gate behind it until a time, or until it is opened.
    pub(in crate::claim) fn close(&mut self, gate: Bound, until: i64) {
        let gate = gate.number();
        if let Some(before) = self.closed.insert(gate, until) {
            self.closings.remove(&(before, gate));
        }
        self.closings.insert((until, gate));
    }

    pub(in crate::claim) fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// Returns when the next closed gate opens by itself.
    pub(in crate::claim) fn opens_at(&self) -> Option<i64> {
        let first = self.closings.first().map(|&(until, _)| until);
        first.filter(|&until| until < i64::MAX)
    }

    pub(super) fn forget_closed(&mut self) {
        self.closed.clear();
        self.closings.clear();
    }

    /// Forgets that these gates were closed.
    fn forget_closed_of(&mut self, gates: RangeInclusive<Place>) {
        let opened = self.closed.extract_if(gates, |_, _| true);
        opened.for_each(|(gate, until)| {
            self.closings.remove(&(until, gate));
        });
    }

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

    /// Puts a section behind a gate of its lane.
    pub(in crate::claim) fn put_behind(&mut self, section: Section, gate: Place) {
        if let Some(known) = self.sections.get(&section) {
            self.put_at(gate, section, known.start);
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

    /// Puts the best section behind each gate that has opened, or whose time is over, in front of
    /// it; looks at all gates again after [`memory::GATE_MICROS`].
    pub(in crate::claim) fn put_opened(&mut self, now: i64) {
        let since = now - self.opened_all_at;
        // The times of a clock that has gone back are not believed.
        let opened = memory::opened_since(&mut self.openings).filter(|_| since >= 0);
        match &opened {
            Some(opened) => opened
                .iter()
                .for_each(|gates| self.forget_closed_of(gates.clone())),
            None => self.forget_closed(),
        }
        let mut gates = opened.unwrap_or_else(|| vec![ALL_GATES]);
        while let Some(&(until, gate)) = self.closings.first()
            && until <= now
        {
            self.closings.pop_first();
            self.closed.remove(&gate);
            gates.push(gate..=gate);
        }
        if since >= memory::GATE_MICROS {
            gates = vec![ALL_GATES];
        }
        if gates.contains(&ALL_GATES) {
            self.opened_all_at = now;
        }
        for gates in gates {
            self.put_next(gates, now);
        }
    }

    /// Puts the best section behind each of these gates in front of it, unless it is closed. The
    /// next one follows when this one is scanned.
    fn put_next(&mut self, gates: RangeInclusive<Place>, now: i64) {
        let (mut from, last) = gates.into_inner();
        while self.has_gated()
            && let Some(((place, _), section)) = self.first_from(from)
            && place <= last
        {
            let start = self.sections.get(&section).map(|known| known.start);
            if let Some(start) = start {
                match self.closed_place(section, now) {
                    None => self.put(section, start),
                    // Another gate of it is closed: the next one behind this gate follows.
                    Some(other) if other != place => {
                        self.put_behind(section, other);
                        continue;
                    }
                    Some(_) => {}
                }
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
        match self.closed_place(section, now) {
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
