//! Liveness and readiness of a worker, reported to HTTP probes and to systemd.

use super::{enqueue, run, start, state_becomes, worker, worker_config};
use harness::http::{get, status_becomes};
use harness::scheduler::connect;
use harness::{PATIENCE, database, eventually};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use trax_client::testkit::{Database, Stop};
use trax_client::{Context, Error, Event, HandlerResult, JobError, Worker};

/// The time that a loop may stall, in tests of a stall.
const STALL: Duration = Duration::from_millis(600);
/// The same in tests where a running loop must count as alive on a loaded machine.
const LONG_STALL: Duration = Duration::from_secs(3);

/// A worker that serves its health, and a receiver of the port.
fn watched(database: &Database, stall_limit: Duration) -> (Worker, Receiver<u16>) {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let worker = Worker::new(worker_config(database))
        .without_signals()
        .poll_interval(Duration::from_millis(20))
        .health_address("0")
        .stall_limit(stall_limit)
        .on_event(move |event| {
            if let Event::Serving { address } = event {
                let tell = tell.lock().unwrap_or_else(PoisonError::into_inner);
                tell.send(address.port()).expect("the test waits for it");
            }
        });
    (worker, told)
}

fn port(told: &Receiver<u16>) -> u16 {
    tokio::task::block_in_place(|| told.recv_timeout(PATIENCE)).expect("it serves")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_database_makes_a_worker_unready_and_not_dead_also_one_without_room() {
    let mut server = harness::options().fast().start().expect("a server starts");
    let database = server.database("cut").await.expect("a database is made");
    let client = connect(&database).await;
    let job = enqueue(&client, "long", 1).await;
    let (worker, told) = watched(&database, LONG_STALL);
    let long = |_: u32, ctx: Context| async move {
        ctx.cancelled().await;
        Ok::<_, JobError>(())
    };
    let running = start(worker.concurrency(1).grace(STALL).handle("long", long));
    let port = port(&told);
    status_becomes(port, "/readyz", 200).await;
    state_becomes(&client, job, "in_progress").await;

    tokio::task::block_in_place(|| server.stop(Stop::Fast)).expect("it stops");
    let why = status_becomes(port, "/readyz", 503).await;
    assert!(
        why.starts_with("claim: ") && why.lines().count() == 1,
        "{why}"
    );
    assert_eq!(get(port, "/livez").await, Ok((200, "ok\n".to_owned())));
    tokio::task::block_in_place(|| server.start()).expect("it starts again");
    status_becomes(port, "/readyz", 200).await;
    running.drain().await;
    assert!(
        get(port, "/livez").await.is_err(),
        "nobody answers for it any more"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_never_connected_lives_and_says_why_it_is_not_ready() {
    let mut server = harness::options().fast().start().expect("a server starts");
    let database = server.database("late").await.expect("a database is made");
    server.stop(Stop::Fast).expect("it stops");
    let (worker, told) = watched(&database, LONG_STALL);
    let health = worker.health();
    assert_eq!(health.ready(), Err("the worker has not started".to_owned()));
    let running = start(worker.handle("t", |_: u32, _: Context| async { Ok::<_, JobError>(()) }));
    let port = port(&told);
    eventually("a failed try", PATIENCE, async || {
        let (status, why) = get(port, "/readyz").await?;
        match why.starts_with("claim: connection: ") && status == 503 {
            true => Ok(()),
            false => Err(why),
        }
    })
    .await;
    assert_eq!(health.live(), Ok(()));
    assert_eq!(get(port, "/").await.map(|(status, _)| status), Ok(404));
    tokio::task::block_in_place(|| server.start()).expect("it starts");
    status_becomes(port, "/readyz", 200).await;
    running.drain().await;
    assert_eq!(health.live(), Err("the worker has ended".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_worker_lives_and_is_not_ready() {
    let database = database().await;
    let client = connect(&database).await;
    let job = enqueue(&client, "t", 1).await;
    let (end, ended) = tokio::sync::watch::channel(false);
    let (worker, told) = watched(&database, LONG_STALL);
    let running = start(worker.handle("t", move |_: u32, _: Context| {
        let mut ended = ended.clone();
        async move {
            ended.wait_for(|ended| *ended).await?;
            HandlerResult::Ok(())
        }
    }));
    let port = port(&told);
    state_becomes(&client, job, "in_progress").await;
    running.shutdown.drain();
    let why = status_becomes(port, "/readyz", 503).await;
    assert_eq!(why, "stopping: no more jobs are claimed\n");
    assert_eq!(get(port, "/livez").await, Ok((200, "ok\n".to_owned())));
    end.send_replace(true);
    running.drain().await;
}

#[tokio::test]
async fn a_full_worker_whose_calls_all_succeed_is_ready() {
    let database = database().await;
    let client = connect(&database).await;
    let job = enqueue(&client, "t", 1).await;
    let deaf = |_: u32, _: Context| std::future::pending::<HandlerResult<()>>();
    let full = worker(&database)
        .concurrency(1)
        .lease(Duration::from_secs(3))
        .stall_limit(LONG_STALL)
        .grace(Duration::ZERO)
        .handle("t", deaf);
    let health = full.health();
    let running = start(full);
    state_becomes(&client, job, "in_progress").await;
    // The job is claimed slightly before the worker receives it.
    let is_ready = async || health.ready().map_err(|why| why.to_string());
    eventually("the worker is ready", PATIENCE, is_ready).await;
    let begun = std::time::Instant::now();
    eventually("two limits pass", PATIENCE, async || {
        assert_eq!(health.ready(), Ok(()), "after {:?}", begun.elapsed());
        match begun.elapsed() > 2 * LONG_STALL {
            true => Ok(()),
            false => Err(format!("{:?}", begun.elapsed())),
        }
    })
    .await;
    running.drain().await;
}

#[test]
fn a_blocked_runtime_is_said_by_the_thread_that_answers_for_it() {
    let runtime = || tokio::runtime::Runtime::new().expect("a runtime starts");
    let (database, client) = runtime().block_on(async {
        let database = database().await;
        let client = connect(&database).await;
        enqueue(&client, "block", 1).await;
        (database, client)
    });
    drop(client);
    let (worker, told) = watched(&database, STALL);
    let (end, ended) = channel::<()>();
    let ended = Arc::new(Mutex::new(ended));
    let block = move |_: u32, _: Context| {
        let ended = Arc::clone(&ended);
        async move {
            let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
            // Blocks the runtime's only thread until the test has finished its checks.
            ended.recv_timeout(PATIENCE)?;
            Ok::<_, JobError>(())
        }
    };
    let blocked = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime starts");
        runtime.block_on(run(worker.handle("block", block)))
    });
    let port = told.recv_timeout(PATIENCE).expect("it serves");
    runtime().block_on(async {
        let why = status_becomes(port, "/livez", 503).await;
        assert!(why.starts_with("the claim loop has stalled for "), "{why}");
        let (status, same) = get(port, "/readyz").await.expect("an answer");
        assert!(
            status == 503 && same.starts_with("the claim loop"),
            "{same}"
        );
        end.send(()).expect("the handler waits");
    });
    let summary = blocked.join().expect("it does not panic");
    assert_eq!((summary.completed, summary.lost), (1, 0), "{summary}");
}

#[tokio::test]
async fn an_address_that_is_taken_ends_the_run_before_anything_is_claimed() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it has an address").to_string();
    let database = database().await;
    let worker =
        worker(&database).handle("t", |_: u32, _: Context| async { Ok::<_, JobError>(()) });
    let refused = worker.health_address(&address).run().await;
    match refused {
        Err(Error::Setup(said)) => assert!(said.contains(&address), "{said}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_number_of_silent_connections_leave_the_probes_answered() {
    let database = database().await;
    let (worker, told) = watched(&database, LONG_STALL);
    let running = start(worker.handle("t", |_: u32, _: Context| async { Ok::<_, JobError>(()) }));
    let port = port(&told);
    status_becomes(port, "/readyz", 200).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        let open = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
        silent.push(open.expect("it listens"));
    }
    let begun = std::time::Instant::now();
    assert_eq!(get(port, "/livez").await, Ok((200, "ok\n".to_owned())));
    println!(
        "answered after {:?} beside {} silent ones",
        begun.elapsed(),
        silent.len()
    );
    assert!(begun.elapsed() < Duration::from_secs(1));
    running.drain().await;
}
