//! Many events and needs: what they cost, and what they may not keep from others.

use super::{assert_no_needs, complete, queued, states};
use harness::limit::buffers;
use harness::session::{Session, session};

#[tokio::test]
async fn dead_events_are_not_read_by_each_cycle_and_a_late_one_is_found() {
    let (db, s) = session().await;
    let (reader, late) = (Session::of(&db).await, Session::of(&db).await);
    queued(&s, "a b:a c d:c", "cancel").await;
    let a = s.claim_one("tasks => '{a}'").await;
    late.get(&format!("begin; select trax.complete({})", a.key()))
        .await;
    reader
        .get("begin isolation level repeatable read; select count(*) from trax.need_event")
        .await;
    s.get(
        "insert into trax.need_event (job_id) select n from generate_series(1000000, 1499999) n;
         delete from trax.need_event",
    )
    .await;
    let cycle = "select * from trax.tick()";
    let whole = buffers(&s, cycle).await;
    let mut least = whole;
    for _ in 0..5 {
        least = least.min(buffers(&s, cycle).await);
    }
    assert!(least * 4 < whole, "{whole} buffers, then {least}");
    complete(&s, "c").await;
    assert_eq!(s.tick("promote_delayed").await, 1, "d");
    late.get("commit").await;
    let woken = "select max(affected) filter (where step = 'promote_delayed') from trax.tick()";
    s.becomes(woken, "1").await;
    reader.get("commit").await;
    complete(&s, "b").await;
    complete(&s, "d").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_locked_job_with_many_needs_leaves_room_for_others() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    let ids = queued(&s, "a b:a", "cancel").await;
    let b = ids["b"];
    s.get(&format!(
        "insert into trax.need (needed_job_id, job_id, one_is_enough, condition)
         select n, {b}, false, 'completed' from generate_series(1000001, 1030000) n;
         insert into trax.need_event (job_id, waits) values ({b}, true)"
    ))
    .await;
    other
        .get(&format!("begin; select trax.limit_queue_time({b}, '1 h')"))
        .await;
    for _ in 0..5 {
        queued(&s, "x y:x", "cancel").await;
        complete(&s, "x").await;
    }
    assert_eq!(s.tick("promote_delayed").await, 5);
    other.get("rollback").await;
    s.get("select * from trax.tick()").await;
    assert_eq!(states(&s, ids["a"]).await, "a queued, b cancelled");
}

#[tokio::test]
async fn history_that_an_event_needs_is_not_dropped() {
    let (db, s) = session().await;
    let ids = queued(&s, "a b:a", "cancel").await;
    // As many as one cycle takes.
    s.get(
        "insert into trax.need_event (job_id) select n from generate_series(1000001, 1010000) n;
         select trax.make_run_partitions(now() - interval '9 days', 0)",
    )
    .await;
    complete(&s, "a").await;
    s.get("update trax.run set finished_at = now() - interval '9 days'")
        .await;
    let cycle = Session::of(&db).await;
    assert_eq!(cycle.tick("promote_delayed").await, 0);
    assert_eq!(cycle.tick("promote_delayed").await, 1);
    assert_eq!(states(&s, ids["a"]).await, "a completed, b queued");
    let later = Session::of(&db).await;
    assert_eq!(later.tick("drop_partitions").await, 1);
    complete(&s, "b").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn very_many_jobs_that_wait_for_a_person_keep_no_cycle_busy() {
    let (_db, s) = session().await;
    let ids = queued(&s, "a b:a", "wait").await;
    let (a, b) = (ids["a"], ids["b"]);
    s.get(&format!(
        "insert into trax.need (needed_job_id, job_id, one_is_enough, awaits_requeue, condition)
         select {a}, q.job_id, false, true, 'completed'
         from (select trax.enqueue('c') as job_id from generate_series(1, 12000)) q;
         update trax.work_queue set waits_for = 'jobs' where task = 'c'"
    ))
    .await;
    let letter = s.claim_one("tasks => '{a}'").await;
    s.get(&format!(
        "select trax.fail({}, 'no', permanent => true)",
        letter.key()
    ))
    .await;
    assert_eq!(s.tick("promote_delayed").await, 0);
    assert_eq!(s.get("select count(*) from trax.need_event").await, "0");
    s.get("select trax.requeue_dead_letter(id) from trax.dead_letter")
        .await;
    complete(&s, "a").await;
    assert_eq!(s.tick("promote_delayed").await, 12_001);
    s.get(&format!("select trax.cancel({b})")).await;
    assert_no_needs(&s).await;
}
