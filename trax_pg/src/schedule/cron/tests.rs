//! What the dialect means, one fact a test.

use super::*;
use crate::schedule::zone::tests::{Named, seconds, zone};
use crate::schedule::{Utc, Zone};

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

/// The next wall times after a wall time, with a mark for what the clock does.
fn next_in(zone: &impl Zone, text: &str, after: &str, count: usize) -> Vec<String> {
    let cron = cron(text);
    let from = match zone.instants_of(seconds(after)) {
        crate::schedule::zone::Instants::Once(at) => at,
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

#[test]
fn texts_that_mean_the_same_are_equal() {
    let same = [
        ("0 0 * * *", "0 0 0 * * *"),
        ("0 0 * * *", " 0\t0 * * *\n"),
        ("0 0 * * *", "@daily"),
        ("0 0 * * *", "@MIDNIGHT"),
        ("0 0 * * *", "0 0 ? * ?"),
        ("0 * * * *", "@hourly"),
        ("0 0 * * 0", "@weekly"),
        ("0 0 1 * *", "@monthly"),
        ("0 0 1 1 *", "@yearly"),
        ("0 0 1 1 *", "@annually"),
        ("0 0 * * 0", "0 0 * * 7"),
        ("0 0 * * 0", "0 0 ? * sun"),
        ("0 0 * * 1-5", "0 0 * * MON-Friday"),
        ("0 0 * * 0,6", "0 0 * * SAT-SUN"),
        ("0 0 * * 0,6", "0 0 * * 6-7"),
        ("0 0 * * 0,1,2", "0 0 * * 7-2"),
        ("0 0 * * 5,6,0,1", "0 0 * * FRI-MON"),
        ("0 0 * * 1,3,5", "0 0 * * MON-FRI/2"),
        ("0 0 * * 1,3,5", "0 0 * * 1/2"),
        ("0 0 * * 0,2,4,6", "0 0 * * */2"),
        ("0 0 * jan,feb,12 *", "0 0 * DEC-February *"),
        ("0 0 * 1,7 *", "0 0 * */6 *"),
        ("5-59/15 * * * *", "5/15 * * * *"),
        ("0 22,23,0,1,2 * * *", "0 22-2 * * *"),
        ("*,5 * * * *", "* * * * *"),
        ("0 0 */1 * MON", "0 0 * * MON"),
        ("0 0 l * *", "0 0 L * *"),
        ("0 0 lw,15w * *", "0 0 15W,LW * *"),
        ("0 0 * * 5L", "0 0 * * fril"),
        ("0 0 * * 7L", "0 0 * * SUNL"),
        ("0 0 * * 5#2", "0 0 * * FRI#2"),
        ("05 007 * * *", "5 7 * * *"),
    ];
    for (one, other) in same {
        assert_eq!(cron(one), cron(other), "{one} | {other}");
    }
}

#[test]
fn a_wrapping_range_with_a_step_counts_on_through_the_end() {
    let hours = next_utc("0 22-4/2 * * *", "2026-06-01 12:00:00", 5);
    let expected = [
        "2026-06-01 22:00:00",
        "2026-06-02 00:00:00",
        "2026-06-02 02:00:00",
        "2026-06-02 04:00:00",
        "2026-06-02 22:00:00",
    ];
    assert_eq!(hours, expected);
}

#[test]
fn one_is_monday_and_next_is_strictly_after() {
    // 2026-06-01 is a Monday.
    let mondays = days_utc("0 0 * * 1", "2026-06-01 00:00:00", 2);
    assert_eq!(mondays, ["2026-06-08", "2026-06-15"]);
    let cron = cron("* * * * * *");
    for (after, expected) in [(0, 1), (-1, 0), (1, 1), (999_999, 1), (-1_000_001, -1)] {
        let next = cron.next(after, &Utc).expect("a next second");
        assert_eq!((next.at_micros, next.note), (expected * MICROS, None));
    }
}

#[test]
fn either_day_field_matches_when_both_are_restricted() {
    let both = days_utc("0 0 13 * FRI", "2026-06-01 00:00:00", 5);
    assert_eq!(
        both,
        [
            "2026-06-05",
            "2026-06-12",
            "2026-06-13",
            "2026-06-19",
            "2026-06-26"
        ]
    );
    let one = days_utc("0 0 13 * ?", "2026-06-01 00:00:00", 2);
    assert_eq!(one, ["2026-06-13", "2026-07-13"]);
    let other = days_utc("0 0 * * FRI", "2026-06-01 00:00:00", 2);
    assert_eq!(other, ["2026-06-05", "2026-06-12"]);
    let stepped = days_utc("0 0 */15 * SUN", "2026-06-01 00:00:00", 4);
    assert_eq!(
        stepped,
        ["2026-06-07", "2026-06-14", "2026-06-16", "2026-06-21"]
    );
}

#[test]
fn the_last_days_of_the_month_are_found() {
    let last = days_utc("0 0 L * *", "2028-01-15 00:00:00", 3);
    assert_eq!(last, ["2028-01-31", "2028-02-29", "2028-03-31"]);
    // October 2026 ends on a Saturday, May 2026 on a Sunday.
    assert_eq!(
        days_utc("0 0 LW 5,10 *", "2026-01-01 00:00:00", 2),
        ["2026-05-29", "2026-10-30"]
    );
    let fridays = days_utc("0 0 * * FRIL", "2026-05-01 00:00:00", 3);
    assert_eq!(fridays, ["2026-05-29", "2026-06-26", "2026-07-31"]);
    let fifth = days_utc("0 0 * * 5#5", "2026-01-01 00:00:00", 3);
    assert_eq!(fifth, ["2026-01-30", "2026-05-29", "2026-07-31"]);
    // The 15th of August 2026 is a Saturday, the 15th of November a Sunday.
    let nearest = days_utc("0 0 15W 8,11 *", "2026-01-01 00:00:00", 2);
    assert_eq!(nearest, ["2026-08-14", "2026-11-16"]);
    let mixed = days_utc("0 0 1,L * MON#1", "2026-02-01 00:00:00", 4);
    assert_eq!(
        mixed,
        ["2026-02-02", "2026-02-28", "2026-03-01", "2026-03-02"]
    );
}

#[test]
fn rare_dates_are_found_across_a_century_without_a_leap_year() {
    let leap = days_utc("0 0 29 2 *", "2092-03-01 00:00:00", 3);
    assert_eq!(leap, ["2096-02-29", "2104-02-29", "2108-02-29"]);
    let fifth = days_utc("0 0 * 2 MON#5", "2044-01-01 00:00:00", 3);
    assert_eq!(fifth, ["2044-02-29", "2072-02-29", "2112-02-29"]);
}

#[test]
fn no_date_of_the_calendar_is_rarer_than_the_horizon() {
    let widest = (0..7).map(|day| {
        let cron = cron(&format!("0 0 * 2 {day}#5"));
        let mut wall = day_of(1999, 1, 1) * DAY;
        let mut widest = 0;
        for _ in 0..16 {
            let next = cron.wall_from(wall + 1).expect("a next date");
            if wall.rem_euclid(DAY) == 0 && date_of(wall / DAY).1 == 2 {
                widest = widest.max(date_of(next / DAY).0 - date_of(wall / DAY).0);
            }
            wall = next;
        }
        widest
    });
    assert_eq!(widest.max(), Some(40));
}

#[test]
fn a_fixed_time_in_a_gap_runs_once_at_its_end() {
    let berlin = zone("Europe/Berlin");
    let spring = next_in(&berlin, "30 2 * * *", "2026-03-28 00:00:00", 3);
    assert_eq!(
        spring,
        [
            "2026-03-28 02:30:00",
            "2026-03-29 03:00:00 gap",
            "2026-03-30 02:30:00"
        ]
    );
    let several = next_in(&berlin, "0,15,30 2 * * *", "2026-03-29 00:00:00", 2);
    assert_eq!(several, ["2026-03-29 03:00:00 gap", "2026-03-30 02:00:00"]);
    let merged = next_in(&berlin, "0 1-4 * * *", "2026-03-29 00:00:00", 3);
    assert_eq!(
        merged,
        [
            "2026-03-29 01:00:00",
            "2026-03-29 03:00:00",
            "2026-03-29 04:00:00"
        ]
    );
    // Asked a moment before the gap, the run at its end is still to come; asked there, it is over.
    let cron = cron("30 2 * * *");
    let end = seconds("2026-03-29 01:00:00") * MICROS;
    assert_eq!(
        cron.next(end - 1, &berlin).map(|next| next.at_micros),
        Some(end)
    );
    assert!(
        cron.next(end, &berlin)
            .is_some_and(|next| next.at_micros > end + 3_600 * MICROS)
    );
}

#[test]
fn a_fixed_time_in_a_repeated_hour_runs_at_the_first_pass() {
    let berlin = zone("Europe/Berlin");
    let autumn = next_in(&berlin, "30 2 * * *", "2026-10-24 12:00:00", 2);
    assert_eq!(autumn, ["2026-10-25 02:30:00 first", "2026-10-26 02:30:00"]);
    let first = seconds("2026-10-25 00:30:00") * MICROS;
    assert_eq!(
        cron("30 2 * * *")
            .next(first - 1, &berlin)
            .map(|next| next.at_micros),
        Some(first)
    );
    let ranged = next_in(&berlin, "0 1-4 * * *", "2026-10-25 00:00:00", 4);
    let expected = [
        "2026-10-25 01:00:00",
        "2026-10-25 02:00:00 first",
        "2026-10-25 03:00:00",
        "2026-10-25 04:00:00",
    ];
    assert_eq!(ranged, expected);
}

#[test]
fn a_wildcard_or_a_step_runs_at_every_real_elapsed_match() {
    let berlin = zone("Europe/Berlin");
    let autumn = next_in(&berlin, "*/30 * * * *", "2026-10-25 01:30:00", 5);
    let expected = [
        "2026-10-25 02:00:00 first",
        "2026-10-25 02:30:00 first",
        "2026-10-25 02:00:00 second",
        "2026-10-25 02:30:00 second",
        "2026-10-25 03:00:00",
    ];
    assert_eq!(autumn, expected);
    let spring = next_in(&berlin, "0 * * * *", "2026-03-29 00:30:00", 3);
    assert_eq!(
        spring,
        [
            "2026-03-29 01:00:00",
            "2026-03-29 03:00:00",
            "2026-03-29 04:00:00"
        ]
    );
    // The hour that the step is in does not exist that day.
    let none = next_in(&berlin, "*/30 2 * * *", "2026-03-28 12:00:00", 1);
    assert_eq!(none, ["2026-03-30 02:00:00"]);
}

#[test]
fn a_half_hour_change_is_honoured() {
    let lord_howe = zone("Australia/Lord_Howe");
    let spring = next_in(&lord_howe, "15 2 * * *", "2026-10-03 12:00:00", 2);
    assert_eq!(spring, ["2026-10-04 02:30:00 gap", "2026-10-05 02:15:00"]);
    let autumn = next_in(&lord_howe, "*/20 * * * *", "2026-04-05 01:20:00", 3);
    let expected = [
        "2026-04-05 01:40:00 first",
        "2026-04-05 01:40:00 second",
        "2026-04-05 02:00:00",
    ];
    assert_eq!(autumn, expected);
}

#[test]
fn a_change_at_midnight_moves_a_daily_run_and_repeats_none() {
    let santiago = zone("America/Santiago");
    let spring = next_in(&santiago, "@daily", "2025-09-06 12:00:00", 2);
    assert_eq!(spring, ["2025-09-07 01:00:00 gap", "2025-09-08 00:00:00"]);
    let autumn = next_in(&santiago, "30 23 * * *", "2025-04-05 12:00:00", 2);
    assert_eq!(autumn, ["2025-04-05 23:30:00 first", "2025-04-06 23:30:00"]);
    // At 00:01 the clock went back into the day before.
    let newfoundland = zone("America/St_Johns");
    let back = next_in(&newfoundland, "*/30 * * * *", "2009-10-31 23:00:00", 5);
    let expected = [
        "2009-10-31 23:30:00 first",
        "2009-11-01 00:00:00 first",
        "2009-10-31 23:30:00 second",
        "2009-11-01 00:00:00 second",
        "2009-11-01 00:30:00",
    ];
    assert_eq!(back[..], expected);
    let once = next_in(&newfoundland, "@daily", "2009-10-31 12:00:00", 2);
    assert_eq!(once, ["2009-11-01 00:00:00 first", "2009-11-02 00:00:00"]);
}

#[test]
fn a_day_that_a_zone_skips_runs_at_its_end() {
    let apia = zone("Pacific/Apia");
    let noon = next_in(&apia, "0 12 * * *", "2011-12-29 00:00:00", 3);
    let expected = [
        "2011-12-29 12:00:00",
        "2011-12-31 00:00:00 gap",
        "2011-12-31 12:00:00",
    ];
    assert_eq!(noon, expected);
    let midnight = next_in(&apia, "@daily", "2011-12-29 12:00:00", 2);
    assert_eq!(midnight, ["2011-12-31 00:00:00", "2012-01-01 00:00:00"]);
    let yearly = next_in(&apia, "0 12 30 12 *", "2011-06-01 00:00:00", 2);
    assert_eq!(yearly, ["2011-12-31 00:00:00 gap", "2012-12-30 12:00:00"]);
}

#[test]
fn mistakes_are_refused_where_they_stand() {
    let mistakes = [
        ("", 1, "the cron expression is empty"),
        ("   ", 1, "the cron expression is empty"),
        ("61 * * * *", 1, "minute \"61\" is out of range"),
        ("* 24 * * *", 3, "hour \"24\" is out of range"),
        ("0 0 32 * *", 5, "day of month \"32\" is out of range"),
        ("0 0 0 * *", 5, "day of month \"0\" is out of range"),
        ("0 0 * 13 *", 7, "month \"13\" is out of range"),
        ("0 0 * * 8", 9, "day of week \"8\" is out of range"),
        ("60 0 0 * * *", 1, "second \"60\" is out of range"),
        ("0 0 1,2,40 * *", 9, "day of month \"40\" is out of range"),
        ("0 0 * * MON-FOO", 13, "\"FOO\" is not a day of the week"),
        ("0 0 * MA *", 7, "\"MA\" is not a month"),
        ("0 MON * * *", 3, "\"MON\" is not an hour"),
        (
            "99999999999999999999 * * * *",
            1,
            "minute \"99999999999999999999\" is out of range",
        ),
        (
            "*/0 * * * *",
            3,
            "step \"0\" is out of range in the minute field",
        ),
        (
            "*/60 * * * *",
            3,
            "step \"60\" is out of range in the minute field",
        ),
        ("*/ * * * *", 3, "\"\" is not a step"),
        ("*/5/5 * * * *", 3, "\"5/5\" is not a step"),
        ("5- * * * *", 3, "a minute is missing"),
        ("-5 * * * *", 1, "a minute is missing"),
        ("1,,2 * * * *", 3, "a minute is missing"),
        ("1-2-3 * * * *", 3, "\"2-3\" is not a minute"),
        (
            "? * * * *",
            1,
            "\"?\" stands only alone and only in a day field",
        ),
        (
            "0 0 ?,5 * *",
            5,
            "\"?\" stands only alone and only in a day field",
        ),
        ("0 0 * * L", 9, "\"L\" names no day of the week"),
        ("0 0 * * FRI#6", 13, "\"6\" is not a week of the month"),
        ("0 0 * * FRI#", 13, "\"\" is not a week of the month"),
        ("0 0 32W * *", 5, "day of month \"32\" is out of range"),
        ("0 0 W * *", 5, "\"W\" is not a day of the month"),
        ("0 0 L-3 * *", 5, "\"L\" is not a day of the month"),
        ("* * * *", 8, "the cron expression has only 4 fields"),
        ("hello ", 6, "the cron expression has only 1 field"),
        ("0 0 0 1 1 * 2030", 13, "the cron expression has 7 fields"),
        ("@reboot", 1, "unknown shorthand \"@reboot\""),
        ("@every 5m", 1, "\"@every\" is not a cron expression"),
        (" @daily 5", 9, "unexpected \"5\" after \"@daily\""),
        (
            "CRON_TZ=UTC 0 0 * * *",
            1,
            "unexpected assignment \"CRON_TZ=UTC\"",
        ),
        ("é * * * *", 1, "unexpected character \"é\""),
        ("0 0\u{a0}* * *", 4, "unexpected character \"\\u{a0}\""),
        ("0 0 \0 * *", 5, "unexpected character \"\\0\""),
        ("0 0 30 2 *", 5, "the schedule never fires"),
        ("0 0 0 31 4,6,9,11 ?", 7, "the schedule never fires"),
        ("0 0 31W 2 *", 5, "the schedule never fires"),
    ];
    for (text, position, message) in mistakes {
        let error = refused(text);
        assert_eq!(
            (error.position, error.message.as_str()),
            (position, message),
            "{text:?}"
        );
        let hint = error.hint.as_str();
        assert!(
            hint.ends_with('.') && hint.starts_with(char::is_uppercase),
            "{text:?}: {hint}"
        );
    }
}

#[test]
fn a_text_over_255_bytes_is_refused() {
    let most = format!("{:<255}", "0 0 * * *");
    assert_eq!(cron(&most), cron("@daily"));
    let error = refused(&format!("{most} "));
    assert_eq!((error.position, error.message.contains("255")), (256, true));
    assert_eq!(refused(&"*".repeat(1_000_000)).position, 256);
}

/// A small generator, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn text(&mut self) -> String {
        const PIECES: [&str; 34] = [
            "*",
            "?",
            "/",
            "-",
            ",",
            "#",
            "L",
            "W",
            "LW",
            "@",
            " ",
            " ",
            " ",
            " ",
            " ",
            "0",
            "1",
            "5",
            "7",
            "12",
            "31",
            "59",
            "60",
            "4294967296",
            "MON",
            "sun",
            "FEB",
            "*/2",
            "1-5",
            "é",
            "\0",
            "@daily",
            "*",
            "*",
        ];
        (0..self.below(16))
            .map(|_| PIECES[self.below(PIECES.len())])
            .collect()
    }

    /// As many ranges as the size of a text allows.
    fn long_list(&mut self) -> String {
        let mut list = String::from("0-59");
        while list.len() < 230 {
            list += &format!(",{}-{}", self.below(10), 50 + self.below(10));
        }
        list + " * * * *"
    }

    /// Fields that mostly make a schedule.
    fn fields(&mut self) -> String {
        const TIMES: [&str; 10] = [
            "*", "0", "5,17", "*/7", "3/11", "1-4", "20-2", "0", "13-9/3", "2",
        ];
        const DAYS: [&str; 12] = [
            "*", "?", "1", "L", "LW", "15W", "*/9", "28-3", "13,31", "1W", "29", "*",
        ];
        const MONTHS: [&str; 6] = ["*", "*", "*", "FEB", "MAR-OCT", "NOV-JAN"];
        const WEEK: [&str; 12] = [
            "*", "?", "1-5", "SUN", "FRI#2", "5L", "MON#5", "SAT-MON", "*", "*/3", "7", "*",
        ];
        let parts = [&TIMES[..], &TIMES, &TIMES, &DAYS, &MONTHS, &WEEK];
        let words = parts.map(|part| part[self.below(part.len())]);
        words[self.below(2)..].join(" ")
    }
}

#[test]
fn random_text_never_panics() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..50_000 {
        let text = random.text();
        match Cron::parse(&text) {
            Ok(cron) => assert!(cron.next(0, &Utc).is_some(), "{text:?}"),
            Err(error) => {
                assert!(
                    (1..=text.chars().count() + 1).contains(&error.position),
                    "{text:?}"
                );
                // What passes the checks here, the crate must take.
                assert!(!error.message.contains("not understood"), "{text:?}");
            }
        }
    }
}

#[test]
fn the_ends_of_time_do_not_panic() {
    let mut random = Random(42);
    for _ in 0..500 {
        let Ok(cron) = Cron::parse(&random.fields()) else {
            continue;
        };
        for after in [i64::MIN, i64::MIN + 1, -1, i64::MAX - 1, i64::MAX] {
            assert!(
                cron.next(after, &Utc)
                    .is_none_or(|next| next.at_micros > after)
            );
            assert!(
                cron.next(after, &Named(chrono_tz::Tz::Europe__Berlin))
                    .is_none_or(|next| { next.at_micros > after })
            );
        }
    }
}

/// Answers whatever it likes: the offset has nothing to do with any clock.
struct Hostile;

impl Zone for Hostile {
    fn offset_at(&self, utc_seconds: i64) -> i32 {
        (utc_seconds as i32).wrapping_mul(0x9e37_79b1_u32 as i32)
    }
}

#[test]
fn a_senseless_zone_neither_hangs_nor_goes_back() {
    let mut random = Random(7);
    for _ in 0..300 {
        let Ok(cron) = Cron::parse(&random.fields()) else {
            continue;
        };
        let after = random.below(1 << 51) as i64;
        assert!(
            cron.next(after, &Hostile)
                .is_none_or(|next| next.at_micros > after)
        );
    }
}

#[test]
fn nothing_lies_between_two_successive_results() {
    let names = [
        "Europe/Berlin",
        "America/Santiago",
        "Australia/Lord_Howe",
        "Pacific/Apia",
    ];
    let start = seconds("2009-01-01 00:00:00");
    let mut random = Random(99);
    for round in 0..2_000 {
        let text = random.fields();
        let Ok(cron) = Cron::parse(&text) else {
            continue;
        };
        let zone = zone(names[round % names.len()]);
        let after = (start + random.below(4 * 366 * 86_400) as i64) * MICROS;
        let next = cron.next(after, &zone).expect("a next time").at_micros;
        assert!(next > after, "{text}");
        // From anywhere in between the answer is the same.
        for _ in 0..5 {
            let between = after + random.below((next - after) as usize) as i64;
            let again = cron.next(between, &zone).map(|again| again.at_micros);
            assert_eq!(again, Some(next), "{text} {between}");
        }
        assert_eq!(
            cron.next(next - 1, &zone).map(|again| again.at_micros),
            Some(next),
            "{text}"
        );
    }
}

#[test]
#[ignore = "a measurement: run it in a release build with --nocapture"]
fn a_next_takes_microseconds() {
    let berlin = zone("Europe/Berlin");
    let texts = [
        "* * * * *",
        "*/5 * * * *",
        "0 2 * * *",
        "30 2 * * MON-FRI",
        "0 0 L * *",
        "0 0 29 2 *",
    ];
    for text in texts {
        let cron = cron(text);
        let mut after = seconds("2026-01-01 00:00:00") * MICROS;
        let (started, rounds) = (std::time::Instant::now(), 20_000);
        for round in 0..rounds {
            let next = cron.next(after, &berlin).expect("a next time");
            after = if round % 30 == 29 {
                seconds("2026-01-01 00:00:00") * MICROS
            } else {
                next.at_micros
            };
        }
        println!("{text:20} next {:?}", started.elapsed() / rounds);
    }
    // The best of five, so that what the machine did meanwhile does not count.
    let best = |work: &dyn Fn()| {
        let once = |_| {
            let started = std::time::Instant::now();
            work();
            started.elapsed()
        };
        (0..5).map(once).min().expect("five rounds")
    };
    let mut worst = [
        (std::time::Duration::ZERO, String::new()),
        Default::default(),
    ];
    let mut random = Random(5);
    for round in 0..100_000 {
        let text = match round % 3 {
            0 => random.text(),
            1 => random.fields(),
            _ => random.long_list(),
        };
        let mut keep = |which: usize, took| {
            if took > worst[which].0 {
                worst[which] = (took, text.clone());
            }
        };
        keep(
            0,
            best(&|| {
                std::hint::black_box(Cron::parse(&text)).ok();
            }),
        );
        let Ok(cron) = Cron::parse(&text) else {
            continue;
        };
        let after = random.below(1 << 51) as i64;
        keep(
            1,
            best(&|| _ = std::hint::black_box(cron.next(after, &berlin))),
        );
        keep(
            1,
            best(&|| _ = std::hint::black_box(cron.next(after, &Hostile))),
        );
    }
    println!("worst parse and next {worst:?}");
}
