//! Leases that run out while no cycle looks: their workers could not say that they live.

use harness::scheduler::{live_database, scheduling};
use harness::session::Session;
use harness::{PATIENCE, eventually};
use std::time::Duration;
use trax_client::testkit::{Server, Stop};

const LEASE: &str = "lease_expires_at - extended_at";

/// A server whose databases have schedulers, with one database and one lease of so long that has been extended.
async fn working(lease: &str) -> (Server, String, String) {
    let server = scheduling().start().expect("a server starts");
    let db = server.database("work").await.expect("a database is made");
    let s = Session::of(&db).await;
    s.enqueue("'a', max_retries => 0").await;
    let job = s.claim_one(&format!("lease => '{lease}'")).await;
    let beat = format!(
        "select held from trax.heartbeat(array[{}], array['{}'::uuid], '{lease}')",
        job.id, job.token
    );
    assert_eq!(s.get(&beat).await, "t");
    s.get("checkpoint").await;
    (server, beat, job.key())
}

async fn ends_as(s: &Session, state: &str) {
    eventually("the end of the job", PATIENCE, async || {
        match s.get("select state from trax.job").await {
            seen if seen == state => Ok(()),
            seen => Err(seen),
        }
    })
    .await;
}

#[tokio::test]
async fn a_restart_that_lasts_longer_than_a_lease_spends_no_attempt_of_a_live_worker() {
    let (mut server, beat, key) = working("4 s").await;
    server.stop(Stop::Fast).expect("it stops");
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.start().expect("it starts");
    let s = Session::of(&server.existing("work")).await;
    // Cycles by hand and those of the scheduler leave it alone.
    s.get("select * from trax.tick()").await;
    eventually("a cycle of the scheduler", PATIENCE, async || {
        match s
            .get(&format!(
                "select {LEASE}, extended_at >= pg_postmaster_start_time() from trax.lease"
            ))
            .await
        {
            seen if seen == "00:00:04|t" => Ok(()),
            seen => Err(seen),
        }
    })
    .await;
    assert_eq!(s.get(&beat).await, "t");
    assert_eq!(s.get(&format!("select trax.complete({key})")).await, "t");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_worker_that_died_with_the_server_keeps_its_job_for_one_lease_only() {
    let (mut server, ..) = working("1 s").await;
    server.stop(Stop::Immediate).expect("it stops");
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.start().expect("it starts");
    let s = Session::of(&server.existing("work")).await;
    ends_as(&s, "failed").await;
    assert_eq!(
        s.get("select failure_kind from trax.run").await,
        "lease_expired"
    );
    let (back, reaped) = ("pg_postmaster_start_time()", "max(finished_at)");
    assert_eq!(
        s.get(&format!(
            "select {reaped} - {back} >= interval '1 s' from trax.run"
        ))
        .await,
        "t"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_scheduler_that_was_paused_gives_leases_their_length_when_it_goes_on() {
    let db = live_database().await;
    let s = Session::of(&db).await;
    s.enqueue("'a', max_retries => 0").await;
    s.get("select trax.pause('a test')").await;
    s.claim_one("lease => '3 s'").await;
    // As if that had been long ago, and the scheduler has not looked since.
    s.get("update trax.lease set lease_expires_at = now() - interval '1 h'; update trax.lease set extended_at = lease_expires_at - interval '3 s'")
        .await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let resumed = s
        .get("select trax.resume(); select clock_timestamp()")
        .await;
    let resumed = resumed.lines().last().expect("a time").to_owned();
    ends_as(&s, "failed").await;
    let sql = format!("select finished_at - '{resumed}' >= interval '2900 ms' from trax.run");
    assert_eq!(s.get(&sql).await, "t");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_lease_that_somebody_ends_by_hand_gets_no_grace() {
    let db = live_database().await;
    let s = Session::of(&db).await;
    s.enqueue("'a', max_retries => 0").await;
    s.get("select trax.pause('a test')").await;
    s.claim_one("lease => '1 h'").await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    s.get("update trax.lease set lease_expires_at = now()")
        .await;
    s.get("select trax.resume()").await;
    ends_as(&s, "failed").await;
    s.assert_healthy().await;
}
