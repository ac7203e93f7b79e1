//! Jobs with steps, run inline through their waits.

use super::{Result, scene, worker};
use std::time::{Duration, Instant};
use trax_client::testkit::{Ended, pass_time};
use trax_client::{Children, Client, Context, HandlerResult, JobId, NewJob, Worker};

const DAY: Duration = Duration::from_secs(86_400);

/// The text of the error of a job that cannot be run through.
async fn stuck(worker: &Worker, db: &tokio_postgres::Client, job: JobId) -> String {
    match worker.run_through(db, job).await {
        Ok(ran) => panic!("it ran: {ran}"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn sleeps_retries_and_children_of_years_take_no_time() -> Result {
    let (database, db) = scene().await?;
    let client = Client::new(&db);
    let parent = |(): (), ctx: Context| async move {
        ctx.sleep("year", 365 * DAY).await?;
        ctx.spawn("fast", &NewJob::new("leaf", 1)).await?;
        ctx.spawn("slow", &NewJob::new("branch", 1)).await?;
        let first = ctx.children(Children::Any).await?;
        let ended = first.iter().filter(|child| child.output.is_some()).count();
        let all = ctx.children(Children::All).await?;
        HandlerResult::Ok((ended, all.len(), ctx.attempt()))
    };
    let branch = |n: i32, ctx: Context| async move {
        ctx.sleep("month", 30 * DAY).await?;
        if ctx.attempt() == 1 {
            return Err("again".into());
        }
        ctx.spawn("leaf", &NewJob::new("leaf", n)).await?;
        ctx.children(Children::All).await?;
        HandlerResult::Ok(n)
    };
    let worker = worker(&database)
        .handle("parent", parent)
        .handle("branch", branch)
        .handle(
            "leaf",
            |n: i32, _: Context| async move { HandlerResult::Ok(n) },
        );
    let begun = Instant::now();
    let job = client.enqueue(&NewJob::new("parent", ())).await?;
    let ran = worker.run_through(&db, job).await?;
    assert_eq!(ran.output::<(usize, usize, i32)>()?, (1, 2, 1), "{ran}");
    assert!(begun.elapsed() < DAY, "{:?}", begun.elapsed());
    let again = stuck(&worker, &db, job).await;
    assert_eq!(
        again,
        format!("job {job} has ended before, or does not exist")
    );
    assert!(client.check().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_wait_ends_by_a_signal_or_when_its_time_has_passed() -> Result {
    let (database, db) = scene().await?;
    let client = Client::new(&db);
    let waits = |(): (), ctx: Context| async move {
        let first: Option<i32> = ctx.signal("go", Some(DAY)).await?;
        let second: Option<i32> = ctx.signal("go", Some(DAY)).await?;
        HandlerResult::Ok((first, second))
    };
    let worker = worker(&database).handle("waits", waits);
    let job = client.enqueue(&NewJob::new("waits", ())).await?;
    let ran = worker.run_through(&db, job).await?;
    assert_eq!((ran.ended, ran.attempt), (Ended::Suspended, 1), "{ran}");
    let waiting = stuck(&worker, &db, job).await;
    let send = "waits for the signal \"go\"; send it with Client::send_signal";
    assert_eq!(waiting, format!("job {job} {send}"));
    client.send_signal(job, "go", &7, None).await?;
    assert_eq!(worker.run_through(&db, job).await?.ended, Ended::Suspended);
    pass_time(&db, DAY / 2).await?;
    assert!(stuck(&worker, &db, job).await.ends_with(send), "not yet");
    pass_time(&db, DAY / 2).await?;
    let ran = worker.run_through(&db, job).await?;
    let output = ran.output::<(Option<i32>, Option<i32>)>()?;
    assert_eq!(output, (Some(7), None), "{ran}");
    assert!(client.check().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_job_that_no_test_can_run_is_named_with_what_it_waits_for() -> Result {
    let (database, db) = scene().await?;
    let client = Client::new(&db);
    let parent = |task: String, ctx: Context| async move {
        ctx.spawn("child", &NewJob::new(task, ())).await?;
        ctx.children(Children::All).await?;
        HandlerResult::Ok(())
    };
    let listens = |(): (), ctx: Context| async move {
        ctx.signal::<i32>("go", None).await?;
        HandlerResult::Ok(())
    };
    let worker = worker(&database)
        .handle("parent", parent)
        .handle("listens", listens);
    let job = client.enqueue(&NewJob::new("parent", "elsewhere")).await?;
    let said = stuck(&worker, &db, job).await;
    assert!(said.contains("no handler for task \"elsewhere\""), "{said}");
    let job = client.enqueue(&NewJob::new("parent", "listens")).await?;
    let said = stuck(&worker, &db, job).await;
    assert!(said.contains("waits for the signal \"go\""), "{said}");
    let nobody = stuck(&worker, &db, JobId(77_000)).await;
    assert_eq!(nobody, "job 77000 has ended before, or does not exist");
    Ok(())
}
