//! Shutdown, reload, restart and promotion of the server.

use super::TWO_SECONDS;
use harness::prompt::takes_less_than;
use harness::scheduler::{
    a_cycle_runs, another_scheduler_of, connect, execute, no_scheduler_of, scheduler_of,
    scheduler_wakes, schedulers, scheduling, status, status_becomes, value, violations,
};
use harness::standby::Standby;
use harness::{PATIENCE, eventually};
use std::time::{Duration, Instant};
use trax_client::testkit::Stop;

/// Returns the time of a fast shutdown while the scheduler of this database is busy with the action
/// of `prepare`, shown by the wait event `busy` of type `what`.
async fn shutdown_while(name: &str, prepare: &str, what: &str, busy: &str) -> Duration {
    let mut server = scheduling().start().expect("a server starts");
    let database = server.database(name).await.expect("a database is made");
    let client = connect(&database).await;
    scheduler_of(&client, name, PATIENCE).await;
    execute(&client, prepare).await;
    let watcher = connect(&server.existing("postgres")).await;
    eventually("the busy scheduler", PATIENCE, async || {
        let sql = format!(
            "select coalesce(max({what}), 'none') from pg_stat_activity
             where backend_type = 'trax scheduler' and datname = '{name}'"
        );
        let seen: String = value(&watcher, &sql).await;
        if seen == busy { Ok(()) } else { Err(seen) }
    })
    .await;
    server.stop(Stop::Fast).expect("the server stops")
}

#[tokio::test]
async fn a_fast_shutdown_takes_less_than_two_seconds_while_the_scheduler_is_in_a_long_statement() {
    takes_less_than(TWO_SECONDS, "a fast shutdown", async || {
        let prepare = "create function sleep() returns trigger language plpgsql
                as $$ begin perform pg_sleep(60); return null; end $$;
            create trigger sleep after insert on trax.work_queue for each statement execute function sleep();
            select trax.schedule('long', 'long', every => '1 hour')";
        shutdown_while("long", prepare, "wait_event", "PgSleep").await
    })
    .await;
}

#[tokio::test]
async fn a_fast_shutdown_takes_less_than_two_seconds_while_the_scheduler_waits_for_a_lock() {
    takes_less_than(TWO_SECONDS, "a fast shutdown", async || {
        let prepare = "begin; lock table trax.manifest_state in access exclusive mode";
        shutdown_while("locked", prepare, "wait_event_type", "Lock").await
    })
    .await;
}

#[tokio::test]
async fn a_reload_and_alter_database_change_how_often_the_cycle_runs() {
    let server = scheduling()
        .setting("trax.tick_interval", "1h")
        .start()
        .expect("a server starts");
    let database = server.database("paced").await.expect("a database is made");
    let client = connect(&database).await;
    let pid = scheduler_of(&client, "paced", PATIENCE).await;

    server
        .append_settings("trax.tick_interval = '100ms'\n")
        .expect("the file can be written");
    server.reload().expect("the server runs");
    // A signal alone wakes the scheduler once; only the setting makes a second cycle.
    for _ in 0..3 {
        a_cycle_runs(&client, PATIENCE).await;
    }
    assert_eq!(
        schedulers(&client, "paced").await,
        Ok(vec![pid]),
        "a reload starts no new process"
    );

    server
        .append_settings("trax.tick_interval = '1h'\n")
        .expect("the file can be written");
    server.reload().expect("the server runs");
    let mut tick = 100;
    let mut pid = pid;
    takes_less_than(
        Duration::from_secs(10),
        "taking a database's setting up",
        async || {
            let sql = format!("alter database paced set trax.tick_interval = '{tick}ms'");
            execute(&client, &sql).await;
            let set = Instant::now();
            pid = another_scheduler_of(&client, "paced", pid, PATIENCE).await;
            tick += 1;
            set.elapsed()
        },
    )
    .await;
    for _ in 0..3 {
        a_cycle_runs(&client, PATIENCE).await;
    }
}

#[tokio::test]
async fn switching_trax_off_in_the_file_ends_the_schedulers_and_on_brings_them_back() {
    let server = scheduling().start().expect("a server starts");
    let database = server
        .database("switched")
        .await
        .expect("a database is made");
    let client = connect(&database).await;
    scheduler_of(&client, "switched", PATIENCE).await;
    execute(&client, "alter system set trax.enabled = off").await;
    server.reload().expect("the server runs");
    no_scheduler_of(&client, "switched", PATIENCE).await;
    let (value, healthy, hint) = status(&client, "scheduler").await;
    assert_eq!((value.as_str(), healthy), ("not running", false));
    assert!(hint.is_some_and(|hint| hint.contains("alter system set trax.enabled = on")));
    execute(&client, "alter system reset trax.enabled").await;
    server.reload().expect("the server runs");
    scheduler_of(&client, "switched", PATIENCE).await;
}

/// Returns the time from the promotion of a standby to its first cycle.
async fn promotion() -> Duration {
    // The primary's launcher ignores the database, so the job is still due on the standby.
    let server = scheduling()
        .setting("trax.databases", "no_such")
        .start()
        .expect("a server starts");
    let database = server.database("prod").await.expect("a database is made");
    let client = connect(&database).await;
    let standby = Standby::of(&server, &["trax.databases="]).await;
    execute(
        &client,
        "select trax.schedule('due', 'due', every => '1 hour')",
    )
    .await;
    execute(&client, "select trax.enqueue('waiting')").await;
    let written: String = value(&client, "select pg_current_wal_insert_lsn()::text").await;
    let other = standby.connect("prod").await;
    standby.has_replayed(&other, &written).await;

    assert_eq!(status(&other, "scheduler").await.0, "standby");
    assert_eq!(schedulers(&other, "prod").await, Ok(vec![]));
    let refused = other.execute("select trax.tick()", &[]).await;
    assert!(refused.is_err(), "a standby has no cycle");

    execute(&other, "select pg_promote(wait => true)").await;
    let promoted = Instant::now();
    eventually(
        "the first cycle of the promoted server",
        PATIENCE,
        async || {
            let sql = "select count(*) from trax.work_queue where manifest = 'due'";
            match value::<i64>(&other, sql).await {
                1 => Ok(()),
                seen => Err(format!(
                    "{seen} jobs, status {:?}",
                    status(&other, "scheduler").await
                )),
            }
        },
    )
    .await;
    let took = promoted.elapsed();
    assert_eq!(
        value::<i64>(
            &other,
            "select count(*) from trax.claim_next(max_jobs => 10)"
        )
        .await,
        2
    );
    assert_eq!(violations(&other).await, Vec::<String>::new());
    took
}

#[tokio::test]
async fn a_promoted_standby_runs_its_first_cycle_within_two_seconds() {
    takes_less_than(TWO_SECONDS, "the first cycle", promotion).await;
}

#[tokio::test]
async fn a_paused_scheduler_stays_paused_over_a_restart_and_goes_on_when_resumed() {
    let mut server = scheduling()
        .setting("trax.tick_interval", "50ms")
        .start()
        .expect("a server starts");
    let database = server.database("paused").await.expect("a database is made");
    let client = connect(&database).await;
    execute(&client, "select trax.pause('moving the files')").await;
    execute(
        &client,
        "select trax.schedule('due', 'due', every => '1 hour')",
    )
    .await;
    drop(client);
    server.restart().expect("the server starts again");

    let client = connect(&database).await;
    scheduler_of(&client, "paused", PATIENCE).await;
    scheduler_wakes(&client, "paused", 5).await;
    let (said, healthy, hint) = status(&client, "scheduler").await;
    assert!(
        said.contains("paused since") && said.ends_with("moving the files"),
        "{said}"
    );
    assert!(!healthy);
    assert!(hint.is_some_and(|hint| hint.contains("select trax.resume()")));
    assert_eq!(
        value::<i64>(&client, "select count(*) from trax.job").await,
        0
    );

    // A manual cycle works nevertheless.
    let queued = "select affected from trax.tick() where step = 'queue_due'";
    assert_eq!(value::<i64>(&client, queued).await, 1);
    assert_eq!(
        value::<i64>(&client, "select count(*) from trax.claim_next()").await,
        1
    );

    execute(&client, "select trax.resume()").await;
    a_cycle_runs(&client, PATIENCE).await;
    server.restart().expect("the server starts again");
    let client = connect(&database).await;
    status_becomes(&client, "scheduler", "running", PATIENCE).await;
}
