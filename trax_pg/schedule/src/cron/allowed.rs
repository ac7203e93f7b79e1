//! The occurrences of a schedule that exclusions leave, forwards and backwards.

use super::Cron;
use super::next::{END, MICROS, Note};
use super::open::Open;
use crate::calendar::DAY;
use crate::exclusion::Exclusions;
use crate::zone::Zone;

/// The most skipped occurrences that are counted.
const MAX_COUNTED: u32 = 1_000;

/// The longest time over which occurrences are counted on the wall clock alone, in seconds: 32
/// days.
const STRETCH: i64 = 32 * DAY;

/// The length of the first look back, in seconds.
const FIRST_LOOK: i64 = 64;

/// An occurrence that nothing excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Microseconds since the Unix epoch, UTC.
    pub at_micros: i64,
    /// The zone's clock change at this occurrence, if there is one.
    pub note: Option<Note>,
    /// The number of excluded occurrences before it; 1,000 stands for that many or more.
    pub skipped: u32,
}

impl Cron {
    /// Returns the first occurrence strictly after an instant that is not excluded.
    ///
    /// A time in a gap is excluded when it or the end of the gap is excluded. Returns `None`
    /// without an occurrence within 41 years, 50 with exclusions. Open days are searched in the
    /// calendar, not occurrence by occurrence; only the count of skipped ones goes through them.
    /// Measured with chrono-tz (`an_allowed_time_takes_microseconds`): 1 to 13 µs, 0.02 ms where
    /// the count reaches 1,000.
    pub fn next_allowed(
        &self,
        after_micros: i64,
        zone: &impl Zone,
        exclusions: Option<&Exclusions>,
    ) -> Option<Allowed> {
        let last = after_micros.div_euclid(MICROS);
        let open = exclusions.map(|exclusions| Open::new(self, exclusions));
        let found = self.walk(last, END, open.as_ref(), zone)?;
        let skipped = match open {
            Some(_) => self.count_before(found.at, last, None, zone),
            None => 0,
        };
        Some(Allowed {
            at_micros: found.at.checked_mul(MICROS)?,
            note: self.note(found, zone),
            skipped,
        })
    }

    /// Returns the newest occurrence in a period, both ends included, that is not excluded.
    ///
    /// Looks back from the end in steps that double, then halves the step that contains an
    /// occurrence: the frequency of the schedule does not matter, and the length of the period
    /// hardly does. Measured over a year: 1 to 50 µs.
    pub fn latest(
        &self,
        from_micros: i64,
        to_micros: i64,
        zone: &impl Zone,
        exclusions: Option<&Exclusions>,
    ) -> Option<i64> {
        // Whole seconds: the first one not before the start, the last one not after the end.
        let from = from_micros.div_euclid(MICROS) + i64::from(from_micros.rem_euclid(MICROS) > 0);
        let to = to_micros.div_euclid(MICROS);
        if from > to {
            return None;
        }
        let open = exclusions.map(|exclusions| Open::new(self, exclusions));
        let first_in =
            |start: i64, end: i64| Some(self.walk(start - 1, end, open.as_ref(), zone)?.at);
        // No occurrence lies between here and the end.
        let mut none_from = to + 1;
        let mut look = FIRST_LOOK;
        let mut newest = loop {
            let start = to.saturating_sub(look).max(from);
            match first_in(start, none_from - 1) {
                Some(found) => break found,
                None if start == from => return None,
                None => (none_from, look) = (start, look.saturating_mul(2)),
            }
        };
        while none_from - newest > 1 {
            let middle = newest + (none_from - newest) / 2;
            match first_in(middle, none_from - 1) {
                Some(found) => newest = found,
                None => none_from = middle,
            }
        }
        newest.checked_mul(MICROS)
    }

    /// Returns how many occurrences that are not excluded lie in a period, both ends included;
    /// 1,000 stands for that many or more.
    pub fn count(
        &self,
        from_micros: i64,
        to_micros: i64,
        zone: &impl Zone,
        exclusions: Option<&Exclusions>,
    ) -> u32 {
        let open = exclusions.map(|exclusions| Open::new(self, exclusions));
        let last = from_micros.saturating_sub(1).div_euclid(MICROS);
        let end = to_micros.div_euclid(MICROS) + 1;
        self.count_before(end, last, open.as_ref(), zone)
    }

    /// Returns how many occurrences lie between two instants, all in seconds; with exclusions, only
    /// those that they allow.
    fn count_before(
        &self,
        at: i64,
        mut last: i64,
        open: Option<&Open<'_>>,
        zone: &impl Zone,
    ) -> u32 {
        let mut counted = 0;
        while counted < MAX_COUNTED
            && let Some(found) = self.walk(last, at - 1, open, zone)
        {
            let often = found.at - last < STRETCH / 4;
            (counted, last) = (counted + 1, found.at);
            if often {
                (counted, last) = self.count_on(counted, last, at, open, zone);
            }
        }
        counted
    }

    /// Continues the count from an occurrence, on the wall clock alone, while the offset stays the
    /// same.
    fn count_on(
        &self,
        mut counted: u32,
        last: i64,
        at: i64,
        open: Option<&Open<'_>>,
        zone: &impl Zone,
    ) -> (u32, i64) {
        let offset = i64::from(zone.offset_at(last));
        let mut wall = last + offset;
        // In a repeat, the next wall times were shown before.
        if !self.elapsed && zone.latest_wall(last) > wall {
            return (counted, last);
        }
        let end = (at - 1).min(last + STRETCH);
        let end = zone
            .next_change(last, end)
            .map_or(end, |change| change.at - 1);
        while counted < MAX_COUNTED
            && let Some(meant) = self.wall_from(wall + 1)
            && let next = open.map_or(meant, |open| open.wall_from(meant, end))
            && next - offset <= end
        {
            (counted, wall) = (counted + 1, next);
        }
        (counted, wall - offset)
    }
}
