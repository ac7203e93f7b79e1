//! Silent hosts and restarted servers: the time that a worker is without a server.

use super::{enqueue, start, state_becomes, worker_at, worker_config};
use harness::proxy::{BlackHole, Freezer};
use harness::scheduler::{connect, execute, live_database, live_server, scheduling, value};
use harness::session::Session;
use harness::{PATIENCE, database, eventually, shared_server};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio_postgres::{Client, Config};
use trax_client::testkit::{Database, Stop};
use trax_client::{Client as Trax, Context, JobError, NewJobs, Worker};

const LEASE: Duration = Duration::from_secs(6);

/// The address of these ports on this machine, in this order.
fn hosts(database: &Database, ports: &[u16]) -> Config {
    let mut config = Config::new();
    for port in ports {
        config.host("127.0.0.1").port(*port);
    }
    config.user("postgres").dbname(database.name());
    config
}

async fn nap(millis: u64, _: Context) -> Result<(), JobError> {
    tokio::time::sleep(Duration::from_millis(millis)).await;
    Ok(())
}

fn napping(config: Config) -> Worker {
    worker_at(config).lease(LEASE).handle("nap", nap)
}

/// Returns the shortest remaining time of the lease while a job runs.
async fn least_left(client: &Client) -> f64 {
    let mut least = f64::MAX;
    let sql = "select extract(epoch from min(lease_expires_at) - clock_timestamp())::float8 from trax.lease";
    while let Some(left) = value::<Option<f64>>(client, sql).await {
        least = least.min(left);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    least
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_two_of_three_hosts_silent_a_worker_works_and_keeps_its_leases() {
    let database = database().await;
    let client = connect(&database).await;
    let hole = BlackHole::open().await;
    let silent = Freezer::before(1).await;
    silent.freeze();
    let job = enqueue(&client, "nap", LEASE.as_millis() as u64 + 2000).await;
    let begun = Instant::now();
    let ports = [hole.port(), silent.port(), shared_server().port()];
    let running = start(napping(hosts(&database, &ports)));
    state_becomes(&client, job, "in_progress").await;
    let claimed = begun.elapsed();
    let least = least_left(&client).await;
    println!("claimed after {claimed:?}; at the least {least:.2} s of {LEASE:?} were left");
    state_becomes(&client, job, "completed").await;
    let summary = running.drain().await;
    assert_eq!((summary.completed, summary.lost), (1, 0), "{summary}");
    assert!(claimed < Duration::from_secs(3), "{claimed:?}");
    // The first heartbeat is sent after a third of the lease, and needs less than another third.
    assert!(least > LEASE.as_secs_f64() / 3.0, "{least}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_freezes_costs_neither_the_lease_nor_the_claims_that_another_host_takes() {
    let database = database().await;
    let client = connect(&database).await;
    let freezer = Freezer::before(shared_server().port()).await;
    let job = enqueue(&client, "nap", 2 * LEASE.as_millis() as u64).await;
    let ports = [freezer.port(), shared_server().port()];
    let running = start(napping(hosts(&database, &ports)));
    state_becomes(&client, job, "in_progress").await;
    let of_worker = "select count(*) from pg_stat_activity where application_name like 'trax worker %' and datname = current_database()";
    eventually("both connections", PATIENCE, async || {
        match value::<i64>(&client, of_worker).await {
            2 => Ok(()),
            seen => Err(seen.to_string()),
        }
    })
    .await;
    // A claim in progress would take the next job, and its answer would be lost.
    freezer.freeze_when_answered().await;
    let frozen = Instant::now();
    let next = enqueue(&client, "nap", 0).await;
    let claimed = async {
        state_becomes(&client, next, "completed").await;
        frozen.elapsed()
    };
    let (claimed, least) = tokio::join!(claimed, least_left(&client));
    println!(
        "claimed {claimed:?} after the freeze; at the least {least:.2} s of {LEASE:?} were left"
    );
    state_becomes(&client, job, "completed").await;
    let summary = running.drain().await;
    assert_eq!((summary.completed, summary.lost), (2, 0), "{summary}");
    // Half a lease for the unanswered call, and an attempt to reach the silent host.
    assert!(claimed < LEASE, "{claimed:?}");
    assert!(least > LEASE.as_secs_f64() / 4.0, "{least}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_of_one_host_that_thaws_goes_on_with_the_same_jobs() {
    let database = live_database().await;
    let client = connect(&database).await;
    let freezer = Freezer::before(live_server().port()).await;
    let job = enqueue(&client, "nap", 8000).await;
    let running = start(napping(hosts(&database, &[freezer.port()])));
    state_becomes(&client, job, "in_progress").await;
    freezer.freeze();
    tokio::time::sleep(LEASE / 2).await;
    freezer.thaw();
    state_becomes(&client, job, "completed").await;
    let summary = running.drain().await;
    assert_eq!((summary.completed, summary.lost), (1, 0), "{summary}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_back_within_two_seconds_of_its_server() {
    let server = scheduling().setting("synchronous_commit", "on");
    let mut server = server.start().expect("a server starts");
    let database = server.database("away").await.expect("a database is made");
    let mut client = connect(&database).await;
    let running = start(napping(database.config()));
    for stop in [Stop::Fast, Stop::Immediate] {
        Trax::new(&client)
            .enqueue_many(&NewJobs::new("nap", &[0; 2]))
            .await
            .expect("jobs are enqueued");
        execute(&client, "create table if not exists padding as select n, repeat('x', 500) from generate_series(1, 50000) n").await;
        eventually("nothing waits", PATIENCE, async || {
            match value::<i64>(&client, "select count(*) from trax.work_queue").await {
                0 => Ok(()),
                seen => Err(seen.to_string()),
            }
        })
        .await;
        tokio::task::block_in_place(|| server.stop(stop)).expect("the server stops");
        tokio::time::sleep(Duration::from_secs(7)).await;
        let starting = Instant::now();
        tokio::task::block_in_place(|| server.start()).expect("the server starts again");
        client = connect(&database).await;
        let up = Instant::now();
        let job = enqueue(&client, "nap", 0).await;
        state_becomes(&client, job, "completed").await;
        let back = up.elapsed();
        println!(
            "{stop:?}: up after {:?}, a job done {back:?} later",
            up - starting
        );
        assert!(back < Duration::from_secs(2), "{back:?}");
    }
    running.drain().await;
}

/// Returns the number of workers' sessions in this database that match `what`.
async fn of_workers(client: &Client, what: &str) -> i64 {
    let sql = format!(
        "select count(*) from pg_stat_activity
         where application_name like 'trax worker %' and datname = current_database() and {what}"
    );
    value(client, &sql).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_back_within_two_seconds_of_a_host_that_swallowed_its_packets() {
    let database = database().await;
    let client = connect(&database).await;
    let job = enqueue(&client, "nap", 0).await;
    let hole = BlackHole::open().await;
    let mut config = hosts(&database, &[hole.port()]);
    config.connect_timeout(Duration::from_secs(15));
    let running = start(napping(config).lease(10 * LEASE));
    // The kernel retransmits after 7 s, and then after 11 or 15.
    tokio::time::sleep(Duration::from_millis(7300)).await;
    let _server = hole.lead_to(shared_server().port());
    let back = Instant::now();
    state_becomes(&client, job, "completed").await;
    let back = back.elapsed();
    println!("a job done {back:?} after the host was back");
    assert!(back < Duration::from_secs(2), "{back:?}");
    running.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_that_wait_for_a_locked_table_leave_no_sessions_behind() {
    let database = database().await;
    let client = connect(&database).await;
    let job = enqueue(&client, "nap", 500).await;
    let running = start(napping(worker_config(&database)));
    state_becomes(&client, job, "in_progress").await;
    let mut administrator = connect(&database).await;
    let lock = administrator.transaction().await.expect("it begins");
    lock.execute("lock table trax.lease in access exclusive mode", &[])
        .await
        .expect("it is locked");
    let begun = Instant::now();
    let mut most = 0;
    while begun.elapsed() < 3 * LEASE / 2 {
        most = most.max(of_workers(&client, "wait_event_type = 'Lock'").await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("{most} sessions of the worker waited at once");
    lock.rollback().await.expect("it ends");
    state_becomes(&client, job, "completed").await;
    running.drain().await;
    assert!(most <= 2, "the claims' and the heartbeats'");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_does_not_answer_costs_no_lease() {
    let server = scheduling()
        .setting("synchronous_commit", "on")
        .start()
        .expect("a server starts");
    let database = server.database("app").await.expect("a database is made");
    let client = connect(&database).await;
    let s = Session::of(&database).await;
    let short = enqueue(&client, "gated", 0).await;
    let long = enqueue(&client, "nap", 2 * LEASE.as_millis() as u64).await;
    let (open, gate) = oneshot::channel::<()>();
    let gate = Mutex::new(Some(gate));
    let gated = move |_: u64, _: Context| {
        let gate = gate.lock().expect("no test panics here").take();
        async move {
            gate.expect("it runs once").await.ok();
            Ok::<_, JobError>(())
        }
    };
    let worker = napping(database.config()).handle("gated", gated);
    let running = start(worker.concurrency(2));
    for job in [short, long] {
        state_becomes(&client, job, "in_progress").await;
    }
    s.lose_standby(&database).await;
    drop(open);
    eventually(
        "a completion that waits for the standby",
        PATIENCE,
        async || match of_workers(&client, "wait_event = 'SyncRep'").await {
            0 => Err("none".to_owned()),
            _ => Ok(()),
        },
    )
    .await;
    let begun = Instant::now();
    let (mut least, mut most) = (f64::MAX, 0);
    while begun.elapsed() < 3 * LEASE / 2 {
        let left = format!(
            "select extract(epoch from lease_expires_at - clock_timestamp())::float8 from trax.lease where job_id = {long}"
        );
        least = least.min(value(&client, &left).await);
        most = most.max(of_workers(&client, "true").await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("{least:.2} s of {LEASE:?} were left at the least, with {most} sessions");
    s.need_no_standby().await;
    for job in [short, long] {
        state_becomes(&client, job, "completed").await;
    }
    let summary = running.drain().await;
    // The worker cannot know whether the unanswered completion was recorded.
    assert_eq!(summary.completed + summary.lost, 2, "{summary}");
    let attempts = "select count(*) from trax.run where attempt = 1 and state = 'completed'";
    assert_eq!(value::<i64>(&client, attempts).await, 2);
    assert_eq!(
        value::<i64>(&client, "select count(*) from trax.run").await,
        2
    );
    assert!(least > LEASE.as_secs_f64() / 4.0, "{least}");
    assert!(most <= 6, "{most} sessions");
}
