//! Limits of groups.

use harness::manifest::complete;
use harness::session::{Claimed, Session, session};
use harness::{PATIENCE, eventually};
use std::time::{Duration, Instant};
use trax_client::testkit::Database;

const RUNNING: &str = "select count(*) from trax.lease where group_name = 'g'";

/// A group `g` with this limit and waiting jobs.
async fn limited(limit: i32, jobs: i32) -> (Database, Session) {
    let (db, s) = session().await;
    s.get(&format!(
        "select trax.configure_group('g', max_active_jobs => {limit});
         select count(trax.enqueue('t' || n % 2, group_name => 'g')) from generate_series(1, {jobs}) n"
    ))
    .await;
    (db, s)
}

async fn set(s: &Session, limit: i32) {
    s.get(&format!(
        "select trax.configure_group('g', max_active_jobs => {limit})"
    ))
    .await;
}

#[tokio::test]
async fn a_group_runs_as_many_as_its_limit_and_goes_on_as_they_end() {
    let (_db, s) = limited(2, 5).await;
    let free = s.enqueue("'free'").await;
    let jobs = s.claim("max_jobs => 9").await;
    assert_eq!(jobs.len(), 3);
    assert_eq!(jobs.iter().filter(|job| job.id == free).count(), 1);
    assert!(s.claim("max_jobs => 9").await.is_empty());
    let first = jobs.iter().find(|job| job.id != free).expect("one of g");
    complete(&s, first).await;
    assert_eq!(s.claim("max_jobs => 9").await.len(), 1);
    assert_eq!(s.number(RUNNING).await, 2);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_full_group_of_high_priority_does_not_stop_others() {
    let (_db, s) = limited(1, 3).await;
    s.get("select trax.configure_group('g', priority => 31)")
        .await;
    let free = s.enqueue("'free'").await;
    assert_eq!(s.claim("").await.len(), 1);
    assert_eq!(s.claim_ids("").await, [free]);
}

#[tokio::test]
async fn a_limit_that_grows_counts_at_once() {
    let (_db, s) = limited(1, 9).await;
    assert_eq!(s.claim("max_jobs => 9").await.len(), 1);
    set(&s, 4).await;
    assert_eq!(s.claim("max_jobs => 9").await.len(), 3);
    assert!(s.claim("max_jobs => 9").await.is_empty());
}

#[tokio::test]
async fn a_limit_that_shrinks_ends_nothing_and_lets_nothing_in_until_enough_have_ended() {
    let (_db, s) = limited(4, 9).await;
    let jobs = s.claim("max_jobs => 9").await;
    assert_eq!(jobs.len(), 4);
    set(&s, 2).await;
    s.tick("queue_due").await;
    assert_eq!(s.number(RUNNING).await, 4);
    for job in &jobs[..2] {
        assert!(s.claim("max_jobs => 9").await.is_empty());
        complete(&s, job).await;
    }
    assert!(s.claim("max_jobs => 9").await.is_empty(), "two of two run");
    complete(&s, &jobs[2]).await;
    assert_eq!(s.claim("max_jobs => 9").await.len(), 1);
    assert_eq!(s.number(RUNNING).await, 2);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_limit_counts_what_ran_before_it_was_set() {
    let (_db, s) = limited(0, 9).await;
    let jobs = s.claim("max_jobs => 3").await;
    set(&s, 3).await;
    assert!(s.claim("max_jobs => 9").await.is_empty());
    complete(&s, &jobs[0]).await;
    assert_eq!(s.claim("max_jobs => 9").await.len(), 1);
}

#[tokio::test]
async fn zero_takes_a_limit_away_and_the_next_one_counts_all() {
    let (_db, s) = limited(1, 9).await;
    assert_eq!(s.claim("max_jobs => 9").await.len(), 1);
    set(&s, 0).await;
    let jobs = s.claim("max_jobs => 4").await;
    assert_eq!(jobs.len(), 4);
    set(&s, 5).await;
    assert!(s.claim("max_jobs => 9").await.is_empty());
    complete(&s, &jobs[0]).await;
    assert_eq!(s.claim("max_jobs => 9").await.len(), 1);
}

#[tokio::test]
async fn a_limit_waits_for_open_claims_of_a_group_without_one_and_counts_them() {
    let (db, s) = limited(0, 9).await;
    let (claimer, other) = (Session::of(&db).await, Session::of(&db).await);
    claimer.get("begin").await;
    assert_eq!(claimer.claim("max_jobs => 3").await.len(), 3);
    let pid = other.pid();
    let setting = other.spawn("select trax.configure_group('g', max_active_jobs => 3)");
    s.sees_waiting(pid).await;
    claimer.get("commit").await;
    setting
        .await
        .expect("it lives")
        .1
        .expect("a limit can be set");
    assert!(s.claim("max_jobs => 9").await.is_empty());
}

#[tokio::test]
async fn a_limit_set_under_an_old_snapshot_counts_all_that_runs() {
    for level in ["repeatable read", "serializable"] {
        let (db, s) = limited(0, 9).await;
        let old = Session::of(&db).await;
        old.get(&format!(
            "begin isolation level {level}; select count(*) from trax.lease"
        ))
        .await;
        assert_eq!(s.claim("max_jobs => 3").await.len(), 3);
        let set = "select trax.configure_group('g', max_active_jobs => 3); commit";
        match old.attempt(set).await {
            Ok(_) => {
                let more = s.claim("max_jobs => 9").await.len();
                assert_eq!(more, 0, "{level}: three of three run");
            }
            Err(refusal) => assert_eq!(refusal.code, "40001", "{level}: {refusal}"),
        }
    }
}

#[tokio::test]
async fn a_second_claim_steps_over_a_limited_group_that_is_being_claimed() {
    let (db, first) = limited(2, 9).await;
    let second = Session::of(&db).await;
    let free = first.enqueue("'free'").await;
    second.get("set lock_timeout = '30 s'").await;
    first.get("begin").await;
    assert_eq!(first.claim("groups => array['g']").await.len(), 1);
    assert_eq!(second.claim_ids("max_jobs => 9").await, [free]);
    assert!(second.claim("max_jobs => 9").await.is_empty());
    let began = Instant::now();
    second.get("call trax.wait_for_work('10 min')").await;
    assert!(began.elapsed() < PATIENCE, "it has not seen all");
    first.get("rollback").await;
    assert_eq!(second.claim("max_jobs => 9").await.len(), 2);
}

#[tokio::test]
async fn a_claim_under_an_old_snapshot_takes_no_more_than_the_limit() {
    for level in ["repeatable read", "serializable"] {
        let (db, s) = limited(2, 9).await;
        let old = Session::of(&db).await;
        let begin = format!("begin isolation level {level}; select count(*) from trax.lease");
        old.get(&begin).await;
        let jobs = s.claim("max_jobs => 9").await;
        assert_eq!(jobs.len(), 2);
        none_or_refused(&old, level).await;
        old.get(&begin).await;
        complete(&s, &jobs[0]).await;
        // The jobs it sees as running have ended: the claim uses the latest state or is told to
        // retry.
        if old
            .attempt("select count(*) from trax.claim_next(max_jobs => 9); commit")
            .await
            .is_err()
        {
            old.get("rollback").await;
        }
        assert!(s.number(RUNNING).await <= 2, "{level}");
        s.claim("max_jobs => 9").await;
        assert_eq!(s.number(RUNNING).await, 2, "{level}");
    }
}

async fn none_or_refused(old: &Session, level: &str) {
    match old
        .attempt("select count(*) from trax.claim_next(max_jobs => 9)")
        .await
    {
        Ok(count) => assert_eq!(count.trim(), "0", "{level}"),
        Err(refusal) => assert_eq!(refusal.code, "40001", "{level}: {refusal}"),
    }
    old.get("rollback").await;
}

#[tokio::test]
async fn an_open_transaction_that_completed_stops_neither_other_groups_nor_the_cycle() {
    let (db, s) = limited(1, 3).await;
    let handler = Session::of(&db).await;
    s.get("set lock_timeout = '30 s'").await;
    let job = s.claim_one("").await;
    let free = s.enqueue("'free'").await;
    handler
        .get(&format!("begin; select trax.complete({})", job.key()))
        .await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, [free]);
    s.tick("queue_due").await;
    handler.get("commit").await;
    assert_eq!(s.claim("max_jobs => 9").await.len(), 1);
}

#[tokio::test]
async fn an_open_transaction_that_completed_a_manifests_job_makes_no_claim_wait() {
    let (db, s) = limited(2, 0).await;
    let (handler, other) = (Session::of(&db).await, Session::of(&db).await);
    other.get("set lock_timeout = '30 s'").await;
    s.get(
        "select trax.schedule('m', 'm', every => '1 h', group_name => 'g', overlap => 'allow', max_concurrency => 5);
         select trax.trigger('m')",
    )
    .await;
    let job = s.claim_one("tasks => array['m'], lease => '1 h'").await;
    s.get("select trax.trigger('m')").await;
    handler
        .get(&format!("begin; select trax.complete({})", job.key()))
        .await;
    s.enqueue("'free', group_name => 'g'").await;
    // A claim that waited here would hold the group's lock and block all other claims of the group.
    let claimed = other
        .attempt("select string_agg(task, ' ') from trax.claim_next(max_jobs => 9)")
        .await;
    assert_eq!(
        claimed.as_deref(),
        Ok("m"),
        "the one that is being completed counts, and there is room for four more"
    );
    handler.get("commit").await;
    assert_eq!(s.claim("max_jobs => 9").await.len(), 1);
}

/// Waits for work in the background, after an empty claim.
async fn waiter(db: &Database, s: &Session) -> tokio::task::JoinHandle<Duration> {
    let waiter = Session::of(db).await;
    assert!(waiter.claim("").await.is_empty());
    let pid = waiter.pid();
    let wait = tokio::spawn(async move {
        let began = Instant::now();
        waiter.get("call trax.wait_for_work('10 min')").await;
        began.elapsed()
    });
    let waits = format!(
        "select wait_event_type || query from pg_stat_activity where pid = {pid} and state = 'active'"
    );
    eventually("the wait for work", PATIENCE, async || {
        // Within a transaction, the first snapshot of the statistics would be seen again.
        s.get("select pg_stat_clear_snapshot()").await;
        let seen = s.get(&waits).await;
        if seen.starts_with("Extension") {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
    wait
}

#[tokio::test]
async fn whatever_ends_a_job_of_a_full_group_wakes_who_waits() {
    for end in [
        "select trax.complete($)",
        "select * from trax.complete_many(array[#], array[(select token from trax.lease where job_id = #)])",
        "select trax.fail($, 'no', permanent => true)",
        "select trax.fail($, 'no')",
        "select trax.release($, delay => '1 h')",
        "select trax.cancel(#); select trax.acknowledge_cancel($)",
        "update trax.lease set lease_expires_at = now(), reap_at = now(); select * from trax.tick()",
    ] {
        let (db, s) = limited(1, 2).await;
        let job: Claimed = s.claim_one("").await;
        let wait = waiter(&db, &s).await;
        s.get(
            &end.replace('$', &job.key())
                .replace('#', &job.id.to_string()),
        )
        .await;
        let waited = wait.await.expect("the waiter lives");
        assert!(
            waited < PATIENCE,
            "{end}: waited {waited:?} though there is room"
        );
        assert_eq!(s.claim("").await.len(), 1, "{end}");
    }
}

#[tokio::test]
async fn one_call_completes_and_claims_the_next_of_a_full_group() {
    let (_db, s) = limited(1, 3).await;
    s.get("set trax.max_active_jobs = 1").await;
    let job = s.claim_one("").await;
    let sql = format!(
        "select count(job_id) from trax.complete_and_claim(array[{}], array['{}'::uuid], max_jobs => 9)",
        job.id, job.token
    );
    assert_eq!(s.number(&sql).await, 1);
    assert_eq!(s.number(RUNNING).await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_claim_that_is_rolled_back_to_a_savepoint_leaves_its_room() {
    let (db, s) = limited(1, 3).await;
    let other = Session::of(&db).await;
    s.get("begin; savepoint a").await;
    assert_eq!(s.claim("").await.len(), 1);
    s.get("rollback to a").await;
    assert_eq!(other.claim("max_jobs => 9").await.len(), 1);
    assert!(s.claim("").await.is_empty());
    s.get("commit").await;
    assert_eq!(s.number(RUNNING).await, 1);
}

#[tokio::test]
async fn a_limit_of_another_group_leaves_claims_side_by_side() {
    let (db, first) = limited(1, 3).await;
    let second = Session::of(&db).await;
    first
        .get("select count(trax.enqueue('free')) from generate_series(1, 2)")
        .await;
    first.get("begin").await;
    assert_eq!(first.claim("tasks => array['free']").await.len(), 1);
    assert_eq!(second.claim("tasks => array['free']").await.len(), 1);
    assert_eq!(second.claim("").await.len(), 1, "nobody claims of g");
    first.get("commit").await;
}

#[tokio::test]
async fn a_limit_that_grows_wakes_who_waits() {
    let (db, s) = limited(1, 2).await;
    s.claim_one("").await;
    let wait = waiter(&db, &s).await;
    set(&s, 2).await;
    assert!(wait.await.expect("the waiter lives") < PATIENCE);
}

#[tokio::test]
async fn a_claim_keeps_no_lock_on_groups_that_are_full() {
    let (_db, s) = session().await;
    s.get(
        "select count(*) from (
             select trax.configure_group('g' || n, max_active_jobs => 1), trax.enqueue('t', group_name => 'g' || n),
                 trax.enqueue('t', group_name => 'g' || n)
             from generate_series(1, 50) n) g",
    )
    .await;
    assert_eq!(s.claim("max_jobs => 100, lease => '1 h'").await.len(), 50);
    let locks =
        "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()";
    let claim = "select count(*) from trax.claim_next(max_jobs => 100)";
    // The previous claim did not find any of them full; this one does.
    s.get(&format!("begin; {claim}")).await;
    assert_eq!(s.number(locks).await, 0);
    s.get("rollback").await;
    s.assert_healthy().await;
}
