//! Functions for all shards name the shard in each row.

use super::{Cluster, has_plproxy};

#[tokio::test]
async fn rows_of_all_shards_say_of_which_they_are() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let s = &cluster.router;
    s.get("select trax.enqueue_many('a', array_fill('1'::jsonb, array[30]))")
        .await;
    let ready = "select shard, value from trax.status() where item = 'waiting, ready' order by 1";
    assert_eq!(s.get(ready).await, "1|10\n2|10\n3|10");
    let samples = "select labels ->> 'shard', sum(value) from trax.metrics() where name = 'trax_enqueued_total' group by 1 order by 1";
    assert_eq!(s.get(samples).await, "1|10\n2|10\n3|10");
    assert_eq!(s.get("select * from trax.check()").await, "");
    let steps = "select shard, count(*) >= 6 from trax.tick() group by 1 order by 1";
    assert_eq!(s.get(steps).await, "1|t\n2|t\n3|t");
    let found = "select distinct shard from trax.diagnose('0 s') where cause = 'task_not_claimed' order by 1";
    assert_eq!(s.get(found).await, "1\n2\n3");
    s.get("select trax.pause('disks'); select trax.resume()")
        .await;
    for (_, shard) in &cluster.shards {
        let acts = "select string_agg(action, ' ' order by id) from trax.audit where action in ('pause', 'resume')";
        assert_eq!(shard.get(acts).await, "pause resume");
    }
    let next = "select local_time from trax.preview_cron('0 0 * * *', 'UTC', '2026-01-01', 1)";
    assert_eq!(s.get(next).await, "2026-01-02 00:00:00 +00:00");
}

#[tokio::test]
async fn a_shard_of_another_minor_version_is_refused_and_named() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(1).await;
    let s = &cluster.router;
    s.get("update pg_extension set extversion = '0.99.1' where extname = 'trax_router'")
        .await;
    let again = "select trax_router.add_shard(number, address) from trax_router.shards()";
    let refusal = s.refusal(again).await;
    assert_eq!(refusal.code, "55000", "{refusal}");
    assert!(
        refusal
            .message
            .ends_with("and the router is of version 0.99.1"),
        "{refusal}"
    );
    let state = "select state from trax_router.cluster()";
    assert_eq!(s.get(state).await, refusal.message);
    // Another patch of the same minor version counts as the same version.
    s.get(
        "update pg_extension set extversion = (
            select regexp_replace(value, '[.][^.]*$', '.99') from trax.status() where item = 'version'
        ) where extname = 'trax_router'",
    )
    .await;
    assert_eq!(s.get(state).await, "open");
    s.get(again).await;
}
