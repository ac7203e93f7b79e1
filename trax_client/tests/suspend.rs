//! A suspended machine: leases and tokens held by a worker end meanwhile. The only test in its
//! process, since it changes the clock.

use std::error::Error;
use std::time::Duration;

use trax_client::testkit::{Server, machine_slept};
use trax_client::{Client, Context, JobError, JobOptions, NewJob};
use trax_client::{TokenGuard, TokenRequest, Worker};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const DEADLINE: Duration = Duration::from_secs(90);
/// Only the clock ends it here: heartbeats are sent 20 minutes later.
const LEASE: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn after_a_sleep_of_the_machine_no_lease_and_no_token_counts_as_held() -> Result {
    let server = Server::options().fast().start()?;
    let database = server.database("sleep").await?;
    let client = database.connect().await?;
    let request = TokenRequest::new("n", "h").ttl(LEASE);
    let token = TokenGuard::try_acquire(database.config(), request).await?;
    let token = token.ok_or("it is free")?;
    let (told, mut reasons) = tokio::sync::mpsc::unbounded_channel();
    let work = move |(): (), ctx: Context| {
        let told = told.clone();
        async move {
            told.send(None)?;
            told.send(Some(ctx.cancelled().await))?;
            Err::<(), _>(JobError::new("stopped"))
        }
    };
    let worker = Worker::new(database.config())
        .without_signals()
        .lease(LEASE)
        .handle("t", work);
    let stop = worker.shutdown();
    let run = tokio::spawn(worker.run());
    let options = JobOptions::new().timeout(LEASE * 24);
    let job = NewJob::new("t", ()).with(options);
    let job = Client::new(&client).enqueue(&job).await?;
    let mut next = async || tokio::time::timeout(DEADLINE, reasons.recv()).await;
    assert_eq!(next().await?, Some(None), "it runs");

    machine_slept(LEASE / 2);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!token.is_lost(), "half of its time");

    machine_slept(LEASE);
    let reason = next().await?.flatten();
    assert_eq!(reason, Some(trax_client::Reason::LeaseLost));
    tokio::time::timeout(DEADLINE, token.lost()).await?;
    // The server still considers it held, and it is released without spending an attempt.
    assert_eq!(next().await?, Some(None), "it runs again");
    let sql = "select attempt from trax.lease where job_id = $1";
    let attempt: i32 = client.query_one(sql, &[&job.0]).await?.get(0);
    assert_eq!(attempt, 1);
    stop.release();
    tokio::time::timeout(DEADLINE, run).await???;
    Ok(())
}
