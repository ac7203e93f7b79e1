//! Errors: SQLSTATE, DETAIL and HINT as designed, and no row changed.

use harness::session::{Refusal, Session, session};

/// A database with rows in every table that an invalid call could change.
pub(super) async fn furnished() -> Session {
    let (_, s) = session().await;
    s.get(
        "select trax.schedule('m', 'a', every => '1 h');
         select trax.configure_group('g', priority => 3);
         select trax.enqueue('dies');
         select trax.enqueue('runs', unique_key => 'k');
         select trax.enqueue('waits')",
    )
    .await;
    let dies = s.claim_one("tasks => array['dies']").await;
    s.get(&format!(
        "select trax.fail({}, 'no', permanent => true)",
        dies.key()
    ))
    .await;
    s.claim_one("tasks => array['runs']").await;
    s
}

/// Runs a refused call; `{job}` and `{token}` stand for the running job.
async fn refused(s: &Session, sql: &str, before: &str) -> Refusal {
    let held = s.get("select job_id, token from trax.lease").await;
    let (job, token) = held.split_once('|').expect("one job runs");
    let token = format!("'{token}'::uuid");
    let refusal = s
        .refusal(&sql.replace("{job}", job).replace("{token}", &token))
        .await;
    assert!(
        !refusal.detail.is_empty(),
        "{sql}\n  has no DETAIL: {refusal}"
    );
    assert!(!refusal.hint.is_empty(), "{sql}\n  has no HINT: {refusal}");
    assert!(
        refusal.detail.ends_with(['.', '?']),
        "{sql}\n  a DETAIL is a sentence: {refusal}"
    );
    assert!(
        !refusal.message.ends_with('.'),
        "{sql}\n  a message is no sentence: {refusal}"
    );
    assert_eq!(s.everything().await, before, "{sql}\n  changed rows");
    refusal
}

async fn assert_refused(code: &str, statements: &[&str]) {
    let s = furnished().await;
    let before = s.everything().await;
    let mut wrong = Vec::new();
    for sql in statements {
        let refusal = refused(&s, sql, &before).await;
        if refusal.code != code {
            wrong.push(format!("{sql}\n  {refusal}"));
        }
    }
    assert!(wrong.is_empty(), "not {code}:\n{}", wrong.join("\n"));
    s.assert_healthy().await;
}

#[tokio::test]
async fn an_unknown_name_or_id_is_42704() {
    assert_refused(
        "42704",
        &[
            "select trax.trigger('nobody')",
            "select trax.unschedule('nobody')",
            "select trax.enable_manifest('nobody')",
            "select trax.disable_manifest('nobody')",
            "select trax.requeue_dead_letter(999)",
            "select trax.acknowledge_dead_letter(999)",
            "select trax.drop_rate('nobody')",
            "select trax.reset_task('nobody')",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_value_out_of_its_range_is_22023() {
    assert_refused(
        "22023",
        &[
            "select * from trax.claim_next(max_jobs => 0)",
            "select * from trax.claim_next(max_jobs => -1)",
            "select * from trax.claim_next(max_jobs => 1001)",
            "select * from trax.claim_next(min_jobs => 0)",
            "select * from trax.claim_next(min_jobs => 2)",
            "select * from trax.claim_next(max_jobs => 2, min_jobs => 2, max_wait => '-1 s')",
            "select * from trax.claim_next(max_wait => '1 s')",
            "select * from trax.claim_next(lease => '-1 s')",
            "select * from trax.claim_next(lease => '0')",
            "select * from trax.claim_next(lease => '300000 years')",
            "select * from trax.claim_next(worker => '')",
            "select trax.enqueue('')",
            "select trax.enqueue('a', group_name => '')",
            "select trax.enqueue('a', unique_key => '')",
            "select trax.enqueue('a', concurrency_key => '')",
            "select trax.enqueue('a', priority => 32)",
            "select trax.enqueue('a', priority => -1)",
            "select trax.enqueue('a', max_retries => -1)",
            "select trax.enqueue('a', timeout => '0')",
            "select trax.enqueue('a', timeout => '-1 h')",
            "select trax.enqueue('a', retry_delay => '-1 s')",
            "select trax.enqueue('a', unique_for => '1 h')",
            "select trax.enqueue('a', unique_key => 'n', unique_for => '0')",
            "select trax.enqueue('a', unique_key => 'n', unique_for => '-1 h')",
            "select trax.enqueue('a', unique_key => 'n', unique_for => '11 years')",
            "select * from trax.enqueue_many('a', '{1}', unique_for => '1 h')",
            "select trax.enqueue('a', on_duplicate => 'replace')",
            "select trax.enqueue('a', unique_key => 'n', on_duplicate => 'raise')",
            "select trax.enqueue('a', unique_key => 'n', on_duplicate => 'postpone')",
            "select trax.enqueue_sql('select 1', on_duplicate => 'keep')",
            "select * from trax.enqueue_many('a', '{1}', on_duplicate => 'keep')",
            "select trax.enqueue('a', retry_delay => '1 month -1 day')",
            "select trax.enqueue('a', retry_delay => '11 years')",
            "select * from trax.enqueue_many('a', '{1}', retry_delay => '-1 s')",
            "select trax.schedule('x', 'a', on_dead_letter => 'wait')",
            "select trax.enqueue('a', run_at => 'infinity')",
            "select trax.enqueue('a', run_at => '-infinity')",
            "select trax.schedule('x', 'a', run_at => '0001-01-01')",
            "select trax.schedule('x', 'a', every => '1 h', ends_at => '0001-01-01')",
            "select * from trax.enqueue_many('a', array['1']::jsonb[], priority => 99)",
            "select * from trax.heartbeat(array[{job}], array[{token}], lease => '-1 s')",
            "select * from trax.heartbeat(array[{job}], array[{token}], lease => '300000 years')",
            "select trax.release({job}, {token}, delay => '-1 s')",
            "select trax.release({job}, {token}, delay => '300000 years')",
            "select trax.fail({job}, {token}, 'no', retry_in => '-1 s')",
            "select trax.fail({job}, {token}, 'no', retry_in => '300000 years')",
            "select trax.trigger('m', delay => '-1 s')",
            "select trax.trigger('m', delay => '300000 years')",
            "select trax.configure_group('g', priority => 32)",
            "select trax.configure_group('g', priority => -1)",
            "select trax.configure_group('g', max_active_jobs => -1)",
            "select trax.configure_group('g', max_per_key => 0)",
            "select trax.configure_group('g', max_waiting => -1)",
            "select trax.configure_group('g', overflow => 'drop')",
            "select trax.configure_group('')",
            "select trax.grant_access('postgres', 'owner')",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_bad_schedule_is_22023() {
    assert_refused(
        "22023",
        &[
            "select trax.schedule('x', 'a', cron => '61 * * * *')",
            "select trax.schedule('x', 'a', cron => '0 0 30 2 *')",
            "select trax.schedule('x', 'a', cron => '')",
            "select trax.schedule('x', 'a', cron => '* * *')",
            "select trax.schedule('x', 'a', cron => 'every monday')",
            "select trax.schedule('m', 'a', cron => '* * * * * * * *')",
            "select trax.schedule('x', 'a', cron => '0 2 * * *', timezone => 'Mars/Olympus')",
            "select trax.schedule('x', 'a', cron => '0 2 * * *', timezone => '')",
            "select trax.schedule('x', 'a', cron => '0 2 * * *', every => '1 h')",
            "select trax.schedule('x', 'a', every => '1 h', run_at => now())",
            "select trax.schedule('x', 'a', every => '0')",
            "select trax.schedule('x', 'a', every => '-1 h')",
            "select trax.schedule('x', 'a', run_at => 'infinity')",
            "select trax.schedule('x', 'a', every => '1 h', starts_at => '-infinity')",
            "select trax.schedule('x', 'a', every => '1 h', starts_at => '2030-01-02', ends_at => '2030-01-01')",
            "select trax.schedule('x', 'a', priority => 32)",
            "select trax.schedule('x', 'a', max_retries => -1)",
            "select trax.schedule('x', 'a', retry_delay => '-1 s')",
            "select trax.schedule('x', 'a', timeout => '0')",
            "select trax.schedule('', 'a')",
            "select trax.schedule('x', '')",
            "select trax.schedule('x', 'a', group_name => '')",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_bad_cron_is_refused_with_its_position() {
    let s = furnished().await;
    let before = s.everything().await;
    for (cron, position) in [
        ("61 * * * *", 1),
        ("* * 99 * *", 5),
        ("* * * * MOO", 9),
        ("0 0 1,32 * *", 7),
    ] {
        let sql = format!("select trax.schedule('x', 'a', cron => '{cron}')");
        let refusal = refused(&s, &sql, &before).await;
        assert!(
            refusal.detail.contains(&format!("position {position}.")),
            "{cron}: {refusal}"
        );
    }
    let never = refused(
        &s,
        "select trax.schedule('x', 'a', cron => '0 0 30 2 *')",
        &before,
    )
    .await;
    assert!(never.message.contains("never"), "{never}");
}

#[tokio::test]
async fn an_end_that_is_not_after_the_stored_start_is_22023() {
    let s = furnished().await;
    s.get("select trax.schedule('m', 'a', starts_at => '2030-01-02')")
        .await;
    let before = s.everything().await;
    let refusal = refused(
        &s,
        "select trax.schedule('m', 'a', ends_at => '2030-01-01')",
        &before,
    )
    .await;
    assert_eq!(refusal.code, "22023", "{refusal}");
}

#[tokio::test]
async fn arrays_of_two_lengths_are_22023() {
    assert_refused(
        "22023",
        &[
            "select * from trax.heartbeat(array[{job}, {job}], array[{token}])",
            "select * from trax.heartbeat(array[{job}], '{}')",
            "select * from trax.complete_many(array[{job}, {job}], array[{token}])",
            "select * from trax.complete_many(array[{job}], array[{token}, {token}])",
            "select * from trax.complete_many(array[{job}], array[{token}], '{}')",
            "select * from trax.complete_many(array[{job}], array[{token}], array['1', '2']::jsonb[])",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_null_in_an_array_is_22004() {
    assert_refused(
        "22004",
        &[
            "select * from trax.enqueue_many('a', array['1', null]::jsonb[])",
            "select * from trax.claim_next(tasks => array['waits', null])",
            "select * from trax.claim_next(groups => array['default', null])",
            "select * from trax.heartbeat(array[null::bigint], array[{token}])",
            "select * from trax.heartbeat(array[{job}], array[null::uuid])",
            "select * from trax.complete_many(array[{job}, null], array[{token}, {token}])",
            "select * from trax.complete_many(array[{job}], array[null::uuid])",
        ],
    )
    .await;
}

#[tokio::test]
async fn an_input_over_a_limit_is_54000() {
    assert_refused(
        "54000",
        &[
            "select trax.enqueue('a', group_name => repeat('g', 10000))",
            "select trax.enqueue(repeat('a', 256))",
            "select trax.enqueue(repeat('é', 128))",
            "select trax.enqueue('a', unique_key => repeat('a', 256))",
            "select trax.enqueue('a', concurrency_key => repeat('a', 256))",
            "select trax.enqueue('a', to_jsonb(repeat('x', 1048576)))",
            "select trax.enqueue('a', trace => to_jsonb(repeat('x', 1048576)))",
            "select * from trax.enqueue_many('a', array['1', to_jsonb(repeat('x', 1048576))])",
            "select * from trax.claim_next(worker => repeat('w', 256))",
            "select trax.complete({job}, {token}, to_jsonb(repeat('x', 1048576)))",
            "select * from trax.complete_many(array[{job}], array[{token}], array[to_jsonb(repeat('x', 1048576))])",
            "select trax.fail({job}, {token}, 'no', detail => to_jsonb(repeat('x', 1048576)))",
            "select trax.trigger('m', to_jsonb(repeat('x', 1048576)))",
            "select trax.schedule(repeat('m', 256), 'a')",
            "select trax.schedule('x', repeat('a', 256))",
            "select trax.schedule('x', 'a', group_name => repeat('g', 256))",
            "select trax.schedule('x', 'a', input => to_jsonb(repeat('x', 1048576)))",
            "select trax.schedule('x', 'a', cron => '0 0 ' || repeat('1,', 130) || '1 * *')",
            "select trax.configure_group(repeat('g', 10000))",
        ],
    )
    .await;
}

#[tokio::test]
async fn what_is_too_large_is_named() {
    let s = furnished().await;
    let before = s.everything().await;
    let large = "to_jsonb(repeat('x', 1048576))";
    for (what, call) in [
        ("input", "trax.enqueue('a', {large})"),
        ("input", "trax.enqueue_many('a', array[{large}])"),
        ("input", "trax.trigger('m', {large})"),
        ("input", "trax.schedule('x', 'a', input => {large})"),
        ("trace", "trax.enqueue('a', trace => {large})"),
        ("output", "trax.complete({job}, {token}, {large})"),
        (
            "output",
            "trax.complete_many(array[{job}], array[{token}], array[{large}])",
        ),
        (
            "detail",
            "trax.fail({job}, {token}, 'no', detail => {large})",
        ),
    ] {
        let sql = format!("select {}", call.replace("{large}", large));
        let refusal = refused(&s, &sql, &before).await;
        assert_eq!(refusal.message, format!("the {what} is too large"), "{sql}");
    }
}

#[tokio::test]
async fn names_of_255_bytes_and_inputs_at_the_limit_are_accepted() {
    let (_db, s) = session().await;
    s.get("set trax.max_input_bytes = '1kB'").await;
    let name = "repeat('n', 255)";
    s.get(&format!("select trax.enqueue({name}, group_name => {name}, unique_key => {name}, concurrency_key => {name})")).await;
    s.get(&format!(
        "select trax.schedule({name}, {name}, group_name => {name})"
    ))
    .await;
    assert_eq!(
        s.claim(&format!(
            "worker => {name}, tasks => array[{name}], groups => array[{name}]"
        ))
        .await
        .len(),
        1
    );
    // A jsonb string of n bytes takes n + 8.
    s.get("select trax.enqueue('a', to_jsonb(repeat('x', 1016)))")
        .await;
    assert_eq!(
        s.refusal("select trax.enqueue('a', to_jsonb(repeat('x', 1017)))")
            .await
            .code,
        "54000"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_wrong_state_is_55000() {
    let s = furnished().await;
    s.get("select trax.acknowledge_dead_letter(id) from trax.dead_letter")
        .await;
    let before = s.everything().await;
    let refusal = refused(
        &s,
        "select trax.requeue_dead_letter(id) from trax.dead_letter",
        &before,
    )
    .await;
    assert_eq!(refusal.code, "55000", "{refusal}");
    s.get("delete from trax.instance").await;
    let before = s.everything().await;
    let refusal = refused(&s, "select trax.pause()", &before).await;
    assert_eq!(refusal.code, "55000", "{refusal}");
}

#[tokio::test]
async fn a_scheduler_that_the_settings_leave_out_is_55000() {
    assert_refused("55000", &["select trax.start_scheduler()"]).await;
}

#[tokio::test]
async fn a_role_that_is_none_is_refused_in_our_words() {
    assert_refused(
        "42704",
        &[
            "select trax.grant_access('-', 'reader')",
            "select trax.grant_access(4294967295::oid, 'reader')",
        ],
    )
    .await;
}

#[tokio::test]
async fn an_unknown_setting_is_refused() {
    let s = furnished().await;
    assert_eq!(
        s.refusal("set trax.no_such_setting = 1").await.code,
        "42602"
    );
    assert_eq!(
        s.refusal("set trax.default_lease = '0'").await.code,
        "22023"
    );
}

/// Returns a valid value for an argument.
pub(super) fn sample(argument: &str) -> &'static str {
    match argument {
        "task" | "error" | "holder" => "'a'",
        "command" => "'select 1'",
        "expression" => "'0 3 * * *'",
        "max_holders" | "allowed" | "number" => "1",
        "ttl" | "period" | "timeout" | "wait" => "'1 s'",
        "step" => "'s'",
        "mode" => "'all'",
        "until" => "now()",
        "progress" => "'0.5'",
        "inputs" => "array['1']::jsonb[]",
        "name" => "'m'",
        "group_name" => "'g'",
        "document" => "'{}'",
        "job_id" | "new_job_id" | "batch" => "{job}",
        "token" => "{token}",
        "job_ids" => "array[{job}]",
        "tokens" => "array[{token}]",
        "id" => "1",
        "role" => "'postgres'",
        "level" => "'reader'",
        other => panic!("no sample for the argument {other:?}: add one"),
    }
}

#[tokio::test]
async fn null_for_a_required_argument_is_22004_and_names_it() {
    let s = furnished().await;
    let before = s.everything().await;
    let functions = s
        .get(
            "select p.proname, array_to_string(p.proargnames[1:p.pronargs - p.pronargdefaults], ' ')
             from pg_proc p
             where p.pronamespace = 'trax'::regnamespace
                 and p.prokind = 'f'
                 and p.pronargs > p.pronargdefaults
                 and not p.proisstrict
                 and obj_description(p.oid, 'pg_proc') not like 'Internal.%'
             order by p.proname",
        )
        .await;
    let mut calls = 0;
    for line in functions.lines() {
        let (function, arguments) = line.split_once('|').expect("two columns");
        let arguments: Vec<&str> = arguments.split(' ').collect();
        for null in &arguments {
            let given: Vec<String> = arguments
                .iter()
                .map(|name| {
                    format!(
                        "{name} => {}",
                        if name == null { "null" } else { sample(name) }
                    )
                })
                .collect();
            let sql = format!("select * from trax.{function}({})", given.join(", "));
            let refusal = refused(&s, &sql, &before).await;
            assert_eq!(refusal.code, "22004", "{sql}\n  {refusal}");
            assert!(
                refusal.message.contains(&format!("\"{null}\"")),
                "{sql}\n  {refusal}"
            );
            calls += 1;
        }
    }
    assert!(calls >= 25, "{calls} calls");
}

#[tokio::test]
async fn null_for_an_optional_argument_means_its_default() {
    let (_db, s) = session().await;
    s.get(
        "select trax.enqueue('a', null, null, null, null, null, null, null, null, null);
         select * from trax.enqueue_many('a', array['{}']::jsonb[], null, null, null, null, null, null, null, null)",
    )
    .await;
    let same = "select count(distinct to_jsonb(q) - array['job_id', 'queued_at', 'run_at']) from trax.work_queue q";
    assert_eq!(s.number(same).await, 1);
    assert_eq!(
        s.claim("null, null, null, null, null").await.len(),
        1,
        "max_jobs is 1"
    );
    let job = s.claim_one("").await;
    assert_eq!(
        s.get(&format!(
            "select trax.fail({}, 'no', null, null, null)",
            job.key()
        ))
        .await,
        "retrying"
    );
}

#[tokio::test]
async fn an_error_in_a_transaction_leaves_the_session_usable() {
    let s = furnished().await;
    let before = s.everything().await;
    s.get("begin; savepoint a").await;
    s.refusal("select * from trax.claim_next(max_jobs => 0)")
        .await;
    s.get("rollback to a").await;
    assert_eq!(s.claim("max_jobs => 9").await.len(), 1);
    s.refusal("select trax.trigger('nobody')").await;
    s.get("rollback").await;
    assert_eq!(s.everything().await, before);
}
