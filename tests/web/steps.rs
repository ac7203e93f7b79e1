//! The page of a job that has steps, waits and children.

use super::client::{Web, between};
use super::driver::Browser;
use harness::session::{Session, session};
use harness::shared_server;
use serde_json::json;

/// Queues a job that has sent a mail and slept, has two children, one of which has completed and
/// one has a child of its own, and waits for a click.
pub(super) async fn sign_up(s: &Session) -> i64 {
    let id = s.enqueue("'sign_up', '{\"customer\": \"ada\"}'").await;
    for sql in [
        "select count(*) from trax.claim_next('w', tasks => '{sign_up}', lease => '1 h')",
        "select trax.record_step(job_id, token, 'welcome', '\"sent to ada\"', '{\"task\": \"mail.recall\"}') from trax.lease",
        "select trax.sleep(job_id, token, 'a while', now() - interval '1 s') from trax.lease",
        "select trax.spawn(job_id, token, 'east', 'sum', '[1]'), trax.spawn(job_id, token, 'west', 'sum', '[2]') from trax.lease",
        "select trax.await_signal(job_id, token, 'confirmed', 'click', now() + interval '3 days') from trax.lease",
        "select trax.complete(job_id, token, '1') from trax.claim_next('w', tasks => '{sum}')",
        "select count(*) from trax.claim_next('w', tasks => '{sum}', lease => '1 h')",
        "select trax.spawn(job_id, token, 'part', 'piece') from trax.lease",
    ] {
        s.get(sql).await;
    }
    id
}

/// Ends the wait of that job, and the job.
async fn fail(s: &Session, id: i64) {
    for sql in [
        format!("select trax.send_signal({id}, 'click', '{{\"from\": \"mail\"}}')"),
        "select count(*) from trax.claim_next('v', tasks => '{sign_up}')".to_owned(),
        format!(
            "select trax.await_signal(job_id, token, 'confirmed', 'click') from trax.lease where job_id = {id}"
        ),
        format!(
            "select trax.fail(job_id, token, 'the account is closed', permanent => true) from trax.lease where job_id = {id}"
        ),
    ] {
        s.get(&sql).await;
    }
}

#[tokio::test]
async fn a_job_shows_its_steps_its_wait_and_its_children() {
    let (database, s) = session().await;
    let id = sign_up(&s).await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page(&format!("/jobs/{id}")).await;
    let note = between(&page, "<p class=\"note\">It is suspended", "</p>");
    for part in [
        "in step <b>confirmed</b> since <time",
        "for the signal <b>click</b>, until <time",
        "(in 3 d)",
    ] {
        assert!(note.contains(part), "{part}: {note}");
    }
    assert!(!page.contains("/act/run-now"), "no act runs it now: {page}");
    let steps = between(&page, "<h2>Steps</h2>", "</table>");
    let rows: Vec<&str> = steps.split("<tr>").skip(2).collect();
    assert_eq!(rows.len(), 5, "{steps}");
    for (row, parts) in rows.iter().zip([
        &[
            "welcome",
            ">step, undone by task mail.recall<",
            "<code>&quot;sent to ada&quot;</code>",
            "\"completed\"",
        ][..],
        &["a while", ">slept<", "\"waited\""],
        &[
            "east",
            &format!("spawned <a href=\"/jobs/{}\">", id + 1),
            "completed</span>",
        ],
        &[
            "west",
            &format!("spawned <a href=\"/jobs/{}\">", id + 2),
            "in progress</span>",
            "so far",
        ],
        &[
            "confirmed",
            ">signal <b>click</b>",
            ">not yet<",
            "so far, until <time",
            "class=\"open\"",
        ],
    ]) {
        for part in parts {
            assert!(row.contains(part), "{part}: {row}");
        }
        assert_eq!(row.matches("<svg class=\"span\"").count(), 1, "{row}");
    }
    assert!(!steps.contains("Fork from here"), "{steps}");
    // The tree has three jobs on two levels; each has its page, with its parent.
    let tree = between(&page, "<h2>Children</h2>", "<h2>");
    assert_eq!(tree.matches("<li>").count(), 3, "{tree}");
    let west = between(tree, &format!(">job {}</a>", id + 2), "</li>");
    assert!(west.contains("task sum, step west"), "{west}");
    assert!(
        west.contains(&format!("Children of job {}\"><li>", id + 2)),
        "{west}"
    );
    assert!(west.contains("task piece, step part"), "{west}");
    let piece = web.page(&format!("/jobs/{}", id + 3)).await;
    let parent = between(&piece, "<dt>parent</dt>", "</dd>");
    assert!(
        parent.contains(&format!("href=\"/jobs/{}\"", id + 2)),
        "{parent}"
    );
    assert!(parent.contains("in progress</span>, task sum"), "{parent}");
    let listed = web.page(&format!("/jobs?parent={id}")).await;
    assert!(listed.contains("2 jobs match."), "{listed}");

    // The same of an ended job, whose steps are in its last run.
    fail(&s, id).await;
    let page = web.page(&format!("/jobs/{id}")).await;
    assert!(!page.contains("It is suspended"), "{page}");
    let steps = between(&page, "<h2>Steps</h2>", "</table>");
    let last = steps.rsplit("<tr>").next().unwrap_or_default();
    assert!(
        last.contains("<code>{&quot;from&quot;: &quot;mail&quot;}</code>"),
        "{last}"
    );
    assert!(
        last.contains(&format!("href=\"/act/fork?job={id}&amp;step=confirmed\"")),
        "{last}"
    );
    assert!(page.contains("<h2>Children</h2>"), "{page}");
    assert!(
        page.contains(&format!(
            "Jobs that undo its steps were queued: <a href=\"/jobs?parent={id}\""
        )),
        "{page}"
    );
    let listed = web
        .page(&format!("/jobs?parent={id}&task=mail.recall"))
        .await;
    assert!(listed.contains("1 job matches."), "{listed}");
    assert_eq!(web.get(&format!("/jobs/{id}?before=x")).await.status, 400);
}

#[tokio::test]
async fn each_wait_says_what_it_is_for_and_since_when() {
    let (database, s) = session().await;
    s.get(
        "select trax.enqueue('sleeps'), trax.enqueue('signal'), trax.enqueue('all'), trax.enqueue('any'), trax.enqueue('retries');
        select count(*) from trax.claim_next('w', 5)",
    )
    .await;
    s.get(
        "select trax.sleep(1, token, 'nap', now() + interval '3 h') from trax.lease where job_id = 1;
        select trax.await_signal(2, token, 'asked', 'yes') from trax.lease where job_id = 2;
        select trax.spawn(3, token, 'c', 'child') from trax.lease where job_id = 3;
        select trax.spawn(4, token, 'c', 'child') from trax.lease where job_id = 4;
        select trax.await_children(3, token, 'ends') from trax.lease where job_id = 3;
        select trax.await_children(4, token, 'one ends', mode => 'any') from trax.lease where job_id = 4;
        select trax.fail(5, token, 'no', retry_in => '1 h') from trax.lease where job_id = 5",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    for (id, words) in [
        (
            1,
            &[
                "in step <b>nap</b> since ",
                ", asleep, until <time",
                "(in 3 h)",
            ][..],
        ),
        (
            2,
            &[
                "in step <b>asked</b>",
                "for the signal <b>yes</b>, without an end.",
            ],
        ),
        (
            3,
            &[
                "in step <b>ends</b>",
                "for the end of all of <a href=\"/jobs?parent=3\">its children</a>, without an end.",
            ],
        ),
        (
            4,
            &[
                "in step <b>one ends</b>",
                "for the end of one of <a href=\"/jobs?parent=4\">its children</a>",
            ],
        ),
    ] {
        let page = web.page(&format!("/jobs/{id}")).await;
        let note = between(&page, "<p class=\"note\">It is suspended", "</p>");
        for part in words {
            assert!(note.contains(part), "{id}: {part}: {note}");
        }
    }
    let delayed = web.page("/jobs/5").await;
    assert!(!delayed.contains("It is suspended"), "{delayed}");
    // A sleeper that has begun again, and failed, waits for its next attempt.
    s.get(
        "select trax.run_now(1);
        select count(*) from trax.claim_next('w', tasks => '{sleeps}');
        select trax.fail(1, token, 'no', retry_in => '1 h') from trax.lease where job_id = 1",
    )
    .await;
    let page = web.page("/jobs/1").await;
    assert!(!page.contains("It is suspended"), "{page}");
    for (waits, expected) in [("suspended", 3), ("signal", 1), ("jobs", 2)] {
        let page = web.page(&format!("/jobs?state=queued&waits={waits}")).await;
        let said = format!("{expected} job");
        assert!(page.contains(&said), "{waits}: {page}");
    }
}

#[tokio::test]
async fn of_many_steps_the_last_are_shown_with_a_link_to_those_before() {
    let (database, s) = session().await;
    let id = s.enqueue("'long'").await;
    s.get("select count(*) from trax.claim_next('w', lease => '1 h')")
        .await;
    let record = "select count(*) from trax.lease l cross join generate_series(1, 450) n
        cross join lateral trax.record_step(l.job_id, l.token, 'step ' || n, to_jsonb(repeat('x', n * 200)))";
    s.get(record).await;
    let web = Web::of(shared_server(), &database, &[]).await;
    for end in [false, true] {
        if end {
            s.get("select trax.complete(job_id, token) from trax.lease")
                .await;
        }
        let page = web.page(&format!("/jobs/{id}")).await;
        assert!(page.len() < 600_000, "{}", page.len());
        assert!(page.contains("251 to 450 of 450."), "{page}");
        assert!(page.contains(">at most "), "{page}");
        assert_eq!(page.matches("<svg class=\"span\"").count(), 200);
        let earlier = format!("<a rel=\"prev\" href=\"/jobs/{id}?before=251\">");
        assert!(page.contains(&earlier), "{page}");
        let page = web.page(&format!("/jobs/{id}?before=51")).await;
        assert!(page.contains("1 to 50 of 450."), "{page}");
        assert_eq!(page.matches("<svg class=\"span\"").count(), 50);
        assert!(!page.contains("Earlier steps"), "{page}");
        assert!(
            page.contains(&format!("<a href=\"/jobs/{id}\">The last steps</a>")),
            "{page}"
        );
        assert!(!page.contains("data-seconds"), "a look back stands still");
    }
}

#[tokio::test]
async fn a_wide_and_deep_tree_is_shown_in_part() {
    let (database, s) = session().await;
    s.enqueue("'root'").await;
    s.get("select count(*) from trax.claim_next('w', lease => '1 h')")
        .await;
    s.get(
        "select trax.spawn(job_id, token, 'child 1', 'leaf', priority => 9) from trax.lease;
        select count(trax.spawn(l.job_id, l.token, 'child ' || n, 'leaf')) from trax.lease l cross join generate_series(2, 60) n",
    )
    .await;
    // Eight levels below the first child.
    for level in 2..=9 {
        s.get("select count(*) from trax.claim_next('w', lease => '1 h')")
            .await;
        let spawn = format!(
            "select trax.spawn(job_id, token, 'deeper', 'level {level}', priority => 10) from trax.lease order by job_id desc limit 1"
        );
        s.get(&spawn).await;
    }
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page("/jobs/1").await;
    let tree = between(&page, "<h2>Children</h2>", "<h2>");
    assert!(
        tree.contains("<a href=\"/jobs?parent=1\">All 60 children of job 1</a>"),
        "{tree}"
    );
    // Fifty children, four levels below the first, and the link to all.
    assert_eq!(tree.matches("<li>").count(), 55, "{tree}");
    assert!(
        tree.contains("task level 5") && !tree.contains("task level 6"),
        "{tree}"
    );
    assert!(
        tree.contains("The page of each job shows those below it"),
        "{tree}"
    );
}

#[tokio::test]
async fn a_time_line_is_read_in_any_size_without_script_and_with_its_text() {
    let (database, s) = session().await;
    let id = sign_up(&s).await;
    let other = s.enqueue("'sign_up'").await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let site = format!("http://{}", web.host());
    let browser = Browser::start().await;
    // The picture of docs/web.md: three days.
    s.get(
        "update trax.step s
        set recorded_at = case when s.recorded_at is not null then now() - v.ago end,
            wait = s.wait || jsonb_build_object('since', now() - v.since)
        from (
            values
                ('welcome', interval '71 h', null::interval),
                ('a while', interval '24 h', interval '71 h'),
                ('east', interval '24 h', null),
                ('west', interval '24 h', null),
                ('confirmed', null, interval '23 h')
        ) v (step, ago, since)
        where v.step = s.step;
        update trax.run set started_at = now() - interval '24 h', finished_at = now() - interval '15 h';
        update trax.lease set started_at = now() - interval '20 h'",
    )
    .await;
    browser.size(1280, 900).await;
    browser.open(&format!("{site}/jobs/{id}")).await;
    let bars = "return document.querySelectorAll('svg.span rect').length";
    assert_eq!(browser.script(bars).await, 5);
    browser.picture("docs-steps.png").await;
    for (name, path) in [
        ("steps", format!("/jobs/{id}")),
        ("signal", format!("/act/send-signal?job={id}&name=click")),
        ("suspended", "/jobs?state=queued&waits=suspended".to_owned()),
        ("cancel-tree", format!("/act/cancel-tree?job={id}")),
    ] {
        browser.reads(&format!("{site}{path}"), name).await;
    }
    fail(&s, id).await;
    for (name, path) in [
        ("steps-ended", format!("/jobs/{id}")),
        ("fork", format!("/act/fork?job={id}&step=confirmed")),
        ("undone", "/dead".to_owned()),
    ] {
        browser.reads(&format!("{site}{path}"), name).await;
    }
    // A signal is sent and a fork made without script.
    let no_script = json!({"value": true});
    browser
        .devtools("Emulation.setScriptExecutionDisabled", no_script)
        .await;
    browser.size(1280, 900).await;
    browser.open(&format!("{site}/jobs/{other}")).await;
    browser.click("a[href^='/act/send-signal']").await;
    browser.types("[name=name]", "click").await;
    browser
        .types("[name=payload]", "{\"von\": \"läuft\"}")
        .await;
    browser.click("button[type=submit]:not([name])").await;
    let payload = format!("select payload from trax.signal where job_id = {other}");
    s.becomes(&payload, "{\"von\": \"läuft\"}").await;
    browser.open(&format!("{site}/jobs/{id}")).await;
    browser.click("a[href$='step=welcome']").await;
    browser.click("button[type=submit]:not([name])").await;
    let forked = format!(
        "select count(*) from trax.work_queue where task = 'sign_up' and job_id <> {other}"
    );
    s.becomes(&forked, "1").await;
    assert_eq!(browser.complaints().await, "[]", "the browser is content");
}
