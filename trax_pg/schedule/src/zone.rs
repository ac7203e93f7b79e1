//! Time zones, as far as a schedule needs them.
//!
//! **instant**: seconds since the Unix epoch, UTC. **wall time**: the time on a clock in the zone,
//! written as the seconds since 1970-01-01 00:00 on that clock. **change**: the first instant at
//! which another offset is in force; it either skips wall times (a *gap*) or shows some twice (a
//! *repeat*).
//!
//! A zone has one function, the offset at an instant; everything else is found from that by
//! bisecting. Requires: two changes that undo each other are more than [`REACH`] apart, and no
//! change moves the clock by more than `REACH`. The shortest pair in the zone data since 1970 is
//! days apart, the largest change is one day (Apia).

/// How far from a wall time its instants, and the changes that touch them, can be: 36 hours, in
/// seconds.
pub const REACH: i64 = 36 * 3_600;

/// How many changes within [`REACH`] of a wall time are examined. Real zones have one, very rarely
/// two; the bound is for a zone with invalid offsets.
const MAX_CHANGES: usize = 8;

/// A change of offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetChange {
    /// The first instant of the new offset.
    pub at: i64,
    /// The offset in force until then, seconds east of UTC.
    pub before: i64,
    /// The offset in force from then on, seconds east of UTC.
    pub after: i64,
}

/// The instants at which a wall time is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instants {
    /// Never: it lies in a gap, which ends at this instant.
    Skipped { resumes_at: i64 },
    /// Once, as almost always.
    Once(i64),
    /// Twice: it lies in a repeat. The first and the last instant.
    Twice(i64, i64),
}

/// A time zone.
pub trait Zone {
    /// Returns the seconds east of UTC that are in force at an instant.
    fn offset_at(&self, utc_seconds: i64) -> i32;

    /// Returns the wall time at an instant.
    fn wall_at(&self, utc_seconds: i64) -> i64 {
        utc_seconds + i64::from(self.offset_at(utc_seconds))
    }

    /// Returns the first change after one instant and not after another. Probes once every
    /// [`REACH`], and about 17 times more to find the second: 250 probes for a year without a
    /// change.
    fn next_change(&self, after: i64, until: i64) -> Option<OffsetChange> {
        let mut low = after;
        let before = self.offset_at(low);
        while low < until {
            let mut high = (low + REACH).min(until);
            if self.offset_at(high) == before {
                low = high;
                continue;
            }
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                if self.offset_at(middle) == before {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            let after = i64::from(self.offset_at(high));
            return Some(OffsetChange {
                at: high,
                before: i64::from(before),
                after,
            });
        }
        None
    }

    /// Returns the instants of a wall time.
    fn instants_of(&self, wall: i64) -> Instants {
        let end = wall + REACH;
        let mut start = wall - REACH;
        let mut offset = i64::from(self.offset_at(start));
        let mut found: Option<Instants> = None;
        let mut resumes_at = wall - offset;
        for _ in 0..MAX_CHANGES {
            let change = self.next_change(start, end);
            let instant = wall - offset;
            if instant >= start && change.is_none_or(|change| instant < change.at) {
                found = Some(match found {
                    Some(Instants::Once(first) | Instants::Twice(first, _)) => {
                        Instants::Twice(first, instant)
                    }
                    _ => Instants::Once(instant),
                });
            }
            let Some(change) = change else { break };
            if wall >= change.at + change.before && wall < change.at + change.after {
                resumes_at = change.at;
            }
            (start, offset) = (change.at, change.after);
        }
        found.unwrap_or(Instants::Skipped { resumes_at })
    }

    /// Returns the latest wall time that has been shown up to and including an instant. Later than
    /// the wall time at that instant only while a repeat lasts.
    fn latest_wall(&self, utc_seconds: i64) -> i64 {
        let mut latest = self.wall_at(utc_seconds);
        let mut start = utc_seconds - REACH;
        for _ in 0..MAX_CHANGES {
            let Some(change) = self.next_change(start, utc_seconds) else {
                break;
            };
            latest = latest.max(change.at + change.before - 1);
            start = change.at;
        }
        latest
    }
}

/// Universal time, whose offset is always 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Utc;

impl Zone for Utc {
    fn offset_at(&self, _utc_seconds: i64) -> i32 {
        0
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use chrono::{Offset, TimeZone};

    /// Zones with different kinds of clock changes.
    pub(crate) const ZONES: [&str; 12] = [
        "Europe/Berlin",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "America/Santiago",
        "Pacific/Apia",
        "Asia/Kolkata",
        "America/New_York",
        "America/St_Johns",
        "Africa/Cairo",
        "Pacific/Chatham",
        "Asia/Tehran",
        "UTC",
    ];

    /// A zone of the IANA data in chrono-tz.
    pub(crate) struct Named(pub(crate) chrono_tz::Tz);

    impl Zone for Named {
        fn offset_at(&self, utc_seconds: i64) -> i32 {
            let Some(instant) = chrono::DateTime::from_timestamp(utc_seconds, 0) else {
                return 0;
            };
            self.0
                .offset_from_utc_datetime(&instant.naive_utc())
                .fix()
                .local_minus_utc()
        }
    }

    /// Returns the zone of an IANA name.
    pub(crate) fn zone(name: &str) -> Named {
        Named(name.parse().expect("a zone of the IANA data"))
    }

    /// Returns the seconds since 1970 that a text such as `2026-03-29 02:30:00` names on any clock.
    pub(crate) fn seconds(text: &str) -> i64 {
        chrono::NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S")
            .expect("a time")
            .and_utc()
            .timestamp()
    }

    #[test]
    fn changes_are_found_to_the_second() {
        let berlin = zone("Europe/Berlin");
        let spring = seconds("2026-03-29 01:00:00");
        let autumn = seconds("2026-10-25 01:00:00");
        let start = seconds("2026-01-01 00:00:00");
        let first = OffsetChange {
            at: spring,
            before: 3_600,
            after: 7_200,
        };
        assert_eq!(berlin.next_change(start, autumn), Some(first));
        assert_eq!(berlin.next_change(spring - 1, spring), Some(first));
        assert_eq!(berlin.next_change(spring, autumn - 1), None);
        let second = OffsetChange {
            at: autumn,
            before: 7_200,
            after: 3_600,
        };
        assert_eq!(
            berlin.next_change(spring, i64::MAX / 2_000_000),
            Some(second)
        );
        assert_eq!(Utc.next_change(0, 1_000_000_000), None);
    }

    #[test]
    fn a_wall_time_has_no_one_or_two_instants() {
        let berlin = zone("Europe/Berlin");
        let resumes_at = seconds("2026-03-29 01:00:00");
        for skipped in ["2026-03-29 02:00:00", "2026-03-29 02:59:59"] {
            assert_eq!(
                berlin.instants_of(seconds(skipped)),
                Instants::Skipped { resumes_at }
            );
        }
        assert_eq!(
            berlin.instants_of(seconds("2026-03-29 03:00:00")),
            Instants::Once(resumes_at)
        );
        let first = seconds("2026-10-25 00:00:00");
        for passed in [0, 3_599] {
            let twice = Instants::Twice(first + passed, first + 3_600 + passed);
            assert_eq!(
                berlin.instants_of(seconds("2026-10-25 02:00:00") + passed),
                twice
            );
        }
        let after = seconds("2026-10-25 03:00:00");
        assert_eq!(berlin.instants_of(after), Instants::Once(after - 3_600));
    }

    #[test]
    fn a_whole_skipped_day_and_a_half_hour_repeat_are_seen() {
        let apia = zone("Pacific/Apia");
        let resumes_at = seconds("2011-12-30 10:00:00");
        for skipped in ["2011-12-30 00:00:00", "2011-12-30 23:59:59"] {
            assert_eq!(
                apia.instants_of(seconds(skipped)),
                Instants::Skipped { resumes_at }
            );
        }
        let lord_howe = zone("Australia/Lord_Howe");
        let first = seconds("2026-04-04 14:30:00");
        let wall = seconds("2026-04-05 01:30:00");
        assert_eq!(
            lord_howe.instants_of(wall),
            Instants::Twice(first, first + 1_800)
        );
    }

    #[test]
    fn the_latest_wall_time_stands_still_while_an_hour_repeats() {
        let berlin = zone("Europe/Berlin");
        let repeat = seconds("2026-10-25 01:00:00");
        let last = seconds("2026-10-25 02:59:59");
        assert_eq!(berlin.latest_wall(repeat - 1), last);
        assert_eq!(berlin.latest_wall(repeat), last);
        assert_eq!(berlin.latest_wall(repeat + 3_599), last);
        assert_eq!(berlin.latest_wall(repeat + 3_600), last + 1);
    }

    #[test]
    fn every_instant_is_among_the_instants_of_its_wall_time() {
        for name in [
            "Europe/Berlin",
            "Australia/Lord_Howe",
            "Africa/Casablanca",
            "Asia/Kolkata",
        ] {
            let zone = zone(name);
            let start = seconds("2025-01-01 00:00:00");
            for instant in (start..start + 366 * 86_400).step_by(6_151) {
                let found = match zone.instants_of(zone.wall_at(instant)) {
                    Instants::Skipped { .. } => false,
                    Instants::Once(at) => at == instant,
                    Instants::Twice(first, last) => first == instant || last == instant,
                };
                assert!(found, "{name} {instant}");
            }
        }
    }
}
