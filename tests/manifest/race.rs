//! Two sessions at one manifest: no orphan, no deadlock.

use harness::session::{Session, session};

#[tokio::test]
async fn two_sessions_that_schedule_one_name_make_one_manifest() {
    let (db, a) = session().await;
    let (b, looker) = (Session::of(&db).await, Session::of(&db).await);
    a.get("begin").await;
    let id = a
        .get("select trax.schedule('m', 'a', every => '1 h')")
        .await;
    let pid = b.pid();
    let other = b.spawn("select trax.schedule('m', 'b', every => '2 h')");
    looker.sees_waiting(pid).await;
    a.get("commit").await;
    let (_, seen) = other.await.expect("the other session lives");
    assert_eq!(seen, Ok(id));
    assert_eq!(
        looker.get("select task, every from trax.manifest").await,
        "b|02:00:00"
    );
    looker.assert_healthy().await;
}

#[tokio::test]
async fn a_trigger_that_meets_an_unschedule_leaves_no_orphan() {
    let (db, a) = session().await;
    let (b, looker) = (Session::of(&db).await, Session::of(&db).await);
    a.get("select trax.schedule('m', 'a')").await;
    a.get("begin; select trax.trigger('m')").await;
    let pid = b.pid();
    let other = b.spawn("select trax.unschedule('m')");
    looker.sees_waiting(pid).await;
    a.get("commit").await;
    let (_, seen) = other.await.expect("the other session lives");
    seen.expect("unscheduling works");
    assert_eq!(looker.get("select state from trax.job").await, "cancelled");
    looker.assert_healthy().await;
}

#[tokio::test]
async fn a_parent_is_not_removed_while_another_manifest_comes_to_depend_on_it() {
    let (db, mut a) = session().await;
    let (mut b, looker) = (Session::of(&db).await, Session::of(&db).await);
    for isolation in ["read committed", "repeatable read"] {
        a.get("select trax.schedule('parent', 'a')").await;
        a.get("begin; select trax.schedule('child', 'a', depends_on => '{parent}')")
            .await;
        b.get(&format!("begin isolation level {isolation}; select 1"))
            .await;
        let pid = b.pid();
        let other = b.spawn("select trax.unschedule('parent')");
        looker.sees_waiting(pid).await;
        a.get("commit").await;
        let (session, seen) = other.await.expect("the other session lives");
        let refusal = seen.expect_err("a manifest depends on it");
        assert!(
            refusal.message.contains("depend on manifest \"parent\""),
            "{refusal}"
        );
        b = session;
        b.get("rollback; begin; select trax.unschedule('child'); select trax.unschedule('parent')")
            .await;
        let pid = a.pid();
        let other = a.spawn("select trax.schedule('child', 'a', depends_on => '{parent}')");
        looker.sees_waiting(pid).await;
        b.get("commit").await;
        let (session, seen) = other.await.expect("the other session lives");
        let refusal = seen.expect_err("the parent is gone");
        assert_eq!(refusal.message, "manifest \"parent\" does not exist");
        a = session;
    }
    looker.assert_healthy().await;
}

/// A session locks the rows that `locked` selects, as the first half of `first` does; another waits
/// in `second`; then the first continues with `first`. Both must succeed.
async fn cross(
    s: &Session,
    db: &trax_client::testkit::Database,
    locked: &str,
    first: &str,
    second: &str,
) {
    let (a, b) = (Session::of(db).await, Session::of(db).await);
    a.get(&format!("begin; {locked} for update")).await;
    let (a_pid, b_pid) = (a.pid(), b.pid());
    let second = b.spawn(second);
    s.sees_waiting(b_pid).await;
    let first = a.spawn(format!("{first}; commit"));
    let (_, seen) = first.await.expect("the first session lives");
    seen.unwrap_or_else(|refusal| panic!("{a_pid} was refused: {refusal}"));
    let (_, seen) = second.await.expect("the second session lives");
    seen.unwrap_or_else(|refusal| panic!("{b_pid} was refused: {refusal}"));
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_success_and_a_change_of_its_manifest_do_not_deadlock() {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'a', run_at => '2000-01-01Z'); select * from trax.tick()")
        .await;
    let job = s.claim_one("").await;
    let manifest = "select from trax.manifest where name = 'm'";
    cross(
        &s,
        &db,
        manifest,
        "select trax.disable_manifest('m')",
        &format!("select trax.complete({})", job.key()),
    )
    .await;
    assert_eq!(s.get("select state from trax.job").await, "completed");
}

#[tokio::test]
async fn an_unschedule_and_a_cancel_do_not_deadlock() {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h'); select * from trax.tick()")
        .await;
    let waiting = "select from trax.work_queue";
    cross(
        &s,
        &db,
        waiting,
        "select trax.unschedule('m')",
        "select trax.cancel(job_id) from trax.work_queue",
    )
    .await;
    assert_eq!(s.get("select state from trax.job").await, "cancelled");
}

#[tokio::test]
async fn an_unschedule_and_a_completion_do_not_deadlock() {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h'); select * from trax.tick()")
        .await;
    let job = s.claim_one("").await;
    let state = "select from trax.manifest_state";
    cross(
        &s,
        &db,
        state,
        "select trax.unschedule('m')",
        &format!("select trax.complete({})", job.key()),
    )
    .await;
    assert_eq!(s.get("select state from trax.job").await, "completed");
}
