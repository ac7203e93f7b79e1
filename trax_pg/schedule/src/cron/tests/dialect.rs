//! The meaning of texts, and the positions of errors.

use super::*;

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
fn forms_that_dialects_read_differently_mean_what_the_table_says() {
    let same = [
        ("0 0 * * SUN-SUN", "0 0 * * SUN"),
        ("5-5 * * * *", "5 * * * *"),
        ("0 0 * * 0-7", "0 0 * * 0,1,2,3,4,5,6"),
        ("0 0 * * FRI-TUE/2", "0 0 * * FRI,SUN,TUE"),
        ("10/20 * * * *", "10,30,50 * * * *"),
        ("0 0 * * 5/2", "0 0 * * FRI"),
        ("0 22-4 * * *", "0 22,23,0,1,2,3,4 * * *"),
        ("0 0 28-3 * *", "0 0 28,29,30,31,1,2,3 * *"),
        ("0 0 * sept THURS", "0 0 * 9 4"),
        ("0 0 */1 * MON", "0 0 * * MON"),
        ("0 0 1 * */1", "0 0 1 * *"),
    ];
    for (one, other) in same {
        assert_eq!(cron(one), cron(other), "{one} | {other}");
    }
    let listed = days_utc("0 0 1,15W * MON#1,FRI#3", "2026-08-01 00:00:00", 4);
    assert_eq!(
        listed,
        ["2026-08-03", "2026-08-14", "2026-08-21", "2026-09-01"]
    );
    // A range of all days restricts the field: either one matches.
    assert_ne!(cron("0 0 1-31 * MON"), cron("0 0 * * MON"));
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
        ("0 0 L-3 * *", 5, "\"L-3\" is not supported"),
        ("0 0 15,l-1 * *", 8, "\"l-1\" is not supported"),
        ("0 0 1-15W * *", 5, "\"1-15W\" is not supported"),
        ("0 0 LW/2 * *", 5, "\"LW/2\" is not supported"),
        ("0 0 * * MON-FRI#2", 9, "\"MON-FRI#2\" is not supported"),
        ("0 0 * * MON#1-FRI#1", 9, "\"MON#1-FRI#1\" is not supported"),
        ("0 0 * * 5#1/2", 9, "\"5#1/2\" is not supported"),
        ("0 0 * * MON-FRIL", 9, "\"MON-FRIL\" is not supported"),
        ("H 0 * * *", 1, "\"H\" is not supported"),
        ("0 h(0-7) * * *", 3, "\"h(0-7)\" is not supported"),
        ("H/15 * * * *", 1, "\"H/15\" is not supported"),
        ("0 0 1 * +MON", 9, "\"+MON\" is not supported"),
        ("* * * *", 8, "the cron expression has only 4 fields"),
        ("hello ", 6, "the cron expression has only 1 field"),
        ("0 0 0 1 1 * 2030", 13, "the cron expression has 7 fields"),
        ("@noon", 1, "unknown shorthand \"@noon\""),
        ("@reboot", 1, "\"@reboot\" is not supported"),
        ("@every 5m", 1, "\"@every\" is not supported"),
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
fn a_form_of_others_is_refused_with_what_to_type_instead() {
    let instead = [
        ("0 0 L-3 * *", "28 1,3,5,7,8,10,12"),
        ("0 0 * * MON-FRI#2", "MON#2,TUE#2"),
        ("H * * * *", "variance => interval '10 min'"),
        ("0 0 1 * +MON", "exclusions =>"),
        ("@reboot", "queue the job"),
        ("@every 5m", "every => interval '5 min'"),
    ];
    for (text, words) in instead {
        let hint = refused(text).hint;
        assert!(hint.contains(words), "{text:?}: {hint}");
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
