//! Faults while a worker runs: the connection breaks at each message, signals arrive at any moment,
//! and the server or the handler fails.
//!
//! `TRAX_FAULTS=whole` cuts at every message and stops at 200 moments; by default only some are
//! tried.

use super::signal::child_worker;
use super::{enqueue, run, runs, start, worker, worker_at};
use harness::process::send_signal;
use harness::proxy::Proxy;
use harness::scheduler::{
    connect, execute, live_database, live_server, scheduling, value, violations,
};
use harness::{PATIENCE, database, eventually, whole_faults};
use std::time::Duration;
use tokio_postgres::Client;
use trax_client::testkit::{Database, Stop};
use trax_client::{Client as Trax, Context, HandlerResult, JobError, JobOptions, NewJobs};

/// Sets immediate retries, and makes the cycle check leases 20 times a second.
pub(super) async fn hasty(database: &Database, client: &Client) {
    let name = database.name();
    let sql = format!(
        "alter database {name} set trax.tick_interval = '50 ms'; alter database {name} set trax.retry_delay = '10 ms';
         alter database {name} set trax.default_max_retries = 20"
    );
    execute(client, &sql).await;
}

pub(super) async fn all_complete(client: &Client, jobs: i64) {
    eventually("every job is completed", PATIENCE, async || {
        let sql = "select count(*) filter (where state = 'completed') || ' of ' || count(*) from trax.job";
        let seen = client
            .query_one(sql, &[])
            .await
            .map_err(|error| format!("{error:?}"))?
            .get::<_, String>(0);
        if seen == format!("{jobs} of {jobs}") {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
    let twice = "select count(*) from (select from trax.run where state = 'completed' group by job_id having count(*) > 1) x";
    assert_eq!(value::<i64>(client, twice).await, 0);
    assert_eq!(violations(client).await, Vec::<String>::new());
}

fn through(proxy: &Proxy, database: &Database) -> tokio_postgres::Config {
    let mut config = tokio_postgres::Config::new();
    config
        .host("127.0.0.1")
        .port(proxy.port())
        .user("postgres")
        .dbname(database.name());
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_is_lost_spends_no_attempt() {
    let database = live_database().await;
    let client = connect(&database).await;
    hasty(&database, &client).await;
    let options = JobOptions::new().max_retries(0);
    Trax::new(&client)
        .enqueue_many(&NewJobs::new("t", &["the answer"; 3]).with(options))
        .await
        .expect("jobs are enqueued");
    let proxy = Proxy::before_answer(live_server().port(), "the answer").await;
    let work = |_: String, _: Context| async { Ok::<_, JobError>(()) };
    let running = start(
        worker_at(through(&proxy, &database))
            .concurrency(4)
            .lease(Duration::from_millis(900))
            .handle("t", work),
    );
    all_complete(&client, 3).await;
    assert!(proxy.has_cut());
    running.drain().await;
    let sql = "select string_agg(concat_ws(' ', attempt, state, final, error), ', ' order by job_id, attempt) from trax.run";
    let lost = "0 failed f its worker was lost before it reported the begin, 1 completed t";
    assert_eq!(
        value::<String>(&client, sql).await,
        [lost; 3].join(", "),
        "no handler began what the answer held"
    );
}

#[tokio::test]
async fn a_job_that_runs_on_is_soon_known_to_have_begun() {
    let database = live_database().await;
    let client = connect(&database).await;
    Trax::new(&client)
        .enqueue_many(&NewJobs::new("t", &[0; 3]))
        .await
        .expect("jobs are enqueued");
    let stays = |_: u32, _: Context| std::future::pending::<HandlerResult<()>>();
    // The first heartbeat is due in twenty minutes.
    let running = start(
        worker(&database)
            .concurrency(3)
            .lease(Duration::from_secs(3600))
            .grace(Duration::ZERO)
            .cancel_patience(Duration::ZERO)
            .handle("t", stays),
    );
    eventually("all have begun", PATIENCE, async || {
        let sql = "select coalesce(string_agg(ahead::text, ' '), '') from trax.lease";
        match value::<String>(&client, sql).await {
            seen if seen == "false false false" => Ok(()),
            seen => Err(seen),
        }
    })
    .await;
    running.drain().await;
}

/// Runs a worker whose connections are cut before message `cut_at`; returns whether that many
/// messages were sent.
async fn cut_before(cut_at: i64) -> bool {
    let database = live_database().await;
    let client = connect(&database).await;
    hasty(&database, &client).await;
    execute(
        &client,
        "select trax.enqueue_many('t', array['450', '1', '1', '900']::jsonb[])",
    )
    .await;
    let proxy = Proxy::before(live_server().port(), cut_at).await;
    let work = |millis: u64, _: Context| async move {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        Ok::<_, JobError>(())
    };
    let running = start(
        worker_at(through(&proxy, &database))
            .concurrency(2)
            .lease(Duration::from_millis(900))
            .grace(Duration::from_secs(2))
            .handle("t", work),
    );
    all_complete(&client, 4).await;
    let cut = proxy.has_cut();
    running.drain().await;
    all_complete(&client, 4).await;
    // The scheduler occupies one of the server's worker slots, and there are more cuts than slots.
    drop(client);
    let elsewhere = connect(&live_server().existing("postgres")).await;
    execute(
        &elsewhere,
        &format!("drop database {} with (force)", database.name()),
    )
    .await;
    cut
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_at_any_message_of_claim_heartbeat_and_completion_loses_nothing() {
    // The scenario takes about 100 messages, followed by polls of the idle queue.
    let step = if whole_faults() { 1 } else { 9 };
    let cuts: Vec<i64> = (1..=120).step_by(step).collect();
    let mut cut = 0;
    for some in cuts.chunks(6) {
        let tried: Vec<_> = some
            .iter()
            .map(|at| tokio::spawn(cut_before(*at)))
            .collect();
        for one in tried {
            cut += usize::from(one.await.expect("nothing is lost after a cut"));
        }
    }
    assert!(cut * 2 > cuts.len(), "{cut} of {} were cut", cuts.len());
}

#[tokio::test]
async fn a_signal_at_any_moment_loses_no_job_and_spends_no_attempt() {
    let database = live_database().await;
    let client = connect(&database).await;
    let rounds = if whole_faults() { 200 } else { 8 };
    for round in 0..rounds {
        let sql = format!(
            "select trax.enqueue_many('nap', array_fill('{}'::jsonb, array[60]))",
            round % 7
        );
        execute(&client, &sql).await;
        let mut child = child_worker(&database, PATIENCE);
        // Spread over the start, the work and the idle time, by the golden ratio.
        let moment = f64::from(round) * 0.618_033_988_749 % 1.0 * 400.0;
        tokio::time::sleep(Duration::from_millis(moment as u64)).await;
        child.says("the child is running", PATIENCE).await;
        send_signal("TERM", child.id());
        let status = child.ends(PATIENCE).await;
        assert!(status.success(), "round {round}: {}", child.output());
        // The running jobs take some milliseconds and end within the grace period.
        let output = child.says("the child ended", PATIENCE).await;
        assert!(output.contains("ended: Drained"), "round {round}: {output}");
        let sql = "select count(*) from trax.lease";
        assert_eq!(value::<i64>(&client, sql).await, 0, "round {round}");
    }
    let sql = "select count(*) from trax.work_queue where attempts > 0";
    assert_eq!(value::<i64>(&client, sql).await, 0);
    let nap = |_: u64, _: Context| async { Ok::<_, JobError>(()) };
    run(worker(&database).handle("nap", nap)).await;
    all_complete(&client, 60 * i64::from(rounds)).await;
    let sql = "select count(*) from trax.run where attempt > 1 or state <> 'completed'";
    assert_eq!(
        value::<i64>(&client, sql).await,
        0,
        "none had an attempt too many"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_the_server_and_the_end_of_its_sessions_under_load_lose_nothing() {
    // Commits must survive a crash.
    let server = scheduling().setting("synchronous_commit", "on");
    let mut server = server.start().expect("a server starts");
    let database = server
        .database("crashed")
        .await
        .expect("a database is made");
    let mut client = connect(&database).await;
    hasty(&database, &client).await;
    Trax::new(&client)
        .enqueue_many(&NewJobs::new("t", &[1; 4000]))
        .await
        .expect("jobs are enqueued");
    let work = |_: u32, _: Context| async {
        tokio::time::sleep(Duration::from_millis(2)).await;
        Ok::<_, JobError>(())
    };
    let running = start(
        worker(&database)
            .name("hunted")
            .concurrency(8)
            .lease(Duration::from_secs(2))
            .handle("t", work),
    );
    for (done, stop) in [
        (400, Some(Stop::Immediate)),
        (1000, None),
        (1800, Some(Stop::Fast)),
        (2600, Some(Stop::Immediate)),
    ] {
        eventually("some completions", PATIENCE, async || {
            match value::<i64>(
                &client,
                "select count(*) from trax.run where state = 'completed'",
            )
            .await
            {
                seen if seen >= done => Ok(()),
                seen => Err(format!("{seen}")),
            }
        })
        .await;
        let Some(stop) = stop else {
            for _ in 0..10 {
                execute(
                    &client,
                    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'trax worker hunted'",
                )
                .await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            continue;
        };
        tokio::task::block_in_place(|| server.stop(stop)).expect("the server stops");
        tokio::task::block_in_place(|| server.start()).expect("the server starts again");
        client = connect(&database).await;
    }
    all_complete(&client, 4000).await;
    let summary = running.drain().await;
    assert_eq!((summary.dead, summary.unreported), (0, 0), "{summary}");
}

#[tokio::test]
async fn a_delay_that_no_job_can_have_costs_neither_the_error_nor_the_report() {
    let database = database().await;
    let client = connect(&database).await;
    let sql = "select trax.enqueue(t, 'null', max_retries => 1) from unnest('{plain,detailed}'::text[]) t";
    execute(&client, sql).await;
    let far = |detailed: bool| {
        move |_: (), _: Context| async move {
            let error = JobError::new("it broke").retry_in(Duration::MAX);
            HandlerResult::<()>::Err(match detailed {
                true => error.detail(serde_json::json!({"line": 7})),
                false => error,
            })
        }
    };
    let worker = worker(&database).handle("plain", far(false));
    let summary = run(worker.handle("detailed", far(true))).await;
    assert_eq!((summary.retrying, summary.unreported), (2, 0), "{summary}");
    let runs = "select count(*) from trax.run where state = 'failed' and error = 'it broke'";
    assert_eq!(value::<i64>(&client, runs).await, 2);
    let kept = "select detail ->> 'line' from trax.run where task = 'detailed'";
    assert_eq!(value::<String>(&client, kept).await, "7");
}

#[tokio::test]
async fn two_megabytes_of_output_are_refused_and_harm_no_other_job() {
    let database = database().await;
    let client = connect(&database).await;
    let large = enqueue(&client, "t", 2 * 1024 * 1024).await;
    let others: Vec<_> = [1, 2, 3].to_vec();
    for size in &others {
        enqueue(&client, "t", size).await;
    }
    let fill = |size: usize, _: Context| async move { HandlerResult::Ok("x".repeat(size)) };
    let summary = run(worker(&database).handle("t", fill)).await;
    assert_eq!((summary.completed, summary.dead), (3, 1), "{summary}");
    let said = runs(&client, large).await.join("");
    assert!(
        said.starts_with("failed error the outcome was refused: ") && said.contains("54000"),
        "{said}"
    );
}
