//! Variance: a random delay, drawn once for each occurrence and stored.

use harness::manifest::{Hourly, complete_one};
use harness::session::session;

const DELAYS: &str = "select bool_and(next_run_at - next_scheduled_for >= '0' and next_run_at - next_scheduled_for < '10 min'),
    count(distinct next_run_at - next_scheduled_for) > 10 from trax.manifest_state";

const TWENTY: &str = "select count(trax.schedule('m' || n, 'm', variance => '10 min', ";

#[tokio::test]
async fn each_occurrence_has_a_delay_of_its_own_within_the_variance() {
    let kinds = [
        "cron => '0 * * * *'",
        "every => '1 h'",
        "run_at => now() + interval '1 h'",
    ];
    for kind in kinds {
        let (_db, s) = session().await;
        s.get(&format!("{TWENTY} {kind})) from generate_series(1, 20) n"))
            .await;
        assert_eq!(s.get(DELAYS).await, "t|t", "{kind}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn the_delay_is_stored_and_preview_shows_it() {
    for kind in [
        "cron => '0 * * * *'",
        "every => '1 h'",
        "run_at => now() + interval '1 h'",
    ] {
        let (_db, s) = session().await;
        s.get(&format!("{TWENTY} {kind})) from generate_series(1, 20) n"))
            .await;
        let stored = s.get("select * from trax.manifest_state order by 1").await;
        s.tick("queue_due").await;
        if kind.starts_with("cron") {
            s.get(&format!("{TWENTY} {kind})) from generate_series(1, 20) n"))
                .await;
        }
        assert_eq!(
            s.get("select * from trax.manifest_state order by 1").await,
            stored
        );
        let shown =
            "select count(*) from trax.manifest m join trax.manifest_state s using (manifest_id)
            cross join lateral trax.preview(m.name, count => 1) p
            where p.run_at = s.next_run_at and p.note like '%later by its variance%'";
        assert_eq!(s.get(shown).await, "20", "{kind}");
    }
}

#[tokio::test]
async fn preview_shows_a_run_whose_occurrence_has_come_and_whose_delay_has_not() {
    let (_db, s) = session().await;
    let hourly = Hourly::of(&s).await;
    s.get(&format!(
        "select trax.schedule('m', 'm', {}, variance => '50 min')",
        hourly.cron()
    ))
    .await;
    s.get(&format!(
        "update trax.manifest_state set next_scheduled_for = {0}, next_run_at = {0} + interval '45 min'",
        hourly.ago(0)
    ))
    .await;
    assert_eq!(s.tick("queue_due").await, 0);
    let first = format!(
        "select run_at = {} + interval '45 min' from trax.preview('m', count => 1)",
        hourly.ago(0)
    );
    assert_eq!(
        s.get(&first).await,
        "t",
        "the very next run is the first of the preview"
    );
}

#[tokio::test]
async fn the_job_stands_for_its_occurrence_and_the_next_has_a_new_delay() {
    let (_db, s) = session().await;
    let hourly = Hourly::of(&s).await;
    s.get(&format!(
        "select count(trax.schedule('m' || n, 'm', {}, variance => '20 min')) from generate_series(1, 20) n",
        hourly.cron()
    ))
    .await;
    s.get(&format!(
        "update trax.manifest_state set next_scheduled_for = {0}, next_run_at = {0} + interval '29 min 30 s'",
        hourly.ago(0)
    ))
    .await;
    assert_eq!(s.tick("queue_due").await, 20);
    let occurrences = format!(
        "select bool_and(scheduled_for = {}) from trax.work_queue",
        hourly.ago(0)
    );
    assert_eq!(s.get(&occurrences).await, "t");
    let next = format!(
        "select bool_and(next_scheduled_for = {} and next_run_at - next_scheduled_for between '0' and '20 min'),
             count(distinct next_run_at) > 10 from trax.manifest_state",
        hourly.ago(-1)
    );
    assert_eq!(s.get(&next).await, "t|t");
    s.assert_healthy().await;
}

#[tokio::test]
async fn lateness_counts_from_the_delayed_time() {
    let (_db, s) = session().await;
    let hourly = Hourly::of(&s).await;
    s.get(&format!(
        "select trax.schedule('m', 'm', {}, variance => '40 min', misfire => 'skip')",
        hourly.cron()
    ))
    .await;
    s.get(&format!(
        "update trax.manifest_state set next_scheduled_for = {}, next_run_at = now() - interval '5 s'",
        hourly.ago(0)
    ))
    .await;
    assert_eq!(s.tick("queue_due").await, 1);
    assert_eq!(s.get("select skipped from trax.manifest_state").await, "0");
}

#[tokio::test]
async fn every_waits_its_interval_and_a_new_delay_after_a_success() {
    let (_db, s) = session().await;
    s.get(&format!(
        "{TWENTY} every => '1 h')) from generate_series(1, 20) n"
    ))
    .await;
    s.get("update trax.manifest_state set next_run_at = now(), next_scheduled_for = now()")
        .await;
    assert_eq!(s.tick("queue_due").await, 20);
    for _ in 0..20 {
        complete_one(&s, "").await;
    }
    assert_eq!(s.get(DELAYS).await, "t|t");
    let counted = "select bool_and(next_scheduled_for = last_success_at + interval '1 h') from trax.manifest_state";
    assert_eq!(s.get(counted).await, "t");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_time_after_which_no_delay_fits_is_refused() {
    let (_db, s) = session().await;
    let last = "'199999-12-31 23:59:59.999999Z'";
    s.get(&format!(
        "select trax.schedule('m', 'm', run_at => {last}, variance => '10 years', exclusions => '{{\"days_of_week\": [\"FRI\"]}}');
         select trax.schedule('e', 'e', every => '10 years', starts_at => {last}, variance => '10 years');
         select trax.enqueue('j', run_at => {last}, unique_key => 'k', unique_for => '10 years')"
    ))
    .await;
    let finite = "select bool_and(isfinite(next_run_at) and next_run_at >= next_scheduled_for) from trax.manifest_state";
    assert_eq!(s.get(finite).await, "t");
    s.enqueue("'w'").await;
    let job = s.claim_one("tasks => '{w}'").await;
    for call in [
        "trax.enqueue('j', run_at => $)".to_owned(),
        "trax.change_job(1, run_at => $)".to_owned(),
        "trax.schedule('n', 'n', run_at => $)".to_owned(),
        "trax.schedule('n', 'n', every => '1 h', starts_at => $)".to_owned(),
        "trax.schedule('n', 'n', every => '1 h', ends_at => $)".to_owned(),
        r#"trax.enqueue_graph('{"jobs": [{"name": "a", "task": "a", "run_at": "200000-01-01 UTC"}]}')"#.to_owned(),
        r#"trax.apply('{"manifests": [{"name": "a", "task": "a", "run_at": "200000-01-01 UTC"}]}')"#.to_owned(),
        format!("trax.sleep({}, 's', $)", job.key()),
        format!("trax.await_signal({}, 's', 'go', until => $)", job.key()),
    ] {
        for time in ["'200000-01-01 00:00Z'", "'294276-12-31 23:59Z'"] {
            let refusal = s.refusal(&format!("select {}", call.replace('$', time))).await;
            assert_eq!(refusal.code, "22023", "{call}");
            let words = "must be a finite time before the year 200000";
            assert!(refusal.message.ends_with(words), "{refusal}");
            assert!(refusal.hint.starts_with("Specify a time"), "{refusal}");
        }
    }
    s.assert_healthy().await;
}
