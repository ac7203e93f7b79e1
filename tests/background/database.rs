//! Statements about a database or its extension, while the scheduler is connected.

use harness::scheduler::{
    a_cycle_runs, connect, execute, live_database, live_server, new_name, no_scheduler_of,
    scheduler_of, schedulers, scheduling, value, violations,
};
use harness::{PATIENCE, eventually};

#[tokio::test]
async fn a_database_is_dropped_renamed_and_copied_while_its_scheduler_runs() {
    let admin = connect(&live_server().existing("postgres")).await;
    let name = live_database().await.name().to_owned();
    for round in 0..3 {
        let copy = new_name("copy");
        execute(&admin, &format!("create database {copy} template {name}")).await;
        scheduler_of(&admin, &name, PATIENCE).await;
        scheduler_of(&admin, &copy, PATIENCE).await;
        let renamed = format!("{copy}_renamed_{round}");
        execute(
            &admin,
            &format!("alter database {copy} rename to {renamed}"),
        )
        .await;
        scheduler_of(&admin, &renamed, PATIENCE).await;
        execute(&admin, &format!("drop database {renamed}")).await;
        assert_eq!(schedulers(&admin, &renamed).await, Ok(vec![]));
    }
    execute(&admin, &format!("drop database {name}")).await;
}

#[tokio::test]
async fn a_refused_drop_ends_neither_the_scheduler_nor_a_running_statement() {
    let database = live_database().await;
    let admin = connect(&live_server().existing("postgres")).await;
    let stranger = connect(&database).await;
    let pid = scheduler_of(&admin, database.name(), PATIENCE).await;
    execute(
        &stranger,
        "select pg_advisory_lock(7);
        select trax.enqueue_sql('select pg_advisory_xact_lock(7)', max_retries => 0)",
    )
    .await;
    let waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
    eventually(
        "the statement runs",
        PATIENCE,
        async || match value::<i64>(&stranger, waits).await {
            1 => Ok(()),
            other => Err(other.to_string()),
        },
    )
    .await;
    let drop = format!("drop database {}", database.name());
    for client in [&admin, &stranger] {
        let dropped = client.batch_execute(&drop).await;
        let error = dropped.expect_err("somebody is connected");
        assert_eq!(error.code().map(|code| code.code()), Some("55006"));
    }
    execute(&stranger, "select pg_advisory_unlock(7)").await;
    eventually("the statement ends", PATIENCE, async || {
        let ended = "select concat_ws(' ', state, attempt) from trax.job where task = 'sql'";
        match value::<String>(&stranger, ended).await {
            ended if ended == "completed 1" => Ok(()),
            other => Err(other),
        }
    })
    .await;
    assert_eq!(
        schedulers(&admin, database.name()).await,
        Ok(vec![pid]),
        "the same one"
    );
    a_cycle_runs(&stranger, PATIENCE).await;
}

#[tokio::test]
async fn a_drop_waits_for_a_client_that_leaves() {
    let database = live_database().await;
    let watcher = connect(&live_server().existing("postgres")).await;
    scheduler_of(&watcher, database.name(), PATIENCE).await;
    let stranger = connect(&database).await;
    let admin = connect(&live_server().existing("postgres")).await;
    let pid = value::<i32>(&admin, "select pg_backend_pid()").await;
    let sql = format!("drop database {}", database.name());
    let dropped = tokio::spawn(async move { admin.batch_execute(&sql).await });
    let waits = format!(
        "select concat_ws(' ', wait_event_type, query) from pg_stat_activity where pid = {pid}"
    );
    eventually(
        "the drop waits for the client",
        PATIENCE,
        async || match value::<String>(&watcher, &waits).await {
            seen if seen.starts_with("Extension drop database ") => Ok(()),
            seen => Err(seen),
        },
    )
    .await;
    drop(stranger);
    let dropped = dropped.await.expect("it does not panic");
    dropped.expect("the client has left in time");
    assert_eq!(schedulers(&watcher, database.name()).await, Ok(vec![]));
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
        no_scheduler_of(&client, database.name(), PATIENCE).await;
        execute(&client, "create extension trax").await;
        scheduler_of(&client, database.name(), PATIENCE).await;
        assert_eq!(
            value::<i64>(&client, "select count(*) from trax.job").await,
            0
        );
        a_cycle_runs(&client, PATIENCE).await;
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
    scheduler_of(&client, database.name(), PATIENCE).await;
    a_cycle_runs(&client, PATIENCE).await;
}

/// Tables that a cycle locks, in a different order from the cycle's.
const TABLES: [&str; 7] = [
    "dead_letter",
    "lease",
    "manifest_state",
    "work_queue",
    "run_default",
    "instance",
    "manifest",
];

/// As a restore or DROP EXTENSION does; none of them may fail with a deadlock.
#[tokio::test]
async fn tables_are_locked_one_after_the_other_while_the_scheduler_waits_for_one() {
    let options = scheduling()
        .setting("trax.tick_interval", "'50 ms'")
        .setting("deadlock_timeout", "10ms");
    let server = options.start().expect("a server starts");
    let database = server.database("locked").await.expect("a database is made");
    let (locker, watcher) = (connect(&database).await, connect(&database).await);
    for first in TABLES {
        let scheduler = scheduler_of(&watcher, "locked", PATIENCE).await;
        let lock = |table| format!("lock trax.{table} in access exclusive mode");
        execute(&locker, &format!("begin; {}", lock(first))).await;
        eventually("the scheduler waits", PATIENCE, async || {
            let sql = "select count(*) filter (where not granted),
                count(*) filter (where granted and relation in (
                    select oid from pg_class where relnamespace = 'trax'::regnamespace and relkind in ('r', 'p')
                ))
                from pg_locks where pid = $1";
            let row = watcher.query_one(sql, &[&scheduler]).await;
            let row = row.map_err(|error| error.to_string())?;
            match (row.get::<_, i64>(0), row.get::<_, i64>(1)) {
                (1, 0) => Ok(()),
                seen => Err(format!("{seen:?}")),
            }
        })
        .await;
        for table in TABLES {
            execute(&locker, &lock(table)).await;
        }
        execute(&locker, "commit").await;
        a_cycle_runs(&watcher, PATIENCE).await;
    }
    let log = std::fs::read_to_string(server.log_file()).expect("the log can be read");
    assert!(!log.contains("deadlock detected"), "{log}");
}
