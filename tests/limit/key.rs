//! Limits of concurrency keys: one job at a time unless the group sets another limit, in order, and
//! no job waits behind a key for ever.

use harness::PATIENCE;
use harness::manifest::complete;
use harness::session::{Session, session};
use harness::statement::statement;
use std::time::{Duration, Instant};

/// Enqueues a job with key `k`.
async fn behind(s: &Session, arguments: &str) -> i64 {
    s.enqueue(&format!("'a', concurrency_key => 'k'{arguments}"))
        .await
}

async fn many_behind(s: &Session, count: i32) {
    s.get(&format!(
        "select count(trax.enqueue('a', concurrency_key => 'k')) from generate_series(1, {count})"
    ))
    .await;
}

const BLOCKED: &str = "select count(*) from trax.work_queue where waits_for = 'key'";

#[tokio::test]
async fn jobs_of_a_key_run_one_at_a_time_by_priority_and_then_age() {
    let (_db, s) = session().await;
    let mut jobs = Vec::new();
    for priority in [5, 0, 9, 0, 9] {
        jobs.push(behind(&s, &format!(", priority => {priority}")).await);
    }
    for next in [2, 4, 0, 1, 3] {
        let job = s.claim_one("max_jobs => 9").await;
        assert_eq!(job.id, jobs[next]);
        complete(&s, &job).await;
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_that_comes_later_with_a_higher_priority_goes_first() {
    let (_db, s) = session().await;
    many_behind(&s, 3).await;
    let job = s.claim_one("max_jobs => 9").await;
    let urgent = behind(&s, ", priority => 9").await;
    complete(&s, &job).await;
    let job = s.claim_one("max_jobs => 9").await;
    assert_eq!(job.id, urgent);
    complete(&s, &job).await;
    for _ in 0..2 {
        let job = s.claim_one("max_jobs => 9").await;
        complete(&s, &job).await;
    }
}

#[tokio::test]
async fn a_key_holds_over_groups_and_tasks() {
    let (_db, s) = session().await;
    let first = s
        .enqueue("'a', concurrency_key => 'k', group_name => 'g'")
        .await;
    let second = s
        .enqueue("'b', concurrency_key => 'k', group_name => 'h'")
        .await;
    let other = s
        .enqueue("'b', concurrency_key => 'other', group_name => 'h'")
        .await;
    let jobs = s.claim("max_jobs => 9").await;
    let ids: Vec<i64> = jobs.iter().map(|job| job.id).collect();
    assert_eq!(ids, [first, other]);
    complete(&s, &jobs[0]).await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, [second]);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_blocked_job_of_a_disabled_group_does_not_stop_its_key_in_another() {
    let (_db, s) = session().await;
    behind(&s, "").await;
    let off = behind(&s, ", group_name => 'off'").await;
    let on = behind(&s, ", group_name => 'on'").await;
    let job = s.claim_one("max_jobs => 9").await;
    assert_eq!(s.number(BLOCKED).await, 2);
    s.get("select trax.configure_group('off', enabled => false)")
        .await;
    complete(&s, &job).await;
    assert_eq!(
        s.claim_ids("max_jobs => 9").await,
        [on],
        "nothing of the key runs; job {off} may not"
    );
}

#[tokio::test]
async fn a_blocked_job_of_a_full_group_does_not_stop_its_key_in_another() {
    let (_db, s) = session().await;
    s.get("select trax.configure_group('full', max_active_jobs => 1)")
        .await;
    behind(&s, "").await;
    behind(&s, ", group_name => 'full'").await;
    let on = behind(&s, ", group_name => 'on'").await;
    let job = s.claim_one("max_jobs => 9").await;
    s.enqueue("'long', group_name => 'full', priority => 31")
        .await;
    s.claim_one("tasks => array['long']").await;
    complete(&s, &job).await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, [on]);
}

#[tokio::test]
async fn as_many_of_a_key_run_as_its_group_allows_live() {
    let (_db, s) = session().await;
    many_behind(&s, 9).await;
    let mut jobs = s.claim("max_jobs => 9").await;
    assert_eq!(jobs.len(), 1);
    s.get("select trax.configure_group('default', max_per_key => 4)")
        .await;
    jobs.extend(s.claim("max_jobs => 9").await);
    assert_eq!(jobs.len(), 4, "growing counts at once");
    s.get("select trax.configure_group('default', max_per_key => 2)")
        .await;
    for job in &jobs[..2] {
        assert!(s.claim("max_jobs => 9").await.is_empty());
        complete(&s, job).await;
    }
    assert!(s.claim("max_jobs => 9").await.is_empty(), "two of two run");
    complete(&s, &jobs[2]).await;
    assert_eq!(s.claim("max_jobs => 9").await.len(), 1);
    s.assert_healthy().await;
}

/// Checks that after two of two running jobs have ended by `sql`, two more can run.
async fn assert_two_follow_two(end: &str) {
    let (_db, s) = session().await;
    s.get("select trax.configure_group('default', max_per_key => 2)")
        .await;
    many_behind(&s, 6).await;
    // This backend repairs now, and not again within a minute.
    s.tick("queue_due").await;
    assert_eq!(s.claim("max_jobs => 9").await.len(), 2);
    assert!(s.claim("max_jobs => 9").await.is_empty());
    s.get(end).await;
    let next = s.claim("max_jobs => 9").await.len();
    assert_eq!(next, 2, "{end}: nothing of the key runs any more");
}

#[tokio::test]
async fn two_of_a_key_completed_in_one_call_let_two_in() {
    assert_two_follow_two(
        "select count(*) from trax.complete_many(array(select job_id from trax.lease order by 1),
             array(select token from trax.lease order by job_id))",
    )
    .await;
}

#[tokio::test]
async fn two_of_a_key_reaped_in_one_cycle_let_two_in() {
    assert_two_follow_two(
        "update trax.lease set lease_expires_at = now(), reap_at = now(), max_retries = 0; select * from trax.tick()",
    )
    .await;
}

#[tokio::test]
async fn a_claim_that_is_rolled_back_leaves_the_key_free() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    many_behind(&s, 3).await;
    s.get("begin").await;
    assert_eq!(s.claim("max_jobs => 9").await.len(), 1);
    s.get("rollback").await;
    assert_eq!(s.number(BLOCKED).await, 0);
    let job = other.claim_one("max_jobs => 9").await;
    other.get("begin").await;
    complete(&other, &job).await;
    other.get("rollback").await;
    assert!(s.claim("max_jobs => 9").await.is_empty(), "it still runs");
    complete(&other, &job).await;
    assert_eq!(s.claim("max_jobs => 9").await.len(), 1);
}

#[tokio::test]
async fn a_claim_under_an_old_snapshot_takes_no_second_of_a_key() {
    for level in ["repeatable read", "serializable"] {
        let (db, s) = session().await;
        let old = Session::of(&db).await;
        many_behind(&s, 3).await;
        old.get(&format!(
            "begin isolation level {level}; select count(*) from trax.lease"
        ))
        .await;
        assert_eq!(s.claim("max_jobs => 1").await.len(), 1);
        match old
            .attempt("select count(*) from trax.claim_next(max_jobs => 9); commit")
            .await
        {
            Ok(count) => assert_eq!(count, "0", "{level}"),
            Err(refusal) => assert_eq!(refusal.code, "40001", "{level}: {refusal}"),
        }
        assert_eq!(s.number("select count(*) from trax.lease").await, 1);
    }
}

#[tokio::test]
async fn a_completion_under_an_old_snapshot_frees_its_key_or_is_refused() {
    for level in ["repeatable read", "serializable"] {
        let (db, s) = session().await;
        let old = Session::of(&db).await;
        behind(&s, "").await;
        let job = s.claim_one("").await;
        old.get(&format!(
            "begin isolation level {level}; select count(*) from trax.lease"
        ))
        .await;
        let next = behind(&s, "").await;
        assert!(s.claim("max_jobs => 9").await.is_empty());
        assert_eq!(s.number(BLOCKED).await, 1);
        let sql = format!("select trax.complete({}); commit", job.key());
        if let Err(refusal) = old.attempt(&sql).await {
            assert_eq!(refusal.code, "40001", "{level}: {refusal}");
            old.get("rollback").await;
            complete(&old, &job).await;
        }
        assert_eq!(
            s.claim_ids("max_jobs => 9").await,
            [next],
            "{level}: nothing of the key runs"
        );
    }
}

#[tokio::test]
async fn an_open_transaction_that_completed_stops_neither_other_keys_nor_the_cycle() {
    let (db, s) = session().await;
    let handler = Session::of(&db).await;
    s.get("set lock_timeout = '30 s'").await;
    many_behind(&s, 3).await;
    let job = s.claim_one("max_jobs => 9").await;
    let late = behind(&s, "").await;
    let other = s.enqueue("'a', concurrency_key => 'other'").await;
    let free = s.enqueue("'a'").await;
    handler
        .get(&format!("begin; select trax.complete({})", job.key()))
        .await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, [other, free]);
    // Neither reaping the other job nor expiring a waiting job of the same key waits for a lock.
    s.get("update trax.lease set lease_expires_at = now(), reap_at = now() where job_id <> 1")
        .await;
    s.get(&format!(
        "update trax.work_queue set expires_at = now() where job_id = {late}"
    ))
    .await;
    let began = Instant::now();
    s.get("select * from trax.tick()").await;
    assert!(began.elapsed() < Duration::from_secs(20));
    handler.get("commit").await;
    let mut again = s.claim_ids("max_jobs => 9").await;
    again.sort();
    assert_eq!(again, [job.id + 1, other, free]);
}

#[tokio::test]
async fn what_a_reaper_could_not_let_in_is_let_in_by_the_repair() {
    let (db, s) = session().await;
    let claimer = Session::of(&db).await;
    let first = s
        .enqueue("'a', concurrency_key => 'k', max_retries => 0")
        .await;
    s.claim_one("lease => '1 ms'").await;
    let next = behind(&s, "").await;
    // The session that blocks the next job holds the key's lock when the reaper runs.
    claimer.get("begin").await;
    assert!(claimer.claim("max_jobs => 9").await.is_empty());
    s.get("select pg_sleep(0.01)").await;
    assert_eq!(s.tick("reap_expired_leases").await, 1);
    claimer.get("commit").await;
    assert_eq!(s.number(BLOCKED).await, 1, "job {first} has ended");
    // A new backend, which performs the cleanup.
    Session::of(&db).await.tick("queue_due").await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, [next]);
    s.assert_healthy().await;
}

#[tokio::test]
async fn one_call_completes_and_claims_the_next_of_its_key() {
    let (_db, s) = session().await;
    many_behind(&s, 3).await;
    let job = s.claim_one("max_jobs => 9").await;
    let sql = format!(
        "select string_agg(job_id::text, ',') from trax.complete_and_claim(array[{}], array['{}'::uuid], max_jobs => 9)",
        job.id, job.token
    );
    assert_eq!(s.get(&sql).await, (job.id + 1).to_string());
    assert_eq!(s.number("select count(*) from trax.lease").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_group_that_allows_one_of_a_key_starts_none_beside_those_of_another_group() {
    let (_db, s) = session().await;
    s.get("select trax.configure_group('many', max_per_key => 2)")
        .await;
    let one = behind(&s, ", group_name => 'many'").await;
    let two = behind(&s, ", group_name => 'one'").await;
    let three = behind(&s, ", group_name => 'many'").await;
    assert_eq!(
        s.claim_ids("max_jobs => 9").await,
        [one, three],
        "job {two} would be beside another of its key"
    );
}

#[tokio::test]
async fn a_dead_letter_that_is_requeued_waits_for_its_key() {
    let (_db, s) = session().await;
    many_behind(&s, 2).await;
    let job = s.claim_one("max_jobs => 9").await;
    s.get(&format!(
        "select trax.fail({}, 'no', permanent => true)",
        job.key()
    ))
    .await;
    let next = s.claim_one("max_jobs => 9").await;
    let again = s
        .number("select trax.requeue_dead_letter(min(id)) from trax.dead_letter")
        .await;
    assert!(s.claim("max_jobs => 9").await.is_empty());
    complete(&s, &next).await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, [again]);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_whose_retry_is_due_waits_for_its_key() {
    let (_db, s) = session().await;
    many_behind(&s, 2).await;
    let job = s.claim_one("max_jobs => 9").await;
    s.get(&format!(
        "select trax.fail({}, 'no', retry_in => '1 ms')",
        job.key()
    ))
    .await;
    let next = s.claim_one("max_jobs => 9").await;
    s.get("select pg_sleep(0.002)").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    assert!(s.claim("max_jobs => 9").await.is_empty());
    complete(&s, &next).await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, [job.id]);
}

#[tokio::test]
async fn a_key_that_is_let_in_wakes_who_waits() {
    let (db, s) = session().await;
    many_behind(&s, 2).await;
    let job = s.claim_one("").await;
    let waiter = Session::of(&db).await;
    assert!(waiter.claim("max_jobs => 9").await.is_empty());
    let wait = tokio::spawn(async move {
        let began = Instant::now();
        waiter.get("call trax.wait_for_work('10 min')").await;
        began.elapsed()
    });
    complete(&s, &job).await;
    assert!(wait.await.expect("the waiter lives") < PATIENCE);
}

#[tokio::test]
async fn a_repair_goes_on_behind_where_the_last_one_stopped_and_says_when_it_came_to_the_end() {
    let (_db, s) = session().await;
    for key in ["a", "b", "c"] {
        s.enqueue(&format!("'t', concurrency_key => '{key}'")).await;
        s.enqueue(&format!("'t', concurrency_key => '{key}'")).await;
    }
    // As if every running job had ended without letting in another.
    s.get("update trax.work_queue set waits_for = 'key'").await;
    let repair = statement("KeyRepair");
    s.get(&format!("prepare repair (text, bigint, int) as {repair}"))
        .await;
    let from = |key: &str, lane: &str| format!("execute repair ('{key}', {lane}, 2)");
    let first = s.get(&from("", "-9223372036854775808")).await;
    let rows: Vec<Vec<&str>> = first.lines().map(|row| row.split('|').collect()).collect();
    assert_eq!(rows.len(), 2, "{first}");
    assert_eq!((rows[0][3], rows[0][5]), ("b", "2"), "{first}");
    let second = s.get(&from("b", rows[0][4])).await;
    let rows: Vec<Vec<&str>> = second.lines().map(|row| row.split('|').collect()).collect();
    assert_eq!(rows.len(), 1, "{second}");
    assert_eq!((rows[0][3], rows[0][5]), ("c", "1"), "not two: the end");
    assert_eq!(
        s.claim("max_jobs => 9").await.len(),
        3,
        "the first of each key"
    );
}

#[tokio::test]
async fn a_job_that_was_changed_while_its_key_came_free_is_let_in() {
    let (db, s) = session().await;
    let (worker, other) = (Session::of(&db).await, Session::of(&db).await);
    for _ in 0..2 {
        s.enqueue("'a', concurrency_key => 'k'").await;
    }
    let first = s.claim("max_jobs => 2").await.remove(0);
    let waits = "select waits_for from trax.work_queue";
    assert_eq!(s.get(waits).await, "key");
    // The completion of the first job has its snapshot, and waits for the table.
    other
        .get("begin; lock table trax.work_queue in share row exclusive mode")
        .await;
    let pid = worker.pid();
    let end = worker.spawn(format!("select trax.complete({})", first.key()));
    s.sees_waiting(pid).await;
    other
        .get("select trax.limit_queue_time(job_id, '1 h') from trax.work_queue; commit")
        .await;
    let (_, ended) = end.await.expect("the session lives");
    assert_eq!(ended, Ok("t".to_owned()));
    assert_eq!(s.get(waits).await, "");
    s.assert_healthy().await;
}

/// A key whose FNV-1a hash, after the word "key", equals that of "victims" after the word "group".
/// Computing such a key for any name takes seconds.
const FORGED: &str = r"convert_from('\x61756c7265683c02170a183e0e04080a1301051a02040602', 'UTF8')";

#[tokio::test]
async fn a_key_that_was_computed_for_a_groups_hash_does_not_lift_its_limit() {
    let (_db, s) = session().await;
    s.get("select trax.configure_group('victims', max_active_jobs => 1)")
        .await;
    s.get("select trax.enqueue('pay', group_name => 'victims') from generate_series(1, 2)")
        .await;
    let of_victims = "groups => '{victims}'";
    assert_eq!(s.claim_ids(of_victims).await.len(), 1);
    assert_eq!(s.claim_ids(of_victims).await.len(), 0);
    s.get(&format!(
        "select trax.enqueue('mine', group_name => 'others', concurrency_key => {FORGED})
         from generate_series(1, 3)"
    ))
    .await;
    assert_eq!(s.claim_ids("groups => '{others}'").await.len(), 1);
    // Within this time a full group is assumed to be full without a count.
    s.get("select pg_sleep(1.1)").await;
    assert_eq!(s.claim_ids(of_victims).await.len(), 0);
    s.assert_healthy().await;
}
