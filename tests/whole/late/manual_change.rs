//! Rows written by hand are found at once, whatever shared memory contained before.

use harness::session::{Session, session};

/// A lane that is known to be empty.
async fn emptied() -> (trax_client::testkit::Database, Session) {
    let (db, s) = session().await;
    for _ in 0..2 {
        let job = s.enqueue("'a'").await;
        assert_eq!(s.claim_ids("max_jobs => 9").await, [job]);
    }
    assert!(s.claim_ids("").await.is_empty());
    (db, s)
}

const INSERT: &str =
    "insert into trax.work_queue (lane_id, queued_at, run_at, task, group_name, priority, input)
     values (trax.lane_of('default', 'a'), now(), now(), 'a', 'default', 7, '{}')";

#[tokio::test]
async fn a_row_inserted_by_hand_is_claimed_at_once() {
    let (db, s) = emptied().await;
    s.get(INSERT).await;
    assert_eq!(Session::of(&db).await.claim("").await.len(), 1);
}

#[tokio::test]
async fn who_inserts_by_hand_may_claim_in_the_same_transaction() {
    let (_db, s) = emptied().await;
    s.get("begin").await;
    s.get(INSERT).await;
    assert_eq!(s.claim("").await.len(), 1);
    s.get("commit").await;
}

#[tokio::test]
async fn a_priority_raised_by_hand_counts_at_once() {
    let (_db, s) = emptied().await;
    let (first, second) = (s.enqueue("'a'").await, s.enqueue("'a'").await);
    s.get("select 1").await;
    s.get(&format!(
        "update trax.work_queue set priority = 9 where job_id = {second}"
    ))
    .await;
    assert_eq!(s.claim_ids("max_jobs => 2").await, [second, first]);
}

#[tokio::test]
async fn leases_removed_by_hand_make_room_at_once() {
    let (_db, s) = session().await;
    s.get("select trax.configure_group('g', max_active_jobs => 1)")
        .await;
    for _ in 0..2 {
        s.enqueue("'a', group_name => 'g'").await;
    }
    assert_eq!(s.claim("max_jobs => 9").await.len(), 1);
    assert!(s.claim("").await.is_empty(), "the group is full");
    s.get("truncate trax.lease").await;
    assert_eq!(s.claim("").await.len(), 1);
}

/// A statement of trax itself is not a change by hand, but a write by a foreign trigger that it
/// fires is.
#[tokio::test]
async fn what_a_trigger_writes_because_of_our_statement_is_claimed_at_once() {
    let (db, s) = emptied().await;
    s.get(&format!(
        "create function again() returns trigger language plpgsql as $$ begin {INSERT}; return null; end $$;
         create trigger again after delete on trax.lease for each row execute function again()"
    ))
    .await;
    let worker = Session::of(&db).await;
    worker
        .get("select trax.complete(job_id, token) from trax.lease limit 1")
        .await;
    assert_eq!(worker.claim("max_jobs => 9").await.len(), 1);
    assert!(Session::of(&db).await.claim("").await.is_empty());
}
