//! Which job runs next, and which cannot any more.

use super::{assert_no_needs, complete, fail, queued, states};
use harness::session::{Session, session};

#[tokio::test]
async fn a_job_runs_when_all_that_it_needs_have_completed() {
    let (_db, s) = session().await;
    let ids = queued(&s, "a b c:a,b d:c", "cancel").await;
    assert_eq!(s.claim("tasks => '{c,d}'").await.len(), 0);
    complete(&s, "a").await;
    assert_eq!(s.tick("promote_delayed").await, 0);
    complete(&s, "b").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    let needs = format!("select * from trax.read_needs({})", ids["c"]);
    let (a, b) = (ids["a"], ids["b"]);
    let wanted = format!("a|{a}|completed|\"a\"|\nb|{b}|completed|\"b\"|");
    assert_eq!(s.get(&needs).await, wanted);
    complete(&s, "c").await;
    assert_eq!(s.get(&needs).await, wanted, "also when it has ended");
    s.tick("promote_delayed").await;
    complete(&s, "d").await;
    assert_eq!(
        states(&s, ids["b"]).await,
        "a completed, b completed, c completed, d completed"
    );
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_failure_cancels_the_jobs_that_need_it_and_so_on_down_in_one_cycle() {
    let (_db, s) = session().await;
    let ids = queued(&s, "a b c:a,b d:c e:d f:b", "cancel").await;
    fail(&s, "a").await;
    s.get("select * from trax.tick()").await;
    assert_eq!(
        states(&s, ids["a"]).await,
        "a failed, b queued, c cancelled, d cancelled, e cancelled, f queued"
    );
    let errors = "select name, error from trax.read_graph($) where state = 'cancelled'";
    let (a, c, d) = (ids["a"], ids["c"], ids["d"]);
    assert_eq!(
        s.get(&errors.replace('$', &a.to_string())).await,
        format!(
            "c|needs job {a} \"a\", which failed\nd|needs job {c} \"c\", which was cancelled\ne|needs job {d} \"d\", which was cancelled"
        )
    );
    complete(&s, "b").await;
    s.get("select * from trax.tick()").await;
    complete(&s, "f").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_job_that_runs_when_others_have_ended_runs_whatever_they_became() {
    let (_db, s) = session().await;
    let ids = queued(&s, "a b c:a,b/ended", "cancel").await;
    fail(&s, "a").await;
    assert_eq!(s.tick("promote_delayed").await, 0);
    s.get(&format!("select trax.cancel({})", ids["b"])).await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    let needs = format!(
        "select name, state, error from trax.read_needs({})",
        ids["c"]
    );
    assert_eq!(s.get(&needs).await, "a|failed|no\nb|cancelled|");
    complete(&s, "c").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_job_for_a_failure_runs_at_the_first_and_is_cancelled_without_one() {
    let (_db, s) = session().await;
    queued(&s, "a b alarm:a,b/failed", "cancel").await;
    fail(&s, "a").await;
    assert_eq!(s.tick("promote_delayed").await, 1, "without waiting for b");
    complete(&s, "alarm").await;
    complete(&s, "b").await;
    s.get("select * from trax.tick()").await;
    assert_no_needs(&s).await;

    let ids = queued(&s, "a b alarm:a,b/failed after:alarm", "cancel").await;
    complete(&s, "a").await;
    complete(&s, "b").await;
    assert_eq!(s.tick("promote_delayed").await, 0);
    assert_eq!(
        states(&s, ids["a"]).await,
        "a completed, b completed, alarm cancelled, after cancelled"
    );
    let error = format!("select error from trax.run where job_id = {}", ids["alarm"]);
    assert_eq!(s.get(&error).await, "none of the jobs that it needs failed");
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_cancel_of_a_job_cancels_what_needs_it() {
    let (_db, s) = session().await;
    let ids = queued(&s, "a b:a c:b", "cancel").await;
    s.get(&format!("select trax.cancel({})", ids["b"])).await;
    assert_eq!(
        s.get(&format!(
            "select count(*) from trax.need where job_id = {}",
            ids["b"]
        ))
        .await,
        "0",
        "what it needed is forgotten with it"
    );
    s.get("select * from trax.tick()").await;
    assert_eq!(
        states(&s, ids["a"]).await,
        "a queued, b cancelled, c cancelled"
    );
    complete(&s, "a").await;
    s.get("select * from trax.tick()").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_job_that_waits_too_long_cancels_what_needs_it() {
    let (_db, s) = session().await;
    let ids = queued(&s, "a b:a c:b", "cancel").await;
    s.get(&format!(
        "select trax.limit_queue_time({}, '1 h')",
        ids["b"]
    ))
    .await;
    s.get("update trax.work_queue set expires_at = now() - interval '1 s' where expires_at is not null")
        .await;
    s.get("select * from trax.tick()").await;
    assert_eq!(
        states(&s, ids["a"]).await,
        "a queued, b failed, c cancelled"
    );
    complete(&s, "a").await;
    s.get("select * from trax.tick()").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_retry_ends_nothing() {
    let (_db, s) = session().await;
    queued(&s, "a b:a", "cancel").await;
    let job = s.claim_one("").await;
    s.get(&format!(
        "select trax.fail({}, 'no', retry_in => '0 s')",
        job.key()
    ))
    .await;
    assert_eq!(s.tick("promote_delayed").await, 0);
    complete(&s, "a").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    fail(&s, "b").await;
    s.get("select * from trax.tick()").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_job_with_a_time_waits_for_it_after_its_needs() {
    let (_db, s) = session().await;
    let ids = s
        .get(
            r#"select job_id from trax.enqueue_graph('{"jobs": [
                {"name": "a", "task": "a"},
                {"name": "b", "task": "b", "needs": ["a"], "run_at": "2100-01-01 00:00 UTC"}]}')"#,
        )
        .await;
    let id = ids.lines().last().expect("two jobs").to_owned();
    complete(&s, "a").await;
    s.get("select * from trax.tick()").await;
    let place = format!(
        "select waits_for, run_at = '2100-01-01 00:00 UTC' from trax.work_queue where job_id = {id}"
    );
    assert_eq!(s.get(&place).await, "time|t");
    assert!(s.claim("").await.is_empty());
    s.get(&format!("select trax.run_now({id})")).await;
    complete(&s, "b").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_job_of_a_graph_may_wait_for_children_of_its_own() {
    let (_db, s) = session().await;
    queued(&s, "a alarm:a/failed", "cancel").await;
    fail(&s, "a").await;
    s.get("select * from trax.tick()").await;
    let job = s.claim_one("tasks => '{alarm}'").await;
    s.get(&format!("select trax.spawn({}, 'c', 'child')", job.key()))
        .await;
    s.get(&format!(
        "select * from trax.await_children({}, 'w')",
        job.key()
    ))
    .await;
    s.get("select * from trax.tick()").await;
    complete(&s, "child").await;
    assert_eq!(
        s.tick("promote_delayed").await,
        1,
        "it is woken, and not skipped"
    );
    complete(&s, "alarm").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_job_that_was_deleted_by_hand_does_not_keep_others_waiting() {
    let (_db, s) = session().await;
    let ids = queued(&s, "a b:a c:a/ended", "cancel").await;
    s.get(&format!(
        "delete from trax.work_queue where job_id = {}",
        ids["a"]
    ))
    .await;
    // The event that the repair adds once a minute.
    s.get(&format!(
        "insert into trax.need_event (job_id) values ({})",
        ids["a"]
    ))
    .await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    let error = format!("select error from trax.run where job_id = {}", ids["b"]);
    let gone = format!("needs job {} \"a\", which is gone", ids["a"]);
    assert_eq!(s.get(&error).await, gone);
    complete(&s, "c").await;
    assert_no_needs(&s).await;
}

/// Many jobs that one needs: no end changes a row that another changes, and one cycle takes all.
#[tokio::test]
async fn many_jobs_release_one_and_one_releases_many() {
    let (_db, s) = session().await;
    let many = 2500;
    let document = format!(
        "select count(*) from trax.enqueue_graph((select jsonb_build_object('jobs',
            jsonb_build_array(jsonb_build_object('name', 'first', 'task', 'first'))
            || jsonb_agg(jsonb_build_object('name', 'm' || n, 'task', 'many', 'needs', jsonb_build_array('first')))
            || jsonb_build_array(jsonb_build_object('name', 'last', 'task', 'last', 'needs', jsonb_agg('m' || n))))
         from generate_series(1, {many}) n))"
    );
    assert_eq!(s.number(&document).await, many + 2);
    complete(&s, "first").await;
    assert_eq!(s.tick("promote_delayed").await, many);
    let mut left = many;
    while left > 0 {
        let done = s
            .number(
                "with c as materialized (select array_agg(job_id) as ids, array_agg(token) as tokens from trax.claim_next(max_jobs => 1000, tasks => '{many}'))
                 select count(*) from c, trax.complete_many(c.ids, c.tokens)",
            )
            .await;
        left -= done;
        assert_eq!(s.tick("promote_delayed").await, i64::from(left == 0));
    }
    complete(&s, "last").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn the_jobs_that_need_others_are_read_at_once_by_explain() {
    let (_db, s) = session().await;
    let ids = queued(&s, "a b:a", "cancel").await;
    let said = s
        .get(&format!(
            "select reason, detail from trax.explain_job({})",
            ids["b"]
        ))
        .await;
    let (a, b) = (ids["a"], ids["b"]);
    assert_eq!(said, format!("jobs|Job {b} waits for the end of job {a}."));
}

/// The scheduler decides at once, without a person who calls `trax.tick()`.
#[tokio::test]
async fn the_scheduler_lets_the_next_job_run_at_once() {
    let database = harness::scheduler::live_database().await;
    let s = Session::of(&database).await;
    queued(&s, "a b:a", "cancel").await;
    complete(&s, "a").await;
    let completed =
        "select count(trax.complete(job_id, token)) from trax.claim_next(tasks => '{b}')";
    s.becomes(completed, "1").await;
}
