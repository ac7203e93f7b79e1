//! From wall times to instants: what a schedule fires at in a zone.
//!
//! A walk over the stretches between changes of the zone's offset. Within one, the next match is
//! found on the wall clock and the offset makes it an instant. What must hold: the start of a
//! stretch only grows, and nothing that is found lies before it, so the result is after the
//! argument whatever a zone answers.

use std::fmt;

use super::Cron;
use super::allowed::Open;
use crate::zone::{Instants, OffsetChange, REACH, Zone};

/// How many stretches are walked before giving up. Each is a change or a leap to the next match;
/// the clock changes at most a few times in the years that the horizon allows between two matches.
const MAX_STRETCHES: usize = 256;

pub(super) const MICROS: i64 = 1_000_000;

/// The last second that microseconds can say.
pub(super) const END: i64 = i64::MAX / MICROS;

/// One time at which a schedule fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// Microseconds since the Unix epoch, UTC.
    pub at_micros: i64,
    /// What the zone's clock does here, when it does anything.
    pub note: Option<Note>,
}

/// Why an occurrence is where it is, when the clock changes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The wall time that was meant lies in a gap; this is the end of the gap.
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
    /// None when there is none within 41 years. Measured in a release build with chrono-tz as the
    /// zone (`a_next_takes_microseconds`): 0.2 to 1.2 µs for common texts; at most 0.2 ms, in a
    /// zone of noise.
    pub fn next(&self, after_micros: i64, zone: &impl Zone) -> Option<Occurrence> {
        // Matches are whole seconds: the first one that can be meant is the second after this one.
        let last = after_micros.div_euclid(MICROS);
        let found = self.walk(last, END, None, zone)?;
        Some(Occurrence {
            at_micros: found.at.checked_mul(MICROS)?,
            note: self.note(found, zone),
        })
    }

    /// Returns the first match after an instant and not after another, all in seconds; of those
    /// that exclusions allow when there are some.
    pub(super) fn walk(
        &self,
        last: i64,
        until: i64,
        open: Option<&Open<'_>>,
        zone: &impl Zone,
    ) -> Option<Found> {
        // A wall time below the floor was shown before, and between the floor and the match that
        // is looked for nothing matches: the floor serves every stretch. A fixed time starts one
        // second early, to see a gap that ends right after it.
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

    /// Returns what lies between an instant and the next match at the offset in force: nothing, a
    /// change, or so much time that changes in the middle cannot bring another match and are not
    /// looked for.
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

    /// Returns whether a time that is meant lies in the gap of a change, and neither it nor the end
    /// of the gap, where it would run, is excluded.
    fn gap_is_meant(&self, floor: i64, change: OffsetChange, open: Option<&Open<'_>>) -> bool {
        let end = change.at + change.after;
        let meant = self.wall_from(floor.max(change.at + change.before));
        meant.is_some_and(|meant| {
            open.map_or(meant, |open| open.wall_from(meant, change.at)) < end
                && open.is_none_or(|open| open.allows(end))
        })
    }

    /// Returns what the clock does at a match. A time at the end of a gap was not moved there when
    /// it is meant as well.
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
    /// The change whose gap ends there, when times in the gap are meant.
    gap: Option<OffsetChange>,
}

enum Leap {
    None,
    Change(OffsetChange),
    To(i64),
}
