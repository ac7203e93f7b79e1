//! A move that its mover has left half done, and what others do meanwhile.

use super::move_group::{LEFT, call};
use super::{Cluster, has_plproxy};

#[tokio::test]
async fn a_document_leaves_a_group_that_moves_as_it_is() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    let apply = format!(
        "select string_agg(action || ' ' || name, ', ') from trax.apply(
            '{{\"groups\": [{{\"name\": \"{group}\", \"max_active_jobs\": 1}}]}}', prune => true, source => 'here')"
    );
    s.get(&apply).await;
    s.get(&format!(
        "select trax.enqueue('a', group_name => '{group}') from generate_series(1, 3)"
    ))
    .await;
    let (first, second) = (cluster.shard(1), cluster.shard(2));
    let running = first.claim_one("worker => 'w'").await;
    s.get(&format!(
        "select trax_router.begin_move('{group}', 2); select trax_router.carry('{group}', 2)"
    ))
    .await;
    assert_eq!(s.get(&apply).await, format!("unchanged {group}"));
    let settings = "select enabled, max_active_jobs, applied, source from trax.manifest_group";
    assert_eq!(first.get(settings).await, "f|1|f|");
    assert_eq!(second.get(settings).await, "t|1|t|here");
    assert_eq!(first.claim("worker => 'w', max_jobs => 9").await.len(), 0);
    first
        .get(&format!("select trax.complete({})", running.key()))
        .await;
    assert_eq!(s.get(&call(&group, 2)).await, "2");
    // It is still that document's.
    let prune = "select string_agg(action || ' ' || name, ', ') from trax.apply('{\"groups\": []}', prune => true, source => 'here')";
    assert_eq!(s.get(prune).await, format!("removed {group}"));
}

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
async fn the_router_knows_where_manifests_went() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    s.get(&format!(
        "select trax.schedule('m' || n, 't', group_name => '{group}') from generate_series(1, 3) n"
    ))
    .await;
    s.get(&call(&group, 2)).await;
    let known = "select string_agg(name || shard, ' ' order by name) from trax_router.manifest";
    assert_eq!(s.get(known).await, "m12 m22 m32");
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
