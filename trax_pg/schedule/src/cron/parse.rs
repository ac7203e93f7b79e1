//! From text to sets: the dialect.
//!
//! The `cron` crate reads lists, ranges and steps of plain numbers. What it would read otherwise
//! than crontab does, or not at all, is settled before it sees the text: five fields, shorthands,
//! names, Sunday as 0, ranges that wrap, the day rules. Every item is checked here first, because
//! only here is known at which character it stands.

use std::str::FromStr;

use cron::{Schedule, TimeUnitSpec};

use super::CronError;
use super::day::Days;
use super::item::{DAY_OF_MONTH, DAY_OF_WEEK, HOUR, MINUTE, MONTH, Piece, SECOND, Unit};
use super::item::{Plain, is_number, span, value};

/// The longest text, in bytes.
const MAX_BYTES: usize = 255;

const FORMS: &str = "Write five fields (minute, hour, day of month, month, day of week), as in \
    \"30 2 * * MON-FRI\", six with seconds in front, or one of @hourly, @daily, @midnight, \
    @weekly, @monthly, @yearly and @annually.";

/// What a text says, as sets of numbers.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) seconds: u64,
    pub(super) minutes: u64,
    pub(super) hours: u64,
    pub(super) months: u64,
    pub(super) days: Days,
    /// The hour or the minute has a wildcard or a step.
    pub(super) elapsed: bool,
    /// Where the day-of-month field stands.
    pub(super) day_position: usize,
}

/// Reads a text. Whether the schedule ever fires is not asked here.
pub(super) fn parse(text: &str) -> Result<Parsed, CronError> {
    check_characters(text)?;
    let mut words = words(text);
    let written = words.clone();
    if let Some(fields) = shorthand(&words)? {
        words = self::words(fields);
    }
    if words.len() == 5 {
        words.insert(
            0,
            Piece {
                text: "0",
                position: 1,
            },
        );
    }
    let [second, minute, hour, day_of_month, month, day_of_week] = words[..] else {
        return Err(wrong_count(text, &written));
    };
    let mut days = Days::default();
    let (seconds, _) = plain_field(&SECOND, second)?;
    let (minutes, minute_elapsed) = plain_field(&MINUTE, minute)?;
    let (hours, hour_elapsed) = plain_field(&HOUR, hour)?;
    let days_of_month = day_of_month_field(day_of_month, &mut days)?;
    let (months, _) = plain_field(&MONTH, month)?;
    let days_of_week = day_of_week_field(day_of_week, &mut days)?;
    let plain = [
        &seconds,
        &minutes,
        &hours,
        &days_of_month,
        &months,
        &days_of_week,
    ];
    let schedule = Schedule::from_str(&plain.map(|list| list.text()).join(" "))
        .map_err(|_| CronError::new(1, "the cron expression is not understood", FORMS))?;
    if !days_of_month.is_empty() {
        days.of_month = bits(schedule.days_of_month()) as u32;
    }
    if !days_of_week.is_empty() {
        // The crate counts Sunday as 1.
        days.of_week = (bits(schedule.days_of_week()) >> 1) as u8;
    }
    Ok(Parsed {
        seconds: bits(schedule.seconds()),
        minutes: bits(schedule.minutes()),
        hours: bits(schedule.hours()),
        months: bits(schedule.months()),
        days,
        elapsed: minute_elapsed || hour_elapsed,
        day_position: day_of_month.position,
    })
}

/// Bounds the text, and makes sure that a byte is a character from here on.
fn check_characters(text: &str) -> Result<(), CronError> {
    let characters = text.char_indices().zip(1..);
    for ((index, character), position) in characters {
        if index + character.len_utf8() > MAX_BYTES {
            let message = format!("the cron expression is longer than {MAX_BYTES} bytes");
            let hint = "Shorten it with ranges and steps, or schedule several manifests.";
            return Err(CronError::new(position, message, hint));
        }
        if !(character.is_ascii_graphic() || character.is_ascii_whitespace()) {
            let shown = character.escape_debug();
            let message = format!("unexpected character \"{shown}\"");
            let hint = "Write only ASCII letters, digits, spaces and * ? , - / # @.";
            return Err(CronError::new(position, message, hint));
        }
    }
    Ok(())
}

fn words(text: &str) -> Vec<Piece<'_>> {
    let whole = Piece { text, position: 1 };
    let mut words: Vec<Piece<'_>> = Vec::new();
    let mut rest = whole;
    while let Some(start) = rest.text.find(|c: char| !c.is_ascii_whitespace()) {
        let from = &rest.text[start..];
        let length = from
            .find(|c: char| c.is_ascii_whitespace())
            .unwrap_or(from.len());
        let position = rest.position + start;
        words.push(Piece {
            text: &from[..length],
            position,
        });
        rest = Piece {
            text: &from[length..],
            position: position + length,
        };
    }
    words
}

/// The fields that an `@` word in front stands for. An assignment there, as crontab files have it,
/// is refused.
fn shorthand(words: &[Piece<'_>]) -> Result<Option<&'static str>, CronError> {
    let Some(word) = words.first().filter(|word| word.text.contains(['@', '='])) else {
        return Ok(None);
    };
    if word.text.contains('=') {
        let message = format!("unexpected assignment \"{}\"", word.text);
        return Err(word.error(
            message,
            "Give the zone as timezone => 'Europe/Berlin', not in cron.",
        ));
    }
    let fields = match word.text.to_ascii_lowercase().as_str() {
        "@hourly" => "0 * * * *",
        "@daily" | "@midnight" => "0 0 * * *",
        "@weekly" => "0 0 * * 0",
        "@monthly" => "0 0 1 * *",
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@every" => {
            let hint = "Leave cron out and give every => interval '5 minutes' for a fixed delay.";
            return Err(word.error("\"@every\" is not a cron expression", hint));
        }
        _ => return Err(word.error(format!("unknown shorthand \"{}\"", word.text), FORMS)),
    };
    match words.get(1) {
        Some(more) => {
            let message = format!("unexpected \"{}\" after \"{}\"", more.text, word.text);
            Err(more.error(message, format!("Write {} alone.", word.text)))
        }
        None => Ok(Some(fields)),
    }
}

fn wrong_count(text: &str, words: &[Piece<'_>]) -> CronError {
    if words.is_empty() {
        return CronError::new(1, "the cron expression is empty", FORMS);
    }
    match words.get(6) {
        Some(surplus) => {
            let message = format!("the cron expression has {} fields", words.len());
            surplus.error(message, format!("{FORMS} There is no field for years."))
        }
        None => {
            let fields = if words.len() == 1 { "field" } else { "fields" };
            let message = format!("the cron expression has only {} {fields}", words.len());
            CronError::new(text.trim_ascii_end().len() + 1, message, FORMS)
        }
    }
}

/// A field without rules of its own, and whether it has a wildcard or a step.
fn plain_field(unit: &Unit, field: Piece<'_>) -> Result<(Plain, bool), CronError> {
    let mut plain = Plain::default();
    for item in field.split(',') {
        span(unit, item)?.add_to(unit, &mut plain);
    }
    Ok((plain, field.text.contains(['*', '/'])))
}

fn day_of_month_field(field: Piece<'_>, days: &mut Days) -> Result<Plain, CronError> {
    let mut plain = Plain::default();
    if field.is("?") {
        days.any_day_of_month = true;
        plain.push("*".to_owned());
        return Ok(plain);
    }
    for item in field.split(',') {
        if item.is("L") {
            days.last = true;
        } else if item.is("LW") {
            days.last_weekday = true;
        } else if let Some(day) = item.before_last('W').filter(|day| is_number(day.text)) {
            days.nearest_weekday |= 1 << value(&DAY_OF_MONTH, day)?;
        } else {
            let span = span(&DAY_OF_MONTH, item)?;
            days.any_day_of_month |= span.is_all();
            span.add_to(&DAY_OF_MONTH, &mut plain);
        }
    }
    Ok(plain)
}

fn day_of_week_field(field: Piece<'_>, days: &mut Days) -> Result<Plain, CronError> {
    let mut plain = Plain::default();
    if field.is("?") {
        days.any_day_of_week = true;
        plain.push("*".to_owned());
        return Ok(plain);
    }
    for item in field.split(',') {
        if item.is("L") {
            let hint =
                "Name the day in front of L, as in 5L or FRIL for the last Friday of the month.";
            return Err(item.error("\"L\" names no day of the week", hint));
        }
        if let Some((day, nth)) = item.split_once('#') {
            let day = value(&DAY_OF_WEEK, day)? % 7;
            days.nth_of_week[week(nth)?] |= 1 << day;
        } else if let Some(day) = item.before_last('L') {
            days.last_of_week |= 1 << (value(&DAY_OF_WEEK, day)? % 7);
        } else {
            let span = span(&DAY_OF_WEEK, item)?;
            days.any_day_of_week |= span.is_all();
            for day in span.values(&DAY_OF_WEEK) {
                plain.push((day + 1).to_string());
            }
        }
    }
    Ok(plain)
}

/// The n of `FRI#n`, counted from 0.
fn week(nth: Piece<'_>) -> Result<usize, CronError> {
    match nth.text {
        "1" => Ok(0),
        "2" => Ok(1),
        "3" => Ok(2),
        "4" => Ok(3),
        "5" => Ok(4),
        other => {
            let message = format!("\"{other}\" is not a week of the month");
            Err(nth.error(
                message,
                "Write 1 to 5 after #, as in FRI#2 for the second Friday.",
            ))
        }
    }
}

fn bits(unit: &impl TimeUnitSpec) -> u64 {
    unit.iter().fold(0, |set, value| set | 1 << value)
}
