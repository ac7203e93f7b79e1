//! From wall times to instants: when a schedule fires in a zone.
//!
//! Walks over the stretches between changes of the zone's offset. Within a stretch, the next match
//! is found on the wall clock and the offset turns it into an instant. Invariant: the start of a
//! stretch only grows, and no result lies before it, so the result is after the argument whatever
//! offsets a zone returns.

use std::fmt;

use super::Cron;
use super::open::Open;
use crate::zone::{Instants, OffsetChange, REACH, Zone};

/// The most stretches before the search gives up. Each is a change or a leap to the next match; the
/// clock changes at most a few times in the years that the horizon allows between two matches.
const MAX_STRETCHES: usize = 256;

pub(super) const MICROS: i64 = 1_000_000;

/// The last second that microseconds can represent.
pub(super) const END: i64 = i64::MAX / MICROS;

/// A time at which a schedule fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// Microseconds since the Unix epoch, UTC.
    pub at_micros: i64,
    /// The zone's clock change at this occurrence, if there is one.
    pub note: Option<Note>,
}

/// The effect of a clock change on an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The wall time of the schedule lies in a gap; this is the end of the gap.
    Gap,
    /// The wall time is shown twice, and this is the first time.
    RepeatedFirst,
    /// The wall time is shown twice, and this is the second time.
    RepeatedSecond,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Note::Gap => "moved to the end of the gap: the clock skips the time that was meant",
            Note::RepeatedFirst => "the clock shows this time twice: first pass",
            Note::RepeatedSecond => "the clock shows this time twice: second pass",
        })
    }
}

impl Cron {
    /// Returns the first occurrence strictly after an instant, in microseconds since the Unix
    /// epoch.
    ///
    /// Returns `None` when there is none within 41 years. Measured in a release build with
    /// chrono-tz as the zone (`a_next_takes_microseconds`): 0.2 to 1.2 µs for common texts; at most
    /// 0.2 ms, in a zone of random offsets.
    pub fn next(&self, after_micros: i64, zone: &impl Zone) -> Option<Occurrence> {
        // Matches are whole seconds: the first possible one is the second after this one.
        let last = after_micros.div_euclid(MICROS);
        let found = self.walk(last, END, None, zone)?;
        Some(Occurrence {
            at_micros: found.at.checked_mul(MICROS)?,
            note: self.note(found, zone),
        })
    }

    /// Returns the first match after `last` and not after `until`, all in seconds; with exclusions,
    /// the first that they allow.
    pub(super) fn walk(
        &self,
        last: i64,
        until: i64,
        open: Option<&Open<'_>>,
        zone: &impl Zone,
    ) -> Option<Found> {
        // A wall time below the floor was shown before, and nothing between the floor and the next
        // match matches, so the floor serves every stretch. A fixed time starts one second early,
        // to see a gap that ends right after it.
        let (mut start, floor) = match self.elapsed {
            true => (last + 1, i64::MIN),
            false => (last, zone.latest_wall(last) + 1),
        };
        let mut offset = i64::from(zone.offset_at(start));
        for _ in 0..MAX_STRETCHES {
            if start > until {
                return None;
            }
            let meant = self.wall_from(floor.max(start + offset))?;
            let wall = open.map_or(meant, |open| open.wall_from(meant, until));
            let at = wall - offset;
            let change = match self.leap(start, at.min(until + 1), zone) {
                Leap::To(near) => {
                    start = near;
                    offset = i64::from(zone.offset_at(start));
                    continue;
                }
                Leap::Change(change) => change,
                Leap::None => return (at <= until).then_some(Found { at, gap: None }),
            };
            if !self.elapsed && self.gap_is_meant(floor, change, open) {
                let found = Found {
                    at: change.at,
                    gap: Some(change),
                };
                return (found.at <= until).then_some(found);
            }
            (start, offset) = (change.at, change.after);
        }
        None
    }

    /// Returns the step from an instant to the next match at the current offset: the match, a
    /// change, or a period long enough that changes in its middle cannot bring another match and
    /// are not searched for.
    fn leap(&self, start: i64, at: i64, zone: &impl Zone) -> Leap {
        let far = at - start > 2 * REACH;
        // Elapsed time: a repeat soon after the start shows wall times from before it again.
        let look_until = match (far, self.elapsed) {
            (false, _) => at,
            (true, true) => start + REACH,
            (true, false) => start,
        };
        if let Some(change) = zone.next_change(start, look_until) {
            return Leap::Change(change);
        }
        if look_until < at {
            Leap::To(at - REACH)
        } else {
            Leap::None
        }
    }

    /// Returns whether a time of the schedule lies in the gap of a change, and neither it nor the
    /// end of the gap, where it would run, is excluded.
    fn gap_is_meant(&self, floor: i64, change: OffsetChange, open: Option<&Open<'_>>) -> bool {
        let end = change.at + change.after;
        let meant = self.wall_from(floor.max(change.at + change.before));
        meant.is_some_and(|meant| {
            open.map_or(meant, |open| open.wall_from(meant, change.at)) < end
                && open.is_none_or(|open| open.allows(end))
        })
    }

    /// Returns the effect of a clock change on a match. A time at the end of a gap was not moved
    /// there if the schedule matches it as well.
    pub(super) fn note(&self, found: Found, zone: &impl Zone) -> Option<Note> {
        if let Some(change) = found.gap {
            let wall = change.at + change.after;
            return (self.wall_from(wall) != Some(wall)).then_some(Note::Gap);
        }
        match zone.instants_of(zone.wall_at(found.at)) {
            Instants::Twice(first, _) if found.at == first => Some(Note::RepeatedFirst),
            Instants::Twice(..) => Some(Note::RepeatedSecond),
            _ => None,
        }
    }
}

/// A match.
#[derive(Clone, Copy)]
pub(super) struct Found {
    /// The instant, in seconds.
    pub(super) at: i64,
    /// The change at the end of whose gap the match lies, when the schedule has times in the gap.
    gap: Option<OffsetChange>,
}

enum Leap {
    None,
    Change(OffsetChange),
    To(i64),
}
