//! Parses crontabs as Debian's cron does.
//!
//! Input: the text of a crontab, either a user's or the system's, which names a user on each line.
//! Output: a job for each line that can be converted, and a reason for each other one. Invariant:
//! constructs whose meaning in trax differs silently are rewritten: day fields that begin with *
//! beside another one, hours and minutes that have a step without a leading *, and % in commands.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A line of a crontab.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CrontabLine {
    pub(super) number: usize,
    pub(super) text: String,
    pub(super) job: Result<Job, String>,
}

/// A command and its times.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Job {
    pub(super) times: Times,
    pub(super) timezone: Option<String>,
    pub(super) user: Option<String>,
    pub(super) command: String,
    pub(super) stdin: Option<String>,
    pub(super) environment: BTreeMap<String, String>,
}

/// Whether lines name a user.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    User,
    System,
}

const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const AT_NAMES: [&str; 7] = [
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];

/// Parses a crontab. An environment line applies to the lines after it.
pub(super) fn read(text: &str, form: Form) -> Vec<CrontabLine> {
    let mut environment = BTreeMap::new();
    let mut lines = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some((name, value)) = assignment(text) {
            environment.insert(name, value);
            continue;
        }
        lines.push(CrontabLine {
            number: index + 1,
            text: text.to_owned(),
            job: job(text, form, &environment),
        });
    }
    lines
}

/// Returns the parts of `NAME = value`, either of which may be quoted.
fn assignment(text: &str) -> Option<(String, String)> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    let (name, rest) = match quote {
        Some(quote) => text[1..].split_once(quote)?,
        None => {
            let end = text.find(|c: char| c == '=' || c.is_whitespace())?;
            text.split_at(end)
        }
    };
    let value = rest.trim_start().strip_prefix('=')?.trim();
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit() || "*@".contains(c)) {
        return None;
    }
    let bare = ['"', '\''].iter().find_map(|quote| {
        let inner = value.strip_prefix(*quote)?.strip_suffix(*quote)?;
        Some(inner.to_owned())
    });
    Some((name.to_owned(), bare.unwrap_or_else(|| value.to_owned())))
}

/// Returns the next word and the rest of the text.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (word, rest.trim_start())
}

fn job(text: &str, form: Form, environment: &BTreeMap<String, String>) -> Result<Job, String> {
    let mut job = Job::default();
    let mut rest = if text.starts_with('@') {
        let (name, rest) = word(text);
        job.times.schedule = at_name(name)?;
        rest
    } else {
        let mut rest = text;
        let mut fields = Vec::new();
        for _ in 0..5 {
            let (field, after) = word(rest);
            fields.push(field);
            rest = after;
        }
        job.times = Times::of(&fields, false)?;
        rest
    };
    if form == Form::System {
        let (user, after) = word(rest);
        if user.is_empty() {
            return Err(
                "the user is missing, which the system's form has before the command".to_owned(),
            );
        }
        job.user = Some(user.to_owned());
        rest = after;
    }
    (job.command, job.stdin) = command(rest);
    if job.command.trim().is_empty() {
        return Err("there is no command".to_owned());
    }
    job.environment = environment.clone();
    job.timezone = job
        .environment
        .remove("CRON_TZ")
        .filter(|zone| !zone.is_empty());
    Ok(job)
}

fn at_name(name: &str) -> Result<String, String> {
    let lower = name.to_ascii_lowercase();
    if AT_NAMES.contains(&lower.as_str()) {
        return Ok(lower);
    }
    Err(match lower.as_str() {
        "@reboot" => {
            "the start of a machine is not a time: let the machine's init system run it".to_owned()
        }
        _ => format!("{name} is not a name that cron accepts"),
    })
}

/// Returns the command and its standard input: an unescaped % ends a line.
fn command(text: &str) -> (String, Option<String>) {
    let mut parts = vec![String::new()];
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        let part = match c {
            '\\' if characters.peek() == Some(&'%') => {
                characters.next();
                '%'
            }
            '%' => {
                parts.push(String::new());
                continue;
            }
            c => c,
        };
        if let Some(last) = parts.last_mut() {
            last.push(part);
        }
    }
    let command = parts.remove(0);
    let stdin = (!parts.is_empty()).then(|| parts.join("\n") + "\n");
    (command, stdin)
}

/// A field: its name, its minimum and maximum, and names of values, which begin at the minimum.
struct Unit {
    name: &'static str,
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const UNITS: [Unit; 5] = [
    Unit {
        name: "minute",
        low: 0,
        high: 59,
        names: &[],
    },
    Unit {
        name: "hour",
        low: 0,
        high: 23,
        names: &[],
    },
    Unit {
        name: "day of month",
        low: 1,
        high: 31,
        names: &[],
    },
    Unit {
        name: "month",
        low: 1,
        high: 12,
        names: &MONTHS,
    },
    Unit {
        name: "day of week",
        low: 0,
        high: 7,
        names: &DAYS,
    },
];

impl Unit {
    fn value(&self, text: &str) -> Result<u32, String> {
        let named = self
            .names
            .iter()
            .position(|name| name.eq_ignore_ascii_case(text));
        let value = match named {
            Some(place) => Some(self.low + place as u32),
            None if text.chars().all(|c| c.is_ascii_digit()) => text.parse().ok(),
            None => None,
        };
        value
            .filter(|value| (self.low..=self.high).contains(value))
            .ok_or_else(|| format!("\"{text}\" is not a {} that cron accepts", self.name))
    }

    /// Returns the values of a field.
    fn values(&self, field: &str) -> Result<Vec<u32>, String> {
        let mut values = Vec::new();
        for item in field.split(',') {
            let (range, step) = match item.split_once('/') {
                Some((range, step)) => (range, Some(step)),
                None => (item, None),
            };
            let (low, high) = match range.split_once('-') {
                _ if range == "*" => (self.low, self.high),
                Some((low, high)) => (self.value(low)?, self.value(high)?),
                None if step.is_some() => {
                    return Err(format!(
                        "\"{item}\" has different meanings in different versions of cron: write {range} or {range}-{}/{}",
                        self.high,
                        step.unwrap_or_default()
                    ));
                }
                None => (self.value(range)?, self.value(range)?),
            };
            if low > high {
                return Err(format!(
                    "\"{item}\" is a descending range, which cron refuses"
                ));
            }
            let step = match step {
                None => 1,
                Some(step) => step
                    .parse::<usize>()
                    .ok()
                    .filter(|step| (1..=self.high as usize).contains(step))
                    .ok_or_else(|| format!("\"{item}\" has no step from 1 to {}", self.high))?,
            };
            values.extend((low..=high).step_by(step));
        }
        values.sort_unstable();
        values.dedup();
        Ok(values)
    }

    /// Returns an equivalent field, with a list of values in place of a step or a *.
    fn without_steps(&self, field: &str) -> Result<String, String> {
        if !field.contains(['*', '/']) {
            return Ok(field.to_owned());
        }
        let values = self.values(field)?;
        if values == self.values("*")? {
            return Ok(format!("{}-{}", self.low, self.high));
        }
        let values: Vec<String> = values.iter().map(u32::to_string).collect();
        Ok(values.join(","))
    }
}

/// The times of a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Times {
    /// Five fields or an @ name.
    pub(super) schedule: String,
    /// Weekdays in the schedule on which the line does not run.
    pub(super) not_on: Vec<&'static str>,
}

impl Times {
    /// Parses five fields. With `both_days`, both day fields must always match.
    pub(super) fn of(fields: &[&str], both_days: bool) -> Result<Self, String> {
        if fields.iter().any(|field| field.is_empty()) {
            return Err("it has fewer than five fields of time".to_owned());
        }
        for (unit, field) in UNITS.iter().zip(fields) {
            unit.values(field)?;
        }
        let mut fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        // cron makes up for fixed times that a clock change skips. In trax a step in the hour or
        // minute field means elapsed time; in cron only a leading * does.
        if !fields[..2].iter().any(|field| field.starts_with('*')) {
            for place in [0, 1] {
                fields[place] = UNITS[place].without_steps(&fields[place])?;
            }
        }
        for place in [2, 4] {
            // Every day, written out; without a leading * it is still a restriction.
            let all = UNITS[place].values(&fields[place])? == UNITS[place].values("*")?;
            if all && (both_days || fields[place].starts_with('*')) {
                fields[place] = "*".to_owned();
            } else if all {
                fields[place] = UNITS[place].without_steps(&fields[place])?;
            }
        }
        // In cron, a day field with a leading * must match in addition to the other. In trax either
        // may match unless one is a bare *.
        let (month, week) = (fields[2].clone(), fields[4].clone());
        let both = month != "*" && week != "*";
        let mut not_on = Vec::new();
        if both && (both_days || month.starts_with('*') || week.starts_with('*')) {
            let on = UNITS[4].values(&week)?;
            let on = |day: u32| on.iter().any(|value| value % 7 == day);
            not_on = (0..7)
                .filter(|day| !on(*day))
                .map(|day| DAYS[day as usize])
                .collect();
            fields[4] = "*".to_owned();
        }
        Ok(Times {
            schedule: fields.join(" "),
            not_on,
        })
    }

    /// Writes the times into a manifest. Returns a note on the differences.
    pub(super) fn set_in(self, manifest: &mut Value) -> Option<String> {
        manifest["cron"] = json!(self.schedule);
        if self.not_on.is_empty() {
            return None;
        }
        manifest["exclusions"] = json!({ "days_of_week": self.not_on });
        Some("both day fields have to match: the other is an exclusion".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str, form: Form) -> Result<Job, String> {
        let mut lines = read(text, form);
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.remove(0).job
    }

    fn schedule(fields: &str) -> Result<(String, Vec<&'static str>), String> {
        one(&format!("{fields} x"), Form::User).map(|job| (job.times.schedule, job.times.not_on))
    }

    #[test]
    fn a_line_of_the_system_names_its_user() {
        let job = one("17 *\t* * *\troot    cd / && x", Form::System);
        let job = job.unwrap_or_default();
        assert_eq!(job.times.schedule, "17 * * * *");
        assert_eq!(job.user.as_deref(), Some("root"));
        assert_eq!(job.command, "cd / && x");
        assert!(one("17 * * * *", Form::System).is_err());
        assert!(one("17 * * * * root", Form::System).is_err());
    }

    #[test]
    fn environment_lines_count_for_what_follows() {
        let text = "# c\nA = b c\n'Q N'=\" x \"\n* * * * * one\nA=\nEMPTY=''\nCRON_TZ=Asia/Tokyo\n0 0 * * * B=1 two";
        let lines = read(text, Form::User);
        let jobs: Vec<Job> = lines
            .iter()
            .filter_map(|line| line.job.clone().ok())
            .collect();
        let pairs = |job: &Job| -> Vec<String> {
            let pairs = job.environment.iter();
            pairs
                .map(|(name, value)| format!("{name}={value}"))
                .collect()
        };
        assert_eq!(lines.iter().map(|l| l.number).collect::<Vec<_>>(), [4, 8]);
        assert_eq!(pairs(&jobs[0]), ["A=b c", "Q N= x "]);
        assert_eq!(pairs(&jobs[1]), ["A=", "EMPTY=", "Q N= x "]);
        assert_eq!(jobs[0].timezone, None);
        assert_eq!(jobs[1].timezone.as_deref(), Some("Asia/Tokyo"));
        assert_eq!(jobs[1].command, "B=1 two");
    }

    #[test]
    fn percent_signs_are_lines_of_standard_input() {
        let job = one(r"0 0 * * * date +\%F | mail%To: a%%b\%", Form::User).unwrap_or_default();
        assert_eq!(job.command, "date +%F | mail");
        assert_eq!(job.stdin.as_deref(), Some("To: a\n\nb%\n"));
        let job = one("0 0 * * * x %", Form::User).unwrap_or_default();
        assert_eq!(job.stdin.as_deref(), Some("\n"));
    }

    #[test]
    fn day_fields_that_begin_with_a_star_both_have_to_match() {
        let same = |fields: &str| Ok((fields.to_owned(), Vec::new()));
        assert_eq!(schedule("0 0 1,15 * 1"), same("0 0 1,15 * 1"));
        assert_eq!(schedule("0 0 */2 * *"), same("0 0 */2 * *"));
        assert_eq!(schedule("0 0 * * */2"), same("0 0 * * */2"));
        assert_eq!(schedule("0 0 */1 * 1"), same("0 0 * * 1"));
        assert_eq!(schedule("0 0 1-31 * 2"), same("0 0 1-31 * 2"));
        assert_eq!(
            schedule("0 0 1 * 0,*"),
            Ok(("0 0 1 * 0-7".to_owned(), Vec::new()))
        );
        let without = ["SUN", "TUE", "WED", "THU", "FRI", "SAT"];
        assert_eq!(
            schedule("0 0 */2 * 1"),
            Ok(("0 0 */2 * *".to_owned(), without.to_vec()))
        );
        assert_eq!(
            schedule("0 0 1-7 * */6"),
            Ok((
                "0 0 1-7 * *".to_owned(),
                vec!["MON", "TUE", "WED", "THU", "FRI"]
            ))
        );
        assert_eq!(
            schedule("0 0 */2 * 7").map(|(_, not_on)| not_on.contains(&"SUN")),
            Ok(false)
        );
    }

    #[test]
    fn a_step_without_a_star_in_front_is_a_fixed_time() {
        let written = |fields: &str| schedule(fields).map(|(schedule, _)| schedule);
        let same = |fields: &str| Ok(fields.to_owned());
        assert_eq!(written("0-30/10 2 * * *"), same("0,10,20,30 2 * * *"));
        assert_eq!(written("0 9-17/4,* * * *"), same("0 0-23 * * *"));
        assert_eq!(written("*/5 2-6/2 * * *"), same("*/5 2-6/2 * * *"));
        assert_eq!(written("30 2-3 * * *"), same("30 2-3 * * *"));
    }

    #[test]
    fn what_cron_would_refuse_or_crons_read_otherwise_is_left_out() {
        for (fields, word) in [
            ("60 * * * *", "minute"),
            ("* 24 * * *", "hour"),
            ("* * 0 * *", "day of month"),
            ("* * * 13 *", "month"),
            ("* * * * 8", "day of week"),
            ("5/15 * * * *", "5-59/15"),
            ("30-10 * * * *", "descending"),
            ("*/0 * * * *", "step"),
            ("*/x * * * *", "step"),
            ("0~59 * * * *", "minute"),
            ("1,,2 * * * *", "minute"),
            ("? * * * *", "minute"),
            ("* * L * *", "day of month"),
        ] {
            let said = schedule(fields);
            assert!(
                said.as_ref().is_err_and(|said| said.contains(word)),
                "{fields}: {said:?}"
            );
        }
        for (line, word) in [
            ("@reboot x", "init system"),
            ("@fortnightly x", "not a name"),
            ("* * *", "five fields"),
            ("* * * * *", "no command"),
        ] {
            let said = one(line, Form::User);
            assert!(
                said.as_ref().is_err_and(|said| said.contains(word)),
                "{line}: {said:?}"
            );
        }
    }
}
