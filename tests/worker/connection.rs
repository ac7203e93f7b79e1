//! Broken connections, and a wrong database.

use super::{careless, enqueue, start, state_becomes, worker};
use harness::scheduler::{connect, execute, scheduling, value, violations};
use harness::{PATIENCE, database, eventually};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use trax_client::{Client as Trax, Context, JobError, NewJobs, Worker};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_survives_a_restart_of_the_server_under_load() {
    let mut server = scheduling().start().expect("a server starts");
    let database = server
        .database("restarted")
        .await
        .expect("a database is made");
    let client = connect(&database).await;
    Trax::new(&client)
        .enqueue_many(&NewJobs::new("t", &[1; 3000]))
        .await
        .expect("jobs are enqueued");
    let running = {
        let work = |_: u32, _: Context| async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Ok::<_, JobError>(())
        };
        start(
            worker(&database)
                .concurrency(8)
                .lease(Duration::from_secs(3))
                .handle("t", work),
        )
    };
    for done in [300, 1500] {
        let client = connect(&database).await;
        eventually("some completions", PATIENCE, async || {
            match value::<i64>(&client, "select count(*) from trax.run").await {
                seen if seen >= done => Ok(()),
                seen => Err(format!("{seen}")),
            }
        })
        .await;
        drop(client);
        server.restart().expect("the server restarts");
    }
    let client = connect(&database).await;
    eventually("every completion", PATIENCE, async || {
        let sql = "select count(*) from trax.job where state = 'completed'";
        match value::<i64>(&client, sql).await {
            3000 => Ok(()),
            seen => Err(format!("{seen}")),
        }
    })
    .await;
    let summary = running.drain().await;
    assert_eq!((summary.dead, summary.unreported), (0, 0), "{summary}");
    let sql = "select count(*) from trax.run where state = 'completed'";
    assert_eq!(value::<i64>(&client, sql).await, 3000);
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_worker_whose_sessions_are_terminated_goes_on() {
    let database = database().await;
    let client = connect(&database).await;
    let seen = Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let events = Arc::clone(&seen);
    let echo = |_: u32, _: Context| async { Ok::<_, JobError>(()) };
    let named = Worker::new(database.config())
        .without_signals()
        .name("cut")
        .poll_interval(Duration::from_millis(20))
        .on_event(move |event| {
            let mut events = events
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            events.insert(event.to_string().contains("works again"));
        })
        .handle("t", echo);
    let running = start(named);
    let job = enqueue(&client, "t", 1).await;
    state_becomes(&client, job, "completed").await;
    for _ in 0..5 {
        execute(
            &client,
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'trax worker cut'",
        )
        .await;
        let job = enqueue(&client, "t", 1).await;
        state_becomes(&client, job, "completed").await;
    }
    running.drain().await;
    let seen = seen
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    assert_eq!(
        seen.iter().copied().collect::<Vec<_>>(),
        [false, true],
        "trouble, and its end, are told"
    );
}

#[tokio::test]
async fn a_worker_in_a_database_without_the_extension_says_so_at_once() {
    let plain = harness::scheduler::new_name("no_extension");
    let database = harness::shared_server()
        .plain_database(&plain)
        .await
        .expect("a database is made");
    let refused = worker(&database).handle("t", careless).run().await;
    let error = refused.expect_err("there is nothing to claim from");
    assert!(
        matches!(error, trax_client::Error::NotInstalled(_)),
        "{error:?}"
    );
    let typed = "type: create extension trax";
    assert!(error.to_string().contains(typed), "{error}");
}
