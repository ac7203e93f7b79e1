//! Runs the examples on a real server.

use std::future::Future;
use std::time::{Duration, SystemTime};

use tokio_postgres::{Client as Connection, NoTls};
use trax_client::testkit::{Database, Server, enqueued};
use trax_client::{
    ClaimOptions, Client, Error, JobId, JobOptions, NewJob, NewJobs, OnDuplicate, Rate,
};
use trax_pools::{Result, ShipOrder};

async fn shop() -> Result<(Server, Database, Connection)> {
    let server = Server::options().fast().tcp().start()?;
    let database = server.database("shop").await?;
    let db = database.connect().await?;
    db.batch_execute("create table orders (id bigint generated always as identity, item text not null check (item <> 'gold'))")
        .await?;
    Ok((server, database, db))
}

/// Asserts that an order and its job are stored together or not at all.
async fn holds<F>(db: &Connection, order: impl Fn(&'static str) -> F) -> Result<()>
where
    F: Future<Output = Result<JobId>>,
{
    let job_id = order("tea").await?;
    let jobs = enqueued::<ShipOrder>(db).await?;
    let last: i64 = db
        .query_one("select max(id) from orders", &[])
        .await?
        .get(0);
    assert_eq!(
        jobs.iter()
            .map(|job| (job.job_id, job.input.order))
            .collect::<Vec<_>>(),
        [(job_id, last)]
    );
    assert!(order("gold").await.is_err());
    assert_eq!(enqueued::<ShipOrder>(db).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn an_order_and_its_job_are_one_transaction_of_deadpool() -> Result<()> {
    let (_server, database, db) = shop().await?;
    let manager = deadpool_postgres::Manager::new(database.config(), NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).build()?;
    holds(&db, |item| trax_pools::deadpool::order(&pool, item)).await
}

#[tokio::test]
async fn an_order_and_its_job_are_one_transaction_of_bb8() -> Result<()> {
    let (_server, database, db) = shop().await?;
    let manager = bb8_postgres::PostgresConnectionManager::new(database.config(), NoTls);
    let pool = bb8::Pool::builder().max_size(2).build(manager).await?;
    holds(&db, |item| trax_pools::bb8::order(&pool, item)).await
}

#[tokio::test]
async fn an_order_and_its_job_are_one_transaction_of_sqlx() -> Result<()> {
    let (server, database, db) = shop().await?;
    let pool = sqlx::PgPool::connect(&server.url(database.name())).await?;
    holds(&db, |item| trax_pools::sqlx::order(&pool, item)).await
}

#[tokio::test]
async fn every_option_and_error_reaches_the_other_side_of_sqlx() -> Result<()> {
    let (server, database, db) = shop().await?;
    let pool = sqlx::PgPool::connect(&server.url(database.name())).await?;
    let options = JobOptions::new()
        .run_at(SystemTime::UNIX_EPOCH + Duration::from_millis(4_102_444_801_500))
        .group("mail")
        .priority(7)
        .max_retries(2)
        .timeout(Duration::from_millis(90_500))
        .unique_key("u")
        .concurrency_key("c")
        .version("v1")
        .rate("api")
        .rate_key("r")
        .cost(2)
        .on_duplicate(OnDuplicate::Replace);
    let rate = Rate::new(5, Duration::from_secs(60));
    Client::new(&db).configure_rate("api", &rate).await?;
    let job = NewJob::new("t", "it's").with(options);
    let id = trax_client::sqlx::enqueue(&pool, &job).await?;
    assert_eq!(trax_client::sqlx::enqueue(&pool, &job).await?, id);
    let sql = "select concat_ws('|', task, input, group_name, priority, max_retries, timeout, unique_key, concurrency_key, version, \
               rate, rate_key, cost, run_at at time zone 'UTC') from trax.work_queue";
    let stored: String = db.query_one(sql, &[]).await?.get(0);
    assert_eq!(
        stored,
        "t|\"it's\"|mail|7|2|00:01:30.5|u|c|v1|api|r|2|2100-01-01 00:00:01.5"
    );
    let ids = trax_client::sqlx::enqueue_many(&pool, &NewJobs::new("m", &["a", "b"])).await?;
    assert_eq!(ids.len(), 2);
    let claim = ClaimOptions::new().tasks(["m"]).max_jobs(2);
    let claimed = Client::new(&db).claim(&claim).await?;
    let inputs: Vec<String> = claimed.iter().map(|job| job.input.to_string()).collect();
    assert_eq!(inputs, ["\"a\"", "\"b\""]);
    let (job_id, token) = (claimed[0].job_id, claimed[0].token);
    assert!(trax_client::sqlx::complete(&pool, job_id, token, &7).await?);
    assert!(!trax_client::sqlx::complete(&pool, job_id, token, &7).await?);
    let wrong = NewJob::new("t", 1).with(JobOptions::new().priority(99));
    let refused = trax_client::sqlx::enqueue(&pool, &wrong).await;
    assert!(
        matches!(&refused, Err(Error::InvalidArgument(report)) if report.hint.is_some()),
        "{refused:?}"
    );
    Ok(())
}
