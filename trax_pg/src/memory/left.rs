//! Work that transactions have left undone, because other transactions had locked its rows or its
//! limit. The next cycle of the database takes it and does it (`repair.rs`).
//!
//! If no entry is free, the work is found by the repair.

use crate::server::backend::my_database;
use crate::server::call::NAME_BYTES;
use pgrx::{AssertPGRXSharedMemory, PgLwLock};

/// Most entries of all databases; 288 bytes each.
const ENTRIES: usize = 256;

/// A name of 1 to 255 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    length: u8,
    bytes: [u8; NAME_BYTES],
}

impl Name {
    /// Returns a name; `None` if it is longer.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let mut bytes = [0; NAME_BYTES];
        bytes
            .get_mut(..name.len())?
            .copy_from_slice(name.as_bytes());
        let length = name.len() as u8;
        Some(Self { length, bytes })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes[..self.length.into()]).into_owned()
    }
}

/// Work that a transaction has left undone.
#[expect(clippy::large_enum_variant, reason = "shared memory has no boxes")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Left {
    /// Jobs of this concurrency key have ended.
    Key(Name),
    /// Jobs of this manifest have ended.
    Manifest(i64),
    /// This job may leave its place behind a key or manifest.
    Job(i64),
    /// The queued job of this manifest, which allows overlap, is claimed.
    Overlap(i64),
}

#[derive(Clone, Copy)]
pub(super) struct Entry {
    database: u32,
    left: Left,
    count: i64,
}

type Board = AssertPGRXSharedMemory<[Option<Entry>; ENTRIES]>;

// SAFETY: no other lock has this name.
pub(super) static LEFT: PgLwLock<Board> = unsafe { PgLwLock::new(c"trax left") };

pub(super) fn none() -> Board {
    // SAFETY: it has no pointers and nothing to drop.
    unsafe { AssertPGRXSharedMemory::new([None; ENTRIES]) }
}

/// Adds work, each with how often it is to be done.
pub(crate) fn add(all: impl ExactSizeIterator<Item = (Left, i64)>) {
    if all.len() == 0 {
        return;
    }
    let database = my_database().to_u32();
    let mut board = LEFT.exclusive();
    let free = board.iter_mut().filter(|entry| entry.is_none());
    for (entry, (left, count)) in free.zip(all) {
        *entry = Some(Entry {
            database,
            left,
            count,
        });
    }
}

/// Takes the work of this database.
pub(crate) fn take() -> Vec<(Left, i64)> {
    let database = my_database().to_u32();
    let is_own = |entry: &Option<Entry>| entry.is_some_and(|entry| entry.database == database);
    if !super::available() || !LEFT.share().iter().any(is_own) {
        return Vec::new();
    }
    let mut board = LEFT.exclusive();
    let own = board.iter_mut().filter(|entry| is_own(entry));
    own.filter_map(Option::take)
        .map(|entry| (entry.left, entry.count))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn a_name_of_255_bytes_fits_and_a_longer_one_does_not() {
        let name = "é".repeat(127) + "a";
        let kept = Name::of(&name).map(|name| name.text());
        assert_eq!(kept.as_deref(), Some(&*name));
        assert!(Name::of(&(name + "a")).is_none());
    }
}
