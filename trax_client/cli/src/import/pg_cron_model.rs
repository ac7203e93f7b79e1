//! A model of pg_cron's parser and of its decision whether a job runs now: `src/entry.c` and
//! `ShouldRunTask` of version 1.6, character by character. Random schedules are compared with their
//! conversion.

use serde_json::json;
use trax_schedule::calendar::{date_of, day_of_week};
use trax_schedule::{Cron, Exclusions, Utc};

use super::{When, read};

const MICROS: i64 = 1_000_000;

/// A schedule as pg_cron stores it: one bit per value in each field.
#[derive(Default)]
struct Entry {
    sets: [u64; 5],
    is_any_day: bool,
    is_last_day: bool,
}

/// The characters of a schedule. The end reads as zero, as in pg_cron.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

const BOUNDS: [(u32, u32); 5] = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)];
const MONTHS: &str = "janfebmaraprmayjunjulaugsepoctnovdec";
const DAYS: &str = "sunmontuewedthufrisat";

impl Reader<'_> {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn is_blank(&self) -> bool {
        matches!(self.peek(), b' ' | b'\t')
    }

    fn number(&mut self, names: &str, low: u32) -> Option<u32> {
        let start = self.at;
        while self.peek().is_ascii_alphanumeric() {
            self.at += 1;
        }
        let word = std::str::from_utf8(&self.text[start..self.at]).ok()?;
        let named = (0..names.len() / 3)
            .find(|n| names[n * 3..n * 3 + 3].eq_ignore_ascii_case(word))
            .map(|n| n as u32 + low);
        named.or_else(|| word.parse().ok())
    }

    fn range(&mut self, field: usize, set: &mut u64) -> Option<()> {
        let (low, high) = BOUNDS[field];
        let names = ["", "", "", MONTHS, DAYS][field];
        let (mut first, mut last) = (low, high);
        if self.peek() == b'*' {
            self.at += 1;
        } else {
            first = self.number(names, low)?;
            last = first;
            match self.peek() {
                b'-' => {
                    self.at += 1;
                    last = self.number(names, low)?;
                }
                b'/' => return None,
                _ => {}
            }
        }
        let mut step = 1;
        if self.peek() == b'/' {
            self.at += 1;
            step = self.number("", 0)?;
        }
        let fits = |value| (low..=high).contains(&value);
        if !fits(first) || !fits(last) || step == 0 || step > high {
            return None;
        }
        for value in (first..=last).step_by(step as usize) {
            *set |= 1 << value;
        }
        Some(())
    }

    fn list(&mut self, field: usize) -> Option<u64> {
        let mut set = 0;
        self.range(field, &mut set)?;
        while self.peek() == b',' {
            self.at += 1;
            self.range(field, &mut set)?;
        }
        while !self.is_blank() && !matches!(self.peek(), b'\n' | 0) {
            self.at += 1;
        }
        while self.is_blank() {
            self.at += 1;
        }
        Some(set)
    }
}

impl Entry {
    fn parse(schedule: &str) -> Option<Self> {
        let mut reader = Reader {
            text: schedule.as_bytes(),
            at: 0,
        };
        while reader.is_blank() {
            reader.at += 1;
        }
        let mut entry = Entry::default();
        for field in 0..5 {
            if field == 2 && reader.peek() == b'$' {
                reader.at += 1;
                if !reader.is_blank() {
                    return None;
                }
                while reader.is_blank() {
                    reader.at += 1;
                }
                entry.is_last_day = true;
                continue;
            }
            entry.is_any_day |= matches!(field, 2 | 4) && reader.peek() == b'*';
            entry.sets[field] = reader.list(field)?;
        }
        if entry.sets[4] & (1 | 1 << 7) != 0 {
            entry.sets[4] |= 1 | 1 << 7;
        }
        Some(entry)
    }

    fn has(&self, field: usize, value: u32) -> bool {
        self.sets[field] & 1 << value != 0
    }

    fn is_on(&self, day: i64) -> bool {
        let (_, month, of_month) = date_of(day);
        let is_last = date_of(day + 1).2 == 1;
        let of_month = self.has(2, of_month) || (is_last && self.is_last_day);
        let of_week = self.has(4, day_of_week(day));
        self.has(3, month)
            && match self.is_any_day {
                true => of_month && of_week,
                false => of_month || of_week,
            }
    }

    /// Returns the first matching minute after `after`, both in seconds, within a number of days.
    fn next(&self, after: i64, days: i64) -> Option<i64> {
        let start = after.div_euclid(60) + 1;
        let first = start.div_euclid(1_440);
        (first..first + days).find_map(|day| {
            if !self.is_on(day) {
                return None;
            }
            let minute = (day * 1_440..(day + 1) * 1_440).find(|minute| {
                let of_day = minute.rem_euclid(1_440) as u32;
                *minute >= start && self.has(1, of_day / 60) && self.has(0, of_day % 60)
            })?;
            Some(minute * 60)
        })
    }
}

/// A small random generator with a seed, so that a failure can be reproduced.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % u64::from(bound)) as u32
    }

    /// Returns a value of a field, sometimes out of range.
    fn value(&mut self, field: usize) -> u32 {
        let (low, high) = BOUNDS[field];
        let beyond = u32::from(self.below(40) == 0);
        low + self.below(high - low + 1 + beyond)
    }

    /// Writes a value, sometimes as its name.
    fn say(&mut self, field: usize, value: u32) -> String {
        let names = ["", "", "", MONTHS, DAYS][field];
        let index = (value - BOUNDS[field].0) as usize * 3;
        match names.get(index..index + 3) {
            Some(name) if self.below(3) == 0 => name.to_owned(),
            Some(name) if self.below(3) == 0 => name.to_uppercase(),
            _ => value.to_string(),
        }
    }

    fn range(&mut self, field: usize) -> String {
        let (mut first, mut last) = (self.value(field), self.value(field));
        if first > last && self.below(10) > 0 {
            (first, last) = (last, first);
        }
        [self.say(field, first), self.say(field, last)].join("-")
    }

    fn item(&mut self, field: usize) -> String {
        let range = match self.below(4) {
            0 => "*".to_owned(),
            1 => self.range(field),
            _ => {
                let value = self.value(field);
                self.say(field, value)
            }
        };
        let step = 1 + self.below(BOUNDS[field].1 / 3);
        match self.below(6) {
            0 if range.len() > 2 || range == "*" => format!("{range}/{step}"),
            1 if range == "*" => format!("{range}/{step}"),
            _ => range,
        }
    }

    fn field(&mut self, field: usize) -> String {
        if self.below(3) == 0 {
            return "*".to_owned();
        }
        if field == 2 && self.below(12) == 0 {
            return "$".to_owned();
        }
        let items: Vec<String> = (0..1 + self.below(3)).map(|_| self.item(field)).collect();
        let ignored = ["#2", "L", "W", ".5", ";", "-3", "/2", "é", ","];
        let ignored = match self.below(25) {
            0 => ignored[self.below(9) as usize],
            _ => "",
        };
        items.join(",") + ignored
    }

    fn schedule(&mut self) -> String {
        let fields: Vec<String> = (0..5).map(|field| self.field(field)).collect();
        let blank = [" ", "  ", "\t"][self.below(3) as usize];
        let more = ["", "", "", "", " *", " mon", "\t", " 2030 x"][self.below(8) as usize];
        fields.join(blank) + more
    }
}

/// Asserts that a schedule runs when the model does, and returns the result of its conversion.
fn compare(schedule: &str, after: i64) -> &'static str {
    let model = Entry::parse(schedule);
    let times = match read(schedule, false) {
        Ok((When::Cron(times), _)) => times,
        Ok(other) => panic!("{schedule}: {other:?}"),
        Err(reason) => {
            let is_known = model.is_none() || reason.contains("descending");
            assert!(is_known, "{schedule}: {reason}");
            return if model.is_none() {
                "refused"
            } else {
                "left out"
            };
        }
    };
    let model = model.unwrap_or_else(|| panic!("pg_cron refuses {schedule}: {times:?}"));
    let Ok(cron) = Cron::parse(&times.schedule) else {
        let next = model.next(after, 41 * 366);
        assert_eq!(next, None, "{schedule}: {times:?}");
        return "never";
    };
    let exclusions = Exclusions::parse(&json!({"days_of_week": times.not_on}));
    let exclusions = exclusions.unwrap_or_else(|error| panic!("{schedule}: {error}"));
    let mut after = after;
    for _ in 0..3 {
        let next = cron.next_allowed(after * MICROS, &Utc, Some(&exclusions));
        let next = next.map(|next| next.at_micros / MICROS);
        let days = next.map_or(3 * 366, |next| (next - after) / 86_400 + 2);
        assert_eq!(model.next(after, days), next, "{schedule}: {times:?}");
        let Some(next) = next else { break };
        after = next;
    }
    "same"
}

#[test]
fn ten_thousand_schedules_run_when_pg_cron_runs_them() {
    let mut random = Random(26);
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..10_000 {
        let schedule = random.schedule();
        let after = 1_767_225_600 + i64::from(random.below(2_000_000_000));
        *counts.entry(compare(&schedule, after)).or_insert(0) += 1;
    }
    assert!(counts["same"] > 5_000, "{counts:?}");
}
