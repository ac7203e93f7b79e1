//! Claims that wait for many jobs: `min_jobs` and `max_wait`.

use super::*;
use std::time::Instant;

const FILTER: &str = "tasks => '{index}', max_jobs => 5, min_jobs => 3";

async fn enqueue(s: &Session, count: i64) {
    s.get(&format!(
        "select trax.enqueue_many('index', array_agg(to_jsonb(n))) from generate_series(1, {count}) n"
    ))
    .await;
}

#[tokio::test]
async fn fewer_jobs_are_left_alone_until_there_are_enough() {
    let (_db, s) = session().await;
    enqueue(&s, 2).await;
    s.enqueue("'other'").await;
    let before = s.everything().await;
    assert!(s.claim(FILTER).await.is_empty());
    assert_eq!(s.everything().await, before);
    enqueue(&s, 5).await;
    assert_eq!(s.claim_ids(FILTER).await.len(), 5);
    assert!(s.claim(FILTER).await.is_empty());
    // Others may claim them at any time.
    assert_eq!(s.claim_ids("tasks => '{index}'").await.len(), 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_that_was_ready_for_long_enough_is_claimed_with_those_that_there_are() {
    let (_db, s) = session().await;
    enqueue(&s, 2).await;
    let waiting = format!("{FILTER}, max_wait => '1 min'");
    assert!(s.claim(&waiting).await.is_empty());
    // The wait of a delayed job begins at its time.
    s.get("update trax.work_queue set queued_at = now() - interval '1 h' where job_id = 1")
        .await;
    assert!(s.claim(&waiting).await.is_empty());
    s.get("update trax.work_queue set run_at = now() - interval '61 s' where job_id = 1")
        .await;
    assert_eq!(s.claim_ids(&waiting).await, [1, 2]);
}

#[tokio::test]
async fn a_session_that_waits_for_work_wakes_when_the_first_job_has_waited_long_enough() {
    let (_db, s) = session().await;
    enqueue(&s, 1).await;
    let waiting = format!("{FILTER}, max_wait => '400 ms'");
    let begun = Instant::now();
    let mut calls = 0;
    while s.claim(&waiting).await.is_empty() {
        s.client()
            .batch_execute("call trax.wait_for_work('1 min')")
            .await
            .expect("it waits");
        calls += 1;
    }
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    // The session does not spin: the first wait of a claim with a filter looks for itself, once.
    assert!(calls <= 6, "{calls}");
}

#[tokio::test]
async fn a_session_that_waits_for_work_wakes_when_enough_jobs_are_ready() {
    let (db, s) = session().await;
    enqueue(&s, 2).await;
    let waiter = Session::of(&db).await;
    assert!(waiter.claim(FILTER).await.is_empty());
    let waiter = waiter.spawn("call trax.wait_for_work('10 min')");
    enqueue(&s, 1).await;
    let (waiter, woken) = waiter.await.expect("the session ends");
    woken.expect("it waits");
    assert_eq!(waiter.claim_ids(FILTER).await.len(), 3);
}

#[tokio::test]
async fn of_two_claims_at_once_none_gets_the_few_that_the_other_leaves() {
    let (db, mut s) = session().await;
    let other = Session::of(&db).await;
    enqueue(&s, 7).await;
    let transaction = s.transaction().await;
    let claim = format!("select count(*) from trax.claim_next({FILTER})");
    let taken: i64 = transaction
        .query_one(&claim, &[])
        .await
        .expect("a claim")
        .get(0);
    assert_eq!(taken, 5);
    assert!(other.claim(FILTER).await.is_empty());
    transaction.commit().await.expect("the claim commits");
    assert!(other.claim(FILTER).await.is_empty());
    enqueue(&other, 1).await;
    assert_eq!(other.claim_ids(FILTER).await.len(), 3);
    other.assert_healthy().await;
}

#[tokio::test]
async fn the_jobs_of_a_claim_that_was_rolled_back_are_enough_again() {
    let (db, mut s) = session().await;
    let other = Session::of(&db).await;
    enqueue(&s, 3).await;
    let transaction = s.transaction().await;
    let claim = format!("select count(*) from trax.claim_next({FILTER})");
    transaction.query_one(&claim, &[]).await.expect("a claim");
    assert!(other.claim(FILTER).await.is_empty());
    let other = other.spawn("call trax.wait_for_work('10 min')");
    transaction.rollback().await.expect("it is undone");
    let (other, woken) = other.await.expect("the session ends");
    woken.expect("it waits");
    assert_eq!(other.claim_ids(FILTER).await.len(), 3);
}

#[tokio::test]
async fn a_limit_that_has_no_room_for_more_is_no_reason_to_wait() {
    let (_db, s) = session().await;
    s.get("select trax.configure_group('g', max_active_jobs => 2)")
        .await;
    s.get("select trax.enqueue_many('index', '{1, 2, 3, 4}', group_name => 'g')")
        .await;
    assert_eq!(s.claim_ids(FILTER).await.len(), 2);
    assert!(s.claim(FILTER).await.is_empty());
    s.assert_healthy().await;
}

#[tokio::test]
async fn completions_are_recorded_although_too_few_jobs_are_ready() {
    let (_db, s) = session().await;
    enqueue(&s, 3).await;
    let held = s.claim_one("").await;
    let call = format!(
        "select completed_job_id, job_id from trax.complete_and_claim(array[{}], array['{}']::uuid[], {FILTER})",
        held.id, held.token
    );
    assert_eq!(s.get(&call).await, format!("{}|", held.id));
}

#[tokio::test]
async fn numbers_that_contradict_each_other_are_refused_with_what_to_type() {
    let (_db, s) = session().await;
    let more = s
        .refusal("select * from trax.claim_next(max_jobs => 2, min_jobs => 3)")
        .await;
    assert_eq!(
        (more.code.as_str(), more.hint.as_str()),
        (
            "22023",
            "Specify both, for example: max_jobs => 3, min_jobs => 3"
        )
    );
    let alone = s
        .refusal("select * from trax.claim_next(max_wait => '5 s')")
        .await;
    assert_eq!(
        (alone.code.as_str(), alone.message.as_str()),
        ("22023", "argument \"max_wait\" needs min_jobs")
    );
}
