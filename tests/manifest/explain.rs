//! Explanations: why a manifest does or does not run now, since when, and the action to take.

use harness::manifest::{due_since, running, succeed};
use harness::session::{Session, session};

/// Returns the reported reasons in order.
async fn reasons(s: &Session, name: &str) -> String {
    s.get(&format!(
        "select string_agg(reason, ' ') from trax.explain_manifest('{name}')"
    ))
    .await
}

/// Checks that each row has all its parts, and that an action that is a statement can be run
/// unchanged.
async fn assert_complete(s: &Session, name: &str) {
    let missing = format!(
        "select e.* from trax.explain_manifest('{name}') e
         where coalesce(reason, '') = '' or coalesce(detail, '') = '' or coalesce(action, '') = ''"
    );
    assert_eq!(s.get(&missing).await, "", "{name}");
    let actions =
        format!("select action from trax.explain_manifest('{name}') where action like 'select %'");
    for action in s.get(&actions).await.lines() {
        s.get(&format!("begin; {action}")).await;
        s.get("rollback").await;
    }
}

async fn assert_reasons(s: &Session, name: &str, expected: &str) {
    assert_eq!(reasons(s, name).await, expected, "{name}");
    assert_complete(s, name).await;
}

#[tokio::test]
async fn what_is_switched_off_is_said_with_since_when() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'm', cron => '0 0 1 1 *', group_name => 'g'); select trax.disable_manifest('m');
           select trax.configure_group('g', enabled => false)")
        .await;
    assert_reasons(&s, "m", "disabled group_disabled").await;
    let since = "select bool_and(since between now() - interval '1 min' and now()) from trax.explain_manifest('m')";
    assert_eq!(s.get(since).await, "t");
}

#[tokio::test]
async fn what_waits_or_runs_is_said_with_its_job() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'm', every => '1 h')")
        .await;
    assert_reasons(&s, "m", "due").await;
    s.tick("queue_due").await;
    assert_reasons(&s, "m", "queued").await;
    let job = s.claim_one("").await;
    assert_reasons(&s, "m", "executing").await;
    let names_it = format!(
        "select detail like '%{}%' from trax.explain_manifest('m')",
        job.id
    );
    assert_eq!(s.get(&names_it).await, "t");
    s.get(&format!("select trax.fail({}, 'no')", job.key()))
        .await;
    assert_reasons(&s, "m", "queued").await;
    let attempt = "select detail like '%attempt 2%' from trax.explain_manifest('m')";
    assert_eq!(s.get(attempt).await, "t");
    let since = "select bool_and(since <= clock_timestamp()) from trax.explain_manifest('m')";
    assert_eq!(
        s.get(since).await,
        "t",
        "it waits since now, not since its due time"
    );
}

#[tokio::test]
async fn a_dead_letter_is_said_with_its_error() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'm', max_retries => 0)")
        .await;
    let job = running(&s, "m").await;
    s.get(&format!(
        "select trax.fail({}, 'the disk is full')",
        job.key()
    ))
    .await;
    assert_eq!(reasons(&s, "m").await, "dead_letter no_schedule");
    let error = "select detail like '%the disk is full%' and since is not null from trax.explain_manifest('m')
        where reason = 'dead_letter'";
    assert_eq!(s.get(error).await, "t");
    assert_complete(&s, "m").await;
}

#[tokio::test]
async fn a_dependent_says_what_it_waits_for() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('p', 'p'); select trax.schedule('q', 'q');
           select trax.schedule('c', 'c', depends_on => '{p,q}'); select trax.schedule('d', 'd', depends_on => '{p}', dormant => true)")
        .await;
    assert_reasons(&s, "c", "waits_for_parent waits_for_parent").await;
    assert_reasons(&s, "d", "dormant").await;
    assert_reasons(&s, "p", "no_schedule").await;
    succeed(&s, "p").await;
    assert_reasons(&s, "c", "waits_for_parent").await;
    assert_eq!(
        s.get("select detail like '%\"q\"%' from trax.explain_manifest('c')")
            .await,
        "t"
    );
    succeed(&s, "q").await;
    assert_reasons(&s, "c", "due").await;
}

#[tokio::test]
async fn what_has_ended_is_not_due_or_cannot_be_evaluated_says_so() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('ended', 'm', cron => '0 0 1 1 *', ends_at => now() + interval '1 ms');
           select trax.schedule('later', 'm', cron => '0 0 1 1 *'); select trax.schedule('bad', 'm', cron => '0 0 1 1 *');
           update trax.manifest set cron = 'at noon' where name = 'bad'")
        .await;
    due_since(&s, "bad", "now()").await;
    s.tick("queue_due").await;
    assert_reasons(&s, "ended", "ended").await;
    assert_reasons(&s, "later", "not_due").await;
    assert_reasons(&s, "bad", "evaluation_failed").await;
    let since = "select since is not null from trax.explain_manifest('bad') where reason = 'evaluation_failed'";
    assert_eq!(s.get(since).await, "t", "since when");
}

#[tokio::test]
async fn a_run_at_that_has_had_its_run_says_so() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'm', run_at => now())")
        .await;
    s.tick("queue_due").await;
    harness::manifest::complete_one(&s, "").await;
    assert_eq!(reasons(&s, "m").await, "disabled");
    let why = "select detail like '%one run%' from trax.explain_manifest('m')";
    assert_eq!(s.get(why).await, "t");
}

#[tokio::test]
async fn a_manifest_always_has_an_explanation() {
    let (_db, s) = session().await;
    let kinds = [
        "cron => '* * * * *'",
        "every => '1 h'",
        "run_at => now() + interval '1 h'",
        "run_at => now()",
        "depends_on => '{p}'",
        "depends_on => '{p}', dormant => true",
        "priority => 1",
        "cron => '* * * * *', overlap => 'skip'",
        "every => '1 h', max_concurrency => 2",
        "cron => '* * * * *', ends_at => now()",
    ];
    s.get("select trax.schedule('p', 'p')").await;
    for (n, kind) in kinds.iter().enumerate() {
        s.get(&format!("select trax.schedule('m{n}', 'm', {kind})"))
            .await;
    }
    for step in [
        "select 1",
        "select * from trax.tick()",
        "select * from trax.claim_next(max_jobs => 3)",
        "update trax.manifest_state set next_run_at = now() where next_run_at is not null",
        "select * from trax.tick()",
        "select trax.complete(job_id, token) from trax.lease order by job_id limit 2",
        "select trax.fail(job_id, token, 'no', permanent => true) from trax.lease",
        "select * from trax.tick()",
        "select trax.disable_manifest(name) from trax.manifest where name like 'm%'",
        "select trax.enable_manifest(name) from trax.manifest where name like 'm%'",
    ] {
        s.get(step).await;
        let silent = "select name from trax.manifest m where not exists (select from trax.explain_manifest(m.name))";
        assert_eq!(s.get(silent).await, "", "after {step}");
    }
}

#[tokio::test]
async fn an_unknown_name_and_null_are_refused() {
    let (_db, s) = session().await;
    for (argument, code) in [("'nobody'", "42704"), ("null", "22004")] {
        let refusal = s
            .refusal(&format!("select * from trax.explain_manifest({argument})"))
            .await;
        assert_eq!(refusal.code, code, "{refusal}");
        assert!(
            !refusal.detail.is_empty() && !refusal.hint.is_empty(),
            "{refusal}"
        );
    }
}
