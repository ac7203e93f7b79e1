//! The days of a month that a schedule names: the two day fields, and the rules `L`, `LW`, `15W`,
//! `5L` and `FRI#2`.
//!
//! A set of days is a `u32` whose bit n is day n of the month, so one month is decided at a time.

use crate::calendar::{day_of, day_of_week, days_in_month};

/// Days 1, 8, 15, 22 and 29, to be shifted onto a day of the week.
const WEEKLY: u64 = 1 << 1 | 1 << 8 | 1 << 15 | 1 << 22 | 1 << 29;

/// Days 1 to 7, to be shifted onto the days that are the n-th of their kind.
const FIRST_WEEK: u32 = 0xfe;

/// The two day fields together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Days {
    /// The day-of-month field is `*` or `?`.
    pub(crate) any_day_of_month: bool,
    /// The day-of-week field is `*` or `?`.
    pub(crate) any_day_of_week: bool,
    /// Plain days of the month, bits 1 to 31.
    pub(crate) of_month: u32,
    /// `L`: the last day of the month.
    pub(crate) last: bool,
    /// `LW`: the last weekday (Monday to Friday) of the month.
    pub(crate) last_weekday: bool,
    /// `15W`: the weekday nearest to the day, within the month; bits 1 to 31.
    pub(crate) nearest_weekday: u32,
    /// Plain days of the week, bits 0 (Sunday) to 6.
    pub(crate) of_week: u8,
    /// `5L`: the last such day of the month, bits 0 to 6.
    pub(crate) last_of_week: u8,
    /// `FRI#2`: element n - 1 has the days of the week whose n-th of the month matches.
    pub(crate) nth_of_week: [u8; 5],
}

impl Days {
    /// Returns the days of one month. When both fields are restricted either one matches; otherwise
    /// the restricted one decides.
    pub(crate) fn in_month(&self, year: i64, month: u32) -> u32 {
        let length = days_in_month(year, month);
        let all = u32::MAX >> (31 - length) & !1;
        if self.any_day_of_month && self.any_day_of_week {
            return all;
        }
        let first = day_of_week(day_of(year, month, 1));
        let mut days = 0;
        if !self.any_day_of_month {
            days |= self.by_day_of_month(first, length);
        }
        if !self.any_day_of_week {
            days |= self.by_day_of_week(first, length);
        }
        days & all
    }

    fn by_day_of_month(&self, first: u32, length: u32) -> u32 {
        let mut days = self.of_month;
        if self.last {
            days |= 1 << length;
        }
        if self.last_weekday {
            days |= 1 << nearest_weekday(length, first, length);
        }
        for day in bits(u64::from(self.nearest_weekday)).take_while(|day| *day <= length) {
            days |= 1 << nearest_weekday(day, first, length);
        }
        days
    }

    fn by_day_of_week(&self, first: u32, length: u32) -> u32 {
        let mut days = 0;
        for of_week in 0..7 {
            let bit = 1 << of_week;
            let shift = (of_week + 7 - first) % 7;
            let such = (WEEKLY << shift) as u32 & u32::MAX >> (31 - length);
            if self.of_week & bit != 0 {
                days |= such;
            }
            if self.last_of_week & bit != 0 {
                days |= 1 << (31 - such.leading_zeros());
            }
            for (weeks, nth) in self.nth_of_week.iter().enumerate() {
                if nth & bit != 0 {
                    days |= such & FIRST_WEEK << (7 * weeks);
                }
            }
        }
        days
    }
}

/// Returns the weekday (Monday to Friday) nearest to a day within its month; `first` is the day of
/// the week of the month's first day.
fn nearest_weekday(day: u32, first: u32, length: u32) -> u32 {
    match (first + day - 1) % 7 {
        6 if day == 1 => 3,
        6 => day - 1,
        0 if day == length => day - 2,
        0 => day + 1,
        _ => day,
    }
}

/// Returns the numbers of the bits of a set, in order.
fn bits(mut set: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = next_bit(set, 0)?;
        set &= set - 1;
        Some(bit)
    })
}

/// Returns the first bit of a set that is not below a number.
pub(super) fn next_bit(set: u64, from: u32) -> Option<u32> {
    let rest = set & u64::MAX.checked_shl(from).unwrap_or(0);
    (rest != 0).then(|| rest.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(days: Days) -> impl Fn(i64, u32) -> Vec<u32> {
        move |year, month| bits(u64::from(days.in_month(year, month))).collect()
    }

    #[test]
    fn the_last_weekday_and_the_nearest_one_stay_in_the_month() {
        let last = days(Days {
            any_day_of_week: true,
            last_weekday: true,
            ..Days::default()
        });
        // May 2026 ends on a Sunday, October 2026 on a Saturday, June 2026 on a Tuesday.
        assert_eq!(
            [last(2026, 5), last(2026, 10), last(2026, 6)],
            [[29], [30], [30]]
        );
        let first = days(Days {
            any_day_of_week: true,
            nearest_weekday: 1 << 1,
            ..Days::default()
        });
        // August 2026 begins on a Saturday, November 2026 on a Sunday.
        assert_eq!(
            [first(2026, 8), first(2026, 11), first(2026, 6)],
            [[3], [2], [1]]
        );
        let end = days(Days {
            any_day_of_week: true,
            nearest_weekday: 1 << 31,
            ..Days::default()
        });
        // A 31st of September 2022 would be a Saturday, whose weekday would be the 30th.
        assert_eq!(
            (end(2026, 5), end(2026, 6), end(2022, 9)),
            (vec![29], vec![], vec![])
        );
    }

    #[test]
    fn a_fifth_friday_is_not_in_every_month() {
        let fifth = Days {
            any_day_of_month: true,
            nth_of_week: [0, 0, 0, 0, 1 << 5],
            ..Days::default()
        };
        assert_eq!(
            (days(fifth)(2026, 5), days(fifth)(2026, 6)),
            (vec![29], vec![])
        );
        let last = Days {
            any_day_of_month: true,
            last_of_week: 1 << 5,
            ..Days::default()
        };
        assert_eq!(
            (days(last)(2026, 5), days(last)(2026, 6)),
            (vec![29], vec![26])
        );
    }

    #[test]
    fn either_of_two_restricted_day_fields_matches() {
        let both = Days {
            of_month: 1 << 13,
            of_week: 1 << 5,
            ..Days::default()
        };
        assert_eq!(days(both)(2026, 6), [5, 12, 13, 19, 26]);
    }

    #[test]
    fn the_next_bit_is_never_below_the_start() {
        assert_eq!(next_bit(0b1010, 0), Some(1));
        assert_eq!(next_bit(0b1010, 2), Some(3));
        assert_eq!(next_bit(0b1010, 4), None);
        assert_eq!(next_bit(u64::MAX, 64), None);
        assert_eq!(next_bit(1 << 63, 63), Some(63));
    }
}
