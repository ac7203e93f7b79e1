//! After a clock jump nothing is deleted or expired until the new time has held, or an
//! administrator confirms it.
//!
//! A jump is made in two ways. Here the recorded times of the clock and of the rows are moved back,
//! so that the clock seems to have gone forward; in `step`, a server's clock is set.

mod step;

use harness::session::{Claimed, Session, session};
use trax_client::testkit::Database;

/// Two jobs that ended a hundred days ago by the record, and every other kind of row that depends
/// on time.
async fn furnished(s: &Session) -> Claimed {
    s.get(
        "select trax.make_run_partitions(now() - interval '100 days', 0);
           select trax.enqueue('done', unique_key => 'once', unique_for => '2 days')",
    )
    .await;
    let done = s.claim_one("").await;
    s.get(&format!("select trax.complete({})", done.key()))
        .await;
    s.get("select trax.enqueue('dies', max_retries => 0)").await;
    let dies = s.claim_one("").await;
    s.get(&format!(
        "select trax.fail({}, 'no', permanent => true)",
        dies.key()
    ))
    .await;
    s.get("select trax.acknowledge_dead_letter(id) from trax.dead_letter")
        .await;
    s.get("select trax.enqueue('runs', timeout => '2 hours', max_retries => 0)")
        .await;
    let runs = s.claim_one("lease => '5 min'").await;
    s.get(
        "select trax.limit_queue_time(trax.enqueue('waits'), '1 day');
           select trax.acquire_token('sem', 'first', 1, '1 day');
           select * from trax.tick()",
    )
    .await;
    runs
}

/// Makes the clock seem to have gone forward by a hundred days. Returns a session that has seen no
/// other time.
async fn jumped(db: &Database, s: &Session) -> Session {
    s.get("update trax.believed_clock set shown_at = shown_at - interval '100 days', believed_at = believed_at - interval '100 days';
           update trax.run set queued_at = queued_at - interval '100 days', run_at = run_at - interval '100 days',
               started_at = started_at - interval '100 days', finished_at = finished_at - interval '100 days';
           update trax.dead_letter set created_at = created_at - interval '100 days', resolved_at = resolved_at - interval '100 days';
           update trax.audit set at = at - interval '100 days';
           update trax.unique_key set alive_until = alive_until - interval '100 days';
           update trax.lease set started_at = started_at - interval '100 days', extended_at = extended_at - interval '100 days',
               lease_expires_at = lease_expires_at - interval '100 days', timeout_at = timeout_at - interval '100 days',
               reap_at = reap_at - interval '100 days';
           update trax.work_queue set queued_at = queued_at - interval '100 days', run_at = run_at - interval '100 days',
               expires_at = expires_at - interval '100 days';
           update trax.concurrency_token set acquired_at = acquired_at - interval '100 days',
               extended_at = extended_at - interval '100 days', expires_at = expires_at - interval '100 days'")
        .await;
    Session::of(db).await
}

/// The number of rows that a clock jump could remove.
const KEPT: &str = "select
    (select count(*) from trax.run), (select count(*) from trax.dead_letter), (select count(*) > 0 from trax.audit),
    (select count(*) from trax.unique_key), (select count(*) from trax.lease where not cancel_requested),
    (select count(*) from trax.work_queue), (select count(*) from trax.concurrency_token)";
const ALL: &str = "2|1|t|1|1|1|1";
const CLOCK: &str = "select value, healthy, hint from trax.status() where item = 'clock'";

#[tokio::test]
async fn nothing_is_dropped_forgotten_or_timed_out_by_a_clock_that_has_jumped() {
    let (db, s) = session().await;
    let runs = furnished(&s).await;
    assert_eq!(s.get(CLOCK).await, "believed|t|");
    let s = jumped(&db, &s).await;
    // Calls made before a cycle has noticed the jump.
    assert_eq!(
        s.get("select count(*) from trax.acquire_token('sem', 'second', 1, '1 day')")
            .await,
        "0"
    );
    let again = "select trax.enqueue('done', unique_key => 'once', unique_for => '2 days') = min(job_id) from trax.run";
    assert_eq!(s.get(again).await, "t");
    for _ in 0..2 {
        s.get("select * from trax.tick()").await;
        assert_eq!(s.get(KEPT).await, ALL);
    }
    let fresh = Session::of(&db).await;
    fresh.get("select * from trax.tick()").await;
    assert_eq!(fresh.get(KEPT).await, ALL);
    assert_eq!(fresh.get(again).await, "t");
    let seen = fresh.get(CLOCK).await;
    assert!(
        seen.starts_with("jumped forward by 3 mons 10 days|f|Since ")
            && seen.contains("select trax.believe_clock()"),
        "{seen}"
    );
    let unhealthy = "select string_agg(item, ',') from trax.status() where not healthy and item not in ('library', 'scheduler')";
    assert_eq!(fresh.get(unhealthy).await, "clock");
    let causes = "select severity from trax.diagnose() where cause = 'clock_jumped'";
    assert_eq!(fresh.get(causes).await, "warning");
    // A live worker's lease follows the current clock.
    let beat = format!(
        "select held, lease_expires_at > now() from trax.heartbeat(array[{}], array['{}'::uuid])",
        runs.id, runs.token
    );
    assert_eq!(fresh.get(&beat).await, "t|t");
    let held = "select trax.extend_token('sem', token, '1 day') from trax.concurrency_token";
    assert_eq!(fresh.get(held).await, "t");
}

#[tokio::test]
async fn a_clock_that_has_held_for_ten_minutes_is_believed() {
    let (db, s) = session().await;
    furnished(&s).await;
    let s = jumped(&db, &s).await;
    s.get("select * from trax.tick()").await;
    let passes = |minutes: i32| {
        format!(
            "update trax.believed_clock set shown_at = shown_at - interval '{minutes} min',
                 believed_at = believed_at - interval '{minutes} min', uptime = uptime - {minutes} * 60000000::bigint"
        )
    };
    s.get(&passes(9)).await;
    s.get("select * from trax.tick()").await;
    assert_eq!(s.get(KEPT).await, ALL);
    s.get(&passes(1)).await;
    all_is_let_go(&Session::of(&db).await).await;
}

#[tokio::test]
async fn a_person_believes_a_clock_before() {
    let (db, s) = session().await;
    furnished(&s).await;
    assert_eq!(s.get("select trax.believe_clock()").await, "f");
    let s = jumped(&db, &s).await;
    assert_eq!(s.get("select trax.believe_clock()").await, "t");
    assert_eq!(s.get(CLOCK).await, "believed|t|");
    let acts = "select count(*) from trax.audit where action = 'believe_clock'";
    assert_eq!(s.get(acts).await, "1");
    all_is_let_go(&s).await;
}

async fn all_is_let_go(s: &Session) {
    // The first cycle trusts the clock, and the second completes the consequences.
    for _ in 0..3 {
        s.get("select * from trax.tick()").await;
    }
    let failed = "select string_agg(failure_kind, ',' order by job_id) from trax.run where final and failure_kind <> 'error'";
    assert_eq!(s.get(failed).await, "lease_expired,expired");
    let old = "select
        (select count(*) from trax.run where finished_at < now() - interval '1 day'),
        (select count(*) from trax.dead_letter where status = 'acknowledged'),
        (select count(*) from trax.audit where at < now() - interval '1 day'), (select count(*) from trax.unique_key),
        (select count(*) from trax.lease), (select count(*) from trax.concurrency_token)";
    assert_eq!(s.get(old).await, "0|0|0|0|0|0");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_clock_that_shows_again_what_is_believed_has_not_jumped() {
    let (db, s) = session().await;
    furnished(&s).await;
    let at_first = s
        .get("select believed_at - now() > '-1 min' from trax.believed_clock")
        .await;
    assert_eq!(at_first, "t");
    s.get("update trax.believed_clock set shown_at = shown_at + interval '9 days'")
        .await;
    let s = Session::of(&db).await;
    s.get("select * from trax.tick()").await;
    assert_eq!(s.get(CLOCK).await, "believed|t|");
    assert_eq!(s.get(KEPT).await, ALL);
}

#[tokio::test]
async fn a_clock_that_goes_back_shortens_no_right_and_puts_nothing_back_until_it_has_held() {
    let (db, s) = session().await;
    s.get("select * from trax.tick(); select trax.enqueue('a')")
        .await;
    s.claim_one("lease => '1 min'").await;
    // Rows written before the clock went back by nine days.
    s.get("update trax.believed_clock set shown_at = shown_at + interval '9 days', believed_at = believed_at + interval '9 days';
           update trax.lease set started_at = started_at + interval '9 days', extended_at = now() + interval '9 days',
               lease_expires_at = lease_expires_at + interval '9 days', timeout_at = timeout_at + interval '9 days',
               reap_at = reap_at + interval '9 days'")
        .await;
    let s = Session::of(&db).await;
    s.get(
        "select trax.acquire_token('sem', 'first', 1, '1 day');
           select trax.enqueue('b', unique_key => 'once', unique_for => '1 h')",
    )
    .await;
    let before = s
        .get("select lease_expires_at, reap_at from trax.lease")
        .await;
    s.get("select * from trax.tick()").await;
    let lease = "select lease_expires_at, reap_at from trax.lease";
    assert_eq!(s.get(lease).await, before);
    let seen = s.get(CLOCK).await;
    assert!(seen.starts_with("jumped back by 9 days|f|"), "{seen}");
    let rights = "select
        (select expires_at > now() + interval '9 days' from trax.concurrency_token),
        (select alive_until > now() + interval '9 days' from trax.unique_key)";
    assert_eq!(s.get(rights).await, "t|t");
    s.get("select trax.believe_clock()").await;
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    let near = "select
        (select lease_expires_at < now() + interval '2 min' from trax.lease),
        (select expires_at < now() + interval '2 days' from trax.concurrency_token)";
    assert_eq!(s.get(near).await, "t|t");
}

#[tokio::test]
async fn another_machine_is_believed_when_its_clock_shows_about_the_same() {
    for (ago, said) in [
        ("50 min", "believed|t|"),
        ("70 min", "jumped forward by 01:10:0"),
    ] {
        let (db, s) = session().await;
        s.get("select * from trax.tick()").await;
        s.get(&format!(
            "update trax.believed_clock set boot = 'another', uptime = 7, shown_at = now() - interval '{ago}', believed_at = now() - interval '{ago}'"
        ))
        .await;
        let s = Session::of(&db).await;
        s.get("select * from trax.tick()").await;
        let seen = s.get(CLOCK).await;
        assert!(seen.starts_with(said), "{ago}: {seen}");
        let boot = "select boot = 'another' from trax.believed_clock";
        assert_eq!(s.get(boot).await, "f");
    }
}

#[tokio::test]
async fn the_cycle_alone_writes_the_record_and_seldom() {
    let (db, s) = session().await;
    let recorded = "select count(*) from trax.believed_clock";
    s.get(
        "select count(*) from trax.status(); select trax.acquire_token('sem', 'first', 1, '1 day')",
    )
    .await;
    assert_eq!(s.get(recorded).await, "0");
    s.get("select * from trax.tick()").await;
    let row = "select shown_at, believed_at, uptime, boot from trax.believed_clock";
    let first = s.get(row).await;
    let s = Session::of(&db).await;
    s.get("select * from trax.tick(); select * from trax.tick()")
        .await;
    assert_eq!(s.get(row).await, first, "an old row is as good");
}
