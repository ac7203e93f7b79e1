//! Leases that are extended, lost, or taken away.

use super::{enqueue, obedient, run, runs, start, state_becomes, worker};
use harness::scheduler::{connect, execute, live_database, value, violations};
use harness::{PATIENCE, database, eventually};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use trax_client::testkit::Database;
use trax_client::{
    Cancelled, Client as Trax, Context, HandlerResult, JobError, JobOptions, NewJob, Reason,
};

/// The lease in these tests: a worker that is delayed by less than two seconds keeps it. Schedulers
/// reap 60 times within it.
const LEASE: Duration = Duration::from_secs(3);

async fn hasty_database() -> Database {
    let database = live_database().await;
    let client = connect(&database).await;
    let sql = format!(
        "alter database {} set trax.tick_interval = '50 ms'",
        database.name()
    );
    execute(&client, &sql).await;
    database
}

#[tokio::test]
async fn heartbeats_keep_a_job_that_takes_longer_than_its_lease() {
    let database = hasty_database().await;
    let client = connect(&database).await;
    let job = enqueue(&client, "slow", 1).await;
    let slow = async |_: u32, ctx: Context| {
        tokio::select! {
            () = tokio::time::sleep(LEASE * 3) => Ok(()),
            reason = ctx.cancelled() => Err(JobError::permanent(format!("{reason:?}"))),
        }
    };
    let summary = run(worker(&database).lease(LEASE).handle("slow", slow)).await;
    assert_eq!(summary.completed, 1);
    assert_eq!(runs(&client, job).await, ["completed"]);
}

#[tokio::test]
async fn a_handler_that_blocks_its_thread_for_three_leases_keeps_the_lease() {
    let database = hasty_database().await;
    let client = connect(&database).await;
    let job = enqueue(&client, "block", 1).await;
    // The test's runtime has one thread: while it is blocked, no other part of the worker runs on
    // it.
    let block = |_: u32, _: Context| async {
        std::thread::sleep(LEASE * 3);
        Ok::<_, JobError>(())
    };
    let summary = run(worker(&database).lease(LEASE).handle("block", block)).await;
    assert_eq!(summary.completed, 1);
    assert_eq!(runs(&client, job).await, ["completed"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_thread_holds_up_nobody_who_has_another() {
    let database = hasty_database().await;
    let client = connect(&database).await;
    let blocking = enqueue(&client, "block", 1).await;
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = Arc::new(Mutex::new(ended));
    let block = move |_: u32, _: Context| {
        let ended = Arc::clone(&ended);
        async move {
            let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
            ended.recv_timeout(PATIENCE)?;
            Ok::<_, JobError>(())
        }
    };
    let quick = |_: u32, _: Context| async { Ok::<_, JobError>(()) };
    let running = start(
        worker(&database)
            .concurrency(2)
            .lease(LEASE)
            .handle("block", block)
            .handle("quick", quick),
    );
    state_becomes(&client, blocking, "in_progress").await;
    for _ in 0..50 {
        let job = enqueue(&client, "quick", 1).await;
        state_becomes(&client, job, "completed").await;
    }
    let held = "select count(*) = 1 from trax.lease where task = 'block'";
    assert!(value::<bool>(&client, held).await);
    end.send(()).expect("it waits");
    state_becomes(&client, blocking, "completed").await;
    assert_eq!(running.drain().await.completed, 51);
}

#[tokio::test]
async fn a_cancel_reaches_the_handler_and_the_job_ends_as_cancelled() {
    let database = database().await;
    let client = connect(&database).await;
    let job = enqueue(&client, "t", 1).await;
    let running = start(worker(&database).lease(LEASE).handle("t", obedient));
    state_becomes(&client, job, "in_progress").await;
    let said = Trax::new(&client)
        .cancel(job)
        .await
        .expect("a job can be cancelled");
    assert_eq!(said, Cancelled::Requested);
    state_becomes(&client, job, "cancelled").await;
    let summary = running.drain().await;
    assert_eq!((summary.cancelled, summary.completed), (1, 0));
    assert_eq!(
        value::<i64>(&client, "select count(*) from trax.dead_letter").await,
        0
    );
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_handler_that_does_not_obey_a_cancel_is_dropped() {
    let database = database().await;
    let client = connect(&database).await;
    let job = enqueue(&client, "t", 1).await;
    let deaf = |_: u32, _: Context| std::future::pending::<HandlerResult<()>>();
    let deaf = worker(&database)
        .lease(LEASE)
        .cancel_patience(Duration::from_millis(100))
        .handle("t", deaf);
    let running = start(deaf);
    state_becomes(&client, job, "in_progress").await;
    Trax::new(&client)
        .cancel(job)
        .await
        .expect("a job can be cancelled");
    state_becomes(&client, job, "cancelled").await;
    assert_eq!(running.drain().await.cancelled, 1);
}

#[tokio::test]
async fn a_handler_whose_lease_was_taken_away_is_reported_so() {
    let database = database().await;
    let client = connect(&database).await;
    let job = enqueue(&client, "t", 1).await;
    let (tell, told) = std::sync::mpsc::channel();
    let handler = move |_: u32, ctx: Context| {
        let tell = tell.clone();
        async move {
            if ctx.attempt() == 1 {
                tell.send(ctx.cancelled().await)?;
            }
            Ok::<_, JobError>(())
        }
    };
    let running = start(worker(&database).lease(LEASE).handle("t", handler));
    eventually("its begin is known", PATIENCE, async || {
        let sql = "select count(*) from trax.lease where not ahead";
        match value::<i64>(&client, sql).await {
            1 => Ok(()),
            seen => Err(format!("{seen}")),
        }
    })
    .await;
    // As if no heartbeat had arrived for the length of a lease.
    execute(
        &client,
        "update trax.lease set lease_expires_at = now() - interval '1 s', reap_at = now() - interval '1 s';
        select * from trax.tick()",
    )
    .await;
    state_becomes(&client, job, "completed").await;
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Reason::LeaseLost));
    running.drain().await;
    let ended = runs(&client, job).await;
    assert_eq!(
        ended,
        [
            "failed lease_expired the lease expired without a heartbeat",
            "completed"
        ]
    );
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_attempt_over_its_timeout_is_asked_to_stop_and_ends_as_timed_out() {
    let database = hasty_database().await;
    let client = connect(&database).await;
    let options = JobOptions::new()
        .timeout(Duration::from_millis(300))
        .max_retries(0);
    let job = Trax::new(&client)
        .enqueue(&NewJob::new("t", 1).with(options))
        .await
        .expect("a job is enqueued");
    let running = start(worker(&database).lease(LEASE).handle("t", obedient));
    state_becomes(&client, job, "failed").await;
    running.drain().await;
    let ended = runs(&client, job).await.join("");
    assert!(ended.starts_with("failed timeout"), "{ended}");
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn jobs_that_wait_behind_a_long_one_are_marked_as_fetched_ahead() {
    let database = database().await;
    let client = connect(&database).await;
    for n in 0..40 {
        enqueue(&client, "a", n).await;
    }
    let gate = Arc::new(tokio::sync::Notify::new());
    let opened = Arc::clone(&gate);
    let waits = move |n: u32, _: Context| {
        let opened = Arc::clone(&opened);
        async move {
            if n == 20 {
                opened.notified().await;
            }
            Ok(())
        }
    };
    let worker = worker(&database).concurrency(1).prefetch(30).lease(LEASE);
    let running = start(worker.handle("a", waits));
    let marks = "select coalesce(string_agg(distinct ahead::text, ' '), '')
        from trax.lease where (input = '20') =";
    eventually(
        "a job that waits",
        PATIENCE,
        async || match value::<String>(&client, &format!("{marks} false")).await {
            seen if seen == "true" => Ok(()),
            seen => Err(seen),
        },
    )
    .await;
    eventually(
        "a heartbeat of the long one",
        PATIENCE,
        async || match value::<String>(&client, &format!("{marks} true")).await {
            seen if seen == "false" => Ok(()),
            seen => Err(seen),
        },
    )
    .await;
    gate.notify_one();
    running.drain().await;
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_listener_that_panics_costs_neither_a_lease_nor_the_worker() {
    let database = hasty_database().await;
    let client = connect(&database).await;
    let job = enqueue(&client, "slow", true).await;
    enqueue(&client, "slow", false).await;
    let slow = async |lasts: bool, ctx: Context| {
        if !lasts {
            return Err(JobError::permanent("told by the loop"));
        }
        // Too large: reported by the heartbeat thread.
        ctx.progress("x".repeat(10_000))?;
        tokio::select! {
            () = tokio::time::sleep(LEASE * 2) => Ok(()),
            reason = ctx.cancelled() => Err(JobError::permanent(format!("{reason:?}"))),
        }
    };
    let told = Arc::new(Mutex::new(0));
    let count = Arc::clone(&told);
    let worker = worker(&database)
        .lease(LEASE)
        .on_event(move |event| {
            *count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            panic!("{event}");
        })
        .handle("slow", slow);
    let summary = run(worker).await;
    assert_eq!((summary.completed, summary.dead), (1, 1), "{summary}");
    assert_eq!(runs(&client, job).await, ["completed"]);
    assert!(*told.lock().unwrap_or_else(PoisonError::into_inner) >= 2);
}
