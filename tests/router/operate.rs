//! Functions for all shards name the shard in each row.

use super::cluster::servers;
use super::{Cluster, has_plproxy};
use harness::database::drop_after_test;
use harness::session::Session;

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

#[tokio::test]
async fn a_shard_without_its_extension_is_named() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(1).await;
    let has = "select count(*) from pg_extension where extname = 'trax_shard'";
    assert_eq!(cluster.shard(1).number(has).await, 1, "add_shard makes it");
    cluster.shard(1).get("drop extension trax_shard").await;
    let state = "select state from trax_router.cluster()";
    assert_eq!(
        cluster.router.get(state).await,
        "shard 1 does not have the extension trax_shard"
    );
    let again = "select trax_router.add_shard(number, address) from trax_router.shards()";
    cluster.router.get(again).await;
    assert_eq!(cluster.router.get(state).await, "open");
}

#[tokio::test]
async fn an_owner_who_is_no_superuser_is_told_what_to_type_on_the_shard() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(1).await;
    let name = format!("{}_second", cluster.database.name());
    let server = &servers()[1];
    drop_after_test(server, &name);
    let second = server.plain_database(&name).await;
    let second = Session::of(&second.expect("a database is made")).await;
    let create = "create extension trax_shard";
    second
        .get(&format!(
            "create role {name} login superuser; set role {name}; create extension trax; select trax.set_shard(2);
             reset role; alter role {name} nosuperuser"
        ))
        .await;
    let add = format!(
        "select trax_router.add_shard(2, 'host=127.0.0.1 port={} dbname={name} user={name}')",
        server.port()
    );
    let refusal = cluster.router.refusal(&add).await;
    assert_eq!(refusal.code, "42501", "{refusal}");
    assert!(
        refusal.message.contains("shard 2 does not have"),
        "{refusal}"
    );
    assert!(refusal.detail.contains("permission denied"), "{refusal}");
    assert!(refusal.hint.contains(create), "{refusal}");
    assert_eq!(
        cluster
            .router
            .get("select shard from trax_router.cluster()")
            .await,
        "1"
    );

    // The owner of the objects, not any superuser.
    let refusal = second.refusal(create).await;
    assert_eq!(refusal.code, "42501", "{refusal}");
    second
        .get(&format!(
            "alter role {name} superuser; set role {name}; {create}; reset role; alter role {name} nosuperuser"
        ))
        .await;
    cluster.router.get(&add).await;
    let state = "select string_agg(state, ' ') from trax_router.cluster()";
    assert_eq!(cluster.router.get(state).await, "open open");
}
