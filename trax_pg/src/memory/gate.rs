//! Gates: a *gate* records that a group was full when somebody counted under its lock, until
//! something changes.
//!
//! The last openings are remembered in their order, so that a session looks again at what waits
//! behind those and not at all that waits. An opening counts before it is remembered: who looked at
//! the gate before, and so remembers it as closed, reads of it later.

use super::area::Area;
use crate::server::backend::my_database;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Gates by the hash of their groups; two groups with one slot open each other's.
const PLACES: usize = 16_384;
/// How long a closed gate is believed without counting again.
pub(crate) const GATE_MICROS: i64 = 1_000_000;

/// How many openings are remembered.
const OPENINGS: usize = 4096;

/// All zero is open.
#[repr(C)]
pub(super) struct Memory {
    /// How often a gate was opened, and which by that number: it and one, and the slot of the
    /// gate.
    opened: AtomicU64,
    openings: [AtomicU64; OPENINGS],
    changes: [AtomicU64; PLACES],
    /// The group and its changes when it was found full, and until when that is believed.
    closed: [AtomicU64; PLACES],
    until: [AtomicI64; PLACES],
}

pub(super) static GATES: Area<Memory> = Area::zeroed(c"trax gates");

/// Opens all gates.
pub(crate) fn open_gates() {
    if let Some(memory) = GATES.get() {
        for changes in &memory.changes {
            changes.fetch_add(1, Ordering::SeqCst);
        }
        // More than anybody can have missed.
        memory
            .opened
            .fetch_add(OPENINGS as u64 + 1, Ordering::SeqCst);
    }
}

/// Returns how often gates were opened.
pub(crate) fn openings() -> u64 {
    GATES
        .get()
        .map_or(0, |memory| memory.opened.load(Ordering::SeqCst))
}

/// Returns the slots of the gates that were opened since there had been so many openings, which it
/// brings up to date; `None` when these are not known: it may have been any.
pub(crate) fn opened_since(openings: &mut u64) -> Option<Vec<usize>> {
    let memory = GATES.get()?;
    let (from, to) = (*openings, memory.opened.load(Ordering::SeqCst));
    *openings = to;
    if to - from > OPENINGS as u64 {
        return None;
    }
    let of = |opening: u64| {
        let entry = memory.openings[opening as usize % OPENINGS].load(Ordering::SeqCst);
        // Another one, or one that is being written.
        (entry / PLACES as u64 == opening + 1).then_some(entry as usize % PLACES)
    };
    (from..to).map(of).collect()
}

/// A group's gate.
#[derive(Clone, Copy)]
pub(crate) struct Gate {
    hash: usize,
    group: u32,
}

impl Gate {
    /// Returns the gate of a group; `group` is a hash of its name.
    pub(crate) fn new(group: u64) -> Self {
        Self {
            hash: hash(group),
            group: (group >> 32) as u32,
        }
    }

    /// Returns its place.
    pub(crate) fn slot(self) -> usize {
        self.hash
    }

    /// Returns how often something changed that may have made room; to be read before counting.
    pub(crate) fn changes(self) -> u64 {
        GATES
            .get()
            .map_or(0, |m| m.changes[self.hash].load(Ordering::SeqCst))
    }

    fn closed(self, changes: u64) -> u64 {
        // Zero is a gate that was never closed.
        (u64::from(self.group) << 32 | changes & 0xffff_ffff) | 1 << 63
    }

    pub(crate) fn is_closed(self, now: i64) -> bool {
        GATES.get().is_some_and(|m| {
            let until = m.until[self.hash].load(Ordering::Relaxed);
            m.closed[self.hash].load(Ordering::SeqCst) == self.closed(self.changes())
                && (now..now + 2 * GATE_MICROS).contains(&until)
        })
    }

    /// Closes the gate: the group was full when it was counted after its changes were read.
    pub(crate) fn close(self, changes: u64, now: i64) {
        if let Some(memory) = GATES.get() {
            memory.until[self.hash].store(now + GATE_MICROS, Ordering::Relaxed);
            memory.closed[self.hash].store(self.closed(changes), Ordering::SeqCst);
        }
    }

    /// Opens the gate: there may be room.
    pub(crate) fn open(self) {
        if let Some(memory) = GATES.get() {
            memory.changes[self.hash].fetch_add(1, Ordering::SeqCst);
            let opening = memory.opened.fetch_add(1, Ordering::SeqCst);
            let entry = (opening + 1) * PLACES as u64 + self.hash as u64;
            memory.openings[opening as usize % OPENINGS].store(entry, Ordering::SeqCst);
        }
    }
}

fn hash(group: u64) -> usize {
    let database = u64::from(my_database().to_u32());
    let mixed = (group ^ (database << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize % PLACES
}
