//! Jobs: the results of filters, and the page of a job.

use super::client::{Web, between};
use harness::session::session;
use harness::shared_server;

/// Returns the jobs of a list, as it shows them.
pub(super) fn ids(page: &str) -> Vec<i64> {
    let rows = page.split("/jobs/").skip(1);
    rows.filter_map(|row| row.split('"').next()?.parse().ok())
        .collect()
}

#[tokio::test]
async fn each_filter_finds_its_jobs_and_says_how_many() {
    let (database, s) = session().await;
    // 1 is delayed, 2 runs, 3 is behind the key of 2, 4 is ready, and 5 ended two hours ago.
    s.get(
        "select trax.enqueue('mail', '{\"to\": \"ada\", \"copies\": 2}', run_at => now() + interval '3 hours');
        select trax.enqueue('key', concurrency_key => 'disk');
        select count(*) from trax.claim_next('worker 1', tasks => '{key}');
        select trax.enqueue('key', '{\"to\": null}', concurrency_key => 'disk');
        select count(*) from trax.claim_next('worker 1', tasks => '{key}');
        select trax.enqueue('mail', '{\"to\": \"bob\"}', unique_key => 'once');
        insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, failure_kind, task, group_name, input, error)
        select nextval('trax.work_queue_job_id_seq'), at, at, at, at, 1, 0, true, 'failed', 'error', 'mail', 'default', '{\"to\": \"ada\"}', 'no 100 % way'
        from (select now() - interval '2 hours') a (at)",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    for (query, expected) in [
        ("state=queued&waits=time", vec![1]),
        ("state=queued&waits=worker", vec![4]),
        ("waits=job", vec![3]),
        ("key=disk", vec![3, 2]),
        ("key=once", vec![4]),
        ("worker=worker+1", vec![2]),
        ("error=100+%25", vec![5]),
        ("within=1+hour", vec![4, 3, 2]),
        ("within=2.5+hours", vec![5, 4, 3, 2]),
        ("from=2000-01-01&to=2000-02-01", vec![]),
        ("from=2000-01-01&task=key", vec![3, 2]),
        ("path=%24.to", vec![5, 4, 3, 1]),
        ("path=%24.to+%3D%3D+%22ada%22", vec![5, 1]),
        ("path=%24+%3F+%28%40.copies+%3E+1%29", vec![1]),
        ("path=%24.to+%3D%3D+%22ada%22&state=failed", vec![5]),
    ] {
        let page = web.page(&format!("/jobs?{query}")).await;
        assert_eq!(ids(&page), expected, "{query}");
        let said = match expected.len() {
            1 => "1 job matches.".to_owned(),
            n => format!("{n} jobs match."),
        };
        assert!(page.contains(&said), "{query}: {page}");
    }
    let page = web.page("/jobs?state=queued&task=mail&waits=time").await;
    assert!(
        page.contains("href=\"/jobs?state=queued&amp;waits=time\" title=\"Remove this filter\""),
        "{page}"
    );
    for wrong in ["waits=sun", "path=%24%24", "from=soon", "within=a+while"] {
        let answer = web.get(&format!("/jobs?{wrong}")).await;
        assert_eq!(answer.status, 400, "{wrong}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_statement_s_rows_are_printed_as_psql_does() {
    let (database, s) = session().await;
    s.get(
        r#"insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, task, group_name, input, output)
        select 7, now(), now(), now(), now(), 1, 0, true, 'completed', 'sql', 'default', '{"command": "table <people>"}',
            '{"command": "SELECT 2", "rows": 2, "columns": ["id", "<b>"], "result": [[1, "<i>ada"], [20, null]], "truncated": false,
            "notices": ["mind"], "plan_ms": 0.25, "run_ms": 1.5, "transaction": true}'"#,
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page("/jobs/7").await;
    let printed = "NOTICE:  mind\n id |  &lt;b&gt;\n----+--------\n  1 | &lt;i&gt;ada\n 20 |\n(2 rows)\nTime: 1.500 ms, planned in 0.250 ms</pre>";
    assert!(page.contains(printed), "{page}");
    assert!(page.contains("table &lt;people&gt;</pre>"), "{page}");
}

#[tokio::test]
async fn a_job_names_those_of_the_manifests_before_and_behind_it() {
    let (database, s) = session().await;
    s.get(
        "select trax.schedule('early', task => 'a');
        select trax.schedule('late', task => 'b', depends_on => '{early}');
        select trax.trigger('early');
        select count(*) from trax.claim_next('worker 1')",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page("/jobs/1").await;
    assert!(page.contains("<rect class=\"running\""), "{page}");
    assert!(page.contains("none yet"), "{page}");
    s.get(
        "select trax.complete(l.job_id, l.token) from trax.lease l;
        select count(*) from trax.tick()",
    )
    .await;
    let page = web.page("/jobs/1").await;
    assert!(page.contains("<rect class=\"completed\""), "{page}");
    let children = between(&page, "aria-label=\"Manifests behind it\"", "</table>");
    assert!(
        children.contains("href=\"/jobs/2\"") && children.contains("queued"),
        "{children}"
    );
    s.get(
        "select trax.complete(job_id, token) from trax.claim_next('worker 1');
        select trax.trigger('late')",
    )
    .await;
    let page = web.page("/jobs/2").await;
    let parents = between(&page, "aria-label=\"Manifests before it\"", "</table>");
    assert!(parents.contains("href=\"/jobs/1\""), "{parents}");
    let page = web.page("/jobs/1").await;
    let children = between(&page, "aria-label=\"Manifests behind it\"", "</table>");
    assert!(
        children.contains("href=\"/jobs/2\"") && children.contains("completed"),
        "{children}"
    );
}
