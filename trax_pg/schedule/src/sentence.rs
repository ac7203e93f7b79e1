//! A cron expression in English.

use crate::cron::{CronError, Fields, Item, Span, Unit, fields};
use crate::cron::{DAY_OF_MONTH, DAY_OF_WEEK, HOUR, MINUTE, MONTH, SECOND};

/// The most fixed times that are listed one by one.
const TIMES_LISTED: usize = 6;

/// Returns a cron expression in English, or the error in it.
///
/// ```
/// assert_eq!(trax_schedule::describe("0 2 * * *").unwrap(), "At 02:00 every day");
/// ```
pub fn describe(expression: &str) -> Result<String, CronError> {
    let Fields {
        seconds,
        minutes,
        hours,
        days_of_month,
        months,
        days_of_week,
        ..
    } = fields(expression)?;
    let (time, repeats) = time(&parts(&seconds), &parts(&minutes), &parts(&hours));
    let month = self::months(&parts(&months));
    let day = days(&parts(&days_of_month), &parts(&days_of_week));
    let mut parts = vec![time];
    match day {
        Some(day) => parts.push(day),
        // "Every 5 minutes" implies every day.
        None if repeats && month.is_none() => {}
        None => parts.push("every day".to_owned()),
    }
    parts.extend(month);
    let sentence = parts.join(" ");
    let (first, rest) = sentence.split_at(1);
    Ok(first.to_uppercase() + rest)
}

/// The form in which the sentence shows an item.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// `*`, `?` and `*/1`.
    All,
    One(u32),
    Range(u32, u32),
    /// From, to, every so many; the whole field when it began with `*`.
    Step {
        first: u32,
        last: u32,
        every: u32,
        whole: bool,
    },
    /// `L`, `LW`, `15W`, `5L` and `5#2`.
    Rule(Item),
}

fn parts(items: &[Item]) -> Vec<Part> {
    items.iter().map(part).collect()
}

fn part(item: &Item) -> Part {
    match *item {
        Item::Any => Part::All,
        Item::Span(span) if span.is_all() => Part::All,
        Item::Span(Span {
            first,
            last,
            step: 1,
            ..
        }) if first == last => Part::One(first),
        Item::Span(Span {
            first,
            last,
            step: 1,
            ..
        }) => Part::Range(first, last),
        Item::Span(Span {
            first,
            last,
            step,
            wildcard,
        }) => Part::Step {
            first,
            last,
            every: step,
            whole: wildcard,
        },
        rule => Part::Rule(rule),
    }
}

/// Returns the name of a value, or the value.
fn say(unit: &Unit, value: u32) -> String {
    let index = (value - unit.min) % unit.size;
    match unit.names.get(index as usize) {
        Some(name) => name[..1].to_uppercase() + &name[1..],
        None => value.to_string(),
    }
}

/// Returns the time of day, and whether it repeats every hour.
fn time(seconds: &[Part], minutes: &[Part], hours: &[Part]) -> (String, bool) {
    if let Some(times) = fixed(seconds, minutes, hours) {
        return (format!("at {}", and(&times)), false);
    }
    let every_hour = hours == [Part::All];
    let mut parts = Vec::new();
    let on_the_minute = seconds == [Part::One(0)];
    if !on_the_minute {
        parts.push(every(seconds, "second", &SECOND));
    }
    // Every second implies every minute.
    let spread = matches!(seconds, [Part::All | Part::Step { whole: true, .. }]);
    if !(spread && minutes == [Part::All]) {
        let text = every(minutes, "minute", &MINUTE);
        parts.push(if on_the_minute {
            text
        } else {
            format!("of {}", bare(&text))
        });
    }
    let all_minutes = matches!(minutes, [Part::All | Part::Step { whole: true, .. }]);
    match hours {
        [Part::All] if all_minutes => {}
        [Part::All] => parts.push("of every hour".to_owned()),
        [Part::One(hour)] if all_minutes => parts.push(between(*hour, *hour)),
        [Part::Range(first, last)] if all_minutes => parts.push(between(*first, *last)),
        [Part::Range(first, last)] => {
            parts.push(format!("of every hour from {first:02}:00 to {last:02}:59"));
        }
        hours => parts.push(format!("of {}", bare(&every(hours, "hour", &HOUR)))),
    }
    (parts.join(" "), every_hour)
}

fn between(first: u32, last: u32) -> String {
    format!("from {first:02}:00 to {last:02}:59")
}

/// Returns "at hour 3" as "hour 3".
fn bare(text: &str) -> &str {
    text.strip_prefix("at ").unwrap_or(text)
}

/// Returns times that are all plain numbers.
fn fixed(seconds: &[Part], minutes: &[Part], hours: &[Part]) -> Option<Vec<String>> {
    let numbers = |items: &[Part]| -> Option<Vec<u32>> {
        items
            .iter()
            .map(|part| match part {
                Part::One(value) => Some(*value),
                _ => None,
            })
            .collect()
    };
    let (seconds, minutes, hours) = (numbers(seconds)?, numbers(minutes)?, numbers(hours)?);
    if seconds.len() * minutes.len() * hours.len() > TIMES_LISTED {
        return None;
    }
    let mut times = Vec::new();
    for hour in &hours {
        for minute in &minutes {
            for second in &seconds {
                times.push((*hour, *minute, *second));
            }
        }
    }
    times.sort_unstable();
    let plain = seconds == [0];
    let text = |(hour, minute, second): (u32, u32, u32)| match plain {
        true => format!("{hour:02}:{minute:02}"),
        false => format!("{hour:02}:{minute:02}:{second:02}"),
    };
    Some(times.into_iter().map(text).collect())
}

/// Returns "every 5 minutes", "at minutes 0 and 30", "at every 7th minute from 3 to 59".
fn every(items: &[Part], name: &str, unit: &Unit) -> String {
    let whole = unit.size;
    match items {
        [Part::All] => return format!("every {name}"),
        [
            Part::Step {
                every, whole: true, ..
            },
        ] if whole.is_multiple_of(*every) && name != "hour" => {
            return format!("every {every} {name}s");
        }
        [
            Part::Step {
                every, whole: true, ..
            },
        ] => {
            return format!("at every {} {name}", ordinal(*every));
        }
        [
            Part::Step {
                first,
                last,
                every,
                whole: false,
            },
        ] => {
            let (first, last) = (say(unit, *first), say(unit, *last));
            return format!("at every {} {name} from {first} to {last}", ordinal(*every));
        }
        _ => {}
    }
    let plural = if let [Part::One(_)] = items { "" } else { "s" };
    format!("at {name}{plural} {}", values(items, unit))
}

/// Returns "1, 5 to 9 and every 2nd from 10 to 20".
fn values(items: &[Part], unit: &Unit) -> String {
    let texts: Vec<String> = items.iter().map(|part| value(*part, unit)).collect();
    and(&texts)
}

fn value(part: Part, unit: &Unit) -> String {
    let say = |value| say(unit, value);
    match part {
        Part::All => "any".to_owned(),
        Part::One(value) => say(value),
        Part::Range(first, last) => format!("{} to {}", say(first), say(last)),
        Part::Step {
            first, last, every, ..
        } => format!(
            "every {} from {} to {}",
            ordinal(every),
            say(first),
            say(last)
        ),
        Part::Rule(Item::LastWeekday) => "the last weekday of the month".to_owned(),
        Part::Rule(Item::Nearest(day)) => {
            format!("the weekday nearest to the {}", ordinal(day))
        }
        Part::Rule(Item::LastOfWeek(day)) => {
            format!("the last {} of the month", self::say(&DAY_OF_WEEK, day))
        }
        Part::Rule(Item::Nth { day, week }) => {
            format!(
                "the {} {} of the month",
                ordinal(week),
                self::say(&DAY_OF_WEEK, day)
            )
        }
        Part::Rule(_) => "the last day of the month".to_owned(),
    }
}

/// Returns the days. Either day field matches when both are restricted.
fn days(of_month: &[Part], of_week: &[Part]) -> Option<String> {
    let of_month = restricted(of_month).map(days_of_month);
    let of_week = restricted(of_week).map(|items| format!("on {}", values(items, &DAY_OF_WEEK)));
    match (of_month, of_week) {
        (Some(month), Some(week)) => Some(format!("{month} or {week}")),
        (month, week) => month.or(week),
    }
}

fn restricted(items: &[Part]) -> Option<&[Part]> {
    (!items.contains(&Part::All)).then_some(items)
}

fn days_of_month(items: &[Part]) -> String {
    let texts: Vec<String> = items
        .iter()
        .map(|part| match *part {
            Part::One(day) => format!("the {}", ordinal(day)),
            Part::Range(first, last) => format!("the {} to {}", ordinal(first), ordinal(last)),
            Part::Step {
                first, last, every, ..
            } => {
                let (first, last) = (ordinal(first), ordinal(last));
                format!(
                    "every {} day from the {first} to the {last}",
                    ordinal(every)
                )
            }
            other => value(other, &DAY_OF_MONTH),
        })
        .collect();
    let text = and(&texts);
    let said = text.ends_with("of the month");
    format!("on {text}{}", if said { "" } else { " of the month" })
}

fn months(items: &[Part]) -> Option<String> {
    restricted(items).map(|items| match items {
        [Part::Range(first, last)] => {
            format!("from {} to {}", say(&MONTH, *first), say(&MONTH, *last))
        }
        [
            Part::Step {
                first, last, every, ..
            },
        ] if first <= last => {
            let months = (*first..=*last).step_by(*every as usize);
            let names: Vec<String> = months.map(|month| say(&MONTH, month)).collect();
            format!("in {}", and(&names))
        }
        items => format!("in {}", values(items, &MONTH)),
    })
}

fn and(texts: &[String]) -> String {
    match texts {
        [] => String::new(),
        [one] => one.clone(),
        [before @ .., last] => format!("{} and {last}", before.join(", ")),
    }
}

fn ordinal(number: u32) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn an_expression_is_said_in_english() {
        for (expression, said) in [
            ("0 2 * * *", "At 02:00 every day"),
            ("@daily", "At 00:00 every day"),
            ("@hourly", "At minute 0 of every hour"),
            ("* * * * *", "Every minute"),
            ("*/5 * * * *", "Every 5 minutes"),
            ("*/7 * * * *", "At every 7th minute"),
            ("*/10 * * * * *", "Every 10 seconds"),
            ("* * * * * *", "Every second"),
            ("30 0 2 * * *", "At 02:00:30 every day"),
            ("0 8,12 * * *", "At 08:00 and 12:00 every day"),
            ("15,45 * * * *", "At minutes 15 and 45 of every hour"),
            (
                "*/15 9-17 * * MON-FRI",
                "Every 15 minutes from 09:00 to 17:59 on Monday to Friday",
            ),
            (
                "0 9-17 * * *",
                "At minute 0 of every hour from 09:00 to 17:59 every day",
            ),
            ("0 */6 * * *", "At minute 0 of every 6th hour every day"),
            (
                "5 4 1,15 * *",
                "At 04:05 on the 1st and the 15th of the month",
            ),
            (
                "0 0 13 * FRI",
                "At 00:00 on the 13th of the month or on Friday",
            ),
            ("0 0 L * ?", "At 00:00 on the last day of the month"),
            ("0 0 LW * *", "At 00:00 on the last weekday of the month"),
            (
                "0 0 15W * *",
                "At 00:00 on the weekday nearest to the 15th of the month",
            ),
            ("0 0 * * 5L", "At 00:00 on the last Friday of the month"),
            ("0 0 * * FRI#2", "At 00:00 on the 2nd Friday of the month"),
            ("0 0 * * 7", "At 00:00 on Sunday"),
            (
                "0 0 1 */3 *",
                "At 00:00 on the 1st of the month in January, April, July and October",
            ),
            (
                "0 3 * NOV-FEB *",
                "At 03:00 every day from November to February",
            ),
            (
                "0 0 */2 * *",
                "At 00:00 on every 2nd day from the 1st to the 31st of the month",
            ),
            (
                "0 22-4/2 * * *",
                "At minute 0 of every 2nd hour from 22 to 4 every day",
            ),
            ("* 2 * * *", "Every minute from 02:00 to 02:59 every day"),
            (
                "0 0 29 2 *",
                "At 00:00 on the 29th of the month in February",
            ),
        ] {
            assert_eq!(describe(expression).as_deref(), Ok(said), "{expression}");
        }
        assert!(describe("1 2 3").is_err());
        assert!(describe("x * * * *").is_err());
    }
}
