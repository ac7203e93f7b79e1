//! Every act by a person in a browser: the button, the form, and the server's answer.

use super::client::Web;
use super::driver::Browser;
use harness::session::session;
use harness::shared_server;

/// A page, its button, the typed values, and a query with its result afterwards.
type Step<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str, &'a str);

const RESULT: &str = "return document.getElementById('result')?.textContent.slice(0, 20) ?? ''";

#[tokio::test]
async fn every_act_is_done_by_clicks_and_typing() {
    let (database, s) = session().await;
    s.get(
        "select trax.enqueue('waits');
        select trax.enqueue('later', group_name => 'g', run_at => now() + interval '1 h');
        select trax.enqueue('done');
        select trax.complete(job_id, token) from trax.claim_next('w', tasks => '{done}');
        select trax.enqueue('dies', max_retries => 0) from generate_series(1, 4);
        select trax.fail(job_id, token, 'no') from trax.claim_next('w', 4, tasks => '{dies}');
        select trax.schedule('m', task => 'm', cron => '@daily')",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let browser = Browser::start().await;
    browser.size(1280, 900).await;
    let (requeued, acknowledged) = (
        "select count(*) from trax.dead_letter where status = 'requeued'",
        "select count(*) from trax.dead_letter where status = 'acknowledged'",
    );
    let group = "select enabled, max_active_jobs from trax.manifest_group where name = 'g'";
    let why = ("reason", "läuft 🦀");
    let steps: [Step<'_>; 16] = [
        (
            "/jobs/1",
            "cancel?",
            &[why],
            "select state from trax.job where job_id = 1",
            "cancelled",
        ),
        (
            "/jobs/2",
            "run-now?",
            &[why],
            "select run_at <= now() from trax.work_queue where job_id = 2",
            "t",
        ),
        (
            "/jobs/3",
            "again?",
            &[why],
            "select count(*) from trax.work_queue where task = 'done'",
            "1",
        ),
        ("/dead", "requeue?", &[why], requeued, "1"),
        ("/dead", "acknowledge?", &[why], acknowledged, "1"),
        (
            "/dead?task=dies",
            "requeue-many?",
            &[("most", "1"), why],
            requeued,
            "2",
        ),
        (
            "/dead?task=dies",
            "acknowledge-many?",
            &[why],
            acknowledged,
            "2",
        ),
        (
            "/manifests/m",
            "disable?",
            &[why],
            "select enabled from trax.manifest",
            "f",
        ),
        (
            "/manifests/m",
            "enable?",
            &[why],
            "select enabled from trax.manifest",
            "t",
        ),
        (
            "/manifests/m",
            "trigger?",
            &[("input", "{\"a\": \"ü\"}"), why],
            "select input from trax.work_queue where task = 'm'",
            "{\"a\": \"ü\"}",
        ),
        (
            "/manifests/m",
            "reschedule?",
            &[("cron", "30 4 * * *"), ("timezone", "Asia/Tokyo"), why],
            "select cron, timezone from trax.manifest",
            "30 4 * * *|Asia/Tokyo",
        ),
        (
            "/groups",
            "limit-group?group=g",
            &[("most", "7"), why],
            group,
            "t|7",
        ),
        ("/groups", "pause-group?group=g", &[why], group, "f|7"),
        ("/groups", "resume-group?group=g", &[why], group, "t|7"),
        (
            "/doctor",
            "pause",
            &[why],
            "select pause_reason from trax.instance",
            why.1,
        ),
        (
            "/doctor",
            "resume",
            &[why],
            "select count(*) from trax.instance where paused_at is null",
            "1",
        ),
    ];
    for (path, act, typed, sql, wanted) in steps {
        browser.open(&format!("http://{}{path}", web.host())).await;
        browser.click(&format!("a[href^='/act/{act}']")).await;
        for (field, text) in typed {
            browser.types(&format!("[name={field}]"), text).await;
        }
        // The last button performs the act; the one before it, if any, only previews it.
        browser.click("button[type=submit]:not([name])").await;
        browser.shows(RESULT, "The server answered:").await;
        assert_eq!(s.get(sql).await, wanted, "{act}");
    }
    // Each act recorded its author and reason; a note of a dead letter or a pause is the reason
    // itself.
    let silent = "select string_agg(action, ', ') from trax.audit
        where at > (select max(at) from trax.audit where name = 'm' and note = 'created')
            and program <> 'trax web: läuft 🦀'
            and note is distinct from 'läuft 🦀'";
    assert_eq!(s.get(silent).await, "");
    assert_eq!(browser.complaints().await, "[]", "the browser is content");
}

#[tokio::test]
async fn fifty_thousand_groups_and_an_input_of_a_megabyte_are_pages_of_some_kilobytes() {
    let (database, s) = session().await;
    s.get(
        "insert into trax.manifest_group (name) select 'group ' || n from generate_series(1, 50000) n;
        select count(trax.enqueue('t', group_name => 'group ' || n)) from generate_series(1, 50000, 25) n;
        select trax.enqueue('large', jsonb_build_object('a', repeat('x', 1000000)), group_name => 'large');
        analyze",
    )
    .await;
    let large = s
        .number("select job_id from trax.work_queue where task = 'large'")
        .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let browser = Browser::start().await;
    for path in [
        "/",
        "/groups",
        "/jobs",
        &format!("/jobs/{large}"),
        "/doctor",
    ] {
        let page = web.page(path).await;
        assert!(page.len() < 150_000, "{path} has {} bytes", page.len());
        for width in [1280, 390] {
            browser.size(width, 900).await;
            browser.open(&format!("http://{}{path}", web.host())).await;
            let wide = "return document.documentElement.scrollWidth <= window.innerWidth";
            assert_eq!(browser.script(wide).await, true, "{path} at {width}");
        }
    }
    // To the end of the list of groups by links, one page at a time.
    browser
        .open(&format!("http://{}/groups?after=group+9996", web.host()))
        .await;
    let rows = "return document.querySelectorAll('tbody tr').length";
    assert_eq!(browser.script(rows).await, 4, "9997, 9998, 9999 and large");
    browser.open(&format!("http://{}/groups", web.host())).await;
    assert_eq!(browser.script(rows).await, 50);
    browser.click("a[href^='/groups?after=']").await;
    let first = "return document.querySelector('tbody tr a').textContent";
    assert_ne!(browser.script(first).await, "default");
    assert_eq!(browser.script(rows).await, 50);
}
