//! SQL jobs: the server runs a statement by itself, once, as the role that queued it.

mod command;
mod crash;
mod disobedient;
mod drop;
mod ending;
mod fault;
mod hostile;
mod log;
mod manifest;
mod order;
mod outside;
mod refusal;
mod role;
mod server;
mod slot;
mod special;

use harness::scheduler::{sql_database, violations};
use harness::session::Session;
use harness::{PATIENCE, eventually};
use serde_json::Value;
use trax_client::testkit::Database;

/// A database with a scheduler, and a session in it.
async fn live() -> (Database, Session) {
    let database = sql_database().await;
    let session = Session::of(&database).await;
    (database, session)
}

/// A role that may enqueue and create tables, and a session of that role.
async fn role(database: &Database, s: &Session, name: &str) -> (String, Session) {
    let role = format!("{}_{name}", database.name());
    s.get(&format!(
        "create role {role} login; select trax.grant_access('{role}', 'producer');
         grant all on schema public to {role}"
    ))
    .await;
    let session = Session::as_role(database, &role).await;
    (role, session)
}

/// Queues a statement without retries; returns its job.
async fn queue(s: &Session, command: &str) -> i64 {
    queue_with(s, command, "max_retries => 0").await
}

async fn queue_with(s: &Session, command: &str, options: &str) -> i64 {
    let sql = format!("select trax.enqueue_sql($sql${command}$sql$, {options})");
    s.get(&sql).await.parse().expect("the id of a job")
}

/// Waits for the end of a job; returns its state.
async fn ended(s: &Session, job: i64) -> String {
    eventually("the end of a SQL job", PATIENCE, async || {
        let sql = format!("select state from trax.job where job_id = {job}");
        // A statement that drops the extension may deadlock with this query.
        let state = match s.attempt(&sql).await {
            Ok(state) => state,
            Err(refused) if refused.code == "40P01" => return Err(refused.to_string()),
            Err(refused) => panic!("{sql}: {refused}"),
        };
        match state.as_str() {
            "completed" | "failed" | "cancelled" => Ok(state),
            _ => Err(state),
        }
    })
    .await
}

/// Returns the output of a statement that must succeed.
async fn output(s: &Session, command: &str) -> Value {
    let job = queue(s, command).await;
    assert_eq!(
        ended(s, job).await,
        "completed",
        "{command}: {}",
        failure(s, job).await
    );
    let sql = format!("select output from trax.run where job_id = {job}");
    serde_json::from_str(&s.get(&sql).await).expect("JSON")
}

/// Returns the error and details of a job's last attempt.
async fn failure(s: &Session, job: i64) -> Value {
    let sql = format!(
        "select coalesce(detail, '{{}}') || jsonb_build_object('error', error, 'kind', failure_kind)
         from trax.run where job_id = {job} order by attempt desc limit 1"
    );
    serde_json::from_str(&s.get(&sql).await).expect("JSON")
}

/// Returns the process of the executor whose statement contains this text.
async fn executor_of(s: &Session, text: &str) -> i32 {
    executor_with(s, &format!("query like '%{text}%'")).await
}

/// Returns the executor that sleeps in a statement with this text, after the statement's other
/// work.
async fn sleeper_of(s: &Session, text: &str) -> i32 {
    executor_with(
        s,
        &format!("query like '%{text}%' and wait_event = 'PgSleep'"),
    )
    .await
}

async fn executor_with(s: &Session, what: &str) -> i32 {
    let sql = format!(
        "select coalesce(min(pid), 0) from pg_stat_activity where backend_type = 'trax executor'
         and state = 'active' and datname = current_database() and {what}"
    );
    eventually(
        &format!("an executor with {what}"),
        PATIENCE,
        async || match s.number(&sql).await {
            0 => Err("none".to_owned()),
            pid => Ok(pid as i32),
        },
    )
    .await
}

/// Returns the failure of a statement that must fail.
async fn failed(s: &Session, command: &str) -> Value {
    let job = queue(s, command).await;
    assert_eq!(ended(s, job).await, "failed", "{command}");
    failure(s, job).await
}

#[tokio::test]
async fn a_statement_runs_with_nobody_working_and_says_what_it_did() {
    let (_database, s) = live().await;
    let done = output(
        &s,
        "create table t as select g from generate_series(1, 7) g",
    )
    .await;
    assert_eq!(done["command"], "SELECT 7", "{done}");
    assert_eq!(done["transaction"], true, "{done}");
    assert_eq!(s.get("select count(*) from t").await, "7");
    let done = output(
        &s,
        "do $$ begin raise notice 'look'; raise debug 'no'; end $$; insert into t values (8), (9)",
    )
    .await;
    assert_eq!(done["command"], "INSERT 0 2", "{done}");
    assert_eq!(done["rows"], 2, "{done}");
    assert_eq!(done["notices"], serde_json::json!(["look"]), "{done}");
    let done = output(
        &s,
        r#"select 1 as a, true as b, null as c, 'é"' as d, '\xdead'::bytea as e, 'NaN'::float8 as f,
           '{"x": [1]}'::jsonb as g, 1e30::numeric as h, array[1, 2] as i"#,
    )
    .await;
    assert_eq!(
        done["columns"],
        serde_json::json!(["a", "b", "c", "d", "e", "f", "g", "h", "i"])
    );
    let row = &done["result"][0];
    assert_eq!(row[0], 1, "{done}");
    assert_eq!(row[1], true, "{done}");
    assert!(row[2].is_null(), "{done}");
    assert_eq!(row[4], "\\xdead", "{done}");
    assert_eq!(row[5], "NaN", "{done}");
    assert_eq!(row[6]["x"][0], 1, "{done}");
    assert_eq!(row[8], "{1,2}", "{done}");
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_large_result_is_bounded_and_its_rows_are_counted() {
    let (_database, s) = live().await;
    let done = output(
        &s,
        "select repeat('x', 20000) from generate_series(1, 5000)",
    )
    .await;
    assert_eq!(done["command"], "SELECT 5000", "{}", done["command"]);
    assert_eq!(done["truncated"], true);
    let size = done.to_string().len();
    assert!(size < 100_000, "{size}");
    let done = output(&s, "select g from generate_series(1, 100000) g").await;
    assert_eq!(done["result"].as_array().map(Vec::len), Some(100));
}

#[tokio::test]
async fn statements_of_one_text_are_one_transaction_with_their_completion() {
    let (_database, s) = live().await;
    s.get("create table t (a int primary key, b int references t deferrable initially deferred)")
        .await;
    let error = failed(
        &s,
        "insert into t values (1); insert into t values (2); select 1 / 0",
    )
    .await;
    assert_eq!(error["sqlstate"], "22012", "{error}");
    assert_eq!(s.get("select count(*) from t").await, "0");
    // A constraint checked at the commit fails the job too.
    let error = failed(&s, "insert into t values (1, 7)").await;
    assert_eq!(error["sqlstate"], "23503", "{error}");
    assert!(
        error["detail"]
            .as_str()
            .is_some_and(|text| text.contains("(b)=(7)")),
        "{error}"
    );
    assert_eq!(s.get("select count(*) from t").await, "0");
    // A deferred trigger runs before the completion; if it raises an error, the job's changes are
    // rolled back.
    s.get(
        "create table seen (state text);
         create function at_the_end() returns trigger language plpgsql as $$
         begin
            insert into seen select r.state from trax.run r where r.input ->> 'command' like '%(5)%';
            if new.a = 6 then raise exception 'not six'; end if;
            return null;
         end $$;
         create constraint trigger at_the_end after insert on t deferrable initially deferred
            for each row execute function at_the_end()",
    )
    .await;
    output(&s, "insert into t values (5)").await;
    assert_eq!(s.get("select count(*) from seen").await, "0");
    let error = failed(&s, "insert into t values (6)").await;
    assert_eq!(error["error"], "not six", "{error}");
    assert_eq!(s.get("select count(*) from t where a = 6").await, "0");
    s.get("drop trigger at_the_end on t").await;
    let same = "insert into t values (3);
        insert into t select 4 from trax.lease l where false";
    output(&s, same).await;
    let xmins = "select (select xmin from t where a = 3) = (select r.xmin from trax.run r where r.input ->> 'command' like '%(3)%')";
    assert_eq!(s.get(xmins).await, "t");
}

#[tokio::test]
async fn what_cannot_run_in_a_transaction_runs_outside_and_says_so() {
    let (_database, s) = live().await;
    s.get(
        "create table t (a int);
         create procedure p() language plpgsql as $$
            begin insert into t values (1); commit; insert into t values (2); rollback; end $$;
         create procedure q() language sql as 'insert into t values (3)'",
    )
    .await;
    for (command, in_transaction) in [
        ("vacuum analyze t", false),
        ("create index concurrently i on t (a)", false),
        ("reindex index concurrently i", false),
        ("drop index concurrently i", false),
        ("call p()", false),
        (
            "do $$ begin insert into t values (4); commit; end $$",
            false,
        ),
        ("call q()", true),
        ("do $$ begin insert into t values (5); end $$", true),
        ("discard all", false),
        ("analyze t", true),
    ] {
        let done = output(&s, command).await;
        assert_eq!(done["transaction"], in_transaction, "{command}: {done}");
    }
    assert_eq!(
        s.get("select string_agg(a::text, ',' order by a) from t")
            .await,
        "1,3,4,5"
    );
    assert_eq!(
        s.get("select last_vacuum is not null from pg_stat_user_tables where relname = 't'")
            .await,
        "t"
    );
    let error = failed(&s, "insert into t values (6); vacuum t").await;
    assert_eq!(error["sqlstate"], "25001", "{error}");
    assert_eq!(s.get("select count(*) from t where a = 6").await, "0");
}

#[tokio::test]
async fn a_statement_runs_as_whoever_asked_for_it_in_a_session_with_its_settings() {
    let (database, s) = live().await;
    let (alice, a) = role(&database, &s, "alice").await;
    s.get(&format!(
        "alter role {alice} set search_path = own, public; create schema own;
         alter role {alice} in database {} set work_mem = '7MB'",
        database.name()
    ))
    .await;
    let who = "select session_user, current_user, current_setting('search_path'), current_setting('work_mem'),
        current_setting('is_superuser')";
    let done = output_of(&a, &s, who).await;
    let row = &done["result"][0];
    assert_eq!(row[0], alice.as_str(), "{done}");
    assert_eq!(row[1], alice.as_str(), "{done}");
    assert_eq!(row[2], "own, public", "{done}");
    assert_eq!(row[3], "7MB", "{done}");
    assert_eq!(row[4], "off", "{done}");
    // A changed setting applies to the next job.
    s.get(&format!(
        "alter role {alice} in database {} set work_mem = '8MB'",
        database.name()
    ))
    .await;
    let done = output_of(&a, &s, who).await;
    assert_eq!(done["result"][0][3], "8MB", "{done}");
}

/// Returns the output of a statement that `them` queues.
async fn output_of(them: &Session, s: &Session, command: &str) -> Value {
    let job = queue(them, command).await;
    assert_eq!(
        ended(s, job).await,
        "completed",
        "{command}: {}",
        failure(s, job).await
    );
    let sql = format!("select output from trax.run where job_id = {job}");
    serde_json::from_str(&s.get(&sql).await).expect("JSON")
}

#[tokio::test]
async fn two_executors_serve_many_roles_and_end_when_there_may_be_none() {
    let (database, s) = live().await;
    let executors = format!(
        "select count(*) from pg_stat_activity where backend_type = 'trax executor' and datname = '{}'",
        database.name()
    );
    assert_eq!(s.get(&executors).await, "0", "none before there is work");
    let mut jobs = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let (_, them) = role(&database, &s, name).await;
        for _ in 0..5 {
            jobs.push(queue(&them, "select pg_sleep(0.01)").await);
        }
    }
    for job in jobs {
        assert_eq!(ended(&s, job).await, "completed");
        let now: i64 = s.get(&executors).await.parse().expect("a number");
        assert!(now <= 2, "{now}");
    }
    let roles = "select count(distinct input ->> 'run_as') from trax.run";
    assert_eq!(s.get(roles).await, "4");
    s.get(&format!(
        "alter database {} set trax.max_sql_workers = 0",
        database.name()
    ))
    .await;
    queue(&s, "select 1").await;
    eventually("they end", PATIENCE, async || {
        match s.number(&executors).await {
            0 => Ok(()),
            some => Err(some.to_string()),
        }
    })
    .await;
}

#[tokio::test]
async fn order_limits_keys_delays_and_dead_letters_are_those_of_any_job() {
    let (_database, s) = live().await;
    s.get("create table t (at timestamptz default clock_timestamp(), what text); select trax.configure_group('one', max_active_jobs => 1)").await;
    let mut jobs = Vec::new();
    for _ in 0..4 {
        let command = "insert into t (what) values ('begin'); select pg_sleep(0.02); insert into t (what) values ('end')";
        jobs.push(queue_with(&s, command, "group_name => 'one'").await);
    }
    let later = queue_with(&s, "select 1", "run_at => now() + interval '200 ms'").await;
    for job in jobs.iter().chain([&later]) {
        assert_eq!(ended(&s, *job).await, "completed");
    }
    let overlap = "select count(*) from (select what, lag(what) over (order by at) as before from t) x where what = before";
    assert_eq!(s.get(overlap).await, "0");
    // A failure is retried, then becomes a dead letter, which runs again as the same role.
    let command = "insert into missing values (1)";
    let job = queue_with(&s, command, "max_retries => 1, retry_delay => '10 ms'").await;
    assert_eq!(ended(&s, job).await, "failed");
    let runs = format!("select count(*), min(error) from trax.run where job_id = {job}");
    assert_eq!(s.get(&runs).await, "2|relation \"missing\" does not exist");
    s.get("create table missing (a int)").await;
    let again =
        format!("select trax.requeue_dead_letter(id) from trax.dead_letter where job_id = {job}");
    let again: i64 = s.get(&again).await.parse().expect("a job");
    assert_eq!(ended(&s, again).await, "completed");
    assert_eq!(s.get("select count(*) from missing").await, "1");
}
