//! Cancellation of a job in every place.

use harness::session::{Claimed, Session, session};

#[tokio::test]
async fn cancel_says_where_the_job_was() {
    let (_db, s) = session().await;
    let id = s.enqueue("'a'").await;
    let cancel = format!("select trax.cancel({id})");
    assert_eq!(s.get("select trax.cancel(999999)").await, "unknown");
    assert_eq!(s.get(&cancel).await, "cancelled");
    let run =
        "select job_id, attempt, state, failure_kind, final, started_at, worker from trax.run";
    assert_eq!(s.get(run).await, format!("{id}|0|cancelled||t||"));
    assert_eq!(s.get("select count(*) from trax.dead_letter").await, "0");
    assert!(s.claim("").await.is_empty());
    let before = s.everything().await;
    assert_eq!(s.get(&cancel).await, "finished");
    assert_eq!(s.everything().await, before);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_delayed_job_and_a_retry_can_be_cancelled() {
    let (_db, s) = session().await;
    let delayed = s.enqueue("'a', run_at => now() + interval '1 h'").await;
    let retried = s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.fail({}, 'no')", job.key()))
        .await;
    assert_eq!(
        s.get(&format!(
            "select trax.cancel({delayed}), trax.cancel({retried})"
        ))
        .await,
        "cancelled|cancelled"
    );
    let jobs = s
        .get("select job_id, state, attempt from trax.job order by job_id")
        .await;
    assert_eq!(
        jobs,
        format!("{delayed}|cancelled|0\n{retried}|cancelled|1")
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_worker_cancels_its_own_job_and_no_other() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', cron => '0 0 29 2 *', max_retries => 3)")
        .await;
    let id = s.get("select trax.trigger('m')").await;
    let job = s.claim_one("").await;
    s.get("update trax.lease set lease_expires_at = now() - interval '1 s', reap_at = now() - interval '1 s'; select * from trax.tick()")
        .await;
    let again = s.claim_one("").await;
    let before = s.everything().await;
    let stale = format!("select trax.cancel_own({}, 'late')", job.key());
    assert_eq!(s.get(&stale).await, "f", "another has it");
    assert_eq!(s.everything().await, before);
    let own = format!(
        "select trax.cancel_own({}, 'the order is gone')",
        again.key()
    );
    assert_eq!(s.get(&own).await, "t");
    assert_eq!(s.get(&own).await, "f");
    let run = "select job_id, attempt, state, failure_kind, final, error from trax.run where final";
    assert_eq!(
        s.get(run).await,
        format!("{id}|2|cancelled||t|the order is gone")
    );
    let left =
        "select (select count(*) from trax.dead_letter), (select count(*) from trax.work_queue)";
    assert_eq!(s.get(left).await, "0|0");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_running_job_is_asked_to_stop_and_acknowledges() {
    let (_db, s) = session().await;
    let id = s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    let acknowledge = format!("select trax.acknowledge_cancel({})", job.key());
    let before = s.everything().await;
    assert_eq!(s.get(&acknowledge).await, "f", "nobody asked");
    assert_eq!(s.everything().await, before);
    assert_eq!(
        s.get(&format!("select trax.cancel({id})")).await,
        "requested"
    );
    assert_eq!(
        s.get(&format!("select trax.cancel({id})")).await,
        "requested"
    );
    assert_eq!(
        s.get("select cancel_requested, timed_out from trax.lease")
            .await,
        "t|f"
    );
    assert_eq!(s.get(&acknowledge).await, "t");
    assert_eq!(
        s.get("select state, failure_kind, final, attempt from trax.run")
            .await,
        "cancelled||t|1"
    );
    assert_eq!(s.get(&acknowledge).await, "f");
    assert_eq!(s.get("select count(*) from trax.dead_letter").await, "0");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cancelled_job_that_fails_is_neither_retried_nor_a_dead_letter() {
    let (_db, s) = session().await;
    for arguments in ["", ", permanent => true", ", retry_in => '1 s'"] {
        s.enqueue("'a'").await;
        let job = s.claim_one("").await;
        s.get(&format!("select trax.cancel({})", job.id)).await;
        assert_eq!(
            s.get(&format!(
                "select trax.fail({}, 'stopped'{arguments})",
                job.key()
            ))
            .await,
            "dead"
        );
    }
    assert_eq!(
        s.get("select distinct state, error, final from trax.run")
            .await,
        "cancelled|stopped|t"
    );
    let left =
        "select (select count(*) from trax.work_queue), (select count(*) from trax.dead_letter)";
    assert_eq!(s.get(left).await, "0|0");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cancelled_job_that_was_done_anyway_is_completed() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.cancel({})", job.id)).await;
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "t"
    );
    assert_eq!(s.get("select state from trax.job").await, "completed");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cancelled_job_whose_worker_is_gone_ends_as_cancelled() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.cancel({})", job.id)).await;
    s.get("update trax.lease set lease_expires_at = now() - interval '1 s', reap_at = now() - interval '1 s'").await;
    assert_eq!(s.tick("reap_expired_leases").await, 1);
    assert_eq!(
        s.get("select state, final from trax.run").await,
        "cancelled|t"
    );
    s.assert_healthy().await;
}

/// Checks that the worker's acknowledgement cancels the job, and that the job is not retried.
async fn acknowledged_and_not_retried(s: &Session, job: &Claimed) {
    assert_eq!(
        s.get(&format!("select trax.acknowledge_cancel({})", job.key()))
            .await,
        "t"
    );
    assert_eq!(
        s.get("select state, final from trax.run").await,
        "cancelled|t"
    );
    assert_eq!(
        s.number("select count(*) from trax.work_queue").await,
        0,
        "a cancelled job is not retried"
    );
}

#[tokio::test]
async fn a_cancelled_job_that_times_out_meanwhile_stays_cancelled() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    assert_eq!(
        s.get(&format!("select trax.cancel({})", job.id)).await,
        "requested"
    );
    s.get("update trax.lease set timeout_at = now() - interval '1 s', reap_at = now() - interval '1 s'").await;
    s.tick("cancel_timed_out").await;
    acknowledged_and_not_retried(&s, &job).await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_timed_out_job_that_is_cancelled_afterwards_is_cancelled() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    s.get("update trax.lease set timeout_at = now() - interval '1 s', reap_at = now() - interval '1 s'").await;
    s.tick("cancel_timed_out").await;
    assert_eq!(
        s.get(&format!("select trax.cancel({})", job.id)).await,
        "requested"
    );
    acknowledged_and_not_retried(&s, &job).await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_whose_attempt_is_just_ending_is_cancelled_with_its_group() {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'a', retry_delay => '0 s')")
        .await;
    for ending in ["fail($, 'no')", "release($)"] {
        for call in ["cancel_group('default')", "cancel_manifest('m')"] {
            s.get("select trax.trigger('m')").await;
            let job = s.claim_one("lease => '1 h'").await;
            // Other jobs of the group, before and behind it.
            s.get("select trax.trigger('m')").await;
            let (worker, canceller) = (Session::of(&db).await, Session::of(&db).await);
            let ending = ending.replace('$', &job.key());
            worker.get(&format!("begin; select trax.{ending}")).await;
            let pid = canceller.pid();
            let cancelling = canceller.spawn(format!("select trax.{call}"));
            s.sees_waiting(pid).await;
            worker.get("commit").await;
            let (_, count) = cancelling.await.expect("the session lives");
            assert_eq!(count, Ok("2".to_owned()), "{ending}: {call}");
            assert!(
                s.claim("max_jobs => 9").await.is_empty(),
                "{ending}: {call}"
            );
            let state = format!("select state from trax.job where job_id = {}", job.id);
            assert_eq!(s.get(&state).await, "cancelled", "{ending}: {call}");
        }
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn jobs_that_are_nowhere_any_more_do_not_keep_a_cancellation() {
    let (db, s) = session().await;
    s.get("select count(*) from trax.enqueue_many('a', array_fill('1'::jsonb, array[8]))")
        .await;
    let done = s.claim("max_jobs => 2, lease => '1 h'").await;
    let (other, canceller) = (Session::of(&db).await, Session::of(&db).await);
    other
        .get(&format!(
            "begin; delete from trax.work_queue where job_id in (3, 4, 7);
            select trax.complete({}); select trax.complete({})",
            done[0].key(),
            done[1].key()
        ))
        .await;
    let pid = canceller.pid();
    let cancelling =
        canceller.spawn("set statement_timeout = '60s'; select trax.cancel_group('default')");
    s.sees_waiting(pid).await;
    other.get("commit").await;
    let (_, count) = cancelling.await.expect("the session lives");
    assert_eq!(count, Ok("3".to_owned()));
}

#[tokio::test]
async fn a_job_that_ended_while_its_group_was_cancelled_is_not_counted() {
    let (db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("lease => '1 h'").await;
    s.enqueue("'b'").await;
    let (worker, canceller) = (Session::of(&db).await, Session::of(&db).await);
    worker
        .get(&format!("begin; select trax.complete({})", job.key()))
        .await;
    let pid = canceller.pid();
    let cancelling = canceller.spawn("select trax.cancel_group('default')");
    s.sees_waiting(pid).await;
    worker.get("commit").await;
    let (_, count) = cancelling.await.expect("the session lives");
    assert_eq!(count, Ok("1".to_owned()));
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_worker_that_measures_the_timeout_itself_need_not_wait_for_a_cycle() {
    let (_db, s) = session().await;
    s.enqueue("'a', timeout => '1 h', max_retries => 1").await;
    let job = s.claim_one("").await;
    let acknowledge = format!("select trax.acknowledge_cancel({})", job.key());
    assert_eq!(s.get(&acknowledge).await, "f", "it is not over");
    s.get("update trax.lease set timeout_at = clock_timestamp() - interval '1 s', ahead = true")
        .await;
    assert_eq!(s.get(&acknowledge).await, "f", "it has not begun");
    s.get("update trax.lease set ahead = false").await;
    assert_eq!(s.get(&acknowledge).await, "t");
    let run = "select state, failure_kind, error, final from trax.run";
    let late = "failed|timeout|it ran longer than its timeout";
    assert!(s.get(run).await.starts_with(late));
    s.assert_healthy().await;
}
