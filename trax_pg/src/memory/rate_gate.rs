//! The gates of rates: until when a claim need not read the lanes of a key.
//!
//! Words: a key is *used* until one start has room again. It is *saved* while the first job that
//! waits for it costs more than may start now: until there is room for that job, no other starts,
//! or cheaper ones would keep it waiting for ever. Holds:
//! - Nothing shortens the time until which a key is used but a change of the rate and a start that
//!   is given back; these open the gate. A claim that closes it has read it before the start.
//! - A key may be saved for less long if another job becomes the first one: the first has left its
//!   lane, or a more urgent one has come. Each change of a job in a lane of the key opens the gate,
//!   after its commit ([`first_may_differ`]). The lanes of a key share the first bits of their
//!   numbers, which are the entry of the gate, so a change need not know the names.
//! - A claim that closes the gate has read the number of changes before it took its snapshot
//!   ([`Changes`]). If the number differs after it has closed the gate, it opens it again.

use super::area::Area;
use super::bound::{Bound, ENTRIES, open_entry};
use crate::lane;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Lanes share the numbers of changes by their first bits.
const NUMBERS: usize = 64;

/// All zero is empty.
#[repr(C)]
pub(super) struct Saved {
    changes: [AtomicU64; NUMBERS],
    /// The entries whose gate was closed since it was last opened.
    closed: [AtomicBool; ENTRIES],
}

pub(super) static SAVED: Area<Saved> = Area::zeroed(c"trax saved rates");

/// The gates of a key of a rate; an empty key is none.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct RateGates {
    pub(crate) used: Bound,
    pub(crate) saved: Bound,
}

impl RateGates {
    pub(crate) fn of(rate: &str, key: &str) -> Self {
        Self {
            used: Bound::named(&["rate", rate, key]),
            saved: Bound::in_entry(lane::of_rate(rate, key), &["saved", rate, key]),
        }
    }

    pub(crate) fn open(self) {
        self.used.open();
        self.saved.open();
    }

    /// Closes the gate behind which a key is saved until a time; returns false if another job may
    /// be the first one since `before`.
    pub(crate) fn save_until(self, until: i64, before: &Changes) -> bool {
        let Some(saved) = SAVED.get() else {
            return false;
        };
        let index = self.saved.index();
        self.saved.raise(self.saved.read(), until);
        saved.closed[index].store(true, Ordering::SeqCst);
        let now = saved.changes[index % NUMBERS].load(Ordering::SeqCst);
        let holds = before.0[index % NUMBERS] == now;
        if !holds {
            open_entry(index);
        }
        holds
    }
}

/// The numbers of changes before a claim took its snapshot.
pub(crate) struct Changes([u64; NUMBERS]);

impl Changes {
    pub(crate) fn read() -> Self {
        let saved = SAVED.get();
        Self(std::array::from_fn(|number| {
            saved.map_or(0, |saved| saved.changes[number].load(Ordering::SeqCst))
        }))
    }
}

/// Lets no claim that has begun keep a gate closed.
pub(super) fn any_first_may_differ() {
    if let Some(saved) = SAVED.get() {
        let changes = saved.changes.iter();
        changes.for_each(|number| {
            number.fetch_add(1, Ordering::SeqCst);
        });
    }
}

/// Opens the gate of the key that a lane is of: another job may be the first one. Other lanes with
/// the same first bits open it too.
pub(crate) fn first_may_differ(lane: i64) {
    let Some(saved) = SAVED.get() else { return };
    let index = usize::from(lane::first_bits(lane));
    saved.changes[index % NUMBERS].fetch_add(1, Ordering::SeqCst);
    if saved.closed[index].load(Ordering::SeqCst)
        && saved.closed[index].swap(false, Ordering::SeqCst)
    {
        open_entry(index);
    }
}
