//! Rates in a cluster: each shard has all rates, and counts by itself.

use super::{Cluster, has_plproxy};

#[tokio::test]
async fn a_rate_is_on_each_shard_and_holds_back_the_jobs_of_a_group_there() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let (group, s) = (cluster.group_on(2).await, &cluster.router);
    s.get("select trax.configure_rate('api', 1, '1 h', 2)")
        .await;
    let other = format!("select trax.configure_group('{group}', rate => 'api')");
    s.get(&other).await;
    for (_, shard) in &cluster.shards {
        let rates = shard.get("select name, burst from trax.rate").await;
        assert_eq!(rates, "api|2");
    }
    let many = format!(
        "select trax.enqueue_many('t', '{{1,2}}', group_name => '{group}', rate => 'api', rate_key => 'k', cost => 2);
        select trax.enqueue('t', group_name => '{group}', rate => 'api')"
    );
    s.get(&many).await;
    let second = cluster.shard(2);
    assert_eq!(second.claim_ids("max_jobs => 10").await.len(), 2);
    assert_eq!(second.claim_ids("max_jobs => 10").await, [0; 0]);
    s.get("select trax.close_rate('api', 'k', '2100-01-01')")
        .await;
    let closed = "select key, closed_until from trax.rate_closure";
    assert_eq!(second.get(closed).await, cluster.shard(1).get(closed).await);
    let refused = s.refusal("select trax.drop_rate('api')").await;
    assert_eq!(
        (refused.code.as_str(), refused.message.as_str()),
        ("55000", "rate \"api\" is in use")
    );
}

#[tokio::test]
async fn a_group_moves_with_its_rate_and_the_rates_of_its_jobs() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let (group, s) = (cluster.group_on(1).await, &cluster.router);
    s.get("select trax.configure_rate('api', 1, '1 h')").await;
    s.get(&format!(
        "select trax.configure_group('{group}', rate => 'api');
        select trax.enqueue('t', group_name => '{group}', rate => 'api', rate_key => 'k')"
    ))
    .await;
    let moving = format!("call trax_router.move_group('{group}', 2, null)");
    s.get(&moving).await;
    let second = cluster.shard(2);
    let moved = "select rate, rate_key, cost from trax.work_queue";
    assert_eq!(second.get(moved).await, "api|k|1");
    assert_eq!(
        second.get("select rate from trax.manifest_group").await,
        "api"
    );
    second.assert_healthy().await;
    assert_eq!(second.claim_ids("").await.len(), 1);
}

#[tokio::test]
async fn callers_at_the_router_share_a_rate_exactly_and_its_keys_are_on_all_shards() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    s.get("select trax.configure_rate('api', 1, '1 h', 3)")
        .await;
    let granted = "select count(*) filter (where c.granted)
        from generate_series(1, 20) n cross join lateral trax.consume_rate('api', 'k' || n % 4) c";
    assert_eq!(s.get(granted).await, "12");
    let left = "select r.available, r.free_at > now() + interval '50 min' from trax.read_rate('api', 'k1') r";
    assert_eq!(s.get(left).await, "0|t");
    let used = "select count(*) from generate_series(1, 20) n cross join lateral trax.read_rate('api', 'k' || n) r
        where r.available < 3";
    s.get("select trax.consume_rate('api', 'k' || n) from generate_series(5, 20) n")
        .await;
    for (_, shard) in &cluster.shards {
        let used = shard.number(used).await;
        assert!((1..20).contains(&used), "{used} of 20 keys are here");
    }
    let refused = s.refusal("select trax.consume_rate('no rate')").await;
    assert_eq!(refused.code, "42704", "{refused}");
}
