//! The defaults of tasks: for jobs of all ways into the queue, and for those that fail.

use harness::session::{Session, session};

const SET: &str =
    "select trax.configure_task('a', max_retries => 7, retry_delay => '40 s', timeout => '50 s')";
const DEFAULTS: &str = "7|00:00:40|00:00:50";
const QUEUED: &str = "select distinct max_retries, retry_delay, timeout from trax.work_queue";

#[tokio::test]
async fn jobs_of_all_ways_have_the_defaults() {
    let ways = [
        "select trax.enqueue('a')",
        "select trax.enqueue('a', unique_key => 'u')",
        "select * from trax.enqueue_many('a', '{1, 2}')",
        "insert into trax.new_job (task, input) select 'a', to_jsonb(n) from generate_series(1, 3) n",
        "insert into trax.new_job (task, unique_key, on_duplicate) values ('a', 'u', 'replace'), ('a', 'u', 'replace')",
        "select trax.schedule('m', 'a'); select trax.trigger('m')",
        "select trax.schedule('m', 'a', every => '1 h'); select * from trax.tick()",
        "select trax.enqueue('parent'); select trax.spawn(job_id, token, 's', 'a') from trax.claim_next()",
    ];
    for way in ways {
        let (_db, s) = session().await;
        s.get(way).await;
        assert_eq!(s.get(QUEUED).await, "||", "{way}");
        let (_db, s) = session().await;
        s.get(SET).await;
        s.get(way).await;
        assert_eq!(s.get(QUEUED).await, DEFAULTS, "{way}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_statement_has_the_defaults_of_its_task() {
    let (_db, s) = session().await;
    s.get("select trax.configure_task('sql', max_retries => 1)")
        .await;
    s.get("select trax.enqueue_sql('select 1', run_at => now() + interval '1 h')")
        .await;
    assert_eq!(s.get("select max_retries from trax.work_queue").await, "1");
}

#[tokio::test]
async fn values_of_the_job_and_of_its_manifest_come_first() {
    let (_db, s) = session().await;
    s.get(SET).await;
    let own = "max_retries => 0, retry_delay => '1 s', timeout => '2 s'";
    for way in [
        format!("select trax.enqueue('a', {own})"),
        format!("select trax.schedule('m', 'a', {own}); select trax.trigger('m')"),
        format!("select trax.schedule('n', 'a', every => '1 h', {own}); select * from trax.tick()"),
    ] {
        s.get(&way).await;
        assert_eq!(s.get(QUEUED).await, "0|00:00:01|00:00:02", "{way}");
    }
    s.get("select trax.enqueue('b')").await;
    let other = "select max_retries, retry_delay, timeout from trax.work_queue where task = 'b'";
    assert_eq!(s.get(other).await, "||");
}

#[tokio::test]
async fn a_job_that_replaces_another_has_the_defaults() {
    let (_db, s) = session().await;
    s.get(SET).await;
    for own in [", max_retries => 1, timeout => '1 s'", ""] {
        s.get(&format!(
            "select trax.enqueue('a', unique_key => 'k', on_duplicate => 'replace'{own})"
        ))
        .await;
    }
    assert_eq!(s.get(QUEUED).await, DEFAULTS);
}

#[tokio::test]
async fn the_delay_grows_as_the_task_says() {
    let (_db, s) = session().await;
    s.get("select trax.configure_task('a', max_retries => 9, retry_delay => '100 s', backoff => 10, retry_delay_max => '5000 s')")
        .await;
    s.enqueue("'a'").await;
    for longest in [100, 1000, 5000, 5000] {
        let job = s.claim_one("").await;
        let fail = format!("select trax.fail({}, 'no')", job.key());
        assert_eq!(s.get(&fail).await, "retrying");
        let delay = s
            .number(
                "select round(extract(epoch from run_at - clock_timestamp())) from trax.work_queue",
            )
            .await;
        assert!(
            (longest * 9 / 10 - 5..=longest).contains(&delay),
            "{delay} of {longest}"
        );
        s.get(&format!("select trax.run_now({})", job.id)).await;
    }
}

#[tokio::test]
async fn a_change_counts_in_sessions_that_have_used_the_old_values() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    let queued = async |wanted: &str| {
        other.get("select trax.enqueue('a')").await;
        let last = "select coalesce(max_retries::text, 'none') from trax.work_queue order by job_id desc limit 1";
        assert_eq!(other.get(last).await, wanted);
    };
    queued("none").await;
    s.get("select trax.configure_task('a', max_retries => 5)")
        .await;
    queued("5").await;
    s.get("begin; select trax.configure_task('a', max_retries => 6)")
        .await;
    queued("5").await;
    s.get("select trax.enqueue('a')").await;
    s.get("commit").await;
    queued("6").await;
    s.get("begin; select trax.configure_task('a', max_retries => 8); select trax.enqueue('a'); rollback")
        .await;
    s.get("select trax.enqueue('a')").await;
    let counts = "select string_agg(coalesce(max_retries::text, 'none'), ' ' order by job_id) from trax.work_queue";
    assert_eq!(s.get(counts).await, "none 5 5 6 6 6");
    // By hand, too.
    s.get("update trax.task set max_retries = 9").await;
    queued("9").await;
    s.get("select trax.reset_task('a')").await;
    queued("none").await;
}

#[tokio::test]
async fn a_job_that_fails_for_good_leaves_an_acknowledged_letter() {
    let ends = [
        "select trax.fail(job_id, token, 'no') from trax.claim_next()",
        "select trax.fail(job_id, token, 'no', permanent => true) from trax.claim_next()",
        "select trax.limit_queue_time(max(job_id), '1 us') from trax.work_queue; select * from trax.tick()",
        "select * from trax.claim_next(); update trax.lease set lease_expires_at = started_at, reap_at = started_at;
         select * from trax.tick()",
    ];
    for end in ends {
        let (_db, s) = session().await;
        s.get(
            "select trax.configure_task('a', max_retries => 0, on_final_failure => 'acknowledge')",
        )
        .await;
        s.get("select trax.schedule('m', 'a', cron => '0 0 1 1 *'); select trax.trigger('m')")
            .await;
        s.get(end).await;
        let letter =
            "select status, resolved_at = created_at, resolution_note from trax.dead_letter";
        assert_eq!(
            s.get(letter).await,
            "acknowledged|t|on_final_failure of its task",
            "{end}"
        );
        assert_eq!(s.get("select state from trax.job").await, "failed", "{end}");
        // The schedule goes on.
        let parked =
            "select parked_on is null and next_run_at is not null from trax.manifest_state";
        assert_eq!(s.get(parked).await, "t", "{end}");
        s.get("select * from trax.tick()").await;
        assert_eq!(s.number("select count(*) from trax.dead_letter").await, 1);
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_document_creates_changes_and_prunes_tasks() {
    let (_db, s) = session().await;
    let apply = |tasks: &str| {
        format!(
            "select action, kind, name, detail from trax.apply('{{\"tasks\": [{tasks}]}}', prune => true, source => 'repo')"
        )
    };
    let both = r#"{"name": "a", "max_retries": 2, "retry_delay": "5 s", "backoff": 1.5, "timeout": 90},
        {"name": "b", "on_final_failure": "acknowledge", "retry_delay_max": 60}"#;
    assert_eq!(
        s.get(&apply(both)).await,
        "created|task|a|\ncreated|task|b|"
    );
    let before = s.everything().await;
    assert_eq!(
        s.get(&apply(both)).await,
        "unchanged|task|a|\nunchanged|task|b|"
    );
    assert_eq!(s.everything().await, before);
    // A member that is left out has its default again.
    let one = r#"{"name": "a", "max_retries": 3}"#;
    let changed = s.get(&apply(one)).await;
    assert!(
        changed.starts_with("changed|task|a|") && changed.contains("max_retries: 2 -> 3"),
        "{changed}"
    );
    assert!(changed.ends_with("removed|task|b|"), "{changed}");
    let left = "select name, max_retries, retry_delay, backoff, timeout, source from trax.task";
    assert_eq!(s.get(left).await, "a|3||||repo");
    let refusal = s
        .refusal("select * from trax.apply('{\"tasks\": [{\"name\": \"a\"}]}', source => 'other')")
        .await;
    assert_eq!(refusal.code, "55000");
    for bad in [
        r#"{"max_retries": 1}"#,
        r#"{"name": "a", "backoff": 0.1}"#,
        r#"{"name": "a", "backoff": "2"}"#,
        r#"{"name": "a", "retries": 1}"#,
        r#"{"name": "a", "on_final_failure": "drop"}"#,
        r#"{"name": "c"}, {"name": "c"}"#,
    ] {
        let refusal = s.refusal(&apply(bad)).await;
        assert!(
            ["22023", "22004"].contains(&refusal.code.as_str()),
            "{bad}: {refusal}"
        );
    }
}

#[tokio::test]
async fn the_audit_has_each_change() {
    let (_db, s) = session().await;
    for act in [
        "select trax.configure_task('a', max_retries => 1)",
        "select trax.configure_task('a', max_retries => 2, backoff => 3)",
        "select trax.configure_task('a', max_retries => 2)",
        "select trax.reset_task('a')",
    ] {
        s.get(act).await;
    }
    let again = s.refusal("select trax.reset_task('a')").await;
    assert_eq!(again.code, "42704", "{again}");
    let audit = "select action, kind, name, note from trax.audit order by id";
    assert_eq!(
        s.get(audit).await,
        "configure|task|a|created\nconfigure|task|a|backoff: null -> 3, max_retries: 1 -> 2\nconfigure|task|a|reset"
    );
}

#[tokio::test]
async fn a_value_out_of_its_range_is_refused() {
    let (_db, s) = session().await;
    for call in [
        "select trax.configure_task('')",
        "select trax.configure_task('a', max_retries => -1)",
        "select trax.configure_task('a', retry_delay => '-1 s')",
        "select trax.configure_task('a', backoff => 0.5)",
        "select trax.configure_task('a', backoff => 'NaN')",
        "select trax.configure_task('a', retry_delay_max => '-1 s')",
        "select trax.configure_task('a', timeout => '0')",
        "select trax.configure_task('a', on_final_failure => 'drop')",
    ] {
        assert_eq!(s.refusal(call).await.code, "22023", "{call}");
    }
    assert_eq!(s.number("select count(*) from trax.task").await, 0);
}
