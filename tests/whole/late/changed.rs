//! Waiting rows that change after the snapshot of the statement that lets them in: they are let in,
//! and no other row is.

use harness::session::{Session, session};
use harness::statement::statement;
use trax_client::testkit::Database;

const WAITING: &str = "select count(*) from trax.work_queue where waits_for is not null";

/// A trigger that makes statements on the queue wait for a lock, after their snapshot and before
/// their first row, in sessions that have set `test.waits`.
const SLOW: &str = "
    create function public.wait_for_it() returns trigger language plpgsql as $$
    begin
        if pg_catalog.current_setting('test.waits', true) = 'on' then
            perform pg_catalog.pg_advisory_xact_lock_shared(7);
        end if;
        return null;
    end $$;
    create trigger waits before {event} on trax.work_queue
        for each statement execute function public.wait_for_it()";

/// Runs `sql` in a separate session, and `meanwhile` in another one after the first has taken its
/// snapshot and before it reads rows.
async fn beside(db: &Database, s: &Session, prepare: &str, sql: &str, meanwhile: &[&str]) {
    beside_a("update", db, s, prepare, sql, meanwhile).await;
}

/// As [`beside`], where the first `event` statement on the queue reads the rows.
async fn beside_a(
    event: &str,
    db: &Database,
    s: &Session,
    prepare: &str,
    sql: &str,
    meanwhile: &[&str],
) {
    s.get(&SLOW.replace("{event}", event)).await;
    let (slow, other) = (Session::of(db).await, Session::of(db).await);
    slow.get(prepare).await;
    slow.get("set test.waits = on").await;
    other.get("select pg_advisory_lock(7)").await;
    let pid = slow.pid();
    let end = slow.spawn(sql);
    s.sees_waiting(pid).await;
    for change in meanwhile {
        s.get(change).await;
    }
    other.get("select pg_advisory_unlock(7)").await;
    let (_, ended) = end.await.expect("the session lives");
    ended.expect("it ends well");
}

/// Changes the waiting rows, frees their old row versions and reuses the space.
const CHANGE: [&str; 3] = [
    "select trax.limit_queue_time(job_id, '1 h') from trax.work_queue where waits_for is not null",
    "vacuum trax.work_queue",
    "select count(trax.enqueue('other', run_at => now() + interval '1 h')) from generate_series(1, 50)",
];

async fn others_still_wait(s: &Session) {
    assert_eq!(s.number(WAITING).await, 50, "the others");
    assert_eq!(
        s.number(&format!("{WAITING} and task <> 'other'")).await,
        0,
        "what was let in"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_delayed_job_that_was_changed_since_the_snapshot_is_promoted() {
    let (db, s) = session().await;
    s.enqueue("'a', run_at => now() + interval '1 ms'").await;
    s.get("select pg_sleep(0.002)").await;
    beside(&db, &s, "", "select count(*) from trax.tick()", &CHANGE).await;
    others_still_wait(&s).await;
}

/// A repair as in a cycle that follows earlier ones.
async fn repair(db: &Database, s: &Session, repair: &str, first_type: &str, first: &str) {
    let prepare = format!("prepare repair ({first_type}, bigint, int) as {repair}");
    let execute = format!("execute repair ({first}, -9223372036854775808, 5000)");
    beside(db, s, &prepare, &execute, &CHANGE).await;
}

#[tokio::test]
async fn a_job_behind_a_key_that_was_changed_since_the_snapshot_is_repaired() {
    let (db, s) = session().await;
    s.enqueue("'a', concurrency_key => 'k'").await;
    s.get("update trax.work_queue set waits_for = 'key'").await;
    let statement = statement("KeyRepair");
    repair(&db, &s, &statement, "text", "''").await;
    others_still_wait(&s).await;
}

#[tokio::test]
async fn a_job_behind_a_manifest_that_was_changed_since_the_snapshot_is_repaired() {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h', starts_at => now() + interval '1 h')")
        .await;
    s.get("select trax.trigger('m')").await;
    s.get("update trax.work_queue set waits_for = 'manifest'")
        .await;
    let statement = statement("ManifestRepair");
    repair(&db, &s, &statement, "bigint", "0").await;
    others_still_wait(&s).await;
}

#[tokio::test]
async fn a_job_of_a_group_that_was_changed_since_the_snapshot_is_let_in_when_its_key_gets_room() {
    let (db, s) = session().await;
    s.enqueue("'a', group_name => 'g', concurrency_key => 'k'")
        .await;
    s.get("update trax.work_queue set waits_for = 'key'").await;
    let configure = "select trax.configure_group('g', max_per_key => 2)";
    beside(&db, &s, "", configure, &CHANGE).await;
    others_still_wait(&s).await;
}

/// Runs a cycle beside a change of a job that has waited too long; 50 other rows then take its old
/// place.
async fn expire_beside(change: &str) -> (Database, Session) {
    let (db, s) = session().await;
    let id = s.enqueue("'a'").await;
    s.get(&format!("select trax.limit_queue_time({id}, '1 us')"))
        .await;
    let others =
        "select trax.limit_queue_time(trax.enqueue('other'), '1 h') from generate_series(1, 50)";
    let meanwhile = [change, "vacuum trax.work_queue", others];
    let tick = "select count(*) from trax.tick()";
    beside_a("delete", &db, &s, "", tick, &meanwhile).await;
    (db, s)
}

#[tokio::test]
async fn a_job_that_was_changed_since_the_snapshot_expires() {
    let (_db, s) = expire_beside("update trax.work_queue set priority = 3").await;
    let runs =
        "select string_agg(concat_ws(' ', task, failure_kind, priority), ', ') from trax.run";
    assert_eq!(s.get(runs).await, "a expired 3");
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 50);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_whose_limit_was_lifted_since_the_snapshot_does_not_expire() {
    let lift = "select trax.limit_queue_time(job_id, null) from trax.work_queue";
    let (_db, s) = expire_beside(lift).await;
    assert_eq!(s.number("select count(*) from trax.run").await, 0);
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 51);
    s.assert_healthy().await;
}
