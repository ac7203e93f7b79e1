//! Live keys stay on their shard when places move.

use super::cluster::shard_server;
use super::{Cluster, has_plproxy};

/// A cluster of one shard, and a second shard without a place.
async fn growing(server: &trax_client::testkit::Server) -> Cluster {
    let mut cluster = Cluster::of(1).await;
    cluster.add(server).await;
    cluster
}

#[tokio::test]
async fn a_token_that_is_held_is_not_given_twice() {
    if !has_plproxy() {
        return;
    }
    let server = shard_server();
    let cluster = growing(&server).await;
    let s = &cluster.router;
    let take = |holder: &str| {
        format!(
            "select count(*) from generate_series(1, 20) n,
            lateral trax.acquire_token('mutex' || n, '{holder}', 1, '1 h') t"
        )
    };
    assert_eq!(s.get(&take("A")).await, "20");
    s.get("select trax_router.spread_places()").await;
    assert_eq!(s.get(&take("B")).await, "0", "A holds all");
    let pinned = "select count(*) > 0 from trax_router.key_placement where kind = 'token'";
    assert_eq!(s.get(pinned).await, "t");
    let there = "select count(*) from generate_series(1, 20) n where trax_router.shard_of_token('new' || n) = 2";
    assert!(
        s.number(there).await > 0,
        "names that nobody holds go by the new places"
    );
    cluster
        .shard(1)
        .get("select trax.release_token(name, token) from trax.concurrency_token")
        .await;
    // When no key is held on its old shard, names follow their places.
    s.get("select trax_router.spread_places()").await;
    assert_eq!(
        s.get("select count(*) from trax_router.key_placement")
            .await,
        "0"
    );
    assert_eq!(s.get(&take("B")).await, "20");
    assert_eq!(s.get(&take("A")).await, "0");
}

#[tokio::test]
async fn keys_of_live_jobs_of_spread_groups_count_on_one_shard() {
    if !has_plproxy() {
        return;
    }
    let server = shard_server();
    let cluster = growing(&server).await;
    let s = &cluster.router;
    let unique = "select string_agg(trax.enqueue('u', unique_key => 'u' || n)::text, ' ' order by n) from generate_series(1, 20) n";
    let lasting = "select string_agg(trax.enqueue('l', unique_key => 'l' || n, unique_for => '1 h')::text, ' ' order by n) from generate_series(1, 20) n";
    let serial = "select count(distinct trax.shard_of(trax.enqueue('c', concurrency_key => 'c' || n))) from generate_series(1, 20) n";
    let lasting_before = s.get(lasting).await;
    cluster
        .shard(1)
        .get("select count(trax.complete(job_id, token)) from trax.claim_next('w', 100)")
        .await;
    let unique_before = s.get(unique).await;
    assert_eq!(s.get(serial).await, "1");
    s.get("select trax_router.spread_places()").await;
    assert_eq!(s.get(unique).await, unique_before);
    assert_eq!(s.get(lasting).await, lasting_before);
    assert_eq!(s.get(serial).await, "1", "one key is one shard");
    let fresh = "select count(distinct trax.shard_of(trax.enqueue('f', concurrency_key => 'f' || n))) from generate_series(1, 40) n";
    assert_eq!(s.get(fresh).await, "2");
    let pinned = "select count(*) from trax_router.key_placement where name like 'c%'";
    assert_ne!(s.get(pinned).await, "0");
    let complete =
        "select count(trax.complete(job_id, token)) from trax.claim_next('w', 100, '{c}')";
    while cluster.shard(1).number(complete).await > 0 {}
    s.get("select trax_router.spread_places()").await;
    assert_eq!(s.get(pinned).await, "0");
    assert_eq!(s.get(serial).await, "2");
    assert_eq!(s.get(unique).await, unique_before, "those that live stay");
}
