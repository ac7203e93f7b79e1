//! Groups: the switch, and the guarantee that no claim commits after a pause has committed.

use harness::limit::typical_buffers;
use harness::session::{Session, session};

#[tokio::test]
async fn configure_group_keeps_what_is_not_given() {
    let (_db, s) = session().await;
    let settings =
        "select name, enabled, priority, max_active_jobs, max_per_key from trax.manifest_group";
    s.get("select trax.configure_group('g')").await;
    assert_eq!(s.get(settings).await, "g|t|0||1");
    s.get("select trax.configure_group('g', max_active_jobs => 4, priority => 31, enabled => false, max_per_key => 2)")
        .await;
    assert_eq!(s.get(settings).await, "g|f|31|4|2");
    s.get("select trax.configure_group('g', priority => 3)")
        .await;
    assert_eq!(s.get(settings).await, "g|f|3|4|2");
    s.get("select trax.configure_group('g', enabled => true, max_active_jobs => 0)")
        .await;
    assert_eq!(s.get(settings).await, "g|t|3||2", "0 is no limit");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_change_of_a_group_or_task_has_no_statement_planned_again() {
    let (_db, s) = session().await;
    for change in [
        "select trax.configure_group('g', max_active_jobs => 3)",
        "select trax.configure_task('t', max_retries => 3)",
    ] {
        let cost = typical_buffers(&s, change).await;
        println!("{change}: {cost} buffers");
        // 34; with all statements planned again, 3,000.
        assert!(cost < 100, "{change} reads catalogs: {cost} buffers");
    }
}

#[tokio::test]
async fn a_disabled_group_gives_no_jobs_until_it_is_enabled() {
    let (_db, s) = session().await;
    let held = s.enqueue("'a', group_name => 'off', priority => 31").await;
    let free = s.enqueue("'a'").await;
    s.get("select trax.configure_group('off', enabled => false)")
        .await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, [free]);
    assert!(s.claim("groups => array['off']").await.is_empty());
    let late = s.enqueue("'a', group_name => 'off'").await;
    s.get("select trax.configure_group('off', enabled => true)")
        .await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, [held, late]);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_group_that_is_switched_by_hand_counts_at_once() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    s.get("select trax.configure_group('g', enabled => true)")
        .await;
    for enabled in [false, true, false, true] {
        let job = s.enqueue("'a', group_name => 'g'").await;
        s.get(&format!(
            "update trax.manifest_group set enabled = {enabled}, updated_at = now()"
        ))
        .await;
        let claimed = other.claim_ids("max_jobs => 9").await;
        assert_eq!(claimed.contains(&job), enabled);
    }
}

#[tokio::test]
async fn a_job_that_runs_in_a_disabled_group_ends_as_usual() {
    let (_db, s) = session().await;
    s.enqueue("'a', group_name => 'g'").await;
    let job = s.claim_one("").await;
    s.get("select trax.configure_group('g', enabled => false)")
        .await;
    let held = format!(
        "select held from trax.heartbeat(array[{}], array['{}'::uuid])",
        job.id, job.token
    );
    assert_eq!(s.get(&held).await, "t");
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "t"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn no_claim_commits_after_the_pause_of_its_group_commits() {
    let (db, claimer) = session().await;
    let (pauser, other) = (Session::of(&db).await, Session::of(&db).await);
    other.get("set lock_timeout = '30 s'").await;
    let one = claimer.enqueue("'a', group_name => 'g'").await;
    claimer.enqueue("'a', group_name => 'g'").await;
    let free = claimer.enqueue("'a', group_name => 'h'").await;
    claimer.get("begin").await;
    assert_eq!(claimer.claim_ids("").await, [one]);
    let pid = pauser.pid();
    let pause = pauser.spawn("select trax.configure_group('g', enabled => false)");
    other.sees_waiting(pid).await;
    assert_eq!(
        other.claim_ids("max_jobs => 9").await,
        [free],
        "a new claim returns at once without that group"
    );
    assert_eq!(
        other.get("select count(*) from trax.manifest_group").await,
        "0",
        "the pause still waits"
    );
    claimer.get("commit").await;
    let (_, paused) = pause.await.expect("the pauser lives");
    paused.expect("the pause works");
    assert!(other.claim("max_jobs => 9").await.is_empty());
    assert_eq!(
        other
            .get("select string_agg(job_id::text, ',') from trax.lease where group_name = 'g'")
            .await,
        one.to_string()
    );
    other.assert_healthy().await;
}

#[tokio::test]
async fn a_claim_meanwhile_neither_waits_for_a_pause_nor_takes_its_jobs() {
    let (db, pauser) = session().await;
    let s = Session::of(&db).await;
    s.get("set lock_timeout = '30 s'").await;
    s.enqueue("'a', group_name => 'g'").await;
    let free = s.enqueue("'a', group_name => 'h'").await;
    pauser
        .get("begin; select trax.configure_group('g', enabled => false)")
        .await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, [free]);
    pauser.get("rollback").await;
    assert_eq!(s.claim("max_jobs => 9").await.len(), 1);
}

#[tokio::test]
async fn a_claim_that_began_before_a_pause_sees_it() {
    let (db, claimer) = session().await;
    let pauser = Session::of(&db).await;
    claimer.enqueue("'a', group_name => 'g'").await;
    claimer
        .get("begin; select count(*) from trax.work_queue")
        .await;
    pauser
        .get("select trax.configure_group('g', enabled => false)")
        .await;
    assert!(claimer.claim("max_jobs => 9").await.is_empty());
    claimer.get("commit").await;
}

#[tokio::test]
async fn a_pause_of_one_group_does_not_wait_for_claims_of_another() {
    let (db, claimer) = session().await;
    let pauser = Session::of(&db).await;
    pauser.get("set lock_timeout = '30 s'").await;
    claimer.enqueue("'a', group_name => 'g'").await;
    claimer.enqueue("'a', group_name => 'other'").await;
    claimer.get("begin").await;
    assert_eq!(claimer.claim("max_jobs => 1").await.len(), 1);
    pauser
        .get("select trax.configure_group('other', enabled => false)")
        .await;
    claimer.get("commit").await;
}
