//! `trax.explain_job`: why a job waits, since when, and the action to take.

use harness::session::{Session, session};

/// Checks the reasons of a job in their order, that each row has all its parts, and that an action
/// that is a statement can be run unchanged. Returns the details.
async fn assert_reasons(s: &Session, id: i64, expected: &str) -> String {
    let rows = format!("from trax.explain_job({id}) e");
    let reasons = format!("select string_agg(reason, ' ') {rows}");
    assert_eq!(s.get(&reasons).await, expected);
    let incomplete =
        format!("select e.* {rows} where coalesce(detail, '') = '' or coalesce(action, '') = ''");
    assert_eq!(s.get(&incomplete).await, "", "{expected}");
    let actions = format!("select action {rows} where action like 'select %'");
    for action in s.get(&actions).await.lines() {
        s.get(&format!("begin; {action}")).await;
        s.get("rollback").await;
    }
    s.get(&format!("select string_agg(detail, ' ') {rows}"))
        .await
}

#[tokio::test]
async fn a_ready_job_waits_for_a_worker_and_says_who_takes_its_task() {
    let (_db, s) = session().await;
    let first = s.enqueue("'mail', group_name => 'g'").await;
    let second = s.enqueue("'mail', group_name => 'g'").await;
    let said = assert_reasons(&s, second, "no_worker").await;
    assert!(said.contains("No worker that takes it is known."), "{said}");
    let report = |name: &str, info: &str| {
        format!("select trax.report_worker('{name}', '10 s', info => '{info}')")
    };
    s.get(&report("a", r#"{"tasks": ["other"]}"#)).await;
    s.get(&report("b", r#"{"tasks": null, "groups": ["other"]}"#))
        .await;
    assert_reasons(&s, second, "no_worker").await;
    s.get(&report("c", r#"{"tasks": ["mail"], "groups": ["g"]}"#))
        .await;
    s.get(&report("d", r#"{"tasks": null}"#)).await;
    let said = assert_reasons(&s, second, "worker").await;
    assert!(
        said.contains(
            "2 take it and execute 0 jobs; 1 jobs of its task and group stand before it."
        ),
        "{said}"
    );
    let said = assert_reasons(&s, first, "worker").await;
    assert!(said.contains("; 0 jobs of its task and group"), "{said}");
}

#[tokio::test]
async fn a_job_waits_for_the_transaction_that_has_locked_its_limit() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    s.get("select trax.configure_group('full', max_active_jobs => 5)")
        .await;
    for (way, lock) in [
        (
            "select trax.configure_group('g', priority => 3)",
            "the group \"g\"",
        ),
        (
            "select from trax.claim_next(groups => '{full}')",
            "the group \"full\"",
        ),
        (
            "select from trax.claim_next(tasks => '{keyed}')",
            "the concurrency key \"k\"",
        ),
    ] {
        let group = if lock.contains("full") { "full" } else { "g" };
        s.get(&format!(
            "select trax.enqueue('{}', group_name => '{group}', concurrency_key => {}) from generate_series(1, 2)",
            if lock.contains("key") { "keyed" } else { "t" },
            if lock.contains("key") { "'k'" } else { "null" },
        ))
        .await;
        let last = s.number("select max(job_id) from trax.work_queue").await;
        other.get(&format!("begin; {way}")).await;
        let why =
            format!("select detail, action from trax.explain_job({last}) where reason = 'locked'");
        let pid = other.pid();
        harness::eventually("the reason", harness::PATIENCE, async || {
            let said = s.get(&why).await;
            let wanted =
                format!("Job {last} waits for process {pid}, which has locked {lock} since ");
            let action = format!("select pg_terminate_backend({pid})");
            match said.starts_with(&wanted) && said.ends_with(&action) {
                true => Ok(()),
                false => Err(said),
            }
        })
        .await;
        other.get("commit").await;
        assert_eq!(s.get(&why).await, "");
    }
}

#[tokio::test]
async fn a_job_of_a_version_waits_for_a_worker_that_takes_it() {
    let (_db, s) = session().await;
    let job = s.enqueue("'mail', version => 'v1'").await;
    let said = assert_reasons(&s, job, "version").await;
    assert!(said.contains("No worker that takes it is known."), "{said}");
    let report = async |name: &str, versions: &str| {
        s.get(&format!(
            "select trax.report_worker('{name}', '10 s', info => '{{\"tasks\": [\"mail\"], \"versions\": {versions}}}')"
        ))
        .await
    };
    report("a", r#"["v2"]"#).await;
    report("b", r#"["v2", "v3"]"#).await;
    let said = assert_reasons(&s, job, "version").await;
    assert!(
        said.contains("2 workers take the task, but not this version."),
        "{said}"
    );
    let any = s.enqueue("'mail'").await;
    let said = assert_reasons(&s, any, "worker").await;
    assert!(said.contains("of task \"mail\". 2 take it"), "{said}");
    report("c", "null").await;
    let said = assert_reasons(&s, job, "worker").await;
    assert!(said.contains(" 1 take it"), "{said}");
    report("b", r#"["v1"]"#).await;
    let said = assert_reasons(&s, job, "worker").await;
    assert!(said.contains(" 2 take it"), "{said}");
}

#[tokio::test]
async fn a_claim_shows_that_somebody_takes_the_task() {
    let (_db, s) = session().await;
    s.enqueue("'mail'").await;
    let second = s.enqueue("'mail'").await;
    s.claim_one("tasks => array['mail'], worker => 'w'").await;
    let said = assert_reasons(&s, second, "worker").await;
    assert!(
        said.contains("The last claim of its task was at "),
        "{said}"
    );
}

#[tokio::test]
async fn a_job_of_a_later_time_waits_for_it_and_then_for_the_scheduler() {
    let (_db, s) = session().await;
    let id = s.enqueue("'a', run_at => now() + interval '1 h'").await;
    let said = assert_reasons(&s, id, "delayed").await;
    assert!(said.contains("is due at "), "{said}");
    let since = |time: &str| {
        format!("select since = ({time}) from trax.explain_job({id}) where reason = 'delayed'")
    };
    let queued = since("select queued_at from trax.work_queue");
    assert_eq!(s.get(&queued).await, "t");
    s.get("update trax.work_queue set run_at = now() - interval '1 min'")
        .await;
    let said = assert_reasons(&s, id, "scheduler delayed").await;
    assert!(said.contains("is: not running"), "{said}");
    s.get("select trax.pause('maintenance')").await;
    assert_reasons(&s, id, "scheduler delayed").await;
    s.get("select trax.resume()").await;
    s.tick("promote_delayed").await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.fail({}, 'no')", job.key()))
        .await;
    let said = assert_reasons(&s, id, "delayed").await;
    assert!(said.contains("waits for attempt 2, due at "), "{said}");
    let failed = since("select finished_at from trax.run");
    assert_eq!(s.get(&failed).await, "t");
}

#[tokio::test]
async fn a_job_of_a_later_time_names_what_would_hold_it_now() {
    let (_db, s) = session().await;
    s.get("select trax.configure_group('g', max_active_jobs => 1), trax.configure_rate('api', 1, '1 h')")
        .await;
    s.enqueue("'a', group_name => 'g'").await;
    s.claim_one("").await;
    s.get("select trax.consume_rate('api')").await;
    let later = "run_at => now() + interval '1 h'";
    let grouped = s.enqueue(&format!("'a', group_name => 'g', {later}")).await;
    assert_reasons(&s, grouped, "group_limit delayed").await;
    let rated = s.enqueue(&format!("'a', rate => 'api', {later}")).await;
    assert_reasons(&s, rated, "delayed rate").await;
    let of_version = s.enqueue(&format!("'a', version => 'v1', {later}")).await;
    assert_reasons(&s, of_version, "delayed version").await;
    s.enqueue("'a', concurrency_key => 'k'").await;
    s.claim_one("").await;
    let keyed = s
        .enqueue(&format!("'a', concurrency_key => 'k', {later}"))
        .await;
    assert_reasons(&s, keyed, "delayed key").await;
    let early = "select count(*) from trax.work_queue q, trax.explain_job(q.job_id) e where e.since > now()";
    assert_eq!(s.get(early).await, "0");
    s.get("set trax.max_active_jobs = 2").await;
    assert_reasons(&s, rated, "database_limit delayed rate").await;
}

#[tokio::test]
async fn a_job_behind_its_key_names_the_job_that_has_it() {
    let (_db, s) = session().await;
    let first = s.enqueue("'a', concurrency_key => 'k'").await;
    let second = s.enqueue("'a', concurrency_key => 'k'").await;
    s.claim_one("").await;
    s.claim("").await;
    let said = assert_reasons(&s, second, "key").await;
    assert!(
        said.contains(&format!("1 may run at once; now executed: job {first}.")),
        "{said}"
    );
    assert_reasons(&s, first, "executing").await;
}

#[tokio::test]
async fn a_job_behind_a_busy_key_or_manifest_says_so_before_a_claim_has_looked_at_it() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'b'), trax.configure_group('wide', max_per_key => 2)")
        .await;
    let first = s
        .enqueue("'a', concurrency_key => 'k', group_name => 'wide'")
        .await;
    s.claim_one("").await;
    let free = s
        .enqueue("'a', concurrency_key => 'k', group_name => 'wide'")
        .await;
    assert_reasons(&s, free, "worker").await;
    let behind = s.enqueue("'a', concurrency_key => 'k'").await;
    let said = assert_reasons(&s, behind, "key").await;
    assert!(
        said.contains(&format!("now executed: job {first}.")),
        "{said}"
    );
    s.claim_one("tasks => '{a}', groups => '{wide}'").await;
    let third = s
        .enqueue("'a', concurrency_key => 'k', group_name => 'wide'")
        .await;
    let said = assert_reasons(&s, third, "key").await;
    assert!(
        said.contains(": 2 may run at once; now executed: job "),
        "{said}"
    );
    let runs = s.number("select trax.trigger('m')").await;
    s.claim_one("tasks => '{b}'").await;
    let next = s.number("select trax.trigger('m')").await;
    let said = assert_reasons(&s, next, "manifest").await;
    assert!(
        said.contains(&format!("now executed: job {runs}.")),
        "{said}"
    );
    let marked = "select count(*) from trax.work_queue where waits_for is null";
    assert_eq!(s.number(marked).await, 3, "no claim has marked them");
}

#[tokio::test]
async fn a_job_behind_its_manifest_names_the_job_that_runs() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a')").await;
    let first = s.number("select trax.trigger('m')").await;
    let second = s.number("select trax.trigger('m')").await;
    s.claim_one("").await;
    s.claim("").await;
    let said = assert_reasons(&s, second, "manifest").await;
    assert!(
        said.contains(&format!("1 may run at once; now executed: job {first}.")),
        "{said}"
    );
}

#[tokio::test]
async fn limits_of_the_group_and_of_the_database_are_said_with_their_numbers() {
    let (_db, s) = session().await;
    s.get("select trax.configure_group('g', max_active_jobs => 1)")
        .await;
    s.enqueue("'a', group_name => 'g'").await;
    let id = s.enqueue("'a', group_name => 'g'").await;
    s.claim_one("").await;
    let said = assert_reasons(&s, id, "group_limit").await;
    assert!(
        said.contains("executes 1 jobs, and may execute 1 at once."),
        "{said}"
    );
    s.get("set trax.max_active_jobs = 1").await;
    assert_reasons(&s, id, "database_limit group_limit").await;
    s.get("select trax.configure_group('g', enabled => false)")
        .await;
    assert_reasons(&s, id, "database_limit group_disabled group_limit").await;
}

#[tokio::test]
async fn a_statement_waits_for_an_executor() {
    let (_db, s) = session().await;
    let id = s.number("select trax.enqueue_sql('select 1')").await;
    let said = assert_reasons(&s, id, "scheduler executor").await;
    assert!(
        said.contains("0 statements run, at most 2 at once"),
        "{said}"
    );
}

#[tokio::test]
async fn a_job_in_a_copy_is_not_claimed_and_one_that_cannot_be_read_neither() {
    let (_db, s) = session().await;
    let id = s.enqueue("'a'").await;
    s.get(&format!(
        "insert into trax.unreadable_job values ({id}, 'missing chunk', now())"
    ))
    .await;
    assert_reasons(&s, id, "unreadable no_worker").await;
    s.get("delete from trax.unreadable_job").await;
    s.get("update trax.adoption set system_identifier = 1")
        .await;
    let said = assert_reasons(&s, id, "not_adopted no_worker").await;
    assert!(said.contains("a copy of another database"), "{said}");
}

#[tokio::test]
async fn a_job_that_does_not_wait_says_what_became_of_it() {
    let (_db, s) = session().await;
    // The id of the job is not that of its dead letter.
    let other = s.enqueue("'a'").await;
    s.get(&format!("select trax.cancel({other})")).await;
    let id = s.enqueue("'a', max_retries => 0").await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.fail({}, 'broken')", job.key()))
        .await;
    let said = assert_reasons(&s, id, "dead_letter").await;
    assert!(said.contains("broken"), "{said}");
    let letter = s.get("select id from trax.dead_letter").await;
    let again = s
        .number(&format!("select trax.requeue_dead_letter({letter})"))
        .await;
    s.get(&format!("select trax.cancel({again})")).await;
    let action = format!("select action from trax.explain_job({id})");
    assert!(
        s.get(&action)
            .await
            .contains(&format!("trax.explain_job({again})"))
    );
    let said = assert_reasons(&s, again, "ended").await;
    assert!(said.contains("was cancelled at "), "{said}");
}

#[tokio::test]
async fn a_job_that_is_not_known_is_an_error() {
    let (_db, s) = session().await;
    let refusal = s.refusal("select trax.explain_job(42)").await;
    assert_eq!(refusal.code, "42704");
    assert_eq!(refusal.message, "job 42 does not exist");
    let refusal = s.refusal("select trax.explain_job(null)").await;
    assert_eq!(refusal.code, "22004");
}
