//! Any cron text and exclusions: no input causes a panic, a run in the past, or a call of more than
//! 1 ms.
//!
//! The input is a cron text, a newline and JSON. From the repository, with cargo-fuzz installed:
//!
//!     RUSTC_BOOTSTRAP=1 cargo fuzz run schedule --sanitizer none -- -max_total_time=120 \
//!         -dict=fuzz/schedule.dict -max_len=600
//!     cd fuzz && cargo build --release && target/release/schedule corpus/schedule/*
//!
//! The first command finds inputs, with branch counters and overflow checks. The second repeats
//! them in a release build, with a limit of 1 ms.
#![no_main]
#![allow(unexpected_cfgs)]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use trax_schedule::{Cron, Exclusions, Zone};

const MICROS: i64 = 1_000_000;

/// The time limit of each call: 1 ms, and more with branch counters.
const MOST: Duration = Duration::from_millis(if cfg!(fuzzing) { 5 } else { 1 });

struct Named(chrono_tz::Tz);

impl Zone for Named {
    fn offset_at(&self, utc_seconds: i64) -> i32 {
        use chrono::{Offset, TimeZone};
        let Some(instant) = chrono::DateTime::from_timestamp(utc_seconds, 0) else {
            return 0;
        };
        self.0
            .offset_from_utc_datetime(&instant.naive_utc())
            .fix()
            .local_minus_utc()
    }
}

/// Runs the work, which must be fast once within two seconds, so that other load is not counted.
fn quick<T>(what: &str, work: impl Fn() -> T) -> T {
    let (begun, mut best) = (Instant::now(), Duration::MAX);
    while begun.elapsed() < Duration::from_secs(2) {
        let started = Instant::now();
        let result = work();
        best = best.min(started.elapsed());
        if best < MOST {
            return result;
        }
    }
    panic!("{what} takes {best:?}");
}

fn ask(cron: &Cron, zone: &impl Zone, exclusions: Option<&Exclusions>, after: i64) {
    if let Some(next) = quick("next", || cron.next(after, zone)) {
        assert!(next.at_micros > after);
    }
    let found = quick("next_allowed", || {
        cron.next_allowed(after, zone, exclusions)
    });
    let Some(found) = found else { return };
    assert!(found.at_micros > after);
    if let Some(exclusions) = exclusions {
        let covering = quick("covering", || exclusions.covering(found.at_micros, zone));
        assert!(covering.is_none());
        if let Some(excluded) = quick("covering", || exclusions.covering(after, zone)) {
            assert!(excluded.until_micros > after);
        }
    }
    let to = found.at_micros;
    let back = |years: i64| to.saturating_sub(years * 31_556_952 * MICROS);
    let newest = quick("latest", || cron.latest(back(1), to, zone, exclusions));
    assert_eq!(newest, Some(to));
    let before = quick("latest", || cron.latest(back(1), to - 1, zone, exclusions));
    assert!(before.is_none_or(|before| before < to));
}

fuzz_target!(|data: &[u8]| {
    let Ok(input) = std::str::from_utf8(data) else {
        return;
    };
    let (text, json) = input.split_once('\n').unwrap_or((input, ""));
    let cron = quick("parse", || Cron::parse(text));
    if let Err(error) = &cron {
        assert!((1..=text.chars().count() + 1).contains(&error.position));
    }
    let json = serde_json::from_str(json).ok();
    let exclusions = json.and_then(|json| quick("exclusions", || Exclusions::parse(&json)).ok());
    let Ok(cron) = cron else { return };
    // A time chosen by the input, from 1970 to 2110, and one just before a change to summer time.
    let hash = data.iter().fold(0u64, |hash, byte| {
        hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte)
    });
    let any = (hash % (140 * 31_556_952 * MICROS as u64)) as i64;
    for after in [any, 1_774_746_000 * MICROS - 1] {
        for zone in [chrono_tz::Europe::Berlin, chrono_tz::Pacific::Apia] {
            ask(&cron, &Named(zone), exclusions.as_ref(), after);
        }
    }
});
