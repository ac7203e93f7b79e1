//! What is taken from one shard comes to the other: all of it, and once.

use super::move_group::call;
use super::{Cluster, has_plproxy};

#[tokio::test]
async fn a_shard_that_was_restored_and_counts_anew_loses_no_job() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    let (first, second) = (cluster.shard(1), cluster.shard(2));
    s.get(&format!(
        "select trax.enqueue('a', group_name => '{group}')"
    ))
    .await;
    assert_eq!(s.get(&call(&group, 2)).await, "1");
    assert_eq!(s.get(&call(&group, 1)).await, "1");
    // As after a restore: whatever numbers batches begins again.
    first
        .get("select count(setval(d.objid::regclass, 1, false)) from pg_depend d join pg_class c on c.oid = d.objid
            where d.refobjid = 'trax.departure'::regclass and c.relkind = 'S'")
        .await;
    s.get(&format!(
        "select trax.enqueue('a', group_name => '{group}')"
    ))
    .await;
    assert_eq!(s.get(&call(&group, 2)).await, "2");
    assert_eq!(
        second.get("select count(*) from trax.work_queue").await,
        "2"
    );
}

#[tokio::test]
async fn arrivals_that_have_ended_are_forgotten_after_a_week() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    let second = cluster.shard(2);
    let enqueue = format!("select trax.enqueue('a', group_name => '{group}')");
    s.get(&enqueue).await;
    s.get(&call(&group, 2)).await;
    second
        .get("update trax.arrival set arrived_at = now() - interval '8 days'")
        .await;
    s.get(&call(&group, 1)).await;
    s.get(&call(&group, 2)).await;
    let arrived = "select count(*), min(arrived_at) > now() - interval '1 h' from trax.arrival";
    assert_eq!(second.get(arrived).await, "1|t");
}
