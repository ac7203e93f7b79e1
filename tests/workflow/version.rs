//! The version of a job stays with it, wherever it goes.

use super::{running, steps};
use harness::session::{Session, session};

/// Queues a job of version v1, and claims it.
async fn of_version(s: &Session) -> harness::session::Claimed {
    s.enqueue("'flow', version => 'v1', max_retries => 1").await;
    s.claim_one("versions => '{v1}'").await
}

/// The versions of what waits, with the tasks.
const WAITING: &str = "select task, version from trax.work_queue order by job_id";

#[tokio::test]
async fn a_job_that_is_queued_again_keeps_its_version() {
    let (_db, s) = session().await;
    for back in [
        "select trax.fail($, 'no', retry_in => '0 s')",
        "select trax.release($)",
        "select trax.sleep($, 'nap', now() + interval '1 h')",
        "select * from trax.await_signal($, 'go', 'go')",
        "update trax.lease set lease_expires_at = now() - interval '1 h', reap_at = now() - interval '1 h';
         select count(*) from trax.tick()",
    ] {
        let job = of_version(&s).await;
        s.get(&back.replace('$', &job.key())).await;
        assert_eq!(s.get(WAITING).await, "flow|v1", "{back}");
        s.assert_healthy().await;
        s.get(&format!("select trax.cancel({})", job.id)).await;
        let ended = format!(
            "select version from trax.run where job_id = {} and final",
            job.id
        );
        assert_eq!(s.get(&ended).await, "v1", "{back}");
    }
}

#[tokio::test]
async fn a_dead_letter_and_a_fork_keep_the_version_and_undo_jobs_have_it() {
    let (_db, s) = session().await;
    let job = of_version(&s).await;
    let undo = "undo => '{\"task\": \"undo\"}'";
    s.get(&format!(
        "select trax.record_step({}, 'a', '1', {undo})",
        job.key()
    ))
    .await;
    s.get(&format!(
        "select trax.fail({}, 'no', permanent => true)",
        job.key()
    ))
    .await;
    assert_eq!(s.get(WAITING).await, "undo|v1");
    assert_eq!(s.get("select version from trax.dead_letter").await, "v1");
    s.get("select trax.requeue_dead_letter(id, fresh => true) from trax.dead_letter")
        .await;
    s.get(&format!("select trax.fork({}, 'a')", job.id)).await;
    assert_eq!(s.get(WAITING).await, "undo|v1\nflow|v1\nflow|v1");
    assert_eq!(s.claim_ids("versions => '{v2}'").await, [0; 0]);
    let jobs = "select string_agg(version, ' ' order by job_id) from trax.job";
    assert_eq!(s.get(jobs).await, "v1 v1 v1 v1");
    // A letter that the repair writes has it too.
    s.get("delete from trax.dead_letter").await;
    s.get("select count(*) from trax.tick()").await;
    assert_eq!(s.get("select version from trax.dead_letter").await, "v1");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_that_expires_in_the_queue_keeps_its_version() {
    let (_db, s) = session().await;
    let job = s.enqueue("'flow', version => 'v1'").await;
    s.get(&format!("select trax.limit_queue_time({job}, '1 ms')"))
        .await;
    s.get("select pg_sleep(0.01)").await;
    s.get("select count(*) from trax.tick()").await;
    let kept = "select d.version, r.version from trax.dead_letter d join trax.run r using (job_id)";
    assert_eq!(s.get(kept).await, "v1|v1");
}

#[tokio::test]
async fn a_child_has_the_version_that_its_parent_gives_it() {
    let (_db, s) = session().await;
    let job = of_version(&s).await;
    for (step, options) in [("a", ""), ("b", ", version => 'v2'"), ("b", "")] {
        s.get(&format!(
            "select trax.spawn({}, '{step}', 'child'{options})",
            job.key()
        ))
        .await;
    }
    assert_eq!(s.get(WAITING).await, "child|\nchild|v2");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_without_a_version_stays_without_one() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    s.get(&format!("select trax.record_step({}, 'a')", job.key()))
        .await;
    s.get(&format!(
        "select trax.fail({}, 'no', retry_in => '0 s')",
        job.key()
    ))
    .await;
    let again = s.claim_one("versions => '{v1}'").await;
    assert_eq!(again.id, job.id);
    assert_eq!(steps(&s, job.id).await, "a|step||t");
}
