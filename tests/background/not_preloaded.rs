//! The library without `shared_preload_libraries`: everything works, and the status reports the
//! missing parts.

use harness::scheduler::{
    a_cycle_runs, another_scheduler_of, connect, execute, no_scheduler_of, scheduler_of, status,
    status_becomes, value, violations,
};
use harness::{PATIENCE, eventually};
use std::time::Duration;
use tokio_postgres::Client;

#[tokio::test]
async fn without_preloading_status_says_what_to_type_and_typing_it_works() {
    let mut server = harness::options()
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
    status_becomes(&client, "scheduler", "running", PATIENCE).await;
    let unhealthy: Vec<String> = {
        let sql = "select item from trax.status() where not healthy";
        let rows = client.query(sql, &[]).await.expect("trax.status() answers");
        rows.iter().map(|row| row.get(0)).collect()
    };
    assert_eq!(unhealthy, Vec::<String>::new());
}

#[tokio::test]
async fn without_preloading_everything_works_with_tick_by_hand_and_with_a_started_scheduler() {
    let server = harness::options()
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
    let pid = scheduler_of(&client, "plain", PATIENCE).await;
    a_cycle_runs(&client, PATIENCE).await;
    execute(&client, &format!("select pg_terminate_backend({pid})")).await;
    another_scheduler_of(&client, "plain", pid, PATIENCE).await;
    execute(&client, "drop extension trax").await;
    no_scheduler_of(&client, "plain", PATIENCE).await;
}

/// Runs a due manifest through a retry to completion, with manual cycles.
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
async fn a_scheduler_started_by_hand_ends_for_good_when_its_database_is_dropped() {
    // The server's logical replication launcher takes one slot, and the scheduler the other.
    let server = harness::options()
        .fast()
        .not_preloaded()
        .setting("max_worker_processes", "2")
        .start()
        .expect("a server starts");
    let first = server.database("first").await.expect("a database is made");
    let second = server.database("second").await.expect("a database is made");
    let client = connect(&first).await;
    execute(&client, "select trax.start_scheduler()").await;
    drop(client);
    let client = connect(&second).await;
    let refused = client
        .query("select trax.start_scheduler()", &[])
        .await
        .expect_err("there is no place");
    assert_eq!(refused.code().map(|code| code.code()), Some("53400"));

    execute(&client, "drop database first with (force)").await;
    eventually("the place is free", Duration::from_secs(30), async || {
        let started = client.query("select trax.start_scheduler()", &[]).await;
        started.map(|_| ()).map_err(|error| format!("{error:?}"))
    })
    .await;
    a_cycle_runs(&client, PATIENCE).await;
    let log = std::fs::read_to_string(server.log_file()).expect("the log can be read");
    let tries = log
        .lines()
        .filter(|line| line.contains("FATAL") && line.contains("does not exist"))
        .count();
    assert!(tries <= 1, "it tried {tries} times");
}
