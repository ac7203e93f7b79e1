//! A cron expression in English.

use super::field::{DAY_OF_MONTH, DAY_OF_WEEK, HOUR, Item, MINUTE, MONTH, SECOND, Unit};

/// More fixed times than this are not listed one by one.
const TIMES_LISTED: usize = 6;

/// "At 02:00 every day"; none for a text that is not in the dialect.
pub(super) fn of(expression: &str) -> Option<String> {
    let expression = match expression.trim().to_ascii_lowercase().as_str() {
        "@hourly" => "0 * * * *",
        "@daily" | "@midnight" => "0 0 * * *",
        "@weekly" => "0 0 * * 0",
        "@monthly" => "0 0 1 * *",
        "@yearly" | "@annually" => "0 0 1 1 *",
        _ => expression,
    };
    let mut fields: Vec<&str> = expression.split_whitespace().collect();
    if fields.len() == 5 {
        fields.insert(0, "0");
    }
    let [second, minute, hour, day_of_month, month, day_of_week] = fields[..] else {
        return None;
    };
    let (time, repeats) = time(
        &SECOND.items(second)?,
        &MINUTE.items(minute)?,
        &HOUR.items(hour)?,
    );
    let month = months(&MONTH.items(month)?);
    let day = days(
        &DAY_OF_MONTH.items(day_of_month)?,
        &DAY_OF_WEEK.items(day_of_week)?,
    );
    let mut parts = vec![time];
    match day {
        Some(day) => parts.push(day),
        // "Every 5 minutes" says it by itself.
        None if repeats && month.is_none() => {}
        None => parts.push("every day".to_owned()),
    }
    parts.extend(month);
    let sentence = parts.join(" ");
    let (first, rest) = sentence.split_at(1);
    Some(first.to_uppercase() + rest)
}

/// The time of day, and whether it comes round by itself every hour.
fn time(seconds: &[Item], minutes: &[Item], hours: &[Item]) -> (String, bool) {
    if let Some(times) = fixed(seconds, minutes, hours) {
        return (format!("at {}", and(&times)), false);
    }
    let every_hour = hours == [Item::All];
    let mut parts = Vec::new();
    let on_the_minute = seconds == [Item::One(0)];
    if !on_the_minute {
        parts.push(every(seconds, "second", &SECOND));
    }
    // Every second implies every minute.
    let spread = matches!(seconds, [Item::All | Item::Step { whole: true, .. }]);
    if !(spread && minutes == [Item::All]) {
        let text = every(minutes, "minute", &MINUTE);
        parts.push(if on_the_minute {
            text
        } else {
            format!("of {}", bare(&text))
        });
    }
    let all_minutes = matches!(minutes, [Item::All | Item::Step { whole: true, .. }]);
    match hours {
        [Item::All] if all_minutes => {}
        [Item::All] => parts.push("of every hour".to_owned()),
        [Item::One(hour)] if all_minutes => parts.push(between(*hour, *hour)),
        [Item::Range(first, last)] if all_minutes => parts.push(between(*first, *last)),
        [Item::Range(first, last)] => {
            parts.push(format!("of every hour from {first:02}:00 to {last:02}:59"));
        }
        hours => parts.push(format!("of {}", bare(&every(hours, "hour", &HOUR)))),
    }
    (parts.join(" "), every_hour)
}

fn between(first: u32, last: u32) -> String {
    format!("from {first:02}:00 to {last:02}:59")
}

/// "at hour 3" as "hour 3".
fn bare(text: &str) -> &str {
    text.strip_prefix("at ").unwrap_or(text)
}

/// Times that are all plain numbers.
fn fixed(seconds: &[Item], minutes: &[Item], hours: &[Item]) -> Option<Vec<String>> {
    let numbers = |items: &[Item]| -> Option<Vec<u32>> {
        items
            .iter()
            .map(|item| match item {
                Item::One(value) => Some(*value),
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

/// "every 5 minutes", "at minutes 0 and 30", "at every 7th minute from 3 to 59".
fn every(items: &[Item], name: &str, unit: &Unit) -> String {
    let whole = unit.max + 1 - unit.min;
    match items {
        [Item::All] => return format!("every {name}"),
        [
            Item::Step {
                every, whole: true, ..
            },
        ] if whole.is_multiple_of(*every) && name != "hour" => {
            return format!("every {every} {name}s");
        }
        [
            Item::Step {
                every, whole: true, ..
            },
        ] => {
            return format!("at every {} {name}", ordinal(*every));
        }
        [
            Item::Step {
                first,
                last,
                every,
                whole: false,
            },
        ] => {
            let (first, last) = (unit.say(*first), unit.say(*last));
            return format!("at every {} {name} from {first} to {last}", ordinal(*every));
        }
        _ => {}
    }
    let plural = if let [Item::One(_)] = items { "" } else { "s" };
    format!("at {name}{plural} {}", values(items, unit))
}

/// "1, 5 to 9 and every 2nd from 10 to 20".
fn values(items: &[Item], unit: &Unit) -> String {
    let texts: Vec<String> = items.iter().map(|item| value(*item, unit)).collect();
    and(&texts)
}

fn value(item: Item, unit: &Unit) -> String {
    let say = |value| unit.say(value);
    match item {
        Item::All => "any".to_owned(),
        Item::One(value) => say(value),
        Item::Range(first, last) => format!("{} to {}", say(first), say(last)),
        Item::Step {
            first, last, every, ..
        } => format!(
            "every {} from {} to {}",
            ordinal(every),
            say(first),
            say(last)
        ),
        Item::Last => "the last day of the month".to_owned(),
        Item::LastWeekday => "the last weekday of the month".to_owned(),
        Item::Nearest(day) => format!("the weekday nearest to the {}", ordinal(day)),
        Item::LastOfWeek(day) => format!("the last {} of the month", say(day)),
        Item::Nth(day, nth) => format!("the {} {} of the month", ordinal(nth), say(day)),
    }
}

/// Either day field matches when both are restricted.
fn days(of_month: &[Item], of_week: &[Item]) -> Option<String> {
    let of_month = restricted(of_month).map(days_of_month);
    let of_week = restricted(of_week).map(|items| format!("on {}", values(items, &DAY_OF_WEEK)));
    match (of_month, of_week) {
        (Some(month), Some(week)) => Some(format!("{month} or {week}")),
        (month, week) => month.or(week),
    }
}

fn restricted(items: &[Item]) -> Option<&[Item]> {
    (!items.contains(&Item::All)).then_some(items)
}

fn days_of_month(items: &[Item]) -> String {
    let texts: Vec<String> = items
        .iter()
        .map(|item| match *item {
            Item::One(day) => format!("the {}", ordinal(day)),
            Item::Range(first, last) => format!("the {} to {}", ordinal(first), ordinal(last)),
            Item::Step {
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

fn months(items: &[Item]) -> Option<String> {
    restricted(items).map(|items| match items {
        [Item::Range(first, last)] => {
            format!("from {} to {}", MONTH.say(*first), MONTH.say(*last))
        }
        [
            Item::Step {
                first, last, every, ..
            },
        ] if first <= last => {
            let months = (*first..=*last).step_by(*every as usize);
            let names: Vec<String> = months.map(|month| MONTH.say(month)).collect();
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
    use super::of;

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
            assert_eq!(of(expression).as_deref(), Some(said), "{expression}");
        }
        assert_eq!(of("1 2 3"), None);
        assert_eq!(of("x * * * *"), None);
    }
}
