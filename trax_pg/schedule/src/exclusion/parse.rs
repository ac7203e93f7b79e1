//! From JSON to closed times.

use std::fmt;

use serde_json::Value;

use super::{ALL_DAYS, DateRange, Exclusions, Window};
use crate::calendar::{DAY, day_of, days_in_month};
use crate::cron::{DAY_OF_WEEK, Piece, value};

/// The most dates, and the most date ranges.
const MAX_DATES: usize = 1_000;

/// The most time windows, and the most days in a list of days.
const MAX_WINDOWS: usize = 100;

const FORMS: &str = "Write an object with any of days_of_week, dates, date_ranges and \
    time_windows, as in {\"days_of_week\": [\"SAT\", \"SUN\"], \"dates\": [\"12-25\"]}.";

const DAY_FORMS: &str = "Write a list of days, each 0 to 7 (0 and 7 are Sunday) or SUN to SAT, as in [\"SAT\", \"SUN\"].";

const DATE_FORMS: &str =
    "Write a list of dates, as in [\"2026-12-25\"], or [\"12-25\"] for every year.";

const RANGE_FORMS: &str = "Write a list of ranges, both ends included, as in \
    [{\"from\": \"2026-12-24\", \"to\": \"2027-01-01\"}].";

const WINDOW_FORMS: &str = "Write a list of windows, as in [{\"from\": \"22:00\", \"to\": \
    \"06:00\"}], with \"days_of_week\" for the days on which a window begins.";

const TIME_FORMS: &str = "Write a time from 00:00 to 23:59, as in \"22:00\" or \"22:00:30\"; the \
    end may be \"24:00\".";

/// JSON that does not describe exclusions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExclusionError {
    /// The error, in lower case and without a full stop.
    pub message: String,
    /// The text to type: full sentences.
    pub hint: String,
    /// The place of the error, such as `time_windows[0].from`; empty for the whole.
    pub path: String,
}

impl fmt::Display for ExclusionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.path.is_empty() {
            write!(f, " at {}", self.path)?;
        }
        Ok(())
    }
}

impl std::error::Error for ExclusionError {}

type Result<T> = std::result::Result<T, ExclusionError>;

fn error(path: &str, message: impl Into<String>, hint: &str) -> ExclusionError {
    ExclusionError {
        message: message.into(),
        hint: hint.to_owned(),
        path: path.to_owned(),
    }
}

impl Exclusions {
    /// Reads an object with any of `days_of_week` (0 to 7 or names), `dates` (`2026-12-25`, or
    /// `12-25` for every year), `date_ranges` (`from` and `to`, both included) and `time_windows`
    /// (`from` included, `to` not, across midnight when `to` is earlier; `days_of_week` lists on
    /// which days a window begins).
    ///
    /// Returns an error for unknown keys, more than 1,000 dates or ranges or 100 windows, and for
    /// rules that leave no time to run at all.
    pub fn parse(json: &Value) -> Result<Exclusions> {
        let mut exclusions = Exclusions::default();
        for (key, value) in object(json, "", FORMS)? {
            match key.as_str() {
                "days_of_week" => exclusions.days_of_week = days_of_week(value, key)?,
                "dates" => exclusions.add_dates(value, key)?,
                "date_ranges" => exclusions.add_date_ranges(value, key)?,
                "time_windows" => exclusions.add_time_windows(value, key)?,
                _ => return Err(unknown("", key, FORMS)),
            }
        }
        exclusions.close();
        if exclusions.leave_no_time() {
            let hint = "Leave some part of the week open, or disable the manifest instead.";
            let message = "the schedule never runs: the exclusions leave no time";
            return Err(error("", message, hint));
        }
        Ok(exclusions)
    }

    fn add_dates(&mut self, json: &Value, path: &str) -> Result<()> {
        for (index, value) in list(json, path, MAX_DATES, DATE_FORMS)? {
            let path = format!("{path}[{index}]");
            let text = text(value, &path, DATE_FORMS)?;
            match numbers(text, [4, 2, 2], '-') {
                Some([year, month, day]) => {
                    let day = date(text, [year, month, day], &path, DATE_FORMS)?;
                    self.ranges.push(DateRange {
                        first: day,
                        last: day,
                    });
                }
                None => {
                    let Some([month, day]) = numbers(text, [2, 2], '-') else {
                        let message = format!("\"{}\" is not a date", shown(text));
                        return Err(error(&path, message, DATE_FORMS));
                    };
                    // In a leap year, so that 02-29 is valid.
                    date(text, [2000, month, day], &path, DATE_FORMS)?;
                    self.yearly[month as usize - 1] |= 1 << day;
                }
            }
        }
        Ok(())
    }

    fn add_date_ranges(&mut self, json: &Value, path: &str) -> Result<()> {
        for (index, value) in list(json, path, MAX_DATES, RANGE_FORMS)? {
            self.ranges
                .push(date_range(value, &format!("{path}[{index}]"))?);
        }
        Ok(())
    }

    fn add_time_windows(&mut self, json: &Value, path: &str) -> Result<()> {
        for (index, value) in list(json, path, MAX_WINDOWS, WINDOW_FORMS)? {
            self.windows
                .push(time_window(value, &format!("{path}[{index}]"))?);
        }
        Ok(())
    }

    /// Joins the written ranges and windows into spans that do not touch.
    fn close(&mut self) {
        let mut ranges = self.ranges.clone();
        ranges.sort();
        for range in ranges {
            match self.closed_days.last_mut() {
                Some(before) if range.first <= before.last + 1 => {
                    before.last = before.last.max(range.last);
                }
                _ => self.closed_days.push(range),
            }
        }
        for (day, closed) in (0..7).zip(&mut self.closed_seconds) {
            let mut parts: Vec<(u32, u32)> = Vec::new();
            for window in &self.windows {
                let here = window
                    .parts()
                    .filter(|(days, ..)| window.begins_on((day + 7 - days) % 7));
                parts.extend(here.map(|(_, from, to)| (from, to)));
            }
            parts.sort_unstable();
            for (from, to) in parts {
                match closed.last_mut() {
                    Some(before) if from <= before.1 => before.1 = before.1.max(to),
                    _ => closed.push((from, to)),
                }
            }
        }
    }

    /// Returns whether the rules leave no time at all. Every date falls on every day of the week in
    /// some year, so dates and days of the week are checked separately.
    fn leave_no_time(&self) -> bool {
        let date = (1..=12).any(|month| {
            let all = u32::MAX >> (31 - days_in_month(2000, month)) & !1;
            all & !self.yearly[month as usize - 1] != 0
        });
        !date || self.days_of_week_with_time() & !self.days_of_week == 0
    }
}

fn date_range(json: &Value, path: &str) -> Result<DateRange> {
    let (mut from, mut to) = (None, None);
    for (key, value) in object(json, path, RANGE_FORMS)? {
        let end = match key.as_str() {
            "from" => &mut from,
            "to" => &mut to,
            _ => return Err(unknown(path, key, RANGE_FORMS)),
        };
        let path = format!("{path}.{key}");
        let text = text(value, &path, RANGE_FORMS)?;
        let Some(parts) = numbers(text, [4, 2, 2], '-') else {
            let message = format!("\"{}\" is not a date", shown(text));
            return Err(error(&path, message, RANGE_FORMS));
        };
        *end = Some(date(text, parts, &path, RANGE_FORMS)?);
    }
    let (first, last) = both(from, to, path, RANGE_FORMS)?;
    if first > last {
        return Err(error(path, "the range ends before it begins", RANGE_FORMS));
    }
    Ok(DateRange { first, last })
}

fn time_window(json: &Value, path: &str) -> Result<Window> {
    let (mut from, mut to, mut days) = (None, None, ALL_DAYS);
    for (key, value) in object(json, path, WINDOW_FORMS)? {
        let inner = format!("{path}.{key}");
        match key.as_str() {
            "from" => from = Some(time(value, &inner, false)?),
            "to" => to = Some(time(value, &inner, true)?),
            "days_of_week" => days = days_of_week(value, &inner)?,
            _ => return Err(unknown(path, key, WINDOW_FORMS)),
        }
    }
    let (from, to) = both(from, to, path, WINDOW_FORMS)?;
    if from == to {
        let hint = "Write \"from\": \"00:00\", \"to\": \"24:00\" for whole days.";
        return Err(error(path, "the window ends when it begins", hint));
    }
    if days == 0 {
        let hint = "Name a day, or leave days_of_week out for every day.";
        return Err(error(path, "the window begins on no day", hint));
    }
    Ok(Window {
        from,
        to,
        days_of_week: days,
    })
}

fn unknown(path: &str, key: &str, hint: &str) -> ExclusionError {
    error(path, format!("unknown key \"{}\"", shown(key)), hint)
}

/// Returns the start of a text, to keep a message short.
fn shown(text: &str) -> String {
    let mut start: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().nth(40).is_some() {
        start.push_str("...");
    }
    start
}

fn kind(json: &Value) -> &'static str {
    match json {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn object<'a>(
    json: &'a Value,
    path: &str,
    hint: &str,
) -> Result<&'a serde_json::Map<String, Value>> {
    let wrong = || format!("expected an object, not {}", kind(json));
    json.as_object().ok_or_else(|| error(path, wrong(), hint))
}

fn list<'a>(
    json: &'a Value,
    path: &str,
    most: usize,
    hint: &str,
) -> Result<impl Iterator<Item = (usize, &'a Value)> + use<'a>> {
    let Some(items) = json.as_array() else {
        let message = format!("expected a list, not {}", kind(json));
        return Err(error(path, message, hint));
    };
    if items.len() > most {
        let message = format!("the list has more than {most} items");
        let hint = "Merge adjacent entries, and remove those in the past.";
        return Err(error(path, message, hint));
    }
    Ok(items.iter().enumerate())
}

fn text<'a>(json: &'a Value, path: &str, hint: &str) -> Result<&'a str> {
    let wrong = || format!("expected a text, not {}", kind(json));
    json.as_str().ok_or_else(|| error(path, wrong(), hint))
}

fn both<T>(from: Option<T>, to: Option<T>, path: &str, hint: &str) -> Result<(T, T)> {
    match (from, to) {
        (Some(from), Some(to)) => Ok((from, to)),
        (None, _) => Err(error(path, "\"from\" is missing", hint)),
        (_, None) => Err(error(path, "\"to\" is missing", hint)),
    }
}

/// Returns days of the week as bits.
fn days_of_week(json: &Value, path: &str) -> Result<u8> {
    let mut days = 0;
    for (index, day) in list(json, path, MAX_WINDOWS, DAY_FORMS)? {
        let path = format!("{path}[{index}]");
        let text = match day {
            Value::Number(number) => number.to_string(),
            _ => shown(text(day, &path, DAY_FORMS)?),
        };
        let piece = Piece {
            text: &text,
            position: 1,
        };
        let day =
            value(&DAY_OF_WEEK, piece).map_err(|wrong| error(&path, wrong.message, DAY_FORMS))?;
        days |= 1 << (day % 7);
    }
    Ok(days)
}

/// Returns numbers with the given counts of digits, between separators.
fn numbers<const N: usize>(text: &str, digits: [usize; N], separator: char) -> Option<[u32; N]> {
    let mut found = [0; N];
    let mut parts = text.split(separator);
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next()?;
        if part.len() != digits || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

/// Returns the number of a date, if it exists.
fn date(text: &str, [year, month, day]: [u32; 3], path: &str, hint: &str) -> Result<i64> {
    let exists = year >= 1
        && (1..=12).contains(&month)
        && (1..=days_in_month(i64::from(year), month)).contains(&day);
    if !exists {
        return Err(error(path, format!("there is no date \"{text}\""), hint));
    }
    Ok(day_of(i64::from(year), month, day))
}

/// Returns a second of the day. The end of the day is valid only as the end of a window.
fn time(json: &Value, path: &str, is_end: bool) -> Result<u32> {
    let text = text(json, path, TIME_FORMS)?;
    let parts = numbers(text, [2, 2, 2], ':')
        .or_else(|| numbers(text, [2, 2], ':').map(|[hour, minute]| [hour, minute, 0]));
    let Some([hour, minute, second]) = parts else {
        let message = format!("\"{}\" is not a time", shown(text));
        return Err(error(path, message, TIME_FORMS));
    };
    let of_day = hour * 3_600 + minute * 60 + second;
    let most = if is_end { DAY } else { DAY - 1 };
    if minute > 59 || second > 59 || i64::from(of_day) > most {
        let message = format!("time \"{text}\" is out of range");
        return Err(error(path, message, TIME_FORMS));
    }
    Ok(of_day)
}
