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

#[tokio::test]
async fn a_schedule_runs_its_statement_as_whoever_gave_it() {
    let (database, s) = live().await;
    let (alice, a) = role(&database, &s, "alice").await;
    s.get(&format!("select trax.grant_access('{alice}', 'admin')"))
        .await;
    a.get("select trax.schedule('beat', sql => 'select session_user', every => '1 h')")
        .await;
    let job = ran(&s, "beat").await;
    let who = format!(
        "select input ->> 'run_as', output -> 'result' -> 0 ->> 0 from trax.run where job_id = {job}"
    );
    assert_eq!(s.get(&who).await, format!("{alice}|{alice}"));
    // Whoever gives it another statement gives his own rights with it.
    s.get("select trax.schedule('beat', sql => 'select session_user')")
        .await;
    assert_eq!(
        s.get("select run_as = session_user from trax.manifest")
            .await,
        "t"
    );
    let refused = a
        .refusal("select trax.schedule('beat', sql => 'select 1', run_as => 'postgres')")
        .await;
    assert_eq!(refused.code, "42501", "{refused}");
    a.get(
        "select * from trax.apply('{\"manifests\": [{\"name\": \"doc\", \"sql\": \"vacuum\", \"cron\": \"0 3 * * *\"}]}')",
    )
    .await;
    let row = "select task, run_as, input ->> 'command' from trax.manifest where name = 'doc'";
    assert_eq!(s.get(row).await, format!("sql|{alice}|vacuum"));
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
        ("select trax.schedule('a')", "22004"),
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
