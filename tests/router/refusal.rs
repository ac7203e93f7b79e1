//! Refusals of a shard, in its own words.

use super::{Cluster, has_plproxy};

#[tokio::test]
async fn errors_keep_their_code_message_detail_and_hint() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(1).await;
    let unknown = (1_i64 << 43) + 99;
    let calls = [
        "select trax.enqueue('')".to_owned(),
        "select trax.enqueue('a', priority => 99)".to_owned(),
        "select trax.enqueue('a', run_at => 'infinity')".to_owned(),
        "select trax.enqueue(repeat('x', 300))".to_owned(),
        "select trax.enqueue_many('a', null)".to_owned(),
        "select trax.enqueue_many('', '{1}')".to_owned(),
        "select trax.enqueue_sql('')".to_owned(),
        "select trax.enqueue_sql('select 1', run_as => 'nobody')".to_owned(),
        "select trax.limit_queue_time(1, '-1 s')".to_owned(),
        "select trax.change_job(null)".to_owned(),
        "select trax.enqueue('a', on_duplicate => 'replace')".to_owned(),
        "select trax.cancel(null)".to_owned(),
        "select trax.get_jobs(null)".to_owned(),
        "select trax.schedule('m')".to_owned(),
        "select trax.schedule('m', 't', cron => '0 99 * * *')".to_owned(),
        "select trax.schedule('m', 't', cron => 'x', every => '1 h')".to_owned(),
        "select trax.schedule(null, 't')".to_owned(),
        "select trax.trigger('nope')".to_owned(),
        "select trax.unschedule(null)".to_owned(),
        "select * from trax.preview('nope')".to_owned(),
        "select * from trax.preview_cron('a b')".to_owned(),
        "select * from trax.explain_manifest('nope')".to_owned(),
        "select trax.configure_group('g', max_active_jobs => -1)".to_owned(),
        "select trax.trigger_group(null)".to_owned(),
        format!("select trax.requeue_dead_letter({unknown})"),
        format!("select trax.acknowledge_dead_letter({unknown})"),
        "select trax.requeue_dead_letters(max_count => -1)".to_owned(),
        "select * from trax.acquire_token('', 'h', 1, '1 s')".to_owned(),
        "select trax.extend_token('a', null, '1 s')".to_owned(),
        "select trax.grant_access('nobody', 'reader')".to_owned(),
        "select trax.grant_access('postgres', 'king')".to_owned(),
        "select * from trax.check('-1 s')".to_owned(),
        "select * from trax.diagnose(role => 'nobody')".to_owned(),
    ];
    for mut call in calls {
        if call.contains("limit_queue_time") {
            call = call.replace("(1,", &format!("({unknown},"));
        }
        let direct = cluster.shard(1).attempt(&call).await;
        let routed = cluster.router.attempt(&call).await;
        match direct {
            Err(_) => assert_eq!(routed, direct, "{call}"),
            Ok(_) => assert!(routed.is_ok(), "{call}: {routed:?}"),
        }
    }
    // The session still works after all of them.
    cluster.router.get("select trax.enqueue('a')").await;
}

#[tokio::test]
async fn an_id_of_no_shard_is_refused() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let id = (7_i64 << 43) + 1;
    for call in [
        format!("select trax.cancel({id})"),
        format!("select * from trax.get_jobs('{{{id}}}')"),
        format!("select trax.requeue_dead_letter({id})"),
    ] {
        let refusal = cluster.router.refusal(&call).await;
        assert_eq!(refusal.code, "42704", "{refusal}");
        assert_eq!(refusal.message, "the router has no shard 7");
        assert!(refusal.detail.contains(&id.to_string()), "{refusal}");
        assert!(refusal.detail.contains("1, 2"), "{refusal}");
    }
}

#[tokio::test]
async fn a_router_without_shards_says_what_to_type() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::on(&[]).await;
    for call in [
        "select trax.enqueue('a')",
        "select trax.enqueue('a', group_name => 'g')",
        "select trax.enqueue_many('a', '{1, 2}')",
        "select trax.trigger('m')",
        "select trax.schedule('m', 't')",
        "select trax.cancel(1)",
        "select trax.acquire_token('a', 'h', 1, '1 s')",
        "select trax.preview_cron('* * * * *')",
    ] {
        let refusal = cluster.router.refusal(call).await;
        assert_eq!(refusal.message, "the router has no shard", "{call}");
        assert!(
            refusal.hint.contains("trax_router.add_shard(1,"),
            "{refusal}"
        );
    }
    assert_eq!(cluster.router.get("select * from trax.status()").await, "");
}
