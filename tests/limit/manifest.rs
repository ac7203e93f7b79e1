//! A manifest's `max_concurrency`: the limit on its running jobs, whichever call queued them.

use harness::limit::most_at_once;
use harness::session::{Claimed, Session, session};
use trax_client::testkit::Database;

/// A manifest with this limit and manually triggered jobs, and one job without a manifest.
async fn triggered(limit: i32, jobs: i32) -> (Database, Session, i64) {
    let (db, s) = session().await;
    s.get(&format!(
        "select trax.schedule('m', 'm', max_concurrency => {limit});
         select count(trax.trigger('m')) from generate_series(1, {jobs})"
    ))
    .await;
    let free = s.enqueue("'free'").await;
    (db, s, free)
}

async fn complete(s: &Session, job: &Claimed) {
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "t"
    );
}

async fn running(s: &Session) -> i64 {
    s.number("select count(*) from trax.lease where manifest = 'm'")
        .await
}

#[tokio::test]
async fn jobs_triggered_by_hand_run_as_many_at_once_as_their_manifest_says() {
    let (_db, s, free) = triggered(2, 5).await;
    let claimed = s.claim("max_jobs => 9, lease => '1 h'").await;
    assert!(
        claimed.iter().any(|job| job.id == free),
        "nobody else is held back"
    );
    let mut held: Vec<Claimed> = claimed.into_iter().filter(|job| job.id != free).collect();
    let mut done = 0;
    while !held.is_empty() {
        assert!(running(&s).await <= 2, "{} run", running(&s).await);
        complete(&s, &held.remove(0)).await;
        done += 1;
        held.extend(s.claim("max_jobs => 9, lease => '1 h'").await);
    }
    assert_eq!(done, 5, "each comes to its turn");
    assert_eq!(most_at_once(&s, "manifest").await, "m=2");
    s.assert_healthy().await;
}

#[tokio::test]
async fn open_claims_of_one_manifest_do_not_exceed_its_limit_together() {
    let (db, s, _) = triggered(2, 5).await;
    let other = Session::of(&db).await;
    other.get("set lock_timeout = '30 s'").await;
    s.get("begin").await;
    s.claim("tasks => array['m']").await;
    other.get("begin").await;
    other.claim("max_jobs => 9, tasks => array['m']").await;
    s.get("commit").await;
    other.get("commit").await;
    assert!(running(&s).await <= 2, "{} run", running(&s).await);
}

#[tokio::test]
async fn a_changed_max_concurrency_counts_at_once_and_ends_nothing() {
    let (_db, s, _) = triggered(3, 9).await;
    s.claim("max_jobs => 9, lease => '1 h'").await;
    assert_eq!(running(&s).await, 3);
    s.get("select trax.schedule('m', 'm', max_concurrency => 4)")
        .await;
    s.claim("max_jobs => 9, lease => '1 h'").await;
    assert_eq!(running(&s).await, 4);
    s.get("select trax.schedule('m', 'm', max_concurrency => 2)")
        .await;
    for left in [3, 2, 2, 2] {
        s.get("select trax.complete(job_id, token) from trax.lease where manifest = 'm' limit 1")
            .await;
        s.claim("max_jobs => 9, lease => '1 h'").await;
        assert_eq!(running(&s).await, left);
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn whatever_ends_a_job_of_a_full_manifest_lets_the_next_one_in() {
    for end in [
        "select trax.fail({}, 'no', permanent => true)",
        "select trax.fail({}, 'no', retry_in => '1 h')",
        "select trax.release({}, '1 h')",
        "update trax.lease set lease_expires_at = now(), reap_at = now() where (job_id, token) = ({});
         select from trax.tick()",
    ] {
        let (_db, s, _) = triggered(2, 5).await;
        let held = s.claim("max_jobs => 9, tasks => array['m'], lease => '1 h'").await;
        assert_eq!(held.len(), 2, "{end}");
        s.get(&end.replace("{}", &held[0].key())).await;
        assert_eq!(s.claim("max_jobs => 9, tasks => array['m']").await.len(), 1, "{end}");
    }
}
