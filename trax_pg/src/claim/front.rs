//! The fronts of sections: the first rows of a section, if they cannot be claimed or blocked yet.
//!
//! These rows share a *busy* key or manifest: another transaction, which has not ended, holds its
//! lock, as a claim does until its commit; or it is full, and another transaction is deleting the
//! lease of one of its jobs, as an outcome does. There may be a hundred thousand of these rows. A
//! claim that has read 32 or more raises the start of the section past them until that
//! transaction has ended (`memory/lane/skip.rs`), so the next claims do not read them again.

use crate::limit::Shared;
use crate::memory;
use crate::memory::Section;
use crate::server::running::Running;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Fewest rows for which a start is raised. Fewer are read again, which costs 16 µs at most; so two
/// claims that only meet at a key do not write to shared memory.
const AT_LEAST: usize = 32;

/// The fronts, as far as one claim has read them.
#[derive(Default)]
pub(super) struct Fronts(HashMap<Section, Front>);

struct Front {
    count: usize,
    /// The busy keys and manifests of these rows, each with its first row.
    shared: Vec<(Shared, i64)>,
    /// The next row after them, or the lowest job that it can have.
    next: i64,
}

impl Fronts {
    /// Adds a row whose key or manifest `shared` is busy. The row belongs to the front if it is the
    /// first of its section (`is_first`), or if all rows before it belong to the front.
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
            Entry::Vacant(entry) if is_first() => entry.insert(Front {
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

    /// Adds skips for the sections with many such rows, until the transactions that `holders_of`
    /// returns have ended. Returns these sections, each with its start for other claims.
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
