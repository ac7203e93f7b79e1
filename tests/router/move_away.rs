//! Moving a group while a shard is unreachable.

use super::move_group::{LEFT, call};
use super::{Cluster, has_plproxy};

/// Makes a shard unreachable for the router; returns its real address.
async fn hide(cluster: &Cluster, shard: usize) -> String {
    let s = &cluster.router;
    let address = format!("select address from trax_router.shard where number = {shard}");
    let address = s.get(&address).await;
    s.get(&format!(
        "update trax_router.shard set address = 'host=127.0.0.1 port=1 dbname=gone' where number = {shard}"
    ))
    .await;
    address
}

/// Restores the address of the shard.
async fn show(cluster: &Cluster, shard: usize, address: &str) {
    cluster
        .router
        .get(&format!(
            "update trax_router.shard set address = '{address}' where number = {shard}"
        ))
        .await;
}

#[tokio::test]
async fn a_move_to_a_shard_that_is_away_changes_nothing() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    let enqueue = format!("select trax.shard_of(trax.enqueue('a', group_name => '{group}'))");
    s.get(&enqueue).await;
    hide(&cluster, 2).await;
    let refusal = s.refusal(&call(&group, 2)).await;
    assert_eq!(refusal.code, "08001", "{refusal}");
    assert_eq!(refusal.message, "shard 2 cannot be reached");
    assert_eq!(
        s.get("select count(*) from trax_router.group_placement")
            .await,
        "0"
    );
    assert_eq!(s.get(&enqueue).await, "1");
    let first = cluster.shard(1);
    assert_eq!(first.claim("worker => 'w', max_jobs => 9").await.len(), 2);
}

#[tokio::test]
async fn a_group_comes_back_from_a_shard_that_went_away() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    let (first, second) = (cluster.shard(1), cluster.shard(2));
    s.get(&format!(
        "select trax.configure_group('{group}', max_active_jobs => 5);
        select trax.enqueue('departs', group_name => '{group}')"
    ))
    .await;
    s.get(&format!("select trax_router.begin_move('{group}', 2)"))
        .await;
    let there = format!("select trax.shard_of(trax.enqueue('there', group_name => '{group}'))");
    assert_eq!(s.get(&there).await, "2");
    let depart = format!("select count from trax.depart('{group}', 2)");
    assert_eq!(first.get(&depart).await, "0");
    assert_eq!(first.get(&depart).await, "1");
    first
        .get(&format!(
            "select trax.enqueue('waits', group_name => '{group}')"
        ))
        .await;
    let address = hide(&cluster, 2).await;
    let refusal = s.refusal(&call(&group, 1)).await;
    assert_eq!(refusal.message, "shard 2 cannot be reached");
    assert!(
        refusal.detail.contains("nothing of it is lost"),
        "{refusal}"
    );
    // The group works here with its settings; rows that are or may be on the other shard wait for
    // it.
    let enqueue = format!("select trax.shard_of(trax.enqueue('a', group_name => '{group}'))");
    assert_eq!(s.get(&enqueue).await, "1");
    assert_eq!(first.claim("worker => 'w', max_jobs => 9").await.len(), 2);
    let settings = "select max_active_jobs, enabled from trax.manifest_group";
    assert_eq!(first.get(settings).await, "5|t");
    show(&cluster, 2, &address).await;
    // A batch among them goes there and back.
    assert_eq!(s.get(&call(&group, 1)).await, "3");
    assert_eq!(second.get(LEFT).await, "0");
    let waiting = "select string_agg(task, ' ' order by task) from trax.work_queue";
    assert_eq!(first.get(waiting).await, "departs there");
    assert_eq!(first.get(settings).await, "5|t");
    first.assert_healthy().await;
}

#[tokio::test]
async fn a_group_that_came_back_has_what_it_left_on_the_shard_that_was_away() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    let enqueue = format!("select trax.shard_of(trax.enqueue('a', group_name => '{group}'))");
    assert_eq!(s.get(&enqueue).await, "1");
    s.get(&format!("select trax_router.begin_move('{group}', 2)"))
        .await;
    assert_eq!(s.get(&enqueue).await, "2");
    let address = hide(&cluster, 2).await;
    let refusal = s.refusal(&call(&group, 1)).await;
    assert_eq!(refusal.message, "shard 2 cannot be reached");
    assert_eq!(s.get(&enqueue).await, "1");
    let first = cluster.shard(1);
    assert_eq!(first.claim("worker => 'w', max_jobs => 9").await.len(), 2);
    show(&cluster, 2, &address).await;
    assert_eq!(s.get(&call(&group, 1)).await, "1");
    first.claim_one("worker => 'w'").await;
}

#[tokio::test]
async fn a_group_does_not_come_back_without_its_limit_to_a_shard_that_it_had_left() {
    if !has_plproxy() {
        return;
    }
    for has_late_jobs in [false, true] {
        let cluster = Cluster::of(2).await;
        let group = cluster.group_on(1).await;
        let (s, first) = (&cluster.router, cluster.shard(1));
        s.get(&format!(
            "select trax.configure_group('{group}', max_active_jobs => 3);
            select trax_router.begin_move('{group}', 2)"
        ))
        .await;
        // The router does not learn that all has left: its mover is killed.
        let depart = format!("select is_over from trax.depart('{group}', 2)");
        first.get(&depart).await;
        assert_eq!(first.get(&depart).await, "t");
        if has_late_jobs {
            let late = format!("select trax.enqueue('late', group_name => '{group}')");
            first.get(&late).await;
            assert_eq!(first.get(&depart).await, "f", "it is disabled again");
        }
        let address = hide(&cluster, 2).await;
        let refusal = s.refusal(&call(&group, 1)).await;
        assert_eq!(refusal.message, "shard 2 cannot be reached");
        let home = format!("select trax_router.shard_of_group('{group}')");
        assert_eq!(s.get(&home).await, "2", "nothing has changed");
        assert!(first.claim("worker => 'w', max_jobs => 9").await.is_empty());
        show(&cluster, 2, &address).await;
        s.get(&call(&group, 1)).await;
        let settings = "select max_active_jobs, enabled from trax.manifest_group";
        assert_eq!(first.get(settings).await, "3|t");
    }
}

#[tokio::test]
async fn what_other_shards_have_is_carried_before_one_that_is_away_is_told_of() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let s = &cluster.router;
    s.get("select trax.enqueue('a') from generate_series(1, 60)")
        .await;
    s.get("select trax_router.begin_move('default', 2, gather => true)")
        .await;
    let address = hide(&cluster, 1).await;
    let refusal = s.refusal(&call("default", 2)).await;
    assert_eq!(refusal.message, "shard 1 cannot be reached");
    assert_eq!(cluster.shard(3).get(LEFT).await, "0");
    let left = "select moves_from from trax_router.group_placement";
    assert_eq!(s.get(left).await, "{1}");
    show(&cluster, 1, &address).await;
    s.get(&call("default", 2)).await;
    let all = "select count(*) from trax.work_queue";
    assert_eq!(cluster.shard(2).get(all).await, "60");
}

#[tokio::test]
async fn who_places_groups_is_told_which_shard_is_away() {
    if !has_plproxy() {
        return;
    }
    let mut cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let server = super::shard_server();
    cluster.add(&server).await;
    hide(&cluster, 2).await;
    let s = &cluster.router;
    for call in [
        format!("select trax_router.place_group('{group}', 2)"),
        format!("select trax_router.place_group('{group}', 1)"),
        format!("select trax_router.spread_group('{group}')"),
        "select * from trax_router.spread_places()".to_owned(),
        "select trax_router.copy_settings('default', 1)".to_owned(),
    ] {
        let refusal = s.refusal(&call).await;
        assert_eq!(refusal.code, "08001", "{call}: {refusal}");
        assert_eq!(refusal.message, "shard 2 cannot be reached", "{call}");
    }
    assert_eq!(
        s.get("select count(*) from trax_router.place where shard = 3")
            .await,
        "0"
    );
}
