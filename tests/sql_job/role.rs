//! The role of a statement's session: the recorded role, or none.

use super::{ended, failure, live, output, queue, queue_with, role};
use harness::process::{Scratch, run_quietly};
use harness::scheduler::{new_name, sql_server, violations};
use harness::session::{Session, session};
use harness::{PATIENCE, eventually, shared_server};
use trax_client::testkit::Database;

const WRONG_ROLE: &str = "is not the role for which this statement was queued";

/// Makes a disabled group with a job and a manifest of a role; returns the job.
async fn held(s: &Session, a: &Session, role: &str) -> i64 {
    s.get(&format!(
        "select trax.grant_access('{role}', 'admin'); select trax.configure_group('held', enabled => false)"
    ))
    .await;
    let job = queue_with(a, "select 1", "max_retries => 5, group_name => 'held'").await;
    a.get("select trax.schedule('beat', sql => 'select 2', group_name => 'held')")
        .await;
    job
}

async fn drop_role(s: &Session, role: &str) {
    s.get(&format!("drop owned by {role}; drop role {role}"))
        .await;
}

/// Creates a dropped role again; returns a session of the new role.
async fn create_again(database: &Database, s: &Session, role: &str) -> Session {
    s.get(&format!(
        "create role {role} login; select trax.grant_access('{role}', 'producer')"
    ))
    .await;
    Session::as_role(database, role).await
}

#[tokio::test]
async fn a_role_created_again_under_its_name_runs_no_statement_of_the_old_one() {
    let (database, s) = live().await;
    let (alice, a) = role(&database, &s, "alice").await;
    let job = held(&s, &a, &alice).await;
    drop(a);
    drop_role(&s, &alice).await;
    let a = create_again(&database, &s, &alice).await;
    s.get("select trax.configure_group('held', enabled => true)")
        .await;
    let from_manifest = s.number("select trax.trigger('beat')").await;
    for job in [job, from_manifest] {
        assert_eq!(ended(&s, job).await, "failed");
        let error = failure(&s, job).await;
        let said = error["error"].as_str().expect("an error");
        assert!(
            said.contains(WRONG_ROLE) && said.contains(&alice),
            "{error}"
        );
        assert!(
            error["hint"]
                .as_str()
                .is_some_and(|hint| hint.contains("enqueue_sql")),
            "{error}"
        );
        let attempts = format!("select count(*) from trax.run where job_id = {job}");
        assert_eq!(
            s.get(&attempts).await,
            "1",
            "another attempt would end the same"
        );
    }
    let again =
        format!("select trax.requeue_dead_letter(id) from trax.dead_letter where job_id = {job}");
    let again = s.number(&again).await;
    assert_eq!(ended(&s, again).await, "failed");
    let own = queue(&a, "select session_user").await;
    assert_eq!(ended(&s, own).await, "completed");
    // The same statement, scheduled by the new role, belongs to the new role.
    s.get(&format!(
        "select trax.schedule('beat', sql => 'select 2', run_as => '{alice}', group_name => 'held')"
    ))
    .await;
    s.get("select trax.acknowledge_dead_letter(id) from trax.dead_letter where manifest = 'beat'")
        .await;
    let own = s.number("select trax.trigger('beat')").await;
    assert_eq!(ended(&s, own).await, "completed");
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn statements_restored_on_another_server_run_as_the_role_of_that_name() {
    let (source, s) = session().await;
    let (alice, a) = role(&source, &s, "alice").await;
    let job = held(&s, &a, &alice).await;
    let files = Scratch::new("sql-job-dump");
    let path = files.path().join("dump.sql");
    let script = run_quietly(shared_server().command("pg_dump").arg(source.name()));
    std::fs::write(&path, script).expect("the dump can be written");
    let name = new_name("sql_restored");
    let target = sql_server()
        .plain_database(&name)
        .await
        .expect("a database is made");
    let t = Session::of(&target).await;
    // The role has another oid in this database's copy.
    t.get(&format!(
        "create role {alice}_before; create role {alice} login"
    ))
    .await;
    let mut psql = sql_server().command("psql");
    psql.args(["-Xq", "-v", "ON_ERROR_STOP=1", "-d", &name, "-f"])
        .arg(&path);
    run_quietly(&mut psql);
    t.get("select trax.adopt(); select trax.configure_group('held', enabled => true)")
        .await;
    assert_eq!(
        ended(&t, job).await,
        "completed",
        "{}",
        failure(&t, job).await
    );
    let from_manifest = t.number("select trax.trigger('beat')").await;
    assert_eq!(ended(&t, from_manifest).await, "completed");
}

#[tokio::test]
async fn a_dead_letter_whose_role_is_not_known_runs_as_nobody() {
    let (_database, s) = live().await;
    let job = queue(&s, "select 1 / 0").await;
    assert_eq!(ended(&s, job).await, "failed");
    s.get("delete from trax.dead_letter").await;
    eventually("the cycle writes it again", PATIENCE, async || {
        s.get("select * from trax.tick()").await;
        match s.number("select count(*) from trax.dead_letter").await {
            1 => Ok(()),
            _ => Err("none".to_owned()),
        }
    })
    .await;
    let refused = s
        .refusal("select trax.requeue_dead_letter(id) from trax.dead_letter")
        .await;
    assert_eq!(refused.code, "55000", "{refused}");
    assert!(refused.hint.contains("enqueue_sql"), "{refused}");
    assert_eq!(s.get("select trax.requeue_dead_letters()").await, "0");
    assert_eq!(s.get("select count(*) from trax.work_queue").await, "0");
    assert_eq!(
        s.get("select trax.acknowledge_dead_letter(id) from trax.dead_letter")
            .await,
        "t"
    );
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_statement_in_the_lane_of_another_role_is_found_by_check() {
    let (_database, s) = session().await;
    s.get(
        "select trax.enqueue_sql('select 1'), trax.enqueue_sql('select 2'), trax.enqueue('sql2')",
    )
    .await;
    s.assert_healthy().await;
    for wrong in [
        "trax.lane_of(group_name, task, 'nobody')",
        "trax.lane_of(group_name, task)",
    ] {
        s.get(&format!(
            "update trax.work_queue set lane_id = {wrong} where job_id = 1"
        ))
        .await;
        let found = s.get("select rule, detail from trax.check()").await;
        assert!(
            found.starts_with("a waiting job is in its lane|job 1 is in lane"),
            "{found}"
        );
    }
    s.get("update trax.work_queue set lane_id = trax.lane_of(group_name, task, run_as) where job_id = 1")
        .await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn what_was_queued_for_a_role_is_not_run_by_one_that_took_its_name() {
    let (database, s) = live().await;
    let (alice, a) = role(&database, &s, "alice").await;
    let (bob, _) = role(&database, &s, "bob").await;
    let job = held(&s, &a, &alice).await;
    drop(a);
    drop_role(&s, &alice).await;
    s.get(&format!(
        "alter role {bob} rename to {alice};
         select trax.configure_group('held', enabled => true)"
    ))
    .await;
    assert_eq!(ended(&s, job).await, "failed");
    let error = failure(&s, job).await;
    assert!(
        error["error"]
            .as_str()
            .is_some_and(|said| said.contains(WRONG_ROLE)),
        "{error}"
    );
    output(&s, "select 1").await;
}

#[tokio::test]
async fn a_manifest_runs_as_who_stored_it_the_owner_of_a_definer_or_a_role_that_one_is_a_member_of()
{
    let (database, s) = live().await;
    let (alice, a) = role(&database, &s, "alice").await;
    let (bob, b) = role(&database, &s, "bob").await;
    let (team, _) = role(&database, &s, "team").await;
    s.get(&format!(
        "select trax.grant_access('{alice}', 'admin'), trax.grant_access('{bob}', 'admin');
         grant {team} to {alice}"
    ))
    .await;
    a.get(
        "create function nightly() returns bigint language sql security definer
         as $$ select trax.schedule('definer', sql => 'select session_user') $$",
    )
    .await;
    b.get("select nightly(); select trax.schedule('own', sql => 'select session_user')")
        .await;
    a.get(&format!(
        "select trax.schedule('member', sql => 'select session_user', run_as => '{team}')"
    ))
    .await;
    for (manifest, role) in [("definer", &alice), ("own", &bob), ("member", &team)] {
        let job = s
            .number(&format!("select trax.trigger('{manifest}')"))
            .await;
        assert_eq!(ended(&s, job).await, "completed", "{manifest}");
        let ran = format!("select output #>> '{{result,0,0}}' from trax.run where job_id = {job}");
        assert_eq!(&s.get(&ran).await, role, "{manifest}");
    }
    let refused = b
        .refusal(&format!(
            "select trax.schedule('member', sql => 'select 1', run_as => '{team}')"
        ))
        .await;
    assert_eq!(refused.code, "42501", "{refused}");
    // A right that the role has lost makes the statement fail when it runs.
    s.get(&format!(
        "create table secret (a int); grant select on secret to {bob}"
    ))
    .await;
    b.get("select trax.schedule('own', sql => 'select count(*) from secret', max_retries => 0)")
        .await;
    s.get(&format!("revoke select on secret from {bob}")).await;
    let job = s.number("select trax.trigger('own')").await;
    assert_eq!(ended(&s, job).await, "failed");
    assert_eq!(failure(&s, job).await["sqlstate"], "42501");
}

#[tokio::test]
async fn a_statement_queued_as_another_role_stays_that_roles() {
    let (database, s) = live().await;
    let (alice, a) = role(&database, &s, "alice").await;
    let (bob, _b) = role(&database, &s, "bob").await;
    s.get(&format!("grant {bob} to {alice}")).await;
    let options = format!("run_as => '{bob}', run_at => now() + interval '1 h'");
    let job = queue_with(&a, "select current_user, session_user", &options).await;
    s.get(&format!("revoke {bob} from {alice}")).await;
    let refusal = a
        .refusal(&format!("select trax.enqueue_sql('select 1', {options})"))
        .await;
    assert_eq!(refusal.code, "42501", "{refusal}");
    s.get(&format!("select trax.run_now({job})")).await;
    assert_eq!(ended(&s, job).await, "completed");
    let ran_as = format!("select output #>> '{{result,0,0}}' from trax.run where job_id = {job}");
    assert_eq!(s.get(&ran_as).await, bob);
}

#[tokio::test]
async fn the_statements_of_a_role_that_is_renamed_go_on() {
    let (database, s) = live().await;
    let (alice, a) = role(&database, &s, "alice").await;
    let (bob, _) = role(&database, &s, "bob").await;
    let job = held(&s, &a, &alice).await;
    s.get(&format!(
        "select trax.schedule('failing', sql => 'select 1 / 0', run_as => '{alice}', max_retries => 0)"
    ))
    .await;
    let failing = s.number("select trax.trigger('failing')").await;
    assert_eq!(ended(&s, failing).await, "failed");
    // A manually changed oid names no role, and blocks no other statement.
    s.get(
        "select trax.schedule('odd', sql => 'select 1');
         update trax.manifest set input = input || '{\"role_oid\": \"x\"}' where name = 'odd'",
    )
    .await;
    // Another role takes the name at once.
    s.get(&format!(
        "alter role {alice} rename to {alice}_2; alter role {bob} rename to {alice};
         select trax.configure_group('held', enabled => true)"
    ))
    .await;
    assert_eq!(
        ended(&s, job).await,
        "completed",
        "{}",
        failure(&s, job).await
    );
    let triggered = s.number("select trax.trigger('beat')").await;
    assert_eq!(ended(&s, triggered).await, "completed");
    for table in ["manifest", "dead_letter"] {
        let named = format!(
            "select distinct run_as, input ->> 'run_as' from trax.{table} where run_as <> 'postgres'"
        );
        assert_eq!(
            s.get(&named).await,
            format!("{alice}_2|{alice}_2"),
            "{table}"
        );
    }
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

/// A statement queued under the old name, in a transaction that ends after the rename.
#[tokio::test]
async fn a_statement_that_commits_after_its_role_was_renamed_runs() {
    let (database, s) = live().await;
    let (alice, _) = role(&database, &s, "alice").await;
    let late = Session::of(&database).await;
    late.get("begin").await;
    let job = late
        .number(&format!(
            "select trax.enqueue_sql('select session_user', run_as => '{alice}')"
        ))
        .await;
    s.get(&format!("alter role {alice} rename to {alice}_2"))
        .await;
    // The scheduler has seen the rename when it starts this job.
    let seen = queue(&s, "select 1").await;
    assert_eq!(ended(&s, seen).await, "completed");
    late.get("commit").await;
    assert_eq!(
        ended(&s, job).await,
        "completed",
        "{}",
        failure(&s, job).await
    );
    let ran_as = format!("select output #>> '{{result,0,0}}' from trax.run where job_id = {job}");
    assert_eq!(s.get(&ran_as).await, format!("{alice}_2"));
}

#[tokio::test]
async fn a_role_that_has_no_session_here_is_refused_when_a_statement_is_stored() {
    let (database, s) = live().await;
    let (alice, _) = role(&database, &s, "alice").await;
    for (change, back) in [
        ("nologin", "login"),
        ("connection limit 0", "connection limit -1"),
    ] {
        s.get(&format!("alter role {alice} {change}")).await;
        for call in [
            format!("trax.enqueue_sql('select 1', run_as => '{alice}')"),
            format!("trax.schedule('m', sql => 'select 1', run_as => '{alice}')"),
            format!(
                "trax.apply('{{\"manifests\": [{{\"name\": \"m\", \"sql\": \"select 1\", \"run_as\": \"{alice}\"}}]}}')"
            ),
        ] {
            let refused = s.refusal(&format!("select {call}")).await;
            assert_eq!(refused.code, "55000", "{call}: {refused}");
            let words = format!("role \"{alice}\" may not log in, or not connect to this database");
            assert!(refused.message.ends_with(&words), "{call}: {refused}");
        }
        s.get(&format!("alter role {alice} {back}")).await;
    }
    s.get(&format!(
        "revoke connect on database {} from public",
        database.name()
    ))
    .await;
    let call = format!("select trax.enqueue_sql('select 1', run_as => '{alice}')");
    assert_eq!(s.refusal(&call).await.code, "55000");
    assert_eq!(s.get("select count(*) from trax.manifest").await, "0");
}

#[tokio::test]
async fn a_role_whose_session_cannot_start_has_its_attempts_fail_with_words() {
    let (database, s) = live().await;
    let (alice, _) = role(&database, &s, "alice").await;
    s.get(&format!(
        "alter role {alice} set session_preload_libraries = 'no_such_library'"
    ))
    .await;
    let options = format!("run_as => '{alice}', max_retries => 1, retry_delay => '1 s'");
    let job = queue_with(&s, "select 1", &options).await;
    assert_eq!(ended(&s, job).await, "failed");
    let error = failure(&s, job).await;
    let words = format!(
        "the session of role \"{alice}\" cannot start: could not access file \"no_such_library\""
    );
    assert!(
        error["error"]
            .as_str()
            .is_some_and(|said| said.starts_with(&words)),
        "{error}"
    );
    let runs = format!("select count(*) from trax.run where job_id = {job}");
    assert_eq!(s.get(&runs).await, "2");
    // The job is retried, and completes once the cause is removed.
    let job = queue_with(&s, "select 1", &options.replace("1,", "30,")).await;
    s.get(&format!(
        "alter role {alice} reset session_preload_libraries"
    ))
    .await;
    assert_eq!(ended(&s, job).await, "completed");
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn while_the_server_has_no_connection_for_a_role_its_statements_wait() {
    let (database, s) = live().await;
    let (alice, a) = role(&database, &s, "alice").await;
    let other = Session::as_role(&database, &alice).await;
    s.get(&format!("alter role {alice} connection limit 1"))
        .await;
    let options = format!("run_as => '{alice}', max_retries => 0");
    let job = queue_with(&s, "select 1", &options).await;
    let log = harness::scheduler::sql_server().log_file();
    eventually(
        "a session is refused, where it counts",
        PATIENCE,
        async || {
            let state = format!("select state from trax.job where job_id = {job}");
            if s.get(&state).await == "completed" {
                return Ok(());
            }
            let log = std::fs::read_to_string(&log).expect("the log can be read");
            let words = format!("too many connections for role \"{alice}\"");
            if log.contains(&words) {
                Ok(())
            } else {
                Err("none".to_owned())
            }
        },
    )
    .await;
    drop((a, other));
    assert_eq!(ended(&s, job).await, "completed");
}

#[tokio::test]
async fn an_attempt_that_could_not_begin_ends_after_its_start() {
    let (database, s) = live().await;
    let (alice, _) = role(&database, &s, "alice").await;
    let options = format!("run_as => '{alice}', max_retries => 0, group_name => 'held'");
    s.get("select trax.configure_group('held', enabled => false)")
        .await;
    for _ in 0..20 {
        queue_with(&s, "select 1", &options).await;
    }
    s.get(&format!(
        "alter role {alice} nologin; select trax.configure_group('held', enabled => true)"
    ))
    .await;
    eventually("all have failed", PATIENCE, async || {
        match s
            .number("select count(*) from trax.run where state = 'failed'")
            .await
        {
            20 => Ok(()),
            runs => Err(format!("{runs} runs")),
        }
    })
    .await;
    for nothing in [
        "trax.run where finished_at < started_at",
        "trax.worker where name = 'trax scheduler'",
    ] {
        let count = format!("select count(*) from {nothing}");
        assert_eq!(s.get(&count).await, "0", "{nothing}");
    }
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}
