//! Schedulers in databases that fail, block, have unusual settings, or have another version of the
//! extension.

use harness::scheduler::{
    a_cycle_runs, another_scheduler_of, connect, execute, live_database, live_server, scheduler_of,
    scheduler_wakes, schedulers, scheduling, status, status_becomes, value,
};
use harness::session::Session;
use harness::{PATIENCE, eventually};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

#[tokio::test]
async fn settings_of_a_database_for_its_clients_do_not_steer_its_scheduler() {
    let database = live_database().await;
    let client = connect(&database).await;
    let old = scheduler_of(&client, database.name(), PATIENCE).await;
    execute(
        &client,
        "create schema trap;
        create function trap.now() returns timestamptz language sql as 'select 1 / 0; select null::timestamptz';
        create function trap.count(bigint) returns bigint language sql as 'select 1 / 0; select null::bigint';
        create table trap.work_queue (); create table trap.lease (); create table trap.manifest_state ();
        create function trap.no(bigint, bigint) returns boolean language sql as 'select 1 / 0; select null::boolean';
        create operator trap.= (function = trap.no, leftarg = bigint, rightarg = bigint);
        create operator trap.< (function = trap.no, leftarg = bigint, rightarg = bigint);
        create role clerk; create role visitor",
    )
    .await;
    for setting in [
        "search_path = trap, trax, pg_catalog",
        "statement_timeout = '1 ms'",
        "lock_timeout = '1 ms'",
        "idle_in_transaction_session_timeout = '1 ms'",
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on",
        "default_transaction_deferrable = on",
        "role = clerk",
        "session_authorization = visitor",
        "row_security = off",
        "session_replication_role = replica",
        "jit_above_cost = 0",
        "standard_conforming_strings = off",
        "backslash_quote = off",
        "transform_null_equals = on",
        "array_nulls = off",
        "xmloption = document",
        "DateStyle = 'SQL, DMY'",
        "IntervalStyle = sql_standard",
        "bytea_output = escape",
        "extra_float_digits = -15",
        "quote_all_identifiers = on",
        "TimeZone = 'Asia/Kolkata'",
        "default_tablespace = nowhere",
        "default_table_access_method = heaps",
    ] {
        execute(
            &client,
            &format!("alter database {} set {setting}", database.name()),
        )
        .await;
    }
    let new = another_scheduler_of(&client, database.name(), old, PATIENCE).await;
    execute(&client, "select trax.schedule('m', 't', every => '1 hour')").await;
    for _ in 0..2 {
        a_cycle_runs(&client, PATIENCE).await;
    }
    assert_eq!(
        value::<i64>(
            &client,
            "select count(*) from trax.work_queue where manifest = 'm'"
        )
        .await,
        1
    );
    let last: String = value(
        &client,
        "select max(relname)::text from pg_class where relname ~ '^run_[0-9]{8}$'",
    )
    .await;
    execute(&client, &format!("drop table trax.{last}")).await;
    eventually("the partition is made again", PATIENCE, async || {
        let sql = format!("select to_regclass('trax.{last}')::text");
        let made: Option<String> = value(&client, &sql).await;
        made.map(|_| ()).ok_or("it is not there".to_owned())
    })
    .await;
    // The scheduler may have seen only the first setting and reconnected for the others, but it did
    // not fail.
    assert!(
        schedulers(&client, database.name())
            .await
            .is_ok_and(|pids| pids.len() == 1),
        "after {new}"
    );
}

#[tokio::test]
async fn a_failing_cycle_is_tried_again_after_a_pause_and_works_once_the_cause_is_gone() {
    let database = live_database().await;
    let client = connect(&database).await;
    execute(
        &client,
        "begin; select trax.schedule('m', 't', every => '1 hour'); alter table trax.lease rename to away; commit",
    )
    .await;
    let mut seen = BTreeSet::new();
    let end = Instant::now() + Duration::from_secs(8);
    while Instant::now() < end {
        seen.extend(
            schedulers(&client, database.name())
                .await
                .expect("the server answers"),
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(
        seen.len() <= 3,
        "it does not spin: {} processes in 8 s",
        seen.len()
    );
    execute(&client, "alter table trax.away rename to lease").await;
    a_cycle_runs(&client, PATIENCE).await;
    eventually("the manifest's job", PATIENCE, async || match value::<i64>(
        &client,
        "select count(*) from trax.work_queue where manifest = 'm'",
    )
    .await
    {
        1 => Ok(()),
        seen => Err(format!("{seen} jobs")),
    })
    .await;
}

#[tokio::test]
async fn a_blocked_scheduler_does_not_hold_up_another_database() {
    let (blocked, free) = (live_database().await, live_database().await);
    let locker = connect(&blocked).await;
    execute(
        &locker,
        "begin; lock table trax.manifest_state in access exclusive mode",
    )
    .await;
    let client = connect(&free).await;
    eventually(
        "the scheduler that waits for the lock",
        PATIENCE,
        async || {
            let sql = format!(
                "select coalesce(max(wait_event_type), 'none') from pg_stat_activity
            where backend_type = 'trax scheduler' and datname = '{}'",
                blocked.name()
            );
            let seen: String = value(&client, &sql).await;
            if seen == "Lock" { Ok(()) } else { Err(seen) }
        },
    )
    .await;
    a_cycle_runs(&client, PATIENCE).await;
    execute(&locker, "rollback").await;
    a_cycle_runs(&locker, PATIENCE).await;
}

#[tokio::test]
async fn a_scheduler_waits_while_the_extension_has_another_version() {
    let database = live_database().await;
    let client = connect(&database).await;
    let pid = scheduler_of(&client, database.name(), PATIENCE).await;
    execute(
        &client,
        // Due after any cycle that is already running and has read the old version.
        "select trax.schedule('late', 't', every => '1 hour', starts_at => now() + interval '2 s');
        update pg_extension set extversion = '0.0.9' where extname = 'trax'",
    )
    .await;
    // The setting starts a new process, which reads the version when it begins.
    execute(
        &client,
        &format!(
            "alter database {} set trax.tick_interval = '50 ms'",
            database.name()
        ),
    )
    .await;
    another_scheduler_of(&client, database.name(), pid, PATIENCE).await;
    let is_due = "select next_run_at < now() from trax.manifest_state";
    eventually("the manifest is due", PATIENCE, async || {
        value::<bool>(&client, is_due)
            .await
            .then_some(())
            .ok_or("not yet".to_owned())
    })
    .await;
    scheduler_wakes(&client, database.name(), 5).await;
    let queued = "select count(*) from trax.work_queue where manifest = 'late'";
    assert_eq!(value::<i64>(&client, queued).await, 0);
    let log = std::fs::read_to_string(live_server().log_file()).expect("the log can be read");
    let said = log
        .lines()
        .filter(|line| line.contains("the extension is version 0.0.9"))
        .count();
    assert!(
        (1..=2).contains(&said),
        "it says so once for each process: {said}"
    );

    let version = env!("CARGO_PKG_VERSION");
    let as_it_was =
        format!("update pg_extension set extversion = '{version}' where extname = 'trax'");
    execute(&client, &as_it_was).await;
    a_cycle_runs(&client, PATIENCE).await;
    assert_eq!(value::<i64>(&client, queued).await, 1);
}

#[tokio::test]
async fn a_scheduler_that_would_run_code_of_others_waits_and_says_so_once() {
    let database = live_database().await;
    let client = connect(&database).await;
    let name = database.name();
    let old = scheduler_of(&client, name, PATIENCE).await;
    execute(&client, "select trax.enqueue('waits')").await;
    execute(
        &client,
        &format!(
            "create role {name}_other; create schema shop authorization {name}_other; set role {name}_other;
            create function shop.rise() returns trigger language plpgsql as
                'begin execute ''alter role {name}_other superuser''; return new; end';
            reset role;
            create trigger rise before insert or update or delete on trax.manifest_state
                for each statement execute function shop.rise();
            alter database {name} set trax.tick_interval = '50 ms'"
        ),
    )
    .await;
    let waits = "refuses to run code of others";
    // The setting starts a new process.
    let pid = another_scheduler_of(&client, name, old, PATIENCE).await;
    status_becomes(&client, "scheduler", waits, PATIENCE).await;
    scheduler_wakes(&client, name, 5).await;
    assert!(
        schedulers(&client, name)
            .await
            .is_ok_and(|pids| pids == [pid]),
        "it stays"
    );
    let (_, healthy, hint) = status(&client, "scheduler").await;
    assert!(!healthy && hint.is_some_and(|hint| hint.contains("trax.diagnose()")));
    let causes = "select string_agg(cause, ' ' order by cause) from trax.diagnose()";
    assert_eq!(
        value::<String>(&client, causes).await,
        "code_of_others scheduler_refuses"
    );
    let why =
        "select string_agg(e.reason, ' ') from trax.work_queue q, trax.explain_job(q.job_id) e";
    assert_eq!(
        value::<String>(&client, why).await,
        "code_of_others no_worker"
    );
    let rises = format!("select rolsuper from pg_roles where rolname = '{name}_other'");
    assert!(!value::<bool>(&client, &rises).await);
    let log = std::fs::read_to_string(live_server().log_file()).expect("the log can be read");
    let said: Vec<&str> = log
        .lines()
        .filter(|line| {
            line.contains("runs code of role") && line.contains(&format!("{name}_other"))
        })
        .collect();
    assert!(
        (1..=2).contains(&said.len()),
        "once for each process: {said:#?}"
    );
    execute(&client, "drop trigger rise on trax.manifest_state").await;
    status_becomes(&client, "scheduler", "running", PATIENCE).await;
    a_cycle_runs(&client, PATIENCE).await;
}

#[tokio::test]
async fn switched_off_for_one_database_its_scheduler_stays_and_does_nothing() {
    let database = live_database().await;
    let client = connect(&database).await;
    let pid = scheduler_of(&client, database.name(), PATIENCE).await;
    let name = database.name();
    execute(
        &client,
        &format!("alter database {name} set trax.enabled = off; alter database {name} set trax.tick_interval = '50 ms'"),
    )
    .await;
    let pid = another_scheduler_of(&client, name, pid, PATIENCE).await;
    execute(&client, "select trax.schedule('m', 't', every => '1 hour')").await;
    scheduler_wakes(&client, name, 5).await;
    assert_eq!(
        value::<i64>(&client, "select count(*) from trax.work_queue").await,
        0
    );
    let status =
        "select concat_ws('|', value, healthy, hint) from trax.status() where item = 'scheduler'";
    assert_eq!(
        value::<String>(&client, status).await,
        format!(
            "disabled in this database|f|trax.enabled is off for it. Type: alter database {name} reset trax.enabled"
        )
    );
    let cause = "select count(*) from trax.diagnose() where cause = 'scheduler_not_running'";
    assert_eq!(value::<i64>(&client, cause).await, 1);
    execute(
        &client,
        &format!("alter database {name} reset trax.enabled"),
    )
    .await;
    another_scheduler_of(&client, name, pid, PATIENCE).await;
    a_cycle_runs(&client, PATIENCE).await;
}

#[tokio::test]
async fn a_setting_that_is_stored_while_the_scheduler_connects_counts() {
    let database = live_database().await;
    let client = connect(&database).await;
    let name = database.name();
    for change in ["set trax.enabled = on", "reset trax.enabled"] {
        let off = format!("alter database {name} set trax.enabled = off");
        execute(&client, &off).await;
        let old = scheduler_of(&client, name, PATIENCE).await;
        // The next scheduler connects, and waits where it looks up the extension.
        let locker = Session::of(&database).await;
        let lock = "begin; lock table pg_catalog.pg_extension in access exclusive mode";
        locker.get(lock).await;
        locker
            .get(&format!("select pg_terminate_backend({old})"))
            .await;
        let other = connect(&live_server().existing("postgres")).await;
        let pid = another_scheduler_of(&other, name, old, PATIENCE).await;
        locker.sees_waiting(pid).await;
        execute(&other, &format!("alter database {name} {change}")).await;
        locker.get("rollback").await;
        a_cycle_runs(&client, PATIENCE).await;
    }
}

#[tokio::test]
async fn the_list_of_databases_is_read_again_on_reload() {
    let server = scheduling()
        .setting("trax.databases", "one")
        .start()
        .expect("a server starts");
    for name in ["one", "two"] {
        server.database(name).await.expect("a database is made");
    }
    let client = connect(&server.existing("two")).await;
    scheduler_of(&client, "one", PATIENCE).await;
    assert_eq!(schedulers(&client, "two").await, Ok(vec![]));
    let (_, healthy, hint) = status(&client, "scheduler").await;
    assert!(!healthy && hint.is_some_and(|hint| hint.contains("trax.databases (one)")));
    let refused = client
        .query("select trax.start_scheduler()", &[])
        .await
        .expect_err("it is left out");
    assert_eq!(refused.code().map(|code| code.code()), Some("55000"));

    execute(&client, "alter system set trax.databases = 'two, three'").await;
    server.reload().expect("the server runs");
    scheduler_of(&client, "two", PATIENCE).await;
    harness::scheduler::no_scheduler_of(&client, "one", PATIENCE).await;
    a_cycle_runs(&client, PATIENCE).await;
    assert_eq!(
        value::<String>(&client, "select trax.start_scheduler()").await,
        "already running"
    );
}

#[tokio::test]
async fn without_a_free_worker_slot_status_says_which_setting_to_raise() {
    // The server's logical replication launcher and the trax launcher take both slots.
    let server = harness::options()
        .fast()
        .setting("max_worker_processes", "2")
        .start()
        .expect("a server starts");
    let database = server
        .database("starved")
        .await
        .expect("a database is made");
    let client = connect(&database).await;
    // At first the launcher may still be about to start the scheduler.
    status_becomes(&client, "scheduler", "not running", PATIENCE).await;
    let (_, healthy, hint) = status(&client, "scheduler").await;
    assert!(!healthy);
    assert!(hint.is_some_and(|hint| hint.contains("max_worker_processes (2)")));
    let refused = client
        .query("select trax.start_scheduler()", &[])
        .await
        .expect_err("there is no slot");
    assert_eq!(refused.code().map(|code| code.code()), Some("53400"));
    // Manual cycles still work.
    execute(
        &client,
        "select trax.schedule('m', 't', every => '1 hour'); select * from trax.tick()",
    )
    .await;
    assert_eq!(
        value::<i64>(&client, "select count(*) from trax.claim_next()").await,
        1
    );
}

#[tokio::test]
async fn a_cycle_that_waited_for_an_update_does_nothing_with_the_new_tables() {
    let database = live_database().await;
    let s = Session::of(&database).await;
    let updating = Session::of(&database).await;
    updating
        .get("begin; lock table trax.lease in access exclusive mode")
        .await;
    let scheduler = scheduler_of(s.client(), database.name(), PATIENCE).await;
    s.sees_waiting(scheduler).await;
    // The steps of an update as another session sees them, while a job is due.
    let version = updating
        .get("select extversion from pg_extension where extname = 'trax'")
        .await;
    updating
        .get(
            "select trax.schedule('due', 'due', every => '1 h');
             create function made_by_the_update() returns int language sql as 'select 1';
             update pg_extension set extversion = '999' where extname = 'trax'; commit",
        )
        .await;
    scheduler_wakes(s.client(), database.name(), 3).await;
    assert_eq!(s.get("select count(*) from trax.work_queue").await, "0");
    s.get(&format!(
        "update pg_extension set extversion = '{version}' where extname = 'trax'"
    ))
    .await;
    eventually("what is due is queued", PATIENCE, async || {
        match s.number("select count(*) from trax.work_queue").await {
            1 => Ok(()),
            _ => Err("nothing".to_owned()),
        }
    })
    .await;
}
