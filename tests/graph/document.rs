//! The document of a graph: its members, and the errors for wrong ones.

use super::{complete, queued};
use harness::session::{Session, session};

async fn refused(document: &str) -> harness::session::Refusal {
    let (_db, s) = session().await;
    let before = s.everything().await;
    let refusal = s
        .refusal(&format!("select * from trax.enqueue_graph('{document}')"))
        .await;
    assert_eq!(s.everything().await, before, "{document}");
    refusal
}

#[tokio::test]
async fn circles_unknown_names_and_doubles_are_refused_with_their_place() {
    let cases = [
        (
            r#"{"jobs": [{"name": "x", "task": "t"}, {"name": "a", "task": "t", "needs": ["b"]}, {"name": "b", "task": "t", "needs": ["a", "x"]}]}"#,
            "job \"a\" would need itself",
            "The circle is a -> b -> a.",
            "Leave out one of these names in needs.",
        ),
        (
            r#"{"jobs": [{"name": "a", "task": "t", "needs": ["a"]}]}"#,
            "job \"a\" would need itself",
            "The circle is a -> a.",
            "Leave out",
        ),
        (
            r#"{"jobs": [{"name": "load", "task": "t"}, {"name": "sum", "task": "t", "needs": ["laod"]}]}"#,
            "job \"sum\": needs \"laod\", which is not in the document",
            "jobs[1].needs[0] is \"laod\".",
            "Write \"load\", or add a job with the name \"laod\".",
        ),
        (
            r#"{"jobs": [{"name": "a", "task": "t"}, {"name": "a", "task": "t"}]}"#,
            "job \"a\" appears twice in the document",
            "Both jobs[0] and jobs[1] have this name.",
            "Give each job",
        ),
        (
            r#"{"jobs": [{"name": "a", "task": "t"}, {"name": "b", "task": "t", "needs": ["a", "a"]}]}"#,
            "job \"b\": needs \"a\" twice",
            "jobs[1].needs[1] is \"a\".",
            "Leave out one of the two.",
        ),
        (
            r#"{"jobs": [{"name": "a", "task": "t", "need": ["b"]}]}"#,
            "job \"a\": the job has an unknown member \"need\"",
            "The object is",
            "Write \"needs\". The members are: name, task,",
        ),
        (
            r#"{"job": []}"#,
            "the document has an unknown member \"job\"",
            "The object is",
            "Write \"jobs\". The members are: jobs, on_failure.",
        ),
        (
            r#"{"jobs": [{"name": "a", "task": "t"}, {"name": "b", "task": "t", "needs": ["a"], "when": "complete"}]}"#,
            "job \"b\": member \"when\" does not have the value \"complete\"",
            "The values are: completed, ended, failed.",
            "Write \"completed\".",
        ),
        (
            r#"{"jobs": [{"name": "a", "task": "t"}], "on_failure": "stop"}"#,
            "member \"on_failure\" does not have the value \"stop\"",
            "The values are: cancel, wait.",
            "Specify one of: cancel, wait.",
        ),
        (
            r#"{"jobs": [{"name": "a", "task": "t", "when": "ended"}]}"#,
            "job \"a\": member \"when\" needs a list of jobs",
            "The job needs no other.",
            "Name them",
        ),
        (
            r#"{"jobs": [{"name": "a", "task": "t", "timeout": "soon"}]}"#,
            "job \"a\": member \"timeout\" must be an interval",
            "It is \"soon\".",
            "Specify an interval",
        ),
        (
            r#"{"jobs": [{"name": "a"}]}"#,
            "job \"a\": has neither a task nor a statement",
            "A job is a task",
            "Specify one",
        ),
        (
            r#"{"jobs": [{"name": "a", "task": "t", "sql": "select 1"}]}"#,
            "job \"a\": has a task and a statement",
            "A statement has no task",
            "Specify",
        ),
        (
            r#"{"jobs": [{"name": "a", "task": "t", "unique_key": "k"}]}"#,
            "job \"a\": a job of a graph has no unique_key",
            "A unique key makes the whole graph unique",
            "Give the key to the whole graph",
        ),
        (
            r#"{"jobs": [{"name": "a", "sql": "select 1", "version": "v2"}]}"#,
            "job \"a\": a statement has no version",
            "A version is one of a worker's program",
            "Leave out version",
        ),
        (
            r#"{"jobs": []}"#,
            "the document has no jobs",
            "Its list",
            "For example",
        ),
        (
            r#"[1]"#,
            "the document must be a JSON object",
            "It is [1].",
            "Its members are: jobs, on_failure.",
        ),
    ];
    for (document, message, detail, hint) in cases {
        let refusal = refused(document).await;
        assert_eq!(refusal.code, "22023", "{refusal}");
        assert!(refusal.message.starts_with(message), "{refusal}");
        assert!(refusal.detail.starts_with(detail), "{refusal}");
        assert!(refusal.hint.starts_with(hint), "{refusal}");
    }
    let nameless = refused(r#"{"jobs": [{"task": "t"}]}"#).await;
    assert_eq!(nameless.code, "22004");
    assert_eq!(nameless.message, "jobs[0] of the document has no name");
}

#[tokio::test]
async fn too_many_jobs_are_refused() {
    let (_db, s) = session().await;
    let refusal = s
        .refusal(
            "select count(*) from trax.enqueue_graph((select jsonb_build_object('jobs', jsonb_agg(jsonb_build_object('name', n::text, 'task', 't')))
             from generate_series(1, 100001) n))",
        )
        .await;
    assert_eq!(
        (refusal.code.as_str(), refusal.message.as_str()),
        ("54000", "the document has more than 100000 jobs")
    );
}

#[tokio::test]
async fn a_job_has_the_options_that_the_document_gives_it() {
    let (_db, s) = session().await;
    s.get(
        r#"select * from trax.enqueue_graph('{"jobs": [
            {"name": "a", "task": "t", "input": [1], "group_name": "g", "priority": 3, "max_retries": 2, "timeout": "90 s", "retry_delay": 5,
             "concurrency_key": "k", "trace": {"t": 1}, "version": "v", "run_at": "2100-01-01"},
            {"name": "s", "sql": "select 1", "needs": ["a"]}]}')"#,
    )
    .await;
    let options = "select input, group_name, priority, max_retries, timeout, retry_delay, concurrency_key, trace, version, waits_for, run_at = '2100-01-01 00:00 UTC'
        from trax.work_queue where task = 't'";
    assert_eq!(
        s.get(options).await,
        "[1]|g|3|2|00:01:30|00:00:05|k|{\"t\": 1}|v|time|t"
    );
    let statement = "select input ->> 'command', run_as = current_user, waits_for from trax.work_queue where task = 'sql'";
    assert_eq!(s.get(statement).await, "select 1|t|jobs");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_statement_runs_in_a_graph() {
    let database = harness::scheduler::sql_database().await;
    let s = Session::of(&database).await;
    s.get("create table sum (n int)").await;
    s.get(
        r#"select * from trax.enqueue_graph('{"jobs": [
            {"name": "a", "task": "a"}, {"name": "s", "sql": "insert into sum values (1)", "needs": ["a"]},
            {"name": "z", "task": "z", "needs": ["s"]}]}')"#,
    )
    .await;
    complete(&s, "a").await;
    s.becomes("select count(*) from sum", "1").await;
    let completed =
        "select count(trax.complete(job_id, token)) from trax.claim_next(tasks => '{z}')";
    s.becomes(completed, "1").await;
}

#[tokio::test]
async fn a_graph_with_a_live_unique_key_is_not_queued_again() {
    let (_db, s) = session().await;
    let document =
        r#"{"jobs": [{"name": "a", "task": "a"}, {"name": "b", "task": "b", "needs": ["a"]}]}"#;
    let enqueue = format!("select * from trax.enqueue_graph('{document}', unique_key => 'night')");
    let first = s.get(&enqueue).await;
    assert_eq!(s.get(&enqueue).await, first);
    complete(&s, "a").await;
    s.get("select * from trax.tick()").await;
    assert_eq!(s.get(&enqueue).await, first, "b is alive");
    complete(&s, "b").await;
    assert_ne!(s.get(&enqueue).await, first);
    assert_eq!(
        s.get("select count(*) from trax.graph where unique_key = 'night'")
            .await,
        "1"
    );
}

#[tokio::test]
async fn of_two_sessions_with_one_key_one_queues_its_graph() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    let enqueue = r#"select job_id from trax.enqueue_graph('{"jobs": [{"name": "a", "task": "a"}]}', unique_key => 'k')"#;
    s.get("begin").await;
    let first = s.get(enqueue).await;
    let pid = other.pid();
    let second = other.spawn(enqueue);
    s.sees_waiting(pid).await;
    s.get("commit").await;
    let (_, second) = second.await.expect("it ends");
    assert_eq!(second.expect("it returns the first"), first);
}

#[tokio::test]
async fn a_graph_is_rolled_back_as_a_whole() {
    let (_db, s) = session().await;
    s.get("begin").await;
    queued(&s, "a b:a", "cancel").await;
    s.get("rollback").await;
    let rows = "select (select count(*) from trax.work_queue), (select count(*) from trax.need), (select count(*) from trax.graph), (select count(*) from trax.graph_job)";
    assert_eq!(s.get(rows).await, "0|0|0|0");
}

#[tokio::test]
async fn a_limited_producer_queues_only_graphs_of_its_tasks() {
    let (db, s) = session().await;
    let role = format!("{}_limited", db.name());
    s.get(&format!(
        "create role {role} login; select trax.grant_access('{role}', 'producer', tasks => '{{a}}')"
    ))
    .await;
    let them = Session::as_role(&db, &role).await;
    queued(&them, "a", "cancel").await;
    let refusal = them
        .refusal(r#"select * from trax.enqueue_graph('{"jobs": [{"name": "a", "task": "a"}, {"name": "n", "task": "b"}]}')"#)
        .await;
    assert_eq!(refusal.code, "42501");
    assert!(
        refusal.message.starts_with("job \"n\": permission denied"),
        "{refusal}"
    );
    let batch = s.number("select trax.open_batch('b')").await;
    let refusal = them
        .refusal(&format!("select trax.enqueue('a', batch => {batch})"))
        .await;
    assert_eq!(refusal.code, "42501", "{refusal}");
}

/// History is dropped by days; the graph goes when nothing of it is left.
#[tokio::test]
async fn a_graph_stays_readable_as_long_as_its_history() {
    let (_db, s) = session().await;
    let ids = queued(&s, "a b:a", "cancel").await;
    complete(&s, "a").await;
    s.get("select * from trax.tick()").await;
    complete(&s, "b").await;
    s.get("update trax.graph set queued_at = now() - interval '100 days'")
        .await;
    let fresh = "select trax.pause('to make a minute pass'); select trax.resume()";
    s.get(fresh).await;
    let other = Session::of(&_db).await;
    other.get("select * from trax.tick()").await;
    let graph = format!("select count(*) from trax.read_graph({})", ids["a"]);
    assert_eq!(s.get(&graph).await, "2", "its runs are there");
    s.get("delete from trax.run").await;
    let another = Session::of(&_db).await;
    another.get("select * from trax.tick()").await;
    assert_eq!(s.get(&graph).await, "0");
    assert_eq!(s.get("select count(*) from trax.graph_job").await, "0");
}
