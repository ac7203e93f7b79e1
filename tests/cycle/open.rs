//! A cycle does not wait for a worker's transaction, however long that stays open.

use harness::manifest::complete;
use harness::session::{Session, session};
use trax_client::testkit::Database;

/// Runs a cycle in a new backend, which performs every step, and checks that it does not wait.
async fn cycle(db: &Database) -> Session {
    let manager = Session::of(db).await;
    manager.get("set lock_timeout = '30 s'").await;
    manager.get("select * from trax.tick()").await;
    manager
}

#[tokio::test]
async fn a_cycle_waits_for_no_report_of_progress() {
    let (db, s) = session().await;
    let id = s.enqueue("'a'").await;
    let first = s.claim_one("").await;
    s.get(&format!(
        "select trax.report_progress({}, '1')",
        first.key()
    ))
    .await;
    s.get(&format!(
        "select trax.fail({}, 'no', retry_in => '0 s')",
        first.key()
    ))
    .await;
    s.get("update trax.progress set reported_at = now() - interval '2 min'")
        .await;
    let worker = Session::of(&db).await;
    let second = worker.claim_one("").await;
    worker
        .get(&format!(
            "begin; select trax.report_progress({}, '2')",
            second.key()
        ))
        .await;
    cycle(&db).await;
    worker
        .get(&format!("select trax.complete({}); commit", second.key()))
        .await;
    let state = format!("select state from trax.job where job_id = {id}");
    assert_eq!(s.get(&state).await, "completed");
}

#[tokio::test]
async fn a_cycle_waits_for_no_claim_of_a_worker_that_was_away() {
    let (db, s) = session().await;
    s.enqueue("'a'").await;
    complete(&s, &s.claim_one("worker => 'w'").await).await;
    s.get("update trax.worker set last_seen_at = now() - interval '1 day'")
        .await;
    s.enqueue("'a'").await;
    let worker = Session::of(&db).await;
    worker.get("begin").await;
    worker.claim_one("worker => 'w'").await;
    cycle(&db).await;
    worker.get("commit").await;
    let workers = "select string_agg(name, ',') from trax.worker";
    assert_eq!(s.get(workers).await, "w");
    s.get("update trax.worker set last_seen_at = now() - interval '1 day'; delete from trax.lease")
        .await;
    cycle(&db).await;
    assert_eq!(s.get(workers).await, "", "gone, and executing nothing");
}

#[tokio::test]
async fn a_job_of_a_manifest_that_is_held_expires_in_a_later_cycle() {
    let (db, s) = session().await;
    s.get(
        "select trax.schedule('m', 'a', every => '1 h', overlap => 'allow', max_concurrency => 9)",
    )
    .await;
    for _ in 0..2 {
        s.get("select trax.trigger('m')").await;
    }
    let job = s.claim_one("").await;
    let worker = Session::of(&db).await;
    worker.get("begin").await;
    complete(&worker, &job).await;
    let free = s.enqueue("'a'").await;
    s.get("update trax.work_queue set expires_at = now() - interval '1 s'")
        .await;
    cycle(&db).await;
    let expired = "select string_agg(job_id::text, ',' order by job_id) from trax.run where failure_kind = 'expired'";
    assert_eq!(s.get(expired).await, free.to_string());
    worker.get("commit").await;
    cycle(&db).await;
    assert_eq!(
        s.get(expired).await,
        format!("{},{free}", job.id + 1),
        "now its manifest is free"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn jobs_whose_manifest_is_held_hide_no_others_that_expire() {
    let (db, s) = session().await;
    s.get(
        "select trax.schedule('m', 'a', every => '1 h');
           select count(trax.trigger('m')) from generate_series(1, 1000)",
    )
    .await;
    let free = s.enqueue("'a'").await;
    s.get(&format!(
        "update trax.work_queue set expires_at = now() - case when job_id = {free} then interval '1 s' else interval '2 s' end"
    ))
    .await;
    let holder = Session::of(&db).await;
    holder
        .get("begin; select from trax.manifest_state for update")
        .await;
    assert_eq!(s.tick("expire_queued").await, 1);
    let expired =
        "select string_agg(job_id::text, ',') from trax.run where failure_kind = 'expired'";
    assert_eq!(s.get(expired).await, free.to_string());
    holder.get("commit").await;
    assert_eq!(s.tick("expire_queued").await, 1000);
    s.assert_healthy().await;
}
