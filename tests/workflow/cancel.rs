//! Cancelling a job with all that it has spawned.

use super::running;
use harness::session::{Session, session};

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
