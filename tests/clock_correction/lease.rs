//! Leases that a wrong clock has extended into the far future are corrected.

use harness::session::{Session, session};
use harness::{PATIENCE, eventually, shared_server};

/// The effect of a claim and a heartbeat while the clock is 400 days ahead.
const AHEAD: &str = "update trax.lease set
    extended_at = coalesce(extended_at, started_at) + interval '400 days', lease_expires_at = lease_expires_at + interval '400 days',
    timeout_at = timeout_at + interval '400 days'";
const SOON: &str = "select count(*) from trax.lease
    where extended_at <= now() and lease_expires_at < now() + interval '1 min'
        and timeout_at < now() + interval '30 days'";

#[tokio::test]
async fn a_lease_that_a_clock_ahead_of_now_extended_ends_one_length_from_now() {
    let (db, s) = session().await;
    s.get("select count(trax.enqueue('a', max_retries => 0, concurrency_key => 'k' || n)) from generate_series(1, 7) n")
        .await;
    assert_eq!(s.claim("max_jobs => 7, lease => '1 s'").await.len(), 7);
    s.get(AHEAD).await;
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    assert_eq!(s.number(SOON).await, 7);
    let log = std::fs::read_to_string(shared_server().log_file()).expect("the log can be read");
    assert!(log.contains("7 leases expired later than their length allows"));
    eventually("their end", PATIENCE, || async {
        s.get("select * from trax.tick()").await;
        match s.number("select count(*) from trax.lease").await {
            0 => Ok(()),
            left => Err(left.to_string()),
        }
    })
    .await;
    assert_eq!(s.number("select count(*) from trax.dead_letter").await, 7);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_heartbeat_after_the_clock_was_corrected_keeps_no_lease_ahead() {
    let (db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("lease => '30 s'").await;
    s.get(AHEAD).await;
    let beat = format!(
        "select held from trax.heartbeat(array[{}], array['{}'::uuid], '30 s')",
        job.id, job.token
    );
    assert_eq!(s.get(&beat).await, "t");
    // An extension made while the clock was ahead and another transaction had locked the lease.
    s.get("insert into trax.lease_extension (job_id, token, extended_at, lease_expires_at, ahead)
           select job_id, token, now() + interval '400 days', now() + interval '400 days 30 s', false from trax.lease")
        .await;
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    assert_eq!(s.number(SOON).await, 1);
    assert_eq!(
        s.number("select count(*) from trax.lease_extension").await,
        0
    );
    assert_eq!(s.get(&beat).await, "t");
    assert_eq!(s.number(SOON).await, 1);
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "t"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_lease_that_is_long_or_was_granted_a_grace_stays() {
    let (db, s) = session().await;
    for (lease, change) in [
        ("9 years", "extended_at = extended_at"),
        (
            "1 day",
            "extended_at = now() + interval '12 h', lease_expires_at = now() + interval '24 h'",
        ),
        (
            "30 s",
            "extended_at = now() + interval '50 min', lease_expires_at = now() + interval '55 min'",
        ),
    ] {
        let id = s.enqueue("'a'").await;
        s.claim_one(&format!("lease => '{lease}'")).await;
        s.get(&format!(
            "update trax.lease set {change} where job_id = {id}"
        ))
        .await;
    }
    let leases =
        "select job_id, extended_at, lease_expires_at, timeout_at from trax.lease order by 1";
    let before = s.get(leases).await;
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    assert_eq!(s.get(leases).await, before);
    s.assert_healthy().await;
}
