//! Tests of exclusions: the meaning of JSON, its errors, and the ends of exclusions.

use serde_json::json;

use super::*;
use crate::Utc;
use crate::zone::tests::{seconds, zone};

fn exclusions(json: serde_json::Value) -> Exclusions {
    Exclusions::parse(&json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

/// Returns the end and the reason of the exclusion of an instant written in UTC.
fn covering(exclusions: &Exclusions, at: &str, zone: &impl Zone) -> Option<(String, String)> {
    let excluded = exclusions.covering(seconds(at) * MICROS, zone)?;
    let until = chrono::DateTime::from_timestamp_micros(excluded.until_micros).expect("a time");
    let why = excluded
        .reason
        .strip_prefix("excluded: ")
        .expect("a reason");
    Some((until.format("%F %T").to_string(), why.to_owned()))
}

fn until(at: &str, why: &str) -> Option<(String, String)> {
    Some((at.to_owned(), why.to_owned()))
}

#[test]
fn each_kind_excludes_and_ends() {
    let weekend = exclusions(json!({"days_of_week": ["sat", 0, "7"]}));
    assert_eq!(covering(&weekend, "2026-06-05 23:59:59", &Utc), None);
    let end = until("2026-06-08 00:00:00", "weekend day Saturday");
    assert_eq!(covering(&weekend, "2026-06-06 00:00:00", &Utc), end);
    let end = until("2026-06-08 00:00:00", "weekend day Sunday");
    assert_eq!(covering(&weekend, "2026-06-07 23:59:59", &Utc), end);
    assert_eq!(covering(&weekend, "2026-06-08 00:00:00", &Utc), None);

    let days = exclusions(json!({
        "dates": ["2026-12-31", "12-25", "2027-01-02"],
        "date_ranges": [{"from": "2026-12-24", "to": "2026-12-30"}, {"from": "2027-01-01", "to": "2027-01-01"}],
    }));
    let end = |why| until("2027-01-03 00:00:00", why);
    assert_eq!(
        covering(&days, "2026-12-24 00:00:00", &Utc),
        end("2026-12-24 to 2026-12-30")
    );
    assert_eq!(
        covering(&days, "2026-12-25 12:00:00", &Utc),
        end("12-25 of every year")
    );
    assert_eq!(
        covering(&days, "2026-12-31 12:00:00", &Utc),
        end("2026-12-31")
    );
    assert_eq!(
        covering(&days, "2030-12-25 23:00:00", &Utc),
        until("2030-12-26 00:00:00", "12-25 of every year")
    );
    assert_eq!(covering(&days, "2026-12-23 23:59:59", &Utc), None);

    let tuesday = exclusions(json!({"days_of_week": [2]}));
    let end = until("2026-06-10 00:00:00", "weekday Tuesday");
    assert_eq!(covering(&tuesday, "2026-06-09 10:00:00", &Utc), end);
}

#[test]
fn a_window_may_cross_midnight_and_belongs_to_the_day_it_begins_on() {
    let night = exclusions(json!({"time_windows": [{"from": "22:00", "to": "06:00:30"}]}));
    let end = until("2026-06-06 06:00:30", "22:00-06:00:30");
    assert_eq!(covering(&night, "2026-06-05 21:59:59", &Utc), None);
    assert_eq!(covering(&night, "2026-06-05 22:00:00", &Utc), end);
    assert_eq!(covering(&night, "2026-06-06 06:00:29", &Utc), end);
    assert_eq!(covering(&night, "2026-06-06 06:00:30", &Utc), None);
    // 2026-06-05 is a Friday.
    let friday = exclusions(
        json!({"time_windows": [{"from": "22:00", "to": "06:00", "days_of_week": ["FRI"]}]}),
    );
    let end = until("2026-06-06 06:00:00", "22:00-06:00 from Fri");
    assert_eq!(covering(&friday, "2026-06-06 05:00:00", &Utc), end);
    assert_eq!(covering(&friday, "2026-06-05 05:00:00", &Utc), None);
    assert_eq!(covering(&friday, "2026-06-06 22:00:00", &Utc), None);
}

#[test]
fn exclusions_that_touch_are_one() {
    let joined = exclusions(json!({
        "days_of_week": ["SAT"],
        "dates": ["2026-06-07"],
        "time_windows": [
            {"from": "18:00", "to": "24:00", "days_of_week": [5]},
            {"from": "17:00", "to": "18:00"},
            {"from": "00:00", "to": "09:00", "days_of_week": ["MON"]},
        ],
    }));
    let end = until("2026-06-08 09:00:00", "17:00-18:00");
    assert_eq!(covering(&joined, "2026-06-05 17:30:00", &Utc), end);
    let whole = exclusions(json!({"time_windows":
        [{"from": "00:00", "to": "24:00", "days_of_week": ["SAT", "SUN"]}]}));
    let end = until("2026-06-08 00:00:00", "00:00-24:00 from Sun, Sat");
    assert_eq!(covering(&whole, "2026-06-06 00:00:00", &Utc), end);
}

#[test]
fn a_window_follows_the_clock_of_the_zone() {
    let berlin = zone("Europe/Berlin");
    let night = exclusions(json!({"time_windows": [{"from": "22:00", "to": "06:00"}]}));
    // Spring: 22:00 is 21:00 UTC, 06:00 is 04:00 UTC.
    let end = until("2026-03-29 04:00:00", "22:00-06:00");
    assert_eq!(covering(&night, "2026-03-28 20:59:59", &berlin), None);
    assert_eq!(covering(&night, "2026-03-28 21:00:00", &berlin), end);
    let end = until("2026-10-25 05:00:00", "22:00-06:00");
    assert_eq!(covering(&night, "2026-10-24 20:00:00", &berlin), end);
    // The end lies in the gap, so the gap ends it.
    let gap = exclusions(json!({"time_windows": [{"from": "01:00", "to": "02:30"}]}));
    let end = until("2026-03-29 01:00:00", "01:00-02:30");
    assert_eq!(covering(&gap, "2026-03-29 00:30:00", &berlin), end);
    // In the repeated hour the clock goes back to before the window, and then through it again.
    let half = exclusions(json!({"time_windows": [{"from": "02:30", "to": "04:00"}]}));
    let first = until("2026-10-25 01:00:00", "02:30-04:00");
    assert_eq!(covering(&half, "2026-10-25 00:30:00", &berlin), first);
    assert_eq!(covering(&half, "2026-10-25 01:29:59", &berlin), None);
    let second = until("2026-10-25 03:00:00", "02:30-04:00");
    assert_eq!(covering(&half, "2026-10-25 01:30:00", &berlin), second);
    // A Saturday in Apia ends when the Saturday there does.
    let apia = exclusions(json!({"dates": ["2011-12-29"]}));
    let end = until("2011-12-30 10:00:00", "2011-12-29");
    assert_eq!(
        covering(&apia, "2011-12-29 12:00:00", &zone("Pacific/Apia")),
        end
    );
}

#[test]
fn what_never_ends_within_fifty_years_ends_at_the_end_of_time() {
    let long = exclusions(json!({"date_ranges": [{"from": "2026-01-01", "to": "2080-01-01"}]}));
    let ends = |at: &str| {
        long.covering(seconds(at) * MICROS, &Utc)
            .map(|excluded| excluded.until_micros)
    };
    assert_eq!(ends("2026-01-01 00:00:00"), Some(i64::MAX));
    assert_eq!(
        ends("2040-01-01 00:00:00"),
        Some(seconds("2080-01-02 00:00:00") * MICROS)
    );
    // Only Mondays that are the 29th of February are open.
    let yearly: Vec<String> = (1..=12)
        .flat_map(|month| (1..=days_in_month(2000, month)).map(move |day| (month, day)))
        .filter(|date| *date != (2, 29))
        .map(|(month, day)| format!("{month:02}-{day:02}"))
        .collect();
    let rare = exclusions(json!({"dates": yearly, "days_of_week": [0, 2, 3, 4, 5, 6]}));
    let excluded = rare.covering(seconds("2044-03-01 00:00:00") * MICROS, &Utc);
    assert_eq!(
        excluded.map(|excluded| excluded.until_micros),
        Some(seconds("2072-02-29 00:00:00") * MICROS)
    );
}

#[test]
fn mistakes_are_refused_where_they_stand() {
    let window = |window| json!({"time_windows": [window]});
    let mistakes = [
        (json!(null), "", "expected an object, not null"),
        (json!([1]), "", "expected an object, not a list"),
        (json!({"holidays": []}), "", "unknown key \"holidays\""),
        (
            json!({"dates": "12-25"}),
            "dates",
            "expected a list, not a text",
        ),
        (
            json!({"days_of_week": [1, 8]}),
            "days_of_week[1]",
            "day of week \"8\" is out of range",
        ),
        (
            json!({"days_of_week": ["FOO"]}),
            "days_of_week[0]",
            "\"FOO\" is not a day of the week",
        ),
        (
            json!({"days_of_week": [-1]}),
            "days_of_week[0]",
            "\"-1\" is not a day of the week",
        ),
        (
            json!({"days_of_week": [true]}),
            "days_of_week[0]",
            "expected a text, not a boolean",
        ),
        (
            json!({"dates": ["2026-02-29"]}),
            "dates[0]",
            "there is no date \"2026-02-29\"",
        ),
        (
            json!({"dates": ["02-29", "02-30"]}),
            "dates[1]",
            "there is no date \"02-30\"",
        ),
        (
            json!({"dates": ["25.12.2026"]}),
            "dates[0]",
            "\"25.12.2026\" is not a date",
        ),
        (
            json!({"dates": ["0000-01-01"]}),
            "dates[0]",
            "there is no date \"0000-01-01\"",
        ),
        (
            json!({"date_ranges": [{"from": "2026-01-02", "to": "2026-01-01"}]}),
            "date_ranges[0]",
            "the range ends before it begins",
        ),
        (
            json!({"date_ranges": [{"from": "2026-01-02"}]}),
            "date_ranges[0]",
            "\"to\" is missing",
        ),
        (
            json!({"date_ranges": [{"from": "12-24", "to": "2027-01-01"}]}),
            "date_ranges[0].from",
            "\"12-24\" is not a date",
        ),
        (
            window(json!({"to": "01:00"})),
            "time_windows[0]",
            "\"from\" is missing",
        ),
        (
            window(json!({"from": "24:00", "to": "01:00"})),
            "time_windows[0].from",
            "time \"24:00\" is out of range",
        ),
        (
            window(json!({"from": "1:00", "to": "02:00"})),
            "time_windows[0].from",
            "\"1:00\" is not a time",
        ),
        (
            window(json!({"from": "01:00", "to": "01:60"})),
            "time_windows[0].to",
            "time \"01:60\" is out of range",
        ),
        (
            window(json!({"from": "01:00", "to": "01:00:00"})),
            "time_windows[0]",
            "the window ends when it begins",
        ),
        (
            window(json!({"from": "01:00", "to": "02:00", "days": [1]})),
            "time_windows[0]",
            "unknown key \"days\"",
        ),
        (
            window(json!({"from": "01:00", "to": "02:00", "days_of_week": []})),
            "time_windows[0]",
            "the window begins on no day",
        ),
        (
            json!({"dates": vec!["12-25"; 1_001]}),
            "dates",
            "the list has more than 1000 items",
        ),
    ];
    for (json, path, message) in mistakes {
        let error = Exclusions::parse(&json).expect_err("exclusions with a mistake");
        assert_eq!(
            (error.path.as_str(), error.message.as_str()),
            (path, message),
            "{json}"
        );
        assert!(error.hint.ends_with('.') && error.hint.starts_with(char::is_uppercase));
    }
}

#[test]
fn what_leaves_no_time_is_refused() {
    let half = |from: &str, to: &str| json!({"from": from, "to": to});
    let never = [
        json!({"days_of_week": [0, 1, 2, 3, 4, 5, 6]}),
        json!({"time_windows": [half("00:00", "24:00")]}),
        json!({"time_windows": [half("06:00", "18:00"), half("18:00", "06:00")]}),
        json!({
            "days_of_week": ["MON", "TUE", "WED", "THU", "FRI", "SAT"],
            "time_windows": [
                {"from": "12:00", "to": "12:30", "days_of_week": ["MON"]},
                {"from": "22:00", "to": "08:00", "days_of_week": ["SAT"]},
                {"from": "08:00", "to": "00:00", "days_of_week": ["SUN"]},
            ],
        }),
    ];
    for json in never {
        let error = Exclusions::parse(&json).expect_err("exclusions that leave no time");
        assert!(error.message.contains("never runs"), "{json}: {error}");
    }
    assert!(exclusions(json!({})).is_empty());
    let one_second = json!({"time_windows": [half("00:00:01", "24:00")]});
    assert!(!exclusions(one_second).is_empty());
}

/// Applies the rules again, written from their description: days and seconds one by one.
fn closed(json: &serde_json::Value, wall: i64) -> bool {
    let clock = chrono::DateTime::from_timestamp(wall, 0).expect("a time");
    let names = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
    let weekday = |back: i64| {
        (clock - chrono::TimeDelta::days(back))
            .format("%a")
            .to_string()
            .to_uppercase()
    };
    let list = |json: &serde_json::Value, key: &str| {
        json.get(key).and_then(|list| list.as_array()).cloned()
    };
    let text = |json: &serde_json::Value, key: &str| json[key].as_str().expect("a text").to_owned();
    let has_day = |days: &[serde_json::Value], name: &str| {
        days.iter().any(|day| {
            day.as_str() == Some(name)
                || day
                    .as_u64()
                    .is_some_and(|day| names[day as usize % 7] == name)
        })
    };
    let date = clock.format("%F").to_string();
    let time = clock.format("%T").to_string();
    let of_week = list(json, "days_of_week").is_some_and(|days| has_day(&days, &weekday(0)));
    let dates = list(json, "dates").unwrap_or_default();
    let of_date = dates
        .iter()
        .any(|one| date.ends_with(one.as_str().expect("a text")));
    let ranges = list(json, "date_ranges").unwrap_or_default();
    let of_range = ranges
        .iter()
        .any(|range| text(range, "from") <= date && date <= text(range, "to"));
    let windows = list(json, "time_windows").unwrap_or_default();
    let of_window = windows.iter().any(|window| {
        let (from, to) = (text(window, "from"), text(window, "to"));
        let begins =
            |back| list(window, "days_of_week").is_none_or(|days| has_day(&days, &weekday(back)));
        // Texts of the same length sort like times.
        let (from, to) = (pad(&from), pad(&to));
        if from < to {
            begins(0) && from <= time && time < to
        } else {
            begins(0) && from <= time || begins(1) && time < to
        }
    });
    of_week || of_date || of_range || of_window
}

/// Returns `HH:MM` with seconds.
fn pad(time: &str) -> String {
    if time.len() == 5 {
        format!("{time}:00")
    } else {
        time.to_owned()
    }
}

/// A small generator, so that a failure can be repeated.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn time(&mut self) -> String {
        const MINUTES: [usize; 4] = [0, 15, 30, 59];
        format!("{:02}:{:02}", self.below(24), MINUTES[self.below(4)])
    }

    /// Returns exclusions of all kinds around the changes of the clock of one year; some are
    /// refused.
    pub(crate) fn exclusions(&mut self) -> serde_json::Value {
        const DAYS: [&str; 4] = ["SAT", "SUN", "MON", "FRI"];
        const DATES: [&str; 6] = [
            "2011-03-27",
            "10-30",
            "2011-12-30",
            "03-27",
            "2011-04-03",
            "02-29",
        ];
        let mut json = json!({});
        if self.below(3) == 0 {
            json["days_of_week"] = json!([DAYS[self.below(4)], self.below(8)]);
        }
        if self.below(3) == 0 {
            json["dates"] = json!([DATES[self.below(6)], DATES[self.below(6)]]);
        }
        if self.below(4) == 0 {
            let day = 1 + self.below(28);
            let (from, to) = (format!("2011-10-{day:02}"), format!("2011-11-{day:02}"));
            json["date_ranges"] = json!([{"from": from, "to": to}]);
        }
        let windows: Vec<_> = (0..self.below(4))
            .map(|_| {
                let mut window = json!({"from": self.time(), "to": self.time()});
                if self.below(3) == 0 {
                    window["days_of_week"] = json!([DAYS[self.below(4)], self.below(8)]);
                }
                window
            })
            .collect();
        json["time_windows"] = json!(windows);
        json
    }
}

#[test]
fn random_json_never_panics() {
    let mut random = Random(31);
    let mut read = 0;
    for _ in 0..20_000 {
        let mut text = random.exclusions().to_string().into_bytes();
        for _ in 0..random.below(3) {
            let at = random.below(text.len());
            text[at] = b"09:-,[]{}\"aS"[random.below(12)];
        }
        let Ok(json) = serde_json::from_slice::<serde_json::Value>(&text) else {
            continue;
        };
        if let Ok(exclusions) = Exclusions::parse(&json) {
            read += 1;
            for at in [i64::MIN, i64::MAX, random.below(1 << 51) as i64] {
                let excluded = exclusions.covering(at, &Utc);
                assert!(
                    excluded.is_none_or(|excluded| excluded.until_micros >= at),
                    "{json}"
                );
            }
        }
    }
    assert!(read > 1_000, "only {read} were read");
}

#[test]
fn the_end_of_an_exclusion_is_the_first_open_minute() {
    let names = [
        "Europe/Berlin",
        "America/Santiago",
        "Australia/Lord_Howe",
        "Pacific/Apia",
    ];
    let mut random = Random(2011);
    let (mut excluded, mut open) = (0, 0);
    while excluded < 400 || open < 100 {
        let json = random.exclusions();
        let Ok(exclusions) = Exclusions::parse(&json) else {
            continue;
        };
        let name = names[random.below(4)];
        let zone = zone(name);
        let near = [
            "2011-03-26",
            "2011-04-02",
            "2011-05-07",
            "2011-08-20",
            "2011-10-29",
            "2011-12-29",
        ];
        let day = seconds(&format!("{} 00:00:00", near[random.below(near.len())]));
        let at = day + random.below(3 * 1_440) as i64 * 60;
        let found = exclusions.covering(at * MICROS, &zone);
        assert_eq!(
            found.is_some(),
            closed(&json, zone.wall_at(at)),
            "{json} {name} {at}"
        );
        let Some(found) = found else {
            open += 1;
            continue;
        };
        excluded += 1;
        // Minute by minute, for two weeks.
        let first = (at..at + 14 * DAY)
            .step_by(60)
            .find(|at| !closed(&json, zone.wall_at(*at)));
        match first {
            Some(first) => assert_eq!(found.until_micros, first * MICROS, "{json} {name} {at}"),
            None => assert!(
                found.until_micros >= (at + 14 * DAY) * MICROS,
                "{json} {name} {at}"
            ),
        }
    }
}
