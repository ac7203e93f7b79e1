//! Troubles of a whole server, each with a separate server.

use super::{LONG, details, fix};
use harness::eventually;
use harness::session::Session;
use harness::standby::Standby;
use trax_client::testkit::{Options, Server};

fn preloaded() -> Options {
    harness::options()
        .fast()
        .setting("trax.databases", "no_database_has_this_name")
}

async fn session_on(server: &Server) -> Session {
    let database = server.database("app").await.expect("a database is made");
    Session::of(&database).await
}

#[tokio::test]
async fn a_library_that_is_not_preloaded_is_reported() {
    let server = harness::options()
        .fast()
        .not_preloaded()
        .start()
        .expect("a server starts");
    let s = session_on(&server).await;
    let typed = fix(&s, "library_not_preloaded").await;
    assert!(
        typed.contains("alter system set shared_preload_libraries = 'trax'"),
        "{typed}"
    );
    let typed = fix(&s, "scheduler_not_running").await;
    assert!(typed.contains("select trax.start_scheduler()"), "{typed}");
}

#[tokio::test]
async fn too_few_worker_processes_are_reported() {
    let server = harness::options()
        .fast()
        .setting("max_worker_processes", "2")
        .start()
        .expect("a server starts");
    let s = session_on(&server).await;
    // At first the launcher may still be about to start the scheduler.
    eventually("the trouble is told", LONG, async || {
        match details(&s, "too_few_worker_processes").await {
            seen if seen.starts_with("2 of 2 worker processes") => Ok(()),
            seen => Err(seen),
        }
    })
    .await;
    let typed = fix(&s, "too_few_worker_processes").await;
    assert!(
        typed.starts_with("alter system set max_worker_processes = 10"),
        "{typed}"
    );
}

#[tokio::test]
async fn settings_that_are_refused_or_wait_for_a_restart_are_reported() {
    let server = preloaded().start().expect("a server starts");
    let s = session_on(&server).await;
    assert_eq!(details(&s, "setting_refused").await, "");
    server
        .append_settings("trax.retry_backoff = '1000 it''s\\nnot'\nmax_worker_processes = 12\n")
        .expect("its configuration can be written");
    server.reload().expect("it reads its configuration");
    eventually("the settings are looked at", LONG, async || {
        let refused = details(&s, "setting_refused").await;
        let waits = details(&s, "setting_waits_for_restart").await;
        if refused.contains("trax.retry_backoff") && waits.contains("max_worker_processes") {
            Ok(())
        } else {
            Err(format!("{refused} / {waits}"))
        }
    })
    .await;
    let refused = details(&s, "setting_refused").await;
    assert!(
        refused.starts_with('\'')
            && refused.contains(".conf', line ")
            && refused.contains("= '1000 it''s\nnot': '"),
        "what others have written is quoted: {refused}"
    );
    let typed = fix(&s, "setting_refused").await;
    assert!(typed.contains("alter system reset"), "{typed}");
    let typed = fix(&s, "setting_waits_for_restart").await;
    assert_eq!(typed, "Restart PostgreSQL");
}

#[tokio::test]
async fn what_keeps_dead_rows_is_reported() {
    let server = preloaded()
        .setting("max_prepared_transactions", "4")
        .setting("autovacuum", "off")
        .start()
        .expect("a server starts");
    let s = session_on(&server).await;
    let seen = details(&s, "autovacuum_off").await;
    assert!(seen.contains("The setting autovacuum is off"), "{seen}");
    s.get("alter system set autovacuum = on").await;
    s.get("select pg_reload_conf(); alter table trax.lease set (autovacuum_enabled = off)")
        .await;
    eventually("the table is told alone", LONG, async || {
        match details(&s, "autovacuum_off").await {
            seen if seen == "Autovacuum is off for trax.lease." => Ok(()),
            seen => Err(seen),
        }
    })
    .await;
    s.get(&fix(&s, "autovacuum_off").await).await;
    assert_eq!(details(&s, "autovacuum_off").await, "");

    s.get("begin; create table t (); prepare transaction 'two_phase'")
        .await;
    let seen = details(&s, "prepared_transaction").await;
    assert!(seen.contains("\"two_phase\""), "{seen}");
    let typed = fix(&s, "prepared_transaction").await;
    assert!(typed.contains("rollback prepared 'two_phase'"), "{typed}");
    // The prepared transaction also keeps vacuum from removing the following dead rows.
    s.get("select count(*) from generate_series(1, 70) n, lateral trax.enqueue_many('a', array_fill(to_jsonb(n), array[1000]))")
        .await;
    s.get("delete from trax.work_queue; select pg_stat_force_next_flush()")
        .await;
    eventually("the dead rows are told", LONG, async || {
        match details(&s, "dead_tuples").await {
            seen if seen.starts_with("trax.work_queue has 70000 dead rows")
                && seen.contains("prepared transaction \"two_phase\" holds") =>
            {
                Ok(())
            }
            seen => Err(seen),
        }
    })
    .await;
    s.get("rollback prepared 'two_phase'").await;
    assert_eq!(details(&s, "prepared_transaction").await, "");
    let vacuum = fix(&s, "dead_tuples").await;
    assert!(vacuum.ends_with("vacuum trax.work_queue"), "{vacuum}");
    s.get("vacuum trax.work_queue").await;
    assert_eq!(details(&s, "dead_tuples").await, "");
}

#[tokio::test]
async fn a_slot_that_nobody_uses_is_reported() {
    let server = preloaded().start().expect("a server starts");
    let s = session_on(&server).await;
    s.get("select pg_create_physical_replication_slot('left_behind')")
        .await;
    let settings = [
        "primary_slot_name=left_behind",
        "hot_standby_feedback=on",
        "wal_receiver_status_interval=1s",
    ];
    let standby = Standby::of(&server, &settings).await;
    eventually("the standby holds the horizon", LONG, async || {
        match s
            .get("select xmin from pg_replication_slots where xmin is not null")
            .await
        {
            seen if seen.is_empty() => Err("no xmin".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
    let cause = "replication_slot_holds_horizon";
    assert_eq!(
        details(&s, cause).await,
        "",
        "a standby in use is no trouble"
    );
    drop(standby);
    eventually("the slot is told", LONG, async || {
        match details(&s, cause).await {
            seen if seen.contains("\"left_behind\" (not in use)") => Ok(()),
            seen => Err(seen),
        }
    })
    .await;
    let typed = fix(&s, cause).await;
    let drop = "select pg_drop_replication_slot('left_behind')";
    assert!(typed.ends_with(drop), "{typed}");
    s.get(drop).await;
    assert_eq!(details(&s, cause).await, "");
}

#[tokio::test]
async fn a_database_that_freezing_does_not_keep_up_with_is_reported() {
    let server = preloaded()
        .setting("autovacuum_freeze_max_age", "100000")
        .setting("autovacuum_naptime", "1d")
        .start()
        .expect("a server starts");
    let s = session_on(&server).await;
    assert_eq!(details(&s, "wraparound").await, "");
    // A long transaction prevents all freezing.
    let holder = Session::of(&server.existing("app")).await;
    holder
        .get("begin isolation level repeatable read; select txid_current()")
        .await;
    s.get(
        "create procedure burn() language plpgsql as $$
        begin
            for n in 1..210000 loop
                perform pg_current_xact_id();
                commit;
            end loop;
        end $$",
    )
    .await;
    s.get("call burn()").await;
    let seen = details(&s, "wraparound").await;
    assert!(
        seen.contains("autovacuum_freeze_max_age (100000)"),
        "{seen}"
    );
    assert!(
        fix(&s, "wraparound").await.ends_with("vacuum (freeze)"),
        "the line to type"
    );
}

#[tokio::test]
async fn a_task_that_no_worker_takes_is_reported() {
    // A separate server: on one with hundreds of databases, not every task has a place in shared
    // memory.
    let server = preloaded().start().expect("a server starts");
    let s = session_on(&server).await;
    s.get("select trax.enqueue_many('lonely', '{1, 2}')").await;
    let waits = "update trax.work_queue set run_at = now() - interval '1 h'";
    s.get(waits).await;
    let told = "select detail from trax.diagnose() where cause = 'task_not_claimed'";
    let seen = s.get(told).await;
    assert!(seen.contains("\"lonely\""), "{seen}");
    assert!(fix(&s, "task_not_claimed").await.contains("--task lonely"));
    let job = s.claim_one("").await;
    assert_eq!(s.get(told).await, "", "somebody works at it");
    s.get(&format!("select trax.complete({})", job.key())).await;
    assert_eq!(s.get(told).await, "", "somebody has just taken one");
    s.get("select trax.cancel(job_id) from trax.work_queue; select trax.enqueue('it''s; rm -r ~')")
        .await;
    s.get(waits).await;
    let line = fix(&s, "task_not_claimed").await;
    assert!(line.ends_with(r"--task 'it'\''s; rm -r ~'"), "{line}");
}

#[tokio::test]
async fn a_version_that_no_worker_takes_is_reported_with_how_many_jobs_wait() {
    let server = preloaded().start().expect("a server starts");
    let s = session_on(&server).await;
    s.get(
        "select trax.enqueue_many('mail', '{1, 2, 3}', version => 'v1');
        select trax.enqueue('other', version => 'v1');
        select trax.enqueue('mail', version => 'v''2');
        select trax.enqueue('mail');
        update trax.work_queue set run_at = now() - interval '1 h' - job_id * interval '1 s'",
    )
    .await;
    s.get("select trax.report_worker('w', '10 s', info => '{\"tasks\": [\"mail\"], \"versions\": [\"v3\"]}')")
        .await;
    // The task is claimed, but not these versions.
    s.claim_one("versions => '{v3}'").await;
    let told = "select regexp_replace(detail, 'since [^,]*', 'since then'), fix
        from trax.diagnose() where cause = 'version_not_taken' order by fix";
    let row = |count: i32, task: &str, version: &str, quoted: &str| {
        format!(
            "{count} jobs of version \"{version}\" of task \"{task}\" have waited since then, and no known worker \
             takes this version.|Start a worker that handles it: trax worker --exec COMMAND --task {task} --version {quoted}"
        )
    };
    let seen = s.get(told).await;
    let (mail, other) = (row(3, "mail", "v1", "v1"), row(1, "other", "v1", "v1"));
    let quoted = row(1, "mail", "v'2", r"'v'\''2'");
    for wanted in [&mail, &other, &quoted] {
        assert!(seen.contains(wanted), "{wanted}: {seen}");
    }
    assert_eq!(seen.lines().count(), 3, "{seen}");
    let none = "select count(*) from trax.diagnose() where cause = 'task_not_claimed'";
    assert_eq!(s.get(none).await, "0");
    s.get("select trax.report_worker('w', '10 s', info => '{\"tasks\": null, \"versions\": [\"v1\"]}')")
        .await;
    assert_eq!(s.get(told).await, quoted);
    s.get("select trax.report_worker('w', '10 s', info => '{\"tasks\": null}')")
        .await;
    assert_eq!(s.get(told).await, "");
}
