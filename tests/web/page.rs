//! The contents of the pages, and the requests that they refuse.

use super::client::Web;
use harness::session::{Session, session};
use harness::{PATIENCE, eventually, shared_server};
use trax_client::testkit::Stop;

const PAGES: [&str; 9] = [
    "/",
    "/jobs",
    "/manifests",
    "/groups",
    "/dead",
    "/workers",
    "/tokens",
    "/doctor?check=1",
    "/audit",
];

#[tokio::test]
async fn every_page_opens_in_an_empty_database_and_a_full_one() {
    let (database, s) = session().await;
    let web = Web::of(shared_server(), &database, &[]).await;
    for path in PAGES {
        web.page(path).await;
    }
    s.get(
        "select trax.configure_group('g', max_active_jobs => 1, enabled => false);
        select trax.schedule('early', task => 't', cron => '0 2 * * *', timezone => 'Europe/Berlin');
        select trax.schedule('after/it', task => 't', depends_on => '{early}');
        select trax.enqueue('t', group_name => 'g');
        select trax.enqueue('slow');
        select trax.enqueue('dies', max_retries => 0);
        select trax.fail(job_id, token, 'it is broken') from trax.claim_next(tasks => '{dies}');
        select trax.claim_next('worker 1', tasks => '{slow}');
        select trax.acquire_token('licence', 'somebody', 2, '1 min')",
    )
    .await;
    for path in PAGES {
        let page = web.page(path).await;
        assert!(page.starts_with("<!DOCTYPE html>"), "{path}: {page}");
    }
    let page = web.page("/manifests").await;
    assert!(page.contains("At 02:00 every day, Europe/Berlin"), "{page}");
    let page = web.page("/manifests/after%2Fit").await;
    assert!(
        page.contains("after all of its parents") && page.contains(">early</a>"),
        "{page}"
    );
    let page = web.page("/dead").await;
    assert!(page.contains("it is broken"), "{page}");
    let page = web.page("/jobs?state=in_progress").await;
    assert!(page.contains("slow") && !page.contains("dies"), "{page}");
    assert!(web.page("/tokens").await.contains("somebody"));
    assert!(web.page("/groups").await.contains("paused"));
    assert_eq!(web.get("/jobs/99999").await.status, 404);
    assert_eq!(web.get("/jobs/x").await.status, 404);
    assert_eq!(web.get("/manifests/no").await.status, 404);
    assert_eq!(web.get("/jobs?state=odd").await.status, 400);
    assert_eq!(web.get("/jobs?task=%00").await.status, 400);
}

#[tokio::test]
async fn a_filter_that_is_mistyped_is_refused_and_never_shows_everything() {
    let (database, s) = session().await;
    s.enqueue("'mine'").await;
    let web = Web::of(shared_server(), &database, &[]).await;
    for (path, words) in [
        ("/jobs?state=foo", "state is one of: queued, in_progress"),
        ("/jobs?waits=foo", "waits is one of: worker, time, job"),
        ("/jobs?from=abc", "invalid input syntax for type timestamp"),
        ("/jobs?to=abc", "invalid input syntax for type timestamp"),
        ("/jobs?within=abc", "invalid input syntax for type interval"),
        ("/jobs?path=%5B", "syntax error"),
        ("/jobs?before=x", "before is not a number"),
        ("/jobs?zone=Mars", "Mars"),
        (
            "/jobs?stat=queued",
            "this page has no filter &quot;stat&quot;",
        ),
        ("/jobs?State=", "this page has no filter &quot;State&quot;"),
        (
            "/dead?status=foo",
            "status is one of: awaiting_intervention, requeued",
        ),
        (
            "/dead?state=foo",
            "this page has no filter &quot;state&quot;",
        ),
        ("/dead?id=x", "id is not a number"),
        ("/workers?state=foo", "state is one of: alive, gone"),
        (
            "/workers?task=t",
            "this page has no filter &quot;task&quot;",
        ),
        ("/?charts=foo", "charts is one of: 1h, 6h, 1d, 7d"),
        ("/?from=abc", "Use one of: charts"),
        (
            "/audit?before=abc",
            "invalid input syntax for type timestamp",
        ),
        (
            "/audit?from=abc",
            "this page has no filter &quot;from&quot;",
        ),
        ("/manifests?state=foo", "Use one of: task, group, after"),
        (
            "/groups?group=g",
            "this page has no filter &quot;group&quot;",
        ),
        ("/tokens?name=t", "this page has none"),
        ("/jobs/1?state=foo", "Use one of: before"),
        ("/jobs/1?before=x", "before is not a number"),
    ] {
        let answer = web.get(path).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        assert!(answer.body.contains(words), "{path}: {}", answer.body);
        assert!(!answer.body.contains("mine"), "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn what_a_job_carries_is_text_however_hostile() {
    let (database, s) = session().await;
    let evil = "<script>alert(1)</script><img src=x onerror=alert(2)>\"''&";
    let quoted = evil.replace('\'', "''");
    let json = evil.replace('\'', "''").replace('"', "\\\"");
    s.get(&format!(
        "select trax.schedule('{quoted}', task => '{quoted}', input => '{{\"a\": \"{json}\"}}', cron => '@daily', max_retries => 0);
        select trax.trigger('{quoted}');
        select trax.fail(job_id, token, '{quoted}', detail => '{{\"a\": \"{json}\"}}') from trax.claim_next('{quoted}');
        select trax.enqueue('{quoted}', group_name => '{quoted}', concurrency_key => '{quoted}');
        select trax.configure_group('{quoted}', max_active_jobs => 3);
        select trax.acquire_token('{quoted}', '{quoted}', 1, '1 min')"
    ))
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let encoded: String = evil.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let mut paths: Vec<String> = PAGES.iter().map(|path| (*path).to_owned()).collect();
    paths.extend([
        "/jobs/1".to_owned(),
        "/jobs/2".to_owned(),
        format!("/manifests/{encoded}"),
        format!("/jobs?task={encoded}&error={encoded}&key={encoded}"),
        format!("/dead?task={encoded}"),
        format!("/act/trigger?manifest={encoded}&input={encoded}"),
    ]);
    for path in paths {
        let page = web.page(&path).await;
        assert!(
            !page.contains("<script>alert") && !page.contains("<img"),
            "{path}: {page}"
        );
    }
    let page = web.page("/jobs/1").await;
    assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
    for name in ["أحمد", "🦀 läuft"] {
        s.get(&format!(
            "select trax.schedule('{name}', task => '{name}', cron => '@daily')"
        ))
        .await;
        let path: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        assert!(web.page(&format!("/manifests/{path}")).await.contains(name));
    }
}

#[tokio::test]
async fn a_large_input_is_cut_and_says_so() {
    let (database, s) = session().await;
    let id = s
        .enqueue("'t', jsonb_build_object('a', repeat('x', 1000000))")
        .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page(&format!("/jobs/{id}")).await;
    assert!(page.len() < 40_000, "{}", page.len());
    assert!(
        page.contains("Only the beginning is shown of 1,000,00"),
        "{page}"
    );
}

#[tokio::test]
async fn jobs_are_paged_by_key_and_what_was_not_looked_at_is_said() {
    let (database, s) = session().await;
    s.get("select count(*) from trax.enqueue_many('t', array_fill('1'::jsonb, array[120]))")
        .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let first = web.page("/jobs").await;
    let ids = |page: &str| -> Vec<i64> {
        let rows = page.split("/jobs/").skip(1);
        rows.filter_map(|row| row.split('"').next()?.parse().ok())
            .collect()
    };
    assert_eq!(ids(&first), (71..=120).rev().collect::<Vec<_>>());
    assert!(first.contains("before=71"), "{first}");
    let last = web.page("/jobs?before=21").await;
    assert_eq!(ids(&last), (1..=20).rev().collect::<Vec<_>>());
    assert!(
        !last.contains("Older") && !last.contains("further"),
        "{last}"
    );
    let all = "In all 120 waiting jobs and 0 ended attempts.";
    assert!(first.contains(all), "{first}");

    s.get("select count(*) from trax.enqueue_many('many', array_fill('1'::jsonb, array[20500]))")
        .await;
    s.get("analyze trax.work_queue").await;
    let all = web.page("/jobs").await;
    assert!(all.contains("In all about 20,6"), "{all}");
    let none = web.page("/jobs?task=t").await;
    assert!(none.contains("No job matches among those"), "{none}");
    let further = super::client::between(&none, "rel=\"next\" href=\"", "\"").replace("&amp;", "&");
    let found = web.page(&further).await;
    assert_eq!(ids(&found).first(), Some(&120), "{found}");
}

#[tokio::test]
async fn acts_do_what_they_say() {
    let (database, s) = session().await;
    s.get(
        "select trax.schedule('m', task => 'm', cron => '@daily');
        select trax.enqueue('dies', max_retries => 0);
        select trax.fail(job_id, token, 'no') from trax.claim_next(tasks => '{dies}');
        select trax.enqueue('later', run_at => now() + interval '1 h')",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let act = async |name: &str, query: &str, more: &str| {
        let answer = web
            .act(
                &format!("/act/{name}?{query}"),
                &format!("{query}&{more}"),
                &[],
            )
            .await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.body);
        answer.body
    };
    act("disable", "manifest=m", "").await;
    assert_eq!(s.get("select enabled from trax.manifest").await, "f");
    act("enable", "manifest=m", "").await;
    act("trigger", "manifest=m", "input=%7B%22a%22%3A1%7D").await;
    assert_eq!(
        s.get("select input from trax.work_queue where task = 'm'")
            .await,
        "{\"a\": 1}"
    );
    act("requeue", "id=1", "reason=mended").await;
    assert_eq!(
        s.get("select status, resolution_note from trax.dead_letter")
            .await,
        "requeued|mended"
    );
    let again = web.get("/act/again?job=1").await;
    assert_eq!(again.status, 409, "it is requeued already: {}", again.body);
    let said = act("run-now", "job=2", "").await;
    assert!(said.contains("<b>ready</b>"), "{said}");
    act("limit-group", "group=g", "most=7").await;
    act("pause-group", "group=g", "").await;
    assert_eq!(
        s.get("select enabled, max_active_jobs from trax.manifest_group where name = 'g'")
            .await,
        "f|7"
    );
    act("resume-group", "group=g", "").await;
    act("pause", "reason=lunch", "").await;
    assert_eq!(
        s.get("select pause_reason from trax.instance").await,
        "lunch"
    );
    act("resume", "", "").await;
    let answer = web.act("/act/cancel?job=3", "job=x", &[]).await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    let page = web.page("/audit").await;
    assert!(page.contains("pause scheduler"), "{page}");
}

#[tokio::test]
async fn the_pages_come_back_after_a_restart_and_show_nothing_meanwhile() {
    let mut server = harness::options().fast().start().expect("a server starts");
    let database = server.database("web").await.expect("a database is made");
    let s = Session::of(&database).await;
    s.enqueue("'t'").await;
    let web = Web::of(&server, &database, &[]).await;
    web.page("/jobs").await;
    server.stop(Stop::Fast).expect("it stops");
    let away = web.get("/jobs").await;
    assert_eq!(away.status, 503, "{}", away.body);
    assert!(away.body.contains("no data to show"), "{}", away.body);
    server.start().expect("it starts");
    eventually("the page again", PATIENCE, async || {
        match web.get("/jobs").await {
            answer if answer.status == 200 => Ok(()),
            answer => Err(answer.body),
        }
    })
    .await;
}
