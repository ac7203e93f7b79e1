//! Launcher and schedulers: they start by themselves, come back, sleep without holding anything,
//! and stop when asked.

mod database;
mod not_preloaded;
mod notify;
mod server;
mod trouble;
mod vacuum;
mod zone_data;

use harness::prompt::takes_less_than;
use harness::scheduler::{
    a_cycle_runs, another_scheduler_of, connect, execute, live_database, live_server, new_name,
    no_scheduler_of, scheduler_of, schedulers, scheduling, status, value,
};
use harness::{PATIENCE, eventually};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

const TWO_SECONDS: Duration = Duration::from_secs(2);

async fn launcher(client: &Client, not: i32, limit: Duration) -> i32 {
    eventually("one launcher", limit, async || {
        let sql = "select pid from pg_stat_activity where backend_type = 'trax launcher'";
        let rows = client
            .query(sql, &[])
            .await
            .map_err(|error| format!("{error:?}"))?;
        let pids: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
        match pids.as_slice() {
            [pid] if *pid != not => Ok(*pid),
            seen => Err(format!("{seen:?}, the old one was {not}")),
        }
    })
    .await
}

#[tokio::test]
async fn a_new_database_with_the_extension_gets_a_scheduler_within_two_seconds() {
    takes_less_than(TWO_SECONDS, "the first scheduler", async || {
        let name = new_name("fresh");
        let database = live_server().plain_database(&name).await;
        let client = connect(&database.expect("a database is made")).await;
        // The scheduler that looks for the extension ends by itself.
        no_scheduler_of(&client, &name, PATIENCE).await;
        execute(&client, "create extension trax").await;
        let made = Instant::now();
        scheduler_of(&client, &name, PATIENCE).await;
        let took = made.elapsed();
        launcher(&client, 0, PATIENCE).await;
        assert_eq!(
            status(&client, "scheduler").await,
            ("running".to_owned(), true, None)
        );
        a_cycle_runs(&client, PATIENCE).await;
        took
    })
    .await;
}

#[tokio::test]
async fn a_due_manifest_runs_with_nobody_calling_tick() {
    let database = live_database().await;
    let client = connect(&database).await;
    execute(
        &client,
        "select trax.schedule('beat', 'heart.beat', every => '1 hour')",
    )
    .await;
    eventually("the job of a due manifest", PATIENCE, async || {
        let sql = "select task from trax.claim_next()";
        let rows = client
            .query(sql, &[])
            .await
            .map_err(|error| format!("{error:?}"))?;
        match rows.first().map(|row| row.get::<_, String>(0)).as_deref() {
            Some("heart.beat") => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn a_sleeping_scheduler_holds_no_snapshot_and_no_transaction() {
    let database = live_database().await;
    let client = connect(&database).await;
    // A transaction with an id makes the horizon of every snapshot visible.
    let writer = connect(&database).await;
    execute(&writer, "begin; create temporary table t ()").await;
    let looks: Vec<(bool, bool)> = {
        let sql =
            "select wait_event_type = 'Extension', backend_xmin is not null or backend_xid is not null
                or xact_start is not null
            from pg_stat_activity where backend_type = 'trax scheduler' and datname = $1";
        let mut looks = Vec::new();
        let end = Instant::now() + Duration::from_millis(2500);
        while Instant::now() < end {
            let rows = client
                .query(sql, &[&database.name()])
                .await
                .expect("the server answers");
            looks.extend(
                rows.iter()
                    .map(|row| (row.get::<_, Option<bool>>(0) == Some(true), row.get(1))),
            );
        }
        looks
    };
    let asleep = looks.iter().filter(|(sleeps, _)| *sleeps).count();
    let holding = looks
        .iter()
        .filter(|(sleeps, holds)| *sleeps && *holds)
        .count();
    // On a busy machine the scheduler also waits for a processor.
    assert!(
        asleep * 2 > looks.len(),
        "it slept in {asleep} of {} looks",
        looks.len()
    );
    // A look reads its columns one after another, so it may catch the moment of falling asleep.
    assert!(
        holding <= 3.max(asleep / 50),
        "it held something in {holding} of {asleep} looks while it slept"
    );
}

#[tokio::test]
async fn a_scheduler_terminated_twenty_times_is_back_each_time_and_within_six_seconds() {
    let database = live_database().await;
    let client = connect(&database).await;
    let mut pid = scheduler_of(&client, database.name(), PATIENCE).await;
    let mut took = Vec::new();
    for _ in 0..20 {
        let terminated = Instant::now();
        assert!(value::<bool>(&client, &format!("select pg_terminate_backend({pid})")).await);
        pid = another_scheduler_of(&client, database.name(), pid, PATIENCE).await;
        took.push(terminated.elapsed());
    }
    // Other load may delay a few cycles.
    let late = took.iter().filter(|took| **took > Duration::from_secs(6));
    assert!(late.count() < 5, "{took:?}");
    a_cycle_runs(&client, PATIENCE).await;
}

#[tokio::test]
async fn a_new_launcher_keeps_the_schedulers_that_run() {
    let server = scheduling().start().expect("a server starts");
    let database = server.database("kept").await.expect("a database is made");
    let client = connect(&database).await;
    let scheduler = scheduler_of(&client, "kept", PATIENCE).await;
    let old = launcher(&client, 0, PATIENCE).await;
    execute(&client, &format!("select pg_terminate_backend({old})")).await;
    launcher(&client, old, PATIENCE).await;

    let name = "made_afterwards";
    server.database(name).await.expect("a database is made");
    scheduler_of(&client, name, PATIENCE).await;
    assert_eq!(schedulers(&client, "kept").await, Ok(vec![scheduler]));
    // The new launcher also restarts the schedulers that it adopted.
    execute(
        &client,
        &format!("select pg_terminate_backend({scheduler})"),
    )
    .await;
    another_scheduler_of(&client, "kept", scheduler, PATIENCE).await;
}

#[tokio::test]
async fn with_too_few_worker_slots_every_database_gets_its_turn_to_be_looked_at() {
    // More databases than slots, most without the extension: checking them must not starve the
    // database that has it.
    let server = harness::options()
        .fast()
        .setting("max_worker_processes", "4")
        .start()
        .expect("a server starts");
    for number in 0..8 {
        server
            .plain_database(&format!("empty_{number}"))
            .await
            .expect("a database is made");
    }
    let database = server.database("served").await.expect("a database is made");
    let client = connect(&database).await;
    scheduler_of(&client, "served", PATIENCE).await;
    a_cycle_runs(&client, PATIENCE).await;
}

#[tokio::test]
async fn an_unknown_setting_is_refused() {
    let client = connect(&live_server().existing("postgres")).await;
    let refused = client.batch_execute("set trax.tick_intervall = '1s'").await;
    assert!(
        refused.is_err(),
        "a typing error in a setting must not pass"
    );
}
