//! Changes of a job while it waits.

use harness::session::{Session, session};
use std::time::{Duration, SystemTime};
use trax_client::{
    Changed, Client, Error, JobChange, JobId, JobOptions, NewJob, OnDuplicate, TaskDefaults,
};

const JOB: &str = "select input, group_name, priority, max_retries, timeout, waits_for, unique_key, concurrency_key, attempts
    from trax.work_queue";

#[tokio::test]
async fn each_value_changes_alone_and_all_others_stay() {
    let (_db, s) = session().await;
    let job = s
        .enqueue("'a', '1', unique_key => 'u', concurrency_key => 'c', max_retries => 2, timeout => '5 s'")
        .await;
    let all = ["1", "default", "0", "2", "00:00:05", "", "u", "c", "0"];
    let changes = [
        ("input => '2'", 0, "2"),
        ("group_name => 'g'", 1, "g"),
        ("priority => 7", 2, "7"),
        ("max_retries => 0", 3, "0"),
        ("timeout => '9 s'", 4, "00:00:09"),
        ("run_at => now() + interval '1 h'", 5, "time"),
        ("run_at => now() - interval '1 h'", 5, ""),
    ];
    let mut wanted = all;
    for (change, at, value) in changes {
        let queued = "select job_id, queued_at, task from trax.work_queue";
        let before = s.get(queued).await;
        let changed = format!("select trax.change_job({job}, {change})");
        assert_eq!(s.get(&changed).await, "changed", "{change}");
        wanted[at] = value;
        assert_eq!(s.get(JOB).await, wanted.join("|"), "{change}");
        assert_eq!(s.get(queued).await, before);
        s.assert_healthy().await;
    }
    assert_eq!(s.claim_ids("groups => '{g}'").await, [job]);
}

#[tokio::test]
async fn a_changed_priority_counts_for_the_next_claim() {
    let (_db, s) = session().await;
    let first = s.enqueue("'a'").await;
    let second = s.enqueue("'a'").await;
    let third = s.enqueue("'a', priority => 4").await;
    s.get(&format!("select trax.change_job({second}, priority => 5)"))
        .await;
    s.get(&format!("select trax.change_job({third}, priority => 0)"))
        .await;
    let claimed = s
        .get("select job_id from trax.claim_next(max_jobs => 3)")
        .await;
    assert_eq!(claimed, format!("{second}\n{first}\n{third}"));
}

#[tokio::test]
async fn a_job_that_does_not_wait_is_told_and_stays() {
    let (_db, s) = session().await;
    let job = s.enqueue("'a'").await;
    let change = |job: i64| format!("select trax.change_job({job}, '2', priority => 5)");
    let claimed = s.claim_one("").await;
    let before = s.everything().await;
    assert_eq!(s.get(&change(job)).await, "in_progress");
    assert_eq!(s.get(&change(4711)).await, "unknown");
    assert_eq!(s.everything().await, before);
    s.get(&format!("select trax.complete({})", claimed.key()))
        .await;
    assert_eq!(s.get(&change(job)).await, "finished");
}

#[tokio::test]
async fn a_job_that_is_claimed_meanwhile_is_in_progress() {
    let (db, s) = session().await;
    let job = s.enqueue("'a'").await;
    s.get("begin").await;
    s.claim_one("").await;
    let other = Session::of(&db).await;
    let pid = other.pid();
    let waits = other.spawn(format!("select trax.change_job({job}, '2')"));
    s.sees_waiting(pid).await;
    s.get("commit").await;
    let (_, result) = waits.await.expect("the session ends");
    assert_eq!(result.as_deref(), Ok("in_progress"));
    assert_eq!(s.get("select input from trax.lease").await, "{}");
}

#[tokio::test]
async fn a_suspended_job_changes_all_but_its_time() {
    let (_db, s) = session().await;
    let job = s.enqueue("'a'").await;
    let claimed = s.claim_one("").await;
    s.get(&format!(
        "select trax.await_signal({}, 'wait', 'paid')",
        claimed.key()
    ))
    .await;
    let before = s.everything().await;
    let later = format!("select trax.change_job({job}, '2', run_at => now() + interval '1 h')");
    assert_eq!(s.get(&later).await, "suspended");
    assert_eq!(s.everything().await, before);
    let change = format!("select trax.change_job({job}, '2', priority => 8)");
    assert_eq!(s.get(&change).await, "changed");
    s.assert_healthy().await;
    s.get(&format!("select trax.send_signal({job}, 'paid')"))
        .await;
    let seen = s.get("select job_id, input from trax.claim_next()").await;
    assert_eq!(seen, format!("{job}|2"));
    assert_eq!(s.get("select priority from trax.lease").await, "8");
}

#[tokio::test]
async fn a_blocked_job_stays_behind_its_key_in_any_group() {
    let (_db, s) = session().await;
    s.enqueue("'a', concurrency_key => 'c'").await;
    let running = s.claim_one("").await;
    let job = s.enqueue("'a', concurrency_key => 'c'").await;
    assert_eq!(s.claim("").await, []);
    for change in ["priority => 5", "group_name => 'g'"] {
        let change = format!("select trax.change_job({job}, {change})");
        assert_eq!(s.get(&change).await, "changed");
        assert_eq!(s.claim("").await, [], "{change}");
        s.assert_healthy().await;
    }
    s.get(&format!("select trax.complete({})", running.key()))
        .await;
    assert_eq!(s.claim_ids("groups => '{g}'").await, [job]);
}

#[tokio::test]
async fn a_statement_stays_that_of_its_role() {
    let (_db, s) = session().await;
    let job = s
        .number("select trax.enqueue_sql('select 1', run_at => now() + interval '1 h')")
        .await;
    let before = s.everything().await;
    let other = r#"{"command": "create role other superuser"}"#;
    let refusal = s
        .refusal(&format!("select trax.change_job({job}, '{other}')"))
        .await;
    assert_eq!(
        (refusal.code.as_str(), refusal.message),
        ("55000", format!("job {job} is a statement"))
    );
    assert_eq!(s.everything().await, before);
    let priority = format!("select trax.change_job({job}, priority => 3)");
    assert_eq!(s.get(&priority).await, "changed");
}

#[tokio::test]
async fn a_job_of_a_manifest_stays_in_its_group() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', group_name => 'g')")
        .await;
    let job = s.number("select trax.trigger('m')").await;
    let refusal = s
        .refusal(&format!("select trax.change_job({job}, group_name => 'h')"))
        .await;
    assert_eq!(refusal.code, "55000");
    assert!(refusal.message.contains("manifest \"m\""), "{refusal}");
    let same = format!("select trax.change_job({job}, group_name => 'g', priority => 3)");
    assert_eq!(s.get(&same).await, "changed");
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_audit_has_what_changed() {
    let (_db, s) = session().await;
    let job = s.enqueue("'a', '\"secret\"'").await;
    for change in [
        "priority => 5, group_name => 'g', input => '\"hidden\"'",
        "priority => 5",
        "timeout => '5 s'",
    ] {
        s.get(&format!("select trax.change_job({job}, {change})"))
            .await;
    }
    let audit = "select action, kind, name, note from trax.audit order by id";
    assert_eq!(
        s.get(audit).await,
        format!(
            "change|job|{job}|group_name: \"default\" -> \"g\", priority: 0 -> 5, input\n\
             change|job|{job}|timeout: null -> \"00:00:05\""
        )
    );
}

#[tokio::test]
async fn a_limited_role_moves_no_job_of_another_scope_into_its_own() {
    let (db, s) = session().await;
    s.get("create role mailer login; select trax.grant_access('mailer', 'producer', groups => '{mail}')")
        .await;
    let theirs = s.enqueue("'a', group_name => 'bills'").await;
    let own = s.enqueue("'a', group_name => 'mail'").await;
    let mailer = Session::as_role(&db, "mailer").await;
    let before = s.everything().await;
    for (job, change) in [
        (theirs, "group_name => 'mail'"),
        (theirs, "priority => 3"),
        (own, "group_name => 'bills'"),
    ] {
        let sql = format!("select trax.change_job({job}, {change})");
        assert_eq!(mailer.refusal(&sql).await.code, "42501", "{sql}");
    }
    assert_eq!(s.everything().await, before);
    let sql = format!("select trax.change_job({own}, priority => 3)");
    assert_eq!(mailer.get(&sql).await, "changed");
}

#[tokio::test]
async fn the_rust_client_changes_replaces_and_sets_defaults() {
    let (_db, s) = session().await;
    let client = Client::new(s.client());
    let defaults = TaskDefaults::new()
        .max_retries(7)
        .retry_delay(Duration::from_secs(40))
        .backoff(2.5)
        .retry_delay_max(Duration::from_secs(80))
        .timeout(Duration::from_secs(50))
        .on_final_failure("acknowledge");
    let configured = client.configure_task("index", &defaults).await;
    configured.expect("it is configured");
    let stored = "select max_retries, retry_delay, backoff, retry_delay_max, timeout, on_final_failure from trax.task";
    assert_eq!(
        s.get(stored).await,
        "7|00:00:40|2.5|00:01:20|00:00:50|acknowledge"
    );
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(4_102_444_800);
    let options = JobOptions::new().unique_key("k").run_at(at);
    let put = async |input: i32, choice: OnDuplicate| {
        let job = NewJob::new("index", input).with(options.clone().on_duplicate(choice));
        client.enqueue(&job).await.expect("it is queued")
    };
    let first = put(1, OnDuplicate::Keep).await;
    assert_eq!(put(2, OnDuplicate::Replace).await, first);
    assert_eq!(put(3, OnDuplicate::Postpone).await, first);
    let copied = client.enqueue_all([
        NewJob::new("index", 4).with(options.clone().on_duplicate(OnDuplicate::Replace))
    ]);
    assert_eq!(copied.await.expect("it is copied"), 1);
    let job = "select job_id, input, max_retries, run_at at time zone 'UTC' from trax.work_queue";
    assert_eq!(s.get(job).await, format!("{first}|4|7|2100-01-01 00:00:00"));
    let change = JobChange::new()
        .input(serde_json::json!(5))
        .run_at(at + Duration::from_secs(1))
        .priority(3)
        .group("g")
        .max_retries(1)
        .timeout(Duration::from_secs(9));
    let changed = client.change_job(first, &change).await;
    assert_eq!(changed.ok(), Some(Changed::Changed));
    assert_eq!(s.get(JOB).await, "5|g|3|1|00:00:09|time|k||0");
    let unknown = client.change_job(JobId(4711), &change).await;
    assert_eq!(unknown.ok(), Some(Changed::Unknown));
    assert!(client.change_job(first, &JobChange::new()).await.is_err());
    client.reset_task("index").await.expect("it is reset");
    assert_eq!(s.number("select count(*) from trax.task").await, 0);
    let again = client.reset_task("index").await;
    assert!(matches!(again, Err(Error::UnknownName(_))), "{again:?}");
}

#[tokio::test]
async fn a_value_out_of_its_range_is_refused() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let before = s.everything().await;
    for call in [
        "select trax.change_job(1)",
        "select trax.change_job(1, priority => 32)",
        "select trax.change_job(1, max_retries => -1)",
        "select trax.change_job(1, timeout => '0')",
        "select trax.change_job(1, run_at => 'infinity')",
        "select trax.change_job(1, group_name => '')",
    ] {
        assert_eq!(s.refusal(call).await.code, "22023", "{call}");
    }
    assert_eq!(s.everything().await, before);
}
