//! Skips: rows at the front of a section that claims skip until another transaction ends.
//!
//! These rows share a concurrency key or a manifest with a job that the other transaction is
//! claiming or ending, so they can be neither claimed nor blocked yet. A claim that has read many
//! such rows raises the start of the section past them, so that the next claims do not read them
//! again. The first claim after the end of the transaction lowers the start to the first of them.
//! If no entry is free for a skip, the start is not raised past its rows.
//!
//! The end of the transaction may not ring. So while its database has skips, a session that finds
//! no row waits for 10 ms at most, and then claims again (`wake.rs`).

use super::{Database, LaneStarts, Section, own};
use crate::server::running::Running;
use std::sync::atomic::Ordering;

/// Most skips of all databases.
pub(super) const SKIPS: usize = 256;

/// All zero is a free entry.
#[derive(Clone, Copy)]
pub(super) struct Skip {
    is_taken: bool,
    database: u16,
    section: Section,
    /// The first of the rows.
    first: i64,
    until: Running,
}

impl LaneStarts {
    fn skips(&mut self, database: usize) -> impl Iterator<Item = &mut Skip> {
        let skips = self.skips.iter_mut();
        skips.filter(move |skip| skip.is_taken && usize::from(skip.database) == database)
    }

    /// Returns whether the start of a section may be after a row because of a skip.
    pub(super) fn may_skip(&self, shared: &Database, database: usize, row: (Section, i64)) -> bool {
        shared.skips.load(Ordering::Relaxed) > 0
            && self.skips.iter().any(|skip| {
                skip.is_taken
                    && usize::from(skip.database) == database
                    && skip.section == row.0
                    && skip.first <= row.1
            })
    }

    pub(super) fn add_skip(
        &mut self,
        shared: &Database,
        database: usize,
        row: (Section, i64),
        until: Running,
    ) -> bool {
        let (section, first) = row;
        let same = |skip: &&mut Skip| skip.section == section && skip.until == until;
        if let Some(same) = self.skips(database).find(same) {
            same.first = first.min(same.first);
            return true;
        }
        let Some(free) = self.skips.iter_mut().find(|skip| !skip.is_taken) else {
            return false;
        };
        *free = Skip {
            is_taken: true,
            database: database as u16,
            section,
            first,
            until,
        };
        shared.skips.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Ends the skips that wait for these transactions, and lowers their starts. `None` ends all
    /// skips of the database, and lowers no start.
    pub(super) fn end_skips(
        &mut self,
        shared: &Database,
        database: usize,
        ended: Option<&[Running]>,
    ) {
        let mut rows = Vec::new();
        for skip in self.skips(database) {
            if ended.is_none_or(|ended| ended.contains(&skip.until)) {
                rows.push((skip.section, skip.first));
                skip.is_taken = false;
            }
        }
        shared.skips.fetch_sub(rows.len() as u32, Ordering::Relaxed);
        if ended.is_some() {
            for row in rows {
                self.lower(shared, database, row);
            }
        }
    }
}

/// Adds a skip: claims skip rows of a section, from the job `first` on, until a transaction ends.
/// Returns false if no entry is free.
pub(crate) fn skip(section: Section, first: i64, until: Running) -> bool {
    own().is_some_and(|(memory, database)| {
        let shared = &memory.databases[database];
        memory.write(|entries| entries.add_skip(shared, database, (section, first), until))
    })
}

/// Returns whether this database has skips: rows before a start that may become claimable without a
/// change.
pub(crate) fn has_skips() -> bool {
    own().is_some_and(|(memory, database)| {
        memory.databases[database].skips.load(Ordering::Relaxed) > 0
    })
}

/// Ends the skips whose transactions have ended, and lowers their starts. Call it inside a
/// transaction.
pub(crate) fn end_skips() {
    let Some((memory, database)) = own().filter(|_| has_skips()) else {
        return;
    };
    let shared = &memory.databases[database];
    let known: Vec<Running> = memory.write(|entries| {
        let mut known: Vec<_> = entries.skips(database).map(|skip| skip.until).collect();
        known.dedup();
        known
    });
    let ended: Vec<Running> = known
        .into_iter()
        .filter(|until| until.has_ended())
        .collect();
    if !ended.is_empty() {
        memory.write(|entries| entries.end_skips(shared, database, Some(&ended)));
    }
}
