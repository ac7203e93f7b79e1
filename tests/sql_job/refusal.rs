//! Statements that cannot be SQL jobs, and roles that cannot queue them.

use super::{ended, failed, failure, live, output, queue, queue_with, role};
use harness::session::session;

#[tokio::test]
async fn what_cannot_be_a_job_is_refused_with_words_when_it_is_queued() {
    let (_database, s) = session().await;
    for (command, code) in [
        ("begin", "0A000"),
        ("select 1; commit", "0A000"),
        ("savepoint a", "0A000"),
        ("prepare transaction 'x'", "0A000"),
        ("copy pg_class to stdout", "0A000"),
        ("copy pg_class from stdin", "0A000"),
        ("", "22023"),
        ("-- nothing", "22023"),
        ("selct 1", "42601"),
    ] {
        let refused = s
            .refusal(&format!("select trax.enqueue_sql($sql${command}$sql$)"))
            .await;
        assert_eq!(refused.code, code, "{command}: {refused}");
    }
    let refused = s.refusal("select trax.enqueue_sql(null)").await;
    assert_eq!(refused.code, "22004", "{refused}");
}

#[tokio::test]
async fn the_task_of_sql_jobs_is_nobody_elses() {
    let (_database, s) = session().await;
    for sql in [
        "select trax.enqueue('sql', '{\"command\": \"select 1\"}')",
        "select * from trax.enqueue_many('sql', array['{}'::jsonb])",
        "insert into trax.new_job (task) values ('sql')",
        "select trax.schedule('a', 'sql', every => '1 h')",
        "select * from trax.apply('{\"manifests\": [{\"name\": \"a\", \"task\": \"sql\", \"every\": \"1 h\"}]}')",
    ] {
        let refused = s.refusal(sql).await;
        assert_eq!(refused.code, "22023", "{sql}: {refused}");
        assert!(
            refused.to_string().contains("enqueue_sql"),
            "{sql}: {refused}"
        );
    }
    // Workers never receive one either, whichever tasks they claim.
    s.get("select trax.enqueue_sql('select 1')").await;
    assert_eq!(s.get("select count(*) from trax.claim_next()").await, "0");
    assert_eq!(
        s.get("select count(*) from trax.claim_next(tasks => '{sql}')")
            .await,
        "0"
    );
    assert_eq!(
        s.get("select count(*) from trax.waiting_tasks()").await,
        "0"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn nobody_runs_a_statement_as_a_role_that_he_is_not_a_member_of() {
    let (database, s) = live().await;
    let (alice, a) = role(&database, &s, "alice").await;
    let (bob, _) = role(&database, &s, "bob").await;
    let as_bob = format!("select trax.enqueue_sql('select session_user', run_as => '{bob}')");
    let refused = a.refusal(&as_bob).await;
    assert_eq!(refused.code, "42501", "{refused}");
    let refused = a
        .refusal("select trax.enqueue_sql('select 1', run_as => 'nobody_at_all')")
        .await;
    assert_eq!(refused.code, "42704", "{refused}");
    s.get(&format!("grant {bob} to {alice}")).await;
    let job: i64 = a.get(&as_bob).await.parse().expect("a job");
    assert_eq!(ended(&s, job).await, "completed");
    let who = format!("select output -> 'result' -> 0 ->> 0 from trax.run where job_id = {job}");
    assert_eq!(s.get(&who).await, bob);
}

#[tokio::test]
async fn a_function_with_security_definer_queues_as_its_owner() {
    let (database, s) = live().await;
    let (alice, a) = role(&database, &s, "alice").await;
    let (bob, b) = role(&database, &s, "bob").await;
    a.get(
        "create function public.nightly() returns bigint language sql security definer
           as $$ select trax.enqueue_sql('select session_user') $$",
    )
    .await;
    s.get(&format!(
        "revoke all on all functions in schema trax from {bob}"
    ))
    .await;
    let job: i64 = b
        .get("select public.nightly()")
        .await
        .parse()
        .expect("a job");
    assert_eq!(ended(&s, job).await, "completed");
    let who = format!("select output -> 'result' -> 0 ->> 0 from trax.run where job_id = {job}");
    assert_eq!(s.get(&who).await, alice);
}

#[tokio::test]
async fn a_statement_has_the_rights_that_its_role_has_when_it_runs() {
    let (database, s) = live().await;
    let (alice, a) = role(&database, &s, "alice").await;
    s.get(&format!(
        "create table secret (a int); grant select on secret to {alice}"
    ))
    .await;
    let later = "max_retries => 0, run_at => now() + interval '300 ms'";
    let job = queue_with(&a, "select * from secret", later).await;
    s.get(&format!("revoke select on secret from {alice}"))
        .await;
    assert_eq!(ended(&s, job).await, "failed");
    let error = failure(&s, job).await;
    assert_eq!(error["sqlstate"], "42501", "{error}");
    // A job may neither read nor change its own row.
    let error = async |command: &str| {
        let job = queue(&a, command).await;
        assert_eq!(ended(&s, job).await, "failed", "{command}");
        failure(&s, job).await
    };
    for command in [
        "delete from trax.lease",
        "select token from trax.lease",
        "select trax.pause()",
    ] {
        assert_eq!(error(command).await["sqlstate"], "42501", "{command}");
    }
}

#[tokio::test]
async fn no_statement_becomes_another_role() {
    let (database, s) = live().await;
    let (_, a) = role(&database, &s, "alice").await;
    for command in [
        "set session authorization postgres",
        "set role postgres",
        "do $$ begin execute 'reset session authorization'; execute 'set role postgres'; end $$",
    ] {
        let job = queue(&a, command).await;
        assert_eq!(ended(&s, job).await, "failed", "{command}");
        assert_eq!(failure(&s, job).await["sqlstate"], "42501", "{command}");
    }
    let job = queue(
        &a,
        "reset session authorization; select current_setting('is_superuser')",
    )
    .await;
    assert_eq!(ended(&s, job).await, "completed");
    let is = format!("select output -> 'result' -> 0 ->> 0 from trax.run where job_id = {job}");
    assert_eq!(s.get(&is).await, "off");
}

#[tokio::test]
async fn a_role_that_is_gone_or_may_not_log_in_fails_the_attempt_with_words() {
    let (database, s) = live().await;
    let (alice, a) = role(&database, &s, "alice").await;
    let later = "max_retries => 0, run_at => now() + interval '300 ms'";
    let first = queue_with(&a, "select 1", later).await;
    s.get(&format!("alter role {alice} nologin")).await;
    assert_eq!(ended(&s, first).await, "failed");
    let error = failure(&s, first).await;
    assert_eq!(
        error["error"],
        format!("role \"{alice}\" may not log in, or not connect to this database")
    );
    s.get(&format!("alter role {alice} login")).await;
    let second = queue_with(&a, "select 1", later).await;
    drop(a);
    s.get(&format!("drop owned by {alice}; drop role {alice}"))
        .await;
    assert_eq!(ended(&s, second).await, "failed");
    let error = failure(&s, second).await;
    assert_eq!(error["error"], format!("role \"{alice}\" does not exist"));
    assert_eq!(
        failed(&s, "select 1 / 0").await["sqlstate"],
        "22012",
        "others go on"
    );
    output(&s, "select 1").await;
}
