//! The order in which a list returns its sections: the best first, without those that are gated
//! behind closed gates.

use super::*;

impl List {
    /// Returns the gate of a section whose group is known.
    pub(super) fn gate(&self, section: Section) -> Option<Bound> {
        known(section.lane).map(|lane| lane.gate)
    }

    pub(super) fn order(&self, section: Section, start: i64) -> ClaimOrder {
        if self.ages {
            return ClaimOrder::BEST;
        }
        let of_group = known(section.lane).map_or(self.groups.highest, |lane| {
            self.groups.priority(&lane.group)
        });
        ClaimOrder::new(of_group, section.priority, start)
    }

    /// Puts a section into the order, to be scanned from the job `start` on.
    pub(in crate::claim) fn put(&mut self, section: Section, start: i64) {
        let order = self.order(section, start);
        let known = KnownSection {
            start,
            order: Some(order),
        };
        self.sections.insert(section, known);
        self.best.push((std::cmp::Reverse(order), section));
        if self.best.len() > 2 * self.sections.len() + 64 {
            let known = self.sections.iter();
            self.best = known
                .filter_map(|(section, known)| Some((std::cmp::Reverse(known.order?), *section)))
                .collect();
        }
    }

    /// Parks a section whose group is full behind the group's gate.
    pub(in crate::claim) fn put_behind(&mut self, section: Section, gate: Bound) {
        let Some(KnownSection { start, .. }) = self.sections.get(&section) else {
            return;
        };
        let order = self.order(section, *start);
        let gated = self.gated.entry(gate.index()).or_insert_with(|| {
            // A gate stays closed for this long at most.
            let until = Timestamp::now().0 + memory::GATE_MICROS;
            self.gated_until.push_back((until, gate.index()));
            Gated {
                gate,
                until,
                sections: BinaryHeap::new(),
                is_open: false,
            }
        });
        gated.is_open = false;
        gated.sections.push((std::cmp::Reverse(order), section));
    }

    /// Puts the best section behind each gate that may be open back into the order.
    pub(in crate::claim) fn put_opened(&mut self, now: i64) {
        if self.gated.is_empty() {
            self.openings = memory::openings();
            self.gated_until.clear();
            return;
        }
        let opened = memory::opened_since(&mut self.openings);
        for slot in opened.unwrap_or_else(|| self.gated.keys().copied().collect()) {
            self.open(slot);
        }
        // After the clock was set back, do not wait for the old time.
        let is_over = |until| until <= now || until > now + 2 * memory::GATE_MICROS;
        while let Some(&(until, slot)) = self.gated_until.front()
            && is_over(until)
        {
            self.gated_until.pop_front();
            let gated = self.gated.get_mut(&slot);
            if let Some(gated) = gated.filter(|gated| gated.until == until) {
                gated.until = now + memory::GATE_MICROS;
                self.gated_until.push_back((gated.until, slot));
                if !gated.gate.is_closed(now) {
                    self.open(slot);
                }
            }
        }
    }

    /// Puts the best section behind a gate back into the order; the others follow one by one.
    pub(super) fn open(&mut self, slot: usize) {
        if let Some(gated) = self.gated.get_mut(&slot) {
            gated.is_open = true;
            self.put_next_gated(slot);
        }
    }

    pub(super) fn put_next_gated(&mut self, slot: usize) {
        let Some(gated) = self.gated.get_mut(&slot).filter(|gated| gated.is_open) else {
            return;
        };
        while let Some((_, section)) = gated.sections.pop() {
            if let Some(KnownSection { start, order: None }) = self.sections.get(&section) {
                let start = *start;
                return self.put(section, start);
            }
        }
        self.gated.remove(&slot);
    }

    /// Returns the order of the best section to be scanned.
    pub(in crate::claim) fn best(&mut self) -> Option<ClaimOrder> {
        while let Some((order, section)) = self.best.peek() {
            let known = self.sections.get(section);
            if known.is_some_and(|known| known.order == Some(order.0)) {
                return Some(order.0);
            }
            self.best.pop();
        }
        None
    }

    /// Returns the best section and the job to scan it from, and removes it from the order until it
    /// is put back. The next section that is gated behind the same gate takes its place.
    pub(in crate::claim) fn take_best(&mut self) -> Option<(Section, i64)> {
        self.best()?;
        let (_, section) = self.best.pop()?;
        let of_section = self.sections.get_mut(&section)?;
        of_section.order = None;
        let start = of_section.start;
        if !self.gated.is_empty()
            && let Some(gate) = self.gate(section)
        {
            self.put_next_gated(gate.index());
        }
        Some((section, start))
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
        let Some(of_section) = self.sections.get_mut(&section) else {
            return;
        };
        match first {
            None if holds => return self.drop(section),
            Some(first) if holds => of_section.start = first,
            _ => {}
        }
        let start = of_section.start;
        match self.gate(section) {
            Some(gate) if gate.is_closed(now) => self.put_behind(section, gate),
            _ => self.put(section, start),
        }
    }

    /// Removes a section that has no rows, or none that pass the filter.
    pub(in crate::claim) fn drop(&mut self, section: Section) {
        self.sections.remove(&section);
    }
}
