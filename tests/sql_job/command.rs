//! SQL jobs from the command line and from Rust.

use super::{ended, live};
use harness::process::{Scratch, run, run_quietly, trax_binary};
use harness::scheduler::sql_server;
use harness::session::Session;
use serde_json::Value;
use std::process::Command;
use trax_client::testkit::Database;
use trax_client::{Client, JobOptions, Manifest, SqlJob};

/// Runs the command on a database; returns its exit code and its output.
fn trax(database: &Database, arguments: &[&str]) -> (Option<i32>, String, String) {
    let server = sql_server();
    let address = format!(
        "host={} port={} user=postgres dbname={}",
        server.socket_dir().display(),
        server.port(),
        database.name()
    );
    run(Command::new(trax_binary())
        .args(["--database-url", &address])
        .args(arguments))
}

fn said(database: &Database, arguments: &[&str]) -> String {
    let (code, output, errors) = trax(database, arguments);
    assert_eq!(code, Some(0), "{arguments:?} printed {output}{errors}");
    output
}

async fn run_one(database: &Database, s: &Session, arguments: &[&str]) -> String {
    let job = said(database, arguments);
    assert_eq!(
        ended(s, job.trim().parse().expect("an id")).await,
        "completed"
    );
    said(database, &["jobs", "show", job.trim()])
}

#[tokio::test]
async fn a_statement_from_the_command_line_is_shown_with_its_rows() {
    let (database, s) = live().await;
    let shown = run_one(
        &database,
        &s,
        &[
            "enqueue",
            "--sql",
            "select 7 as n, 'ada' as name",
            "--priority",
            "3",
        ],
    )
    .await;
    for line in [
        "select 7 as n, 'ada' as name",
        " n | name",
        "---+------",
        " 7 | ada",
        "(1 row)",
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
    let shown = run_one(&database, &s, &["enqueue", "--sql", "vacuum"]).await;
    assert!(
        shown.contains("VACUUM") && shown.contains("outside a transaction"),
        "{shown}"
    );
}

#[tokio::test]
async fn rows_are_printed_as_psql_prints_them() {
    let (database, s) = live().await;
    for statement in [
        "select 7 as n, 'ada' as name, 'NaN'::float8 as broken, 1.50 as price, true as done, null as nothing,
            date '2030-01-02' as day, array[1, 2] as \"a wide header\", 12::oid as id",
        "select * from (values (1, E'one\\ntwo\\n', 'x'), (22, 'Zoë 日本', null), (-3, '', E'\\ny')) v (a, b, c)",
        "select '{\"b\": [1, 2.50], \"a\": null}'::jsonb, '\"text\"'::jsonb, '{\"b\":1}'::json, '\\xdead'::bytea",
        "select g as \"number\" from generate_series(1, 3) g where false",
        "create table t (a int); insert into t values (1), (2) returning a",
    ] {
        let shown = run_one(&database, &s, &["enqueue", "--sql", statement]).await;
        s.get("drop table if exists t").await;
        let mut psql = sql_server().command("psql");
        psql.args(["-X", "-d", database.name(), "-c", statement]);
        let printed = run_quietly(&mut psql);
        s.get("drop table if exists t").await;
        let lines = printed.lines().filter(|line| !["", "CREATE TABLE"].contains(line));
        let lines: Vec<String> = lines.map(|line| format!("  {}", line.trim_end())).collect();
        let table = lines.join("\n");
        assert!(shown.contains(table.trim_end()), "psql: {table}\n\ntrax: {shown}");
    }
}

#[tokio::test]
async fn a_wrong_call_says_what_to_type_and_queues_nothing() {
    let (database, s) = live().await;
    for (arguments, words) in [
        (&["enqueue", "t", "--sql", "vacuum"][..], "--sql"),
        (&["enqueue", "--sql", "vacuum", "--stream"], "--stream"),
        (&["enqueue", "t", "--run-as", "postgres"], "--sql"),
        (&["enqueue"], "TASK"),
        (
            &["enqueue", "--sql", "begin"],
            "cannot begin or end a transaction",
        ),
        (
            &["enqueue", "--sql", "vacuum", "--run-as", "nobody-here"],
            "does not exist",
        ),
    ] {
        let (code, output, errors) = trax(&database, arguments);
        assert!(
            code != Some(0) && errors.contains(words),
            "{arguments:?}: {output}{errors}"
        );
    }
    assert_eq!(s.get("select count(*) from trax.job").await, "0");
}

#[tokio::test]
async fn a_file_with_a_statement_is_applied_shown_and_exported_as_it_is() {
    let (database, s) = live().await;
    let files = Scratch::new("sql-manifest");
    let path = files.path().join("jobs.toml");
    let text =
        "[[manifests]]\nname = \"nightly\"\ncron = \"0 3 * * *\"\nsql = \"\"\"\nvacuum\n\"\"\"\n";
    std::fs::write(&path, text).expect("a file can be written");
    let path = path.display().to_string();
    said(&database, &["manifest", "apply", &path, "--yes"]);
    let shown = said(&database, &["manifest", "show", "nightly"]);
    assert!(
        shown.contains("vacuum") && shown.contains("postgres"),
        "{shown}"
    );

    let exported = said(&database, &["manifest", "export", "nightly"]);
    assert!(exported.contains("sql = \"vacuum\\n\""), "{exported}");
    assert!(
        !exported.contains("task") && !exported.contains("input"),
        "{exported}"
    );
    std::fs::write(&path, &exported).expect("a file can be written");
    let before = s
        .get("select to_jsonb(m) - 'updated_at' from trax.manifest m")
        .await;
    said(&database, &["manifest", "apply", &path, "--yes"]);
    let after = s
        .get("select to_jsonb(m) - 'updated_at' from trax.manifest m")
        .await;
    assert_eq!(before, after, "applying what was exported changes nothing");
}

#[tokio::test]
async fn rust_queues_and_schedules_statements() {
    let (database, _s) = live().await;
    let db = database.connect().await.expect("a connection");
    let client = Client::new(&db);
    let options = JobOptions::new().group("reports").priority(2);
    let job = SqlJob::new("select 1").run_as("postgres").with(options);
    let queued = client.enqueue_sql(&job).await.expect("it is queued");

    let manifest = Manifest::sql("by hand", "select 2").run_as("postgres");
    assert_eq!(manifest.task(), "sql");
    client.schedule(&manifest).await.expect("it is stored");
    let triggered = client.trigger("by hand", None).await;
    for job in [queued, triggered.expect("it is queued")] {
        let ended = client.await_job::<Value>(job, harness::PATIENCE).await;
        let output = ended.expect("it ends").completed().expect("it completes");
        assert_eq!(output["command"], "SELECT 1", "{output}");
    }
}
