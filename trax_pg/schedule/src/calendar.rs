//! Dates of the proleptic Gregorian calendar as numbers of days since 1970-01-01.
//!
//! Plain arithmetic, so that every `i64` of microseconds has a date: a calendar type with a limited
//! range would need checks at both ends.

/// Seconds in a day of wall time.
pub const DAY: i64 = 86_400;

/// Returns the year, month (1-12) and day (1-31) of a day number. Formula: H. Hinnant,
/// `civil_from_days`.
///
/// ```
/// assert_eq!(trax_schedule::calendar::date_of(11_016), (2000, 2, 29));
/// ```
pub fn date_of(day: i64) -> (i64, u32, u32) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day_of_month = (of_year - (153 * from_march + 2) / 5 + 1) as u32;
    let month = (if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    }) as u32;
    (
        year_of_era + era * 400 + i64::from(month <= 2),
        month,
        day_of_month,
    )
}

/// Returns the day number of a date. Formula: H. Hinnant, `days_from_civil`.
pub fn day_of(year: i64, month: u32, day_of_month: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let from_march = i64::from((month + 9) % 12);
    let of_year = (153 * from_march + 2) / 5 + i64::from(day_of_month) - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - 719_468
}

/// Returns the day of the week of a day number: 0 is Sunday, 6 is Saturday.
pub fn day_of_week(day: i64) -> u32 {
    (day + 4).rem_euclid(7) as u32
}

/// Returns how many days a month has.
pub fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{Datelike, NaiveDate};

    #[test]
    fn every_date_of_eight_centuries_agrees_with_chrono() {
        let epoch = NaiveDate::from_ymd_opt(1970, 1, 1).expect("a date");
        let mut date = NaiveDate::from_ymd_opt(1600, 1, 1).expect("a date");
        while date.year() < 2400 {
            let day = (date - epoch).num_days();
            assert_eq!(
                date_of(day),
                (i64::from(date.year()), date.month(), date.day())
            );
            assert_eq!(
                day_of(i64::from(date.year()), date.month(), date.day()),
                day
            );
            assert_eq!(day_of_week(day), date.weekday().num_days_from_sunday());
            let next = date.succ_opt().expect("a next day");
            if next.day() == 1 {
                assert_eq!(
                    days_in_month(i64::from(date.year()), date.month()),
                    date.day()
                );
            }
            date = next;
        }
    }

    #[test]
    fn the_ends_of_time_have_dates() {
        for micros in [i64::MIN, i64::MAX] {
            let day = micros.div_euclid(1_000_000 * DAY);
            let (year, month, day_of_month) = date_of(day);
            assert_eq!(day_of(year, month, day_of_month), day);
        }
    }
}
