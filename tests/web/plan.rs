//! The rows of a long history that the pages read.

use super::client::Web;
use harness::session::session;
use harness::{PATIENCE, eventually, shared_server};

#[tokio::test]
async fn no_page_reads_history_from_end_to_end() {
    let (database, s) = session().await;
    // A day of history in today's partition, some of it of a manifest, and some failed.
    s.get(
        "select trax.schedule('m', task => 't', cron => '@daily');
        select trax.schedule('child', task => 't', depends_on => '{m}');
        insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, manifest_id, manifest, attempt, priority, final, state, failure_kind, error, worker, task, group_name, input)
        select i, at, at, at, at, case when i % 50 = 0 then m.manifest_id end, case when i % 50 = 0 then 'm' end, 1, 0, true,
            case when i % 20 = 0 then 'failed' else 'completed' end, case when i % 20 = 0 then 'error' end, case when i % 20 = 0 then 'no' end,
            'w', 't' || i % 7, 'g' || i % 11, '{\"a\": 1}'
        from generate_series(1, 200000) i
        cross join lateral (select greatest(date_trunc('day', now(), 'UTC'), now() - (200000 - i) * interval '30 ms') as at) a
        cross join trax.manifest m
        where m.name = 'm';
        select setval('trax.work_queue_job_id_seq', 200000);
        select count(*) from trax.enqueue_many('t', array_fill('1'::jsonb, array[20000]));
        select count(*) from trax.claim_next('w', 100);
        select trax.enqueue('tree', priority => 9);
        select count(*) from trax.claim_next('w', tasks => '{tree}');
        select count(trax.spawn(job_id, token, 'child ' || n, 'leaf')) from trax.lease cross join generate_series(1, 40) n where task = 'tree';
        analyze",
    )
    .await;
    let full = "(select i.inhrelid from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = 'trax.run'::regclass and c.reltuples > 0)";
    let scans = format!("select sum(t.seq_scan) from pg_stat_all_tables t where t.relid in {full}");
    s.get("select pg_stat_force_next_flush()").await;
    let before = s.number(&scans).await;
    let web = Web::of(shared_server(), &database, &[]).await;
    for path in [
        "/",
        "/?charts=1d",
        "/?charts=7d",
        "/jobs",
        "/jobs?state=failed",
        "/jobs?state=failed&within=1+hour",
        "/jobs?state=completed&from=2020-01-01",
        "/jobs?state=completed&task=t3&group=g5",
        "/jobs?manifest=m",
        "/jobs?worker=nobody",
        "/jobs?error=yes&within=1+hour",
        "/jobs?key=none",
        "/jobs?path=%24.b&state=completed",
        "/jobs?state=failed&before=100000",
        "/jobs?parent=220001",
        "/jobs/220001",
        "/jobs/220002",
        "/jobs/100000",
        "/jobs/220000",
        "/manifests",
        "/manifests/m",
        "/manifests/child",
        "/groups",
        "/dead",
        "/dead?status=any&error=no",
        "/workers",
        "/tokens",
        "/doctor",
        "/audit",
    ] {
        web.page(path).await;
    }
    // A session reports its reads when it ends.
    drop(web);
    eventually("the connections of the pages are gone", PATIENCE, async || {
        let left = "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'trax%'";
        match s.number(left).await {
            0 => Ok(()),
            n => Err(n.to_string()),
        }
    })
    .await;
    assert_eq!(s.number(&scans).await, before, "history was read whole");
    // A sequential scan does change this counter.
    s.get("set enable_indexscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off; select count(*) from trax.run where job_id = 5; select pg_stat_force_next_flush()")
        .await;
    assert!(s.number(&scans).await > before, "it is counted");
}
