//! Exclusions: the runs that they remove, postpone, or leave alone.

use harness::manifest::{Hourly, complete_one, due_since, running, succeed};
use harness::session::{Session, session};

/// The next runs of a cron in Berlin after a moment, as local times.
async fn runs(s: &Session, cron: &str, exclusions: &str, after: &str, count: i32) -> String {
    s.get(&format!(
        "select trax.schedule('m', 'm', cron => '{cron}', timezone => 'Europe/Berlin', exclusions => '{exclusions}')"
    ))
    .await;
    s.get(&format!(
        "select string_agg(to_char(run_at at time zone 'Europe/Berlin', 'MM-DD HH24:MI'), ', ' order by run_at)
         from trax.preview('m', '{after}', {count})"
    ))
    .await
}

#[tokio::test]
async fn each_kind_takes_its_occurrences_away_in_the_manifests_zone() {
    let (_db, s) = session().await;
    // 2026-07-03 is a Friday.
    let friday = "2026-07-03 12:00+02";
    let cases = [
        (
            "30 0 * * *",
            r#"{"days_of_week": ["SAT", 0]}"#,
            "07-06 00:30, 07-07 00:30",
        ),
        (
            "30 0 * * *",
            r#"{"days_of_week": [6, 7, 1]}"#,
            "07-07 00:30, 07-08 00:30",
        ),
        (
            "30 0 * * *",
            r#"{"dates": ["2026-07-04", "07-06"]}"#,
            "07-05 00:30, 07-07 00:30",
        ),
        (
            "30 0 * * *",
            r#"{"date_ranges": [{"from": "2026-07-01", "to": "2026-07-09"}]}"#,
            "07-10 00:30, 07-11 00:30",
        ),
        (
            "0 * * * *",
            r#"{"time_windows": [{"from": "13:00", "to": "22:00"}]}"#,
            "07-03 22:00, 07-03 23:00",
        ),
        (
            "0 * * * *",
            r#"{"time_windows": [{"from": "13:00", "to": "06:00"}]}"#,
            "07-04 06:00, 07-04 07:00",
        ),
        (
            "0 * * * *",
            r#"{"time_windows": [{"from": "13:00", "to": "06:00", "days_of_week": ["FRI"]}, {"from": "06:00", "to": "24:00", "days_of_week": ["SAT"]}]}"#,
            "07-05 00:00, 07-05 01:00",
        ),
    ];
    for (cron, exclusions, expected) in cases {
        let seen = runs(&s, cron, exclusions, friday, 2).await;
        assert_eq!(seen, expected, "{exclusions}");
    }
}

#[tokio::test]
async fn preview_says_how_many_were_excluded() {
    let (_db, s) = session().await;
    runs(
        &s,
        "30 0 * * *",
        r#"{"days_of_week": ["SAT", "SUN"]}"#,
        "2026-07-03 12:00+02",
        1,
    )
    .await;
    let note = "select note from trax.preview('m', '2026-07-03 12:00+02', 1)";
    assert!(
        s.get(note).await.contains("2 excluded"),
        "{}",
        s.get(note).await
    );
}

/// An hourly manifest that is six occurrences late, with the last two excluded.
async fn late_with_exclusions(misfire: &str) -> (Session, Hourly) {
    let (_, s) = session().await;
    let hourly = Hourly::of(&s).await;
    s.get(&format!(
        "select trax.schedule('m', 'm', {}, misfire => '{misfire}', exclusions => jsonb_build_object('time_windows',
             jsonb_build_array(jsonb_build_object(
                 'from', to_char({} at time zone 'UTC' - interval '10 min', 'HH24:MI'),
                 'to', to_char({} at time zone 'UTC' + interval '10 min', 'HH24:MI')))))",
        hourly.cron(),
        hourly.ago(1),
        hourly.ago(0)
    ))
    .await;
    due_since(&s, "m", &hourly.ago(3)).await;
    (s, hourly)
}

async fn ran(s: &Session, hourly: &Hourly) -> String {
    while s.tick("queue_due").await == 1 {
        complete_one(s, "").await;
    }
    let sql = format!(
        "select string_agg({}::text, ' ' order by finished_at) from trax.run",
        hourly.count_of("scheduled_for")
    );
    s.assert_healthy().await;
    s.get(&sql).await
}

#[tokio::test]
async fn an_excluded_occurrence_is_no_misfire() {
    let (s, hourly) = late_with_exclusions("fire_once").await;
    assert_eq!(ran(&s, &hourly).await, "2", "the newest that was allowed");
    let (s, hourly) = late_with_exclusions("fire_all").await;
    assert_eq!(ran(&s, &hourly).await, "3 2");
    let (s, hourly) = late_with_exclusions("skip").await;
    assert_eq!(ran(&s, &hourly).await, "");
}

/// Exclusions that cover today and the days around it in any zone.
const NOW: &str = "jsonb_build_object('date_ranges', jsonb_build_array(jsonb_build_object(
    'from', to_char(now() - interval '2 days', 'YYYY-MM-DD'), 'to', to_char(now() + interval '2 days', 'YYYY-MM-DD'))))";

const OPEN_AGAIN: &str = "date_trunc('day', now() at time zone 'UTC') + interval '3 days'";

#[tokio::test]
async fn every_and_run_at_are_put_off_to_the_end_of_what_excludes_them() {
    let (_db, s) = session().await;
    s.get(&format!(
        "select trax.schedule('e', 'e', every => '1 h', exclusions => {NOW});
         select trax.schedule('r', 'r', run_at => now() - interval '1 s', exclusions => {NOW})"
    ))
    .await;
    assert_eq!(s.tick("queue_due").await, 0);
    let put_off = format!(
        "select bool_and(next_run_at at time zone 'UTC' = {OPEN_AGAIN}), sum(skipped) from trax.manifest_state"
    );
    assert_eq!(s.get(&put_off).await, "t|0");
    s.assert_healthy().await;
}

#[tokio::test]
async fn every_whose_time_comes_while_it_is_excluded_is_put_off_and_not_skipped() {
    let (_db, s) = session().await;
    s.get(&format!(
        "select trax.schedule('e', 'e', every => '1 h', exclusions => {NOW}, misfire => 'skip')"
    ))
    .await;
    due_since(&s, "e", "now() - interval '5 h'").await;
    assert_eq!(s.tick("queue_due").await, 0);
    let put_off = format!(
        "select next_run_at at time zone 'UTC' = {OPEN_AGAIN}, skipped from trax.manifest_state"
    );
    assert_eq!(s.get(&put_off).await, "t|0");
}

#[tokio::test]
async fn a_success_during_an_exclusion_puts_every_off() {
    let (_db, s) = session().await;
    s.get(&format!(
        "select trax.schedule('e', 'e', every => '1 h', exclusions => {NOW})"
    ))
    .await;
    succeed(&s, "e").await;
    s.tick("queue_due").await;
    due_since(&s, "e", "now()").await;
    assert_eq!(s.tick("queue_due").await, 0);
    let put_off =
        format!("select next_run_at at time zone 'UTC' = {OPEN_AGAIN} from trax.manifest_state");
    assert_eq!(s.get(&put_off).await, "t");
}

#[tokio::test]
async fn triggers_dependents_and_retries_are_not_excluded() {
    let (_db, s) = session().await;
    s.get(&format!(
        "select trax.schedule('p', 'p', cron => '* * * * *', exclusions => {NOW}, retry_delay => '0');
         select trax.schedule('c', 'c', depends_on => '{{p}}', exclusions => {NOW});
         select trax.schedule('d', 'd', depends_on => '{{p}}', dormant => true, exclusions => {NOW})"
    ))
    .await;
    assert_eq!(s.tick("queue_due").await, 0);
    let job = running(&s, "p").await;
    let fail = format!("select trax.fail({}, 'no')", job.key());
    assert_eq!(s.get(&fail).await, "retrying");
    s.tick("queue_due").await;
    let retried = s.claim_one("").await;
    assert_eq!(retried.id, job.id, "a retry is claimable");
    s.get("select trax.activate('d')").await;
    complete_one(&s, "tasks => '{d}'").await;
    harness::manifest::complete(&s, &retried).await;
    assert_eq!(s.tick("queue_due").await, 1, "a dependent is queued");
    complete_one(&s, "tasks => '{c}'").await;
    assert_eq!(s.tick("queue_due").await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn exclusions_that_are_wrong_are_refused_where_they_are_wrong() {
    let (_db, s) = session().await;
    let before = s.everything().await;
    let cases = [
        "[]",
        "5",
        "{\"holidays\": []}",
        "{\"days_of_week\": [9]}",
        "{\"days_of_week\": [\"SUN\", 1, 2, 3, 4, 5, 6]}",
        "{\"days_of_week\": [1e400]}",
        "{\"days_of_week\": [1.5]}",
        "{\"dates\": [\"2026-02-30\"]}",
        "{\"date_ranges\": [{\"from\": \"2026-02-03\", \"to\": \"2026-02-01\"}]}",
        "{\"time_windows\": [{\"from\": \"25:00\", \"to\": \"26:00\"}]}",
        "{\"time_windows\": [{\"from\": \"00:00\", \"to\": \"24:00\"}]}",
    ];
    for case in cases {
        let refusal = s
            .refusal(&format!(
                "select trax.schedule('m', 'm', cron => '* * * * *', exclusions => '{case}')"
            ))
            .await;
        assert_eq!(refusal.code, "22023", "{case}: {refusal}");
        assert!(!refusal.hint.is_empty(), "{case}: {refusal}");
    }
    let never = "{\"dates\": [\"12-25\"], \"days_of_week\": [\"MON\"]}";
    for cron in ["0 0 25 12 *", "0 12 * * MON"] {
        let refusal = s
            .refusal(&format!(
                "select trax.schedule('m', 'm', cron => '{cron}', exclusions => '{never}')"
            ))
            .await;
        assert_eq!(refusal.code, "22023", "{cron} never runs: {refusal}");
    }
    let deep = format!("'{}{}'", "[".repeat(1000), "]".repeat(1000));
    let refusal = s
        .refusal(&format!(
            "select trax.schedule('m', 'm', exclusions => {deep})"
        ))
        .await;
    assert_eq!(refusal.code, "22023", "{refusal}");
    assert_eq!(s.everything().await, before);
}
