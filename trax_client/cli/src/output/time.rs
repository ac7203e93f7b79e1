//! Times in the output: relative ("3 min ago") and in the user's time zone; RFC 3339 in JSON.

use std::error::Error as StdError;
use std::time::{Duration, SystemTime};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Serialize, Serializer};
use tokio_postgres::types::{FromSql, Type, accepts};

/// PostgreSQL counts from 2000-01-01.
const SECONDS_TO_2000: i64 = 946_684_800;

/// An instant as the server reports it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Moment {
    /// `-infinity`, or before any representable time.
    Past,
    At(Timestamp),
    /// `infinity`, or after any representable time.
    Never,
}

impl Moment {
    /// Returns "3 min ago", "in 2 h".
    pub(crate) fn relative(self, now: Moment) -> String {
        let (Moment::At(at), Moment::At(now)) = (self, now) else {
            return self.edge().to_owned();
        };
        let ahead = at.duration_since(now);
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
            Moment::At(_) => format!("{} ({})", self.local(), self.relative(now)),
            _ => self.edge().to_owned(),
        }
    }

    /// Returns the time in the format used in JSON, without the quotes.
    pub(crate) fn rfc_3339(self) -> String {
        match self {
            Moment::At(at) => at.to_string(),
            _ => self.edge().to_owned(),
        }
    }

    /// Parses a time that the server wrote as JSON.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "infinity" => Some(Moment::Never),
            "-infinity" => Some(Moment::Past),
            text => text.parse().ok().map(Moment::At),
        }
    }

    fn within(self, zone: TimeZone) -> String {
        match self {
            Moment::At(at) => at
                .to_zoned(zone)
                .strftime("%Y-%m-%d %H:%M:%S %Z")
                .to_string(),
            _ => self.edge().to_owned(),
        }
    }

    /// Returns the time from `start` to this instant; `None` if either is infinite, or this one is
    /// earlier.
    pub(crate) fn since(self, start: Moment) -> Option<Duration> {
        match (self, start) {
            (Moment::At(end), Moment::At(start)) => {
                Duration::try_from(end.duration_since(start)).ok()
            }
            _ => None,
        }
    }

    fn edge(self) -> &'static str {
        match self {
            Moment::Past => "-infinity",
            Moment::At(_) => "",
            Moment::Never => "infinity",
        }
    }
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
        Timestamp::try_from(at).map_or(Moment::Never, Moment::At)
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
        let since_1970 = micros.checked_add(SECONDS_TO_2000 * 1_000_000);
        Ok(match since_1970.map(Timestamp::from_microsecond) {
            Some(Ok(at)) => Moment::At(at),
            _ if micros < 0 => Moment::Past,
            _ => Moment::Never,
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
}
