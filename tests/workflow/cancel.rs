//! Cancelling a job with all that it has spawned.

use super::running;
use harness::session::{Claimed, Session, session};

#[tokio::test]
async fn a_cancel_reaches_living_descendants() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    let spawn =
        |key: &str, step: &str, task: &str| format!("select trax.spawn({key}, '{step}', '{task}')");
    s.get(&spawn(&job.key(), "a", "child")).await;
    s.get(&spawn(&job.key(), "b", "child")).await;
    let child = s.claim_one("tasks => '{child}'").await;
    s.get(&spawn(&child.key(), "c", "grandchild")).await;
    s.get(&format!("select trax.await_children({}, 'w')", job.key()))
        .await;
    let cancel = format!("select trax.cancel({})", job.id);
    assert_eq!(s.get(&cancel).await, "cancelled");
    let states = "select task, state from trax.job order by job_id";
    assert_eq!(
        s.get(states).await,
        "flow|cancelled\nchild|in_progress\nchild|cancelled\ngrandchild|cancelled"
    );
    assert_eq!(s.get("select cancel_requested from trax.lease").await, "t");
    let more = s.get(&spawn(&child.key(), "d", "grandchild")).await;
    assert_eq!(more, "", "a job that is asked to stop spawns no more");
    let note = "select note from trax.audit where action = 'cancel'";
    assert_eq!(s.get(note).await, "cancelled, and 3 descendants");
    s.assert_healthy().await;
}

#[tokio::test]
async fn children_stay_when_only_the_job_is_cancelled() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    s.get(&format!("select trax.spawn({}, 'a', 'child')", job.key()))
        .await;
    let cancel = format!("select trax.cancel({}, tree => false)", job.id);
    assert_eq!(s.get(&cancel).await, "requested");
    assert_eq!(s.claim_ids("tasks => '{child}'").await.len(), 1);
}

#[tokio::test]
async fn a_cancel_waits_for_the_child_that_is_being_spawned() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    let job = running(&s).await;
    s.get("begin").await;
    let child = s
        .number(&format!("select trax.spawn({}, 'a', 'child')", job.key()))
        .await;
    let pid = other.pid();
    let cancel = other.spawn(format!("select trax.cancel({})", job.id));
    s.sees_waiting(pid).await;
    s.get("commit").await;
    let (other, outcome) = cancel.await.expect("it ends");
    assert_eq!(outcome.expect("it cancels"), "requested");
    let state = format!("select state from trax.job where job_id = {child}");
    assert_eq!(other.get(&state).await, "cancelled");
}

/// A tree whose child has ended before its grandchild; the ids of the root and the grandchild.
async fn with_ended_child(s: &Session) -> (Claimed, i64) {
    let job = running(s).await;
    s.get(&format!("select trax.spawn({}, 'c', 'child')", job.key()))
        .await;
    let child = s.claim_one("tasks => '{child}'").await;
    let spawn = format!("select trax.spawn({}, 'g', 'grandchild')", child.key());
    let grandchild = s.number(&spawn).await;
    s.get(&format!("select trax.complete({})", child.key()))
        .await;
    (job, grandchild)
}

async fn state(s: &Session, job_id: i64) -> String {
    s.get(&format!(
        "select state from trax.job where job_id = {job_id}"
    ))
    .await
}

#[tokio::test]
async fn a_cancel_reaches_jobs_behind_a_child_that_has_ended() {
    let (_db, s) = session().await;
    let (job, grandchild) = with_ended_child(&s).await;
    let cancel = format!("select trax.cancel({})", job.id);
    assert_eq!(s.get(&cancel).await, "requested");
    assert_eq!(state(&s, grandchild).await, "cancelled");
    let note = "select note from trax.audit where action = 'cancel'";
    assert_eq!(s.get(note).await, "requested, and 1 descendant");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cancel_of_a_job_that_has_ended_reaches_its_living_descendants() {
    let (_db, s) = session().await;
    let (job, grandchild) = with_ended_child(&s).await;
    s.get(&format!("select trax.complete({})", job.key())).await;
    let alone = format!("select trax.cancel({}, tree => false)", job.id);
    assert_eq!(s.get(&alone).await, "finished");
    assert_eq!(state(&s, grandchild).await, "queued");
    let cancel = format!("select trax.cancel({})", job.id);
    assert_eq!(s.get(&cancel).await, "finished");
    assert_eq!(state(&s, grandchild).await, "cancelled");
    let note = "select note from trax.audit where action = 'cancel'";
    assert_eq!(s.get(note).await, "finished, and 1 descendant");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_child_that_is_newer_than_the_snapshot_is_not_missed() {
    let (db, s) = session().await;
    let old = Session::of(&db).await;
    let job = running(&s).await;
    old.get("begin isolation level repeatable read; select count(*) from trax.run")
        .await;
    s.get(&format!("select trax.spawn({}, 'c', 'child')", job.key()))
        .await;
    let refusal = old
        .refusal(&format!("select trax.cancel({})", job.id))
        .await;
    assert_eq!(refusal.code, "40001", "{refusal}");
    old.get("rollback").await;
    s.get(&format!("select trax.cancel({})", job.id)).await;
    let left = "select count(*) from trax.work_queue";
    assert_eq!(s.get(left).await, "0");
}

#[tokio::test]
async fn a_cancel_of_a_group_or_a_manifest_and_its_end_reach_children() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'flow', group_name => 'g')")
        .await;
    let calls = [
        ("select trax.cancel_manifest('m')", "2"),
        ("select trax.cancel_group('g')", "2"),
        ("select trax.unschedule('m')", ""),
    ];
    for (call, count) in calls {
        s.get("select trax.trigger('m')").await;
        let job = s.claim_one("tasks => '{flow}'").await;
        let spawn = format!("select trax.spawn({}, 'c', 'child')", job.key());
        let child = s.number(&spawn).await;
        s.get(&format!(
            "select * from trax.await_children({}, 'w')",
            job.key()
        ))
        .await;
        assert_eq!(s.get(call).await, count, "{call}");
        assert_eq!(state(&s, job.id).await, "cancelled", "{call}");
        assert_eq!(state(&s, child).await, "cancelled", "{call}");
    }
    s.assert_healthy().await;
}
