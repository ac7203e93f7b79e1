//! One worker, several databases.

use super::{start, worker, worker_at};
use crate::router::{Cluster, has_plproxy, shard_server};
use harness::prompt::takes_less_than;
use harness::session::{Session, session};
use harness::{PATIENCE, database, eventually};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use trax_client::testkit::{Database, Server};
use trax_client::{Context, HandlerResult, Stopped, Worker};

/// How many handlers run, of each database, and what lets them end.
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

async fn nothing(_: serde_json::Value, _: Context) -> HandlerResult<()> {
    Ok(())
}

const COMPLETED: &str = "select count(*) from trax.run where state = 'completed'";

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
async fn places_are_shared_and_a_database_without_work_leaves_them() {
    let (first, a) = session().await;
    let (second, b) = session().await;
    a.get("select trax.enqueue('t') from generate_series(1, 100)")
        .await;
    let gate = Gate::new();
    let worker = gate.guard(worker(&first).also(second.config()));
    let worker = start(worker.concurrency(4).prefetch(0));
    let sees = async |here: usize, there: usize| {
        eventually("places are shared", PATIENCE, async || {
            match (gate.of(&first), gate.of(&second)) {
                now if now == (here, there) => Ok(()),
                now => Err(format!("{now:?}")),
            }
        })
        .await;
    };
    sees(4, 0).await;
    b.get("select trax.enqueue('t') from generate_series(1, 100)")
        .await;
    // What becomes free goes to the one that has less, until each has its half.
    eventually("each has its half", PATIENCE, async || {
        match (gate.of(&first), gate.of(&second)) {
            (2, 2) => Ok(()),
            now => {
                gate.open.add_permits(1);
                Err(format!("{now:?}"))
            }
        }
    })
    .await;
    // And all to the one that has work.
    b.get("select trax.cancel_group('default')").await;
    gate.open.add_permits(30);
    sees(4, 0).await;
    gate.open.add_permits(3000);
    a.becomes("select count(*) from trax.work_queue", "0").await;
    let summary = worker.drain().await;
    assert_eq!(summary.stopped, Stopped::Drained);
    let most = *gate.most.lock().expect("no test panics here");
    assert_eq!(most, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_gone_stops_its_own_jobs_only_and_is_back_soon() {
    let mut server = Server::options()
        .fast()
        .setting("synchronous_commit", "on")
        .start()
        .expect("a server starts");
    let there = server.database("app").await.expect("a database is made");
    let (here, s) = session().await;
    let worker = worker(&here).also(there.config()).handle_any(nothing);
    let health = worker.health();
    let worker = start(worker.lease(Duration::from_secs(6)));
    let t = Session::of(&there).await;
    t.get("select trax.enqueue('t')").await;
    t.becomes(COMPLETED, "1").await;
    server.kill().expect("it is killed");
    for n in 1..=20 {
        s.get("select trax.enqueue('t')").await;
        s.becomes(COMPLETED, &n.to_string()).await;
        assert_eq!(health.ready(), Ok(()), "it claims from the other");
    }
    let mut completed = 21;
    let limit = Duration::from_secs(2);
    takes_less_than(limit, "the way back to a server", async || {
        server.kill().ok();
        server.start().expect("it starts");
        let begun = Instant::now();
        let t = Session::of(&there).await;
        t.get("select trax.enqueue('t')").await;
        completed += 1;
        t.becomes(COMPLETED, &(completed - 20).to_string()).await;
        begun.elapsed()
    })
    .await;
    assert_eq!(worker.drain().await.completed, completed);
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
    // It hears of new ones, and need not ask.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_refuses_the_role_stops_its_own_jobs_only() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let role = format!("{}_worker", cluster.database.name());
    let make = format!("create role {role} login");
    cluster.router.get(&make).await;
    for (_, shard) in &cluster.shards {
        shard.get(&make).await;
    }
    let s = &cluster.router;
    s.get(&format!("select trax.grant_access('{role}', 'worker')"))
        .await;
    let take = format!("select trax.revoke_access('{role}')");
    cluster.shard(2).get(&take).await;
    let here = cluster.group_on(1).await;
    let mut config = cluster.database.config();
    config.user(&role);
    let (said, heard) = std::sync::mpsc::channel();
    let worker = worker_at(config).router().handle_any(nothing);
    let health = worker.health();
    let worker = start(worker.on_event(move |event| {
        said.send(event.to_string()).ok();
    }));
    s.get(&format!("select trax.enqueue('t', group_name => '{here}')"))
        .await;
    cluster.shard(1).becomes(COMPLETED, "1").await;
    let all = Mutex::new(String::new());
    eventually("it is told", PATIENCE, async || {
        let mut all = all.lock().expect("no test panics here");
        all.extend(heard.try_iter().map(|said| said + "\n"));
        let refused =
            |line: &str| line.contains("claim: next try in 10.0 s") && line.contains("42501");
        match all.lines().any(refused) {
            true => Ok(()),
            false => Err(all.clone()),
        }
    })
    .await;
    assert_eq!((health.live(), health.ready()), (Ok(()), Ok(())));
    assert_eq!(worker.drain().await.completed, 1);
}
