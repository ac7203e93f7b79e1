//! The first page: the last hour, the busiest groups, and the workers.

use super::client::{Web, between};
use harness::session::session;
use harness::shared_server;

/// Writes a history row for each `step` of the last `seconds`, in the order in which jobs would
/// have ended.
fn history(seconds: i64, step: &str, state: &str, kind: &str, input: &str) -> String {
    format!(
        "insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, failure_kind, task, group_name, input)
        select nextval('trax.work_queue_job_id_seq'), at, at, at, at, 1, 0, true, '{state}', {kind}, 't', 'default', {input}
        from generate_series(now() - interval '{seconds} s', now(), interval '{step}') at;"
    )
}

/// Returns the page's count of a state within the hour.
fn within_the_hour(page: &str, state: &str) -> i64 {
    let said = page
        .split(&format!(" {state} within the hour"))
        .next()
        .and_then(|text| text.rsplit('"').next());
    let number = said.and_then(|text| text.replace(',', "").parse().ok());
    number.unwrap_or_else(|| panic!("{state}: {page}"))
}

#[tokio::test]
async fn the_last_hour_is_there_on_first_sight() {
    let (database, s) = session().await;
    // A separate program, since answers are cached for a moment.
    let before = Web::of(shared_server(), &database, &[]).await;
    assert_eq!(within_the_hour(&before.page("/").await, "completed"), 0);
    drop(before);
    // Three hours of history, the oldest first, and attempts that run.
    s.get(&format!(
        "{}{} select count(*) from trax.enqueue_many('t', array_fill('1'::jsonb, array[7]));
        select count(*) from trax.claim_next('worker 1', 7)",
        history(10_800, "1 s", "completed", "null", "'1'"),
        history(600, "60 s", "failed", "'error'", "'1'"),
    ))
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page("/").await;
    let completed = within_the_hour(&page, "completed");
    assert!((3_500..=3_601).contains(&completed), "{completed}");
    assert!(page.contains("completed</a> <b>1.0</b> a second"), "{page}");
    assert_eq!(within_the_hour(&page, "failed"), 11);
    let claimed = within_the_hour(&page, "claimed");
    assert_eq!(claimed, completed + 11 + 7, "those that run count too");
    assert!(!page.contains("a part of its history"), "{page}");
    let minutes = page.matches("<rect class=\"completed\"").count();
    assert!((59..=60).contains(&minutes), "{minutes}");
}

#[tokio::test]
async fn a_busy_hour_is_read_in_part_and_says_so() {
    let (database, s) = session().await;
    let input = "to_jsonb(repeat(md5(at::text), 20))";
    s.get(&history(7_200, "100 ms", "completed", "null", input))
        .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page("/").await;
    assert!(page.contains("about: a part of its history"), "{page}");
    let completed = within_the_hour(&page, "completed");
    assert!((34_000..=38_000).contains(&completed), "{completed}");
}

#[tokio::test]
async fn the_busiest_groups_come_first_with_their_limits_and_their_oldest() {
    let (database, s) = session().await;
    s.get(
        "select trax.configure_group('narrow', max_active_jobs => 2);
        select count(*) from trax.enqueue_many('t', array_fill('1'::jsonb, array[40]), group_name => 'narrow');
        select count(*) from trax.enqueue_many('t', array_fill('1'::jsonb, array[3]), group_name => 'wide');
        select trax.report_worker('idle one', period => '1 min');
        select count(*) from trax.claim_next('worker 1', 10, groups => '{narrow}')",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page("/").await;
    let groups = between(&page, "aria-label=\"Groups\"", "</table>");
    let (narrow, wide) = groups.split_once(">wide</a>").expect("both are there");
    assert!(narrow.contains(">narrow</a>"), "{groups}");
    assert!(narrow.contains("state=queued\">38</a>"), "{narrow}");
    assert!(narrow.contains("2</a> of 2 "), "{narrow}");
    assert!(narrow.contains("class=\"full\""), "{narrow}");
    assert!(wide.contains("<time datetime="), "{wide}");
    assert!(wide.contains("0</a>, no limit"), "{wide}");
    assert!(page.contains("data-number=\"workers\">2</span>"), "{page}");
}

#[tokio::test]
async fn what_is_wrong_has_the_button_that_mends_it() {
    let (database, s) = session().await;
    s.get(
        "select trax.schedule('m', task => 't', cron => '@daily', max_retries => 0);
        select trax.trigger('m');
        select trax.fail(job_id, token, 'no') from trax.claim_next('w')",
    )
    .await;
    let letter = s.get("select id from trax.dead_letter").await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page("/").await;
    let finding = between(&page, "schedule stopped", "</article>");
    assert!(
        finding.contains(&format!("href=\"/act/requeue?id={letter}\"")),
        "{finding}"
    );
    let reader = Web::of(shared_server(), &database, &["--read-only"]).await;
    let page = reader.page("/").await;
    let finding = between(&page, "schedule stopped", "</article>");
    assert!(
        !finding.contains("/act/")
            && finding.contains(&format!("href=\"/dead?status=any&amp;id={letter}\"")),
        "{finding}"
    );
}

#[tokio::test]
async fn many_problems_of_one_cause_are_one_card_below_the_numbers() {
    let (database, s) = session().await;
    s.get(
        "select trax.enqueue('lonely ' || n, group_name => 'g' || n) from generate_series(1, 9) n;
        update trax.work_queue set run_at = run_at - interval '1 h', queued_at = queued_at - interval '1 h'",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    for path in ["/", "/doctor"] {
        let page = web.page(path).await;
        let card = between(&page, "task not claimed, 9 times", "</article>");
        assert!(card.contains("<summary>8 more</summary>"), "{card}");
        for n in 1..=9 {
            assert!(card.contains(&format!("lonely {n}&quot;")), "{n}: {card}");
        }
    }
    let page = web.page("/").await;
    assert!(
        page.find("class=\"numbers\"") < page.find("task not claimed"),
        "the numbers are first: {page}"
    );
}

#[tokio::test]
async fn the_outboxes_are_shown_with_what_is_wrong_with_them() {
    let (database, s) = session().await;
    let reader = format!("reader_of_{}", database.name());
    let relay = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../sql/relay/relay.sql");
    let relay = std::fs::read_to_string(relay).expect("the file of the relay");
    s.get(&format!(
        "create role {reader} login; select trax.grant_access('{reader}', 'reader')"
    ))
    .await;
    let before = Web::of(shared_server(), &database, &[]).await;
    assert!(!before.page("/").await.contains("Outboxes"));
    s.get(&relay).await;
    s.get(
        "insert into trax_relay.source (source, name, waiting, oldest_seconds, refused, reported_at)
        values (gen_random_uuid(), 'shop', 1234, 7, 3, now() - interval '1 h'), (gen_random_uuid(), 'store', 0, 0, 0, now())",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    for path in ["/", "/doctor"] {
        let page = web.page(path).await;
        let shown = between(&page, "<h2>Outboxes</h2>", "</table>");
        for words in [
            "relay silent",
            "relay refused",
            ">1,234<",
            ">store<",
            "60 min ago",
        ] {
            assert!(shown.contains(words), "{path}, {words}: {shown}");
        }
        assert!(!shown.contains("relay behind"), "{shown}");
    }
    // A role without the right to read them sees none, and the rest of the page.
    let page = Web::as_user(shared_server(), &database, &reader, &[])
        .await
        .page("/")
        .await;
    assert!(!page.contains("Outboxes"), "{page}");
}
