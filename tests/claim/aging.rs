//! `trax.priority_aging`: a job that has waited long is claimed before younger ones of higher
//! priority.

use harness::session::{Session, session};
use trax_client::testkit::Database;

/// A database in which a minute of waiting is worth one step of priority, and a session with that
/// setting.
async fn aging() -> (Database, Session) {
    let (db, s) = session().await;
    s.get(&format!(
        "alter database {} set trax.priority_aging = '60s'",
        db.name()
    ))
    .await;
    let s = Session::of(&db).await;
    (db, s)
}

/// Enqueues a job with these arguments, and sets its times this many minutes back.
async fn waiting_since(s: &Session, minutes: i32, arguments: &str) -> i64 {
    let id = s.enqueue(arguments).await;
    s.get(&format!(
        "update trax.work_queue
         set queued_at = queued_at - interval '{minutes} min', run_at = run_at - interval '{minutes} min'
         where job_id = {id}"
    ))
    .await;
    id
}

#[tokio::test]
async fn without_aging_priority_counts_however_long_a_job_has_waited() {
    let (_db, s) = session().await;
    let old = waiting_since(&s, 10_000, "'a'").await;
    let young = s.enqueue("'a', priority => 1").await;
    assert_eq!(s.claim_ids("max_jobs => 2").await, [young, old]);
}

#[tokio::test]
async fn each_step_of_waiting_is_worth_a_step_of_priority() {
    let (_db, s) = aging().await;
    // In one lane, in two lanes, and with younger jobs before it in the table.
    for task in ["a", "b"] {
        let young = s.enqueue("'a', priority => 5").await;
        let six = waiting_since(&s, 6, &format!("'{task}'")).await;
        let four = waiting_since(&s, 4, &format!("'{task}'")).await;
        assert_eq!(
            s.claim_ids("max_jobs => 9").await,
            [six, young, four],
            "{task}"
        );
    }
}

#[tokio::test]
async fn a_claim_of_one_finds_the_old_job_behind_any_number_of_younger_ones() {
    let (_db, s) = aging().await;
    let old = waiting_since(&s, 40, "'a'").await;
    s.get("select count(trax.enqueue('a', priority => 20)) from generate_series(1, 500)")
        .await;
    assert_eq!(s.claim_ids("").await, [old]);
}

#[tokio::test]
async fn of_two_that_have_waited_long_enough_for_the_highest_priority_the_older_goes_first() {
    let (_db, s) = aging().await;
    let first = waiting_since(&s, 2000, "'a'").await;
    let second = waiting_since(&s, 2000, "'a', priority => 9").await;
    assert_eq!(s.claim_ids("max_jobs => 2").await, [first, second]);
}

#[tokio::test]
async fn the_time_before_a_delayed_job_was_due_does_not_count() {
    let (_db, s) = aging().await;
    let delayed = s.enqueue("'a'").await;
    s.get("update trax.work_queue set queued_at = queued_at - interval '1 day'")
        .await;
    let young = s.enqueue("'a', priority => 1").await;
    assert_eq!(s.claim_ids("max_jobs => 2").await, [young, delayed]);
}

#[tokio::test]
async fn a_low_priority_is_served_however_many_higher_ones_come() {
    let (_db, s) = aging().await;
    let low = s.enqueue("'a'").await;
    // Twice as many jobs arrive as are claimed. Only those of the first ten minutes are claimed
    // before the low-priority job.
    for claimed in 0..40 {
        for _ in 0..2 {
            s.enqueue("'a', priority => 10").await;
        }
        if s.claim_ids("").await == [low] {
            assert!((20..=22).contains(&claimed), "{claimed} went before it");
            return;
        }
        s.get(
            "update trax.work_queue
             set queued_at = queued_at - interval '1 min', run_at = run_at - interval '1 min'",
        )
        .await;
    }
    panic!("it starved");
}

#[tokio::test]
async fn limits_hold_for_jobs_that_have_aged() {
    let (_db, s) = aging().await;
    s.get("select trax.configure_group('g', max_active_jobs => 1)")
        .await;
    for _ in 0..3 {
        waiting_since(&s, 50, "'a', group_name => 'g', concurrency_key => 'k'").await;
    }
    let young = s.enqueue("'a'").await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, [1, young]);
    s.assert_healthy().await;
}

#[tokio::test]
async fn as_many_steps_as_there_are_priorities_lift_a_job_past_the_next_group() {
    let (_db, s) = aging().await;
    s.get("select trax.configure_group('high', priority => 1)")
        .await;
    let long = waiting_since(&s, 40, "'a'").await;
    let less = waiting_since(&s, 25, "'a'").await;
    let high = s.enqueue("'a', group_name => 'high'").await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, [long, high, less]);
}
