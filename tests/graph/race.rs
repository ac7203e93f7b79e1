//! Ends, seals and cycles that meet. Every job is decided on exactly once.

use super::{assert_no_needs, complete, fail, queued, states};
use harness::session::{Session, session};

#[tokio::test]
async fn two_last_needs_that_end_at_once_wake_the_job_once() {
    let (db, s) = session().await;
    let (one, other) = (Session::of(&db).await, Session::of(&db).await);
    queued(&s, "a b c:a,b", "cancel").await;
    let a = s.claim_one("tasks => '{a}'").await;
    let b = s.claim_one("tasks => '{b}'").await;
    one.get(&format!("begin; select trax.complete({})", a.key()))
        .await;
    other
        .get(&format!("begin; select trax.complete({})", b.key()))
        .await;
    assert_eq!(s.tick("promote_delayed").await, 0);
    one.get("commit").await;
    assert_eq!(s.tick("promote_delayed").await, 0);
    other.get("commit").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    assert_eq!(s.tick("promote_delayed").await, 0);
    complete(&s, "c").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn an_end_that_is_rolled_back_or_killed_decides_nothing() {
    let (db, s) = session().await;
    queued(&s, "a b:a", "cancel").await;
    let a = s.claim_one("tasks => '{a}'").await;
    let killed = Session::of(&db).await;
    killed
        .get(&format!("begin; select trax.complete({})", a.key()))
        .await;
    s.get(&format!(
        "select pg_terminate_backend({}, 10000)",
        killed.pid()
    ))
    .await;
    assert_eq!(s.tick("promote_delayed").await, 0);
    s.get(&format!("begin; select trax.complete({})", a.key()))
        .await;
    s.get("rollback").await;
    assert_eq!(s.tick("promote_delayed").await, 0);
    s.get(&format!("select trax.complete({})", a.key())).await;
    // A cycle that is killed leaves the event to the next.
    let cycle = Session::of(&db).await;
    cycle.get("begin; select * from trax.tick()").await;
    s.get(&format!(
        "select pg_terminate_backend({}, 10000)",
        cycle.pid()
    ))
    .await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    complete(&s, "b").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_job_that_another_transaction_has_locked_keeps_its_event() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    for when in ["completed", "failed"] {
        let ids = queued(&s, &format!("a b:a/{when} c:b"), "cancel").await;
        other.get("begin").await;
        let limited = format!("select trax.limit_queue_time({}, '1 h')", ids["b"]);
        other.get(&limited).await;
        complete(&s, "a").await;
        assert_eq!(
            s.tick("promote_delayed").await,
            0,
            "a cycle waits for nobody"
        );
        other.get("commit").await;
        let woken = s.tick("promote_delayed").await;
        if when == "completed" {
            assert_eq!(woken, 1);
            complete(&s, "b").await;
            s.get("select * from trax.tick()").await;
            complete(&s, "c").await;
        } else {
            assert_eq!(
                states(&s, ids["a"]).await,
                "a completed, b cancelled, c cancelled"
            );
        }
        assert_no_needs(&s).await;
    }
}

#[tokio::test]
async fn a_doomed_job_that_is_locked_is_cancelled_later() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    let ids = queued(&s, "a b:a", "cancel").await;
    other
        .get(&format!(
            "begin; select trax.limit_queue_time({}, '1 h')",
            ids["b"]
        ))
        .await;
    s.get(&format!("select trax.cancel({})", ids["a"])).await;
    s.get("select * from trax.tick()").await;
    other.get("rollback").await;
    s.get("select * from trax.tick()").await;
    assert_eq!(states(&s, ids["a"]).await, "a cancelled, b cancelled");
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_seal_waits_for_the_transaction_that_is_adding_a_job() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    let batch = s.number("select trax.open_batch('report')").await;
    s.get(&format!(
        "begin; select trax.enqueue('mail', batch => {batch})"
    ))
    .await;
    let pid = other.pid();
    let seal = other.spawn(format!("select trax.seal_batch({batch})"));
    s.sees_waiting(pid).await;
    s.get("commit").await;
    let (other, count) = seal.await.expect("it ends");
    assert_eq!(count.expect("it seals"), "1");
    assert_eq!(other.tick("promote_delayed").await, 0);
    complete(&other, "mail").await;
    assert_eq!(other.tick("promote_delayed").await, 1);
    complete(&other, "report").await;
    assert_no_needs(&other).await;
}

#[tokio::test]
async fn who_adds_to_a_batch_that_is_being_sealed_is_refused_or_adds_it() {
    let (db, s) = session().await;
    for (end, wanted) in [("commit", Err("55000")), ("rollback", Ok(()))] {
        let batch = s.number("select trax.open_batch('report')").await;
        s.get(&format!("begin; select trax.seal_batch({batch})"))
            .await;
        let other = Session::of(&db).await;
        let pid = other.pid();
        let add = other.spawn(format!("select trax.enqueue('mail', batch => {batch})"));
        s.sees_waiting(pid).await;
        s.get(end).await;
        let (_, added) = add.await.expect("it ends");
        assert_eq!(
            added.map(drop).map_err(|refusal| refusal.code),
            wanted.map_err(str::to_owned)
        );
    }
}

#[tokio::test]
async fn one_transaction_opens_fills_and_seals_and_adds_many_at_once() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    s.get("begin").await;
    let batch = s.number("select trax.open_batch('report')").await;
    s.get(&format!("select trax.enqueue('mail', batch => {batch})"))
        .await;
    s.get(&format!("select trax.seal_batch({batch})")).await;
    assert_eq!(other.tick("promote_delayed").await, 0);
    s.get("commit").await;
    complete(&s, "mail").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    complete(&s, "report").await;
    assert_no_needs(&s).await;
    // Who adds to an open batch waits for nobody else who does.
    let batch = s.number("select trax.open_batch('report')").await;
    for session in [&s, &other] {
        session
            .get(&format!(
                "begin; select trax.enqueue('mail', batch => {batch})"
            ))
            .await;
    }
    for session in [&s, &other] {
        session.get("commit").await;
    }
    assert_eq!(
        s.number(&format!("select trax.seal_batch({batch})")).await,
        2
    );
}

/// In READ COMMITTED the snapshot of the statement that locks the batch's job is as old as that,
/// for a shorter time.
#[tokio::test]
async fn a_batch_waits_for_a_job_that_is_requeued_while_a_cycle_decides() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    let waits = "select waits_for from trax.work_queue where task = 'report'";
    for commits_first in [true, false] {
        let batch = s.number("select trax.open_batch('report')").await;
        s.get(&format!("select trax.enqueue('mail', batch => {batch})"))
            .await;
        s.get(&format!("select trax.seal_batch({batch})")).await;
        fail(&s, "mail").await;
        s.get("begin isolation level repeatable read; select count(*) from trax.dead_letter")
            .await;
        other.get("begin; select trax.requeue_dead_letters()").await;
        if commits_first {
            other.get("commit").await;
        }
        assert_eq!(s.tick("promote_delayed").await, 0);
        s.get("commit").await;
        if !commits_first {
            other.get("commit").await;
        }
        assert_eq!(s.tick("promote_delayed").await, 0);
        assert_eq!(s.get(waits).await, "jobs");
        complete(&s, "mail").await;
        assert_eq!(s.tick("promote_delayed").await, 1);
        complete(&s, "report").await;
        assert_no_needs(&s).await;
    }
}
