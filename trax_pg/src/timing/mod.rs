//! Timing: when a manifest runs, as far as its definition determines it.
//!
//! Words: an *occurrence* is a time that the schedule names; *exclusions* drop occurrences (cron)
//! or put them off (every, run_at); the *variance* delays the run of an occurrence by a random
//! part, drawn once and stored.
//!
//! Enters: a definition and the clock. Leaves: occurrences. Nothing here reads or writes a table.

pub(crate) mod zone;

use crate::error::{Error, Result};
use crate::server::clock::{MICROS_PER_DAY, Timestamp, interval_micros};
use crate::server::json;
use crate::timing::zone::ServerZone;
use pgrx::datum::Interval;
use pgrx::pg_sys;
use serde_json::Value;
use trax_schedule::exclusion::Exclusions;
use trax_schedule::{Cron, Note};

/// When a manifest runs, as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Timing {
    pub(crate) cron: Option<String>,
    pub(crate) every: Option<Interval>,
    pub(crate) run_at: Option<Timestamp>,
    pub(crate) depends: bool,
    pub(crate) timezone: String,
    pub(crate) starts_at: Option<Timestamp>,
    pub(crate) ends_at: Option<Timestamp>,
    pub(crate) variance: Option<Interval>,
    pub(crate) exclusions: Option<Value>,
}

/// A future run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Occurrence {
    pub(crate) at: Timestamp,
    /// An explanation of an unusual time, for people.
    pub(crate) note: Option<String>,
}

impl Occurrence {
    fn plain(at: Timestamp) -> Self {
        Self { at, note: None }
    }
}

/// The parsed timing of a manifest.
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) zone: ServerZone,
    exclusions: Option<Exclusions>,
    starts_at: Option<Timestamp>,
    ends_at: Option<Timestamp>,
    variance_micros: i64,
}

pub(crate) enum Kind {
    Cron(Cron),
    Every(Every),
    At(Timestamp),
    Depends,
    /// Only when triggered.
    Never,
}

/// The time between two runs of an `every` schedule: calendar months in UTC, from the 31st to the
/// last day of a shorter month, then days of 24 hours. `manifest_state/job_ended.sql` computes the
/// same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Every {
    months: i32,
    micros: i64,
}

impl Every {
    fn new(interval: &Interval) -> Self {
        let days = i64::from(interval.days()).saturating_mul(MICROS_PER_DAY);
        Self {
            months: interval.months(),
            micros: days.saturating_add(interval.micros()),
        }
    }

    /// Returns the time one interval after `at`; beyond the calendar's last year, months have 30
    /// days.
    pub(crate) fn after(self, at: Timestamp) -> Timestamp {
        let months = chrono::Months::new(self.months.unsigned_abs());
        let month = chrono::DateTime::from_timestamp_micros(at.unix_micros())
            .and_then(|at| match self.months {
                ..0 => at.checked_sub_months(months),
                _ => at.checked_add_months(months),
            })
            .map(|at| Timestamp::from_unix_micros(at.timestamp_micros()));
        month
            .unwrap_or_else(|| at.plus(i64::from(self.months) * 30 * MICROS_PER_DAY))
            .plus(self.micros)
    }
}

impl Timing {
    /// Returns a schedule of a cron expression in a zone, with nothing else set.
    pub(crate) fn cron(expression: String, timezone: String) -> Self {
        Self {
            cron: Some(expression),
            every: None,
            run_at: None,
            depends: false,
            timezone,
            starts_at: None,
            ends_at: None,
            variance: None,
            exclusions: None,
        }
    }

    /// Checks and parses everything; reports errors with SQLSTATE 22023.
    pub(crate) fn plan(&self) -> Result<Plan> {
        let kind = match (&self.cron, &self.every, self.run_at) {
            (Some(text), _, _) => Kind::Cron(parse_cron(text)?),
            (_, Some(every), _) => Kind::Every(Every::new(every)),
            (_, _, Some(at)) => Kind::At(at),
            _ if self.depends => Kind::Depends,
            _ => Kind::Never,
        };
        Ok(Plan {
            kind,
            zone: ServerZone::named(&self.timezone)?,
            exclusions: self.exclusions.as_ref().map(parse_exclusions).transpose()?,
            starts_at: self.starts_at,
            ends_at: self.ends_at,
            variance_micros: self.variance.as_ref().map_or(0, interval_micros),
        })
    }
}

impl Plan {
    /// Returns the first occurrence of a schedule that begins now; a success at `last_success`
    /// counts for `every`.
    pub(crate) fn first(
        &self,
        now: Timestamp,
        last_success: Option<Timestamp>,
    ) -> Option<Occurrence> {
        let from = self.starts_at.map_or(now, |start| start.max(now));
        let first = match &self.kind {
            // An occurrence at the very start counts.
            Kind::Cron(_) if from > now => self.after(from.plus(-1)),
            Kind::Cron(_) => self.after(now),
            Kind::Every(every) => {
                let due = last_success.map(|last| every.after(last));
                Some(self.put_off(due.map_or(from, |due| due.max(from))))
            }
            Kind::At(at) => Some(self.once(*at)),
            Kind::Depends | Kind::Never => None,
        };
        first.filter(|occurrence| !self.is_over(occurrence.at))
    }

    /// Returns the next occurrence of a cron schedule strictly after a time.
    pub(crate) fn after(&self, after: Timestamp) -> Option<Occurrence> {
        let Kind::Cron(cron) = &self.kind else {
            return None;
        };
        let next = cron.next_allowed(after.unix_micros(), &self.zone, self.exclusions.as_ref())?;
        let mut notes = Vec::new();
        match next.note {
            Some(Note::Gap) => {
                notes.push("moved to the end of the hour that the clock skips".to_string())
            }
            Some(Note::RepeatedFirst) => {
                notes.push("first pass of the hour that comes twice".to_string())
            }
            Some(Note::RepeatedSecond) => {
                notes.push("second pass of the hour that comes twice".to_string())
            }
            None => {}
        }
        if next.skipped > 0 {
            notes.push(format!("after {} excluded", next.skipped));
        }
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        Some(Occurrence {
            at: Timestamp::from_unix_micros(next.at_micros),
            note,
        })
        .filter(|occurrence| !self.is_over(occurrence.at))
    }

    /// Returns an error for a cron schedule if exclusions cover all its occurrences.
    pub(crate) fn refuse_if_never(&self, now: Timestamp) -> Result<()> {
        let (Kind::Cron(cron), Some(exclusions)) = (&self.kind, &self.exclusions) else {
            return Ok(());
        };
        match cron.next_allowed(now.unix_micros(), &self.zone, Some(exclusions)) {
            Some(_) => Ok(()),
            None => Err(Error::invalid(
                "the schedule never runs: the exclusions leave none of its times",
            )
            .detail("The exclusions cover every time of the cron expression.")
            .hint("Leave out one of the exclusions, or disable the manifest instead.")),
        }
    }

    /// Returns the newest occurrence of a cron schedule within `from..=to`, before its end.
    pub(crate) fn latest(&self, from: Timestamp, to: Timestamp) -> Option<Timestamp> {
        let Kind::Cron(cron) = &self.kind else {
            return None;
        };
        let exclusions = self.exclusions.as_ref();
        let (from, to) = self.applied(from, to);
        cron.latest(from.unix_micros(), to.unix_micros(), &self.zone, exclusions)
            .map(Timestamp::from_unix_micros)
    }

    /// Returns the occurrence of a `run_at` schedule, which is not before its start.
    pub(crate) fn once(&self, at: Timestamp) -> Occurrence {
        match self.starts_at.filter(|&start| start > at) {
            Some(start) => {
                let occurrence = self.put_off(start);
                let note = occurrence.note.or(Some("put off to its start".to_string()));
                Occurrence { note, ..occurrence }
            }
            None => self.put_off(at),
        }
    }

    /// Returns how many occurrences of a cron schedule lie within `from..=to`, before its end;
    /// 1,000 stands for that many or more.
    pub(crate) fn count(&self, from: Timestamp, to: Timestamp) -> i32 {
        let Kind::Cron(cron) = &self.kind else {
            return 0;
        };
        let (from, to) = self.applied(from, to);
        let exclusions = self.exclusions.as_ref();
        cron.count(from.unix_micros(), to.unix_micros(), &self.zone, exclusions) as i32
    }

    /// Returns the part of a period in which the schedule applies.
    fn applied(&self, from: Timestamp, to: Timestamp) -> (Timestamp, Timestamp) {
        let to = self.ends_at.map_or(to, |end| to.min(end.plus(-1)));
        let from = self.starts_at.map_or(from, |start| from.max(start));
        (from, to)
    }

    /// Returns a time of an `every` or `run_at` schedule, put off to the end of its exclusion.
    pub(crate) fn put_off(&self, at: Timestamp) -> Occurrence {
        let excluded = self
            .exclusions
            .as_ref()
            .and_then(|exclusions| exclusions.covering(at.unix_micros(), &self.zone));
        match excluded {
            Some(excluded) => Occurrence {
                at: Timestamp::from_unix_micros(excluded.until_micros),
                note: Some(format!("put off, {}", excluded.reason)),
            },
            None => Occurrence::plain(at),
        }
    }

    /// Returns whether the schedule has ended at this time.
    pub(crate) fn is_over(&self, at: Timestamp) -> bool {
        self.ends_at.is_some_and(|end| at >= end)
    }

    /// Returns an occurrence delayed by its share of the variance; `random` is from 0 to 1.
    pub(crate) fn vary(&self, at: Timestamp, random: f64) -> Timestamp {
        at.plus((self.variance_micros as f64 * random) as i64)
    }

    /// Returns the time before which the schedule has no occurrence.
    pub(crate) fn starts_at(&self) -> Option<Timestamp> {
        self.starts_at
    }

    pub(crate) fn has_variance(&self) -> bool {
        self.variance_micros > 0
    }

    /// Returns whether its variance can have delayed a run by `micros`.
    pub(crate) fn varies_by(&self, micros: i64) -> bool {
        micros <= self.variance_micros
    }
}

/// Returns a cron expression, or an error with SQLSTATE 22023 and the position of the mistake.
fn parse_cron(text: &str) -> Result<Cron> {
    if text.len() > Cron::MAX_BYTES {
        return Err(Error::too_large("the cron expression is too long")
            .detail(format!(
                "It has {} bytes; the limit is {}.",
                text.len(),
                Cron::MAX_BYTES
            ))
            .hint("Shorten the lists in it, or split it over several manifests."));
    }
    Cron::parse(text).map_err(|error| {
        Error::invalid(format!(
            "cron expression \"{text}\" is not valid: {}",
            error.message
        ))
        .detail(format!("The error is at position {}.", error.position))
        .hint(error.hint)
    })
}

fn parse_exclusions(value: &Value) -> Result<Exclusions> {
    Exclusions::parse(value).map_err(|error| {
        Error::invalid(format!("the exclusions are not valid: {}", error.message))
            .detail(match error.path.as_str() {
                "" => "The error is in the value as a whole.".to_string(),
                path => format!("The error is at {path}."),
            })
            .hint(error.hint)
    })
}

/// Returns exclusions as stored. Unreadable exclusions become an error when they are parsed, not
/// when the row is read.
pub(crate) fn stored_exclusions(datum: Option<pg_sys::Datum>) -> Option<Value> {
    datum.map(|datum| {
        json::value(datum, "the exclusions").unwrap_or_else(|error| Value::from(error.message()))
    })
}

#[cfg(test)]
mod tests {
    use super::{Every, Timestamp};

    #[test]
    fn a_month_is_a_calendar_month_and_ends_with_the_month() {
        let at = |text: &str| {
            let at: chrono::DateTime<chrono::Utc> = text.parse().expect("a time");
            Timestamp::from_unix_micros(at.timestamp_micros())
        };
        let month = Every {
            months: 1,
            micros: 0,
        };
        assert_eq!(
            month.after(at("2026-01-31T10:00:00Z")),
            at("2026-02-28T10:00:00Z")
        );
        assert_eq!(
            month.after(at("2026-07-01T10:00:00Z")),
            at("2026-08-01T10:00:00Z")
        );
        let both = Every {
            months: 1,
            micros: 3_600_000_000,
        };
        assert_eq!(
            both.after(at("2026-01-31T23:30:00Z")),
            at("2026-03-01T00:30:00Z")
        );
        assert!(month.after(Timestamp(i64::MAX / 2)) > Timestamp(i64::MAX / 2));
    }
}
