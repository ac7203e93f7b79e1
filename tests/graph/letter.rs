//! Dead letters in a graph: jobs that wait for a person, and jobs that are cancelled.

use super::{assert_no_needs, complete, fail, queued, states};
use harness::session::session;

#[tokio::test]
async fn a_graph_that_waits_for_a_person_goes_on_with_the_job_in_the_place_of_the_dead_one() {
    let (_db, s) = session().await;
    let ids = queued(&s, "a b:a c:b d:a/ended", "wait").await;
    fail(&s, "a").await;
    assert_eq!(s.tick("promote_delayed").await, 1, "d runs");
    assert_eq!(
        states(&s, ids["a"]).await,
        "a failed, b queued, c queued, d queued"
    );
    let said = s
        .get(&format!(
            "select reason from trax.explain_job({}) order by 1",
            ids["b"]
        ))
        .await;
    assert_eq!(said, "dead_letter_of_need\njobs");
    let letter = s.number("select id from trax.dead_letter").await;
    let again = s
        .number(&format!("select trax.requeue_dead_letter({letter})"))
        .await;
    s.get("select * from trax.tick()").await;
    let needs = format!("select * from trax.read_needs({})", ids["b"]);
    assert_eq!(s.get(&needs).await, format!("a|{again}|queued||"));
    // The second one may fail, too.
    fail(&s, "a").await;
    assert_eq!(s.tick("promote_delayed").await, 0);
    s.get("select trax.requeue_dead_letters()").await;
    complete(&s, "a").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    complete(&s, "b").await;
    s.get("select * from trax.tick()").await;
    complete(&s, "c").await;
    complete(&s, "d").await;
    assert_eq!(
        states(&s, ids["a"]).await,
        "b completed, c completed, d completed, a completed"
    );
    s.get("select * from trax.tick()").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn an_acknowledged_letter_cancels_what_waits_for_it() {
    let (_db, s) = session().await;
    let ids = queued(&s, "a b:a c:b", "wait").await;
    fail(&s, "a").await;
    s.get("select * from trax.tick()").await;
    s.get("select trax.acknowledge_dead_letter(id) from trax.dead_letter")
        .await;
    s.get("select * from trax.tick()").await;
    assert_eq!(
        states(&s, ids["a"]).await,
        "a failed, b cancelled, c cancelled"
    );
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_cancel_waits_for_nobody() {
    let (_db, s) = session().await;
    let ids = queued(&s, "a b:a", "wait").await;
    s.get(&format!("select trax.cancel({})", ids["a"])).await;
    s.get("select * from trax.tick()").await;
    assert_eq!(states(&s, ids["a"]).await, "a cancelled, b cancelled");
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_requeued_job_of_a_graph_that_was_cancelled_takes_its_place_alone() {
    let (_db, s) = session().await;
    let ids = queued(&s, "a b:a", "cancel").await;
    fail(&s, "a").await;
    s.get("select * from trax.tick()").await;
    s.get("select trax.requeue_dead_letters()").await;
    complete(&s, "a").await;
    s.get("select * from trax.tick()").await;
    assert_eq!(states(&s, ids["b"]).await, "b cancelled, a completed");
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_job_for_a_failure_needed_the_job_that_failed_and_not_the_one_in_its_place() {
    let (_db, s) = session().await;
    let ids = queued(&s, "a alarm:a/failed after:a/ended b:a", "wait").await;
    fail(&s, "a").await;
    s.get("select * from trax.tick()").await;
    s.get("select trax.requeue_dead_letters()").await;
    complete(&s, "a").await;
    s.get("select * from trax.tick()").await;
    let needs = |name: &str| format!("select job_id, state from trax.read_needs({})", ids[name]);
    let failed = format!("{}|failed", ids["a"]);
    assert_eq!(s.get(&needs("alarm")).await, failed);
    assert_eq!(s.get(&needs("after")).await, failed);
    assert!(s.get(&needs("b")).await.ends_with("|completed"));
}
