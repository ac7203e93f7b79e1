//! Killed processes: no work is lost, and none is done twice.

use super::{ended, failure, queue_with, sleeper_of};
use harness::process::send_signal;
use harness::scheduler::{new_name, scheduler_of, scheduling, violations};
use harness::session::Session;
use harness::{PATIENCE, eventually};
use trax_client::testkit::{Database, Server};

const EXECUTOR: &str = "select coalesce(min(pid), 0) from pg_stat_activity
    where backend_type = 'trax executor' and datname = current_database()";

/// A server on which every commit survives a crash.
async fn durable() -> (Server, String, Session) {
    let server = scheduling().setting("synchronous_commit", "on");
    let server = server.start().expect("a server starts");
    let name = new_name("sql_crash");
    let database = server.database(&name).await.expect("a database is made");
    let s = Session::of(&database).await;
    scheduler_of(s.client(), &name, PATIENCE).await;
    (server, name, s)
}

/// Returns the first value of a query over a new connection, which the server may end at any time.
async fn asked(database: &Database, sql: &str) -> Result<i64, String> {
    let client = database
        .connect()
        .await
        .map_err(|error| error.to_string())?;
    let row = client
        .query_one(&format!("select ({sql})::bigint"), &[])
        .await;
    row.map(|row| row.get(0)).map_err(|error| error.to_string())
}

/// Kills a process of the server; returns once the server has ended the others and is back.
async fn killed(database: &Database, s: Session, pid: i32) -> Session {
    let ours = s.pid();
    send_signal("KILL", pid);
    eventually("the server ends every session", PATIENCE, async || match s
        .client()
        .simple_query("")
        .await
    {
        Ok(_) => Err(format!("{ours} is still there")),
        Err(_) => Ok(()),
    })
    .await;
    eventually("the server is back", PATIENCE, async || {
        asked(database, "1").await
    })
    .await;
    Session::of(database).await
}

#[tokio::test]
async fn a_killed_executor_loses_its_lease_and_its_job_takes_effect_once() {
    let (server, name, s) = durable().await;
    let database = server.existing(&name);
    s.get("create table t (a int); create table pass (a int)")
        .await;
    let command = "insert into t values (1);
        do $$ begin if not exists (select from pass) then perform pg_sleep(1e9); end if; end $$";
    let job = queue_with(&s, command, "max_retries => 1").await;
    let waiting = queue_with(
        &s,
        "insert into t values (2)",
        "max_retries => 0, run_at => now() + interval '1 h'",
    )
    .await;
    let pid = sleeper_of(&s, "from pass").await;
    s.get("insert into pass values (1)").await;
    let s = killed(&database, s, pid).await;
    assert_eq!(
        ended(&s, job).await,
        "completed",
        "{}",
        failure(&s, job).await
    );
    s.get(&format!("select trax.run_now({waiting})")).await;
    assert_eq!(ended(&s, waiting).await, "completed");
    assert_eq!(
        s.get("select string_agg(a::text, ',' order by a) from t")
            .await,
        "1,2"
    );
    let kinds = format!(
        "select string_agg(coalesce(failure_kind, state), ',' order by attempt) from trax.run where job_id = {job}"
    );
    assert_eq!(s.get(&kinds).await, "lease_expired,completed");
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_thousand_statements_take_effect_once_each_whatever_is_killed() {
    const JOBS: i64 = 1000;
    let (mut server, name, s) = durable().await;
    let database = server.existing(&name);
    s.get("create table t (a int)").await;
    s.get(&format!(
        "select count(trax.enqueue_sql(format('insert into t values (%s)', g), max_retries => 100))
         from generate_series(1, {JOBS}) g"
    ))
    .await;
    let done_more_than = async |least: i64| {
        eventually("some of them have run", PATIENCE, async || {
            match asked(&database, "select count(*) from t").await? {
                done if done > least => Ok(done),
                done => Err(done.to_string()),
            }
        })
        .await
    };
    let mut s = s;
    let mut done = 0;
    for _ in 0..3 {
        done = done_more_than((done + 30).min(JOBS - 1)).await;
        let pid = eventually("an executor", PATIENCE, async || {
            match s.number(EXECUTOR).await {
                0 => Err("none".to_owned()),
                pid => Ok(pid as i32),
            }
        })
        .await;
        s = killed(&database, s, pid).await;
    }
    done_more_than((done + 30).min(JOBS - 1)).await;
    drop(s);
    server.kill().expect("the postmaster is killed");
    server.start().expect("the server starts");
    let database = server.existing(&name);
    let s = Session::of(&database).await;
    eventually("all have run", PATIENCE, async || {
        let left =
            "select (select count(*) from trax.work_queue) + (select count(*) from trax.lease)";
        match s.number(left).await {
            0 => Ok(()),
            left => Err(format!("{left} are left")),
        }
    })
    .await;
    assert_eq!(
        s.get("select count(*), count(distinct a) from t").await,
        format!("{JOBS}|{JOBS}")
    );
    let completed =
        "select count(*), count(distinct job_id) from trax.run where state = 'completed'";
    assert_eq!(s.get(completed).await, format!("{JOBS}|{JOBS}"));
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_statement_that_crashes_the_server_has_spent_its_attempt() {
    // No commit waits for the disk except that of the claim.
    let server = scheduling().start().expect("a server starts");
    let name = new_name("sql_crash");
    let database = server.database(&name).await.expect("a database is made");
    let s = Session::of(&database).await;
    scheduler_of(s.client(), &name, PATIENCE).await;
    let command = "copy (select 1) to program 'kill -9 $PPID'";
    let job = queue_with(&s, command, "max_retries => 0").await;
    drop(s);
    let sql = format!("select count(*) from trax.job where job_id = {job} and state = 'failed'");
    eventually("the end of the job", PATIENCE, async || {
        match asked(&database, &sql).await? {
            1 => Ok(()),
            seen => Err(seen.to_string()),
        }
    })
    .await;
    let s = Session::of(&database).await;
    assert_eq!(failure(&s, job).await["kind"], "lease_expired");
    let log = std::fs::read_to_string(server.log_file()).expect("the log can be read");
    let crashes = log.matches("was terminated by signal 9").count();
    assert_eq!(crashes, 1, "{log}");
}
