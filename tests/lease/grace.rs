//! Leases that expire while no cycle runs: their workers could not send heartbeats.

use harness::process::send_signal;
use harness::scheduler::{live_database, scheduling};
use harness::session::Session;
use harness::standby::Standby;
use harness::{PATIENCE, eventually};
use std::time::Duration;
use trax_client::testkit::{Server, Stop};

/// A server whose databases have schedulers, with one database and one extended lease of this
/// length.
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
    // Neither manual cycles nor those of the scheduler take the lease away.
    s.get("select * from trax.tick()").await;
    eventually("a cycle of the scheduler", PATIENCE, async || {
        let graced = "select extended_at >= pg_postmaster_start_time() from trax.lease";
        match s.get(graced).await {
            seen if seen == "t" => Ok(()),
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
    // Makes the last look of the scheduler old.
    s.get("update trax.lease set lease_expires_at = now() - interval '1 h'; update trax.lease set extended_at = lease_expires_at - interval '3 s'")
        .await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let resumed = s
        .get("select trax.resume(); select clock_timestamp()")
        .await;
    let resumed = resumed.lines().last().expect("a time").to_owned();
    ends_as(&s, "failed").await;
    let sql = format!("select finished_at - '{resumed}' from trax.run");
    let after = s.get(&sql).await;
    assert!(after.as_str() >= "00:00:02.9", "{after}");
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

/// Terminates the scheduler of `work` and waits for the next one.
async fn restart_scheduler(s: &Session, database: &str) {
    let ended = "select pid, pg_terminate_backend(pid) from pg_stat_activity
        where backend_type = 'trax scheduler' and datname = current_database()";
    let old = s.get(ended).await;
    let pid = old.split('|').next().unwrap_or_default().to_owned();
    eventually("another scheduler", PATIENCE, async || {
        let sql = format!(
            "select pid from pg_stat_activity where backend_type = 'trax scheduler'
                 and datname = '{database}' and pid <> coalesce(nullif('{pid}', '')::int, 0)"
        );
        match s.get(&sql).await {
            seen if seen.is_empty() => Err(seen),
            _ => Ok(()),
        }
    })
    .await;
}

#[tokio::test]
async fn a_dead_lease_is_reaped_although_the_scheduler_ends_again_and_again() {
    let db = live_database().await;
    let s = Session::of(&db).await;
    s.enqueue("'a', max_retries => 0").await;
    s.claim_one("lease => '4 s'").await;
    let deadline = std::time::Instant::now() + PATIENCE;
    let left =
        "select count(*), coalesce(max(lease_expires_at - clock_timestamp()), '0') from trax.lease";
    while s.get("select count(*) from trax.run").await == "0" {
        let seen = s.get(left).await;
        assert!(std::time::Instant::now() < deadline, "{seen}");
        restart_scheduler(&s, db.name()).await;
        // The scheduler lives long enough for a cycle, and far shorter than the lease.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let kind = "select failure_kind, finished_at > started_at + interval '4 s' from trax.run";
    assert_eq!(s.get(kind).await, "lease_expired|t");
    s.assert_healthy().await;
}

#[tokio::test]
async fn an_attempt_past_its_timeout_outlasts_a_restart_by_the_grace_to_stop_at_most() {
    let db = live_database().await;
    let s = Session::of(&db).await;
    let grace = "set trax.cancel_grace = '2 s'";
    s.get(&format!("alter database {} {grace}", db.name()))
        .await;
    s.enqueue("'a', max_retries => 0").await;
    s.claim_one("lease => '1 h'").await;
    s.get("select trax.pause('a test')").await;
    s.get("update trax.lease set timed_out = true, cancel_requested = true, timeout_at = clock_timestamp() + interval '1 ms'")
        .await;
    restart_scheduler(&s, db.name()).await;
    let resumed = s
        .get("select trax.resume(); select clock_timestamp()")
        .await;
    let resumed = resumed.lines().last().expect("a time").to_owned();
    ends_as(&s, "failed").await;
    let kind = format!("select failure_kind, finished_at > '{resumed}' from trax.run");
    assert_eq!(s.get(&kind).await, "timeout|t");
}

/// A server without schedulers, and a session in one of its databases.
async fn by_hand() -> (Server, Session) {
    let server = harness::options()
        .fast()
        .not_preloaded()
        .start()
        .expect("a server starts");
    let db = server.database("work").await.expect("a database is made");
    (server, Session::of(&db).await)
}

/// Returns the heartbeat call of an expired lease.
async fn runs_out(s: &Session) -> String {
    s.enqueue("'a', max_retries => 0").await;
    let job = s.claim_one("lease => '10 s'").await;
    let beat = format!(
        "select held from trax.heartbeat(array[{}], array['{}'::uuid], '1 h')",
        job.id, job.token
    );
    s.get("checkpoint").await;
    eventually("the end of the lease", PATIENCE, async || {
        match s
            .get("select lease_expires_at < now() from trax.lease")
            .await
        {
            seen if seen == "t" => Ok(()),
            seen => Err(seen),
        }
    })
    .await;
    beat
}

/// Checks that a manual cycle extends the lease by its length, and that its heartbeat is then
/// accepted.
async fn lasts(s: &Session, beat: &str) {
    assert_eq!(s.tick("reap_expired_leases").await, 0);
    assert_eq!(s.tick("reap_expired_leases").await, 0);
    assert_eq!(s.get(beat).await, "t");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cycle_by_hand_gives_a_lease_its_length_after_a_crash_of_all_sessions() {
    let (server, s) = by_hand().await;
    let beat = runs_out(&s).await;
    let db = server.existing("work");
    let walwriter = "select pid from pg_stat_activity where backend_type = 'walwriter'";
    let before = s.get(walwriter).await;
    send_signal("KILL", s.pid());
    eventually("the server is back", PATIENCE, async || {
        let (client, connection) = db
            .config()
            .connect(tokio_postgres::NoTls)
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        let row = client.query_one(walwriter, &[]).await;
        match row.map(|row| row.get::<_, i32>(0).to_string()) {
            Ok(pid) if pid != before => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
    lasts(&Session::of(&db).await, &beat).await;
}

#[tokio::test]
async fn a_cycle_by_hand_gives_a_lease_its_length_after_a_promotion() {
    let (server, s) = by_hand().await;
    let standby = Standby::of(&server, &[]).await;
    let beat = runs_out(&s).await;
    let written = s.get("select pg_current_wal_insert_lsn()").await;
    let there = standby.connect("work").await;
    standby.has_replayed(&there, &written).await;
    let mut there = tokio_postgres::Config::new();
    there.host_path(server.socket_dir()).port(standby.port());
    there.user("postgres").dbname("work");
    let s = Session::with(there).await;
    s.get("select pg_promote()").await;
    lasts(&s, &beat).await;
}
