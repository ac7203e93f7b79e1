//! The proof of the cron rules: examines every instant of some years; `Cron::next` must return
//! exactly those that the rules name.
//!
//! Shares nothing with the code under test: a separate matcher, a few lines written from the rules,
//! reads the texts; chrono-tz turns instants into wall times, one after the other; gaps and repeats
//! are detected by the wall times, not by a search for changes of the offset.
//!
//! The normal run takes 24 texts and 7 pairs of features in 6 zones over 2 years. The whole is more
//! than 110 texts in 12 zones over 10 years from 2010, Apia's missing day included; it takes a
//! minute or two: `TRAX_CRON_YEARS=10 cargo test -p trax_schedule enumerator`.

mod texts;

use std::collections::HashSet;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, TimeDelta, Timelike};
use chrono_tz::Tz;

use self::texts::{FEATURES, TEXTS};
use super::Cron;
use super::zone::tests::{Named, ZONES};

const MICROS: i64 = 1_000_000;

/// Returns the n-th of 49 texts. Two of its fields determine row and column, 7 being a prime: so
/// any two fields take all 49 combinations.
fn pair(n: usize) -> String {
    let (row, column) = (n / 7, n % 7);
    let choices = [
        column,
        row,
        row + column,
        row + 2 * column,
        row + 3 * column,
    ];
    let fields = choices
        .iter()
        .zip(FEATURES)
        .map(|(choice, field)| field[choice % 7]);
    fields.collect::<Vec<_>>().join(" ")
}

/// Seconds matter only where clocks change: these texts are proved second by second for three days
/// around each change.
const TEXTS_WITH_SECONDS: [&str; 8] = [
    "* * * * * *",
    "*/10 30 2 * * *",
    "15 59 23 * * *",
    "0,30 0 0 * * *",
    "59 59 1-3 * * *",
    "1/7 */10 * * * *",
    "30 * 2 * * *",
    "45 0 0 ? * SUN",
];

/// Returns one field as the set of the numbers it lists; day rules stay as text.
fn listed(field: &str, min: u32, max: u32, names: &str) -> (HashSet<u32>, Vec<String>) {
    let number = |text: &str| -> Option<u32> {
        let named = names
            .find(&text.to_uppercase())
            .map(|at| at as u32 / 3 + min);
        text.parse().ok().or(named.filter(|_| text.len() == 3))
    };
    let (mut numbers, mut rules) = (HashSet::new(), Vec::new());
    for item in field.split(',') {
        let (range, step) = item.split_once('/').unwrap_or((item, "1"));
        let ends = match range.split_once('-') {
            Some((from, to)) => number(from).zip(number(to)),
            None if range == "*" || range == "?" => Some((min, max)),
            None => number(range).map(|n| (n, if item.contains('/') { max } else { n })),
        };
        let Some((mut at, to)) = ends else {
            rules.push(item.to_uppercase());
            continue;
        };
        let step: u32 = step.parse().expect("a step");
        // Counted one by one around the circle, keeping every step-th.
        let mut counted = 0;
        loop {
            if counted % step == 0 {
                numbers.insert(at);
            }
            if at == to {
                break;
            }
            counted += 1;
            at = if at >= max && to != 7 { min } else { at + 1 };
        }
    }
    (numbers, rules)
}

/// A text, read from the rules.
struct Matcher {
    second: HashSet<u32>,
    minute: Vec<bool>,
    hour: Vec<bool>,
    month: HashSet<u32>,
    day: (HashSet<u32>, Vec<String>),
    weekday: (HashSet<u32>, Vec<String>),
    restricted: (bool, bool),
    elapsed: bool,
}

const WEEK: &str = "SUNMONTUEWEDTHUFRISAT";

impl Matcher {
    fn new(text: &str) -> Matcher {
        let text = match text {
            "@hourly" => "0 * * * *",
            "@daily" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" => "0 0 1 1 *",
            other => other,
        };
        let mut fields: Vec<&str> = text.split(' ').collect();
        if fields.len() == 5 {
            fields.insert(0, "0");
        }
        let table =
            |(numbers, _): (HashSet<u32>, _)| (0..60).map(|n| numbers.contains(&n)).collect();
        let months = "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC";
        let free = |field: &str| field == "*" || field == "?";
        Matcher {
            second: listed(fields[0], 0, 59, "").0,
            minute: table(listed(fields[1], 0, 59, "")),
            hour: table(listed(fields[2], 0, 23, "")),
            month: listed(fields[4], 1, 12, months).0,
            day: listed(fields[3], 1, 31, ""),
            weekday: listed(fields[5], 0, 6, WEEK),
            restricted: (!free(fields[3]), !free(fields[5])),
            elapsed: fields[1..3].iter().any(|field| field.contains(['*', '/'])),
        }
    }

    fn date(&self, date: NaiveDate) -> bool {
        let by_day = || {
            self.day.0.contains(&date.day()) || self.day.1.iter().any(|rule| day_rule(rule, date))
        };
        let by_weekday = || {
            let today = date.weekday().num_days_from_sunday();
            self.weekday.0.iter().any(|day| day % 7 == today)
                || self.weekday.1.iter().any(|rule| weekday_rule(rule, date))
        };
        self.month.contains(&date.month())
            && match self.restricted {
                (false, false) => true,
                (true, false) => by_day(),
                (false, true) => by_weekday(),
                (true, true) => by_day() || by_weekday(),
            }
    }

    fn time(&self, wall: NaiveDateTime) -> bool {
        self.minute[wall.minute() as usize]
            && self.hour[wall.hour() as usize]
            && self.second.contains(&wall.second())
    }

    fn matches(&self, wall: NaiveDateTime) -> bool {
        self.time(wall) && self.date(wall.date())
    }
}

fn is_weekday(date: NaiveDate) -> bool {
    date.weekday().num_days_from_monday() < 5
}

fn plus(date: NaiveDate, days: i64) -> NaiveDate {
    date + TimeDelta::days(days)
}

fn is_last(date: NaiveDate) -> bool {
    plus(date, 1).day() == 1
}

fn day_rule(rule: &str, date: NaiveDate) -> bool {
    if rule == "L" {
        return is_last(date);
    }
    if rule == "LW" {
        let rest = (1..7)
            .map(|days| plus(date, days))
            .take_while(|d| d.month() == date.month());
        return is_weekday(date) && !rest.into_iter().any(is_weekday);
    }
    // The weekday of this month with the smallest distance; there are never two, as weekends have
    // two days.
    let day = rule.trim_end_matches('W').parse().expect("a day before W");
    let Some(meant) = date.with_day(day) else {
        return false;
    };
    let near = [0, -1, 1, -2, 2].map(|days| plus(meant, days));
    near.into_iter()
        .find(|d| d.month() == date.month() && is_weekday(*d))
        == Some(date)
}

fn weekday_rule(rule: &str, date: NaiveDate) -> bool {
    let (day, last, nth) = match rule.split_once('#') {
        Some((day, nth)) => (day, false, nth.parse().expect("a week after #")),
        None => (rule.trim_end_matches('L'), true, 0),
    };
    let day = day
        .parse()
        .ok()
        .or_else(|| WEEK.find(day).map(|at| at as u32 / 3))
        .expect("a day");
    date.weekday().num_days_from_sunday() == day % 7
        && match last {
            true => plus(date, 7).month() != date.month(),
            false => (date.day() - 1) / 7 + 1 == nth,
        }
}

/// Returns every instant of a period and the wall time shown at it.
fn clock(zone: Tz, from: i64, to: i64, step: i64) -> Vec<(i64, NaiveDateTime)> {
    let instants = (from..to).step_by(step as usize);
    let shown = |at| {
        DateTime::from_timestamp(at, 0)
            .expect("a time")
            .with_timezone(&zone)
    };
    instants.map(|at| (at, shown(at).naive_local())).collect()
}

/// Returns the instants of a period at which a text fires, by examining each.
fn enumerate(matcher: &Matcher, clock: &[(i64, NaiveDateTime)], step: i64) -> Vec<i64> {
    let step = TimeDelta::seconds(step);
    let mut fires = Vec::new();
    let mut latest = clock[0].1 - step;
    let mut today = (latest.date(), matcher.date(latest.date()));
    for (at, wall) in clock {
        if wall.date() != today.0 {
            today = (wall.date(), matcher.date(wall.date()));
        }
        let shown_before = *wall <= latest;
        let mut fire = today.1 && matcher.time(*wall) && (matcher.elapsed || !shown_before);
        if !matcher.elapsed && !shown_before {
            // Wall times between the latest one and this one were never shown.
            let mut skipped = latest + step;
            while skipped < *wall && !fire {
                fire = matcher.matches(skipped);
                skipped += step;
            }
        }
        if fire {
            fires.push(*at);
        }
        latest = latest.max(*wall);
    }
    fires
}

/// Checks that `Cron::next` goes from each fire to the next one, also when called a second before
/// that or around a clock change in between. With many fires, all those within two days of a change
/// are tried, and one in 101 of the others.
fn compare(text: &str, name: &str, fires: &[i64], changes: &[i64]) -> usize {
    let cron = Cron::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let zone = Named(name.parse().expect("a zone"));
    let mut tried = 0;
    for (index, pair) in fires.windows(2).enumerate() {
        let near = changes
            .iter()
            .any(|change| (change - pair[0]).abs() < 2 * 86_400);
        if fires.len() > 20_000 && !near && index % 101 != 0 {
            continue;
        }
        let between = changes.iter().flat_map(|change| {
            let around = [-1, 0, 1, 600, 2_400, 4_200].map(|after| change + after);
            around
                .into_iter()
                .filter(|at| (pair[0]..pair[1]).contains(at))
        });
        for after in [pair[0], pair[1] - 1].into_iter().chain(between) {
            let next = cron
                .next(after * MICROS, &zone)
                .map(|next| next.at_micros / MICROS);
            let shown = |at| DateTime::from_timestamp(at, 0).map(|at| at.with_timezone(&zone.0));
            assert_eq!(
                next,
                Some(pair[1]),
                "{text} in {name} after {:?}: the clock says {:?}, next says {:?}",
                shown(after),
                shown(pair[1]),
                next.map(shown),
            );
        }
        tried += 1;
    }
    tried
}

fn changes(clock: &[(i64, NaiveDateTime)], step: i64) -> Vec<i64> {
    let jumps = clock
        .windows(2)
        .filter(|pair| pair[1].1 - pair[0].1 != TimeDelta::seconds(step));
    jumps.map(|pair| pair[1].0).collect()
}

fn first_of(year: i32) -> i64 {
    NaiveDate::from_ymd_opt(year, 1, 1)
        .and_then(|date| date.and_hms_opt(0, 0, 0))
        .expect("a date")
        .and_utc()
        .timestamp()
}

/// The extent of the proof: years, texts, zones.
struct Extent {
    first: i32,
    end: i32,
    texts: Vec<String>,
    zones: &'static [&'static str],
    whole: bool,
}

fn extent() -> Extent {
    let years = std::env::var("TRAX_CRON_YEARS").ok();
    let whole = years.is_some();
    let (texts, every) = if whole { (TEXTS.len(), 1) } else { (24, 7) };
    let pairs = (0..49).step_by(every).map(|n| pair((n + n / 7) % 49));
    let years = years.map_or(2, |years| years.parse().expect("a number of years"));
    let first = if whole { 2010 } else { 2011 };
    Extent {
        first,
        end: first + years,
        texts: TEXTS[..texts]
            .iter()
            .map(|text| (*text).to_owned())
            .chain(pairs)
            .collect(),
        // The normal run takes the first six.
        zones: if whole { &ZONES } else { &ZONES[..6] },
        whole,
    }
}

#[test]
fn every_two_features_of_different_fields_meet_in_a_text() {
    let texts: Vec<String> = (0..49).map(pair).collect();
    let fields: HashSet<(usize, usize, &str, &str)> = texts
        .iter()
        .flat_map(|text| {
            let fields: Vec<(usize, &str)> = text.split(' ').enumerate().collect();
            let pairs = fields.clone().into_iter().flat_map(move |one| {
                fields
                    .clone()
                    .into_iter()
                    .map(move |other| (one.0, other.0, one.1, other.1))
            });
            pairs.filter(|pair| pair.0 < pair.1)
        })
        .collect();
    assert_eq!(fields.len(), 10 * 49);
}

#[test]
fn next_agrees_with_looking_at_every_minute() {
    let extent = extent();
    let mut tried = 0;
    for name in extent.zones {
        let zone: Tz = name.parse().expect("a zone");
        let clock = clock(zone, first_of(extent.first), first_of(extent.end), 60);
        let changes = changes(&clock, 60);
        for text in &extent.texts {
            let fires = enumerate(&Matcher::new(text), &clock, 60);
            tried += compare(text, name, &fires, &changes);
        }
    }
    let least = extent.texts.len() * extent.zones.len() * 20;
    assert!(tried > least, "only {tried} times were compared");
}

#[test]
fn next_agrees_with_looking_at_every_second_around_a_change() {
    let extent = extent();
    // Two changes of a zone in the normal run, all in the whole one.
    let most = if extent.whole { usize::MAX } else { 2 };
    let mut tried = 0;
    for name in extent.zones {
        let zone: Tz = name.parse().expect("a zone");
        let hours = clock(zone, first_of(extent.first), first_of(extent.end), 3_600);
        for around in changes(&hours, 3_600).into_iter().take(most) {
            let clock = clock(zone, around - 129_600, around + 129_600, 1);
            let changes = changes(&clock, 1);
            for text in TEXTS_WITH_SECONDS {
                let fires = enumerate(&Matcher::new(text), &clock, 1);
                // A day around each change is enough where every second counts.
                let near = |at: &&i64| changes.iter().any(|change| (change - **at).abs() < 7_300);
                let dense = fires.len() > 5_000;
                let fires: Vec<i64> = fires
                    .iter()
                    .filter(|at| !dense || near(at))
                    .copied()
                    .collect();
                tried += compare(text, name, &fires, &changes);
            }
        }
    }
    assert!(tried > 10_000, "only {tried} times were compared");
}
