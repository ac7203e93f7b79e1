//! Times in the output: relative ("3 min ago") and in the user's time zone; RFC 3339 in JSON.

use std::error::Error as StdError;
use std::time::{Duration, SystemTime};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Serialize, Serializer};
use tokio_postgres::types::{FromSql, Type, accepts};

/// PostgreSQL counts from 2000-01-01.
const MICROS_TO_2000: i64 = 946_684_800_000_000;
/// After 400 years the calendar repeats itself.
const CYCLE_YEARS: i64 = 400;
const CYCLE_MICROS: i64 = 146_097 * 86_400 * 1_000_000;

/// An instant as the server reports it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Moment {
    /// `-infinity`, or before any representable time.
    Past,
    At(Timestamp),
    /// After the year 9999: microseconds since 2000.
    Far(i64),
    /// `infinity`
    Never,
}

impl Moment {
    /// Returns "3 min ago", "in 2 h".
    pub(crate) fn relative(self, now: Moment) -> String {
        let (Some(at), Some(now)) = (self.micros(), now.micros()) else {
            return self.edge().to_owned();
        };
        let ahead = SignedDuration::from_micros(at.saturating_sub(now));
        if ahead.abs() < SignedDuration::from_secs(1) {
            return "now".to_owned();
        }
        let length = elapsed(ahead.unsigned_abs());
        if ahead.is_negative() {
            format!("{length} ago")
        } else {
            format!("in {length}")
        }
    }

    /// Returns "2026-11-21 02:38:47 CET", in the user's time zone.
    pub(crate) fn local(self) -> String {
        self.within(TimeZone::system())
    }

    /// Returns the time and its distance from now: "2026-11-21 02:38:47 CET (3 min ago)".
    pub(crate) fn full(self, now: Moment) -> String {
        match self {
            Moment::Past | Moment::Never => self.edge().to_owned(),
            _ => format!("{} ({})", self.local(), self.relative(now)),
        }
    }

    /// Returns the time in the format used in JSON, without the quotes. A year after 9999 has more
    /// than four digits, as the server writes it.
    pub(crate) fn rfc_3339(self) -> String {
        self.written(|at| at.to_string())
    }

    /// Parses a time that the server wrote as JSON.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "infinity" => Some(Moment::Never),
            "-infinity" => Some(Moment::Past),
            text => match text.parse() {
                Ok(at) => Some(Moment::At(at)),
                Err(_) => parse_far(text),
            },
        }
    }

    fn within(self, zone: TimeZone) -> String {
        let format = "%Y-%m-%d %H:%M:%S %Z";
        self.written(|at| at.to_zoned(zone).strftime(format).to_string())
    }

    /// Returns the text that `write` makes of the time, which begins with its year.
    fn written(self, write: impl FnOnce(Timestamp) -> String) -> String {
        match self {
            Moment::At(at) => write(at),
            Moment::Far(micros) => {
                let text = write(since_2000(micros % CYCLE_MICROS));
                let (year, rest) = text.split_at(4);
                let year = year.parse().unwrap_or(0) + micros / CYCLE_MICROS * CYCLE_YEARS;
                format!("{year}{rest}")
            }
            _ => self.edge().to_owned(),
        }
    }

    /// Returns the microseconds since 2000 of a finite time.
    fn micros(self) -> Option<i64> {
        match self {
            Moment::At(at) => Some(at.as_microsecond() - MICROS_TO_2000),
            Moment::Far(micros) => Some(micros),
            _ => None,
        }
    }

    /// Returns the time from `start` to this instant; `None` if either is infinite, or this one is
    /// earlier.
    pub(crate) fn since(self, start: Moment) -> Option<Duration> {
        let micros = self.micros()?.saturating_sub(start.micros()?);
        u64::try_from(micros).ok().map(Duration::from_micros)
    }

    fn edge(self) -> &'static str {
        match self {
            Moment::Past => "-infinity",
            Moment::At(_) | Moment::Far(_) => "",
            Moment::Never => "infinity",
        }
    }
}

/// Returns a time within 400 years after 2000.
fn since_2000(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros + MICROS_TO_2000).unwrap_or(Timestamp::MAX)
}

/// Parses a time with a year of more than four digits.
fn parse_far(text: &str) -> Option<Moment> {
    let (year, rest) = text.split_once('-')?;
    let cycles = year.parse::<i64>().ok()?.checked_sub(2000)? / CYCLE_YEARS;
    let year = year.parse::<i64>().ok()? - cycles * CYCLE_YEARS;
    let at: Timestamp = format!("{year}-{rest}").parse().ok()?;
    let micros = cycles.checked_mul(CYCLE_MICROS)?;
    let micros = micros.checked_add(at.as_microsecond() - MICROS_TO_2000)?;
    Some(Moment::Far(micros))
}

/// Returns "450 ms", "12 s", "3 min", "2 h", "5 days", with two units where the first is too
/// coarse.
pub(crate) fn elapsed(length: Duration) -> String {
    let seconds = length.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if seconds < 1 => format!("{} ms", length.as_millis()),
        () if seconds < 10 => format!("{:.1} s", length.as_secs_f64()),
        () if minutes < 2 => format!("{seconds} s"),
        () if hours < 2 => format!("{minutes} min"),
        () if days < 2 => format!("{hours} h"),
        () => format!("{days} days"),
    }
}

impl From<SystemTime> for Moment {
    fn from(at: SystemTime) -> Self {
        let far = || {
            let since_1970 = at.duration_since(SystemTime::UNIX_EPOCH).ok()?;
            let micros = since_1970.as_micros().checked_sub(MICROS_TO_2000 as u128)?;
            i64::try_from(micros).ok().map(Moment::Far)
        };
        Timestamp::try_from(at).map_or_else(|_| far().unwrap_or(Moment::Never), Moment::At)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.rfc_3339())
    }
}

impl<'a> FromSql<'a> for Moment {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        let micros = i64::from_be_bytes(raw.try_into()?);
        let since_1970 = micros.checked_add(MICROS_TO_2000);
        Ok(match since_1970.map(Timestamp::from_microsecond) {
            Some(Ok(at)) => Moment::At(at),
            _ if micros < 0 => Moment::Past,
            _ if micros == i64::MAX => Moment::Never,
            _ => Moment::Far(micros),
        })
    }

    accepts!(TIMESTAMPTZ);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Moment {
        text.parse().map_or(Moment::Never, Moment::At)
    }

    #[test]
    fn how_far_away_a_time_is_is_shown_in_one_unit() {
        let now = at("2026-11-21T12:00:00Z");
        for (time, text) in [
            ("2026-11-21T11:57:00Z", "3 min ago"),
            ("2026-11-21T14:00:00Z", "in 2 h"),
            ("2026-11-21T12:00:00.5Z", "now"),
            ("2026-11-21T11:59:58Z", "2.0 s ago"),
            ("2026-11-21T11:58:30Z", "90 s ago"),
            ("2026-11-01T12:00:00Z", "20 days ago"),
        ] {
            assert_eq!(at(time).relative(now), text);
        }
        assert_eq!(Moment::Never.relative(now), "infinity");
    }

    #[test]
    fn a_time_is_shown_in_the_zone_of_its_reader() {
        let berlin = TimeZone::get("Europe/Berlin").unwrap_or(TimeZone::UTC);
        let summer = at("2026-07-01T10:00:00Z").within(berlin);
        assert_eq!(summer, "2026-07-01 12:00:00 CEST");
    }

    #[test]
    fn json_has_rfc_3339() {
        let text = serde_json::to_string(&at("2026-07-01T10:00:00.25Z")).unwrap_or_default();
        assert_eq!(text, "\"2026-07-01T10:00:00.25Z\"");
        let wire = i64::MAX.to_be_bytes();
        let never = Moment::from_sql(&Type::TIMESTAMPTZ, &wire).ok();
        assert_eq!(never, Some(Moment::Never));
        let epoch = Moment::from_sql(&Type::TIMESTAMPTZ, &0_i64.to_be_bytes()).ok();
        assert_eq!(epoch, Some(at("2000-01-01T00:00:00Z")));
    }

    #[test]
    fn a_year_after_9999_has_its_digits() {
        let day = 86_400_000_000_i64;
        for (micros, text) in [
            // As the server prints them.
            (2_921_940 * day, "10000-01-01T00:00:00Z"),
            (72_318_015 * day - 1, "199999-12-31T23:59:59.999999Z"),
            (i64::MAX / day * day, "294277-01-09T00:00:00Z"),
        ] {
            let wire = micros.to_be_bytes();
            let far = Moment::from_sql(&Type::TIMESTAMPTZ, &wire).expect("a time");
            assert_eq!(far.rfc_3339(), text);
            assert_eq!(Moment::parse(text), Some(far));
            assert!(at("9999-12-30T22:00:00Z") < far && far < Moment::Never);
        }
        let far = Moment::parse("12000-02-29T10:00:00+00:00").expect("a time");
        assert_eq!(far.within(TimeZone::UTC), "12000-02-29 10:00:00 UTC");
        assert_eq!(far.relative(at("2000-02-29T10:00:00Z")), "in 3652425 days");
        assert_eq!(Moment::parse("never"), None);
    }
}
