//! Tests of cron: the meaning of texts, clock changes, and properties that hold for any text.

mod allowed;
mod any_text;
mod clock;
mod dialect;

use super::*;
use crate::zone::tests::{Named, seconds, zone};
use crate::{Utc, Zone};

const MICROS: i64 = 1_000_000;

fn cron(text: &str) -> Cron {
    Cron::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> CronError {
    match Cron::parse(text) {
        Ok(_) => panic!("{text:?} is accepted"),
        Err(error) => error,
    }
}

fn text_of(seconds: i64) -> String {
    chrono::DateTime::from_timestamp(seconds, 0)
        .expect("a time")
        .format("%F %T")
        .to_string()
}

/// Returns the next wall times after a wall time, with a mark for clock changes.
fn next_in(zone: &impl Zone, text: &str, after: &str, count: usize) -> Vec<String> {
    let cron = cron(text);
    let from = match zone.instants_of(seconds(after)) {
        crate::zone::Instants::Once(at) => at,
        other => panic!("{after} is not one instant: {other:?}"),
    };
    let mut after = from * MICROS;
    let mut found = Vec::new();
    for _ in 0..count {
        let next = cron.next(after, zone).expect("a next time");
        assert!(next.at_micros > after);
        after = next.at_micros;
        let mark = match next.note {
            None => "",
            Some(Note::Gap) => " gap",
            Some(Note::RepeatedFirst) => " first",
            Some(Note::RepeatedSecond) => " second",
        };
        found.push(text_of(zone.wall_at(after / MICROS)) + mark);
    }
    found
}

fn next_utc(text: &str, after: &str, count: usize) -> Vec<String> {
    next_in(&Utc, text, after, count)
}

fn days_utc(text: &str, after: &str, count: usize) -> Vec<String> {
    let days = next_utc(text, after, count).into_iter();
    days.map(|time| time.split(' ').next().expect("a date").to_owned())
        .collect()
}
