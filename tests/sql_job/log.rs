//! The server's log, and extensions that count or explain statements, include SQL jobs.

use super::{ended, queue, role};
use harness::session::Session;
use harness::{PATIENCE, eventually, has_library, shared_server};
use trax_client::testkit::{Database, Server};

/// The log lines about a table, without their durations and costs.
fn lines(server: &Server, table: &str) -> Vec<String> {
    let log = std::fs::read_to_string(server.log_file()).expect("the log is UTF-8");
    let is_about = |line: &&str| line.contains(table) && !line.contains("enqueue_sql");
    let about = log.lines().filter(is_about);
    let plain = |line: &str| {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        line.replace(table, "TABLE").replace(is_number, "")
    };
    about.map(plain).collect()
}

/// The log lines of a statement sent by a client, and those of the same statement as a SQL job.
async fn both(server: &Server, s: &Session, client: &Session, text: &str) -> [Vec<String>; 2] {
    let of = |table: &str| text.replace("TABLE", table);
    client.get(&of("by_client")).await;
    let job = queue(client, &of("by_job")).await;
    assert_eq!(ended(s, job).await, "completed", "{text}");
    let by_client = lines(server, "by_client");
    // A duration is written after the commit, which includes the end of the job.
    let seen = eventually("the lines of a job", PATIENCE, async || {
        let by_job = lines(server, "by_job");
        match by_job.len() >= by_client.len() {
            true => Ok(by_job),
            false => Err(format!("{by_job:?}")),
        }
    })
    .await;
    std::fs::write(server.log_file(), "").expect("the log can be emptied");
    [by_client, seen]
}

async fn set(database: &Database, s: &Session, role: &str, settings: &[(&str, &str)]) -> Session {
    s.get(&format!("alter role {role} reset all")).await;
    for (name, value) in settings {
        s.get(&format!("alter role {role} set {name} = '{value}'"))
            .await;
    }
    Session::as_role(database, role).await
}

#[tokio::test]
async fn the_statement_of_a_sql_job_is_seen_as_that_of_a_client() {
    let [counts, explains] =
        ["pg_stat_statements", "auto_explain"].map(|name| has_library(shared_server(), name));
    let libraries = if counts {
        "trax,pg_stat_statements"
    } else {
        "trax"
    };
    let server = harness::options()
        .fast()
        .setting("shared_preload_libraries", libraries)
        .setting("log_line_prefix", "%u@%d %b ")
        .start()
        .expect("a server starts");
    let database = server.database("app").await.expect("a database is made");
    let s = Session::of(&database).await;
    let (name, _) = role(&database, &s, "author").await;

    let ddl = [("log_statement", "ddl")];
    let changes = [("log_statement", "mod")];
    let slow = [("log_min_duration_statement", "0")];
    let both_lines = [("log_statement", "all"), ("log_duration", "on")];
    let fast = [("log_min_duration_statement", "1h")];
    let plans = [
        ("session_preload_libraries", "auto_explain"),
        ("auto_explain.log_min_duration", "0"),
    ];
    for (settings, text, count) in [
        (&ddl[..], "create table TABLE (a int)", 1),
        (&ddl, "insert into TABLE values (1)", 0),
        (&changes, "insert into TABLE values (2)", 1),
        (&changes, "select 1; delete from TABLE where a = 1", 1),
        (&changes, "select * from TABLE", 0),
        (&slow, "select 1 from TABLE; select 2 from TABLE", 1),
        (&slow, "vacuum TABLE", 1),
        (&both_lines, "vacuum analyze TABLE", 1),
        (&fast, "select * from TABLE", 0),
        (&plans, "update TABLE set a = 3", 3),
    ] {
        if text.starts_with("update") && !explains {
            continue;
        }
        let session = set(&database, &s, &name, settings).await;
        let [by_client, by_job] = both(&server, &s, &session, text).await;
        assert_eq!(by_client.len(), count, "{text}: {by_client:?}");
        let as_client = |line: &String| line.replace("trax executor", "client backend");
        let by_job: Vec<String> = by_job.iter().map(as_client).collect();
        assert_eq!(by_job, by_client, "{text}");
    }
    if !counts {
        return;
    }
    s.get("create extension pg_stat_statements").await;
    let session = set(&database, &s, &name, &[]).await;
    session.get("select count(*) + 41 from pg_class").await;
    let job = queue(&session, "select count(*) + 42 from pg_class").await;
    assert_eq!(ended(&s, job).await, "completed");
    let counted = "select calls from pg_stat_statements
        where query like 'select count(*) + $1 from pg_class' and toplevel";
    assert_eq!(s.get(counted).await, "2");
}
