//! `run_at` and `every`: a single run, and a run after each success.

use super::{STATE, run_once};
use harness::session::session;

#[tokio::test]
async fn run_at_runs_once_and_is_disabled_after_its_success() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', run_at => '2000-01-01Z')")
        .await;
    assert_eq!(
        s.get(STATE).await,
        "m|t||2000-01-01 00:00:00",
        "a time that is past is due at once"
    );
    assert_eq!(s.tick("queue_due").await, 1);
    assert_eq!(
        s.get("select scheduled_for at time zone 'UTC' from trax.work_queue")
            .await,
        "2000-01-01 00:00:00"
    );
    assert_eq!(
        s.get("select enabled from trax.manifest").await,
        "t",
        "not before its success"
    );
    run_once(&s).await;
    assert_eq!(
        s.get("select enabled, disabled_reason is not null from trax.manifest")
            .await,
        "f|t"
    );
    assert_eq!(s.tick("queue_due").await, 0);
    s.get("select trax.enable_manifest('m')").await;
    assert_eq!(s.tick("queue_due").await, 0, "its one run has been");
    s.get("select trax.schedule('m', 'a', run_at => '2001-01-01Z')")
        .await;
    assert_eq!(s.tick("queue_due").await, 1, "a new time is a new run");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_retired_run_at_is_revived_by_a_new_time_and_not_by_the_same() {
    let (_db, s) = session().await;
    let old = "select trax.schedule('m', 'a', run_at => '2000-01-01Z')";
    s.get(old).await;
    s.tick("queue_due").await;
    run_once(&s).await;
    s.get(old).await;
    assert_eq!(s.get("select enabled from trax.manifest").await, "f");
    assert_eq!(s.tick("queue_due").await, 0);
    s.get("select trax.schedule('m', 'a', run_at => '2001-01-01Z')")
        .await;
    assert_eq!(s.get("select enabled from trax.manifest").await, "t");
    assert_eq!(s.tick("queue_due").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn run_at_that_fails_for_good_is_not_disabled_until_somebody_decides() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', run_at => '2000-01-01Z', max_retries => 0)")
        .await;
    s.tick("queue_due").await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.fail({}, 'no')", job.key()))
        .await;
    assert_eq!(s.get("select enabled from trax.manifest").await, "t");
    assert_eq!(s.tick("queue_due").await, 0);
    s.get("select trax.requeue_dead_letter(id) from trax.dead_letter")
        .await;
    run_once(&s).await;
    assert_eq!(s.get("select enabled from trax.manifest").await, "f");
    assert_eq!(s.tick("queue_due").await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn run_at_whose_only_run_ended_while_it_was_disabled_does_not_run_again() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', run_at => '2000-01-01Z')")
        .await;
    s.tick("queue_due").await;
    s.get("select trax.disable_manifest('m')").await;
    run_once(&s).await;
    s.get("select trax.enable_manifest('m')").await;
    assert_eq!(s.tick("queue_due").await, 0, "it runs once");
    s.assert_healthy().await;
}

#[tokio::test]
async fn run_at_that_waited_for_its_start_is_queued_once() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', run_at => '2000-01-01Z', starts_at => '2001-01-01Z')")
        .await;
    assert_eq!(s.tick("queue_due").await, 1);
    s.get("select trax.disable_manifest('m'), trax.enable_manifest('m')")
        .await;
    assert_eq!(s.tick("queue_due").await, 0);
    run_once(&s).await;
    assert_eq!(s.tick("queue_due").await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_trigger_before_its_time_does_not_use_up_run_at() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', run_at => '2099-01-01Z'); select trax.trigger('m')")
        .await;
    run_once(&s).await;
    assert_eq!(s.get(STATE).await, "m|t||2099-01-01 00:00:00");
}

#[tokio::test]
async fn the_end_of_a_triggered_job_does_not_use_up_run_at_whose_job_waits_or_runs() {
    for end in ["select trax.cancel({id})", "claim and complete"] {
        let (_db, s) = session().await;
        s.get("select trax.schedule('m', 'a', run_at => '2000-01-01Z', max_concurrency => 2)")
            .await;
        assert_eq!(s.tick("queue_due").await, 1);
        let scheduled = s.claim_one("").await;
        s.get(&format!("select trax.release({})", scheduled.key()))
            .await;
        let triggered = s.number("select trax.trigger('m')").await;
        if end.contains("cancel") {
            s.get(&end.replace("{id}", &triggered.to_string())).await;
        } else {
            let jobs = s.claim("max_jobs => 2").await;
            let by_hand = jobs
                .iter()
                .find(|job| job.id == triggered)
                .expect("both run");
            s.get(&format!("select trax.complete({})", by_hand.key()))
                .await;
        }
        let state = "select m.enabled, s.parked_on from trax.manifest m join trax.manifest_state s using (manifest_id)";
        assert_eq!(s.get(state).await, "t|outcome", "{end}");
        s.get(&format!("select trax.cancel({})", scheduled.id))
            .await;
        s.get("select trax.acknowledge_cancel(job_id, token) from trax.lease")
            .await;
        assert_eq!(s.get(state).await, "f|ended", "{end}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn every_of_months_counts_calendar_months_wherever_it_is_asked() {
    let (_db, s) = session().await;
    s.get("set timezone = 'UTC'").await;
    // With two at once the interval counts from the start, with one from the success, and the
    // preview agrees.
    s.get(
        "select trax.schedule('start', 'a', every => '12 months', max_concurrency => 2);
         select trax.schedule('success', 'b', every => '12 months')",
    )
    .await;
    let before = s.get("select clock_timestamp()").await;
    assert_eq!(s.tick("queue_due").await, 2);
    for job in s.claim("max_jobs => 2").await {
        s.get(&format!("select trax.complete({})", job.key())).await;
    }
    let within = |of: &str| {
        format!(
            "{of} between '{before}'::timestamptz + interval '12 months' and now() + interval '12 months'"
        )
    };
    let next = format!(
        "select count(*) filter (where {}), count(*) from trax.manifest_state",
        within("next_run_at")
    );
    assert_eq!(s.get(&next).await, "2|2");
    let previewed = "select p.run_at = s.next_run_at + (n - 1) * interval '12 months'
        from trax.manifest_state s join trax.manifest m using (manifest_id),
            trax.preview(m.name, count => 3) with ordinality p (run_at, local_time, note, n)";
    assert_eq!(s.get(previewed).await, "t\nt\nt\nt\nt\nt");
}

#[tokio::test]
async fn every_runs_at_once_and_then_after_a_delay_from_its_success() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '90 min')")
        .await;
    assert_eq!(s.tick("queue_due").await, 1);
    assert_eq!(
        s.get(STATE).await,
        "m|t|outcome|",
        "nothing is due while it waits or runs"
    );
    // After a long attempt, the delay counts from its end.
    let job = s.claim_one("").await;
    s.get("update trax.lease set started_at = now() - interval '3 h'")
        .await;
    s.get(&format!("select trax.complete({})", job.key())).await;
    let next = "select s.next_run_at - r.finished_at, s.last_success_at = r.finished_at, s.parked_on
                from trax.manifest_state s join trax.run r using (manifest_id) order by r.finished_at desc limit 1";
    assert_eq!(s.get(next).await, "01:30:00|t|");
    assert_eq!(s.tick("queue_due").await, 0);
    s.get("update trax.manifest_state set next_run_at = now(), next_scheduled_for = now()")
        .await;
    assert_eq!(s.tick("queue_due").await, 1);
    run_once(&s).await;
    assert_eq!(s.get(next).await, "01:30:00|t|");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_retry_of_every_is_not_its_success() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h', retry_delay => '0')")
        .await;
    s.tick("queue_due").await;
    let job = s.claim_one("").await;
    assert_eq!(
        s.get(&format!("select trax.fail({}, 'no')", job.key()))
            .await,
        "retrying"
    );
    assert_eq!(s.get(STATE).await, "m|t|outcome|");
    assert_eq!(s.tick("queue_due").await, 0);
    run_once(&s).await;
    assert_eq!(
        s.get("select next_run_at > now() from trax.manifest_state")
            .await,
        "t"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cancelled_occurrence_counts_as_done() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('every', 'a', every => '1 h'); select trax.schedule('once', 'a', run_at => '2000-01-01Z')").await;
    assert_eq!(s.tick("queue_due").await, 2);
    assert_eq!(
        s.get("select distinct trax.cancel(job_id) from trax.work_queue")
            .await,
        "cancelled"
    );
    assert_eq!(s.tick("queue_due").await, 0);
    let next = "select m.name, s.next_run_at > now() + interval '59 min', s.last_success_at
                from trax.manifest m join trax.manifest_state s using (manifest_id) order by m.name";
    assert_eq!(s.get(next).await, "every|t|\nonce||");
    s.assert_healthy().await;
}
