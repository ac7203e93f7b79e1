//! A job whose input is damaged on disk blocks no other job, and is reported.

use harness::session::{Session, session};
use harness::{has_library, shared_server};
use trax_client::testkit::Database;

/// A text too long and too random to be stored in its row.
const LARGE: &str = "(select jsonb_build_object('x', string_agg(md5(i::text || random()), '')) from generate_series(1, 300) i)";
/// Removes all out-of-line values of a table, so that the rows cannot be read.
const DAMAGE: &str = "do $$
    declare beside regclass := (select reltoastrelid from pg_class where oid = 'trax.{table}'::regclass);
    begin
        execute format('select heap_force_kill(%L::regclass, array(select ctid from %s))', beside, beside);
    end
    $$";

/// A database whose values can be damaged; `None` if the server lacks the extension.
async fn fragile() -> Option<(Database, Session)> {
    if !has_library(shared_server(), "pg_surgery") {
        return None;
    }
    let (db, s) = session().await;
    s.get("create extension pg_surgery").await;
    Some((db, s))
}

async fn damage(s: &Session, table: &str) {
    s.get(&DAMAGE.replace("{table}", table)).await;
}

const LISTED: &str = "select job_id from trax.unreadable_job";

async fn is_reported(s: &Session, id: i64) {
    assert_eq!(s.get(LISTED).await, id.to_string());
    let rule = "select rule from trax.check()";
    assert_eq!(s.get(rule).await, "a live job can be read");
    let status = "select value, hint from trax.status() where item = 'jobs that cannot be read' and not healthy";
    let seen = s.get(status).await;
    assert!(
        seen.starts_with(&format!("1: job {id}, since "))
            && seen.contains("missing chunk number 0"),
        "{seen}"
    );
    assert!(
        seen.contains(&format!("select trax.cancel({id})")),
        "{seen}"
    );
    let cause = "select severity from trax.diagnose() where cause = 'jobs_that_cannot_be_read'";
    assert_eq!(s.get(cause).await, "critical");
    assert_eq!(s.get("select * from trax.failed_step").await, "");
}

/// Checks the history of a job that ended without its input.
async fn ended_without_input(db: &Database, s: &Session, id: i64, state: &str) {
    let run = format!(
        "select state, input ->> 'unreadable' like 'missing chunk number 0%' from trax.run where job_id = {id}"
    );
    assert_eq!(s.get(&run).await, format!("{state}|t"));
    Session::of(db).await.get("select * from trax.tick()").await;
    assert_eq!(s.get(LISTED).await, "");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_lease_that_cannot_be_read_holds_up_no_other_and_a_cancel_ends_it() {
    let Some((db, s)) = fragile().await else {
        return;
    };
    s.enqueue("'good'").await;
    let bad = s.enqueue(&format!("'bad', {LARGE}")).await;
    s.enqueue("'good'").await;
    assert_eq!(s.claim("max_jobs => 9, lease => '1 ms'").await.len(), 3);
    damage(&s, "lease").await;
    s.get("select * from trax.tick()").await;
    let waiting = "select string_agg(task, ' ') from trax.work_queue";
    assert_eq!(s.get(waiting).await, "good good");
    is_reported(&s, bad).await;
    // The job is reaped again.
    s.get("update trax.lease set reap_at = now(); select * from trax.tick()")
        .await;
    is_reported(&s, bad).await;
    assert_eq!(
        s.get(&format!("select trax.cancel({bad})")).await,
        "requested"
    );
    s.get("update trax.lease set reap_at = now(); select * from trax.tick()")
        .await;
    assert_eq!(s.number("select count(*) from trax.lease").await, 0);
    ended_without_input(&db, &s, bad, "cancelled").await;
}

#[tokio::test]
async fn a_waiting_job_that_cannot_be_read_holds_up_no_claim_and_a_cancel_ends_it() {
    let Some((db, s)) = fragile().await else {
        return;
    };
    let bad = s.enqueue(&format!("'lane', {LARGE}")).await;
    damage(&s, "work_queue").await;
    let good = s.enqueue(&format!("'lane', {LARGE}")).await;
    let other = s.enqueue("'other'").await;
    assert_eq!(s.claim_ids("tasks => '{lane}'").await, [good]);
    is_reported(&s, bad).await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, [other]);
    let waits = "select waits_for, run_at > now() + interval '9 min' from trax.work_queue";
    assert_eq!(s.get(waits).await, "time|t");
    // A second claim finds the same damage.
    s.get(&format!("select trax.run_now({bad})")).await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, Vec::<i64>::new());
    is_reported(&s, bad).await;
    assert_eq!(
        s.get(&format!("select trax.cancel({bad})")).await,
        "cancelled"
    );
    ended_without_input(&db, &s, bad, "cancelled").await;
}

#[tokio::test]
async fn a_job_that_can_be_read_again_goes_on() {
    let Some((db, s)) = fragile().await else {
        return;
    };
    let id = s.enqueue(&format!("'a', {LARGE}")).await;
    damage(&s, "work_queue").await;
    assert_eq!(s.claim_ids("").await, Vec::<i64>::new());
    is_reported(&s, id).await;
    s.get("update trax.work_queue set input = '[1]'").await;
    s.get(&format!("select trax.run_now({id})")).await;
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    assert_eq!(s.get(LISTED).await, "");
    let job = s.claim_one("").await;
    assert_eq!(job.id, id);
    assert_eq!(s.get("select input from trax.lease").await, "[1]");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_completion_is_recorded_of_a_lease_that_cannot_be_read() {
    let Some((db, s)) = fragile().await else {
        return;
    };
    s.enqueue("'a'").await;
    let bad = s.enqueue(&format!("'a', {LARGE}")).await;
    s.claim("max_jobs => 2").await;
    damage(&s, "lease").await;
    let complete = "select count(*) from trax.lease l, trax.complete_many(array(select job_id from trax.lease), array(select token from trax.lease)) c
        where c = l.job_id";
    assert_eq!(s.get(complete).await, "2");
    ended_without_input(&db, &s, bad, "completed").await;
}

#[tokio::test]
async fn what_ends_because_it_waited_too_long_ends_beside_a_job_that_cannot_be_read() {
    let Some((_db, s)) = fragile().await else {
        return;
    };
    let bad = s.enqueue(&format!("'a', {LARGE}")).await;
    damage(&s, "work_queue").await;
    let good = s.enqueue("'a'").await;
    s.get(
        "select trax.limit_queue_time(job_id, '1 h') from trax.work_queue;
           update trax.work_queue set expires_at = now(); select * from trax.tick()",
    )
    .await;
    let expired = "select job_id from trax.run where failure_kind = 'expired'";
    assert_eq!(s.get(expired).await, good.to_string());
    is_reported(&s, bad).await;
    assert_eq!(s.tick("expire_queued").await, 0);
}

#[tokio::test]
async fn a_group_is_cancelled_with_a_job_that_nobody_has_found_unreadable() {
    let Some((db, s)) = fragile().await else {
        return;
    };
    s.enqueue("'a'").await;
    let bad = s.enqueue(&format!("'a', {LARGE}")).await;
    s.enqueue("'a'").await;
    damage(&s, "work_queue").await;
    s.get("select trax.configure_group('default')").await;
    assert_eq!(s.get("select trax.cancel_group('default')").await, "3");
    let inputs = "select count(*) from trax.run where state = 'cancelled' and input = '{}'";
    assert_eq!(s.number(inputs).await, 2);
    ended_without_input(&db, &s, bad, "cancelled").await;
}

#[tokio::test]
async fn dead_letters_are_requeued_beside_one_that_cannot_be_read() {
    let Some((_db, s)) = fragile().await else {
        return;
    };
    s.enqueue("'a', max_retries => 0").await;
    s.enqueue(&format!("'a', {LARGE}, max_retries => 0")).await;
    s.enqueue("'a', max_retries => 0").await;
    s.claim("max_jobs => 3").await;
    s.get("select trax.fail(job_id, token, 'no') from trax.lease")
        .await;
    damage(&s, "dead_letter").await;
    assert_eq!(s.get("select trax.requeue_dead_letters()").await, "2");
    let left = "select input is not null, status from trax.dead_letter where status <> 'requeued'";
    assert_eq!(s.get(left).await, "t|awaiting_intervention");
    let given_up =
        "select trax.acknowledge_dead_letter(id) from trax.dead_letter where status <> 'requeued'";
    assert_eq!(s.get(given_up).await, "t");
}
