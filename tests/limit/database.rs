//! The limit of the whole database.

use harness::manifest::complete;
use harness::scheduler::live_database;
use harness::session::{Session, session};
use harness::{PATIENCE, eventually};
use std::time::Instant;

const JOBS: &str =
    "select count(trax.enqueue('t' || n, group_name => 'g' || n % 3)) from generate_series(1, 9) n";

#[tokio::test]
async fn a_session_claims_up_to_the_limit_that_it_has_set() {
    let (_db, s) = session().await;
    s.get(JOBS).await;
    s.get("set trax.max_active_jobs = 3").await;
    let jobs = s.claim("max_jobs => 9").await;
    assert_eq!(jobs.len(), 3);
    assert!(s.claim("max_jobs => 9").await.is_empty());
    s.get("set trax.max_active_jobs = 2").await;
    complete(&s, &jobs[0]).await;
    assert!(s.claim("max_jobs => 9").await.is_empty());
    complete(&s, &jobs[1]).await;
    assert_eq!(s.claim("max_jobs => 9").await.len(), 1);
    s.get("set trax.max_active_jobs = 0").await;
    assert_eq!(s.claim("max_jobs => 9").await.len(), 5, "0 is no limit");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_second_claim_returns_at_once_while_the_last_room_is_being_taken() {
    let (db, first) = session().await;
    first
        .get(
            "alter database current_database_name set trax.max_active_jobs = 2"
                .replace("current_database_name", db.name())
                .as_str(),
        )
        .await;
    let (first, second) = (Session::of(&db).await, Session::of(&db).await);
    first.get(JOBS).await;
    second.get("set lock_timeout = '30 s'").await;
    first.get("begin").await;
    assert_eq!(first.claim("").await.len(), 1);
    assert!(second.claim("max_jobs => 9").await.is_empty());
    let began = Instant::now();
    second.get("call trax.wait_for_work('10 min')").await;
    assert!(began.elapsed() < PATIENCE);
    first.get("commit").await;
    assert_eq!(second.claim("max_jobs => 9").await.len(), 1);
}

#[tokio::test]
async fn old_snapshots_do_not_exceed_the_limit() {
    for level in ["repeatable read", "serializable"] {
        let (db, s) = session().await;
        let old = Session::of(&db).await;
        s.get(JOBS).await;
        for them in [&s, &old] {
            them.get("set trax.max_active_jobs = 2").await;
        }
        old.get(&format!(
            "begin isolation level {level}; select count(*) from trax.lease"
        ))
        .await;
        assert_eq!(s.claim("max_jobs => 9").await.len(), 2);
        match old
            .attempt("select count(*) from trax.claim_next(max_jobs => 9)")
            .await
        {
            Ok(count) => assert_eq!(count, "0", "{level}"),
            Err(refusal) => assert_eq!(refusal.code, "40001", "{level}: {refusal}"),
        }
        old.get("rollback").await;
    }
}

#[tokio::test]
async fn the_end_of_a_job_wakes_who_found_the_database_full() {
    let (db, s) = session().await;
    s.get(&format!(
        "alter database {} set trax.max_active_jobs = 1",
        db.name()
    ))
    .await;
    let (worker, waiter) = (Session::of(&db).await, Session::of(&db).await);
    s.get(JOBS).await;
    let job = worker.claim_one("").await;
    assert!(waiter.claim("").await.is_empty());
    let wait = tokio::spawn(async move {
        let began = Instant::now();
        waiter.get("call trax.wait_for_work('10 min')").await;
        began.elapsed()
    });
    complete(&worker, &job).await;
    let waited = wait.await.expect("the waiter lives");
    assert!(waited < PATIENCE, "waited {waited:?} though there is room");
}

/// The number of jobs that a claim would start; the claim is rolled back.
async fn would_start(s: &Session) -> usize {
    s.get("begin").await;
    let count = s.claim("max_jobs => 9").await.len();
    s.get("rollback").await;
    count
}

async fn comes_to_start(s: &Session, count: usize) {
    eventually(
        &format!("{count} start"),
        PATIENCE,
        async || match would_start(s).await {
            seen if seen == count => Ok(()),
            seen => Err(seen.to_string()),
        },
    )
    .await;
}

#[tokio::test]
async fn a_limit_set_for_the_database_counts_in_sessions_that_were_connected_before() {
    let db = live_database().await;
    let s = Session::of(&db).await;
    s.get(JOBS).await;
    let set = |value: &str| {
        format!(
            "alter database {} set trax.max_active_jobs = {value}",
            db.name()
        )
    };
    assert_eq!(would_start(&s).await, 9);
    s.get(&set("2")).await;
    comes_to_start(&s, 2).await;
    s.get(&set("0")).await;
    comes_to_start(&s, 9).await;
    s.get(&set("1")).await;
    comes_to_start(&s, 1).await;
    // A new session shows the new value, and goes by it before the scheduler has seen it.
    for value in [4, 2] {
        s.get(&set(&value.to_string())).await;
        let new = Session::of(&db).await;
        assert_eq!(would_start(&new).await, value);
        comes_to_start(&s, value).await;
    }
    s.get("set trax.max_active_jobs = 3").await;
    assert_eq!(would_start(&s).await, 3, "its own choice");
}
