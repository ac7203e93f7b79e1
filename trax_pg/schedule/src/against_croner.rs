//! The cron rules against another cron implementation, the `croner` crate: random texts of the
//! dialect in random zones, from random times.
//!
//! The two differ only for one of these reasons; any other difference fails the test:
//!
//! - [`Kind::LastWeekday`]: `LW` is read here and refused there.
//! - [`Kind::NeverFires`]: a date that no month has, such as `31W` in April, is refused here when
//!   it is read; there it only fails to have a next time.
//! - [`Kind::Wraps`]: a range that wraps (`22-4`, `SAT-SUN`, `NOV-FEB`) is read here and refused
//!   there.
//! - [`Kind::StarInList`]: `*` among other items is read here and refused there.
//! - [`Kind::StepFromDay`]: a step from a day of the week (`1/2`) continues to Saturday here, to
//!   Sunday as 7 there.
//! - [`Kind::StepOfOne`]: `*/1` in a day field is `*` here; there it restricts the days, to all of
//!   them, and either field matches.
//! - [`Kind::LastSunday`]: `7L` is `0L` here; there it has no next time, which takes 36 ms to say.
//! - [`Kind::SecondPass`]: asked from the first pass of a repeat, times with a wildcard or a step
//!   run in the second pass here; there some of them are dropped.
//! - [`Kind::Gap`]: times in a list or a range that a gap skips run here when the gap ends, as a
//!   single one does; there they are dropped.
//! - [`Kind::ExtraAtGap`]: on the day of a gap a fixed time that the gap does not skip runs here as
//!   on any day; there it may run again at the end of the gap.

use std::collections::HashMap;

use chrono::DateTime;
use chrono_tz::Tz;
use croner::parser::{CronParser, Seconds};

use super::exclusion::tests::Random;
use super::zone::tests::{Named, ZONES};
use super::{Cron, Note, Occurrence, Zone};

/// The reason of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    LastWeekday,
    NeverFires,
    Wraps,
    StarInList,
    StepFromDay,
    StepOfOne,
    LastSunday,
    SecondPass,
    Gap,
    ExtraAtGap,
}

const NAMES: [&str; 7] = ["SUN", "mon", "TUE", "WED", "THU", "FRI", "SAT"];

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "apr", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];

/// Returns one item of a list: any, a number, a range (one in eight wraps), a step.
fn item(random: &mut Random, min: usize, max: usize, name: &dyn Fn(usize) -> String) -> String {
    let mut value = || min + random.below(max - min + 1);
    let (one, other) = (value(), value());
    let (low, high) = (one.min(other), one.max(other));
    let step = 1 + random.below((max / 2).max(2));
    match random.below(12) {
        0 | 1 => "*".to_owned(),
        2 => format!("*/{step}"),
        3 if low < high => format!("{low}/{}", step.min(high - low)),
        4 if low < high => format!("{}-{}/{step}", name(low), name(high)),
        5 | 6 if random.below(8) == 0 => format!("{}-{}", name(high), name(low)),
        5 | 6 if low < high => format!("{}-{}", name(low), name(high)),
        _ => name(one),
    }
}

fn list(random: &mut Random, min: usize, max: usize, name: &dyn Fn(usize) -> String) -> String {
    let items = [1, 1, 1, 1, 2, 3][random.below(6)];
    let mut items: Vec<String> = (0..items).map(|_| item(random, min, max, name)).collect();
    // Mostly alone.
    if items.len() > 1 && random.below(8) > 0 {
        items.retain(|item| !item.starts_with('*'));
    }
    match items.is_empty() {
        true => "*".to_owned(),
        false => items.join(","),
    }
}

fn text(random: &mut Random) -> String {
    let plain = |n: usize| n.to_string();
    let day = match random.below(12) {
        0..5 => "*".to_owned(),
        5 => "?".to_owned(),
        6 => "L".to_owned(),
        7 => ["LW", "L"][random.below(2)].to_owned(),
        8 => format!("{}W", 1 + random.below(31)),
        _ => list(random, 1, 31, &plain),
    };
    let month = match random.below(3) {
        0 => list(random, 1, 12, &|n| MONTHS[n - 1].to_owned()),
        _ => "*".to_owned(),
    };
    let of_week = match random.below(12) {
        0..5 => "*".to_owned(),
        5 => "?".to_owned(),
        6 => format!(
            "{}L",
            ["5", "0", NAMES[random.below(7)], "7"][random.below(61) / 20]
        ),
        7 => format!("{}#{}", NAMES[random.below(7)], 1 + random.below(5)),
        8 => list(random, 0, 6, &|n| NAMES[n].to_owned()),
        _ => list(random, 0, 7, &plain),
    };
    let minute = list(random, 0, 59, &plain);
    let hour = match random.below(3) {
        0 => random.below(4).to_string(),
        _ => list(random, 0, 23, &plain),
    };
    let text = format!("{minute} {hour} {day} {month} {of_week}");
    match random.below(4) {
        0 => format!("{} {text}", list(random, 0, 59, &plain)),
        _ => text,
    }
}

/// Returns whether a range of a text ends before it begins. Sunday as 7 ends a week.
fn wraps(text: &str) -> bool {
    let number = |text: &str| -> Option<usize> {
        let at = |names: &[&str]| names.iter().position(|name| *name == text);
        text.parse().ok().or(at(&NAMES)).or(at(&MONTHS))
    };
    let items = text.split([' ', ',']);
    let ranges = items.filter_map(|item| item.split('/').next()?.split_once('-'));
    ranges
        .filter_map(|(from, to)| number(from).zip(number(to)))
        .any(|(from, to)| from > to)
}

/// Returns why the other implementation refuses a text that is accepted here.
fn refused_there(text: &str) -> Option<Kind> {
    let star_in_list = text.split(' ').any(|field| {
        let mut items = field.split(',');
        field.contains(',') && items.any(|item| item == "*" || item.starts_with("*/"))
    });
    let kinds = [
        (text.contains("LW"), Kind::LastWeekday),
        (wraps(text), Kind::Wraps),
        (star_in_list, Kind::StarInList),
    ];
    kinds.into_iter().find(|kind| kind.0).map(|kind| kind.1)
}

/// Returns why both accept a text and name different times.
fn other_times(text: &str, next: Occurrence, there: Option<i64>, zone: Tz) -> Option<Kind> {
    let note = next.note;
    let later_there = there.is_none_or(|there| there > next.at_micros / 1_000_000);
    let offset_at = |at| Named(zone).offset_at(at);
    let ends_a_gap = there.is_some_and(|there| offset_at(there - 1) < offset_at(there));
    let of_week = text.split(' ').next_back().unwrap_or_default();
    let step_from_day = of_week
        .split(',')
        .any(|item| item.contains('/') && !item.contains(['*', '-']));
    let mut days = text.split(' ').rev().enumerate();
    let step_of_one = days
        .any(|(field, text)| matches!(field, 0 | 2) && text.split(',').any(|item| item == "*/1"));
    let kinds = [
        (step_of_one, Kind::StepOfOne),
        (step_from_day, Kind::StepFromDay),
        (of_week == "7L", Kind::LastSunday),
        (
            note == Some(Note::RepeatedSecond) && later_there,
            Kind::SecondPass,
        ),
        (note == Some(Note::Gap) && later_there, Kind::Gap),
        (ends_a_gap && !later_there, Kind::ExtraAtGap),
    ];
    kinds.into_iter().find(|kind| kind.0).map(|kind| kind.1)
}

/// Counts the results of both implementations.
#[derive(Default)]
struct Tally {
    same: usize,
    kinds: HashMap<Kind, usize>,
}

impl Tally {
    /// Compares both for a text and a start time: whether it is accepted, and the next four times.
    fn compare(&mut self, text: &str, zone: Tz, start: i64) {
        let mut after = DateTime::from_timestamp(start, 0)
            .expect("a time")
            .with_timezone(&zone);
        let parser = CronParser::builder().seconds(Seconds::Optional).build();
        let (ours, theirs) = match (Cron::parse(text), parser.parse(text)) {
            (Ok(ours), Ok(theirs)) => (ours, theirs),
            (Err(error), Ok(theirs)) if error.message.contains("never fires") => {
                let next = theirs.find_next_occurrence(&after, false);
                assert!(next.is_err(), "{text}: {error}, and {next:?} there");
                return self.differs(Some(Kind::NeverFires), text);
            }
            (Ok(_), Err(error)) => {
                return self.differs(refused_there(text), &format!("{text}: {error} there"));
            }
            (ours, _) => panic!("{text}: {ours:?}"),
        };
        for _ in 0..4 {
            let next = ours
                .next(after.timestamp_micros(), &Named(zone))
                .expect("a next time");
            let at = DateTime::from_timestamp_micros(next.at_micros)
                .expect("a time")
                .with_timezone(&zone);
            let there = theirs.find_next_occurrence(&after, false).ok();
            if there == Some(at) {
                self.same += 1;
            } else {
                let seconds = there.map(|there| there.timestamp());
                let kind = other_times(text, next, seconds, zone);
                let what = format!("{text} in {zone} after {after}: {next:?}, {there:?} there");
                self.differs(kind, &what);
            }
            after = at;
        }
    }

    /// Counts a difference, which must be of a listed kind.
    fn differs(&mut self, kind: Option<Kind>, what: &str) {
        let Some(kind) = kind else {
            panic!("a difference of no listed kind: {what}")
        };
        *self.kinds.entry(kind).or_default() += 1;
    }
}

#[test]
fn random_texts_mean_what_another_reader_says_or_differ_for_a_listed_reason() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut tally = Tally::default();
    for _ in 0..10_000 {
        let text = text(&mut random);
        let zone = ZONES[random.below(ZONES.len())].parse().expect("a zone");
        // From 2010 on, for 15 years.
        let start = 1_262_304_000 + random.below(15 * 365 * 86_400) as i64;
        tally.compare(&text, zone, start);
    }
    println!("{} the same, others: {:?}", tally.same, tally.kinds);
    assert!(
        tally.same > 30_000,
        "only {} times were the same",
        tally.same
    );
    assert_eq!(tally.kinds.len(), 10, "a listed difference is never met");
}
