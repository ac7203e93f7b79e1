//! The pages in a real Chromium, while jobs run.

use super::client::Web;
use super::driver::{ALL_RULES, Browser};
use harness::scheduler::{live_database, live_server};
use harness::session::{Session, session};
use harness::{PATIENCE, eventually, shared_server};
use serde_json::json;
use trax_client::testkit::Stop;

#[tokio::test]
async fn a_person_looks_around_cancels_a_job_and_sees_the_number_move() {
    let (database, s) = session().await;
    s.get(
        "select trax.configure_group('reports', max_active_jobs => 4);
        select trax.schedule('nightly report', task => 'report.build', cron => '0 2 * * *', timezone => 'Europe/Berlin', group_name => 'reports');
        select trax.schedule('mail the report', task => 'mail.send', depends_on => '{nightly report}');
        select count(*) from trax.enqueue_many('mail.send', array_fill('{\"to\": \"ada@example.org\"}'::jsonb, array[30]));
        select trax.enqueue('image.resize', max_retries => 0, concurrency_key => 'disk') from generate_series(1, 3);
        select trax.fail(job_id, token, 'no space left on device') from trax.claim_next('worker 2', tasks => '{image.resize}');
        select trax.complete(job_id, token, '{\"sent\": true}') from trax.claim_next('worker 1', 5, tasks => '{mail.send}');
        select trax.fail(job_id, token, 'connection refused', retry_in => '0') from trax.claim_next('worker 1', tasks => '{mail.send}');
        select count(*) from trax.claim_next('worker 1', 2, tasks => '{mail.send}');
        select trax.trigger('nightly report');
        select trax.complete(job_id, token) from trax.claim_next('worker 3', tasks => '{report.build}');
        select * from trax.tick()",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let browser = Browser::start().await;
    let site = format!("http://{}", web.host());
    let retried = s
        .number("select min(job_id) from trax.run where not final")
        .await;
    let pages = [
        ("overview", "/".to_owned()),
        ("jobs", "/jobs".to_owned()),
        ("job", format!("/jobs/{retried}")),
        ("manifests", "/manifests".to_owned()),
        ("manifest", "/manifests/nightly%20report".to_owned()),
        ("groups", "/groups".to_owned()),
        ("dead", "/dead".to_owned()),
        ("workers", "/workers".to_owned()),
        ("tokens", "/tokens".to_owned()),
        ("doctor", "/doctor".to_owned()),
        ("audit", "/audit".to_owned()),
        ("week", "/?charts=7d".to_owned()),
        ("letter", "/dead?status=any&id=1".to_owned()),
        (
            "filtered",
            "/jobs?state=queued&from=2030-01-31+08:00".to_owned(),
        ),
        ("act", format!("/act/cancel?job={retried}")),
        (
            "reschedule",
            "/act/reschedule?manifest=nightly%20report".to_owned(),
        ),
    ];
    for (name, path) in &pages {
        browser.reads(&format!("{site}{path}"), name).await;
    }

    // A viewer watches the overview while another person cancels a job.
    let waiting = s
        .number("select max(job_id) from trax.work_queue where task = 'mail.send'")
        .await;
    browser.size(1280, 900).await;
    browser.open(&format!("{site}/jobs/{waiting}")).await;
    browser.click("a[href^='/act/cancel']").await;
    browser.picture("act-1280.png").await;
    browser.click("button[type=submit]").await;
    browser
        .shows(RESULT, "The server answered: cancelled")
        .await;
    browser.open(&format!("{site}/")).await;
    let number = "return document.querySelector('[data-number=ready]').textContent";
    let before = browser.script(number).await;
    let one = s
        .number("select min(job_id) from trax.work_queue where waits_for is null")
        .await;
    s.get(&format!("select trax.cancel({one})")).await;
    eventually("the number moves", PATIENCE, async || {
        let now = browser.script(number).await;
        if now == before {
            Err(now.to_string())
        } else {
            Ok(())
        }
    })
    .await;
    let complaints = browser.complaints().await;
    assert_eq!(complaints, "[]", "the browser is content");
}

/// The result of an act.
const RESULT: &str = "return document.getElementById('result')?.textContent ?? ''";

/// Returns a number on the page that the live stream updates.
fn number(name: &str) -> String {
    format!("return document.querySelector('[data-number={name}]').textContent")
}

#[tokio::test]
async fn of_two_viewers_one_sees_what_the_other_does() {
    let (database, s) = session().await;
    s.get("select trax.enqueue('t') from generate_series(1, 5)")
        .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let site = format!("http://{}", web.host());
    let (one, two) = (Browser::start().await, Browser::start().await);
    one.open(&format!("{site}/")).await;
    one.shows(&number("ready"), "5").await;
    two.open(&format!("{site}/jobs/3")).await;
    two.click("a[href^='/act/cancel']").await;
    two.click("button[type=submit]").await;
    one.shows(&number("ready"), "4").await;
    // Both cancel the same job: the second learns that it has already ended.
    one.open(&format!("{site}/act/cancel?job=4")).await;
    two.open(&format!("{site}/act/cancel?job=4")).await;
    one.click("button[type=submit]").await;
    one.shows(RESULT, "The server answered: cancelled").await;
    two.click("button[type=submit]").await;
    two.shows(RESULT, "The server answered: finished").await;
}

#[tokio::test]
async fn a_viewer_is_told_when_nothing_is_known_and_when_it_is_again() {
    let mut server = harness::options().fast().start().expect("a server starts");
    let database = server.database("web").await.expect("a database is made");
    let s = Session::of(&database).await;
    s.enqueue("'t'").await;
    let web = Web::of(&server, &database, &[]).await;
    let browser = Browser::start().await;
    browser.open(&format!("http://{}/", web.host())).await;
    let banner =
        "const b = document.getElementById('unknown'); return b.hidden ? '' : b.textContent";
    let says = async |what: &str| {
        eventually(what, PATIENCE, async || {
            let now = browser.script(banner).await;
            let now = now.as_str().unwrap_or("?");
            match now.contains(what) && now.is_empty() == what.is_empty() {
                true => Ok(()),
                false => Err(now.to_owned()),
            }
        })
        .await;
    };
    // Live numbers arrive.
    s.enqueue("'t'").await;
    browser.shows(&number("ready"), "2").await;
    says("").await;
    server.stop(Stop::Fast).expect("it stops");
    says("The database does not answer. The numbers on this page are old.").await;
    let old = "return document.body.classList.contains('old')";
    assert_eq!(browser.script(old).await, true);
    server.start().expect("it starts");
    says("").await;
    assert_eq!(browser.script(old).await, false);
}

#[tokio::test]
async fn what_a_job_carries_does_not_run_and_a_name_of_any_script_is_shown() {
    let (database, s) = session().await;
    let evil = "<script>window.ran = 1</script><img src=x onerror=\"window.ran = 2\"><svg onload=\"window.ran = 3\">";
    let input = json!({ "a": evil, evil: 1 }).to_string();
    s.get(&format!(
        "select trax.schedule('{evil}', task => '{evil}', input => '{input}', cron => '@daily', max_retries => 0);
        select trax.schedule('after', task => 't', depends_on => array['{evil}']);
        select trax.trigger('{evil}');
        select trax.fail(job_id, token, '{evil}', detail => '{input}') from trax.claim_next('{evil}');
        select trax.schedule('أحمد 🦀', task => 'läuft', cron => '@daily');
        select trax.enqueue('t', jsonb_build_object('a', repeat('x', 1000000)))"
    ))
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let browser = Browser::start().await;
    let name: String = evil.bytes().map(|byte| format!("%{byte:02X}")).collect();
    for path in [
        "/",
        "/jobs",
        "/jobs/1",
        "/jobs/2",
        "/dead",
        "/manifests",
        &format!("/manifests/{name}"),
        &format!("/jobs?task={name}&path={}", "%24.a"),
        &format!("/act/trigger?manifest={name}"),
        "/audit",
    ] {
        for width in [1280, 390] {
            browser.size(width, 900).await;
            browser.open(&format!("http://{}{path}", web.host())).await;
            let ran = "return [window.ran, document.querySelector('main img, main script')]";
            assert_eq!(browser.script(ran).await, json!([null, null]), "{path}");
            let wide = "return document.documentElement.scrollWidth <= window.innerWidth";
            assert_eq!(browser.script(wide).await, true, "{path} at {width}");
        }
    }
    assert_eq!(browser.complaints().await, "[]", "nothing was even tried");
    browser
        .open(&format!("http://{}/manifests", web.host()))
        .await;
    let link = "return [...document.links].find((a) => a.textContent === 'أحمد 🦀').href";
    let link = browser.script(link).await;
    browser.open(link.as_str().expect("an address")).await;
    let title = browser.script("return document.querySelector('h1').textContent");
    assert_eq!(title.await, "أحمد 🦀");
}

#[tokio::test]
async fn a_reader_s_page_has_no_button_and_its_forged_post_is_refused() {
    let (database, s) = session().await;
    let reader = format!("reader_of_{}", database.name());
    s.get(&format!(
        "create role {reader} login; select trax.grant_access('{reader}', 'reader')"
    ))
    .await;
    let id = s.enqueue("'t'").await;
    let web = Web::as_user(shared_server(), &database, &reader, &[]).await;
    let browser = Browser::start().await;
    browser
        .open(&format!("http://{}/jobs/{id}", web.host()))
        .await;
    let buttons = "return document.querySelectorAll('.button, form[method=post]').length";
    assert_eq!(browser.script(buttons).await, 0);
    // From the same page with its cookie, but without the token and the right.
    let forge = format!(
        "const done = arguments[arguments.length - 1];
        fetch('/act/cancel', {{method: 'POST', body: new URLSearchParams({{job: {id}, token: 'x'}})}})
            .then((answer) => done(answer.status), (error) => done('' + error))"
    );
    let status = browser.post("execute/async", json!({"script": forge, "args": []}));
    assert_eq!(status.await, 403);
    let state = format!("select state from trax.job where job_id = {id}");
    assert_eq!(s.get(&state).await, "queued");
}

#[tokio::test]
async fn everything_works_without_script_and_by_keyboard() {
    let (database, s) = session().await;
    let id = s.enqueue("'t'").await;
    s.get("select trax.schedule('m', task => 't', cron => '0 2 * * *')")
        .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let site = format!("http://{}", web.host());
    let browser = Browser::start().await;
    browser
        .devtools(
            "Emulation.setScriptExecutionDisabled",
            json!({"value": true}),
        )
        .await;
    browser.open(&format!("{site}/jobs/{id}")).await;
    browser.click("a[href^='/act/cancel']").await;
    browser.click("button[type=submit]").await;
    let state = format!("select state from trax.job where job_id = {id}");
    s.becomes(&state, "cancelled").await;
    browser
        .open(&format!("{site}/act/disable?manifest=m"))
        .await;
    browser.click("button[type=submit]").await;
    s.becomes("select enabled from trax.manifest", "f").await;

    // The first key press skips the navigation, and every act can be performed with the keyboard.
    browser.open(&format!("{site}/act/enable?manifest=m")).await;
    browser.press("Tab", 9).await;
    let focus = "return document.activeElement.textContent || document.activeElement.name";
    assert_eq!(browser.script(focus).await, "To the content");
    browser.press("Enter", 13).await;
    for key in 1.. {
        assert!(key < 20, "the button is within reach");
        browser.press("Tab", 9).await;
        if browser.script(focus).await == "Enable this manifest" {
            break;
        }
    }
    browser.press("Enter", 13).await;
    s.becomes("select enabled from trax.manifest", "t").await;
}

#[tokio::test]
async fn dark_is_dark_and_paper_has_no_buttons() {
    let (database, s) = session().await;
    let id = s.enqueue("'t'").await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let browser = Browser::start().await;
    browser.size(1280, 900).await;
    let paper = "return getComputedStyle(document.body).backgroundColor";
    for (scheme, colour) in [("light", "rgb(255, 255, 255)"), ("dark", "rgb(21, 24, 28)")] {
        browser.scheme(scheme).await;
        for (name, path) in [
            ("overview", "/".to_owned()),
            ("job", format!("/jobs/{id}")),
            ("missing", "/nothing".to_owned()),
        ] {
            browser.open(&format!("http://{}{path}", web.host())).await;
            assert_eq!(browser.script(paper).await, colour);
            let barriers = browser.barriers(ALL_RULES).await;
            assert!(barriers.is_empty(), "{path} in {scheme}: {barriers:#?}");
            browser.picture(&format!("{name}-{scheme}.png")).await;
        }
    }
    let print = json!({"media": "print", "features": []});
    browser.devtools("Emulation.setEmulatedMedia", print).await;
    let shown = "return [...document.querySelectorAll('nav, .button')].filter((e) => e.offsetParent).length";
    assert_eq!(browser.script(shown).await, 0);
    browser.picture("job-print.png").await;
}

/// The pictures of docs/web.md.
#[tokio::test]
async fn a_system_that_works_is_shown_with_its_last_hour() {
    let database = live_database().await;
    let s = Session::of(&database).await;
    s.get(
        "select trax.configure_group('reports', max_active_jobs => 4), trax.configure_group('mail', max_active_jobs => 50);
        select trax.schedule('load orders', task => 'orders.load', cron => '0 1 * * *', timezone => 'Europe/Berlin', group_name => 'reports');
        select trax.schedule('nightly report', task => 'report.build', depends_on => '{load orders}', group_name => 'reports');
        select trax.schedule('clean sessions', sql => 'analyze trax.work_queue', every => '1 h');
        select trax.schedule('mail the report', task => 'mail.send', depends_on => '{nightly report}', group_name => 'mail', enabled => false);
        insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, manifest_id, manifest, attempt, priority, final, state, failure_kind, error, worker, task, group_name, input)
        select nextval('trax.work_queue_job_id_seq'), t.at - d.took, t.at - d.took, t.at - d.took, t.at,
            case when m.is_report then f.manifest_id end, case when m.is_report then f.name end, 1, 0, true,
            e.state, case e.state when 'failed' then 'error' end, case e.state when 'failed' then 'connection refused' end, 'web-' || i % 3,
            case when m.is_report then 'report.build' else 'mail.send' end, case when m.is_report then 'reports' else 'mail' end, '{}'
        from generate_series(1, 9000) i
        cross join lateral (select now() - interval '1 h' * power(random(), 1 + 0.4 * sin(i / 700.0)) as at) t
        cross join lateral (select i % 900 = 0 as is_report) m
        cross join lateral (select case when m.is_report then 20 + i / 900 % 4 * 7 else 1 end * interval '1 s' as took) d
        cross join lateral (select case when i % 47 = 3 then 'failed' else 'completed' end as state) e
        cross join (select manifest_id, name from trax.manifest where name = 'nightly report') f;
        select trax.enqueue('mail.send', jsonb_build_object('to', 'ada@example.org', 'template', 'welcome'), group_name => 'mail')
            from generate_series(1, 40);
        select trax.enqueue('image.resize', '{\"size\": [800, 600]}') from generate_series(1, 7);
        select trax.fail(job_id, token, 'connection refused', retry_in => '0') from trax.claim_next('web-1', 1, tasks => '{mail.send}')",
    )
    .await;
    // The job fails once more, and is then in progress.
    s.get(
        "select trax.fail(job_id, token, 'timeout after 30 s', retry_in => '0') from trax.claim_next('web-2', 1, tasks => '{mail.send}');
        select count(*) from trax.claim_next('web-1', 12, lease => '10 min', tasks => '{mail.send}');
        select count(*) from trax.claim_next('web-2', 3, lease => '10 min', tasks => '{image.resize}')",
    )
    .await;
    let job = s
        .number("select job_id from trax.lease order by attempt desc, job_id limit 1")
        .await;
    let web = Web::of(live_server(), &database, &[]).await;
    let browser = Browser::start().await;
    browser.size(1280, 900).await;
    // A minute of each chart, three attempts, and the attempts of the manifest.
    for (name, path, least) in [
        ("overview", "/".to_owned(), 100),
        ("job", format!("/jobs/{job}"), 3),
        ("manifest", "/manifests/nightly%20report".to_owned(), 10),
    ] {
        browser.open(&format!("http://{}{path}", web.host())).await;
        let bars = "return document.querySelectorAll('svg rect').length";
        let bars = browser.script(bars).await.as_i64();
        assert!(bars.is_some_and(|bars| bars >= least), "{path}: {bars:?}");
        browser.picture(&format!("docs-{name}.png")).await;
    }
}
