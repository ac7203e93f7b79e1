//! Arguments and results arrive unchanged, whatever the settings of either side.

use super::{Cluster, has_plproxy, shard_server};
use harness::pooler::Pooler;
use harness::session::Session;

#[tokio::test]
async fn times_are_the_same_under_any_style_of_the_router_and_of_the_shard() {
    if !has_plproxy() {
        return;
    }
    let server = shard_server();
    let cluster = Cluster::on(&[&server]).await;
    let there = cluster.shards[0].0.name();
    for (setting, value) in [
        ("datestyle", "SQL, DMY"),
        ("intervalstyle", "sql_standard"),
        ("timezone", "America/St_Johns"),
    ] {
        let set = format!("alter database {there} set {setting} = '{value}'");
        cluster.shard(1).get(&set).await;
    }
    calls_under_all_styles(&cluster).await;
    // A pooler accepts no connection options, and gives one connection to many sessions.
    let pooler = Pooler::of(&server, 2).await;
    let behind = format!("host=127.0.0.1 port={} dbname={there}", pooler.port());
    cluster
        .router
        .get(&format!("select trax_router.move_shard(1, '{behind}')"))
        .await;
    calls_under_all_styles(&cluster).await;
}

/// Calls with times in arguments and results, from sessions with many formats.
async fn calls_under_all_styles(cluster: &Cluster) {
    let styles = [
        ("ISO, MDY", "postgres", "UTC"),
        ("SQL, DMY", "sql_standard", "Asia/Kathmandu"),
        ("Postgres, DMY", "postgres_verbose", "America/New_York"),
        ("German", "iso_8601", "Europe/Berlin"),
    ];
    for (datestyle, intervalstyle, timezone) in styles {
        // A separate session, which opens a new connection to the shard.
        let s = Session::of(&cluster.database).await;
        s.get(&format!(
            "set datestyle = '{datestyle}'; set intervalstyle = '{intervalstyle}'; set timezone = '{timezone}'"
        ))
        .await;
        let sent = "timestamptz '2100-12-03 10:00:00.123456+00'";
        let id = s
            .number(&format!(
                "select trax.enqueue('a', run_at => {sent}, retry_delay => interval '1 mon 2 days 03:04:05.5')"
            ))
            .await;
        let stored = format!(
            "select run_at = {sent}, retry_delay = interval '1 mon 2 days 03:04:05.5'
            from trax.work_queue where job_id = {id}"
        );
        assert_eq!(cluster.shard(1).get(&stored).await, "t|t", "{datestyle}");
        let got = format!(
            "select run_at = {sent}, queued_at between now() - interval '1 h' and now() + interval '1 h', started_at is null
            from trax.get_jobs('{{{id}}}')"
        );
        assert_eq!(s.get(&got).await, "t|t|t", "{datestyle}");
        let next = "select run_at = timestamptz '2026-02-01 00:00+00' from trax.preview_cron('0 0 1 2 *', 'UTC', timestamptz '2026-01-03 00:00+00', 1)";
        assert_eq!(s.get(next).await, "t", "{datestyle}");
        let until = format!(
            "select expires_at between now() + interval '23 h' and now() + interval '25 h'
            from trax.acquire_token('{datestyle}', 'me', 2, interval '1 day')"
        );
        assert_eq!(s.get(&until).await, "t", "{datestyle}");
        s.get(
            "select trax.configure_rate('api', 1, interval '1 mon 2 days 03:04:05.5', burst => 1)",
        )
        .await;
        let later = "select retry_after between '31 days' and '32 days 3:04:05.5' from trax.consume_rate('api')";
        s.get(later).await;
        assert_eq!(s.get(later).await, "t", "{datestyle}");
    }
}

#[tokio::test]
async fn inputs_are_all_queued_wherever_their_array_begins() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    for inputs in ["[0:2]={1,2,3}", "[5:7]={1,2,3}", "{{1,2},{3,4}}"] {
        for place in ["default", "reports"] {
            let many = format!(
                "select count(*) from trax.enqueue_many('a', '{inputs}'::jsonb[], group_name => '{place}')"
            );
            let direct = cluster.shard(1).get(&many).await;
            assert_eq!(cluster.router.get(&many).await, direct, "{many}");
        }
    }
}
