//! The effects of gaps and repeats of a clock on a schedule.

use super::*;

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
    // Just before the gap, the run at its end is still to come; at its end, it is over.
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
    // The hour of the step does not exist that day.
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
fn a_fixed_time_asked_for_in_the_second_pass_is_over() {
    let berlin = zone("Europe/Berlin");
    let second_pass = seconds("2026-10-25 01:10:00");
    assert_eq!(text_of(berlin.wall_at(second_pass)), "2026-10-25 02:10:00");
    let next = cron("30 2 * * *").next(second_pass * MICROS, &berlin);
    let tomorrow = seconds("2026-10-26 01:30:00") * MICROS;
    assert_eq!(next.map(|next| next.at_micros), Some(tomorrow));
}

#[test]
fn a_second_pass_is_found_when_the_next_date_is_a_year_away() {
    let berlin = zone("Europe/Berlin");
    let autumn = next_in(&berlin, "*/30 2 25 10 *", "2026-10-25 01:00:00", 5);
    let expected = [
        "2026-10-25 02:00:00 first",
        "2026-10-25 02:30:00 first",
        "2026-10-25 02:00:00 second",
        "2026-10-25 02:30:00 second",
        "2027-10-25 02:00:00",
    ];
    assert_eq!(autumn, expected);
}
