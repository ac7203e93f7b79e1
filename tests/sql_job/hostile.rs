//! Statements that change their session, or try to.

use super::{ended, executor_of, failed, failure, live, output, queue, queue_with};
use harness::PATIENCE;
use harness::scheduler::{another_scheduler_of, scheduler_of, sql_server, violations};
use harness::session::Session;
use serde_json::Value;
use trax_client::testkit::Database;

#[tokio::test]
async fn nothing_of_a_job_leaks_into_the_next_of_its_executor() {
    let (_database, s) = live().await;
    s.get("alter system set trax.max_sql_workers = 2").await;
    let leave = [
        "set work_mem = '77MB'",
        "set application_name = 'left'",
        "set my.own = 'left'",
        "set session characteristics as transaction isolation level serializable",
        "set default_transaction_read_only = on",
        "set role pg_monitor",
        "set session authorization pg_monitor",
        "create temporary table mine (a int)",
        "prepare mine as select 1",
        "declare mine cursor with hold for select 1",
        "declare mine cursor for select 1; fetch mine",
        "select pg_advisory_lock(42)",
        "set search_path = nowhere",
        "create temporary sequence q; select nextval('q')",
        "set statement_timeout = '1 ms'",
        "set lock_timeout = '1 ms'",
        "set session_replication_role = replica",
        "set transform_null_equals = on",
        "create function pg_temp.mine() returns int language sql as 'select 1'",
        "select lo_open(lo_create(0), 131072)",
    ];
    for command in leave {
        let done = output(&s, command).await;
        assert_eq!(done["transaction"], true, "{command}: {done}");
        let seen = output(
            &s,
            "select current_setting('work_mem'), current_setting('application_name'), current_setting('my.own', true),
                current_setting('transaction_isolation'), current_user = session_user,
                to_regclass('mine'), to_regproc('pg_temp.mine'), (select count(*) from pg_prepared_statements where not from_sql or name = 'mine'),
                (select count(*) from pg_cursors where name = 'mine'), (select count(*) from pg_listening_channels()),
                (select count(*) from pg_locks where locktype = 'advisory' and objid = 42 and pid = pg_backend_pid()),
                current_setting('search_path'), current_setting('statement_timeout'),
                current_setting('transaction_read_only'), current_setting('session_replication_role')",
        )
        .await;
        let row = seen["result"][0].to_string();
        assert!(
            row.starts_with("[\"4MB\",\"trax executor\","),
            "{command}: {row}"
        );
        let rest = row
            .split_once("trax executor\",")
            .expect("the rest")
            .1
            .replace("\"\"", "null");
        assert_eq!(
            rest,
            "null,\"read committed\",true,null,null,0,0,0,0,\"\\\"$user\\\", public\",\"0\",\"off\",\"origin\"]",
            "{command}"
        );
    }
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

/// A database with one executor, and a session in it.
async fn with_one_executor() -> (Database, Session) {
    let (database, s) = live().await;
    let name = database.name();
    let old = scheduler_of(s.client(), name, PATIENCE).await;
    s.get(&format!(
        "alter database {name} set trax.max_sql_workers = 1"
    ))
    .await;
    another_scheduler_of(s.client(), name, old, PATIENCE).await;
    (database, s)
}

async fn executor(s: &Session) -> Value {
    output(s, "select pg_backend_pid()").await["result"][0][0].take()
}

#[tokio::test]
async fn numbers_of_a_session_are_not_those_of_the_job_before() {
    let (_database, s) = with_one_executor().await;
    s.get("create sequence q").await;
    let first = executor(&s).await;
    output(&s, "select nextval('q'), setseed(0.5)").await;
    let foretold = output(&s, "select setseed(0.5), random()").await["result"][0][1].take();
    output(&s, "select setseed(0.5)").await;
    let drawn = output(&s, "select random()").await["result"][0][0].take();
    assert_ne!(drawn, foretold, "a seed is its job's own");
    for command in ["select currval('q')", "select lastval()"] {
        let error = failed(&s, command).await;
        assert_eq!(error["sqlstate"], "55000", "{command}: {error}");
    }
    assert_eq!(executor(&s).await, first, "all in one executor");
}

#[tokio::test]
async fn an_executor_with_a_library_that_may_keep_something_is_replaced() {
    let (_database, s) = with_one_executor().await;
    let first = executor(&s).await;
    output(&s, "do $$ begin perform 1; end $$").await;
    assert_eq!(executor(&s).await, first, "PL/pgSQL keeps nothing");
    // A library that every server has; a failing statement has loaded it too.
    let mut before = first;
    for command in ["load 'dict_snowball'", "load 'dict_snowball'; select 1 / 0"] {
        let job = queue(&s, command).await;
        ended(&s, job).await;
        let after = executor(&s).await;
        assert_ne!(after, before, "{command}");
        assert_eq!(executor(&s).await, after);
        before = after;
    }
    let server = sql_server();
    let there = "select count(*) from pg_available_extensions where name = 'dblink'";
    if s.number(there).await == 1 {
        s.get("create extension dblink").await;
        let address = format!(
            "host={} port={} user=postgres dbname=postgres",
            server.socket_dir().display(),
            server.port()
        );
        output(&s, &format!("select dblink_connect('mine', '{address}')")).await;
        let left = output(&s, "select dblink_get_connections()").await;
        assert!(left["result"][0][0].is_null(), "{left}");
    }
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn locks_end_with_a_job_and_it_may_notify_but_not_listen() {
    let (_database, s) = live().await;
    let error = failed(&s, "listen mine").await;
    assert_eq!(error["sqlstate"], "0A000", "{error}");
    s.get("create table t (a int)").await;
    output(
        &s,
        "lock table t; notify heard, 'by all'; insert into t values (1)",
    )
    .await;
    s.get("alter table t add b int").await;
    assert_eq!(s.get("select count(*) from t").await, "1");
}

#[tokio::test]
async fn every_isolation_level_works_and_a_conflict_is_run_again_at_once() {
    let (_database, s) = live().await;
    s.get("create table t (a int); insert into t values (0)")
        .await;
    let command = "set transaction isolation level serializable;
        update t set a = a + 1 where pg_sleep(0.05) is not null";
    let mut jobs = Vec::new();
    for _ in 0..4 {
        jobs.push(queue(&s, command).await);
    }
    for job in jobs {
        assert_eq!(
            ended(&s, job).await,
            "completed",
            "{}",
            failure(&s, job).await
        );
    }
    assert_eq!(s.get("select a from t").await, "4");
    let done = output(&s, "set transaction isolation level repeatable read; select current_setting('transaction_isolation')").await;
    assert_eq!(done["result"][0][0], "repeatable read");
    let done = output(&s, "set transaction read only; select 1").await;
    assert_eq!(done["command"], "SELECT 1");
}

#[tokio::test]
async fn what_is_recorded_of_a_statement_conflicts_with_nothing_at_any_isolation_level() {
    let (_database, s) = live().await;
    s.get("create sequence q; create table t (a int) with (autovacuum_enabled = off)")
        .await;
    for level in ["repeatable read", "serializable"] {
        let command = format!(
            "set transaction isolation level {level}; select nextval('q');
             insert into t values (1); select pg_sleep(0.3)"
        );
        s.get("select setval('q', 1, false)").await;
        s.get(&format!(
            "select trax.schedule('{level}', sql => $sql${command}$sql$, max_concurrency => 2, overlap => 'allow', max_retries => 0);
             select trax.configure_group('g', max_active_jobs => 2)"
        ))
        .await;
        let mut jobs = Vec::new();
        for _ in 0..6 {
            jobs.push(s.number(&format!("select trax.trigger('{level}')")).await);
            jobs.push(queue_with(&s, &command, "group_name => 'g', max_retries => 0").await);
        }
        for job in &jobs {
            assert_eq!(
                ended(&s, *job).await,
                "completed",
                "{level}: {}",
                failure(&s, *job).await
            );
        }
        assert_eq!(s.get("select last_value from q").await, "12", "{level}");
        s.get(&format!("select trax.unschedule('{level}')")).await;
    }
    let held = "select count(*) from pg_locks where mode = 'SIReadLock'
        and relation::regclass::text like 'trax.%'";
    assert_eq!(s.get(held).await, "0");
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn serializable_statements_that_conflict_with_each_other_are_found_out() {
    let (_database, s) = live().await;
    s.get("create table doctor (name text, on_call boolean); insert into doctor values ('a', true), ('b', true)")
        .await;
    // Each statement sees the other person on call: a write skew that only SERIALIZABLE prevents.
    let command = |name: &str| {
        format!(
            "set transaction isolation level serializable;
             update doctor set on_call = false where name = '{name}'
                and (select count(*) from doctor where on_call) > 1 and pg_sleep(0.2) is not null"
        )
    };
    let (a, b) = (
        queue(&s, &command("a")).await,
        queue(&s, &command("b")).await,
    );
    for job in [a, b] {
        assert_eq!(ended(&s, job).await, "completed");
    }
    assert_eq!(
        s.get("select count(*) from doctor where on_call").await,
        "1"
    );
}

#[tokio::test]
async fn an_error_is_recorded_whole() {
    let (_database, s) = live().await;
    s.get(
        "create function f() returns void language plpgsql as $$
         begin
            begin perform 1 / 0; exception when division_by_zero then null; end;
            raise exception 'no %', 'way' using errcode = 'XY123', detail = 'a detail', hint = 'a hint';
         end $$",
    )
    .await;
    let error = failed(&s, "do $$ begin raise warning 'before'; end $$; select f()").await;
    assert_eq!(error["error"], "no way", "{error}");
    assert_eq!(error["sqlstate"], "XY123", "{error}");
    assert_eq!(error["detail"], "a detail", "{error}");
    assert_eq!(error["hint"], "a hint", "{error}");
    assert_eq!(
        error["context"], "PL/pgSQL function f() line 4 at RAISE",
        "{error}"
    );
    assert_eq!(error["notices"], serde_json::json!(["before"]), "{error}");
    let error = failed(&s, "select nosuch from pg_class").await;
    assert_eq!(error["position"], 8, "{error}");
    output(&s, "select 1").await;
}

#[tokio::test]
async fn a_job_that_ends_its_own_lease_or_drops_the_extension_changes_nothing() {
    let (_database, s) = live().await;
    s.get("create table t (a int)").await;
    let error = failed(&s, "insert into t values (1); drop extension trax cascade").await;
    assert!(error["error"].as_str().is_some(), "{error}");
    assert_eq!(s.get("select count(*) from t").await, "0");
    let job = queue_with(
        &s,
        "insert into t values (2); delete from trax.lease where run_as is not null",
        "max_retries => 1",
    )
    .await;
    assert_eq!(ended(&s, job).await, "failed");
    assert_eq!(s.get("select count(*) from t").await, "0");
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_cancel_a_timeout_and_the_roles_own_timeout_end_a_statement() {
    let (_database, s) = live().await;
    let job = queue(&s, "select pg_sleep(1e9)").await;
    harness::eventually("the statement runs", harness::PATIENCE, async || {
        let sql = "select count(*) from pg_stat_activity where query = 'select pg_sleep(1e9)' and state = 'active'
            and backend_type = 'trax executor' and datname = current_database()";
        if s.get(sql).await == "1" { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    assert_eq!(
        s.get(&format!("select trax.cancel({job})")).await,
        "requested"
    );
    assert_eq!(ended(&s, job).await, "cancelled");
    let job = queue_with(
        &s,
        "select pg_sleep(1e9)",
        "max_retries => 0, timeout => '200 ms'",
    )
    .await;
    assert_eq!(ended(&s, job).await, "failed");
    assert_eq!(failure(&s, job).await["kind"], "timeout");
    let error = failed(
        &s,
        "set local statement_timeout = '50 ms'; select pg_sleep(1e9)",
    )
    .await;
    assert_eq!(
        error["error"], "canceling statement due to statement timeout",
        "{error}"
    );
    output(&s, "select 1").await;
}

#[tokio::test]
async fn an_executor_that_ends_while_it_records_a_serializable_statement_leaves_nothing_of_it() {
    let (database, s) = live().await;
    s.get("create table t (a int); create table gate (a int)")
        .await;
    let gate = Session::of(&database).await;
    let locker = Session::of(&database).await;
    for end in ["pg_terminate_backend", "pg_cancel_backend"] {
        gate.get("begin; lock table gate").await;
        let job = queue_with(
            &s,
            "set transaction isolation level serializable; select count(*) from t;
             insert into t values (1); lock table gate",
            "max_retries => 0",
        )
        .await;
        let pid = executor_of(&s, "insert into t").await;
        s.sees_waiting(pid).await;
        locker
            .get(&format!(
                "begin; select from trax.lease where job_id = {job} for update"
            ))
            .await;
        gate.get("rollback").await;
        harness::eventually("it waits for its lease", PATIENCE, async || {
            let event = format!("select wait_event from pg_stat_activity where pid = {pid}");
            match s.get(&event).await.as_str() {
                "transactionid" | "tuple" => Ok(()),
                seen => Err(seen.to_owned()),
            }
        })
        .await;
        let held = "select count(*) > 0 from pg_locks where mode = 'SIReadLock' and relation = 't'::regclass";
        assert_eq!(s.get(held).await, "t", "{end}");
        s.get(&format!("select {end}({pid})")).await;
        harness::eventually("it is undone", PATIENCE, async || {
            let left = "select count(*) from pg_locks where mode = 'SIReadLock' and relation = 't'::regclass";
            match s.get(left).await.as_str() {
                "0" => Ok(()),
                left => Err(left.to_owned()),
            }
        })
        .await;
        locker.get("rollback").await;
        assert_eq!(ended(&s, job).await, "failed", "{end}");
    }
    // Serializable transactions still work on the server.
    s.get("begin isolation level serializable; insert into t values (2); commit")
        .await;
    output(
        &s,
        "set transaction isolation level serializable; insert into t values (3)",
    )
    .await;
    assert_eq!(s.get("select count(*) from t").await, "2");
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}
