//! Exclusions: local times at which a schedule does not run.
//!
//! **closed**: a wall time that is excluded; **open**: any other. Days are closed as a whole (days
//! of the week, dates, date ranges) or in part (time windows). An instant is excluded when its wall
//! time is closed: in a repeated hour both passes count alike. A cron time that a gap moves is also
//! excluded by its original wall time.
//!
//! Invariant: some wall time of the recurring rules is open, or the rules are refused. All work is
//! bounded by [`HORIZON_YEARS`] counted in months, never by days or by occurrences.

mod parse;

use std::fmt;

use super::calendar::{DAY, date_of, day_of, day_of_week, days_in_month};
use super::cron::Days;
use super::zone::{REACH, Zone};
pub use parse::ExclusionError;

/// How many years ahead an open time is searched.
const HORIZON_YEARS: i64 = 50;

/// The most clock changes, or leaps between them, over which one exclusion is followed.
const MAX_STRETCHES: usize = 64;

const MICROS: i64 = 1_000_000;

const WEEK: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// The local times at which a schedule does not run.
///
/// ```
/// use trax_schedule::{Exclusions, Utc};
///
/// let json = serde_json::json!({"time_windows": [{"from": "22:00", "to": "06:00"}]});
/// let exclusions = Exclusions::parse(&json).unwrap();
/// let excluded = exclusions.covering(0, &Utc).unwrap();
/// assert_eq!(excluded.until_micros, 6 * 3_600_000_000);
/// assert_eq!(excluded.reason, "excluded: 22:00-06:00");
/// assert_eq!(exclusions.covering(excluded.until_micros, &Utc), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions {
    /// Days of the week, bits 0 (Sunday) to 6.
    days_of_week: u8,
    /// Days of every year: element m - 1 has the days of month m, bits 1 to 31.
    yearly: [u32; 12],
    /// Dates and date ranges as written.
    ranges: Vec<DateRange>,
    /// The same days in order, no two touching.
    closed_days: Vec<DateRange>,
    /// Time windows as written.
    windows: Vec<Window>,
    /// The closed part of each day of the week: spans of seconds in order, the end exclusive, no
    /// two touching.
    closed_seconds: [Vec<(u32, u32)>; 7],
}

/// An instant at which a schedule does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excluded {
    /// The first instant that is not excluded, in microseconds since the Unix epoch; `i64::MAX`
    /// when that is more than 50 years away.
    pub until_micros: i64,
    /// The exclusion as text for people: `excluded: 22:00-06:00`.
    pub reason: String,
}

/// The days from a first to a last one, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DateRange {
    first: i64,
    last: i64,
}

/// A part of a day, in seconds; it ends on the next day when the end is not after the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    from: u32,
    to: u32,
    /// The days of the week on which it begins, bits 0 to 6.
    days_of_week: u8,
}

impl Exclusions {
    /// Returns whether nothing is ever excluded.
    pub fn is_empty(&self) -> bool {
        *self == Exclusions::default()
    }

    /// Returns the exclusion of an instant, in microseconds since the Unix epoch, and its end;
    /// `None` when the instant is not excluded.
    pub fn covering(&self, at_micros: i64, zone: &impl Zone) -> Option<Excluded> {
        let at = at_micros.div_euclid(MICROS);
        let reason = self.reason(zone.wall_at(at))?;
        let until = self.open_instant(at, zone);
        Some(Excluded {
            until_micros: until
                .and_then(|until| until.checked_mul(MICROS))
                .unwrap_or(i64::MAX),
            reason,
        })
    }

    /// Returns whether a wall time is open.
    pub(super) fn is_open(&self, wall: i64) -> bool {
        let day = wall.div_euclid(DAY);
        let second = wall.rem_euclid(DAY) as u32;
        self.is_open_day(day) && self.open_second(day_of_week(day), second) == Some(second)
    }

    /// Returns the first second of a day of the week that no window closes and that is not before
    /// `second`.
    pub(super) fn open_second(&self, day_of_week: u32, second: u32) -> Option<u32> {
        let closed = &self.closed_seconds[day_of_week as usize];
        let next = closed.partition_point(|(_, to)| *to <= second);
        let open = match closed.get(next) {
            Some((from, to)) if *from <= second => *to,
            _ => second,
        };
        (i64::from(open) < DAY).then_some(open)
    }

    /// Returns whether no rule closes the whole day; windows may close a part or all of it.
    pub(super) fn is_open_day(&self, day: i64) -> bool {
        let (_, month, day_of_month) = date_of(day);
        self.days_of_week & 1 << day_of_week(day) == 0
            && self.yearly[month as usize - 1] & 1 << day_of_month == 0
            && self.closed_until(day).is_none()
    }

    /// Returns the first open day after `day` that is among the given days of the week and among
    /// the wanted days of its month (bits 1 to 31). `None` when there is none up to the month of
    /// `last_day`, or within the horizon.
    pub(super) fn open_day_after(
        &self,
        day: i64,
        last_day: i64,
        days_of_week: u8,
        wanted: impl Fn(i64, u32) -> u32,
    ) -> Option<i64> {
        let of_week = Days {
            any_day_of_month: true,
            of_week: days_of_week & !self.days_of_week,
            ..Days::default()
        };
        let (mut year, mut month, mut day_of_month) = date_of(day + 1);
        let (last_year, last_month, _) = date_of(last_day);
        let last = (last_year, last_month).min((year + HORIZON_YEARS, 12));
        while of_week.of_week != 0 && (year, month) <= last {
            let later = u32::MAX << day_of_month;
            let open = of_week.in_month(year, month) & !self.yearly[month as usize - 1];
            let days = wanted(year, month) & open & later;
            if days == 0 {
                (year, month) = (year + i64::from(month / 12), month % 12 + 1);
                day_of_month = 1;
                continue;
            }
            let found = day_of(year, month, days.trailing_zeros());
            match self.closed_until(found) {
                None => return Some(found),
                Some(last) => (year, month, day_of_month) = date_of(last + 1),
            }
        }
        None
    }

    /// Returns the last of the consecutive dates that close a day, if any do.
    fn closed_until(&self, day: i64) -> Option<i64> {
        let next = self.closed_days.partition_point(|range| range.last < day);
        let range = self.closed_days.get(next)?;
        (range.first <= day).then_some(range.last)
    }

    /// Returns the first open wall time that is not before `wall`.
    fn open_wall(&self, wall: i64) -> Option<i64> {
        let day = wall.div_euclid(DAY);
        if self.is_open_day(day)
            && let Some(second) = self.open_second(day_of_week(day), wall.rem_euclid(DAY) as u32)
        {
            return Some(day * DAY + i64::from(second));
        }
        let all = |year, month| u32::MAX >> (31 - days_in_month(year, month));
        let next = self.open_day_after(day, i64::MAX / DAY, self.days_of_week_with_time(), all)?;
        Some(next * DAY + i64::from(self.open_second(day_of_week(next), 0)?))
    }

    /// Returns the days of the week of which the windows leave a part, bits 0 to 6.
    fn days_of_week_with_time(&self) -> u8 {
        (0..7)
            .filter(|day| self.open_second(*day, 0).is_some())
            .fold(0, |days, day| days | 1 << day)
    }

    /// Returns the first instant not before `at`, both in seconds, that shows an open wall time.
    fn open_instant(&self, at: i64, zone: &impl Zone) -> Option<i64> {
        let mut start = at;
        let mut offset = i64::from(zone.offset_at(start));
        for _ in 0..MAX_STRETCHES {
            let until = self.open_wall(start + offset)? - offset;
            // A repeat soon after the start may show an earlier, open wall time. A repeat in the
            // middle of a long exclusion shows closed ones and is not searched for.
            let far = until - start > 2 * REACH;
            let look_until = if far { start + REACH } else { until };
            match zone.next_change(start, look_until) {
                Some(change) => (start, offset) = (change.at, change.after),
                None if far => {
                    start = until - REACH;
                    offset = i64::from(zone.offset_at(start));
                }
                None => return Some(until),
            }
        }
        None
    }

    /// Returns the rule that closes a wall time, as text for people.
    fn reason(&self, wall: i64) -> Option<String> {
        if self.is_open(wall) {
            return None;
        }
        let day = wall.div_euclid(DAY);
        let today = day_of_week(day);
        let (_, month, day_of_month) = date_of(day);
        let what = if self.days_of_week & 1 << today != 0 {
            let kind = if matches!(today, 0 | 6) {
                "weekend day"
            } else {
                "weekday"
            };
            format!("{kind} {}", WEEK[today as usize])
        } else if self.yearly[month as usize - 1] & 1 << day_of_month != 0 {
            format!("{month:02}-{day_of_month:02} of every year")
        } else if let Some(range) = self.ranges.iter().find(|range| range.has(day)) {
            range.to_string()
        } else {
            let second = wall.rem_euclid(DAY) as u32;
            self.windows
                .iter()
                .find(|window| window.has(today, second))?
                .to_string()
        };
        Some(format!("excluded: {what}"))
    }
}

impl DateRange {
    fn has(&self, day: i64) -> bool {
        (self.first..=self.last).contains(&day)
    }
}

impl fmt::Display for DateRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_of(self.first);
        write!(f, "{year:04}-{month:02}-{day:02}")?;
        if self.first < self.last {
            let (year, month, day) = date_of(self.last);
            write!(f, " to {year:04}-{month:02}-{day:02}")?;
        }
        Ok(())
    }
}

impl Window {
    /// Returns its parts: a day of the week counted from the one on which it begins, and seconds of
    /// that day, the end exclusive.
    fn parts(&self) -> impl Iterator<Item = (u32, u32, u32)> {
        let parts = if self.from < self.to {
            [(0, self.from, self.to), (1, 0, 0)]
        } else {
            [(0, self.from, DAY as u32), (1, 0, self.to)]
        };
        parts.into_iter().filter(|(_, from, to)| from < to)
    }

    fn begins_on(&self, day_of_week: u32) -> bool {
        self.days_of_week & 1 << day_of_week != 0
    }

    fn has(&self, day_of_week: u32, second: u32) -> bool {
        self.parts().any(|(days, from, to)| {
            self.begins_on((day_of_week + 7 - days) % 7) && (from..to).contains(&second)
        })
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = |second: u32| {
            let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
            match second {
                0 => format!("{hour:02}:{minute:02}"),
                _ => format!("{hour:02}:{minute:02}:{second:02}"),
            }
        };
        write!(f, "{}-{}", clock(self.from), clock(self.to))?;
        if self.days_of_week != ALL_DAYS {
            let days = (0..7).filter(|day| self.begins_on(*day));
            let names: Vec<&str> = days.map(|day| &WEEK[day as usize][..3]).collect();
            write!(f, " from {}", names.join(", "))?;
        }
        Ok(())
    }
}

/// Every day of the week, bits 0 to 6.
const ALL_DAYS: u8 = 0x7f;

#[cfg(test)]
pub(crate) mod tests;
