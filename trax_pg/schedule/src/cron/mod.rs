//! Cron: when a text such as `30 2 * * MON-FRI` fires, in a zone.
//!
//! Five fields (minute, hour, day of month, month, day of week) or six with seconds in front; the
//! shorthands `@hourly`, `@daily`, `@midnight`, `@weekly`, `@monthly`, `@yearly`, `@annually`. The
//! meaning of the forms on which cron dialects differ:
//!
//! - Days of the week are 0 to 7 or names; 0 and 7 are Sunday. A name is three letters or more of
//!   the English one.
//! - A range may wrap: `22-4`, `SAT-SUN`, `NOV-FEB`, also with a step, which counts on through the
//!   end (`22-4/2` is 22, 0, 2, 4). From a value to itself is that value (`SUN-SUN`). `a/step` is
//!   `a` to the largest value. A step larger than the largest value is refused.
//! - When both day fields are restricted either one matches. `*`, `*/1` and `?` do not restrict;
//!   `*/2` and `1-31` do.
//! - `L` is the last day of the month, `LW` its last weekday, `15W` the weekday nearest to the 15th
//!   without leaving the month (none where the month has no such day), `5L` or `FRIL` the last
//!   Friday, `5#2` or `FRI#2` the second. They may stand in a list, without a range or a step.
//! - `L-3`, `H`, `+`, `@reboot` and `@every` of other dialects are refused.
//!
//! Where the clock changes: a schedule whose hour and minute are plain numbers, lists and ranges
//! means wall times. Times that a gap skips fire once, when the gap ends, however many were
//! skipped; a time that is shown twice fires the first time. With a wildcard or a step in the hour
//! or minute, a schedule means elapsed time: it fires at every instant whose wall time matches,
//! both times in a repeat and never in a gap.

mod allowed;
mod day;
mod error;
mod item;
mod next;
mod open;
mod parse;

pub use allowed::Allowed;
pub(super) use day::Days;
use day::next_bit;
pub use error::CronError;
pub(super) use item::{DAY_OF_MONTH, DAY_OF_WEEK, HOUR, MINUTE, MONTH, SECOND};
pub(super) use item::{Item, Piece, Span, Unit, value};
pub use next::{Note, Occurrence};
pub(super) use parse::{Fields, fields};

use super::calendar::{DAY, date_of, day_of};

/// How many years ahead a date is searched. The rarest dates, such as a fifth Sunday in February,
/// are 40 years apart where a century is no leap year; `0 0 29 2 *` needs 8.
const HORIZON_YEARS: i64 = 41;

/// A parsed cron schedule, which computes its times.
///
/// ```
/// use trax_schedule::{Cron, Utc};
///
/// let cron = Cron::parse("0 2 * * *").unwrap();
/// let first = cron.next(0, &Utc).unwrap();
/// assert_eq!(first.at_micros, 2 * 3_600_000_000);
///
/// let wrong = Cron::parse("61 * * * *").unwrap_err();
/// assert_eq!((wrong.position, wrong.message.as_str()), (1, "minute \"61\" is out of range"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cron {
    seconds: u64,
    minutes: u64,
    hours: u64,
    months: u64,
    days: Days,
    elapsed: bool,
}

impl Cron {
    /// The longest text, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// Parses a text of at most [`MAX_BYTES`](Self::MAX_BYTES). Returns an error for a text outside
    /// the dialect, and for a schedule that can never fire.
    pub fn parse(text: &str) -> Result<Cron, CronError> {
        let parsed = parse::parse(text)?;
        let cron = Cron {
            seconds: parsed.seconds,
            minutes: parsed.minutes,
            hours: parsed.hours,
            months: parsed.months,
            days: parsed.days,
            elapsed: parsed.elapsed,
        };
        // The calendar repeats, and no date in it is rarer than the horizon: one search from any
        // date decides.
        if cron.wall_from(0).is_none() {
            let hint = "Name a day that one of the months has, as in 0 0 28 2 * or 0 0 L 2 *.";
            return Err(CronError::new(
                parsed.day_position,
                "the schedule never fires",
                hint,
            ));
        }
        Ok(cron)
    }

    /// Returns the first matching wall time that is not before `wall`.
    fn wall_from(&self, wall: i64) -> Option<i64> {
        let day = wall.div_euclid(DAY);
        let (year, month, day_of_month) = date_of(day);
        if self.days_in(year, month) & 1 << day_of_month != 0
            && let Some(second) = self.second_from(wall.rem_euclid(DAY) as u32)
        {
            return Some(day * DAY + i64::from(second));
        }
        let next = self.day_after(year, month, day_of_month)?;
        Some(next * DAY + i64::from(self.second_from(0)?))
    }

    /// Returns the first matching second of a day that is not before `second_of_day`.
    fn second_from(&self, second_of_day: u32) -> Option<u32> {
        let (hour, minute) = (second_of_day / 3_600, second_of_day / 60 % 60);
        let first = |set: u64| set.trailing_zeros();
        if self.hours & 1 << hour != 0 {
            if self.minutes & 1 << minute != 0
                && let Some(second) = next_bit(self.seconds, second_of_day % 60)
            {
                return Some(hour * 3_600 + minute * 60 + second);
            }
            if let Some(minute) = next_bit(self.minutes, minute + 1) {
                return Some(hour * 3_600 + minute * 60 + first(self.seconds));
            }
        }
        let hour = next_bit(self.hours, hour + 1)?;
        Some(hour * 3_600 + first(self.minutes) * 60 + first(self.seconds))
    }

    /// Returns the first matching day, as a number, after a date.
    fn day_after(&self, year: i64, month: u32, day_of_month: u32) -> Option<i64> {
        let later = u32::MAX.checked_shl(day_of_month + 1).unwrap_or(0);
        let mut days = self.days_in(year, month) & later;
        let (mut in_year, mut in_month) = (year, month);
        while days == 0 {
            in_month = match next_bit(self.months, in_month + 1) {
                Some(month) => month,
                None => {
                    in_year += 1;
                    self.months.trailing_zeros()
                }
            };
            if in_year > year + HORIZON_YEARS {
                return None;
            }
            days = self.days.in_month(in_year, in_month);
        }
        Some(day_of(in_year, in_month, days.trailing_zeros()))
    }

    /// Returns the matching days of a month; none when the month does not match.
    fn days_in(&self, year: i64, month: u32) -> u32 {
        if self.months & 1 << month == 0 {
            return 0;
        }
        self.days.in_month(year, month)
    }
}

#[cfg(test)]
mod tests;
