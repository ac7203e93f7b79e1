//! Properties that hold for any text, any instant and any zone.

use super::*;

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

    /// Returns as many ranges as the size of a text allows.
    fn long_list(&mut self) -> String {
        let mut list = String::from("0-59");
        while list.len() < 230 {
            list += &format!(",{}-{}", self.below(10), 50 + self.below(10));
        }
        list + " * * * *"
    }

    /// Returns fields that mostly make a schedule.
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
                // The crate must accept any text that passes the checks here.
                assert!(!error.message.contains("cannot be parsed"), "{text:?}");
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

/// A zone whose offsets are arbitrary, like no real clock.
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
        // The result is the same from any instant in between.
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
    // The best of five, so that other work on the machine does not count.
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
        keep(1, best(&|| assert!(cron.next(after, &berlin).is_some())));
        keep(
            1,
            best(&|| {
                assert!(
                    cron.next(after, &Hostile)
                        .is_none_or(|next| next.at_micros > after)
                )
            }),
        );
    }
    println!("worst parse and next {worst:?}");
}
