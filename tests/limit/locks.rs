//! Locks: a claim keeps a bounded number of them, and no call waits without a shared limit.

use harness::PATIENCE;
use harness::limit::waits_or_ends;
use harness::session::{Session, session};
use std::time::Instant;
use trax_client::testkit::{Database, Server};

/// The bound for one claim given at the top of `lock.rs`.
const LOCKS_AT_MOST: i64 = 124;

const LOCKS: &str =
    "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()";

/// A server with PostgreSQL's default lock table size.
async fn usual_server() -> (Server, Database) {
    let server = harness::options()
        .fast()
        .setting("trax.databases", "no_database_has_this_name")
        .setting("max_connections", "100")
        .start()
        .expect("a server starts");
    let database = server.database("usual").await.expect("a database is made");
    (server, database)
}

/// Claims up to a thousand jobs on each of this many connections, in open transactions; returns the
/// number of jobs of each.
async fn open_claims(db: &Database, count: usize) -> Vec<i64> {
    let mut sessions = Vec::new();
    let mut claimed = Vec::new();
    for _ in 0..count {
        let s = Session::of(db).await;
        s.get("begin").await;
        let claim = "select count(*) from trax.claim_next(max_jobs => 1000, lease => '1 h')";
        claimed.push(s.number(claim).await);
        let locks = s.number(LOCKS).await;
        assert!(locks <= LOCKS_AT_MOST, "{locks} locks");
        sessions.push(s);
    }
    for s in sessions {
        s.get("commit").await;
    }
    claimed
}

#[tokio::test]
async fn ten_open_claims_over_very_many_groups_fit_into_the_lock_table() {
    let (_server, db) = usual_server().await;
    let s = Session::of(&db).await;
    s.get(
        "select count(trax.enqueue('t', group_name => 'g' || n)) from generate_series(1, 14000) n",
    )
    .await;
    assert_eq!(open_claims(&db, 10).await, [1000; 10]);
    s.assert_healthy().await;
}

#[tokio::test]
async fn fifty_open_claims_over_many_limited_groups_and_keys_fit_into_the_lock_table() {
    for (limits, options) in [
        (
            "select count(trax.configure_group('g' || n, max_active_jobs => 1)) from generate_series(1, 6000) n;",
            "group_name => 'g' || n",
        ),
        ("", "concurrency_key => 'k' || n"),
    ] {
        let (_server, db) = usual_server().await;
        let s = Session::of(&db).await;
        s.get(&format!(
            "{limits} select count(trax.enqueue('t', {options})) from generate_series(1, 6000) n"
        ))
        .await;
        let claimed = open_claims(&db, 50).await;
        assert!(
            claimed.iter().all(|claimed| *claimed > 50),
            "{options}: {claimed:?}"
        );
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_claim_that_holds_enough_locks_does_not_wait_for_more_work() {
    let (_db, s) = session().await;
    s.get("select count(trax.enqueue('t', concurrency_key => 'k' || n)) from generate_series(1, 300) n")
        .await;
    let mut all = 0;
    while all < 300 {
        let claimed = s.claim("max_jobs => 1000, lease => '1 h'").await.len();
        assert!(claimed > 0, "{all} of 300");
        all += claimed;
        if all < 300 {
            let began = Instant::now();
            s.get("call trax.wait_for_work('10 min')").await;
            assert!(began.elapsed() < PATIENCE);
        }
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_claim_behind_more_busy_keys_than_it_may_lock_still_takes_what_it_can() {
    let (_db, s) = session().await;
    let busy = "select count(trax.enqueue('t', concurrency_key => 'k' || n)) from generate_series(1, 300) n";
    s.get(busy).await;
    let mut running = 0;
    while running < 300 {
        running += s.claim("max_jobs => 1000, lease => '1 h'").await.len();
    }
    s.get(busy).await;
    let free = s.enqueue("'t', concurrency_key => 'free'").await;
    s.get("begin").await;
    assert_eq!(s.claim_ids("max_jobs => 9, lease => '1 h'").await, [free]);
    let locks = s.number(LOCKS).await;
    assert!(locks <= LOCKS_AT_MOST, "{locks} locks");
    s.get("commit").await;
    for _ in 0..20 {
        assert!(s.claim("max_jobs => 9").await.is_empty());
    }
    let ready = "select count(*) from trax.work_queue where waits_for is null";
    assert_eq!(s.number(ready).await, 0, "all have left their lane");
}

#[tokio::test]
async fn a_pause_waits_for_a_claim_of_very_many_groups() {
    let (db, s) = session().await;
    let (claimer, setter) = (Session::of(&db).await, Session::of(&db).await);
    s.get("select count(trax.enqueue('t', group_name => 'g' || n)) from generate_series(1, 200) n")
        .await;
    claimer.get("begin").await;
    assert_eq!(claimer.claim("max_jobs => 200").await.len(), 200);
    let pid = setter.pid();
    let pause = setter.spawn("select trax.configure_group('g200', enabled => false)");
    s.sees_waiting(pid).await;
    // Claims of a few groups still succeed meanwhile.
    s.get("select count(trax.enqueue('t', group_name => 'g' || n)) from generate_series(1, 100) n")
        .await;
    let few = s.claim("max_jobs => 100").await.len();
    assert!((1..100).contains(&few), "{few}");
    claimer.get("commit").await;
    let (setter, paused) = pause.await.expect("the setter lives");
    paused.expect("a group can be paused");
    setter
        .get("begin; select trax.configure_group('other', enabled => false)")
        .await;
    assert!(!s.claim("max_jobs => 100").await.is_empty());
    setter.get("commit").await;
}

#[tokio::test]
async fn completions_of_many_keys_keep_no_lock_and_wait_for_no_others() {
    let (db, s) = session().await;
    s.get("select count(trax.enqueue('t', concurrency_key => 'k' || n)) from generate_series(1, 600) n")
        .await;
    while !s.claim("max_jobs => 1000, lease => '1 h'").await.is_empty() {}
    let complete = |first: i64| {
        format!(
            "select count(*) from trax.complete_many(
                 array(select job_id from trax.lease where job_id between {first} and {first} + 199 order by 1),
                 array(select token from trax.lease where job_id between {first} and {first} + 199 order by job_id))"
        )
    };
    let (one, other) = (Session::of(&db).await, Session::of(&db).await);
    one.get("begin").await;
    assert_eq!(one.number(&complete(1)).await, 200);
    assert_eq!(one.number(LOCKS).await, 0);
    other.get("begin").await;
    let pid = other.pid();
    let completion = other.spawn(complete(201));
    waits_or_ends(&s, pid, &completion).await;
    assert_eq!(one.number(&complete(401)).await, 200);
    let (other, completed) = completion.await.expect("the completer lives");
    assert_eq!(completed.as_deref(), Ok("200"));
    one.get("commit").await;
    other.get("commit").await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn claims_and_completions_in_one_transaction_over_one_manifest_do_not_deadlock() {
    let (db, s) = session().await;
    let (one, other) = (Session::of(&db).await, Session::of(&db).await);
    s.get(
        "select trax.schedule('m', 'a', every => '1 h', overlap => 'allow', max_concurrency => 5);
         select trax.trigger('m'); select trax.trigger('m')",
    )
    .await;
    let job = other.claim_one("lease => '1 h'").await;
    one.get("begin").await;
    let own = one.claim_one("lease => '1 h'").await;
    // The completion waits for the claim, which may be blocking jobs behind its lease.
    let pid = other.pid();
    let completion = other.spawn(format!("select trax.complete({})", job.key()));
    s.sees_waiting(pid).await;
    one.get(&format!("select trax.complete({}); commit", own.key()))
        .await;
    let (_, completed) = completion.await.expect("the completer lives");
    assert_eq!(completed.as_deref(), Ok("t"));
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_behind_a_key_that_is_reaped_beside_an_open_claim_waits_for_no_repair() {
    let (db, s) = session().await;
    let claimer = Session::of(&db).await;
    s.get("select count(trax.enqueue('a', concurrency_key => 'k', max_retries => 0)) from generate_series(1, 2)")
        .await;
    s.claim_one("lease => '1 h'").await;
    // The cycle performs the repair of this minute.
    s.get("select * from trax.tick()").await;
    let reaper = Session::of(&db).await;
    reaper.get("select * from trax.tick()").await;
    claimer.get("begin").await;
    assert!(claimer.claim("").await.is_empty(), "it blocks the second");
    s.get("update trax.lease set lease_expires_at = now(), reap_at = now()")
        .await;
    assert_eq!(reaper.tick("reap_expired_leases").await, 1);
    // The next cycle, of whatever session, lets the second in.
    drop(reaper);
    claimer.get("commit").await;
    assert!(s.claim("").await.is_empty());
    s.get("select * from trax.tick()").await;
    assert_eq!(s.claim("").await.len(), 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn what_waits_behind_a_job_that_is_being_completed_stays_in_its_lane() {
    let (db, s) = session().await;
    let handler = Session::of(&db).await;
    s.get("select count(trax.enqueue('a', concurrency_key => 'k')) from generate_series(1, 2)")
        .await;
    let job = s.claim_one("").await;
    handler
        .get(&format!("begin; select trax.complete({})", job.key()))
        .await;
    assert!(s.claim("").await.is_empty());
    let blocked = "select count(*) from trax.work_queue where waits_for is not null";
    assert_eq!(s.number(blocked).await, 0);
    handler.get("rollback").await;
    assert!(s.claim("").await.is_empty());
    assert_eq!(s.number(blocked).await, 1);
    s.get(&format!("select trax.complete({})", job.key())).await;
    assert_eq!(s.claim("").await.len(), 1);
}
