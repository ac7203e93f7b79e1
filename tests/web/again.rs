//! Queueing an ended job again, and the audit of every act.

use super::client::{Answer, Web};
use harness::session::{Session, session};
use harness::shared_server;

/// Performs an act with these fields, as a browser would.
async fn act(web: &Web, name: &str, fields: &str) -> Answer {
    web.act(
        &format!("/act/{name}?{fields}"),
        &format!("{fields}&reason=why"),
        &[],
    )
    .await
}

async fn audited(s: &Session) -> String {
    s.get("select string_agg(action || ' ' || kind || ' ' || name || ': ' || program, ', ' order by id) from trax.audit")
        .await
}

#[tokio::test]
async fn an_open_dead_letter_is_requeued_once() {
    let (database, s) = session().await;
    let job = s.enqueue("'pay', '{\"order\": 7}', max_retries => 0").await;
    s.get("select trax.fail(job_id, token, 'no') from trax.claim_next()")
        .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let query = format!("job={job}");
    let page = web.page(&format!("/jobs/{job}")).await;
    assert!(
        page.contains(&format!("href=\"/act/again?{query}\"")),
        "{page}"
    );
    assert!(
        page.contains("href=\"/dead?status=any&amp;id=1\""),
        "its letter: {page}"
    );
    let asked = web.page(&format!("/act/again?{query}")).await;
    assert!(
        asked.contains("trax.requeue_dead_letter(id =&gt; '1'::bigint)"),
        "{asked}"
    );
    let done = act(&web, "again", &query).await;
    assert_eq!(done.status, 200, "{}", done.body);
    let letter = "select status, requeued_job_id from trax.dead_letter";
    let new = s.get("select job_id from trax.work_queue").await;
    assert_eq!(s.get(letter).await, format!("requeued|{new}"));
    assert_eq!(audited(&s).await, "requeue dead_letter 1: trax web: why");
    // Another person had the form open; all dead letters of the task are requeued too.
    let token = "/act/requeue-many?task=pay";
    let many = web.act(token, "task=pay&reason=why", &[]).await;
    assert!(many.body.contains("<b>0</b>"), "{}", many.body);
    let again = web.get(&format!("/act/again?{query}")).await;
    assert_eq!(again.status, 409, "{}", again.body);
    let said = format!("job {job} has been requeued as job {new}");
    assert!(again.body.contains(&said), "{}", again.body);
    let page = web.page(&format!("/jobs/{job}")).await;
    assert!(!page.contains("/act/again"), "{page}");
    assert_eq!(s.get("select count(*) from trax.work_queue").await, "1");
}

#[tokio::test]
async fn a_statement_is_queued_again_as_a_statement() {
    let (database, s) = session().await;
    s.get(
        "insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, failure_kind, task, group_name, input)
        select i, now(), now(), now(), now(), 1, 3, true, case i when 1 then 'completed' else 'failed' end, case i when 1 then null else 'error' end,
            'sql', 'reports', '{\"command\": \"analyze\"}'
        from generate_series(1, 3) i;
        insert into trax.dead_letter (job_id, status, resolved_at, attempts, priority, created_at, task, group_name, reason, input, run_as)
        select i, case i when 2 then 'awaiting_intervention' else 'acknowledged' end, case i when 2 then null else now() end,
            1, 3, now(), 'sql', 'reports', 'no', '{\"command\": \"analyze\"}', current_user
        from generate_series(2, 3) i;
        select setval('trax.work_queue_job_id_seq', 10)",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    for (job, how, recorded) in [
        (1, "trax.enqueue_sql(", "queue_again job 1"),
        (2, "trax.requeue_dead_letter(", "requeue dead_letter 1"),
        (3, "trax.enqueue_sql(", "queue_again job 3"),
    ] {
        let query = format!("job={job}");
        let asked = web.page(&format!("/act/again?{query}")).await;
        assert!(asked.contains(how), "{asked}");
        let done = act(&web, "again", &query).await;
        assert_eq!(done.status, 200, "{}", done.body);
        let last =
            "select action || ' ' || kind || ' ' || name from trax.audit order by id desc limit 1";
        assert_eq!(s.get(last).await, recorded);
    }
    let queued = "select string_agg(task || ' ' || group_name || ' ' || priority || ' ' || (input ->> 'command') || ' ' || run_as, ', ')
        from trax.work_queue";
    let one = "sql reports 3 analyze postgres";
    assert_eq!(s.get(queued).await, [one; 3].join(", "));
}

#[tokio::test]
async fn the_page_of_a_large_input_is_small_and_the_new_job_has_all_of_it() {
    let (database, s) = session().await;
    let input = "jsonb_build_object('a', repeat('x', 1000000))";
    let job = s.enqueue(&format!("'large', {input}")).await;
    s.get("select trax.complete(job_id, token) from trax.claim_next()")
        .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let query = format!("job={job}");
    let asked = web.page(&format!("/act/again?{query}")).await;
    assert!(asked.len() < 20_000, "{}", asked.len());
    assert!(asked.contains("characters more"), "{asked}");
    let done = act(&web, "again", &query).await;
    assert!(done.body.len() < 20_000, "{}", done.body.len());
    let same = format!("select count(*) from trax.work_queue where input = {input}");
    assert_eq!(s.get(&same).await, "1", "{}", done.body);
    assert_eq!(
        audited(&s).await,
        format!("queue_again job {job}: trax web: why")
    );
}

/// The acts, each with its fields and the row that it writes.
const ACTS: [(&str, &str, &str); 16] = [
    ("cancel", "job=1", "cancel job 1"),
    ("run-now", "job=2", "run_now job 2"),
    ("again", "job=3", "queue_again job 3"),
    ("requeue", "id=1", "requeue dead_letter 1"),
    ("acknowledge", "id=2", "acknowledge dead_letter 2"),
    ("requeue-many", "most=1", "requeue dead_letter 3"),
    ("acknowledge-many", "most=1", "acknowledge dead_letter 4"),
    ("disable", "manifest=m", "disable manifest m"),
    ("enable", "manifest=m", "enable manifest m"),
    ("trigger", "manifest=m", "trigger manifest m"),
    (
        "reschedule",
        "manifest=m&cron=30+4+*+*+*",
        "schedule manifest m",
    ),
    ("pause-group", "group=g", "configure group g"),
    ("resume-group", "group=g", "configure group g"),
    ("limit-group", "group=g&most=7", "configure group g"),
    ("pause", "", "pause scheduler"),
    ("resume", "", "resume scheduler"),
];

#[tokio::test]
async fn every_act_can_be_tried_and_has_its_row_in_the_audit() {
    let (database, s) = session().await;
    s.get(
        "select trax.enqueue('waits');
        select trax.enqueue('later', run_at => now() + interval '1 h');
        select trax.enqueue('done');
        select trax.complete(job_id, token) from trax.claim_next(tasks => '{done}');
        select trax.enqueue('dies', max_retries => 0) from generate_series(1, 5);
        select trax.fail(job_id, token, 'no') from trax.claim_next('w', 5, tasks => '{dies}');
        select trax.configure_group('g', max_active_jobs => 1);
        select trax.schedule('m', task => 'm', cron => '@daily')",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let last = "select action || ' ' || kind || case kind when 'scheduler' then '' else ' ' || name end from trax.audit order by id desc limit 1";
    let count = "select count(*) from trax.audit";
    for (name, fields, wanted) in ACTS {
        let before = s.number(count).await;
        let form = format!("/act/{name}?{fields}");
        let tried = web.act(&form, &format!("{fields}&try=1"), &[]).await;
        assert_eq!(tried.status, 200, "{name}: {}", tried.body);
        assert!(
            tried.body.contains("Nothing was changed"),
            "{name}: {}",
            tried.body
        );
        let (action, _) = wanted.split_once(' ').expect("two words");
        let shown = format!("<div>{} ", action.replace('_', " "));
        assert!(tried.body.contains(&shown), "{name}: {}", tried.body);
        assert_eq!(s.number(count).await, before, "{name} was only tried");
        let done = act(&web, name, fields).await;
        assert_eq!(done.status, 200, "{name}: {}", done.body);
        assert_eq!(s.number(count).await, before + 1, "{name}: {}", done.body);
        assert_eq!(s.get(last).await, wanted);
    }
}

#[tokio::test]
async fn selected_rows_are_cancelled_and_requeued_together() {
    let (database, s) = session().await;
    s.get(
        "select trax.enqueue('t') from generate_series(1, 5);
        select trax.enqueue('dies', max_retries => 0) from generate_series(1, 3);
        select trax.fail(job_id, token, 'no') from trax.claim_next('w', 3, tasks => '{dies}')",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let list = web.page("/jobs").await;
    assert_eq!(list.matches("type=\"checkbox\"").count(), 8, "{list}");
    assert!(list.contains("formaction=\"/act/cancel\""), "{list}");
    let done = act(&web, "cancel", "job=1&job=2&job=99&job=3").await;
    for said in [
        "job 1 answered: <b>cancelled</b>",
        "job 99 answered: <b>unknown</b>",
    ] {
        assert!(done.body.contains(said), "{said}: {}", done.body);
    }
    let waiting = "select count(*) from trax.work_queue where task = 't'";
    assert_eq!(s.get(waiting).await, "2");
    // A job that cannot be queued again does not prevent the others.
    let done = act(&web, "again", "job=4&job=6&job=7&job=1").await;
    assert!(done.body.contains("done in part"), "{}", done.body);
    assert!(done.body.contains("job 4 has not ended"), "{}", done.body);
    let letters = "select string_agg(status, ' ' order by id) from trax.dead_letter";
    assert_eq!(
        s.get(letters).await,
        "requeued requeued awaiting_intervention"
    );
    assert_eq!(s.get(waiting).await, "3", "and job 1, which was cancelled");
    let done = act(&web, "acknowledge", "id=3&id=2").await;
    assert!(
        done.body.contains("dead letter 3 answered: <b>true</b>"),
        "{}",
        done.body
    );
    assert!(
        done.body.contains("dead letter 2 answered: <b>false</b>"),
        "{}",
        done.body
    );
}
