//! Too few worker slots or executors: the longest wait is served first.

use super::{ended, queue, queue_with, role, sleeper_of};
use harness::scheduler::{connect, new_name, scheduler_of, scheduling, status, value};
use harness::session::Session;
use harness::{PATIENCE, eventually};
use std::time::{Duration, Instant};
use trax_client::testkit::{Database, Server};

/// A server with this number of worker slots, whose executors stay.
fn server_with(slots: &str) -> Server {
    harness::options()
        .fast()
        .setting("max_worker_processes", slots)
        .setting("trax.sql_worker_idle_timeout", "1 d")
        .setting("trax.vacuum", "off")
        .start()
        .expect("a server starts")
}

async fn served(server: &Server, name: &str) -> (Database, Session) {
    let database = server.database(name).await.expect("a database is made");
    let s = Session::of(&database).await;
    scheduler_of(s.client(), name, PATIENCE).await;
    (database, s)
}

#[tokio::test]
async fn an_idle_executor_of_another_role_makes_room_for_the_second_job_of_a_role() {
    let server = scheduling().setting("trax.sql_worker_idle_timeout", "1 d");
    let server = server.start().expect("a server starts");
    let (database, s) = served(&server, &new_name("role_slot")).await;
    let (_, b) = role(&database, &s, "bob").await;
    let (_, a) = role(&database, &s, "alice").await;
    let job = queue(&b, "select 1").await;
    assert_eq!(ended(&s, job).await, "completed");
    let endless = queue(&a, "select pg_sleep(1e9)").await;
    sleeper_of(&s, "pg_sleep").await;
    let second = queue(&a, "select 2").await;
    assert_eq!(ended(&s, second).await, "completed");
    // And back, while the endless statement runs.
    let back = queue(&b, "select 3").await;
    assert_eq!(ended(&s, back).await, "completed");
    s.get(&format!("select trax.cancel({endless})")).await;
}

#[tokio::test]
async fn the_executors_of_a_busy_role_end_one_after_another_for_the_older_jobs_of_another() {
    let server = scheduling().setting("trax.sql_worker_idle_timeout", "1 d");
    let server = server.start().expect("a server starts");
    let (database, s) = served(&server, &new_name("role_busy")).await;
    let (_, b) = role(&database, &s, "bob").await;
    let (_, a) = role(&database, &s, "alice").await;
    let endless = queue(&a, "select pg_sleep(1e9)").await;
    sleeper_of(&s, "1e9").await;
    b.get("select trax.enqueue_sql('select pg_sleep(0.05)') from generate_series(1, 5000)")
        .await;
    sleeper_of(&s, "0.05").await;
    let second = queue(&a, "select 2").await;
    s.get("update trax.work_queue set (run_at, queued_at) = (run_at - interval '1 min', queued_at - interval '1 min') where job_id = (select max(job_id) from trax.work_queue)")
        .await;
    assert_eq!(ended(&s, second).await, "completed");
    assert_ne!(s.get("select count(*) from trax.work_queue").await, "0");
    s.get(&format!("select trax.cancel({endless})")).await;
}

#[tokio::test]
async fn an_idle_executor_yields_to_a_statement_of_another_database() {
    // Two launchers, three schedulers, two executors.
    let server = server_with("7");
    let (_one, s) = served(&server, "one").await;
    let (_two, t) = served(&server, "two").await;
    let (_three, u) = served(&server, "three").await;
    let endless = queue(&s, "select pg_sleep(1e9)").await;
    sleeper_of(&s, "1e9").await;
    let first = queue(&s, "select 1").await;
    assert_eq!(ended(&s, first).await, "completed");
    for session in [&t, &u, &s] {
        let job = queue(session, "select 1").await;
        assert_eq!(ended(session, job).await, "completed");
    }
    s.get(&format!("select trax.cancel({endless})")).await;
}

#[tokio::test]
async fn a_scheduler_comes_before_executors() {
    let server = server_with("5");
    let (_one, s) = served(&server, "one").await;
    let endless = queue(&s, "select pg_sleep(1e9)").await;
    sleeper_of(&s, "1e9").await;
    let job = queue(&s, "select 1").await;
    assert_eq!(ended(&s, job).await, "completed");
    let (_two, t) = served(&server, "two").await;
    let (_, healthy, _) = status(t.client(), "scheduler").await;
    assert!(healthy);
    s.get(&format!("select trax.cancel({endless})")).await;
}

#[tokio::test]
async fn twenty_databases_share_the_worker_slots_of_a_server_with_default_settings() {
    let server = harness::options().fast().start().expect("a server starts");
    let database = server.existing("postgres");
    let slots: String = value(&connect(&database).await, "show max_worker_processes").await;
    assert_eq!(slots, "8");
    let mut sessions = Vec::new();
    for number in 0..20 {
        let name = format!("of_20_{number}");
        let database = server.database(&name).await.expect("a database is made");
        sessions.push(Session::of(&database).await);
    }
    let beat = "select trax.schedule('beat', sql => 'select 1', cron => '* * * * * *')";
    sessions[0].get(beat).await;
    // Each scheduler has run and recorded its work.
    for session in &sessions {
        let job = queue_with(session, "select 1", "max_retries => 3").await;
        assert_eq!(ended(session, job).await, "completed");
    }
    let mut late = Vec::new();
    for session in &sessions {
        let began = Instant::now();
        let job = queue_with(session, "select 1", "max_retries => 3").await;
        assert_eq!(ended(session, job).await, "completed");
        let waited = "select extract(epoch from started_at - queued_at) from trax.run where job_id";
        let waited = session.get(&format!("{waited} = {job}")).await;
        late.push((waited, began.elapsed()));
    }
    // Other load may delay a few jobs.
    let slow = late
        .iter()
        .filter(|(_, took)| *took > Duration::from_secs(5));
    assert!(slow.count() <= 2, "{late:?}");
    eventually("the schedule goes on", PATIENCE, async || {
        let runs = sessions[0].number("select count(*) from trax.run where manifest = 'beat'");
        match runs.await {
            runs if runs >= 5 => Ok(()),
            runs => Err(format!("{runs} runs")),
        }
    })
    .await;
    for session in &sessions {
        let (said, healthy, hint) = status(session.client(), "scheduler").await;
        assert!(healthy, "{said} {hint:?}");
    }
    let log = std::fs::read_to_string(server.log_file()).expect("the log can be read");
    assert!(log.contains("the schedulers of trax take turns"), "{log}");
    assert!(!log.contains("PANIC"), "{log}");
}

#[tokio::test]
async fn an_executor_that_ends_as_it_should_is_in_no_list_of_workers() {
    let server = scheduling().setting("trax.sql_worker_idle_timeout", "500 ms");
    let server = server.start().expect("a server starts");
    let (_database, s) = served(&server, &new_name("listed")).await;
    let job = queue(&s, "select 1").await;
    assert_eq!(ended(&s, job).await, "completed");
    let worker = format!("select worker from trax.run where job_id = {job}");
    assert!(s.get(&worker).await.starts_with("trax executor:"));
    eventually("its entry is gone", PATIENCE, async || {
        match s.get("select name from trax.worker").await.as_str() {
            "" => Ok(()),
            seen => Err(seen.to_owned()),
        }
    })
    .await;
}

#[tokio::test]
async fn an_executor_that_has_idled_for_long_is_not_gone() {
    let (_database, s) = super::live().await;
    let job = queue(&s, "select 1").await;
    assert_eq!(ended(&s, job).await, "completed");
    s.get("update trax.worker set last_seen_at = last_seen_at - interval '1 h'")
        .await;
    let states = "select state from trax.worker_state where name like 'trax executor:%'";
    assert_eq!(s.get(states).await, "idle");
}

#[tokio::test]
async fn busy_executors_are_named_with_what_helps() {
    let (_database, s) = super::live().await;
    let first = queue(&s, "select pg_sleep(1e9), 1").await;
    queue(&s, "select pg_sleep(1e9), 2").await;
    sleeper_of(&s, "1e9), 1").await;
    sleeper_of(&s, "1e9), 2").await;
    s.get("select trax.schedule('m', sql => 'select 1')").await;
    let job = s.number("select trax.trigger('m')").await;
    let why = "select detail, action from trax.explain_manifest('m') where reason = 'queued'";
    let said = s.get(why).await;
    assert!(
        said.starts_with(&format!(
            "Job {job} waits for an executor: 2 statements run"
        )),
        "{said}"
    );
    assert!(said.contains("set trax.max_sql_workers = 4"), "{said}");
    s.get("update trax.work_queue set (run_at, queued_at) = (run_at - interval '1 h', queued_at - interval '1 h')")
        .await;
    let (said, healthy, hint) = status(s.client(), "sql jobs").await;
    assert_eq!(said, "ready: 1, executing: 2");
    let hint = hint.expect("a hint");
    assert!(!healthy && hint.contains("2 statements run"), "{hint}");
    assert!(hint.contains(&format!("trax.cancel({first})")), "{hint}");
    let causes = s.get("select cause, severity from trax.diagnose()").await;
    assert!(causes.contains("sql_jobs|warning"), "{causes}");
    assert!(!causes.contains("task_not_claimed"), "{causes}");
    s.get("select trax.cancel(job_id) from trax.lease").await;
    assert_eq!(ended(&s, job).await, "completed");
    let (_, healthy, _) = status(s.client(), "sql jobs").await;
    assert!(healthy);
}

#[tokio::test]
async fn a_statement_whose_group_is_at_its_limit_needs_no_worker() {
    let (_database, s) = super::live().await;
    s.get("select trax.configure_group('one', max_active_jobs => 1)")
        .await;
    let of_group = "max_retries => 0, group_name => 'one'";
    let first = super::queue_with(&s, "select pg_sleep(1e9), 1", of_group).await;
    queue(&s, "select pg_sleep(1e9), 2").await;
    sleeper_of(&s, "1e9), 1").await;
    sleeper_of(&s, "1e9), 2").await;
    let job = super::queue_with(&s, "select 1", of_group).await;
    s.get("update trax.work_queue set (run_at, queued_at) = (run_at - interval '1 h', queued_at - interval '1 h')")
        .await;
    let (_, healthy, hint) = status(s.client(), "sql jobs").await;
    assert!(healthy, "{hint:?}");
    s.get(&format!("select trax.cancel({first})")).await;
    assert_eq!(ended(&s, job).await, "completed");
    s.get("select trax.cancel(job_id) from trax.lease").await;
}
