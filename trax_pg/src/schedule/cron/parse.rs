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

/// The longest text, in bytes.
const MAX_BYTES: usize = 255;

const FORMS: &str = "Write five fields (minute, hour, day of month, month, day of week), as in \"30 2 * * MON-FRI\", \
    six with seconds in front, or one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually.";

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

/// A field: its words for people, its values, and their names.
struct Unit {
    name: &'static str,
    one: &'static str,
    min: u32,
    max: u32,
    /// How many different values there are: 7 is a second name of Sunday.
    size: u32,
    names: &'static [&'static str],
    forms: &'static str,
}

const SECOND: Unit = Unit {
    name: "second",
    one: "a second",
    min: 0,
    max: 59,
    size: 60,
    names: &[],
    forms: "Write a second from 0 to 59, a list (0,30), a range (10-20), a step (*/15) or *.",
};
const MINUTE: Unit = Unit {
    name: "minute",
    one: "a minute",
    forms: "Write a minute from 0 to 59, a list (0,30), a range (10-20), a step (*/15) or *.",
    ..SECOND
};
const HOUR: Unit = Unit {
    name: "hour",
    one: "an hour",
    max: 23,
    size: 24,
    forms: "Write an hour from 0 to 23, a list (8,20), a range (9-17 or 22-4), a step (*/6) or *.",
    ..SECOND
};
const DAY_OF_MONTH: Unit = Unit {
    name: "day of month",
    one: "a day of the month",
    min: 1,
    max: 31,
    size: 31,
    names: &[],
    forms: "Write a day from 1 to 31, a list (1,15), a range (1-7), a step (*/2), L (the last day), LW (the last \
        weekday), 15W (the weekday nearest to the 15th), * or ?; the rules with L and W take no range and no step.",
};
const MONTH: Unit = Unit {
    name: "month",
    one: "a month",
    min: 1,
    max: 12,
    size: 12,
    names: &[
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ],
    forms: "Write a month from 1 to 12 or JAN to DEC, a list (1,7), a range (MAR-OCT), a step (*/3) or *.",
};
const DAY_OF_WEEK: Unit = Unit {
    name: "day of week",
    one: "a day of the week",
    min: 0,
    max: 7,
    size: 7,
    names: &[
        "sunday",
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
    ],
    forms: "Write a day from 0 to 7 (0 and 7 are Sunday) or SUN to SAT, a list (1,3), a range (MON-FRI), a step (*/2), \
        5L or FRIL (the last Friday of the month), 5#2 or FRI#2 (the second Friday), * or ?; the rules with L and # \
        take no range and no step.",
};

/// A piece of the text and where it stands, counted from 1.
#[derive(Clone, Copy)]
struct Piece<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Piece<'a> {
    /// The parts between separators.
    fn split(self, separator: char) -> impl Iterator<Item = Piece<'a>> {
        let mut position = self.position;
        self.text.split(separator).map(move |text| {
            let piece = Piece { text, position };
            position += text.len() + 1;
            piece
        })
    }

    /// The parts before and after the first separator.
    fn split_once(self, separator: char) -> Option<(Piece<'a>, Piece<'a>)> {
        let (before, after) = self.text.split_once(separator)?;
        let position = self.position + before.len() + 1;
        Some((
            Piece {
                text: before,
                ..self
            },
            Piece {
                text: after,
                position,
            },
        ))
    }

    /// The text before a last letter, of either case.
    fn before_last(self, letter: char) -> Option<Piece<'a>> {
        let text = self
            .text
            .strip_suffix([letter, letter.to_ascii_lowercase()])?;
        Some(Piece { text, ..self })
    }

    fn is(self, text: &str) -> bool {
        self.text.eq_ignore_ascii_case(text)
    }

    fn error(self, message: impl Into<String>, hint: impl Into<String>) -> CronError {
        CronError::new(self.position, message, hint)
    }
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
    if !days_of_month.0.is_empty() {
        days.of_month = bits(schedule.days_of_month()) as u32;
    }
    if !days_of_week.0.is_empty() {
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

/// The plain items of a field, in the words of the `cron` crate.
struct Plain(Vec<String>);

impl Plain {
    /// The crate builds a set of 60 for every item, so one that is there already is not added.
    fn push(&mut self, item: String) {
        if !self.0.contains(&item) {
            self.0.push(item);
        }
    }

    fn text(&self) -> String {
        if self.0.is_empty() || self.0.iter().any(|item| item == "*") {
            return "*".to_owned();
        }
        self.0.join(",")
    }
}

/// A field without rules of its own, and whether it has a wildcard or a step.
fn plain_field(unit: &Unit, field: Piece<'_>) -> Result<(Plain, bool), CronError> {
    let mut plain = Plain(Vec::new());
    for item in field.split(',') {
        span(unit, item)?.add_to(unit, &mut plain);
    }
    Ok((plain, field.text.contains(['*', '/'])))
}

fn day_of_month_field(field: Piece<'_>, days: &mut Days) -> Result<Plain, CronError> {
    let mut plain = Plain(Vec::new());
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
    let mut plain = Plain(Vec::new());
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

/// From a value to a value, every so many. The last is below the first when the range wraps.
struct Span {
    first: u32,
    last: u32,
    step: u32,
    wildcard: bool,
}

impl Span {
    /// `*`, or `*/1`, which says the same.
    fn is_all(&self) -> bool {
        self.wildcard && self.step == 1
    }

    /// The values, in the order in which they are counted.
    fn values(&self, unit: &Unit) -> impl Iterator<Item = u32> {
        let (min, size) = (unit.min, unit.size);
        let last = if self.first > self.last {
            self.last + size
        } else {
            self.last
        };
        (self.first..=last)
            .step_by(self.step as usize)
            .map(move |v| min + (v - min) % size)
    }

    fn add_to(&self, unit: &Unit, plain: &mut Plain) {
        let Span {
            first, last, step, ..
        } = *self;
        if self.is_all() {
            plain.push("*".to_owned());
        } else if first <= last && step == 1 {
            plain.push(format!("{first}-{last}"));
        } else if first <= last {
            plain.push(format!("{first}-{last}/{step}"));
        } else if step == 1 {
            plain.push(format!("{first}-{}", unit.max));
            plain.push(format!("{}-{last}", unit.min));
        } else {
            self.values(unit)
                .for_each(|value| plain.push(value.to_string()));
        }
    }
}

/// A value, a range or a wildcard, with or without a step.
fn span(unit: &Unit, item: Piece<'_>) -> Result<Span, CronError> {
    let (base, step) = match item.split_once('/') {
        Some((base, step)) => (base, Some(step)),
        None => (item, None),
    };
    let every = step.map(|step| self::step(unit, step)).transpose()?;
    let top = unit.min + unit.size - 1;
    let wildcard = base.is("*");
    let (first, last) = if wildcard {
        (unit.min, top)
    } else if base.is("?") {
        let message = "\"?\" stands only alone and only in a day field";
        return Err(base.error(message, unit.forms));
    } else if let Some((first, last)) = base.split_once('-') {
        (value(unit, first)?, value(unit, last)?)
    } else {
        let first = value(unit, base)?;
        (first, if every.is_some() { top } else { first })
    };
    // A range that begins with 7 begins with Sunday; one that ends with 7 ends with it.
    let first = if first > top && last < first {
        unit.min
    } else {
        first
    };
    Ok(Span {
        first,
        last,
        step: every.unwrap_or(1),
        wildcard,
    })
}

fn step(unit: &Unit, step: Piece<'_>) -> Result<u32, CronError> {
    let hint = || {
        let (name, max) = (unit.name, unit.max);
        format!("Write a step from 1 to {max} after / in the {name} field, as in */2.")
    };
    if !is_number(step.text) {
        return Err(step.error(format!("\"{}\" is not a step", step.text), hint()));
    }
    match number(step.text) {
        Some(every) if every >= 1 && every <= unit.max => Ok(every),
        _ => {
            let (name, text) = (unit.name, step.text);
            let message = format!("step \"{text}\" is out of range in the {name} field");
            Err(step.error(message, hint()))
        }
    }
}

/// A number or a name.
fn value(unit: &Unit, piece: Piece<'_>) -> Result<u32, CronError> {
    let Piece { text, .. } = piece;
    if text.is_empty() {
        return Err(piece.error(format!("{} is missing", unit.one), unit.forms));
    }
    if is_number(text) {
        return number(text)
            .filter(|n| (unit.min..=unit.max).contains(n))
            .ok_or_else(|| {
                piece.error(
                    format!("{} \"{text}\" is out of range", unit.name),
                    unit.forms,
                )
            });
    }
    let lower = text.to_ascii_lowercase();
    let named = unit
        .names
        .iter()
        .position(|name| lower.len() >= 3 && name.starts_with(&lower));
    named
        .map(|index| unit.min + index as u32)
        .ok_or_else(|| piece.error(format!("\"{text}\" is not {}", unit.one), unit.forms))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A number that fits; nothing larger is ever meant.
fn number(digits: &str) -> Option<u32> {
    digits.parse().ok()
}

fn bits(unit: &impl TimeUnitSpec) -> u64 {
    unit.iter().fold(0, |set, value| set | 1 << value)
}
