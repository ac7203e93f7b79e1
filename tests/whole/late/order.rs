//! Neither old jobs that become claimable late nor sessions with an old snapshot hide a job.

use super::{ROUND, UNANNOUNCED, pass, vacuum};
use harness::session::{Session, session};
use std::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_jobs_that_become_claimable_late_are_claimed_in_their_order() {
    let (db, s) = session().await;
    let claimer = Session::of(&db).await;
    // Each job is late for a different reason.
    let delayed = s.enqueue("'a', run_at => now() + interval '1 h'").await;
    let key = s.enqueue("'k', concurrency_key => 'k'").await;
    let held = s.claim_one("tasks => '{k}', lease => '1 h'").await;
    assert_eq!(held.id, key);
    let behind = s.enqueue("'a', concurrency_key => 'k'").await;
    let paused = s.enqueue("'a', group_name => 'g'").await;
    s.get("select trax.configure_group('g', enabled => false)")
        .await;
    let mut taken = Vec::new();
    for _ in 0..3 {
        let id = s.enqueue("'a'").await;
        taken.push(s.claim_one("lease => '1 h'").await);
        assert_eq!(taken.last().map(|job| job.id), Some(id));
    }
    let undone = s.enqueue("'a'").await;
    claimer.get("begin").await;
    assert_eq!(claimer.claim_ids("").await, [undone]);
    pass(s.client()).await;
    vacuum(s.client()).await;
    pass(s.client()).await;
    let young = s.enqueue("'a'").await;

    let [released, failed, expired] = taken.as_slice() else {
        panic!("three are held: {taken:?}");
    };
    claimer.get("rollback").await;
    s.get(&format!("select trax.release({})", released.key()))
        .await;
    s.get(&format!(
        "select trax.fail({}, 'again', retry_in => '0')",
        failed.key()
    ))
    .await;
    s.get(&format!(
        "update trax.lease set lease_expires_at = now(), reap_at = now() where job_id = {};
         update trax.work_queue set run_at = now() where job_id = {delayed}",
        expired.id
    ))
    .await;
    assert_eq!(s.tick("reap_expired_leases").await, 1);
    s.get(&format!("select trax.complete({})", held.key()))
        .await;
    s.get("select trax.configure_group('g', enabled => true)")
        .await;
    assert_eq!(
        s.claim_ids("max_jobs => 100").await,
        [
            delayed,
            behind,
            paused,
            released.id,
            failed.id,
            expired.id,
            undone,
            young
        ]
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_claim_under_an_old_snapshot_hides_nothing_that_it_does_not_see() {
    for level in ["repeatable read", "serializable"] {
        let (db, s) = session().await;
        let old = Session::of(&db).await;
        old.get(&format!(
            "begin isolation level {level}; select count(*) from trax.work_queue"
        ))
        .await;
        let jobs = [s.enqueue("'a'").await, s.enqueue("'a'").await];
        // The old snapshot sees none of them, or the claim is refused.
        if let Ok(seen) = old.attempt("select job_id from trax.claim_next()").await {
            assert_eq!(seen, "", "{level}");
        }
        old.get("rollback").await;
        assert_eq!(s.claim_ids("max_jobs => 9").await, jobs, "{level}");
    }
}

#[tokio::test]
async fn a_claim_of_some_tasks_or_groups_hides_no_job_of_others() {
    let (_db, s) = session().await;
    let old = [
        s.enqueue("'b'").await,
        s.enqueue("'a', group_name => 'g'").await,
    ];
    for _ in 0..3 {
        s.enqueue("'a'").await;
    }
    assert_eq!(
        s.claim("max_jobs => 9, tasks => array['a'], groups => array['default']")
            .await
            .len(),
        3
    );
    assert!(s.claim("tasks => array['c']").await.is_empty());
    let young = s.enqueue("'a'").await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, [old[0], old[1], young]);
}

#[tokio::test]
async fn a_claim_that_is_undone_to_a_savepoint_hides_nothing() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    let jobs = [s.enqueue("'a'").await, s.enqueue("'a'").await];
    s.get("begin; savepoint half").await;
    assert_eq!(s.claim_ids("").await, jobs[..1]);
    s.get("rollback to savepoint half").await;
    assert_eq!(s.claim_ids("").await, jobs[..1]);
    s.get("rollback to savepoint half; commit").await;
    assert_eq!(other.claim_ids("max_jobs => 9").await, jobs);
}

#[tokio::test]
async fn a_table_that_is_written_anew_loses_no_job_and_no_order() {
    let (_db, s) = session().await;
    let mut jobs = Vec::new();
    for n in 0..4 {
        jobs.push(s.enqueue("'a'").await);
        if n == 1 {
            pass_by(&s).await;
        }
    }
    for sql in [
        "vacuum full trax.work_queue",
        "reindex table trax.work_queue",
        "cluster trax.work_queue using work_queue_pkey",
    ] {
        s.get(sql).await;
        s.get("begin").await;
        assert_eq!(s.claim_ids("max_jobs => 9").await, jobs, "{sql}");
        s.get("rollback").await;
    }
}

/// Enqueues and claims jobs of another task.
async fn pass_by(s: &Session) {
    s.get(&format!(
        "select count(*) from trax.enqueue_many('b', array_fill('{{}}'::jsonb, array[{ROUND}]))"
    ))
    .await;
    for _ in 0..ROUND / 1000 {
        let done = "with claimed as materialized (
                        select job_id, token from trax.claim_next(max_jobs => 1000, tasks => array['b'])),
                    held as (select array_agg(job_id) as ids, array_agg(token) as tokens from claimed)
                    select count(*) from held, trax.complete_many(held.ids, held.tokens)";
        assert_eq!(s.number(done).await, 1000);
    }
}

#[tokio::test]
async fn an_extension_that_is_made_again_begins_at_its_own_head() {
    let (db, s) = session().await;
    pass(s.client()).await;
    s.get("drop extension trax cascade; create extension trax")
        .await;
    let again = Session::of(&db).await;
    let job = again.enqueue("'a'").await;
    assert_eq!(job, 1);
    for s in [&again, &s] {
        s.get("begin").await;
        assert_eq!(s.claim_ids("max_jobs => 9").await, [job]);
        s.get("rollback").await;
    }
}

#[tokio::test]
async fn rows_that_are_restored_with_old_ids_are_found() {
    let (db, s) = session().await;
    let first = s.enqueue("'a'").await;
    s.get("create table saved as select * from trax.work_queue")
        .await;
    assert_eq!(s.claim_ids("").await, [first]);
    s.get("delete from trax.lease").await;
    pass(s.client()).await;
    vacuum(s.client()).await;
    s.get("insert into trax.work_queue overriding system value select * from saved")
        .await;
    let restored = Instant::now();
    let fresh = Session::of(&db).await;
    harness::eventually("the restored job", UNANNOUNCED, async || {
        match fresh.claim_ids("max_jobs => 9").await.as_slice() {
            [job] if *job == first => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
    println!("found {:?} after it was restored", restored.elapsed());
}
