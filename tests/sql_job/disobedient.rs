//! Statements that catch their cancel, and roles that have lost all rights.

use super::{ended, failure, live, queue_with, role, sleeper_of};
use harness::process::Halted;
use harness::scheduler::{status, violations};
use harness::session::Session;
use harness::{PATIENCE, eventually};
use trax_client::testkit::Database;

/// A statement that ignores a cancel.
const STUBBORN: &str = "do $$ begin
    loop
        begin
            perform pg_sleep(1e9);
        exception when query_canceled then null;
        end;
    end loop;
end $$";

/// Waits until this executor has ended.
async fn is_gone(s: &Session, pid: i32) {
    let sql = format!("select count(*) from pg_stat_activity where pid = {pid}");
    s.becomes(&sql, "0").await;
}

/// A database in which statements must end within a second of their first cancel, and idle
/// executors end after a second.
async fn strict() -> (Database, Session) {
    let (database, s) = live().await;
    let name = database.name();
    s.get(&format!(
        "alter database {name} set trax.cancel_grace = '1s';
         alter database {name} set trax.sql_worker_idle_timeout = '1s'"
    ))
    .await;
    let session = Session::of(&database).await;
    (database, session)
}

#[tokio::test]
async fn a_statement_that_catches_its_cancel_is_ended_with_its_executor() {
    let (_database, s) = strict().await;
    let job = queue_with(&s, STUBBORN, "max_retries => 0").await;
    let pid = sleeper_of(&s, "query_canceled").await;
    s.get(&format!("select trax.cancel({job})")).await;
    is_gone(&s, pid).await;
    assert_eq!(ended(&s, job).await, "cancelled");

    let options = "max_retries => 0, timeout => '1 s'";
    let job = queue_with(&s, STUBBORN, options).await;
    let pid = sleeper_of(&s, "query_canceled").await;
    is_gone(&s, pid).await;
    assert_eq!(ended(&s, job).await, "failed");
    assert_eq!(failure(&s, job).await["kind"], "timeout");
    // The slot is free for other jobs.
    let next = queue_with(&s, "select 1", "max_retries => 0").await;
    assert_eq!(ended(&s, next).await, "completed");
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_executor_that_obeys_nothing_is_named() {
    let (_database, s) = strict().await;
    let job = queue_with(&s, "select pg_sleep(1e9)", "max_retries => 0").await;
    let pid = sleeper_of(&s, "pg_sleep").await;
    let halted = Halted::asleep_in(&s, pid, "Timeout").await;
    s.get(&format!("select trax.cancel({job})")).await;
    let named = format!("asked to end but continue: {pid}.");
    eventually("a word about it", PATIENCE, async || {
        match status(s.client(), "sql jobs").await {
            (_, false, Some(hint)) if hint.contains(&named) => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
    drop(halted);
    is_gone(&s, pid).await;
    let (_, healthy, hint) = status(s.client(), "sql jobs").await;
    assert!(healthy, "{hint:?}");
}

#[tokio::test]
async fn a_statement_whose_lease_is_gone_is_ended_with_its_executor() {
    let (_database, s) = strict().await;
    let job = queue_with(&s, STUBBORN, "max_retries => 0").await;
    let pid = sleeper_of(&s, "query_canceled").await;
    s.get(&format!(
        "update trax.lease set lease_expires_at = now(), reap_at = now() where job_id = {job}"
    ))
    .await;
    is_gone(&s, pid).await;
    assert_eq!(ended(&s, job).await, "failed");
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn what_runs_as_a_role_ends_with_its_rights() {
    let (database, s) = strict().await;
    let name = database.name();
    s.get(&format!(
        "alter database {name} set trax.max_sql_workers = 4"
    ))
    .await;
    // The last case applies to all roles.
    for cases in [
        &[
            ("alter role ROLE nologin", "failed"),
            ("alter role ROLE connection limit 0", "failed"),
            ("drop owned by ROLE; drop role ROLE", "failed"),
            ("select trax.revoke_access('ROLE')", "cancelled"),
        ][..],
        &[(
            "revoke connect on database DATABASE from public, ROLE",
            "failed",
        )],
    ] {
        let mut running = Vec::new();
        for (place, (end, state)) in cases.iter().enumerate() {
            let suffix = format!("r{place}_of_{}", cases.len());
            let (name_of_role, session) = role(&database, &s, &suffix).await;
            let mark = format!("select pg_sleep(1e9), '{suffix}'");
            let job = queue_with(&session, &mark, "max_retries => 0").await;
            let pid = sleeper_of(&s, &suffix).await;
            let end = end.replace("ROLE", &name_of_role).replace("DATABASE", name);
            running.push((job, pid, end, state));
        }
        for (_, _, end, _) in &running {
            s.get(end).await;
        }
        for (job, pid, end, state) in running {
            assert_eq!(ended(&s, job).await, *state, "{end}");
            is_gone(&s, pid).await;
        }
    }
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn without_a_place_for_executors_statements_run_later() {
    let (database, s) = strict().await;
    let name = database.name();
    s.get("create table pass (a int)").await;
    let command =
        "do $$ begin if not exists (select from pass) then perform pg_sleep(1e9); end if; end $$";
    let job = queue_with(&s, command, "max_retries => 0").await;
    let pid = sleeper_of(&s, "from pass").await;
    s.get(&format!(
        "alter database {name} set trax.max_sql_workers = 0"
    ))
    .await;
    is_gone(&s, pid).await;
    let waits = format!("select count(*) from trax.work_queue where job_id = {job}");
    eventually("the job waits", PATIENCE, async || {
        match s.get(&waits).await {
            seen if seen == "1" => Ok(()),
            seen => Err(seen),
        }
    })
    .await;
    s.get("insert into pass values (1)").await;
    s.get(&format!("alter database {name} reset trax.max_sql_workers"))
        .await;
    assert_eq!(ended(&s, job).await, "completed");
}

#[tokio::test]
async fn a_role_with_a_limit_of_no_connection_runs_nothing() {
    let (database, s) = live().await;
    let (name, session) = role(&database, &s, "limited").await;
    let options = "max_retries => 0, run_at => now() + interval '1 h'";
    let job = queue_with(&session, "select 1", options).await;
    s.get(&format!(
        "alter role {name} connection limit 0; select trax.run_now({job})"
    ))
    .await;
    assert_eq!(ended(&s, job).await, "failed");
    let why = failure(&s, job).await;
    assert!(why.to_string().contains("may not log in"), "{why}");
}

#[tokio::test]
async fn what_waits_as_a_role_ends_with_its_level() {
    let (database, s) = live().await;
    let (name, session) = role(&database, &s, "leaver").await;
    s.get(&format!("select trax.grant_access('{name}', 'admin')"))
        .await;
    let job = queue_with(&session, "select 1", "run_at => now() + interval '1 h'").await;
    session
        .get("select trax.schedule('beat', sql => 'select 1', cron => '0 0 1 1 *')")
        .await;
    s.get(&format!("select trax.revoke_access('{name}')")).await;
    assert_eq!(ended(&s, job).await, "cancelled");
    assert_eq!(s.get("select enabled from trax.manifest").await, "f");
    let waiting = format!("select count(*) from trax.work_queue where run_as = '{name}'");
    assert_eq!(s.number(&waiting).await, 0);
}
