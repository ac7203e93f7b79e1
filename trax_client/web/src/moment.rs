//! Times as reported by the server, and their readable forms.

use std::error::Error as StdError;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp};
use maud::{Markup, html};
use tokio_postgres::types::{FromSql, Type, accepts};

/// PostgreSQL counts from 2000-01-01.
const MICROS_TO_2000: i64 = 946_684_800_000_000;

/// An instant of the server's clock; `None` for infinities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Option<Timestamp>);

impl<'a> FromSql<'a> for Moment {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        let micros = i64::from_be_bytes(raw.try_into()?);
        let since_1970 = micros.checked_add(MICROS_TO_2000);
        Ok(Moment(since_1970.and_then(|micros| {
            Timestamp::from_microsecond(micros).ok()
        })))
    }

    accepts!(TIMESTAMPTZ);
}

impl Moment {
    /// Returns "3 min ago" or "in 2 h".
    pub(crate) fn relative(self, now: Moment) -> String {
        let (Some(at), Some(now)) = (self.0, now.0) else {
            return "never".to_owned();
        };
        let ahead = at.duration_since(now);
        if ahead.abs() < SignedDuration::from_secs(1) {
            return "now".to_owned();
        }
        let length = length(ahead.abs().as_secs_f64());
        if ahead.is_negative() {
            format!("{length} ago")
        } else {
            format!("in {length}")
        }
    }

    /// Returns the time as an element: relative, exact on hovering, in the user's zone by script.
    pub(crate) fn shown(self, now: Moment) -> Markup {
        let Some(at) = self.0 else {
            return html! { "never" };
        };
        let exact = at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
        html! { time datetime=(at.to_string()) title=(exact) { (self.relative(now)) } }
    }

    /// Parses an instant as [`exact`](Self::exact) writes it, with its offset from UTC.
    pub(crate) fn of(text: &str) -> Option<Self> {
        text.parse().ok().map(|at| Moment(Some(at)))
    }

    /// Returns the exact time only.
    pub(crate) fn alone(self) -> Markup {
        let Some(at) = self.0 else {
            return html! { "never" };
        };
        let exact = at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
        html! { time .exact datetime=(at.to_string()) title=(exact) { (exact) } }
    }

    /// Returns both the exact and the relative time.
    pub(crate) fn full(self, now: Moment) -> Markup {
        html! {
            (self.alone())
            @if self.0.is_some() { " (" (self.relative(now)) ")" }
        }
    }

    /// Returns the day in a zone that is so many days later: "Thu 31 Jan".
    pub(crate) fn day_after(self, zone: &Zone, days: usize) -> String {
        let local = self.0.map(|at| at.to_zoned(zone.0.clone()).date());
        let days = i64::try_from(days).unwrap_or(0);
        let day = local.and_then(|day| day.checked_add(Span::new().days(days)).ok());
        day.map_or("never".to_owned(), |day| {
            day.strftime("%a %-d %b").to_string()
        })
    }

    /// Returns the time of day in a zone: "08:00", with seconds if there are any.
    pub(crate) fn clock(self, zone: &Zone) -> String {
        let local = self.0.map(|at| at.to_zoned(zone.0.clone()));
        local.map_or("never".to_owned(), |local| {
            let format = if local.second() == 0 {
                "%H:%M"
            } else {
                "%H:%M:%S"
            };
            local.strftime(format).to_string()
        })
    }

    /// Returns the time in a form that the server parses, to the microsecond.
    pub(crate) fn exact(self) -> String {
        self.0.map_or("infinity".to_owned(), |at| at.to_string())
    }

    /// Returns the number of seconds from another instant to this one.
    pub(crate) fn seconds_since(self, other: Moment) -> Option<f64> {
        Some(self.0?.duration_since(other.0?).as_secs_f64())
    }
}

/// A time zone.
#[derive(Clone, Debug)]
pub(crate) struct Zone(TimeZone);

impl Zone {
    pub(crate) const UTC: Zone = Zone(TimeZone::UTC);

    /// Returns the zone of this name, or UTC if there is none.
    pub(crate) fn named(name: &str) -> Self {
        TimeZone::get(name).map_or(Zone::UTC, Zone)
    }

    pub(crate) fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }
}

/// Returns "250 ms", "3.2 s", "4 min", "2 h", "5 d".
pub(crate) fn length(seconds: f64) -> String {
    match seconds {
        0.0 => "0 ms".to_owned(),
        s if s < 0.01 => format!("{:.1} ms", s * 1e3),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3_600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}
