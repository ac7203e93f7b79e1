//! Concurrent outcomes of many keys, claims, limit changes and cycles: none fails with a deadlock.

use harness::limit::waits_or_ends;
use harness::session::{Session, session};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinHandle;
use trax_client::testkit::Database;

/// Runs `sql` until the others are done; any error fails the test.
fn again(s: Session, sql: &'static str, done: Arc<AtomicBool>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut round = 0;
        while !done.load(Ordering::Relaxed) {
            s.get(&sql.replace("$round", &round.to_string())).await;
            round += 1;
        }
    })
}

/// Claims up to eight jobs and completes them in one call, in ascending or descending order, until
/// nothing is left.
fn completer(s: Session, direction: &'static str, done: Arc<AtomicBool>) -> JoinHandle<()> {
    tokio::spawn(async move {
        while !done.load(Ordering::Relaxed) {
            s.get(&format!(
                "create temp table if not exists mine (job_id bigint, token uuid);
                 truncate mine;
                 insert into mine select job_id, token from trax.claim_next(max_jobs => 8, lease => '1 h');
                 select count(*) from trax.complete_many(array(select job_id from mine order by job_id {direction}),
                     array(select token from mine order by job_id {direction}))"
            ))
            .await;
            s.get("call trax.wait_for_work('5 ms')").await;
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completions_of_many_keys_in_any_order_claims_and_the_cycle_do_not_deadlock() {
    let (db, s) = session().await;
    s.get(
        "select trax.configure_group('default', max_per_key => 2);
         select trax.configure_group('g', max_active_jobs => 6);
         select count(trax.enqueue('t' || n % 3, concurrency_key => 'k' || n * 7 % 11, priority => n % 5,
             group_name => case n % 2 when 0 then 'g' end))
         from generate_series(1, 800) n",
    )
    .await;
    let done = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for worker in 0..8 {
        let direction = if worker % 2 == 0 { "" } else { "desc" };
        tasks.push(completer(Session::of(&db).await, direction, done.clone()));
    }
    for sql in [
        "select * from trax.tick()",
        "select trax.configure_group('g', max_active_jobs => (array[0, 6, 3])[1 + $round % 3],
             max_per_key => 1 + $round % 3)",
        "begin; select * from trax.claim_next(max_jobs => 5); rollback",
        "select trax.cancel(1 + ($round * 37) % 800)",
    ] {
        tasks.push(again(Session::of(&db).await, sql, done.clone()));
    }
    ends(&s).await;
    done.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("nobody met an error");
    }
    assert_eq!(
        s.number("select count(*) from trax.run where final").await,
        800
    );
    s.assert_healthy().await;
}

async fn ends(s: &Session) {
    let left = "select (select count(*) from trax.work_queue), (select count(*) from trax.lease)";
    harness::eventually("the end of all jobs", harness::PATIENCE, async || {
        let seen = s.get(left).await;
        if seen == "0|0" { Ok(()) } else { Err(seen) }
    })
    .await;
}

/// Leases of jobs 1, 2 and 3 of group `g`, with the third stored first.
async fn third_first() -> (Database, Session, String) {
    let (db, s) = session().await;
    s.get("select trax.enqueue('a', group_name => 'g') from generate_series(1, 2); select trax.enqueue('b', group_name => 'g')")
        .await;
    s.claim_one("tasks => array['b'], lease => '1 h'").await;
    s.claim("max_jobs => 2, lease => '1 h'").await;
    let complete = "select count(*) from trax.complete_many(array[1, 2, 3]::bigint[],
                        array(select token from trax.lease order by job_id))";
    (db, s, complete.to_owned())
}

#[tokio::test]
async fn setting_a_limit_and_completing_many_of_its_group_do_not_deadlock() {
    let (db, s, complete) = third_first().await;
    let (completer, setter, holder) = (
        Session::of(&db).await,
        Session::of(&db).await,
        Session::of(&db).await,
    );
    let pids = (completer.pid(), setter.pid());
    holder
        .get("begin; select from trax.lease where job_id = 2 for update")
        .await;
    // The completion has locked the first lease and waits for the second.
    let completion = completer.spawn(complete);
    s.sees_waiting(pids.0).await;
    // The setter may have locked the third lease and waits for the first.
    let setting = setter.spawn("select trax.configure_group('g', max_active_jobs => 1)");
    waits_or_ends(&s, pids.1, &setting).await;
    holder.get("commit").await;
    let (_, completed) = completion.await.expect("the completer lives");
    assert_eq!(completed.as_deref(), Ok("3"));
    setting
        .await
        .expect("the setter lives")
        .1
        .expect("a limit can be set");
}

#[tokio::test]
async fn changing_how_many_of_a_key_run_and_cancelling_those_that_wait_do_not_deadlock() {
    let (db, s) = session().await;
    // By the order of the key, jobs 4, 3 and 2 are let in; cancels go by age.
    s.get("select count(trax.enqueue('a', concurrency_key => 'k', priority => n)) from generate_series(1, 3) n;
           select trax.enqueue('a', concurrency_key => 'k', priority => 31)")
        .await;
    s.claim_one("max_jobs => 9, lease => '1 h'").await;
    let (canceller, setter, holder) = (
        Session::of(&db).await,
        Session::of(&db).await,
        Session::of(&db).await,
    );
    let pids = (canceller.pid(), setter.pid());
    // The third row is physically the first.
    s.get("update trax.work_queue set trace = '{}' where job_id in (1, 2)")
        .await;
    holder
        .get("begin; select from trax.work_queue where job_id = 2 for update")
        .await;
    let cancelling = canceller.spawn("select trax.cancel_group('default')");
    s.sees_waiting(pids.0).await;
    let setting = setter.spawn("select trax.configure_group('default', max_per_key => 2)");
    waits_or_ends(&s, pids.1, &setting).await;
    holder.get("commit").await;
    cancelling
        .await
        .expect("the canceller lives")
        .1
        .expect("a group can be cancelled");
    setting
        .await
        .expect("the setter lives")
        .1
        .expect("a limit can be set");
}

#[tokio::test]
async fn a_completion_of_a_key_and_a_claim_of_its_manifest_do_not_deadlock() {
    let (db, s) = session().await;
    let (completer, claimer, holder) = (
        Session::of(&db).await,
        Session::of(&db).await,
        Session::of(&db).await,
    );
    let pids = (completer.pid(), claimer.pid());
    // A job of a manifest and one of a key run; another of each waits.
    s.get(
        "select trax.schedule('m', 'a', every => '1 h', overlap => 'allow', max_concurrency => 5);
         select trax.trigger('m');
         select trax.enqueue('a', concurrency_key => 'k')",
    )
    .await;
    assert_eq!(s.claim("max_jobs => 2, lease => '1 h'").await.len(), 2);
    s.get("select trax.trigger('m'); select trax.enqueue('a', concurrency_key => 'k')")
        .await;
    let complete =
        "select count(*) from trax.complete_many(array(select job_id from trax.lease order by 1),
                        array(select token from trax.lease order by job_id))";
    holder
        .get("begin; select from trax.manifest_state for update")
        .await;
    let completion = completer.spawn(complete);
    s.sees_waiting(pids.0).await;
    // The claim holds the key's lock, and may wait for the manifest behind the completion.
    let claim = claimer.spawn("select count(*) from trax.claim_next(max_jobs => 9)");
    waits_or_ends(&s, pids.1, &claim).await;
    holder.get("commit").await;
    let (_, completed) = completion.await.expect("the completer lives");
    assert_eq!(completed.as_deref(), Ok("2"));
    claim
        .await
        .expect("the claimer lives")
        .1
        .expect("a claim works");
}

#[tokio::test]
async fn a_document_of_groups_and_completions_in_them_do_not_deadlock() {
    let (db, s) = session().await;
    let (completer, applier, holder) = (
        Session::of(&db).await,
        Session::of(&db).await,
        Session::of(&db).await,
    );
    let pids = (completer.pid(), applier.pid());
    s.get(
        "select trax.schedule('m', 'a', every => '1 h', group_name => 'g1');
         select trax.trigger('m'); select trax.enqueue('a', group_name => 'g2')",
    )
    .await;
    assert_eq!(s.claim("max_jobs => 2, lease => '1 h'").await.len(), 2);
    s.get("select trax.configure_group('g1', enabled => false);
           update trax.manifest_state set parked_on = 'group_disabled', parked_since = now(), parked_due_at = now(),
               next_run_at = null, next_scheduled_for = null")
        .await;
    holder
        .get("begin; select from trax.manifest_state for update")
        .await;
    let applying = applier.spawn(
        r#"select count(*) from trax.apply('{"groups": [{"name": "g1", "enabled": true}, {"name": "g2", "max_active_jobs": 1}]}')"#,
    );
    waits_or_ends(&s, pids.1, &applying).await;
    let completion = completer.spawn(
        "select count(*) from trax.complete_many(array(select job_id from trax.lease order by 1),
             array(select token from trax.lease order by job_id))",
    );
    waits_or_ends(&s, pids.0, &completion).await;
    holder.get("commit").await;
    let (_, completed) = completion.await.expect("the completer lives");
    assert_eq!(completed.as_deref(), Ok("2"));
    applying
        .await
        .expect("the applier lives")
        .1
        .expect("a document can be applied");
}
