//! Overlap: a manifest that is due while its job executes.

use harness::manifest::{Hourly, complete, due_since, state, waiting};
use harness::session::{Claimed, Session, session};

/// An hourly manifest whose job executes, and which is due again.
async fn overlapping(s: &Session, options: &str) -> (Hourly, Claimed) {
    let hourly = Hourly::of(s).await;
    s.get(&format!(
        "select trax.schedule('m', 'm', {}, misfire_threshold => '1 day' {options})",
        hourly.cron()
    ))
    .await;
    due_since(s, "m", &hourly.ago(2)).await;
    assert_eq!(s.tick("queue_due").await, 1);
    let job = s.claim_one("").await;
    due_since(s, "m", &hourly.ago(1)).await;
    (hourly, job)
}

const SKIPPED: &str = "select skipped, last_skipped_for from trax.manifest_state";

#[tokio::test]
async fn queue_runs_once_when_the_current_run_ends() {
    let (_db, s) = session().await;
    let (_, job) = overlapping(&s, "").await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(state(&s, "m").await, "executing|f");
    complete(&s, &job).await;
    assert_eq!(s.tick("queue_due").await, 1);
    let next = s.claim_one("").await;
    complete(&s, &next).await;
    assert_eq!(
        s.tick("queue_due").await,
        0,
        "once for the two that were due"
    );
    assert_eq!(s.get(SKIPPED).await, "0|");
    s.assert_healthy().await;
}

#[tokio::test]
async fn skip_drops_the_occurrence_and_records_it() {
    let (_db, s) = session().await;
    let (hourly, job) = overlapping(&s, ", overlap => 'skip'").await;
    assert_eq!(s.tick("queue_due").await, 0);
    let skipped = format!(
        "select skipped, last_skipped_for = {}, next_scheduled_for = {} from trax.manifest_state",
        hourly.ago(1),
        hourly.ago(0)
    );
    assert_eq!(s.get(&skipped).await, "1|t|t");
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(s.get("select skipped from trax.manifest_state").await, "2");
    complete(&s, &job).await;
    assert_eq!(
        s.tick("queue_due").await,
        0,
        "what was dropped does not come back"
    );
    due_since(&s, "m", &hourly.ago(0)).await;
    assert_eq!(s.tick("queue_due").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn skip_counts_a_job_triggered_by_hand_and_not_one_that_waits() {
    let (_db, s) = session().await;
    let hourly = Hourly::of(&s).await;
    s.get(&format!(
        "select trax.schedule('m', 'm', {}, overlap => 'skip', misfire_threshold => '1 day'); select trax.trigger('m')",
        hourly.cron()
    ))
    .await;
    let job = s.claim_one("").await;
    due_since(&s, "m", &hourly.ago(0)).await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(s.get("select skipped from trax.manifest_state").await, "1");
    complete(&s, &job).await;
    s.get("select trax.trigger('m', delay => '1 h')").await;
    due_since(&s, "m", &hourly.ago(0)).await;
    assert_eq!(s.tick("queue_due").await, 1);
}

#[tokio::test]
async fn skip_holds_for_every_as_well() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'm', every => '1 h', overlap => 'skip'); select trax.trigger('m')")
        .await;
    let job = s.claim_one("").await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(s.get("select skipped from trax.manifest_state").await, "1");
    complete(&s, &job).await;
    let next = "select next_run_at > now() + interval '59 min' from trax.manifest_state";
    assert_eq!(s.get(next).await, "t");
    s.assert_healthy().await;
}

#[tokio::test]
async fn allow_runs_up_to_max_concurrency_at_once() {
    let (_db, s) = session().await;
    let hourly = Hourly::of(&s).await;
    s.get(&format!(
        "select trax.schedule('m', 'm', {}, misfire_threshold => '1 day', max_concurrency => 3)",
        hourly.cron()
    ))
    .await;
    assert_eq!(
        s.get("select overlap from trax.manifest").await,
        "allow",
        "the default of several at once"
    );
    due_since(&s, "m", &hourly.ago(9)).await;
    let mut jobs = Vec::new();
    for n in 0..3 {
        assert_eq!(s.tick("queue_due").await, 1, "run {n}");
        jobs.push(s.claim_one("").await);
    }
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(state(&s, "m").await, "executing|f");
    complete(&s, &jobs[1]).await;
    assert_eq!(s.tick("queue_due").await, 1);
    s.assert_healthy().await;
}

/// Parks a manifest that allows overlap and is due again while its first entry still waits.
async fn parked_on_a_waiting_entry(s: &Session) {
    let hourly = Hourly::of(s).await;
    s.get(&format!(
        "select trax.schedule('m', 'm', {}, misfire_threshold => '1 day', overlap => 'allow', max_concurrency => 3)",
        hourly.cron()
    ))
    .await;
    due_since(s, "m", &hourly.ago(5)).await;
    assert_eq!(s.tick("queue_due").await, 1);
    assert_eq!(s.tick("queue_due").await, 0);
}

#[tokio::test]
async fn allow_goes_on_as_soon_as_the_entry_that_waited_is_claimed() {
    let (_db, s) = session().await;
    parked_on_a_waiting_entry(&s).await;
    assert_eq!(state(&s, "m").await, "queued|f");
    s.claim_one("").await;
    assert_eq!(
        s.tick("queue_due").await,
        1,
        "what it was parked on, a waiting entry, is no more"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn allow_goes_on_when_its_state_was_locked_while_the_entry_that_waited_was_claimed() {
    let (db, s) = session().await;
    let (claimer, other) = (Session::of(&db).await, Session::of(&db).await);
    parked_on_a_waiting_entry(&s).await;
    other
        .get("begin; select from trax.manifest_state for update")
        .await;
    claimer.get("begin").await;
    claimer.claim_one("").await;
    assert_eq!(s.tick("queue_due").await, 0, "the entry may still wait");
    claimer.get("commit").await;
    assert_eq!(s.tick("queue_due").await, 0, "the state is locked");
    other.get("rollback").await;
    assert_eq!(s.tick("queue_due").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn allow_goes_on_under_a_new_name_when_the_entry_that_waited_is_claimed() {
    let (_db, s) = session().await;
    parked_on_a_waiting_entry(&s).await;
    s.get("update trax.manifest set name = 'n'").await;
    s.claim_one("").await;
    assert_eq!(s.tick("queue_due").await, 1, "it is the same manifest");
}

#[tokio::test]
async fn allow_of_one_is_one_at_a_time() {
    let (_db, s) = session().await;
    let (_, job) = overlapping(&s, ", overlap => 'allow'").await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(state(&s, "m").await, "executing|f");
    complete(&s, &job).await;
    assert_eq!(s.tick("queue_due").await, 1);
}

#[tokio::test]
async fn every_with_several_at_once_counts_from_the_start() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'm', every => '1 h', max_concurrency => 2)")
        .await;
    assert_eq!(s.tick("queue_due").await, 1);
    let first = s.claim_one("").await;
    let next = "select next_run_at between now() + interval '59 min' and now() + interval '1 h' from trax.manifest_state";
    assert_eq!(s.get(next).await, "t", "while it runs");
    due_since(&s, "m", "now()").await;
    assert_eq!(s.tick("queue_due").await, 1);
    let second = s.claim_one("").await;
    let before = s.get("select next_run_at from trax.manifest_state").await;
    complete(&s, &first).await;
    complete(&s, &second).await;
    let after = s.get("select next_run_at from trax.manifest_state").await;
    assert_eq!(after, before, "a success moves nothing");
    s.assert_healthy().await;
}

#[tokio::test]
async fn max_concurrency_says_from_where_every_counts_whatever_the_overlap() {
    for (options, from_start) in [
        ("overlap => 'queue', max_concurrency => 2", true),
        ("overlap => 'skip', max_concurrency => 2", true),
        ("overlap => 'allow', max_concurrency => 1", false),
    ] {
        let (_db, s) = session().await;
        s.get(&format!(
            "select trax.schedule('m', 'm', every => '1 h', {options})"
        ))
        .await;
        assert_eq!(s.tick("queue_due").await, 1, "{options}");
        let job = s.claim_one("").await;
        let next = "select next_run_at from trax.manifest_state";
        let while_it_runs = s.get(next).await;
        assert_eq!(!while_it_runs.is_empty(), from_start, "{options}");
        complete(&s, &job).await;
        let after = s.get(next).await;
        assert!(!after.is_empty(), "{options}");
        assert_eq!(after == while_it_runs, from_start, "{options}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn every_with_one_at_a_time_counts_from_the_success() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'm', every => '1 h')")
        .await;
    assert_eq!(s.tick("queue_due").await, 1);
    let job = s.claim_one("").await;
    assert_eq!(state(&s, "m").await, "outcome|f");
    assert_eq!(waiting(&s, "m").await, 0);
    complete(&s, &job).await;
    let next = "select next_run_at - last_success_at from trax.manifest_state";
    assert_eq!(s.get(next).await, "01:00:00");
}

#[tokio::test]
async fn a_chosen_overlap_is_kept_when_only_the_concurrency_changes() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'm', every => '1 h', overlap => 'skip'); select trax.schedule('m', 'm', max_concurrency => 3)")
        .await;
    assert_eq!(
        s.get("select overlap, max_concurrency from trax.manifest")
            .await,
        "skip|3",
        "what is not given keeps its value"
    );
}

#[tokio::test]
async fn what_stays_parked_although_its_reason_has_ended_is_looked_at_again() {
    for reason in ["queued", "executing", "dead_letter", "group_disabled"] {
        let (db, s) = session().await;
        let hourly = Hourly::of(&s).await;
        s.get(&format!(
            "select trax.schedule('m', 'm', {})",
            hourly.cron()
        ))
        .await;
        // As if the event that ends the parking had been lost.
        s.get(&format!(
            "update trax.manifest_state set next_run_at = null, next_scheduled_for = null, parked_on = '{reason}',
                 parked_due_at = {}, parked_since = now() - interval '11 min'",
            hourly.ago(0)
        ))
        .await;
        let fresh = Session::of(&db).await;
        fresh.tick("queue_due").await;
        fresh.tick("queue_due").await;
        assert_eq!(waiting(&s, "m").await, 1, "{reason}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn what_is_parked_for_a_reason_that_holds_stays_parked() {
    let (db, s) = session().await;
    let (_, _job) = overlapping(&s, "").await;
    s.tick("queue_due").await;
    s.get("update trax.manifest_state set parked_since = parked_since - interval '11 min'")
        .await;
    let fresh = Session::of(&db).await;
    for _ in 0..2 {
        assert_eq!(fresh.tick("queue_due").await, 0);
    }
    assert_eq!(state(&s, "m").await, "executing|f");
}
