//! The script of the pages in a real Chromium: times, charts, and lists that renew themselves.

use super::client::{Web, between};
use super::driver::Browser;
use harness::session::session;
use harness::{PATIENCE, eventually, shared_server};
use serde_json::json;

#[tokio::test]
async fn times_are_read_in_the_zone_in_which_they_are_shown() {
    let (database, s) = session().await;
    s.get(
        "select trax.enqueue('zoned', run_at => '2030-01-31 08:00 Asia/Tokyo');
        select trax.schedule('m', task => 't', cron => '30 23 * * *', timezone => 'UTC')",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    // Without the script the pages show UTC, whatever the server's zone is.
    s.get(&format!(
        "alter database {} set timezone = 'America/Lima'",
        database.name()
    ))
    .await;
    let web_in_lima = Web::of(shared_server(), &database, &[]).await;
    for web in [&web, &web_in_lima] {
        for (query, count) in [
            ("from=2030-01-30+23:00&to=2030-01-30+23:01", 1),
            ("from=2030-01-30+23:01", 0),
            (
                "from=2030-01-31+08:00&zone=Asia/Tokyo&to=2030-01-31+08:01",
                1,
            ),
            ("from=2030-01-31+08:01&zone=Asia/Tokyo", 0),
            (
                "from=2030-01-30T23:00:00Z&zone=Asia/Tokyo&to=2030-01-30T23:01:00Z",
                1,
            ),
        ] {
            let page = web.page(&format!("/jobs?{query}")).await;
            assert!(page.contains(&format!("{count} job")), "{query}: {page}");
        }
    }
    let wrong = web.get("/jobs?from=2030-01-31&zone=Mars").await;
    assert_eq!(wrong.status, 400, "{}", wrong.body);

    let browser = Browser::start().await;
    let tokyo = json!({"timezoneId": "Asia/Tokyo"});
    browser
        .devtools("Emulation.setTimezoneOverride", tokyo)
        .await;
    let site = format!("http://{}", web.host());
    browser.open(&format!("{site}/jobs")).await;
    browser.click("summary").await;
    let zone = "return document.querySelector('label [data-zone]').textContent";
    browser.shows(zone, "Asia/Tokyo").await;
    browser.types("[name=from]", "2030-01-31 08:00").await;
    browser.types("[name=to]", "2030-01-31 08:01").await;
    browser.click("details button").await;
    let found = "return document.querySelector('main .hint').textContent";
    browser.shows(found, "1 job matches.").await;
    let chip = "return document.querySelector('.chips b').textContent";
    browser.shows(chip, "2030-01-31 08:00 Asia/Tokyo").await;
    // A link that another person sent keeps the zone of that person.
    browser
        .open(&format!(
            "{site}/jobs?from=2030-01-31+08:00&zone=Europe/Berlin"
        ))
        .await;
    browser.shows(zone, "Europe/Berlin").await;
    // The week is that of the browser: half past eleven in the evening is the next morning there.
    browser.open(&format!("{site}/manifests")).await;
    browser.open(&format!("{site}/manifests")).await;
    let times = "return [...document.querySelectorAll('table td div')].map((e) => e.textContent).filter((t) => t === '08:30').length >= 6 ? 'week' : document.body.textContent";
    browser.shows(times, "week").await;
    assert_eq!(browser.complaints().await, "[]", "the browser is content");
}

#[tokio::test]
async fn the_values_of_a_chart_are_shown_by_pointer_and_keyboard() {
    let (database, s) = session().await;
    s.get(
        "insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, task, group_name, input)
        select i, at, at, at - interval '2 s', at, 1, 0, true, 'completed', 't', 'g', '1'
        from generate_series(1, 6) i cross join (select now() - interval '30.5 minutes') a (at)",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page("/").await;
    let chart = between(&page, "<svg viewBox=\"0 0 360 61\"", "</figure>");
    assert!(chart.contains("class=\"top\""), "it has a scale: {chart}");
    let browser = Browser::start().await;
    browser.size(1280, 900).await;
    browser.open(&format!("http://{}/", web.host())).await;
    let output = "const all = [...document.querySelectorAll('.plot output')]; return all.map((o) => o.textContent.split(': ').slice(1).join(': ')).join('')";
    // The second chart is that of completed attempts.
    let focus = "document.querySelectorAll('svg[data-values]')[1].focus(); return ''";
    browser.shows(focus, "").await;
    browser.press("ArrowLeft", 37).await;
    browser.shows(output, "0 completed, 0 a second").await;
    for _ in 0..30 {
        browser.press("ArrowLeft", 37).await;
    }
    browser.shows(output, "6 completed, 0.1 a second").await;
    browser.press("Escape", 27).await;
    browser.shows(output, "").await;
    // A banner that comes or goes moves the chart away from the pointer.
    let place = "const chart = document.querySelectorAll('svg[data-values]')[4];
        chart.scrollIntoView({block: 'center'});
        const b = chart.getBoundingClientRect();
        return [b.left + b.width * 29.5 / 60, b.top + b.height / 2]";
    eventually(
        "the values under the pointer are shown",
        PATIENCE,
        async || {
            let place = browser.script(place).await;
            let moved = json!({"type": "mouseMoved", "x": place[0], "y": place[1]});
            browser.devtools("Input.dispatchMouseEvent", moved).await;
            let shown = browser.script(output).await;
            let expected = "p50 2.0 s, p95 2.0 s, p99 2.0 s";
            (shown == expected)
                .then_some(())
                .ok_or_else(|| format!("{shown} at {place}"))
        },
    )
    .await;
}

#[tokio::test]
async fn a_list_renews_itself_but_not_under_a_selection() {
    let (database, s) = session().await;
    let first = s.enqueue("'t'").await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let browser = Browser::start().await;
    browser.open(&format!("http://{}/jobs", web.host())).await;
    let rows = "return '' + document.querySelectorAll('tbody tr').length";
    browser.shows(rows, "1").await;
    s.enqueue("'t'").await;
    browser.shows(rows, "2").await;
    // All rows are selected by one box, and cancelled by one button.
    browser.click("th input").await;
    s.enqueue("'t'").await;
    let asked = "return performance.getEntriesByType('resource').filter((e) => e.initiatorType === 'fetch').length";
    let before = browser.script(asked).await;
    browser.click("button[formaction='/act/cancel']").await;
    let words = "return document.querySelector('form p')?.textContent ?? ''";
    browser
        .shows(words, &format!("2 jobs: {}, {first}", first + 1))
        .await;
    assert!(before.as_i64().is_some_and(|n| n >= 1), "{before}");
    browser.click("button[type=submit]:not([name])").await;
    s.becomes("select count(*) from trax.work_queue", "1").await;
    assert_eq!(browser.complaints().await, "[]", "the browser is content");
}
