//! Parses schedules of pg_cron as its own parser does.
//!
//! Input: the text of a schedule that pg_cron has accepted. Output: its times, with notes on the
//! parts that pg_cron ignores; or the reason why the times cannot be determined exactly. Invariant:
//! ignored parts are left out of the expression and noted: text after the fifth field, and text
//! after a value within a field (`mon#2` is every Monday).

use super::crontab::Times;

/// The times of a job.
#[derive(Debug, PartialEq)]
pub(super) enum When {
    /// The number of seconds between runs.
    Every(u32),
    Cron(Times),
}

/// Parses a schedule. `both_days` is pg_cron's setting cron.match_dom_and_dow. Also returns notes.
pub(super) fn read(schedule: &str, both_days: bool) -> Result<(When, Vec<String>), String> {
    if let Some(seconds) = seconds(schedule) {
        return match seconds {
            1..60 => Ok((When::Every(seconds), Vec::new())),
            _ => Err("pg_cron has intervals of 1 to 59 seconds".to_owned()),
        };
    }
    let schedule = without_comments(schedule);
    let mut notes = Vec::new();
    let (times, rest) = match schedule.strip_prefix('@') {
        Some(text) => {
            let end = text.find(is_end).unwrap_or(text.len());
            let (name, rest) = text.split_at(end);
            (shorthand(name)?, rest)
        }
        None => {
            let (fields, rest) = fields(schedule)?;
            let read = fields.map(of_field);
            for (field, read) in fields.iter().zip(read) {
                if let Some(ignored) = field.strip_prefix(read).filter(|rest| !rest.is_empty()) {
                    notes.push(format!("pg_cron ignores \"{ignored}\" in \"{field}\""));
                }
            }
            (times(read, both_days)?, rest)
        }
    };
    let rest = rest.trim();
    if !rest.is_empty() {
        notes.push(format!(
            "pg_cron ignores the text after the schedule: \"{rest}\""
        ));
    }
    Ok((When::Cron(times), notes))
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

fn is_end(c: char) -> bool {
    is_blank(c) || c == '\n'
}

/// Parses "30 seconds", a form that only pg_cron has.
fn seconds(schedule: &str) -> Option<u32> {
    let lower = schedule.trim().to_ascii_lowercase();
    let number = lower
        .strip_suffix("seconds")
        .or_else(|| lower.strip_suffix("second"))?;
    number.trim().parse().ok()
}

/// Returns the text from its first line that is neither blank nor a comment.
fn without_comments(mut text: &str) -> &str {
    loop {
        text = text.trim_start_matches(is_blank);
        if !text.starts_with(['\n', '#']) {
            return text;
        }
        text = text.split_once('\n').map_or("", |(_, rest)| rest);
    }
}

fn shorthand(name: &str) -> Result<Times, String> {
    let schedule = match name {
        "monthly" | "weekly" | "daily" | "midnight" | "hourly" => format!("@{name}"),
        "yearly" | "annually" => {
            return Err(format!(
                "pg_cron 1.6 never runs @{name}, older versions do: write 0 0 1 1 *"
            ));
        }
        "reboot" | "restart" => {
            return Err(
                "the start of a server is not a time: call trax.enqueue_sql() from what \
                starts it"
                    .to_owned(),
            );
        }
        _ => return Err(format!("@{name} is not a name that pg_cron accepts")),
    };
    Ok(Times {
        schedule,
        not_on: Vec::new(),
    })
}

/// Returns the five fields and the text after them.
fn fields(schedule: &str) -> Result<([&str; 5], &str), String> {
    let mut fields = [""; 5];
    let mut rest = schedule;
    for field in &mut fields {
        rest = rest.trim_start_matches(is_blank);
        let end = rest.find(is_end).unwrap_or(rest.len());
        (*field, rest) = rest.split_at(end);
        if field.is_empty() {
            return Err("it has fewer than five fields of time".to_owned());
        }
    }
    Ok((fields, rest))
}

/// Returns the part of a field that pg_cron reads: a list of values, ranges and steps. A field that
/// it refuses is returned in full, or up to and including the wrong character.
fn of_field(field: &str) -> &str {
    if field == "$" {
        return field;
    }
    let mut rest = field;
    loop {
        rest = match rest.strip_prefix('*') {
            Some(rest) => rest,
            None => {
                let after = after_value(rest);
                after.strip_prefix('-').map_or(after, after_value)
            }
        };
        // Also after a single value, where the step is refused.
        rest = rest.strip_prefix('/').map_or(rest, after_value);
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None if rest.len() == field.len() => return field,
            None => return &field[..field.len() - rest.len()],
        }
    }
}

/// Returns the text after the letters and digits of a value.
fn after_value(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_ascii_alphanumeric())
}

/// Returns the times of fields that pg_cron reads in full.
fn times(mut fields: [&str; 5], both_days: bool) -> Result<Times, String> {
    let last_day = fields[2] == "$";
    if last_day {
        // Any day restricts the field equally while the other field is examined.
        fields[2] = "1";
    }
    let mut times = Times::of(&fields, both_days)?;
    if last_day {
        let [minute, hour, _, rest @ ..] = &times.schedule.split(' ').collect::<Vec<_>>()[..]
        else {
            return Err("it has fewer than five fields of time".to_owned());
        };
        times.schedule = format!("{minute} {hour} L {}", rest.join(" "));
    }
    Ok(times)
}

#[cfg(test)]
#[path = "pg_cron_model.rs"]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    fn cron(schedule: &str) -> (String, usize, usize) {
        match read(schedule, false) {
            Ok((When::Cron(times), notes)) => (times.schedule, times.not_on.len(), notes.len()),
            other => panic!("{schedule}: {other:?}"),
        }
    }

    #[test]
    fn the_schedules_of_pg_cron_are_those_of_cron_and_two_more() {
        for (schedule, count) in [("30 seconds", 30), ("1 Second", 1), ("59seconds", 59)] {
            let read = read(schedule, false);
            assert_eq!(read, Ok((When::Every(count), Vec::new())), "{schedule}");
        }
        let same = |text: &str| (text.to_owned(), 0, 0);
        assert_eq!(cron("0 12  $ * *"), same("0 12 L * *"));
        assert_eq!(cron("@daily"), same("@daily"));
        assert_eq!(cron("# nightly\n 0 3 * * mon-fri"), same("0 3 * * mon-fri"));
        let both = read("0 3 1 * mon", true).expect("a schedule");
        let not_on = vec!["SUN", "TUE", "WED", "THU", "FRI", "SAT"];
        let times = Times {
            schedule: "0 3 1 * *".to_owned(),
            not_on,
        };
        assert_eq!(both.0, When::Cron(times));
    }

    #[test]
    fn what_pg_cron_ignores_is_left_out_and_noted() {
        let noted = |text: &str| (text.to_owned(), 0, 1);
        assert_eq!(cron("0 0 3 * * *"), noted("0 0 3 * *"));
        assert_eq!(cron("0 3 * * mon#2"), noted("0 3 * * mon"));
        assert_eq!(cron("0 3 15.5 * *"), noted("0 3 15 * *"));
        assert_eq!(cron("0 0 */2 * 1"), ("0 0 */2 * *".to_owned(), 6, 0));
        assert_eq!(cron("0 0 $ * */2"), ("0 0 L * *".to_owned(), 3, 0));
    }

    #[test]
    fn what_cannot_be_said_exactly_is_left_out_with_the_reason() {
        for (schedule, word) in [
            ("@yearly", "0 0 1 1 *"),
            ("@reboot", "start of a server"),
            ("@noon", "@noon"),
            ("60 seconds", "1 to 59"),
            ("0 3 * *", "five fields"),
            ("0 22-4 * * *", "descending"),
            ("whenever", "five fields"),
            ("? * * * *", "minute"),
            ("0 0 15W * *", "day of month"),
        ] {
            let read = read(schedule, false);
            assert!(
                read.as_ref().is_err_and(|reason| reason.contains(word)),
                "{schedule}: {read:?}"
            );
        }
    }
}
