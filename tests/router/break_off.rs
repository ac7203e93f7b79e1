//! Calls that are cancelled between shards, and conflicts at the router after a shard has
//! committed.

use super::{Cluster, has_plproxy};
use harness::session::Session;

#[tokio::test]
async fn a_cancelled_call_asks_no_further_shard_and_says_what_was_done() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    s.get("select trax.enqueue_many('t', '{1, 2, 3, 4, 5, 6}', max_retries => 0)")
        .await;
    for (_, shard) in &cluster.shards {
        shard
            .get(
                "select trax.configure_group('default', priority => 1);
                select trax.fail(job_id, token, 'no') from trax.claim_next('w', 10)",
            )
            .await;
    }
    s.get("set statement_timeout = '300ms'").await;
    let priority = "select priority from trax.manifest_group where name = 'default'";
    let letters = "select count(*) from trax.dead_letter where status = 'awaiting_intervention'";
    let calls = [
        (
            "select trax.configure_group('default', priority => 7)",
            "trax.manifest_group",
        ),
        ("select trax.requeue_dead_letters()", "trax.dead_letter"),
    ];
    for (call, table) in calls {
        let held = format!("begin; lock table {table} in access exclusive mode");
        cluster.shard(1).get(&held).await;
        let refusal = s.refusal(call).await;
        assert_eq!(refusal.code, "57014", "{call}: {refusal}");
        assert_eq!(
            refusal.detail, "The result of the call on shard 1 is not known.",
            "{call}"
        );
        cluster.shard(1).get("rollback").await;
        assert_eq!(cluster.shard(2).get(priority).await, "1", "{call}");
        assert_eq!(cluster.shard(2).get(letters).await, "3", "{call}");
    }
    cluster
        .shard(2)
        .get("begin; lock table trax.manifest_group in access exclusive mode")
        .await;
    let refusal = s.refusal(calls[0].0).await;
    assert_eq!(refusal.code, "57014", "{refusal}");
    assert_eq!(
        refusal.detail,
        "The result of the call on shard 2 is not known. Done on the shards 1; their changes stay."
    );
    cluster.shard(2).get("rollback").await;
}

#[tokio::test]
async fn a_call_that_a_shard_has_done_is_not_refused_for_a_note_here() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    let group = cluster.group_on(1).await;
    s.get(&format!(
        "select trax.schedule('m', 't', group_name => '{group}')"
    ))
    .await;
    let wrong = "update trax_router.manifest set shard = 2";
    let jobs = "select count(*) from trax.work_queue";

    // The entry has changed since the transaction began.
    s.get(wrong).await;
    let late = Session::of(&cluster.database).await;
    late.get("begin isolation level repeatable read; select count(*) from trax_router.manifest")
        .await;
    s.get("select trax.trigger('m')").await;
    late.get("select trax.trigger('m'); commit").await;
    assert_eq!(cluster.shard(1).get(jobs).await, "2");

    // Another transaction is changing the entry and stays open.
    s.get(wrong).await;
    let other = Session::of(&cluster.database).await;
    other
        .get("begin; update trax_router.manifest set shard = 1")
        .await;
    late.get("set lock_timeout = '200ms'; select trax.trigger('m')")
        .await;
    late.get("set lock_timeout = 0; select trax.trigger('m')")
        .await;
    assert_eq!(cluster.shard(1).get(jobs).await, "4");
    other.get("rollback").await;
    late.get("begin isolation level serializable; select trax.trigger('m'); commit")
        .await;
    assert_eq!(cluster.shard(1).get(jobs).await, "5");
}
