//! Launcher and schedulers: they come by themselves, come back, sleep lightly and leave when asked.

use harness::scheduler::{
    a_cycle_runs, another_scheduler_of, connect, execute, live_database, live_server, new_name,
    no_scheduler_of, scheduler_of, scheduler_wakes, schedulers, scheduling, status, status_becomes,
    value, violations,
};
use harness::standby::Standby;
use harness::{PATIENCE, eventually};
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use trax_client::testkit::{Server, Stop};

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
    let server = live_server();
    let name = new_name("fresh");
    let database = server
        .plain_database(&name)
        .await
        .expect("a database is made");
    let client = connect(&database).await;
    assert_eq!(schedulers(&client, &name).await, Ok(vec![]));
    execute(&client, "create extension trax").await;
    scheduler_of(&client, &name, TWO_SECONDS).await;
    launcher(&client, 0, TWO_SECONDS).await;
    assert_eq!(
        status(&client, "scheduler").await,
        ("running".to_owned(), true, None)
    );
    a_cycle_runs(&client, Duration::from_secs(5)).await;
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
    eventually(
        "the job of a due manifest",
        Duration::from_secs(5),
        async || {
            let sql = "select task from trax.claim_next()";
            let rows = client
                .query(sql, &[])
                .await
                .map_err(|error| format!("{error:?}"))?;
            match rows.first().map(|row| row.get::<_, String>(0)).as_deref() {
                Some("heart.beat") => Ok(()),
                seen => Err(format!("{seen:?}")),
            }
        },
    )
    .await;
}

#[tokio::test]
async fn a_sleeping_scheduler_holds_no_snapshot_and_no_transaction() {
    let database = live_database().await;
    let client = connect(&database).await;
    // A transaction with an id makes every snapshot's horizon visible.
    let writer = connect(&database).await;
    execute(&writer, "begin; create temporary table t ()").await;
    let looks: Vec<(bool, bool)> = {
        let sql =
            "select wait_event = 'Extension', backend_xmin is not null or backend_xid is not null
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
    assert!(
        asleep * 10 > looks.len() * 9,
        "it slept in {asleep} of {} looks",
        looks.len()
    );
    // A look reads its columns one after another, so that it may see the moment of falling asleep.
    assert!(
        holding <= 3,
        "it held something in {holding} of {asleep} looks while it slept"
    );
}

#[tokio::test]
async fn a_scheduler_terminated_twenty_times_is_back_within_six_seconds_each_time() {
    let database = live_database().await;
    let client = connect(&database).await;
    let mut pid = scheduler_of(&client, database.name(), PATIENCE).await;
    for _ in 0..20 {
        assert!(value::<bool>(&client, &format!("select pg_terminate_backend({pid})")).await);
        pid = another_scheduler_of(&client, database.name(), pid, Duration::from_secs(6)).await;
    }
    a_cycle_runs(&client, Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_new_launcher_keeps_the_schedulers_that_run() {
    let server = scheduling().start().expect("a server starts");
    let database = server.database("kept").await.expect("a database is made");
    let client = connect(&database).await;
    let scheduler = scheduler_of(&client, "kept", TWO_SECONDS).await;
    let old = launcher(&client, 0, TWO_SECONDS).await;
    execute(&client, &format!("select pg_terminate_backend({old})")).await;
    launcher(&client, old, Duration::from_secs(6)).await;

    let name = "made_afterwards";
    server.database(name).await.expect("a database is made");
    scheduler_of(&client, name, TWO_SECONDS).await;
    assert_eq!(schedulers(&client, "kept").await, Ok(vec![scheduler]));
    // And what the new one adopted it also starts again.
    execute(
        &client,
        &format!("select pg_terminate_backend({scheduler})"),
    )
    .await;
    another_scheduler_of(&client, "kept", scheduler, Duration::from_secs(6)).await;
}

#[tokio::test]
async fn a_fast_shutdown_takes_less_than_two_seconds_while_the_scheduler_is_in_a_long_statement() {
    let mut server = scheduling().start().expect("a server starts");
    let database = server.database("long").await.expect("a database is made");
    let client = connect(&database).await;
    scheduler_of(&client, "long", TWO_SECONDS).await;
    execute(
        &client,
        "create function sleep() returns trigger language plpgsql
            as $$ begin perform pg_sleep(60); return null; end $$;
        create trigger sleep after insert on trax.work_queue for each statement execute function sleep();
        select trax.schedule('long', 'long', every => '1 hour')",
    )
    .await;
    eventually("the scheduler in pg_sleep", PATIENCE, async || {
        let sql = "select coalesce(wait_event, 'none') from pg_stat_activity
            where backend_type = 'trax scheduler' and datname = 'long'";
        let seen: String = value(&client, sql).await;
        if seen == "PgSleep" { Ok(()) } else { Err(seen) }
    })
    .await;
    let took = server.stop(Stop::Fast).expect("the server stops");
    assert!(took < TWO_SECONDS, "it took {took:?}");
}

#[tokio::test]
async fn a_fast_shutdown_takes_less_than_two_seconds_while_the_scheduler_waits_for_a_lock() {
    let mut server = scheduling().start().expect("a server starts");
    let database = server.database("locked").await.expect("a database is made");
    let client = connect(&database).await;
    scheduler_of(&client, "locked", TWO_SECONDS).await;
    execute(
        &client,
        "begin; lock table trax.manifest_state in access exclusive mode",
    )
    .await;
    let watcher = connect(&server.existing("postgres")).await;
    eventually("the scheduler waiting for the lock", PATIENCE, async || {
        let sql = "select coalesce(wait_event_type, 'none') from pg_stat_activity
            where backend_type = 'trax scheduler' and datname = 'locked'";
        let seen: String = value(&watcher, sql).await;
        if seen == "Lock" { Ok(()) } else { Err(seen) }
    })
    .await;
    let took = server.stop(Stop::Fast).expect("the server stops");
    assert!(took < TWO_SECONDS, "it took {took:?}");
}

#[tokio::test]
async fn a_reload_and_alter_database_change_how_often_the_cycle_runs() {
    let server = scheduling()
        .setting("trax.tick_interval", "1h")
        .start()
        .expect("a server starts");
    let database = server.database("paced").await.expect("a database is made");
    let client = connect(&database).await;
    let pid = scheduler_of(&client, "paced", TWO_SECONDS).await;

    server
        .append_settings("trax.tick_interval = '100ms'\n")
        .expect("the file can be written");
    server.reload().expect("the server runs");
    // A signal wakes the scheduler once by itself; only the setting makes a second cycle.
    for _ in 0..3 {
        a_cycle_runs(&client, Duration::from_secs(5)).await;
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
    execute(
        &client,
        "alter database paced set trax.tick_interval = '100ms'",
    )
    .await;
    another_scheduler_of(&client, "paced", pid, Duration::from_secs(10)).await;
    for _ in 0..3 {
        a_cycle_runs(&client, Duration::from_secs(5)).await;
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
    scheduler_of(&client, "switched", TWO_SECONDS).await;
    execute(&client, "alter system set trax.enabled = off").await;
    server.reload().expect("the server runs");
    no_scheduler_of(&client, "switched", Duration::from_secs(6)).await;
    let (value, healthy, hint) = status(&client, "scheduler").await;
    assert_eq!((value.as_str(), healthy), ("not running", false));
    assert!(hint.is_some_and(|hint| hint.contains("alter system set trax.enabled = on")));
    execute(&client, "alter system reset trax.enabled").await;
    server.reload().expect("the server runs");
    scheduler_of(&client, "switched", Duration::from_secs(6)).await;
}

#[tokio::test]
async fn a_database_is_dropped_renamed_and_copied_while_its_scheduler_runs() {
    let admin = connect(&live_server().existing("postgres")).await;
    let name = live_database().await.name().to_owned();
    for round in 0..3 {
        let copy = new_name("copy");
        execute(&admin, &format!("create database {copy} template {name}")).await;
        scheduler_of(&admin, &name, Duration::from_secs(6)).await;
        scheduler_of(&admin, &copy, Duration::from_secs(6)).await;
        let renamed = format!("{copy}_renamed_{round}");
        execute(
            &admin,
            &format!("alter database {copy} rename to {renamed}"),
        )
        .await;
        scheduler_of(&admin, &renamed, Duration::from_secs(6)).await;
        execute(&admin, &format!("drop database {renamed}")).await;
        assert_eq!(schedulers(&admin, &renamed).await, Ok(vec![]));
    }
    execute(&admin, &format!("drop database {name}")).await;
}

#[tokio::test]
async fn a_failed_drop_gives_the_scheduler_back() {
    let database = live_database().await;
    let admin = connect(&live_server().existing("postgres")).await;
    let stranger = connect(&database).await;
    let pid = scheduler_of(&admin, database.name(), PATIENCE).await;
    let dropped = admin
        .batch_execute(&format!("drop database {}", database.name()))
        .await;
    let error = dropped.expect_err("somebody is connected");
    assert_eq!(error.code().map(|code| code.code()), Some("55006"));
    another_scheduler_of(&admin, database.name(), pid, Duration::from_secs(6)).await;
    a_cycle_runs(&stranger, Duration::from_secs(5)).await;
}

#[tokio::test]
async fn the_extension_is_dropped_and_created_again_while_the_scheduler_runs() {
    let database = live_database().await;
    let client = connect(&database).await;
    for _ in 0..3 {
        execute(
            &client,
            "select trax.enqueue('left.over');
            select trax.schedule('left-over', 'left.over', cron => '* * * * *');
            select trax.make_run_partitions(now() + interval '30 days', 1);
            drop extension trax",
        )
        .await;
        let left: Vec<String> = {
            let sql = "select c.relname::text from pg_class c
                where c.relnamespace = (select oid from pg_namespace where nspname = 'trax')
                union all select p.proname::text from pg_proc p
                where p.pronamespace = (select oid from pg_namespace where nspname = 'trax')";
            let rows = client
                .query(sql, &[])
                .await
                .expect("the catalog can be read");
            rows.iter().map(|row| row.get(0)).collect()
        };
        assert_eq!(left, Vec::<String>::new());
        no_scheduler_of(&client, database.name(), Duration::from_secs(6)).await;
        execute(&client, "create extension trax").await;
        scheduler_of(&client, database.name(), TWO_SECONDS).await;
        assert_eq!(
            value::<i64>(&client, "select count(*) from trax.job").await,
            0
        );
        a_cycle_runs(&client, Duration::from_secs(5)).await;
    }
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_rolled_back_drop_of_the_extension_leaves_the_scheduler() {
    let database = live_database().await;
    let client = connect(&database).await;
    execute(&client, "begin; drop extension trax").await;
    let watcher = connect(&live_server().existing("postgres")).await;
    eventually("the scheduler waiting for the drop", PATIENCE, async || {
        let sql = format!(
            "select coalesce(max(wait_event_type), 'none') from pg_stat_activity
            where backend_type = 'trax scheduler' and datname = '{}'",
            database.name()
        );
        let seen: String = value(&watcher, &sql).await;
        if seen == "Lock" { Ok(()) } else { Err(seen) }
    })
    .await;
    execute(&client, "rollback").await;
    scheduler_of(&client, database.name(), Duration::from_secs(6)).await;
    a_cycle_runs(&client, Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_promoted_standby_runs_its_first_cycle_within_two_seconds() {
    // The primary's launcher leaves the database alone, so that the work is still there for the standby.
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
        TWO_SECONDS,
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
    println!(
        "the first cycle came {:?} after the promotion",
        promoted.elapsed()
    );
    assert_eq!(
        value::<i64>(
            &other,
            "select count(*) from trax.claim_next(max_jobs => 10)"
        )
        .await,
        2
    );
    assert_eq!(violations(&other).await, Vec::<String>::new());
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

    // By hand it works all the same.
    let queued = "select affected from trax.tick() where step = 'queue_due'";
    assert_eq!(value::<i64>(&client, queued).await, 1);
    assert_eq!(
        value::<i64>(&client, "select count(*) from trax.claim_next()").await,
        1
    );

    execute(&client, "select trax.resume()").await;
    a_cycle_runs(&client, Duration::from_secs(5)).await;
    server.restart().expect("the server starts again");
    let client = connect(&database).await;
    status_becomes(&client, "scheduler", "running", PATIENCE).await;
}

#[tokio::test]
async fn without_preloading_status_says_what_to_type_and_typing_it_works() {
    let mut server = Server::options()
        .fast()
        .not_preloaded()
        .start()
        .expect("a server starts");
    let database = server.database("plain").await.expect("a database is made");
    let client = connect(&database).await;
    let (said, healthy, hint) = status(&client, "library").await;
    assert_eq!((said.as_str(), healthy), ("not preloaded", false));
    let typed = "alter system set shared_preload_libraries = 'trax'";
    assert!(
        hint.as_ref().is_some_and(|hint| hint.contains(typed)),
        "{hint:?}"
    );
    let (said, healthy, hint) = status(&client, "scheduler").await;
    assert_eq!((said.as_str(), healthy), ("not running", false));
    assert!(hint.is_some_and(|hint| hint.contains("select trax.start_scheduler()")));

    execute(&client, typed).await;
    drop(client);
    server.restart().expect("the server starts again");
    let client = connect(&database).await;
    status_becomes(&client, "scheduler", "running", Duration::from_secs(5)).await;
    let unhealthy: Vec<String> = {
        let sql = "select item from trax.status() where not healthy";
        let rows = client.query(sql, &[]).await.expect("trax.status() answers");
        rows.iter().map(|row| row.get(0)).collect()
    };
    assert_eq!(unhealthy, Vec::<String>::new());
}

#[tokio::test]
async fn without_preloading_everything_works_with_tick_by_hand_and_with_a_started_scheduler() {
    let server = Server::options()
        .fast()
        .not_preloaded()
        .setting("max_worker_processes", "16")
        .start()
        .expect("a server starts");
    let database = server.database("plain").await.expect("a database is made");
    let client = connect(&database).await;
    a_life_by_hand(&client).await;

    execute(
        &client,
        "create role operator login; select trax.grant_access('operator', 'admin')",
    )
    .await;
    execute(&client, "set role operator").await;
    assert_eq!(
        value::<String>(&client, "select trax.start_scheduler()").await,
        "started"
    );
    assert_eq!(
        value::<String>(&client, "select trax.start_scheduler()").await,
        "already running"
    );
    execute(&client, "reset role").await;
    let pid = scheduler_of(&client, "plain", TWO_SECONDS).await;
    a_cycle_runs(&client, Duration::from_secs(5)).await;
    execute(&client, &format!("select pg_terminate_backend({pid})")).await;
    another_scheduler_of(&client, "plain", pid, Duration::from_secs(6)).await;
    execute(&client, "drop extension trax").await;
    no_scheduler_of(&client, "plain", Duration::from_secs(6)).await;
}

/// From a due manifest through a retry to completion, the cycle called by hand.
async fn a_life_by_hand(client: &Client) {
    execute(
        client,
        "select trax.schedule('m', 't', every => '1 hour', max_retries => 1, retry_delay => '1 ms');
        select * from trax.tick()",
    )
    .await;
    let fail = "select trax.fail(job_id, token, 'no') from trax.claim_next()";
    assert_eq!(value::<String>(client, fail).await, "retrying");
    eventually("the retry", PATIENCE, async || {
        execute(client, "select * from trax.tick()").await;
        let sql = "select trax.complete(job_id, token) from trax.claim_next()";
        match client
            .query_opt(sql, &[])
            .await
            .map_err(|error| format!("{error:?}"))?
        {
            Some(row) if row.get(0) => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
    let sql = "select string_agg(state, ' ' order by attempt) from trax.run";
    assert_eq!(value::<String>(client, sql).await, "failed completed");
    assert_eq!(violations(client).await, Vec::<String>::new());
}

#[tokio::test]
async fn with_too_few_worker_slots_every_database_gets_its_turn_to_be_looked_at() {
    // More databases than slots, most without the extension: looking at them must not starve the one that has it.
    let server = Server::options()
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
    scheduler_of(&client, "served", Duration::from_secs(10)).await;
    a_cycle_runs(&client, Duration::from_secs(5)).await;
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
