//! The fronts of sections: rows that stay where they are because another transaction, which has not
//! ended, claims or ends a job with which they share a key or a manifest.
//!
//! A hundred thousand such rows are read by one claim, and not by the next ones: the start of the
//! section is raised past them until that transaction has ended (`memory/lane/skip.rs`).

use crate::limit::Shared;
use crate::memory;
use crate::memory::Section;
use crate::server::running::Running;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Fewest rows for which a start is raised. Fewer are read again, which costs 16 µs at most; and
/// two claims that meet at a key write nothing that others read.
const AT_LEAST: usize = 32;

/// The fronts as far as one claim has read them.
#[derive(Default)]
pub(super) struct Fronts(HashMap<Section, Front>);

struct Front {
    count: usize,
    /// The keys and manifests because of which the rows stay, each with the first of its rows.
    shared: Vec<(Shared, i64)>,
    /// The row after them, or where it would be.
    next: i64,
}

impl Fronts {
    /// Notes that a row stays. It belongs to the front if it `is_first` in its section, or if all
    /// rows before it do.
    pub(super) fn add(
        &mut self,
        section: Section,
        job_id: i64,
        shared: Shared,
        next: i64,
        is_first: impl FnOnce() -> bool,
    ) {
        let front = match self.0.entry(section) {
            Entry::Occupied(front) => front.into_mut(),
            Entry::Vacant(place) if is_first() => place.insert(Front {
                count: 0,
                shared: Vec::new(),
                next: job_id,
            }),
            Entry::Vacant(_) => return,
        };
        if front.next == job_id {
            front.count += 1;
            front.next = next;
            if front.shared.iter().all(|(known, _)| *known != shared) {
                front.shared.push((shared, job_id));
            }
        }
    }

    /// Returns the sections with many such rows, and where each starts for other claims until the
    /// transactions end that `holders_of` returns.
    pub(super) fn skip(&self, holders_of: impl Fn(&Shared) -> Vec<Running>) -> Vec<(Section, i64)> {
        let many = self.0.iter().filter(|(_, front)| front.count >= AT_LEAST);
        many.map(|(&section, front)| {
            let mut shared = front.shared.iter();
            let stops_at = shared.find_map(|(shared, first)| {
                let until = holders_of(shared);
                let is_added = |&until: &Running| memory::skip(section, *first, until);
                (until.is_empty() || !until.iter().all(is_added)).then_some(*first)
            });
            (section, stops_at.unwrap_or(front.next))
        })
        .collect()
    }
}
