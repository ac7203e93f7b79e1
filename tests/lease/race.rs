//! Two sessions at one lease: nothing is lost and nothing is recorded twice.

use super::let_leases_expire;
use harness::session::{Claimed, Session, session};

/// Locks the lease's row with `first` in an open transaction of one session, while another session
/// waits in `second`.
async fn race(first: &str, second: &str) -> (Session, Claimed, String) {
    let (db, a) = session().await;
    let (b, looker) = (Session::of(&db).await, Session::of(&db).await);
    a.enqueue("'a'").await;
    let job = a.claim_one("lease => '1 s'").await;
    let fill = |sql: &str| {
        sql.replace("{}", &job.key())
            .replace(
                "{arrays}",
                &format!("array[{}], array['{}'::uuid]", job.id, job.token),
            )
            .replace("{id}", &job.id.to_string())
    };
    a.get(&format!("begin; {}", fill(first))).await;
    let pid = b.pid();
    let waiting = b.spawn(fill(second));
    looker.sees_waiting(pid).await;
    a.get("commit").await;
    let (_, seen) = waiting.await.expect("the second session lives");
    (looker, job, seen.expect("the second statement works"))
}

const HEARTBEAT: &str = "select held, cancel_requested from trax.heartbeat({arrays}, '1 h')";

#[tokio::test]
async fn a_completion_that_waits_for_a_heartbeat_is_recorded() {
    let (s, _, seen) = race(HEARTBEAT, "select trax.complete({}, '\"done\"')").await;
    assert_eq!(seen, "t");
    assert_eq!(
        s.get("select state, output, final from trax.run").await,
        "completed|\"done\"|t"
    );
    assert_eq!(s.number("select count(*) from trax.lease").await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn of_two_completions_at_once_one_is_recorded() {
    let (s, _, seen) = race(
        "select trax.complete({}, '1')",
        "select trax.complete({}, '2')",
    )
    .await;
    assert_eq!(seen, "f");
    assert_eq!(s.get("select output from trax.run").await, "1");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_failure_that_waits_for_a_completion_is_lost() {
    let (s, _, seen) = race("select trax.complete({})", "select trax.fail({}, 'no')").await;
    assert_eq!(seen, "lost");
    assert_eq!(s.get("select state from trax.run").await, "completed");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_release_that_waits_for_a_cancel_acknowledges_it() {
    let (s, _, seen) = race("select trax.cancel({id})", "select trax.release({})").await;
    assert_eq!(seen, "t");
    assert_eq!(s.get("select state from trax.job").await, "cancelled");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cancel_that_waits_for_a_completion_says_finished() {
    let (s, _, seen) = race("select trax.complete({})", "select trax.cancel({id})").await;
    assert_eq!(seen, "finished");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cancel_that_waits_for_a_retry_cancels_the_job() {
    let (s, _, seen) = race("select trax.fail({}, 'no')", "select trax.cancel({id})").await;
    assert_eq!(seen, "cancelled");
    assert_eq!(s.get("select state from trax.job").await, "cancelled");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cancel_that_waits_for_a_release_cancels_the_job() {
    let (s, _, seen) = race("select trax.release({})", "select trax.cancel({id})").await;
    assert_eq!(seen, "cancelled");
    assert_eq!(s.get("select state from trax.job").await, "cancelled");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cycle_steps_over_a_lease_that_is_being_completed() {
    let (db, a) = session().await;
    let ticker = Session::of(&db).await;
    ticker.get("set lock_timeout = '30 s'").await;
    a.enqueue("'a'").await;
    let job = a.claim_one("").await;
    let_leases_expire(&a).await;
    a.get(&format!("begin; select trax.complete({})", job.key()))
        .await;
    assert_eq!(ticker.tick("reap_expired_leases").await, 0);
    a.get("commit").await;
    assert_eq!(ticker.tick("reap_expired_leases").await, 0);
    assert_eq!(
        a.get("select state, final from trax.run").await,
        "completed|t"
    );
    a.assert_healthy().await;
}

#[tokio::test]
async fn a_completion_that_waits_for_the_reaper_is_refused() {
    let (db, ticker) = session().await;
    let (worker, looker) = (Session::of(&db).await, Session::of(&db).await);
    worker.enqueue("'a'").await;
    let job = worker.claim_one("").await;
    let_leases_expire(&worker).await;
    ticker.get("begin").await;
    assert_eq!(ticker.tick("reap_expired_leases").await, 1);
    let pid = worker.pid();
    let late = worker.spawn(format!("select trax.complete({})", job.key()));
    looker.sees_waiting(pid).await;
    ticker.get("commit").await;
    let (_, seen) = late.await.expect("the worker lives");
    assert_eq!(seen, Ok("f".to_owned()));
    assert_eq!(looker.get("select state from trax.job").await, "queued");
    looker.assert_healthy().await;
}
