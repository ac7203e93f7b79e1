//! Parses durations as typed by a user: `500ms`, `30s`, `1h30m`, `2 days`, `01:30:00`; a bare
//! number is in seconds.

use std::time::Duration;

/// The maximum duration accepted: ten years.
pub const LONGEST: Duration = Duration::from_secs(3650 * 86_400);

const MINUTE: f64 = 60.0;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;

/// The names of each unit, and its length in seconds.
const UNITS: [(&[&str], f64); 8] = [
    (&["us", "microsecond", "microseconds"], 0.000_001),
    (&["ms", "millisecond", "milliseconds"], 0.001),
    (&["s", "sec", "secs", "second", "seconds"], 1.0),
    (&["m", "min", "mins", "minute", "minutes"], MINUTE),
    (&["h", "hr", "hrs", "hour", "hours"], HOUR),
    (&["d", "day", "days"], DAY),
    (&["w", "week", "weeks"], 7.0 * DAY),
    (&["y", "year", "years"], 365.0 * DAY),
];

const FORMS: &str = "type a length of time, such as 500ms, 30s, 5m, 1h30m, '2 days' or 01:30:00";

const LIMITS: &str = "type a length of time that is not negative, and at most 10 years";

/// Parses a duration. The error lists the accepted forms, or the limits.
pub fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let length = read(text.strip_prefix('-').unwrap_or(text)).ok_or(FORMS)?;
    if text.starts_with('-') || length > LONGEST {
        return Err(LIMITS.to_owned());
    }
    Ok(length)
}

/// Parses a duration of at least `least`.
pub fn duration_from(least: Duration, text: &str) -> Result<Duration, String> {
    match duration(text)? {
        length if length < least => Err(format!("type at least {}", shortest_form(least))),
        length => Ok(length),
    }
}

/// Parses a duration of at least one second.
pub fn at_least_a_second(text: &str) -> Result<Duration, String> {
    duration_from(Duration::from_secs(1), text)
}

/// Returns a duration in a single unit that [`duration`] can parse.
fn shortest_form(length: Duration) -> String {
    match length.subsec_millis() {
        0 => format!("{}s", length.as_secs()),
        _ => format!("{}ms", length.as_millis()),
    }
}

fn read(text: &str) -> Option<Duration> {
    if let Some(seconds) = number(text) {
        return seconds_of(seconds, 1.0);
    }
    let (mut rest, mut sum) = (text, Duration::ZERO);
    loop {
        // Clock notation, alone or after days.
        if rest.contains(':')
            && let Some(clock) = clock(rest)
        {
            return sum.checked_add(clock);
        }
        let unit = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (digits, after) = rest.split_at(unit);
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_ascii_alphabetic());
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        sum = sum.checked_add(seconds_of(number(digits)?, scale(unit)?)?)?;
        rest = after.trim_start();
        if rest.is_empty() {
            return Some(sum);
        }
    }
}

/// Returns the length of a unit in seconds.
fn scale(unit: &str) -> Option<f64> {
    let unit = unit.to_ascii_lowercase();
    let known = UNITS.iter().find(|(names, _)| names.contains(&&*unit))?;
    Some(known.1)
}

/// Parses digits with at most one point; no sign, no exponent.
fn number(text: &str) -> Option<f64> {
    let is_plain = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    is_plain.then(|| text.parse().ok()).flatten()
}

/// Parses hours, minutes and optional seconds: `01:30`, `00:00:10.5`.
fn clock(text: &str) -> Option<Duration> {
    let mut parts = text.split(':');
    let (hours, minutes) = (parts.next()?, parts.next()?);
    let seconds = parts.next().unwrap_or("0");
    if parts.next().is_some() {
        return None;
    }
    let (minutes, seconds) = (number(minutes)?, number(seconds)?);
    if minutes >= 60.0 || seconds >= 60.0 {
        return None;
    }
    seconds_of(number(hours)?, HOUR)?
        .checked_add(seconds_of(minutes, MINUTE)?)?
        .checked_add(seconds_of(seconds, 1.0)?)
}

fn seconds_of(number: f64, scale: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number * scale).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_as_people_and_postgresql_write_them() {
        for (text, millis) in [
            ("500ms", 500),
            ("2000 microseconds", 2),
            ("30", 30_000),
            ("0", 0),
            ("0.25", 250),
            ("1s", 1000),
            ("1.5m", 90_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1h30m", 5_400_000),
            (" 1 h 30 min ", 5_400_000),
            ("1 Hour 30 Minutes", 5_400_000),
            ("2 days", 172_800_000),
            ("1w", 604_800_000),
            ("1 year", 31_536_000_000),
            ("01:30:00", 5_400_000),
            ("1:30", 5_400_000),
            ("00:00:10.5", 10_500),
            ("1 day 02:00:00", 93_600_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_length_is_answered_with_the_forms() {
        for wrong in [
            "",
            " ",
            "s",
            "--1s",
            "soon",
            "5 apples",
            "1 mon",
            "nan",
            "1e9",
            "inf",
            "1h30",
            "1:99",
            "1:2:3:4",
            "1..5s",
            "1 day 2:99",
            "\u{0661}s",
            "1s,",
            "1 day ago",
            ":",
        ] {
            let refusal = duration(wrong).err();
            assert_eq!(refusal.as_deref(), Some(FORMS), "{wrong}");
        }
        assert_eq!(duration("3650 days"), Ok(LONGEST));
        assert_eq!(duration("10 years"), Ok(LONGEST));
        for wrong in ["3651 days", "87601:00:00", "11 years", "-1s"] {
            assert_eq!(duration(wrong).err().as_deref(), Some(LIMITS), "{wrong}");
        }
        assert!(duration("999999999999999999999h").is_err());
        let least = |text| duration_from(Duration::from_secs(1), text);
        assert_eq!(least("999ms"), Err("type at least 1s".to_owned()));
        assert_eq!(least("1s"), Ok(Duration::from_secs(1)));
    }
}
