//! `trax cron explain` and the function behind it.

use super::{names, objects, refused, said};
use harness::session::session;
use serde_json::json;

#[tokio::test]
async fn explain_says_the_sentence_and_the_times_by_both_clocks() {
    let (db, _s) = session().await;
    let arguments = [
        "cron",
        "explain",
        "30 2 * * *",
        "--timezone",
        "Europe/Berlin",
        "--after",
        "2027-03-27 12:00Z",
    ];
    let text = said(&db, &arguments);
    assert!(
        text.starts_with("At 02:30 every day (Europe/Berlin)\n"),
        "{text}"
    );
    assert!(
        text.contains("2027-03-28 03:00:00 +02:00") && text.contains("2027-03-28 01:00:00 UTC"),
        "{text}"
    );
    assert!(
        text.contains("moved to the end of the hour that the clock skips"),
        "{text}"
    );
    let explained = &objects(&db, &arguments)[0];
    assert_eq!(
        names(explained).join(" "),
        "description expression runs timezone"
    );
    assert_eq!(
        explained["description"],
        "At 02:30 every day (Europe/Berlin)"
    );
    assert_eq!(
        explained["runs"][0]["run_at"],
        json!("2027-03-28T01:00:00Z")
    );
    assert_eq!(explained["runs"].as_array().map(Vec::len), Some(5));
    let quiet = said(
        &db,
        &[
            "cron",
            "explain",
            "@hourly",
            "-n",
            "1",
            "-q",
            "--after",
            "2027-03-27 12:00Z",
        ],
    );
    assert_eq!(quiet, "2027-03-27T13:00:00Z\n");
}

#[tokio::test]
async fn times_are_shown_and_read_in_the_zone_of_the_reader() {
    let (db, _s) = session().await;
    let arguments = [
        "cron",
        "explain",
        "0 12 * * *",
        "-n",
        "1",
        "--after",
        "2027-07-01 20:00",
    ];
    let (_, text, _) =
        harness::process::run(super::trax(&db, &arguments).env("TZ", "America/New_York"));
    // 20:00 there is midnight in UTC, and the next run is the noon after that.
    assert!(
        text.contains("2027-07-02 12:00:00 +00:00") && text.contains("2027-07-02 08:00:00 EDT"),
        "{text}"
    );
}

#[tokio::test]
async fn a_wrong_expression_or_zone_is_reported_with_its_place_and_a_hint() {
    let (db, _s) = session().await;
    for (arguments, words) in [
        (&["cron", "explain", "61 * * * *"][..], "position 1"),
        (&["cron", "explain", "0 0 30 2 *"], "never fires"),
        (&["cron", "explain", ""], "empty"),
        (
            &["cron", "explain", "@daily", "-z", "Mars/Phobos"],
            "Mars/Phobos",
        ),
    ] {
        let errors = refused(&db, 1, arguments);
        assert!(
            errors.contains(words) && errors.contains("22023"),
            "{errors}"
        );
        assert!(errors.contains("hint: "), "{errors}");
    }
}

#[tokio::test]
async fn the_preview_of_an_expression_is_that_of_a_manifest_with_it() {
    let (_db, s) = session().await;
    let expressions = [
        ("30 2 * * *", "Europe/Berlin"),
        ("*/20 1-3 * * *", "Australia/Lord_Howe"),
        ("0 0 13 * FRI", "UTC"),
        ("0 0 L 2 ?", "America/Santiago"),
    ];
    for (cron, zone) in expressions {
        s.get(&format!(
            "select trax.schedule('m', 'a', cron => '{cron}', timezone => '{zone}')"
        ))
        .await;
        let runs = |from: &str| {
            format!(
                "select run_at, local_time, note from trax.{from} after => '2026-10-20 00:00Z', count => 40)"
            )
        };
        let of_manifest = s.get(&runs("preview('m',")).await;
        let of_text = s
            .get(&runs(&format!("preview_cron('{cron}', '{zone}',")))
            .await;
        assert_eq!(of_text.lines().count(), 40);
        assert_eq!(of_text, of_manifest, "{cron} {zone}");
    }
    let refusal = s.refusal("select * from trax.preview_cron(null)").await;
    assert_eq!(refusal.code, "22004");
    let refusal = s
        .refusal("select * from trax.preview_cron('* * * * *', after => 'infinity')")
        .await;
    assert_eq!(refusal.code, "22023");
    let refusal = s
        .refusal("select * from trax.preview_cron('* * * * *', count => 0)")
        .await;
    assert_eq!(refusal.code, "22023");
}
