//! From text to sets: the dialect.
//!
//! The `cron` crate reads lists, ranges and steps of plain numbers. Forms that it would read
//! differently from crontab, or not at all, are resolved before it gets the text: five fields,
//! shorthands, names, Sunday as 0, ranges that wrap, the day rules. Every item is checked here
//! first, because only here is its position in the text known.

use std::str::FromStr;

use cron::{Schedule, TimeUnitSpec};

use super::day::Days;
use super::item::{DAY_OF_MONTH, DAY_OF_WEEK, HOUR, MINUTE, MONTH, SECOND};
use super::item::{Item, Piece, Plain, Unit, items};
use super::{Cron, CronError};

const FORMS: &str = "Write five fields (minute, hour, day of month, month, day of week), as in \
    \"30 2 * * MON-FRI\", six with seconds in front, or one of @hourly, @daily, @midnight, \
    @weekly, @monthly, @yearly and @annually.";

/// The meaning of a text, as sets of numbers.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) seconds: u64,
    pub(super) minutes: u64,
    pub(super) hours: u64,
    pub(super) months: u64,
    pub(super) days: Days,
    /// The hour or the minute has a wildcard or a step.
    pub(super) elapsed: bool,
    /// The position of the day-of-month field.
    pub(super) day_position: usize,
}

/// The items of the six fields, seconds first; a text of five has the second 0.
pub(crate) struct Fields {
    pub(crate) seconds: Vec<Item>,
    pub(crate) minutes: Vec<Item>,
    pub(crate) hours: Vec<Item>,
    pub(crate) days_of_month: Vec<Item>,
    pub(crate) months: Vec<Item>,
    pub(crate) days_of_week: Vec<Item>,
    /// The hour or the minute has a wildcard or a step.
    elapsed: bool,
    /// The position of the day-of-month field.
    day_position: usize,
}

/// Parses the items of a text.
pub(crate) fn fields(text: &str) -> Result<Fields, CronError> {
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
    let is_elapsed = |field: Piece<'_>| field.text.contains(['*', '/']);
    Ok(Fields {
        seconds: items(&SECOND, second)?,
        minutes: items(&MINUTE, minute)?,
        hours: items(&HOUR, hour)?,
        days_of_month: items(&DAY_OF_MONTH, day_of_month)?,
        months: items(&MONTH, month)?,
        days_of_week: items(&DAY_OF_WEEK, day_of_week)?,
        elapsed: is_elapsed(minute) || is_elapsed(hour),
        day_position: day_of_month.position,
    })
}

/// Parses a text. Does not check whether the schedule ever fires.
pub(super) fn parse(text: &str) -> Result<Parsed, CronError> {
    let fields = fields(text)?;
    let mut days = Days::default();
    let days_of_month = days_of_month(&fields.days_of_month, &mut days);
    let days_of_week = days_of_week(&fields.days_of_week, &mut days);
    let plain = [
        &plain(&SECOND, &fields.seconds),
        &plain(&MINUTE, &fields.minutes),
        &plain(&HOUR, &fields.hours),
        &days_of_month,
        &plain(&MONTH, &fields.months),
        &days_of_week,
    ];
    let schedule = Schedule::from_str(&plain.map(|list| list.text()).join(" "))
        .map_err(|_| CronError::new(1, "the cron expression cannot be parsed", FORMS))?;
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
        elapsed: fields.elapsed,
        day_position: fields.day_position,
    })
}

/// Checks the size of the text, and that each character is one byte.
fn check_characters(text: &str) -> Result<(), CronError> {
    let characters = text.char_indices().zip(1..);
    for ((index, character), position) in characters {
        if index + character.len_utf8() > Cron::MAX_BYTES {
            let message = format!(
                "the cron expression is longer than {} bytes",
                Cron::MAX_BYTES
            );
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

/// Returns the fields for which an `@` word in front stands. Refuses an assignment there, as in
/// crontab files.
fn shorthand(words: &[Piece<'_>]) -> Result<Option<&'static str>, CronError> {
    let Some(word) = words.first().filter(|word| word.text.contains(['@', '='])) else {
        return Ok(None);
    };
    if word.text.contains('=') {
        let message = format!("unexpected assignment \"{}\"", word.text);
        return Err(word.error(
            message,
            "Specify the zone as timezone => 'Europe/Berlin', not in cron.",
        ));
    }
    let fields = match word.text.to_ascii_lowercase().as_str() {
        "@hourly" => "0 * * * *",
        "@daily" | "@midnight" => "0 0 * * *",
        "@weekly" => "0 0 * * 0",
        "@monthly" => "0 0 1 * *",
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@every" => {
            let hint = "Leave cron out and specify a fixed delay: every => interval '5 min'.";
            return Err(word.unsupported(hint));
        }
        "@reboot" => {
            let hint = "Leave cron out, and queue the job from the service that starts.";
            return Err(word.unsupported(hint));
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

/// Returns the items of a field without special rules.
fn plain(unit: &Unit, items: &[Item]) -> Plain {
    let mut plain = Plain::default();
    for item in items {
        if let Item::Span(span) = item {
            span.add_to(unit, &mut plain);
        }
    }
    plain
}

fn days_of_month(items: &[Item], days: &mut Days) -> Plain {
    let mut plain = Plain::default();
    for item in items {
        match item {
            Item::Any => {
                days.any_day_of_month = true;
                plain.push("*".to_owned());
            }
            Item::Last => days.last = true,
            Item::LastWeekday => days.last_weekday = true,
            Item::Nearest(day) => days.nearest_weekday |= 1 << day,
            Item::Span(span) => {
                days.any_day_of_month |= span.is_all();
                span.add_to(&DAY_OF_MONTH, &mut plain);
            }
            Item::LastOfWeek(_) | Item::Nth { .. } => {}
        }
    }
    plain
}

fn days_of_week(items: &[Item], days: &mut Days) -> Plain {
    let mut plain = Plain::default();
    for item in items {
        match item {
            Item::Any => {
                days.any_day_of_week = true;
                plain.push("*".to_owned());
            }
            Item::LastOfWeek(day) => days.last_of_week |= 1 << day,
            Item::Nth { day, week } => days.nth_of_week[*week as usize - 1] |= 1 << day,
            Item::Span(span) => {
                days.any_day_of_week |= span.is_all();
                for day in span.values(&DAY_OF_WEEK) {
                    plain.push((day + 1).to_string());
                }
            }
            Item::Last | Item::LastWeekday | Item::Nearest(_) => {}
        }
    }
    plain
}

fn bits(unit: &impl TimeUnitSpec) -> u64 {
    unit.iter().fold(0, |set, value| set | 1 << value)
}
