//! A move that its mover has left half done, and what others do meanwhile.

use super::move_group::{LEFT, call};
use super::{Cluster, has_plproxy};

#[tokio::test]
async fn a_group_without_settings_is_cancelled_on_both_sides() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    s.get(&format!(
        "select trax.enqueue('a', group_name => '{group}')"
    ))
    .await;
    s.get(&format!("select trax_router.begin_move('{group}', 2)"))
        .await;
    let cancel = format!("select trax.cancel_group('{group}')");
    assert_eq!(s.get(&cancel).await, "1");
    s.get(&call(&group, 2)).await;
    assert_eq!(s.get(&cancel).await, "0");
    // A group of which nothing is anywhere.
    s.get("select trax_router.begin_move('new', 2)").await;
    assert_eq!(s.get("select trax.cancel_group('new')").await, "0");
}

#[tokio::test]
async fn a_group_that_was_moved_before_is_healed_by_moving_it_again() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    s.get(&format!(
        "select trax.enqueue('a', group_name => '{group}')"
    ))
    .await;
    assert_eq!(s.get(&call(&group, 2)).await, "1");
    // By a router that has not heard of it.
    for shard in [1, 3] {
        cluster
            .shard(shard)
            .get(&format!(
                "select trax.enqueue('stray', group_name => '{group}')"
            ))
            .await;
    }
    assert_eq!(s.get(&call(&group, 2)).await, "2");
    assert_eq!(cluster.shard(1).get(LEFT).await, "0");
    assert_eq!(cluster.shard(3).get(LEFT).await, "0");
    assert_eq!(
        cluster
            .shard(2)
            .get("select count(*) from trax.work_queue")
            .await,
        "3"
    );
}
