//! Manifests whose work is a statement.

use super::{live, role};
use harness::scheduler::violations;
use harness::session::{Session, session};
use harness::{PATIENCE, eventually};

/// Waits until a manifest has run to its end; returns the job of the last run.
async fn ran(s: &Session, manifest: &str) -> i64 {
    eventually(&format!("a run of {manifest}"), PATIENCE, async || {
        let sql = format!(
            "select coalesce(max(job_id), 0) from trax.run where manifest = '{manifest}' and final"
        );
        match s.number(&sql).await {
            0 => Err("none".to_owned()),
            job => Ok(job),
        }
    })
    .await
}

#[tokio::test]
async fn statements_and_tasks_of_workers_are_one_graph() {
    let (_database, s) = live().await;
    s.get(
        "create table t (a text);
         select trax.schedule('first', sql => 'insert into t values (''first'')');
         select trax.schedule('second', 'by.worker', depends_on => '{first}');
         select trax.schedule('third', sql => 'insert into t values (''third'')', depends_on => '{second}');
         select trax.trigger('first')",
    )
    .await;
    let job = eventually("the job of the worker", PATIENCE, async || {
        let claimed = s.claim("").await;
        claimed.into_iter().next().ok_or("none".to_owned())
    })
    .await;
    assert_eq!(s.get("select string_agg(a, ',') from t").await, "first");
    s.get(&format!("select trax.complete({})", job.key())).await;
    ran(&s, "third").await;
    assert_eq!(
        s.get("select string_agg(a, ',') from t").await,
        "first,third"
    );
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

/// Checks that a change of a statement is refused; returns the hint.
async fn is_refused(s: &Session, change: &str) -> String {
    let refused = s.refusal(change).await;
    assert_eq!(refused.code, "42501", "{change}: {refused}");
    assert!(!refused.hint.is_empty(), "{change}: {refused}");
    refused.hint
}

#[tokio::test]
async fn a_schedule_runs_its_statement_as_whoever_gave_it_and_whoever_changes_the_rest() {
    let (database, s) = live().await;
    let (alice, a) = role(&database, &s, "alice").await;
    let (bob, b) = role(&database, &s, "bob").await;
    s.get(&format!(
        "select trax.grant_access('{alice}', 'admin'), trax.grant_access('{bob}', 'admin')"
    ))
    .await;
    a.get("select trax.schedule('beat', sql => 'select session_user', every => '1 h')")
        .await;
    let job = ran(&s, "beat").await;
    let who = format!(
        "select input ->> 'run_as', output -> 'result' -> 0 ->> 0 from trax.run where job_id = {job}"
    );
    assert_eq!(s.get(&who).await, format!("{alice}|{alice}"));
    let stored = "select run_as, input ->> 'command', every from trax.manifest where name = 'beat'";
    // Another interval, set in a call and in a document by roles that may change manifests.
    for (every, other) in [("02:00:00", &s), ("03:00:00", &b)] {
        other
            .get(&format!(
                "select trax.schedule('beat', sql => 'select session_user', every => '{every}')"
            ))
            .await;
        assert_eq!(
            s.get(stored).await,
            format!("{alice}|select session_user|{every}")
        );
    }
    s.get(
        "select * from trax.apply('{\"manifests\": [{\"name\": \"beat\", \"sql\": \"select session_user\", \"every\": \"4 h\"}]}')",
    )
    .await;
    assert_eq!(
        s.get(stored).await,
        format!("{alice}|select session_user|04:00:00")
    );
    // Another statement or role, set by other roles, including the superuser unless `run_as` is
    // given.
    let other = "select trax.schedule('beat', sql => 'select 1'";
    is_refused(&s, &format!("{other})")).await;
    is_refused(&b, &format!("{other})")).await;
    is_refused(&b, &format!("{other}, run_as => '{bob}')")).await;
    is_refused(&b, &format!("{other}, run_as => '{alice}')")).await;
    is_refused(
        &b,
        &format!("select trax.schedule('beat', sql => 'select session_user', run_as => '{bob}')"),
    )
    .await;
    is_refused(
        &s,
        "select * from trax.apply('{\"manifests\": [{\"name\": \"beat\", \"sql\": \"select 1\"}]}')",
    )
    .await;
    s.get(&format!("{other}, run_as => '{alice}')")).await;
    assert_eq!(s.get(stored).await, format!("{alice}|select 1|04:00:00"));
    a.get("select trax.schedule('beat', sql => 'select 2')")
        .await;
    s.get("select trax.schedule('beat', sql => 'select 2', run_as => 'postgres')")
        .await;
    // The reverse case.
    is_refused(&a, &format!("{other})")).await;
    is_refused(
        &a,
        "select trax.schedule('beat', sql => 'select 1', run_as => 'postgres')",
    )
    .await;
    a.get("select trax.schedule('beat', sql => 'select 2', every => '5 h')")
        .await;
    assert_eq!(s.get(stored).await, "postgres|select 2|05:00:00");
    a.get(
        "select * from trax.apply('{\"manifests\": [{\"name\": \"doc\", \"sql\": \"vacuum\", \"cron\": \"0 3 * * *\"}]}')",
    )
    .await;
    let row = "select task, run_as, input ->> 'command' from trax.manifest where name = 'doc'";
    assert_eq!(s.get(row).await, format!("sql|{alice}|vacuum"));
}

/// Each call on a schedule with a statement of `author`, and the roles that may make it.
const MAY_CHANGE: [(&str, &str); 10] = [
    (
        "schedule('beat', sql => 'select 1', every => '2 h')",
        "author admin superuser",
    ),
    ("schedule('beat', sql => 'select 2')", "author"),
    (
        "schedule('beat', sql => 'select 2', run_as => 'AUTHOR')",
        "author superuser",
    ),
    (
        "schedule('beat', sql => 'select 1', run_as => session_user)",
        "author superuser",
    ),
    // This removes the statement, as unschedule does.
    (
        "schedule('beat', 'task', every => '2 h')",
        "author admin superuser",
    ),
    ("disable_manifest('beat')", "author admin superuser"),
    ("enable_manifest('beat')", "author admin superuser"),
    ("trigger('beat')", "author admin superuser producer"),
    ("unschedule('beat')", "author admin superuser"),
    ("preview('beat')", "author admin superuser reader"),
];

#[tokio::test]
async fn who_may_change_a_schedule_with_a_statement_is_a_row_for_each_act() {
    let (database, s) = live().await;
    let mut sessions = Vec::new();
    for level in ["author", "admin", "reader", "producer", "worker"] {
        let (name, session) = role(&database, &s, level).await;
        let level_of = if level == "author" { "admin" } else { level };
        s.get(&format!(
            "select trax.revoke_access('{name}'); select trax.grant_access('{name}', '{level_of}')"
        ))
        .await;
        sessions.push((level, session));
    }
    let author = format!("{}_author", database.name());
    sessions[0]
        .1
        .get("select trax.schedule('beat', sql => 'select 1', every => '1 h')")
        .await;
    sessions.push(("superuser", Session::of(&database).await));
    for (act, who) in MAY_CHANGE {
        let act = format!(
            "select count(*) from trax.{}",
            act.replace("AUTHOR", &author)
        );
        for (level, session) in &sessions {
            session.get("begin").await;
            let seen = session.attempt(&act).await;
            session.get("rollback").await;
            let is_allowed = who.split(' ').any(|one| one == *level);
            match seen {
                Ok(_) => assert!(is_allowed, "{level} may: {act}"),
                Err(refused) => {
                    assert!(!is_allowed, "{level} may not: {act}: {refused}");
                    assert_eq!(refused.code, "42501", "{level}: {act}: {refused}");
                }
            }
        }
    }
}

#[tokio::test]
async fn the_line_to_type_for_a_statement_quotes_the_name_of_its_role() {
    let (_database, s) = session().await;
    s.get(
        "create role \"o'b\"\"x\" login;
         select trax.schedule('odd', sql => 'select 1', run_as => 'o''b\"x')",
    )
    .await;
    let hint = is_refused(&s, "select trax.schedule('odd', sql => 'select 2')").await;
    assert_eq!(
        hint,
        "Type first: set role \"o'b\"\"x\"; or, as a member of that role, specify: run_as => 'o''b\"x'"
    );
    s.get("select trax.unschedule('odd'); drop role \"o'b\"\"x\"")
        .await;
}

#[tokio::test]
async fn no_input_of_anybodys_becomes_a_statement() {
    let (_database, s) = session().await;
    s.get("select trax.schedule('a', sql => 'select 1'); select trax.schedule('p', 'parent')")
        .await;
    for (sql, code) in [
        (
            "select trax.trigger('a', '{\"command\": \"select 2\"}')",
            "22023",
        ),
        (
            "select trax.activate('a', '{\"command\": \"select 2\"}')",
            "22023",
        ),
        (
            "select trax.schedule('a', 'sql', '{\"command\": \"select 2\"}')",
            "22023",
        ),
        (
            "select trax.schedule('a', sql => 'select 1', input => '{\"command\": \"select 2\"}')",
            "22023",
        ),
        (
            "select trax.schedule('a', 'task', sql => 'select 1')",
            "22023",
        ),
        (
            "select trax.schedule('a', 'task', run_as => 'postgres')",
            "22023",
        ),
        ("select trax.schedule('a', sql => 'begin')", "0A000"),
        (
            "select trax.schedule('a', input => '{\"command\": \"select 2\"}')",
            "22023",
        ),
    ] {
        let refused = s.refusal(sql).await;
        assert_eq!(refused.code, code, "{sql}: {refused}");
    }
    s.get("select trax.trigger('a')").await;
    assert_eq!(
        s.get("select input ->> 'command', run_as = session_user from trax.work_queue")
            .await,
        "select 1|t"
    );
    s.assert_healthy().await;
}
