//! Rules of `trax.check()` with conditions: nothing is reported that the next cycle mends.

use super::healthy_database;
use crate::graph::{complete, fail, queued};
use harness::session::{Session, session};

/// A cycle has run, and a signal is left of a job that ended an hour ago.
pub(super) const ORPHAN_SIGNAL: &str = "
    insert into trax.believed_clock (shown_at, believed_at, uptime, boot) values (now(), now(), 0, '')
    on conflict do nothing;
    insert into trax.signal (job_id, sent_at, position, name) values (3, now() - interval '1 h', 1, 's');
    update trax.run set finished_at = finished_at - interval '1 h', started_at = started_at - interval '1 h' where job_id = 3";

async fn found(s: &Session) -> String {
    s.get("select rule from trax.check() order by 1").await
}

#[tokio::test]
async fn a_signal_without_a_job_is_reported_once_the_repair_must_have_deleted_it() {
    let (_db, s) = healthy_database().await;
    let reported = [
        ("", true),
        ("update trax.signal set sent_at = now()", false),
        (
            "update trax.run set finished_at = now() where job_id = 3",
            false,
        ),
        (
            "update trax.believed_clock set shown_at = now() - interval '65 min'",
            false,
        ),
        (
            "insert into trax.signal select 3, sent_at, null, n, true, 's' from trax.signal, generate_series(2, 50000) n",
            false,
        ),
        ("update trax.signal set job_id = 1", false),
        ("update trax.signal set job_id = 4", false),
        ("update trax.signal set job_id = 99", true),
        (
            "update trax.signal set job_id = 4;
             select trax.acknowledge_dead_letter(id) from trax.dead_letter",
            false,
        ),
        ("select count(*) from trax.tick()", false),
    ];
    for (change, is_reported) in reported {
        s.get(&format!("begin; {ORPHAN_SIGNAL}; {change}")).await;
        let wanted = if is_reported {
            "a signal has a job that can receive it"
        } else {
            ""
        };
        assert_eq!(found(&s).await, wanted, "{change}");
        s.get("rollback").await;
    }
}

#[tokio::test]
async fn a_circle_of_needs_is_reported_if_nothing_else_ends_it() {
    let (_db, s) = session().await;
    for job in 1..=4 {
        assert_eq!(s.enqueue("'a'").await, job);
    }
    s.get("update trax.work_queue set waits_for = 'jobs'").await;
    let circle = "insert into trax.need select a, b, false from (values (1, 3), (3, 2), (2, 4), (4, 1)) n (a, b)";
    let two =
        "insert into trax.need values (2, 3, false), (3, 2, false), (4, 1, false), (2, 4, false)";
    let rule = "jobs do not wait for each other for ever";
    for (needs, change, wanted) in [
        (circle, "", rule),
        (two, "", rule),
        (
            circle,
            "update trax.work_queue set wait_until = now() + interval '1 h' where job_id = 2",
            "",
        ),
        (
            circle,
            "update trax.work_queue set waits_for = null where job_id = 4",
            "",
        ),
        (
            circle,
            "update trax.need set one_is_enough = true where job_id = 1",
            "",
        ),
        (
            circle,
            "update trax.need set condition = 'failed' where job_id = 3",
            "",
        ),
        (
            circle,
            "update trax.need set needed_job_id = 99 where needed_job_id = 3",
            "",
        ),
        (
            "insert into trax.need select a, b, false from (values (3, 1), (4, 3), (2, 3), (4, 2)) n (a, b)",
            "delete from trax.work_queue where job_id = 4; select trax.enqueue('a')",
            "",
        ),
    ] {
        s.get(&format!("begin; {needs}; {change}")).await;
        let found = s.get("select distinct rule from trax.check() where rule <> 'a job that waits for others needs one'").await;
        assert_eq!(found, wanted, "{needs}; {change}");
        s.get("rollback").await;
    }
}

#[tokio::test]
async fn graphs_batches_and_their_ends_are_healthy() {
    let (_db, s) = session().await;
    queued(&s, "c:b b:a a d:a/failed", "wait").await;
    let batch = s.number("select trax.open_batch('report')").await;
    let empty = s.number("select trax.open_batch('empty')").await;
    s.assert_healthy().await;
    let member = s.enqueue(&format!("'mail', batch => {batch}")).await;
    // A job of the batch needs others.
    s.get(&format!(
        "insert into trax.need select {member}, job_id, false from trax.work_queue where task = 'a';
         update trax.work_queue set waits_for = 'jobs' where task = 'a'"
    ))
    .await;
    s.assert_healthy().await;
    for batch in [batch, empty] {
        s.get(&format!("select trax.seal_batch({batch})")).await;
    }
    s.get("select * from trax.tick()").await;
    s.assert_healthy().await;
    fail(&s, "mail").await;
    complete(&s, "empty").await;
    s.get("select * from trax.tick()").await;
    complete(&s, "a").await;
    s.assert_healthy().await;
    // The cleanup has not come yet to a batch whose history was dropped.
    s.get("delete from trax.run; delete from trax.dead_letter; update trax.graph set queued_at = queued_at - interval '2 days'")
        .await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_retry_that_is_gone_is_reported_except_in_a_cluster() {
    let (_db, s) = session().await;
    s.enqueue("'a', max_retries => 3").await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.fail({}, 'no')", job.key()))
        .await;
    s.assert_healthy().await;
    s.get(&format!("select trax.run_now({})", job.id)).await;
    let job = s.claim_one("").await;
    s.assert_healthy().await;
    s.get(&format!(
        "begin; select trax.fail({}, 'no', permanent => true)",
        job.key()
    ))
    .await;
    s.assert_healthy().await;
    s.get("rollback; delete from trax.lease").await;
    assert_eq!(found(&s).await, "a job that is to be retried waits");
    s.get("create extension trax_shard").await;
    s.assert_healthy().await;
}
