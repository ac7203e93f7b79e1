//! A half-finished move, and other calls in that state.

use super::move_group::{LEFT, call};
use super::{Cluster, has_plproxy};
use harness::session::Session;

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
    // The group still belongs to that document.
    let prune = "select string_agg(action || ' ' || name, ', ') from trax.apply('{\"groups\": []}', prune => true, source => 'here')";
    assert_eq!(s.get(prune).await, format!("removed {group}"));
}

#[tokio::test]
async fn a_manifest_on_its_way_is_said_to_be() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    s.get(&format!(
        "select trax.schedule('m', 't', every => '1 h', group_name => '{group}')"
    ))
    .await;
    let (first, second) = (cluster.shard(1), cluster.shard(2));
    first.get("select trax.tick()").await;
    s.get(&format!("select trax_router.begin_move('{group}', 2)"))
        .await;
    let depart = format!("select count from trax.depart('{group}', 2)");
    assert_eq!(first.get(&depart).await, "0");
    assert_eq!(first.get(&depart).await, "1");
    for call in [
        "select trax.schedule('m', 't')".to_owned(),
        format!("select trax.schedule('m', 't', group_name => '{group}')"),
        "select trax.schedule('child', 't', depends_on => '{m}')".to_owned(),
        "select * from trax.apply('{\"manifests\": [{\"name\": \"m\", \"task\": \"t\"}]}')"
            .to_owned(),
        "select trax.trigger('m')".to_owned(),
        "select trax.cancel_manifest('m')".to_owned(),
        "select trax.unschedule('m')".to_owned(),
    ] {
        let refusal = s.refusal(&call).await;
        assert_eq!(refusal.code, "55000", "{call}: {refusal}");
        assert_eq!(
            refusal.message,
            "manifest \"m\" is on its way from shard 1 to another"
        );
        assert_eq!(
            refusal.hint,
            format!("Move the group again: call trax_router.move_group('{group}', 2, null)")
        );
    }
    // Even for a role without rights to the shards' tables.
    let role = format!("producer_{}", cluster.database.name());
    for shard in [first, second, s] {
        shard.get(&format!("create role {role} login")).await;
    }
    s.get(&format!("select trax.grant_access('{role}', 'producer')"))
        .await;
    let producer = Session::as_role(&cluster.database, &role).await;
    let refusal = producer.refusal("select trax.trigger('m')").await;
    assert_eq!(refusal.code, "55000", "{refusal}");
    let refusal = s
        .refusal(&format!("select trax.cancel_group('{group}')"))
        .await;
    assert_eq!(refusal.code, "55000", "{refusal}");
    assert_eq!(
        refusal.message,
        format!("a part of group \"{group}\" is on its way from shard 1 to another")
    );
    s.get("select trax.schedule('another', 't'); select trax.trigger('another')")
        .await;
    // Another session makes the manifest at the shard itself, where its job is queued.
    second
        .get(&format!(
            "select trax.schedule('m', 't', every => '1 h', group_name => '{group}'); select trax.tick()"
        ))
        .await;
    assert_eq!(s.get(&call(&group, 2)).await, "1");
    let queued = "select count(*), count(*) filter (where scheduled) from trax.work_queue
        join trax.manifest using (manifest_id) where name = 'm'";
    assert_eq!(second.get(queued).await, "2|1");
    assert_eq!(
        s.get(&format!("select trax.cancel_group('{group}')")).await,
        "2"
    );
    first.assert_healthy().await;
    second.assert_healthy().await;
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
    // A group without rows on any shard.
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
    // By a router that does not know of the move.
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

#[tokio::test]
async fn a_late_call_of_a_mover_that_is_gone_takes_nothing_of_what_has_come_back() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let (s, first) = (&cluster.router, cluster.shard(1));
    s.get(&format!(
        "select trax.enqueue('t', group_name => '{group}'); select trax_router.begin_move('{group}', 2)"
    ))
    .await;
    let placed_at = format!(
        "select trax_router.in_micros(placed_at) from trax_router.group_placement where group_name = '{group}'"
    );
    let gone = s.number(&placed_at).await;
    s.get(&call(&group, 1)).await;
    let late = format!("select * from trax.depart('{group}', 2, 1000, {gone})");
    let refusal = first.refusal(&late).await;
    assert_eq!(refusal.code, "55000", "{refusal}");
    let claim = "select count(*) from trax.claim_next('w')";
    assert_eq!(first.get(claim).await, "1", "it is on");
    // The next move is later, even if the router's clock is wrong.
    s.get(&format!(
        "update trax_router.group_placement set placed_at = now() + '1 h' where group_name = '{group}'"
    ))
    .await;
    let ahead = s.number(&placed_at).await;
    first
        .get("select trax.complete(job_id, token) from trax.lease")
        .await;
    s.get(&call(&group, 2)).await;
    assert!(s.number(&placed_at).await > ahead);
    s.get(&call(&group, 1)).await;
    let late = format!(
        "select * from trax.depart('{group}', 2, 1000, {})",
        ahead + 1
    );
    assert_eq!(first.refusal(&late).await.code, "55000");
}

#[tokio::test]
async fn a_batch_that_was_on_its_way_elsewhere_follows_to_the_end() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    s.get(&format!(
        "select trax.configure_group('{group}', max_active_jobs => 1);
        select count(*) from trax.enqueue_many('t', array_fill('1'::jsonb, array[5]), group_name => '{group}');
        select trax_router.begin_move('{group}', 2)"
    ))
    .await;
    let carry = format!("select outcome from trax_router.carry('{group}', 2)");
    assert_eq!(s.get(&carry).await, "waits", "it is off now");
    let depart = format!("select count from trax.depart('{group}', 2)");
    assert_eq!(cluster.shard(1).get(&depart).await, "5");
    // Shard 2 has nothing to move, and is not asked again.
    s.get("select trax_router.close_shard(1, 'new disks')")
        .await;
    s.refusal(&call(&group, 3)).await;
    s.get("select trax_router.open_shard(1)").await;
    s.get(&call(&group, 3)).await;
    let waiting = "select count(*) from trax.work_queue";
    assert_eq!(cluster.shard(3).get(waiting).await, "5");
    assert_eq!(cluster.shard(2).get(LEFT).await, "0");
}
