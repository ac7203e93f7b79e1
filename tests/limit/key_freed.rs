//! Every end of the job that holds a concurrency key lets the next one in.

use harness::scheduler::{live_database, scheduling};
use harness::session::{Claimed, Session, session};
use harness::{PATIENCE, eventually};
use std::time::Duration;
use trax_client::testkit::Database;

/// Runs a job of a key while another waits behind it, then runs `end`, with `$` for the job and
/// token of the lease and `#` for its id; checks that the other job can then be claimed.
async fn assert_frees(end: &str) {
    let (_db, s) = session().await;
    let job = holder(&s).await;
    s.get(
        &end.replace('$', &job.key())
            .replace('#', &job.id.to_string()),
    )
    .await;
    let next = s.claim_ids("max_jobs => 9").await;
    assert_eq!(next, [job.id + 1], "{end}");
    s.assert_healthy().await;
}

async fn holder(s: &Session) -> Claimed {
    s.get("select count(trax.enqueue('a', concurrency_key => 'k', max_retries => 1)) from generate_series(1, 2)")
        .await;
    let job = s.claim_one("max_jobs => 9").await;
    let blocked = "select count(*) from trax.work_queue where waits_for = 'key'";
    assert_eq!(s.number(blocked).await, 1);
    job
}

#[tokio::test]
async fn completions_free_a_key() {
    for end in [
        "select trax.complete($)",
        "select * from trax.complete_many(array[#], array[(select token from trax.lease where job_id = #)])",
        "select count(*) from trax.complete_and_claim(array[#], array[(select token from trax.lease where job_id = #)],
             tasks => array['nothing'])",
    ] {
        assert_frees(end).await;
    }
}

#[tokio::test]
async fn failures_free_a_key() {
    assert_frees("select trax.fail($, 'no')").await;
    assert_frees("select trax.fail($, 'no', permanent => true)").await;
}

#[tokio::test]
async fn a_release_frees_a_key() {
    assert_frees("select trax.release($, delay => '1 h')").await;
}

#[tokio::test]
async fn an_acknowledged_cancel_frees_a_key() {
    assert_frees("select trax.cancel(#); select trax.acknowledge_cancel($)").await;
    assert_frees("select trax.cancel(#); select trax.release($)").await;
    assert_frees("select trax.cancel(#); select trax.fail($, 'stopped')").await;
}

#[tokio::test]
async fn a_lease_that_expired_frees_a_key_when_it_is_reaped() {
    assert_frees(
        "update trax.lease set lease_expires_at = now(), reap_at = now(), max_retries = 0; select * from trax.tick()",
    )
    .await;
}

#[tokio::test]
async fn a_timeout_frees_a_key_when_it_is_reaped() {
    assert_frees(
        "set trax.cancel_grace = 0;
         update trax.lease set timeout_at = now() - interval '1 h', reap_at = now(), max_retries = 0;
         select * from trax.tick(); update trax.lease set reap_at = now(); select * from trax.tick()",
    )
    .await;
}

/// As [`assert_frees`], but the holder has completed and `end` applies to the job that was let in.
async fn assert_hands_on(end: &str) {
    let (_db, s) = session().await;
    let job = holder(&s).await;
    let last = s.enqueue("'a', concurrency_key => 'k'").await;
    assert!(s.claim("max_jobs => 9").await.is_empty());
    s.get(&format!("select trax.complete({})", job.key())).await;
    let waiting = "select string_agg(job_id || coalesce(waits_for, ''), ' ' order by job_id) from trax.work_queue";
    assert_eq!(
        s.get(waiting).await,
        format!("{} {last}key", job.id + 1),
        "one is let in"
    );
    s.get(&end.replace('#', &(job.id + 1).to_string())).await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, [last], "{end}");
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_next_is_let_in_when_the_one_that_was_let_in_is_cancelled() {
    assert_hands_on("select trax.cancel(#)").await;
    assert_hands_on(
        "select trax.configure_group('gone');
         update trax.work_queue set group_name = 'gone' where job_id = #; select trax.cancel_group('gone')",
    )
    .await;
}

#[tokio::test]
async fn the_next_is_let_in_when_the_one_that_was_let_in_waited_too_long() {
    assert_hands_on(
        "update trax.work_queue set expires_at = now() where job_id = #; select * from trax.tick()",
    )
    .await;
}

#[tokio::test]
async fn the_next_is_let_in_when_the_one_that_was_let_in_goes_with_its_manifest() {
    for end in [
        "select trax.unschedule('m')",
        "select trax.cancel_manifest('m')",
    ] {
        assert_hands_on(&format!(
            "select trax.schedule('m', 'a', every => '1 h');
             update trax.work_queue set manifest = 'm', manifest_id = (select manifest_id from trax.manifest)
             where job_id = #;
             {end}"
        ))
        .await;
    }
}

const PREPARED: &str = "prepare transaction";

/// Enqueues two hundred jobs of a key while an open transaction ends or claims the first one, and
/// claims skip them. `end` ends that transaction; another one cancels `cancelled` of the jobs and
/// commits after those claims.
async fn assert_flows(db: &Database, open: &str, end: &str, cancelled: i64) {
    const MANY: i64 = 200;
    let s = Session::of(db).await;
    let (busy, canceller) = (Session::of(db).await, Session::of(db).await);
    s.enqueue("'a', concurrency_key => 'k'").await;
    if open.contains('$') {
        let job = s.claim_one("lease => '1 h'").await;
        busy.get(&format!("begin; {}", open.replace('$', &job.key())))
            .await;
    } else {
        busy.get(&format!("begin; {open}")).await;
    }
    s.get(&format!(
        "select count(trax.enqueue('a', concurrency_key => 'k')) from generate_series(1, {MANY})"
    ))
    .await;
    let first = s.number("select max(job_id) from trax.job").await - MANY + 1;
    canceller
        .get(&format!(
            "begin; select count(trax.cancel(n)) from generate_series({first}, {first} + {cancelled} - 1) n"
        ))
        .await;
    for _ in 0..3 {
        assert!(s.claim("max_jobs => 9").await.is_empty());
    }
    if end == PREPARED {
        busy.get("prepare transaction 'busy'").await;
        assert!(s.claim("max_jobs => 9").await.is_empty());
        busy.get("commit prepared 'busy'").await;
    } else {
        busy.get(end).await;
    }
    canceller.get("commit").await;
    let lease =
        "select coalesce(string_agg(job_id || ', ''' || token || '''', ''), '') from trax.lease";
    let lease = s.get(lease).await;
    if !lease.is_empty() {
        s.get(&format!("select trax.complete({lease})")).await;
    }
    let waiting = "select count(*) from trax.work_queue";
    while s.number(waiting).await > 0 {
        let job = s.claim_one("max_jobs => 9").await;
        s.get(&format!("select trax.complete({})", job.key())).await;
    }
    s.assert_healthy().await;
}

const OPEN: [&str; 2] = ["select trax.complete($)", "select * from trax.claim_next()"];

#[tokio::test]
async fn jobs_that_were_passed_beside_an_open_transaction_are_claimed_after_it() {
    let (db, _) = session().await;
    for open in OPEN {
        for end in ["commit", "rollback"] {
            assert_flows(&db, open, end, 0).await;
            assert_flows(&db, open, end, 50).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_were_passed_beside_a_prepared_transaction_are_claimed_after_it() {
    // No scheduler, whose repair could let a job in at the moment of a claim.
    let server = scheduling()
        .setting("trax.databases", "no_database_has_this_name")
        .setting("max_prepared_transactions", "5")
        .start()
        .expect("a server starts");
    let db = server.database("prepared").await.expect("it is made");
    for open in OPEN {
        assert_flows(&db, open, PREPARED, 50).await;
    }
}

/// Runs a job of a key, or of a manifest, whose other job is blocked and locked by `lock` when the
/// first ends; checks that the other is claimed after the rollback, with no repair in between.
async fn assert_frees_locked(enqueue: &str, lock: &str) {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    s.get(&format!("{enqueue}; {enqueue}")).await;
    let job = s.claim_one("max_jobs => 9").await;
    let blocked = "select job_id from trax.work_queue where waits_for is not null";
    let blocked = s.number(blocked).await;
    // The cycle performs the repair of this minute.
    s.get("select * from trax.tick()").await;
    other.get("begin").await;
    other.get(&lock.replace('#', &blocked.to_string())).await;
    s.get(&format!("select trax.complete({})", job.key())).await;
    s.get("select * from trax.tick()").await;
    other.get("rollback").await;
    assert!(s.claim("max_jobs => 9").await.is_empty(), "{lock}");
    s.get("select * from trax.tick()").await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, [blocked], "{lock}");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_that_is_locked_when_its_key_or_manifest_becomes_free_waits_for_no_repair() {
    const LOCK: &str = "select from trax.work_queue where job_id = # for update";
    let key = "select trax.enqueue('a', concurrency_key => 'k')";
    for lock in [
        LOCK,
        "select trax.cancel(#)",
        "select trax.limit_queue_time(#, '1 h')",
    ] {
        assert_frees_locked(key, lock).await;
    }
    let manifest = "select trax.schedule('m', 'a', every => '1 h'), trax.trigger('m')";
    assert_frees_locked(manifest, LOCK).await;
}

#[tokio::test]
async fn the_scheduler_is_woken_for_a_job_that_was_locked_when_its_key_became_free() {
    let db = live_database().await;
    let (s, other) = (Session::of(&db).await, Session::of(&db).await);
    let job = holder(&s).await;
    // The first cycle of the scheduler performs the repair of this minute.
    let cycled =
        "select count(*) from trax.tallies() where name = 'trax_last_cycle_timestamp_seconds'";
    let is_seen = |count: i64| (count > 0).then_some(()).ok_or(count.to_string());
    eventually("a cycle", PATIENCE, async || {
        is_seen(s.number(cycled).await)
    })
    .await;
    other
        .get("begin; select from trax.work_queue for update")
        .await;
    s.get(&format!("select trax.complete({})", job.key())).await;
    other.get("rollback").await;
    eventually("a claim", Duration::from_secs(20), async || {
        is_seen(s.claim("max_jobs => 9").await.len() as i64)
    })
    .await;
}
