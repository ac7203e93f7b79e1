//! Schedules with exclusions, compared with a search of one occurrence after the other.

use serde_json::json;

use super::*;
use crate::Exclusions;
use crate::exclusion::tests::Random;

fn exclusions(json: serde_json::Value) -> Exclusions {
    Exclusions::parse(&json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn fields(random: &mut Random) -> String {
    const TIMES: [&str; 9] = ["*", "0", "5,17", "*/7", "3/11", "1-4", "30", "0-3", "2"];
    const DAYS: [&str; 7] = ["*", "*", "?", "L", "15W", "27-30", "*/9"];
    const MONTHS: [&str; 5] = ["*", "*", "MAR-OCT", "*", "10,12"];
    const WEEK: [&str; 6] = ["*", "*", "SUN", "?", "FRI-MON", "5L"];
    let parts = [&TIMES[..], &TIMES, &TIMES, &DAYS, &MONTHS, &WEEK];
    let words = parts.map(|part| part[random.below(part.len())]);
    let seconds = usize::from(random.below(8) > 0);
    words[seconds..].join(" ")
}

#[test]
fn excluded_occurrences_are_skipped_and_counted() {
    let weekend = exclusions(json!({"days_of_week": ["SAT", "SUN"]}));
    let friday = seconds("2026-06-05 23:30:00") * MICROS;
    let next = |text: &str, exclusions: Option<&Exclusions>| {
        let next = cron(text)
            .next_allowed(friday, &Utc, exclusions)
            .expect("a time");
        (text_of(next.at_micros / MICROS), next.skipped)
    };
    assert_eq!(
        next("0 * * * *", Some(&weekend)),
        ("2026-06-08 00:00:00".to_owned(), 48)
    );
    assert_eq!(
        next("45 * * * *", Some(&weekend)),
        ("2026-06-05 23:45:00".to_owned(), 0)
    );
    assert_eq!(
        next("0 * * * *", None),
        ("2026-06-06 00:00:00".to_owned(), 0)
    );
    assert_eq!(
        next("0 0 0 * * 6#1,MON", Some(&weekend)),
        ("2026-06-08 00:00:00".to_owned(), 1)
    );
    // The count stops, the result does not.
    let next = cron("* * * * * *").next_allowed(friday + 1_800 * MICROS - 1, &Utc, Some(&weekend));
    let monday = seconds("2026-06-08 00:00:00") * MICROS;
    assert_eq!(
        next.map(|next| (next.at_micros, next.skipped)),
        Some((monday, 1_000))
    );
}

#[test]
fn a_schedule_whose_every_time_is_excluded_has_none() {
    let night = exclusions(json!({"time_windows": [{"from": "02:00", "to": "04:00"}]}));
    assert_eq!(cron("0 3 * * *").next_allowed(0, &Utc, Some(&night)), None);
    assert_eq!(
        cron("*/5 2,3 * * *").next_allowed(0, &zone("Europe/Berlin"), Some(&night)),
        None
    );
    assert_eq!(
        cron("0 3 * * *").latest(
            0,
            seconds("2026-01-01 00:00:00") * MICROS,
            &Utc,
            Some(&night)
        ),
        None
    );
}

#[test]
fn a_time_in_a_gap_is_excluded_where_it_is_meant_and_where_it_is_moved() {
    let berlin = zone("Europe/Berlin");
    let after = seconds("2026-03-28 12:00:00") * MICROS;
    let next = |text: &str, from: &str, to: &str| {
        let window = exclusions(json!({"time_windows": [{"from": from, "to": to}]}));
        let next = cron(text).next_allowed(after, &berlin, Some(&window));
        next.map(|next| (text_of(next.at_micros / MICROS), next.note, next.skipped))
    };
    let at = |text: &str, note, skipped| Some((text.to_owned(), note, skipped));
    assert_eq!(next("30 2 * * *", "02:00", "03:00"), None);
    let tomorrow = "2026-03-30 00:30:00";
    assert_eq!(next("30 2 * * *", "03:00", "04:00"), at(tomorrow, None, 1));
    // Another time in the gap is open, or the schedule matches the end of the gap.
    let end = "2026-03-29 01:00:00";
    assert_eq!(
        next("15,45 2 * * *", "02:00", "02:30"),
        at(end, Some(Note::Gap), 0)
    );
    assert_eq!(next("0,30 2-3 * * *", "02:00", "03:00"), at(end, None, 0));
    // A whole day is in the gap.
    let apia = zone("Pacific/Apia");
    let before = seconds("2011-12-29 12:00:00") * MICROS;
    for date in ["2011-12-30", "2011-12-31"] {
        let day = exclusions(json!({"dates": [date]}));
        let next = cron("0 12 30 12 *").next_allowed(before, &apia, Some(&day));
        let next = next.map(|next| text_of(next.at_micros / MICROS));
        assert_eq!(next.as_deref(), Some("2012-12-29 22:00:00"), "{date}");
    }
}

/// Returns whether any of the times that run at an instant is open: at the end of a gap, those in
/// the gap and the one that is shown.
fn is_open_in_gap(cron: &Cron, at: i64, zone: &impl Zone, exclusions: &Exclusions) -> bool {
    let at = at / MICROS;
    let Some(change) = zone.next_change(at - 1, at).filter(|_| !cron.elapsed) else {
        return true;
    };
    let mut meant = cron.wall_from(at + change.before);
    while let Some(wall) = meant.filter(|&wall| wall <= at + change.after) {
        if exclusions.is_open(wall) {
            return true;
        }
        meant = cron.wall_from(wall + 1);
    }
    // A repeat moves nothing.
    change.after < change.before
}

/// Returns the allowed occurrences of a period, found one after the other.
fn iterate(
    cron: &Cron,
    from: i64,
    to: i64,
    zone: &impl Zone,
    exclusions: &Exclusions,
) -> Vec<(i64, u32)> {
    let (mut at, mut skipped, mut found) = (from, 0, Vec::new());
    while let Some(next) = cron.next(at, zone).filter(|next| next.at_micros <= to) {
        at = next.at_micros;
        if exclusions.covering(at, zone).is_some() || !is_open_in_gap(cron, at, zone, exclusions) {
            skipped += 1;
        } else {
            found.push((at, skipped));
            skipped = 0;
        }
    }
    found
}

#[test]
fn next_and_latest_agree_with_asking_for_one_after_the_other() {
    let names = [
        "Europe/Berlin",
        "America/Santiago",
        "Australia/Lord_Howe",
        "Pacific/Apia",
    ];
    let near = [
        "2011-03-26",
        "2011-04-02",
        "2011-05-07",
        "2011-08-20",
        "2011-10-29",
        "2011-12-29",
    ];
    let mut random = Random(77);
    let (mut rounds, mut found) = (0, 0);
    while rounds < 1_500 {
        let text = fields(&mut random);
        let json = random.exclusions();
        let (Ok(cron), Ok(exclusions)) = (Cron::parse(&text), Exclusions::parse(&json)) else {
            continue;
        };
        rounds += 1;
        let name = names[random.below(4)];
        let zone = zone(name);
        let day = seconds(&format!("{} 00:00:00", near[random.below(near.len())]));
        let from = day * MICROS + random.below(2 * 86_400_000_000) as i64;
        // Schedules that fire rarely are searched over months.
        let second = cron
            .next(from, &zone)
            .and_then(|next| cron.next(next.at_micros, &zone));
        let dense = second.is_some_and(|second| second.at_micros - from < 1_200 * MICROS);
        let to = from + if dense { 6 } else { 24 * 150 } * 3_600 * MICROS;
        let all = iterate(&cron, from, to, &zone, &exclusions);
        let told = |after| {
            let next = cron.next_allowed(after, &zone, Some(&exclusions));
            next.map(|next| (next.at_micros, next.skipped))
                .filter(|(at, _)| *at <= to)
        };
        let mut after = from;
        for expected in all.iter().take(40) {
            let (at, skipped) = told(after).unwrap_or_default();
            assert_eq!(
                (at, skipped),
                (expected.0, expected.1.min(1_000)),
                "{text} {json} {name} {after}"
            );
            let between = after + random.below((at - after) as usize) as i64;
            assert_eq!(
                told(between).map(|next| next.0),
                Some(at),
                "{text} {json} {name} {between}"
            );
            assert_eq!(
                cron.latest(from + 1, at, &zone, Some(&exclusions)),
                Some(at)
            );
            after = at;
            found += 1;
        }
        if all.len() < 40 {
            assert_eq!(told(after), None, "{text} {json} {name} {after}");
        }
        let newest = all.last().map(|last| last.0);
        let count = cron.count(from + 1, to, &zone, Some(&exclusions));
        assert_eq!(
            count as usize,
            all.len().min(1_000),
            "{text} {json} {name} {from}"
        );
        assert_eq!(
            cron.latest(from + 1, to, &zone, Some(&exclusions)),
            newest,
            "{text} {json} {name} {from}"
        );
        let plain = cron.latest(from + 1, to, &zone, None);
        assert!(
            plain >= newest
                && plain
                    .is_none_or(|at| cron.next(at, &zone).is_none_or(|next| next.at_micros > to))
        );
    }
    assert!(found > 5_000, "only {found} times were compared");
}

#[test]
fn latest_takes_both_ends() {
    let minutes = cron("* * * * *");
    assert_eq!(minutes.latest(0, 0, &Utc, None), Some(0));
    assert_eq!(minutes.latest(1, 60 * MICROS - 1, &Utc, None), None);
    assert_eq!(
        minutes.latest(1, 60 * MICROS, &Utc, None),
        Some(60 * MICROS)
    );
    assert_eq!(minutes.latest(5, 4, &Utc, None), None);
    assert_eq!(
        minutes
            .latest(i64::MIN, i64::MAX, &Utc, None)
            .map(|at| i64::MAX - at < 60 * MICROS),
        Some(true)
    );
    assert_eq!(
        cron("0 0 29 2 *")
            .latest(i64::MIN, 0, &Utc, None)
            .map(|at| text_of(at / MICROS)),
        Some("1968-02-29 00:00:00".to_owned())
    );
}

#[test]
#[ignore = "a measurement: run it with --nocapture"]
fn an_allowed_time_takes_microseconds() {
    let berlin = zone("Europe/Berlin");
    let year = json!({"date_ranges": [{"from": "2026-01-01", "to": "2026-12-31"}]});
    let weekend = json!({"days_of_week": ["SAT", "SUN"]});
    let night = json!({"time_windows": [{"from": "22:00", "to": "06:00"}]});
    let always = json!({"time_windows": [{"from": "02:00", "to": "03:00"}]});
    let after = seconds("2026-03-27 22:59:59") * MICROS;
    for (text, json) in [
        ("* * * * * *", json!({})),
        ("* * * * * *", weekend.clone()),
        ("* * * * * *", year.clone()),
        ("0 * * * *", weekend),
        ("*/5 * * * *", night.clone()),
        ("0-59 0-23 * * *", year),
        ("0 0,12 29 2 *", night),
        ("30 2 * * *", always),
    ] {
        let (cron, exclusions) = (cron(text), exclusions(json.clone()));
        let time = |work: &dyn Fn()| {
            let started = std::time::Instant::now();
            (0..100).for_each(|_| work());
            started.elapsed() / 100
        };
        let next = time(&|| {
            cron.next_allowed(after, &berlin, Some(&exclusions))
                .expect("a time");
        });
        let covering = time(&|| drop(exclusions.covering(after + MICROS, &berlin)));
        let back = after - 366 * 86_400 * MICROS;
        let latest = time(&|| {
            std::hint::black_box(cron.latest(back, after, &berlin, Some(&exclusions)));
        });
        println!(
            "{text:16} {json}: next_allowed {next:?}, covering {covering:?}, latest {latest:?}"
        );
    }
}
