//! The numbers of the pages: each is that of the database, and its link opens the rows it counted.

use super::client::{Web, between};
use harness::session::{Session, session};
use harness::shared_server;

/// Writes this many runs, each so many seconds ago, for failures also whether they are final.
fn runs(count: i64, ago: i64, state: &str, kind: &str, is_final: bool) -> String {
    format!(
        "insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, failure_kind, task, group_name, input)
        select nextval('trax.work_queue_job_id_seq'), at, at, at - i * interval '1 s', at, 1, 0, {is_final}, '{state}', {kind}, 'old', 'history', '1'
        from generate_series(1, {count}) i cross join (select now() - interval '{ago} s') a (at);"
    )
}

/// A database in which every number of the pages is another.
pub(super) async fn filled(s: &Session) {
    s.get(
        &[
            runs(30, 1_000, "completed", "null", true),
            runs(11, 1_000, "failed", "'error'", true),
            runs(4, 1_000, "failed", "'error'", false),
            runs(23, 8_000, "failed", "'error'", true),
            runs(9, 8_000, "completed", "null", true),
        ]
        .concat(),
    )
    .await;
    s.get(
        "select trax.configure_group('paused', enabled => false), trax.configure_group('narrow', max_active_jobs => 2);
        select trax.enqueue('p', group_name => 'paused') from generate_series(1, 17);
        select trax.enqueue('n', group_name => 'narrow') from generate_series(1, 8);
        select trax.enqueue('l', group_name => 'narrow', run_at => now() + interval '1 h') from generate_series(1, 5);
        select trax.enqueue('k', concurrency_key => 'disk') from generate_series(1, 4);
        select trax.report_worker('idle one', period => '1 h', info => '{\"tasks\": [\"k\", \"n\"]}');
        select trax.report_worker('gone one', period => '1 s');
        update trax.worker set last_seen_at = now() - interval '1 day' where name = 'gone one';
        select count(*) from trax.claim_next('worker 1', 2, groups => '{narrow}');
        select count(*) from trax.claim_next('worker 2', 1, tasks => '{k}');
        select count(*) from trax.claim_next('worker 2', 1, tasks => '{k}');
        select trax.enqueue('dies', max_retries => 0) from generate_series(1, 6);
        select trax.fail(job_id, token, 'no') from trax.claim_next('w', 6, tasks => '{dies}');
        select trax.acknowledge_dead_letter(1);
        select trax.enqueue('asks', group_name => 'asking') from generate_series(1, 3);
        select trax.enqueue('asks');
        select count(*) from trax.claim_next('asking one', 4, tasks => '{asks}');
        select trax.await_signal(job_id, token, 'answered', 'answer') from trax.lease where task = 'asks';
        select trax.schedule('m', task => 't', cron => '0 2 * * *');
        select trax.acquire_token('licence', 'somebody', 2, '1 min')",
    )
    .await;
}

/// Returns the links of a page, with their texts.
fn links(page: &str) -> Vec<(String, String)> {
    let one = |part: &str| {
        let (link, rest) = part.split_once('"')?;
        let (tag, rest) = rest.split_once('>')?;
        (!tag.contains('<')).then_some(())?;
        let (inner, _) = rest.split_once("</a>")?;
        let mut text = String::new();
        let mut is_tag = false;
        for c in inner.chars() {
            is_tag |= c == '<';
            if !is_tag {
                text.push(c);
            }
            is_tag &= c != '>';
        }
        Some((link.replace("&amp;", "&"), text))
    };
    page.split("href=\"").skip(1).filter_map(one).collect()
}

/// Returns the number at the beginning of a text.
fn number(text: &str) -> Option<i64> {
    let digits: String = text
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == ',')
        .collect();
    digits.replace(',', "").parse().ok()
}

/// Returns the number of rows that a page says it lists.
fn listed(page: &str) -> i64 {
    for word in [
        " jobs match.",
        " job matches.",
        " dead letters match.",
        " dead letter matches.",
    ] {
        if let Some((before, _)) = page.split_once(word) {
            let said = before.rsplit('>').next().unwrap_or_default();
            return number(said).unwrap_or_else(|| panic!("{said}"));
        }
    }
    i64::try_from(page.matches("<tr>").count()).expect("few rows") - 1
}

#[tokio::test]
async fn every_number_with_a_link_opens_the_rows_that_it_counted() {
    let (database, s) = session().await;
    filled(&s).await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let mut followed = 0;
    for path in [
        "/",
        "/?charts=6h",
        "/?charts=7d",
        "/groups",
        "/workers",
        "/manifests",
        "/dead",
        "/jobs",
    ] {
        let page = web.page(path).await;
        for (link, text) in links(&page) {
            let Some(count) = number(&text).filter(|_| link.contains('?') || link == "/dead")
            else {
                continue;
            };
            let is_list = ["/jobs?", "/workers?", "/dead"]
                .iter()
                .any(|list| link.starts_with(list));
            // "5 min" is a filter, not a count.
            if !is_list || link.contains("&id=") || text.contains(" min") {
                continue;
            }
            let rows = listed(&web.page(&link).await);
            assert_eq!(rows, count, "{path}: {text} leads to {link}");
            followed += 1;
        }
        for name in ["completed", "failed"] {
            let Some((_, chart)) = page.split_once(&format!(">{name}</a> <b>")) else {
                continue;
            };
            let all = between(chart, "a second, ", " in all");
            let link = links(&page).into_iter().find(|(_, text)| text == name);
            let (link, _) = link.expect("it is a link");
            let rows = listed(&web.page(&link).await);
            assert_eq!(Some(rows), number(all), "{path}: {name} leads to {link}");
            followed += 1;
        }
    }
    assert!(followed > 30, "{followed}");
}

#[tokio::test]
async fn every_number_of_a_page_is_that_of_the_database() {
    let (database, s) = session().await;
    filled(&s).await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let overview = web.page("/").await;
    for (name, sql) in [
        (
            "ready",
            "select count(*) from trax.work_queue where waits_for is null",
        ),
        (
            "later",
            "select count(*) from trax.work_queue where waits_for = 'time'",
        ),
        (
            "blocked",
            "select count(*) from trax.work_queue where waits_for in ('key', 'manifest')",
        ),
        (
            "suspended",
            "select count(*) from trax.work_queue where waits_for in ('signal', 'jobs')",
        ),
        ("running", "select count(*) from trax.lease"),
        (
            "dead",
            "select count(*) from trax.dead_letter where status = 'awaiting_intervention'",
        ),
        (
            "failed",
            "select count(*) from trax.run where final and state = 'failed' and finished_at > now() - interval '1 h'",
        ),
        (
            "workers",
            "select count(*) from trax.worker_state where state <> 'gone'",
        ),
    ] {
        let shown = between(&overview, &format!("data-number=\"{name}\">"), "<");
        assert_eq!(shown, s.get(sql).await, "{name}");
    }
    for (window, words, length) in [
        ("1h", "hour", "1 h"),
        ("6h", "6 hours", "6 h"),
        ("1d", "day", "1 day"),
        ("7d", "7 days", "7 days"),
    ] {
        let page = web.page(&format!("/?charts={window}")).await;
        assert!(!page.contains("a part of its history"), "{page}");
        let since = format!("now() - interval '{length}'");
        let ended = |what: &str| {
            format!("select count(*) from trax.run where {what} and finished_at > {since}")
        };
        for (name, sql) in [
            ("completed", ended("state = 'completed'")),
            ("failed", ended("state = 'failed' and final")),
            ("retried", ended("state = 'failed' and not final")),
            (
                "claimed",
                format!(
                    "select (select count(*) from trax.lease) + count(*) from trax.run where started_at > {since}"
                ),
            ),
        ] {
            let (before, _) = page
                .split_once(&format!(" {name} within the {words}: "))
                .expect(name);
            let shown = before.rsplit('"').next().and_then(number);
            assert_eq!(shown, Some(s.number(&sql).await), "{name} in {window}");
        }
        // The durations are whole seconds: 1 to 30, or of two such sets.
        let durations = format!(
            "select string_agg('p' || 100 * p || ' ' || percentile_disc, ', ')
            from (select unnest('{{0.5,0.95,0.99}}'::numeric[]) as p,
                unnest(percentile_disc('{{0.5,0.95,0.99}}'::float[]) within group (order by extract(epoch from finished_at - started_at)::int)) as percentile_disc
                from trax.run where state = 'completed' and finished_at > {since}) q"
        );
        let wanted = s
            .get(&durations)
            .await
            .replace(".0 ", " ")
            .replace(".00 ", " ");
        let said = between(&page, "Durations of completed attempts within the ", "\"");
        let (_, said) = said.split_once(": ").expect("the durations");
        let said = said.replace(".0 s", "").replace(" s", "");
        assert_eq!(said, wanted, "{window}");
    }
    // A group with nothing but jobs that are due later is among them.
    s.get("select trax.enqueue('l', group_name => 'asleep', run_at => now() + interval '1 h')")
        .await;
    let groups = web.page("/groups").await;
    for name in ["paused", "narrow", "asking", "asleep", "default"] {
        let row = between(&groups, &format!("jobs?group={name}\">"), "</tr>");
        for (state, sql) in [
            (
                "in_progress",
                format!("select count(*) from trax.lease where group_name = '{name}'"),
            ),
            (
                "queued&amp;waits=worker",
                format!(
                    "select count(*) from trax.work_queue where group_name = '{name}' and waits_for is null"
                ),
            ),
            (
                "queued&amp;waits=suspended",
                format!(
                    "select count(*) from trax.work_queue where group_name = '{name}' and waits_for = 'signal'"
                ),
            ),
        ] {
            let shown = between(row, &format!("state={state}\">"), "</a>");
            assert_eq!(shown, s.get(&sql).await, "{name}, {state}");
        }
    }
    let dead = web.page("/dead?status=any").await;
    assert_eq!(listed(&dead), 6);
    assert_eq!(listed(&web.page("/dead?status=any&id=3").await), 1);
    let workers = web.page("/workers").await;
    let sql = "select running from trax.worker_state where name = 'worker 1'";
    let row = between(&workers, "jobs?worker=worker+1\">", "</tr>");
    assert_eq!(
        between(row, "state=in_progress\">", "</a>"),
        s.get(sql).await
    );
    assert!(
        row.contains("task=n\">n</a>"),
        "the tasks that it runs: {row}"
    );
    let idle = between(&workers, ">idle one</a>", "</tr>");
    assert!(
        idle.contains(">k</a>") && idle.contains(">n</a>"),
        "those that it takes: {idle}"
    );
}

#[tokio::test]
async fn runs_that_vacuum_let_into_old_blocks_are_counted() {
    let (database, s) = session().await;
    // A tenth of the transactions of two hours ago was rolled back. One table has them and the new
    // ones, also in the first two hours of a day.
    s.get(
        "do $$
        declare
            part regclass;
        begin
            for part in select p.partition from trax.run_partitions() p loop
                execute format('drop table %s', part);
            end loop;
            for i in 1..3000 loop
                begin
                    insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, task, group_name, input)
                    select i, at, at, at, at, 1, 0, true, 'completed', 't', 'g', to_jsonb(repeat('x', 300))
                    from (select now() - interval '2 hours') a (at);
                    if i % 10 = 0 then
                        raise exception 'rolled back';
                    end if;
                exception
                    when raise_exception then null;
                end;
            end loop;
        end $$",
    )
    .await;
    let partition = s
        .get("select tableoid::regclass from trax.run limit 1")
        .await;
    s.get(&format!("vacuum {partition}")).await;
    let other = Session::of(&database).await;
    other
        .get(
            "select count(*) from trax.enqueue_many('t', array_fill('1'::jsonb, array[150]));
            select count(trax.complete(job_id, token)) from trax.claim_next('w', 150)",
        )
        .await;
    let old = format!(
        "select count(*) from {partition} r where r.finished_at > now() - interval '1 h'
        and r.ctid < (select max(o.ctid) from {partition} o where o.finished_at < now() - interval '1 h')"
    );
    assert!(s.number(&old).await > 0, "some are in old blocks");
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page("/").await;
    assert!(page.contains("\"150 completed within the hour: "), "{page}");
}

#[tokio::test]
async fn the_oldest_ready_job_is_found_behind_others_of_a_higher_priority() {
    let (database, s) = session().await;
    s.get(
        "select trax.enqueue('slow', group_name => 'starve', priority => 0);
        update trax.work_queue set queued_at = queued_at - interval '5 hours', run_at = run_at - interval '5 hours';
        select count(trax.enqueue('slow', group_name => 'starve', priority => 5)) from generate_series(1, 1200)",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    for path in ["/", "/groups"] {
        let page = web.page(path).await;
        let row = between(&page, "group=starve\">starve</a>", "</tr>");
        assert!(row.contains(">5 h ago</time>"), "{path}: {row}");
        assert!(!row.contains("or earlier"), "{path}: {row}");
    }
    // Retries became ready later than they were queued, and older ones may be behind them.
    s.get("update trax.work_queue set run_at = now() - interval '1 h', queued_at = now() - interval '9 h'")
        .await;
    let page = web.page("/groups").await;
    let row = between(&page, "group=starve\">starve</a>", "</tr>");
    assert!(row.contains(">60 min ago</time> or earlier"), "{row}");
    assert!(
        row.contains("1,001 or more") || row.contains("1,000 or more"),
        "{row}"
    );
}
