//! A long-lived producer: broken connections, restarts, and an unreachable server.

use std::error::Error;
use std::time::{Duration, Instant};

use tokio_postgres::Client as Connection;
use trax_client::testkit::{Database, Server, Stop};
use trax_client::{Client, Error as TraxError, JobOptions, NewJob, NewJobs, Producer};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

async fn count(db: &Connection, sql: &str) -> Result<i64> {
    Ok(db.query_one(sql, &[]).await?.get(0))
}

fn unique(key: &str) -> NewJob<&str> {
    let for_an_hour = JobOptions::new()
        .unique_key(key)
        .unique_for(Duration::from_secs(3600));
    NewJob::new("t", key).with(for_an_hour)
}

async fn started() -> Result<(Server, Database)> {
    let server = Server::options().fast().start()?;
    let database = server.database("shop").await?;
    Ok((server, database))
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_share_one_connection() -> Result {
    let (_server, database) = started().await?;
    let producer = Producer::new(database.config());
    producer.connect().await?;
    let mut tasks = Vec::new();
    for n in 0..50 {
        let producer = producer.clone();
        tasks.push(tokio::spawn(async move {
            producer.enqueue(&NewJob::new("t", n)).await
        }));
    }
    for task in tasks {
        task.await??;
    }
    let ids = producer.enqueue_many(&NewJobs::new("u", &[1, 2])).await?;
    let of_version = JobOptions::new().version("v2");
    producer
        .enqueue(&NewJob::new("u", 3).with(of_version))
        .await?;
    let db = database.connect().await?;
    let sql = "select count(*) from pg_stat_activity where application_name = 'trax producer'";
    assert_eq!(count(&db, sql).await?, 1);
    let depths = producer.queue_depths(40).await?;
    let seen: Vec<(&str, i64)> = depths.iter().map(|d| (d.task.as_str(), d.ready)).collect();
    assert_eq!(seen, [("t", 40), ("u", 3)]);
    let client = Client::new(&db);
    let claimed = client
        .claim(&trax_client::ClaimOptions::new().tasks(["u"]))
        .await?;
    let failure = trax_client::Failure::new("no").permanent();
    client
        .fail(claimed[0].job_id, claimed[0].token, &failure)
        .await?;
    let attempts = producer.attempts(ids[0]).await?;
    assert_eq!(attempts.len(), 1);
    assert_eq!(
        (
            attempts[0].attempt,
            attempts[0].state.as_str(),
            attempts[0].error.as_deref()
        ),
        (1, "failed", Some("no"))
    );
    assert!(producer.attempts(ids[1]).await?.is_empty());
    assert_eq!(producer.dead_letters(9).await?[0].job_id, ids[0]);
    Ok(())
}

#[tokio::test]
async fn a_connection_that_ended_is_replaced() -> Result {
    let (_server, database) = started().await?;
    let producer = Producer::new(database.config());
    let db = database.connect().await?;
    for round in 1..=3 {
        producer.enqueue(&NewJob::new("t", round)).await?;
        let ended = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'trax producer'";
        assert_eq!(count(&db, ended).await?, 1);
        // Until the driver detects the broken connection, a call without a key fails.
        producer.enqueue(&unique(&format!("round {round}"))).await?;
    }
    assert_eq!(count(&db, "select count(*) from trax.work_queue").await?, 6);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_a_key_waits_for_a_restart_and_is_queued_once() -> Result {
    let (mut server, database) = started().await?;
    let producer = Producer::with_patience(database.config(), Duration::from_secs(60));
    let first = producer.enqueue(&unique("a")).await?;
    server.stop(Stop::Fast)?;
    let waits = tokio::spawn({
        let producer = producer.clone();
        async move { producer.enqueue(&unique("a")).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waits.is_finished());
    server.start()?;
    assert_eq!(waits.await??, first);
    let db = database.connect().await?;
    assert_eq!(count(&db, "select count(*) from trax.work_queue").await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_when_the_patience_is_over() -> Result {
    let port = trax_client::testkit::free_port()?;
    let address: trax_client::Address = format!("host=127.0.0.1 port={port}").parse()?;
    let producer = Producer::with_patience(address, Duration::from_secs(1));
    let begun = Instant::now();
    let refused = producer.enqueue(&unique("a")).await;
    assert!(
        matches!(refused, Err(TraxError::Connection(_))),
        "{refused:?}"
    );
    let elapsed = begun.elapsed();
    assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
    Ok(())
}
