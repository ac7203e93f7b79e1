//! Calls that are cancelled between shards, and what happens here after a shard has committed.

use super::{Cluster, has_plproxy};
use harness::session::Session;

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

    // Somebody has changed the note since the transaction began.
    s.get(wrong).await;
    let late = Session::of(&cluster.database).await;
    late.get("begin isolation level repeatable read; select count(*) from trax_router.manifest")
        .await;
    s.get("select trax.trigger('m')").await;
    late.get("select trax.trigger('m'); commit").await;
    assert_eq!(cluster.shard(1).get(jobs).await, "2");

    // Somebody is changing it, for as long as he likes.
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
