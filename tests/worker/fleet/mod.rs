//! A worker of several databases.

mod away;
mod places;

use super::{run, start, worker, worker_at};
use crate::router::{Cluster, has_plproxy, shard_server};
use harness::prompt::takes_less_than;
use harness::session::{Session, session};
use harness::{PATIENCE, database, eventually};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio_postgres::Config;
use trax_client::testkit::Database;
use trax_client::{Context, HandlerResult, Stopped, Worker};

/// The number of running handlers of each database, and the gate that lets them end.
#[derive(Clone)]
struct Gate {
    running: Arc<Mutex<HashMap<String, usize>>>,
    most: Arc<Mutex<usize>>,
    open: Arc<Semaphore>,
}

impl Gate {
    fn new() -> Self {
        Gate {
            running: Arc::default(),
            most: Arc::default(),
            open: Arc::new(Semaphore::new(0)),
        }
    }

    async fn pass(&self, ctx: &Context) {
        let database = ctx.database().and_then(|at| at.get_dbname());
        let database = database.expect("it is from somewhere").to_owned();
        {
            let mut running = self.running.lock().expect("no test panics here");
            *running.entry(database.clone()).or_default() += 1;
            let sum: usize = running.values().sum();
            let mut most = self.most.lock().expect("no test panics here");
            *most = sum.max(*most);
        }
        self.open.acquire().await.expect("it is open").forget();
        let mut running = self.running.lock().expect("no test panics here");
        *running.entry(database).or_default() -= 1;
    }

    fn of(&self, database: &Database) -> usize {
        let running = self.running.lock().expect("no test panics here");
        running.get(database.name()).copied().unwrap_or_default()
    }

    /// Lets one of four running handlers end, once the slot of the previous one is taken again.
    fn end_one(&self, running: usize) {
        if running == 4 && self.open.available_permits() == 0 {
            self.open.add_permits(1);
        }
    }

    /// A worker whose handlers wait at this gate.
    fn guard(&self, worker: Worker) -> Worker {
        let gate = self.clone();
        worker.handle_any(move |_: serde_json::Value, ctx: Context| {
            let gate = gate.clone();
            async move {
                gate.pass(&ctx).await;
                Ok(())
            }
        })
    }
}

/// The events that a worker has reported.
struct Heard {
    heard: Receiver<String>,
    all: Mutex<String>,
}

impl Heard {
    /// Returns the worker and its future events.
    fn of(worker: Worker) -> (Worker, Self) {
        let (said, heard) = channel();
        let worker = worker.on_event(move |event| {
            // The receiver is gone after the end of the test.
            said.send(event.to_string()).ok();
        });
        let all = Mutex::default();
        (worker, Heard { heard, all })
    }

    /// Waits for a line with each of these texts.
    async fn hears(&self, wanted: &[&str]) {
        eventually(&format!("{wanted:?}"), PATIENCE, async || {
            let mut all = self.all.lock().expect("no test panics here");
            all.extend(self.heard.try_iter().map(|said| said + "\n"));
            let is_it = |line: &str| wanted.iter().all(|text| line.contains(text));
            match all.lines().any(is_it) {
                true => Ok(()),
                false => Err(all.clone()),
            }
        })
        .await;
    }
}

async fn nothing(_: serde_json::Value, _: Context) -> HandlerResult<()> {
    Ok(())
}

const COMPLETED: &str = "select count(*) from trax.run where state = 'completed'";

/// Returns the address of a database through a port of 127.0.0.1.
fn through(port: u16, database: &Database) -> Config {
    let mut config = Config::new();
    config.host("127.0.0.1").port(port).user("postgres");
    config.dbname(database.name());
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_all_databases_run_and_are_reported_where_they_are_from() {
    let (first, a) = session().await;
    let (second, b) = session().await;
    a.get("select trax.enqueue('t') from generate_series(1, 300)")
        .await;
    b.get("select trax.enqueue('t') from generate_series(1, 200)")
        .await;
    let worker = worker(&first).also(second.config()).handle_any(nothing);
    let counts = worker.counts();
    let summary = worker.until_empty().run().await.expect("it ends");
    assert_eq!((summary.completed, summary.stopped), (500, Stopped::Empty));
    assert_eq!(counts.now(), summary);
    assert_eq!(a.get(COMPLETED).await, "300");
    assert_eq!(b.get(COMPLETED).await, "200");
    for s in [&a, &b] {
        assert_eq!(s.get("select count(*) from trax.lease").await, "0");
        s.assert_healthy().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queues_are_empty_when_each_was_after_the_end_of_the_last_job() {
    let (first, a) = session().await;
    let (second, b) = session().await;
    for s in [&a, &b] {
        s.get("select trax.enqueue('t')").await;
    }
    let (here, a) = (second.name().to_owned(), Arc::new(a));
    let there = Arc::clone(&a);
    let worker = worker(&first).also(second.config());
    // No polling: only a claim with another cause finds the queued job.
    let worker = worker.poll_interval(Duration::from_secs(3600));
    let worker = worker.handle_any(move |_: serde_json::Value, ctx: Context| {
        let is_here = ctx.database().and_then(|at| at.get_dbname()) == Some(&here);
        let there = Arc::clone(&there);
        async move {
            if is_here {
                // The claim that took this job found the other queue empty.
                there.becomes(COMPLETED, "1").await;
                there.get("select trax.enqueue('t')").await;
            }
            Ok(())
        }
    });
    let summary = run(worker).await;
    assert_eq!((summary.completed, summary.stopped), (3, Stopped::Empty));
    assert_eq!(a.get(COMPLETED).await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_database_is_worked_for_as_each_role_that_is_named() {
    let (database, s) = session().await;
    let mut worker = worker(&database);
    for (n, group) in ["mail", "bills"].into_iter().enumerate() {
        let role = format!("{}_{group}", database.name());
        s.get(&format!(
            "create role {role} login;
            select trax.grant_access('{role}', 'worker', groups => array['{group}']);
            select trax.enqueue('t', group_name => '{group}')"
        ))
        .await;
        let mut config = database.config();
        config.user(&role);
        worker = match n {
            0 => worker_at(config),
            _ => worker.also(config),
        };
    }
    // A role named twice counts once.
    let worker = worker.also({
        let mut config = database.config();
        config.user(format!("{}_bills", database.name()));
        config
    });
    let summary = run(worker.handle_any(nothing)).await;
    assert_eq!(summary.completed, 2);
    assert_eq!(s.get("select count(*) from trax.work_queue").await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stop_is_for_all_and_what_cannot_start_says_so() {
    let (first, second) = (database().await, database().await);
    let gate = Gate::new();
    let both = worker(&first).also(second.config());
    let both = start(gate.guard(both).concurrency(2).grace(Duration::ZERO));
    for database in [&first, &second] {
        let s = Session::of(database).await;
        s.get("select trax.enqueue('t')").await;
        eventually("it runs", PATIENCE, async || match gate.of(database) {
            1 => Ok(()),
            n => Err(n.to_string()),
        })
        .await;
    }
    let summary = both.drain().await;
    assert_eq!((summary.stopped, summary.released), (Stopped::Released, 2));

    let manifest = trax_client::Manifest::new("m", "t").every(Duration::from_secs(9));
    let storing = worker(&first).also(second.config()).handle("t", nothing);
    let error = storing.schedule(manifest).run().await.expect_err("where?");
    assert!(error.to_string().contains("through the router"), "{error}");
    let server = harness::shared_server();
    let plain = server
        .plain_database(&format!("{}_plain", first.name()))
        .await;
    let plain = plain.expect("a database is made");
    let without = worker(&first).also(plain.config()).handle_any(nothing);
    let error = without.run().await.expect_err("it has no trax");
    assert!(
        error.to_string().contains("schema \"trax\" does not exist"),
        "{error}"
    );
    let no_router = worker(&first).router().handle_any(nothing);
    let error = no_router.run().await.expect_err("it is no router");
    assert!(error.to_string().contains("trax_router"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_names_the_shards_and_those_that_are_added() {
    if !has_plproxy() {
        return;
    }
    let mut cluster = Cluster::of(2).await;
    let worker = worker_at(cluster.database.config()).router();
    let worker = start(worker.handle_any(nothing));
    let s = &cluster.router;
    s.get("select count(trax.enqueue('t')) from generate_series(1, 60)")
        .await;
    for number in [1, 2] {
        let left = "select count(*) from trax.work_queue";
        cluster.shard(number).becomes(left, "0").await;
    }
    // The worker learns of new shards without polling.
    let server = shard_server();
    let mut completed = 60;
    let limit = Duration::from_secs(5);
    takes_less_than(limit, "the way to a new shard", async || {
        cluster.add(&server).await;
        let begun = Instant::now();
        let newest = cluster.shard(cluster.shards.len());
        newest.get("select trax.enqueue('t')").await;
        newest.becomes(COMPLETED, "1").await;
        completed += 1;
        begun.elapsed()
    })
    .await;
    assert_eq!(worker.drain().await.completed, completed);
}
