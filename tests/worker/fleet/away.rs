//! Databases that do not answer, and ones that refuse.

use super::{COMPLETED, Gate, Heard, nothing, through};
use crate::router::{Cluster, has_plproxy};
use crate::worker::{start, worker, worker_at};
use harness::prompt::takes_less_than;
use harness::proxy::Freezer;
use harness::session::{Session, session};
use harness::{PATIENCE, eventually};
use std::time::{Duration, Instant};
use tokio_postgres::Config;
use trax_client::Stopped;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_gone_stops_its_own_jobs_only_and_is_back_soon() {
    let mut server = harness::options()
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
async fn one_that_comes_back_not_ready_is_waited_for() {
    let mut server = harness::options().fast().start().expect("a server starts");
    let mut later = server.config("later");
    later.user("postgres");
    server.kill().expect("it is killed");
    let (here, s) = session().await;
    let worker = worker(&here).also(later).handle_any(nothing);
    let (worker, heard) = Heard::of(worker);
    let worker = start(worker);
    s.get("select trax.enqueue('t')").await;
    s.becomes(COMPLETED, "1").await;
    server.start().expect("it starts");
    heard.hears(&["database \"later\" does not exist"]).await;
    let there = server.database("later").await.expect("a database is made");
    let t = Session::of(&there).await;
    t.get("select trax.enqueue('t')").await;
    t.becomes(COMPLETED, "1").await;
    s.get("select trax.enqueue('t')").await;
    s.becomes(COMPLETED, "2").await;
    assert_eq!(worker.drain().await.completed, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_comes_back_not_ready_is_waited_for_when_no_place_is_free_at_its_return() {
    let mut server = harness::options().fast().start().expect("a server starts");
    let mut later = server.config("later");
    later.user("postgres");
    server.kill().expect("it is killed");
    let (here, s) = session().await;
    let gate = Gate::new();
    let worker = gate.guard(worker(&here).also(later));
    let (worker, heard) = Heard::of(worker.concurrency(1).prefetch(0));
    let worker = start(worker);
    heard.hears(&["claim: next try"]).await;
    s.get("select trax.enqueue('t')").await;
    eventually("the only place is taken", PATIENCE, async || {
        match gate.of(&here) {
            1 => Ok(()),
            n => Err(n.to_string()),
        }
    })
    .await;
    server.start().expect("it starts");
    let there = server.plain_database("later").await;
    let there = there.expect("a database is made");
    // The worker connects without a claim, and its first claim finds a database without the
    // extension.
    heard.hears(&["claim: works again"]).await;
    gate.open.add_permits(1);
    heard.hears(&["schema \"trax\" does not exist"]).await;
    let t = Session::of(&there).await;
    t.get("create extension trax; select trax.enqueue('t')")
        .await;
    gate.open.add_permits(1);
    t.becomes(COMPLETED, "1").await;
    assert_eq!(worker.drain().await.completed, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_hangs_keeps_no_place_and_no_stop_waits_long_for_it() {
    let (here, s) = session().await;
    let (there, t) = session().await;
    let freezer = Freezer::before(harness::shared_server().port()).await;
    let gate = Gate::new();
    let worker = worker(&here).also(through(freezer.port(), &there));
    let worker = gate.guard(worker.concurrency(4).prefetch(0));
    let (health, counts) = (worker.health(), worker.counts());
    let worker = start(worker);
    t.get("select trax.enqueue('t')").await;
    gate.open.add_permits(1);
    eventually(
        "the worker knows that it is completed",
        PATIENCE,
        async || match counts.now().completed {
            1 => Ok(()),
            count => Err(count.to_string()),
        },
    )
    .await;
    // The next claim, which reserves slots, gets no answer.
    freezer.freeze();
    t.get("select count(trax.enqueue('t')) from generate_series(1, 9)")
        .await;
    s.get("select count(trax.enqueue('t')) from generate_series(1, 99)")
        .await;
    eventually("the other has all places", PATIENCE, async || {
        match (gate.of(&here), gate.of(&there)) {
            (4, 0) => Ok(()),
            now => Err(format!("{now:?}")),
        }
    })
    .await;
    gate.open.add_permits(999);
    s.becomes(COMPLETED, "99").await;
    assert_eq!((health.live(), health.ready()), (Ok(()), Ok(())));
    // An unreported outcome is retried for ten seconds.
    let begun = Instant::now();
    let summary = worker.drain().await;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(
        (summary.stopped, summary.completed),
        (Stopped::Drained, 100)
    );
}

/// Returns the address of a router for a role that may work on all shards except the second.
async fn with_a_role_that_shard_2_refuses(cluster: &Cluster) -> Config {
    let role = format!("{}_worker", cluster.database.name());
    let make = format!("create role {role} login");
    cluster.router.get(&make).await;
    for (_, shard) in &cluster.shards {
        shard.get(&make).await;
    }
    let grant = format!("select trax.grant_access('{role}', 'worker')");
    cluster.router.get(&grant).await;
    let take = format!("select trax.revoke_access('{role}')");
    cluster.shard(2).get(&take).await;
    let mut config = cluster.database.config();
    config.user(&role);
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_of_a_shard_that_refuses_is_not_empty() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let config = with_a_role_that_shard_2_refuses(&cluster).await;
    for shard in [1, 2] {
        cluster.shard(shard).get("select trax.enqueue('t')").await;
    }
    let worker = worker_at(config).router().handle_any(nothing);
    let ended = tokio::time::timeout(PATIENCE, worker.until_empty().run()).await;
    let refusal = ended.expect("it ends").expect_err("it has not seen all");
    assert!(
        refusal.to_string().contains("permission denied"),
        "{refusal}"
    );
    assert_eq!(cluster.shard(1).get(COMPLETED).await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_refuses_the_role_stops_its_own_jobs_only() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let config = with_a_role_that_shard_2_refuses(&cluster).await;
    let here = cluster.group_on(1).await;
    let s = &cluster.router;
    let worker = worker_at(config).router().handle_any(nothing);
    let health = worker.health();
    let (worker, heard) = Heard::of(worker);
    let worker = start(worker);
    s.get(&format!("select trax.enqueue('t', group_name => '{here}')"))
        .await;
    cluster.shard(1).becomes(COMPLETED, "1").await;
    heard.hears(&["claim: next try in 10.0 s", "42501"]).await;
    assert_eq!((health.live(), health.ready()), (Ok(()), Ok(())));
    assert_eq!(worker.drain().await.completed, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_whose_address_is_none_stops_its_own_jobs_only() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    // PL/Proxy accepts this parameter, and the driver does not.
    s.get("update trax_router.shard set address = address || ' sslcompression=0' where number = 2")
        .await;
    let config = || cluster.database.config();
    let worker = worker_at(config()).router().handle_any(nothing);
    let (worker, heard) = Heard::of(worker);
    let worker = start(worker);
    let first = cluster.shard(1);
    first.get("select trax.enqueue('t')").await;
    first.becomes(COMPLETED, "1").await;
    assert_eq!(worker.drain().await.completed, 1);
    let told: Vec<String> = heard.heard.try_iter().collect();
    let names = |said: &&String| said.contains("the address of shard 2");
    assert_eq!(told.iter().filter(names).count(), 1, "{told:?}");
    // With an unknown shard, the worker cannot conclude that all queues are empty.
    let error = worker_at(config())
        .router()
        .until_empty()
        .handle_any(nothing)
        .run()
        .await
        .expect_err("a queue is not known");
    assert!(
        error.to_string().contains("the address of shard 2"),
        "{error}"
    );
}

#[tokio::test]
async fn without_a_shard_there_is_no_queue_whose_end_could_be_waited_for() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::on(&[]).await;
    let worker = worker_at(cluster.database.config()).router().until_empty();
    let error = worker.handle_any(nothing).run().await;
    let error = error.expect_err("there is nothing to work for").to_string();
    assert!(error.contains("trax_router.add_shard"), "{error}");
}
