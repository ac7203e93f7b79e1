//! Sleeping.

use super::{place, running, steps};
use harness::session::session;
use harness::statement::statement;

#[tokio::test]
async fn a_job_sleeps_without_using_its_attempt() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    let sleep = |key: &str| format!("select trax.sleep({key}, 'nap', now() + interval '1 hour')");
    assert_eq!(s.get(&sleep(&job.key())).await, "suspended");
    assert_eq!(place(&s, job.id).await, "time|0|1");
    assert_eq!(
        s.get(&sleep(&job.key())).await,
        "lost",
        "the attempt has ended"
    );
    assert_eq!(s.get("select count(*) from trax.run").await, "0");
    assert!(s.claim("").await.is_empty());
    assert_eq!(steps(&s, job.id).await, "nap|sleep||f");
    let until = "select (wait ->> 'until')::timestamptz = run_at from trax.step join trax.work_queue using (job_id)";
    assert_eq!(s.get(until).await, "t");
    s.get("update trax.work_queue set run_at = now()").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    let again = s.claim_one("").await;
    assert_eq!(s.get("select attempt from trax.lease").await, "1");
    assert_eq!(s.get(&sleep(&again.key())).await, "passed");
    assert_eq!(s.get(&sleep(&again.key())).await, "passed");
    assert_eq!(steps(&s, job.id).await, "nap|sleep||t");
    s.get(&format!("select trax.complete({})", again.key()))
        .await;
    assert_eq!(steps(&s, job.id).await, "nap|sleep||t");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_queue_time_limit_ends_no_suspended_job() {
    let (_db, s) = session().await;
    for wait in [
        "trax.sleep({}, 'nap', now() + interval '1 hour')",
        "(select state from trax.await_signal({}, 'go', 'go'))",
    ] {
        let job = s.enqueue("'a'").await;
        let limit = format!("select trax.limit_queue_time({job}, '1 us')");
        assert_eq!(s.get(&limit).await, "t");
        let claimed = s.claim_one("").await;
        let suspend = format!("select {}", wait.replace("{}", &claimed.key()));
        assert_eq!(s.get(&suspend).await, "suspended");
        assert_eq!(s.tick("expire_queued").await, 0, "{wait}");
        let limited = s.get(&limit).await;
        // A job that sleeps may wait so long after its time.
        assert_eq!(limited == "t", wait.contains("sleep"), "{wait}");
        assert_eq!(s.tick("expire_queued").await, 0, "{wait}");
        s.get(&format!("select trax.cancel({job})")).await;
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_time_that_is_over_does_not_suspend() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    let past = format!(
        "select trax.sleep({}, 'nap', now() - interval '1 s')",
        job.key()
    );
    assert_eq!(s.get(&past).await, "passed");
    assert_eq!(s.get(&past).await, "passed");
    let refusal = s
        .refusal(&format!(
            "select trax.sleep({}, 'b', 'infinity')",
            job.key()
        ))
        .await;
    assert_eq!(refusal.code, "22023");
    let refusal = s
        .refusal(&format!("select trax.sleep({}, 'b', null)", job.key()))
        .await;
    assert_eq!(refusal.code, "22004");
}

#[tokio::test]
async fn a_person_may_let_a_sleeping_job_run() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    let sleep = |key: &str| format!("select trax.sleep({key}, 'nap', now() + interval '1 hour')");
    s.get(&sleep(&job.key())).await;
    let now = format!("select trax.run_now({})", job.id);
    assert_eq!(s.get(&now).await, "ready");
    let again = s.claim_one("").await;
    assert_eq!(s.get(&sleep(&again.key())).await, "passed");
}

#[tokio::test]
async fn a_job_that_is_asked_to_stop_ends_instead_of_sleeping() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    s.get(&format!("select trax.cancel({})", job.id)).await;
    let sleep = format!(
        "select trax.sleep({}, 'nap', now() + interval '1 hour')",
        job.key()
    );
    assert_eq!(s.get(&sleep).await, "lost");
    let state = "select state, steps from trax.run";
    assert_eq!(s.get(state).await, "cancelled|");
    assert_eq!(s.get("select count(*) from trax.step").await, "0");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_place_under_a_limit_is_free_while_a_job_sleeps() {
    let (_db, s) = session().await;
    s.get("select trax.configure_group('default', max_active_jobs => 1)")
        .await;
    s.enqueue("'flow', concurrency_key => 'k'").await;
    let other = s.enqueue("'flow', concurrency_key => 'k'").await;
    let job = s.claim_one("").await;
    assert!(s.claim("").await.is_empty());
    s.get(&format!(
        "select trax.sleep({}, 'nap', now() + interval '1 hour')",
        job.key()
    ))
    .await;
    assert_eq!(s.claim_ids("").await, [other]);
}

#[tokio::test]
async fn a_job_that_was_suspended_by_a_clock_ahead_of_now_stays_suspended() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    let wait = |key: &str| {
        format!("select state from trax.await_signal({key}, 'w', 'click', now() + interval '1 h')")
    };
    assert_eq!(s.get(&wait(&job.key())).await, "suspended");
    // The effect of a suspension while the clock was a day ahead, and of the correction after it.
    let correct = statement("ReadyTooEarly")
        .replace("$1", "clock_timestamp()")
        .replace("$2", "(clock_timestamp() + interval '1 h')");
    s.get("update trax.work_queue set run_at = now() + interval '1 day'")
        .await;
    s.get(&correct).await;
    assert_eq!(place(&s, job.id).await, "signal|0|1");
    let corrected = "select run_at <= clock_timestamp() from trax.work_queue";
    assert_eq!(s.get(corrected).await, "t");
    s.get(&format!("select trax.send_signal({}, 'click')", job.id))
        .await;
    let again = s.claim_one("").await;
    assert_eq!(s.get(&wait(&again.key())).await, "received");
}
