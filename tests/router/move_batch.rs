//! All rows taken from one shard arrive at the other, exactly once.

use super::move_group::{LEFT, call};
use super::{Cluster, has_plproxy};
use harness::session::Session;

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
    // As after a restore: the batch numbers start again.
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

#[tokio::test]
async fn a_job_queued_when_its_manifest_was_in_another_group_goes_with_its_own() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    s.get(
        "select trax_router.place_group('before', 1); select trax_router.place_group('after', 1);
        select trax.schedule('m', 't', group_name => 'before'); select trax.trigger('m');
        select trax.schedule('m', 't', group_name => 'after')",
    )
    .await;
    let (first, second) = (cluster.shard(1), cluster.shard(2));
    assert_eq!(s.get(&call("before", 2)).await, "1");
    let queued = "select group_name, manifest from trax.work_queue";
    assert_eq!(second.get(queued).await, "before|");
    assert_eq!(
        first.get("select group_name from trax.manifest").await,
        "after"
    );
    // The reverse case: the manifest leaves and the job stays.
    s.get(
        "select trax.trigger('m'); select trax_router.place_group('then', 1); select trax.schedule('m', 't', group_name => 'then')",
    )
    .await;
    assert_eq!(s.get(&call("then", 2)).await, "0");
    assert_eq!(first.get(queued).await, "after|");
    let claimed = first.claim_one("worker => 'w'").await;
    first
        .get(&format!("select trax.complete({})", claimed.key()))
        .await;
    second.claim_one("worker => 'w'").await;
    first.assert_healthy().await;
    second.assert_healthy().await;
}

#[tokio::test]
async fn a_manifest_whose_entry_leaves_with_another_group_is_queued_again() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    s.get(
        "select trax_router.place_group('before', 1); select trax_router.place_group('after', 1);
        select trax.schedule('m', 't', every => '1 h', group_name => 'before')",
    )
    .await;
    let first = cluster.shard(1);
    first.get("select trax.tick()").await;
    assert_eq!(
        first.get("select scheduled from trax.work_queue").await,
        "t"
    );
    s.get("select trax.schedule('m', 't', group_name => 'after')")
        .await;
    assert_eq!(s.get(&call("before", 2)).await, "1");
    // Another backend, whose first cycle cleans up and whose second one queues.
    let cycle = Session::of(&cluster.shards[0].0).await;
    cycle.get("select trax.tick(); select trax.tick()").await;
    let queued = "select group_name, manifest, scheduled from trax.work_queue";
    assert_eq!(first.get(queued).await, "after|m|t");
    first.assert_healthy().await;
}

#[tokio::test]
async fn a_batch_is_bounded_by_the_bytes_it_is_sent_as() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    let (first, second) = (cluster.shard(1), cluster.shard(2));
    // Each compressed to 12 kB; twenty do not fit into two batches of 8 MB.
    let large = "to_jsonb(repeat('a', 1000000))";
    s.get(&format!(
        "select trax.enqueue('fails', {large}, group_name => '{group}', max_retries => 0) from generate_series(1, 20)"
    ))
    .await;
    for job in first.claim("worker => 'w', max_jobs => 20").await {
        first
            .get(&format!("select trax.fail({}, 'no')", job.key()))
            .await;
    }
    s.get(&format!(
        "select trax.enqueue('a', {large}, group_name => '{group}') from generate_series(1, 20);
        select trax.schedule('m' || n, 't', input => {large}, group_name => '{group}') from generate_series(1, 20) n;
        select trax.schedule('m1', 't', depends_on => '{{m20}}')"
    ))
    .await;
    assert_eq!(s.get(&call(&group, 2)).await, "20");
    assert_eq!(first.get(LEFT).await, "0");
    assert_eq!(
        second.get("select count(*) from trax.arrival").await,
        "9",
        "jobs, letters and manifests in three batches each"
    );
    let there = "select (select count(*) from trax.work_queue), (select count(*) from trax.manifest),
        (select count(*) from trax.manifest_dependency), (select count(*) from trax.dead_letter where resolved_at is null)";
    assert_eq!(second.get(there).await, "20|20|1|20");
    second.assert_healthy().await;
}

#[tokio::test]
async fn jobs_triggered_by_hand_follow_their_manifest() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    s.get(&format!(
        "select trax.schedule('m', 't', every => '1 h', group_name => '{group}'); select trax.trigger('m') from generate_series(1, 1200)"
    ))
    .await;
    let (first, second) = (cluster.shard(1), cluster.shard(2));
    first.get("select trax.tick()").await;
    assert_eq!(s.get(&call(&group, 2)).await, "1201");
    assert_eq!(first.get(LEFT).await, "0");
    let queued = "select count(*), count(*) filter (where scheduled), count(distinct q.manifest_id)
        from trax.work_queue q join trax.manifest m using (manifest_id)";
    assert_eq!(second.get(queued).await, "1201|1|1");
    second.get("select trax.tick()").await;
    assert_eq!(second.get(queued).await, "1201|1|1");
    second.assert_healthy().await;
}

#[tokio::test]
async fn a_letter_of_a_manifest_that_was_removed_goes_too() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    s.get(&format!(
        "select trax.schedule('m', 't', max_retries => 0, group_name => '{group}'); select trax.trigger('m')"
    ))
    .await;
    let (first, second) = (cluster.shard(1), cluster.shard(2));
    let failed = first.claim_one("worker => 'w'").await;
    s.get("select trax.unschedule('m')").await;
    first
        .get(&format!("select trax.fail({}, 'no')", failed.key()))
        .await;
    s.get(&call(&group, 2)).await;
    assert_eq!(first.get(LEFT).await, "0");
    let letter = second
        .number("select id from trax.dead_letter where resolved_at is null")
        .await;
    s.get(&format!(
        "select trax.requeue_dead_letter({letter}, 'again')"
    ))
    .await;
    second.claim_one("worker => 'w'").await;
    second.assert_healthy().await;
}

#[tokio::test]
async fn a_letter_written_while_the_last_batch_is_looked_for_goes_too() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    s.get(&format!(
        "select trax.enqueue('kept', group_name => '{group}', unique_key => 'k', unique_for => '1 day');
        select trax.enqueue('fails', group_name => '{group}', max_retries => 0)"
    ))
    .await;
    let (first, second) = (cluster.shard(1), cluster.shard(2));
    let kept = first.claim_one("worker => 'w', tasks => '{kept}'").await;
    first
        .get(&format!("select trax.complete({})", kept.key()))
        .await;
    let fails = first.claim_one("worker => 'w'").await;
    s.get(&format!("select trax_router.begin_move('{group}', 2)"))
        .await;
    let depart = format!("select batch is null, is_over from trax.depart('{group}', 2)");
    assert_eq!(first.get(&depart).await, "t|f", "it is off now");
    // The call has looked for dead letters and waits for the key.
    let holder = Session::of(&cluster.shards[0].0).await;
    holder
        .get("begin; delete from trax.unique_key where ended")
        .await;
    let mover = Session::of(&cluster.shards[0].0).await;
    mover.get("set statement_timeout = '30 s'").await;
    let pid = mover.pid();
    let departing = mover.spawn(depart.clone());
    first.sees_waiting(pid).await;
    first
        .get(&format!("select trax.fail({}, 'no')", fails.key()))
        .await;
    holder.get("commit").await;
    let (_mover, last) = departing.await.expect("it does not panic");
    assert_ne!(last, Ok("t|t".to_owned()), "a letter is left");
    s.get(&call(&group, 2)).await;
    assert_eq!(first.get(LEFT).await, "0");
    let letters = "select count(*) from trax.dead_letter where resolved_at is null";
    assert_eq!(second.get(letters).await, "1");
}
