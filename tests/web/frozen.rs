//! A shard whose server accepts connections and answers nothing.

use super::client::Web;
use crate::router::{Cluster, has_plproxy, shard_server};
use harness::process::send_signal;
use harness::{PATIENCE, eventually, shared_server};
use std::time::{Duration, Instant};
use trax_client::testkit::Server;

/// Processes that are stopped until this is dropped.
struct Frozen(Vec<i32>);

impl Frozen {
    fn of(pids: Vec<i32>) -> Self {
        let frozen = Frozen(pids);
        frozen.0.iter().for_each(|pid| send_signal("STOP", *pid));
        frozen
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.0.iter().for_each(|pid| send_signal("CONT", *pid));
    }
}

/// Freezes a server and its connections of the pages; the test's own session stays.
async fn freeze(cluster: &Cluster, server: &Server) -> Frozen {
    let pages = "select string_agg(pid::text, ' ') from pg_stat_activity
        where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()";
    let pages = cluster.shard(2).get(pages).await;
    let mut pids: Vec<i32> = pages
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect();
    let server = server.pid().expect("it runs");
    pids.push(i32::try_from(server).expect("the id of a process"));
    Frozen::of(pids)
}

#[tokio::test]
async fn a_frozen_shard_costs_its_own_box_and_not_the_time_of_every_page() {
    if !has_plproxy() {
        return;
    }
    let (one, two) = (shard_server(), shard_server());
    let cluster = Cluster::on(&[&one, &two]).await;
    let group = cluster.group_on(1).await;
    let job = format!("select trax.enqueue('t', group_name => '{group}')");
    cluster.router.get(&job).await;
    let web = Web::of(shared_server(), &cluster.database, &[]).await;
    let page = web.page("/").await;
    assert!(!page.contains("does not answer"), "{page}");

    let frozen = freeze(&cluster, &two).await;
    // The first page waits for a while.
    let page = web.page("/").await;
    let away = "shard 2: the database does not answer";
    assert!(page.contains(away), "{page}");
    assert!(page.contains("data-number=\"ready\">1</span>"), "{page}");
    for path in [
        "/",
        "/jobs",
        "/groups",
        "/dead",
        "/workers",
        "/doctor",
        "/manifests",
        "/audit",
    ] {
        let begun = Instant::now();
        let page = web.page(path).await;
        let took = begun.elapsed();
        assert!(page.contains(away), "{path}: {page}");
        assert!(took < Duration::from_millis(1_500), "{path} took {took:?}");
    }
    assert!(web.event("/live").await.contains("\"away\":[2]"));
    let jobs = web.page("/jobs").await;
    assert!(jobs.contains(&group), "{jobs}");
    drop(frozen);
    eventually("it is back", PATIENCE, async || {
        let page = web.page("/").await;
        if page.contains(away) {
            Err(page)
        } else {
            Ok(())
        }
    })
    .await;
}
