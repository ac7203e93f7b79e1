//! Groups placed by the router's owner: no rows are left behind.

use super::{Cluster, has_plproxy};

#[tokio::test]
async fn a_group_gets_the_settings_of_its_home_not_those_of_a_shard_it_once_had() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let s = &cluster.router;
    for group in ["placed", "spread"] {
        for (shard, settings) in [
            (1, "max_active_jobs => 5"),
            (2, "max_active_jobs => 7, enabled => false"),
        ] {
            s.get(&format!(
                "select trax_router.place_group('{group}', {shard});
                select trax.configure_group('{group}', {settings})"
            ))
            .await;
        }
    }
    s.get("select trax_router.place_group('placed', 3); select trax_router.spread_group('spread')")
        .await;
    let settings = |group: &str| {
        format!(
            "select concat_ws(' ', max_active_jobs, enabled) from trax.manifest_group where name = '{group}'"
        )
    };
    assert_eq!(cluster.shard(3).get(&settings("placed")).await, "7 f");
    for shard in 1..=3 {
        let there = cluster.shard(shard).get(&settings("spread")).await;
        assert_eq!(there, "7 f", "shard {shard}");
    }
}

#[tokio::test]
async fn a_group_is_not_placed_away_from_its_dead_letters_and_the_keys_of_ended_jobs() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    let (dies, ended) = (cluster.group_on(1).await, "ended");
    s.get(&format!(
        "select trax.enqueue('dies', group_name => '{dies}', max_retries => 0);
        select trax_router.place_group('{ended}', 1);
        select trax.cancel(trax.enqueue('t', group_name => '{ended}', unique_key => 'once', unique_for => '1 day'))"
    ))
    .await;
    let fails = "select trax.fail(job_id, token, 'no') from trax.claim_next('w')";
    assert_eq!(cluster.shard(1).get(fails).await, "dead");
    for group in [&*dies, ended] {
        let place = format!("select trax_router.place_group('{group}', 2)");
        let refusal = s.refusal(&place).await;
        assert_eq!(refusal.code, "55000", "{refusal}");
        assert!(refusal.hint.contains("trax_router.move_group"), "{refusal}");
    }
}

#[tokio::test]
async fn keys_of_a_group_that_is_spread_stay_where_they_are_alive() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let s = &cluster.router;
    let jobs = "select string_agg(trax.enqueue('t', group_name => 'keyed', unique_key => 'u' || n)::text, ' ' order by n)
        from generate_series(1, 12) n";
    let locked = "select count(distinct trax.shard_of(trax.enqueue('t', group_name => 'keyed', concurrency_key => 'c' || n)))
        from generate_series(1, 12) n";
    let ended = "select trax.enqueue('t', group_name => 'keyed', unique_key => 'over', unique_for => '1 day')";
    s.get("select trax_router.place_group('keyed', 1)").await;
    let first = s.get(jobs).await;
    s.get(locked).await;
    let over = s.get(ended).await;
    s.get(&format!("select trax.cancel({over})")).await;
    s.get("select trax_router.spread_group('keyed')").await;
    assert_eq!(s.get(jobs).await, first, "no key has two jobs");
    assert_eq!(s.get(locked).await, "1", "no key is on two shards");
    assert_eq!(s.get(ended).await, over, "nor one of a job that has ended");
    let new = "select count(distinct trax.shard_of(trax.enqueue('t', group_name => 'keyed', unique_key => 'new' || n)))
        from generate_series(1, 60) n";
    assert_eq!(s.get(new).await, "3");
}

#[tokio::test]
async fn a_dead_letter_is_found_by_its_id_however_often_its_group_has_moved() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let s = &cluster.router;
    for way in [&[2, 3][..], &[3, 2], &[2, 1], &[2, 3, 1]] {
        let group = format!("went {way:?}");
        s.get(&format!(
            "select trax_router.place_group('{group}', 1);
            select trax.enqueue('dies', group_name => '{group}', max_retries => 0)"
        ))
        .await;
        let fails = "select trax.fail(job_id, token, 'no') from trax.claim_next('w')";
        assert_eq!(cluster.shard(1).get(fails).await, "dead");
        let letter = "select id from trax.dead_letter where resolved_at is null";
        let letter = cluster.shard(1).get(letter).await;
        for shard in way {
            s.get(&format!(
                "call trax_router.move_group('{group}', {shard}, null)"
            ))
            .await;
        }
        let requeue = format!("select trax.requeue_dead_letter({letter})");
        s.get(&requeue).await;
        let refusal = s.refusal(&requeue).await;
        assert!(refusal.message.contains("requeued"), "{way:?}: {refusal}");
        s.get(&format!("select trax.cancel_group('{group}')")).await;
    }
}

#[tokio::test]
async fn a_move_that_has_not_ended_is_named_with_what_ends_it() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    let group = cluster.group_on(1).await;
    s.get(&format!(
        "select trax.schedule('m', 't', every => '1 s', group_name => '{group}');
        select trax.trigger('m')"
    ))
    .await;
    let first = cluster.shard(1);
    let lease = first
        .get("select format('%s, %L', job_id, token) from trax.claim_next('w')")
        .await;
    s.get("set statement_timeout = '300ms'").await;
    let move_on = format!("call trax_router.move_group('{group}', 2, null)");
    assert_eq!(s.refusal(&move_on).await.code, "57014");
    s.get("reset statement_timeout").await;
    first.get(&format!("select trax.complete({lease})")).await;
    let named = "select fix from trax.diagnose('0 s') where cause = 'move_broken_off' and detail like '%on its way to shard 2%'";
    let fix = s.get(named).await;
    assert_eq!(fix, move_on);
    assert_eq!(
        s.get("select count(*) from trax.diagnose('1 h') where cause = 'move_broken_off'")
            .await,
        "0"
    );
    s.get(&fix).await;
    assert_eq!(
        s.get("select count(*) from trax.diagnose('0 s') where cause = 'move_broken_off'")
            .await,
        "0"
    );
    let there = "select count(*) from trax.manifest where enabled";
    assert_eq!(cluster.shard(2).get(there).await, "1");
}

#[tokio::test]
async fn with_every_shard_closed_a_call_says_so_and_why() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    s.get("select trax_router.close_shard(n, 'new disks') from generate_series(1, 2) n")
        .await;
    for call in [
        "select trax.enqueue('t')",
        "select trax.enqueue_many('t', '{1, 2}')",
        "select trax.preview_cron('* * * * *')",
    ] {
        let refusal = s.refusal(call).await;
        assert_eq!(refusal.code, "55000", "{call}: {refusal}");
        assert_eq!(refusal.message, "every shard is closed", "{call}");
        assert!(
            refusal.detail.contains("Shard 2: new disks"),
            "{call}: {refusal}"
        );
    }
}
