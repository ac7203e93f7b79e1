//! The `trax` binary: its output, its exit codes, and any program as a worker.

mod audit;
mod cancel;
mod change;
mod contract;
mod credentials;
mod cron;
mod cron_job;
mod dead;
mod doctor;
mod duration;
mod enqueue;
mod exec;
mod exec_end;
mod exec_output;
mod exec_program;
mod export;
mod fleet;
mod group;
mod health;
mod help;
mod hint;
mod hostile;
mod import;
mod import_again;
mod jobs;
mod lock_wait;
mod manifest;
mod metrics;
mod pg_cron;
mod producer;
mod rate;
mod shards;
mod similar;
mod step;
mod table;
mod tokens;
mod top;
mod waits;

use harness::process::{Process, run, trax_binary};
use harness::scheduler::{connect, execute, live_database, live_server, status_becomes, value};
use harness::{PATIENCE, database, shared_server};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};
use tokio_postgres::Client;
use trax_client::testkit::{Database, Server};

/// The binary without database variables in its environment.
fn bare() -> Command {
    let mut command = Command::new(trax_binary());
    for name in [
        "DATABASE_URL",
        "PGHOST",
        "PGPORT",
        "PGUSER",
        "PGDATABASE",
        "PGPASSWORD",
        "PGAPPNAME",
    ] {
        command.env_remove(name);
    }
    command
}

fn on(server: &Server, database: &Database) -> Command {
    let mut command = bare();
    command.arg("--database-url").arg(format!(
        "host={} port={} user=postgres dbname={}",
        server.socket_dir().display(),
        server.port(),
        database.name()
    ));
    command
}

/// The binary on a database of the shared server.
fn trax(database: &Database, arguments: &[&str]) -> Command {
    let mut command = on(shared_server(), database);
    command.args(arguments);
    command
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Runs a command that must succeed; returns its standard output.
fn said(database: &Database, arguments: &[&str]) -> String {
    let (code, output, errors) = run(&mut trax(database, arguments));
    assert_eq!(code, Some(0), "{arguments:?} printed {output}{errors}");
    output
}

/// Runs a command that must succeed with --json; returns the printed objects.
fn objects(database: &Database, arguments: &[&str]) -> Vec<Value> {
    let mut arguments = arguments.to_vec();
    arguments.push("--json");
    match json(&said(database, &arguments)) {
        Value::Array(objects) => objects,
        other => panic!("{arguments:?} printed {other}"),
    }
}

/// The names of an object's members, in order.
fn names(object: &Value) -> Vec<&str> {
    let object = object.as_object().expect("an object");
    let mut names: Vec<&str> = object.keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// Runs a command that must fail with this code; returns its standard error.
fn refused(database: &Database, code: i32, arguments: &[&str]) -> String {
    let (seen, output, errors) = run(&mut trax(database, arguments));
    assert_eq!(seen, Some(code), "{arguments:?} printed {output}{errors}");
    errors
}

async fn text(client: &Client, sql: &str) -> String {
    value(client, sql).await
}

#[tokio::test]
async fn status_is_zero_when_healthy_and_two_when_somebody_should_act() {
    let healthy = live_database().await;
    status_becomes(&connect(&healthy).await, "scheduler", "running", PATIENCE).await;
    let (code, output, _) = run(on(live_server(), &healthy).arg("status"));
    assert_eq!(code, Some(0), "{output}");
    let scheduler = output.lines().find(|line| line.starts_with("scheduler"));
    assert!(
        scheduler.is_some_and(|line| line.contains("running") && line.contains("ok")),
        "{output}"
    );

    let unhealthy = database().await;
    let (code, output, _) = run(&mut trax(&unhealthy, &["status"]));
    assert_eq!(code, Some(2), "{output}");
    assert!(
        output.contains("trax.databases (no_database_has_this_name)"),
        "{output}"
    );
    let (code, output, _) = run(&mut trax(&unhealthy, &["status", "--json"]));
    assert_eq!(code, Some(2));
    let lines = json(&output);
    let lines = lines.as_array().expect("an array");
    let scheduler = lines
        .iter()
        .find(|line| line["item"] == "scheduler")
        .expect("the scheduler is told");
    assert_eq!(
        (&scheduler["value"], &scheduler["healthy"]),
        (&"not running".into(), &false.into())
    );
    assert!(scheduler["hint"].is_string());
}

#[tokio::test]
async fn check_is_two_when_an_invariant_is_violated() {
    let database = database().await;
    let client = connect(&database).await;
    let (code, output, _) = run(&mut trax(&database, &["check"]));
    assert_eq!(
        (code, output.as_str()),
        (Some(0), "healthy: no invariant is violated\n")
    );
    let (code, output, _) = run(&mut trax(&database, &["check", "--json"]));
    assert_eq!((code, json(&output)), (Some(0), serde_json::json!([])));

    execute(
        &client,
        "insert into trax.unique_key (key, job_id) values ('orphan', 7)",
    )
    .await;
    let (code, output, _) = run(&mut trax(&database, &["check"]));
    assert_eq!(code, Some(2));
    assert!(
        output.contains("a unique key has a live job") && output.contains("orphan"),
        "{output}"
    );
    let (code, output, _) = run(&mut trax(&database, &["check", "--json"]));
    assert_eq!(
        (code, &json(&output)[0]["rule"]),
        (Some(2), &"a unique key has a live job".into())
    );
}

#[tokio::test]
async fn enqueue_prints_the_id_and_its_options_reach_the_job() {
    let database = database().await;
    let client = connect(&database).await;
    let (code, output, errors) = run(&mut trax(
        &database,
        &[
            "enqueue",
            "mail.send",
            r#"{"to": "a"}"#,
            "--group",
            "mail",
            "--priority",
            "7",
            "--max-retries",
            "2",
            "--timeout",
            "1.5",
            "--unique-key",
            "one",
            "--run-at",
            "2040-01-01 10:00+00",
        ],
    ));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let id: i64 = output.trim().parse().expect("the id is printed");
    let sql = "select concat_ws('|', job_id, task, input, group_name, priority, max_retries, timeout, unique_key,
        run_at at time zone 'UTC') from trax.work_queue";
    let expected =
        format!("{id}|mail.send|{{\"to\": \"a\"}}|mail|7|2|00:00:01.5|one|2040-01-01 10:00:00");
    assert_eq!(text(&client, sql).await, expected);

    let (_, again, _) = run(&mut trax(
        &database,
        &["enqueue", "mail.send", "--unique-key", "one"],
    ));
    assert_eq!(again.trim(), id.to_string());
    assert_eq!(
        value::<i64>(&client, "select count(*) from trax.job").await,
        1
    );
}

#[tokio::test]
async fn enqueue_reads_a_job_a_line_and_prints_their_ids_in_order() {
    let database = database().await;
    let client = connect(&database).await;
    let mut child = trax(&database, &["enqueue", "bulk", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines: String = (0..2500)
        .map(|number| format!("{{\"n\": {number}}}\n"))
        .collect();
    let mut stdin = child.stdin.take().expect("it is piped");
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    writer
        .join()
        .expect("no panic")
        .expect("it reads its input");
    assert!(output.status.success());
    let ids: Vec<i64> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| line.parse().expect("an id a line"))
        .collect();
    assert_eq!(ids.len(), 2500);
    let wrong = "select count(*) from unnest($1::bigint[]) with ordinality i (id, n)
        join trax.work_queue q on q.job_id = i.id where (q.input ->> 'n')::bigint <> i.n - 1";
    let row = client
        .query_one(wrong, &[&ids])
        .await
        .expect("the query is right");
    assert_eq!(row.get::<_, i64>(0), 0);
    assert_eq!(
        value::<i64>(&client, "select count(*) from trax.work_queue").await,
        2500
    );
}

#[tokio::test]
async fn an_error_of_the_server_is_one_line_and_a_hint() {
    let database = database().await;
    let (code, output, errors) = run(&mut trax(&database, &["enqueue", "t", "--priority", "77"]));
    assert_eq!((code, output.as_str()), (Some(1), ""));
    assert!(
        errors.contains("priority") && errors.contains("22023"),
        "{errors}"
    );
    assert!(
        errors.lines().any(|line| line.starts_with("hint: ")),
        "{errors}"
    );

    let name = harness::scheduler::new_name("bare");
    let plain = shared_server()
        .plain_database(&name)
        .await
        .expect("a database is made");
    let (code, _, errors) = run(&mut trax(&plain, &["status"]));
    assert_eq!(code, Some(1));
    assert!(errors.contains("create extension trax"), "{errors}");
}

#[test]
fn wrong_arguments_end_with_64_and_help_with_0() {
    let wrong: [&[&str]; 8] = [
        &[],
        &["fly"],
        &["status", "--loudly"],
        &["enqueue"],
        &["worker"],
        &[
            "worker",
            "--all-tasks",
            "--exec",
            "true",
            "--concurrency",
            "0",
        ],
        &["enqueue", "t", "{not json"],
        &["--database-url", "postgres://host:many/x", "status"],
    ];
    for arguments in wrong {
        let (code, output, errors) = run(bare().args(arguments));
        assert_eq!(code, Some(64), "{arguments:?} printed {output}{errors}");
        assert!(!errors.is_empty(), "{arguments:?} says nothing");
    }
    for arguments in [&["--help"][..], &["worker", "--help"], &["--version"]] {
        let (code, output, _) = run(bare().args(arguments));
        assert_eq!(code, Some(0), "{arguments:?}");
        assert!(!output.is_empty());
    }
}

#[test]
fn a_database_that_cannot_be_reached_is_named() {
    // No server listens on port 1 of this machine.
    let commands: [&[&str]; 4] = [
        &["status"],
        &["check"],
        &["enqueue", "t"],
        &["worker", "--all-tasks", "--exec", "true"],
    ];
    for arguments in commands {
        let (code, output, errors) = run(bare()
            .args(["--database-url", "postgres://ada@127.0.0.1:1/jobs"])
            .args(arguments));
        assert_eq!(
            (code, output.as_str()),
            (Some(1), ""),
            "{arguments:?}: {errors}"
        );
        for part in ["127.0.0.1:1", "jobs", "ada"] {
            assert!(errors.contains(part), "{arguments:?}: {errors}");
        }
    }
    let (_, _, errors) = run(bare().args([
        "--database-url",
        "postgres://ada:secret@127.0.0.1:1/jobs",
        "status",
    ]));
    assert!(
        !errors.contains("secret"),
        "a password is not told: {errors}"
    );
}

#[tokio::test]
async fn the_address_comes_from_the_argument_or_the_environment() {
    let database = database().await;
    let server = shared_server();
    let socket = server.socket_dir().display().to_string();
    let port = server.port().to_string();
    let tcp = format!("postgres://postgres@127.0.0.1:{port}/{}", database.name());
    let (code, _, errors) = run(bare().args(["check"]).env("DATABASE_URL", &tcp));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let (code, _, errors) = run(bare()
        .args(["check"])
        .env("PGHOST", &socket)
        .env("PGPORT", &port)
        .env("PGUSER", "postgres")
        .env("PGDATABASE", database.name()));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let (code, _, errors) = run(bare()
        .args(["check", "--database-url", &tcp])
        .env("DATABASE_URL", "postgres://127.0.0.1:1/x"));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
}

#[tokio::test]
async fn the_demo_ends_well() {
    let mut demo = Process::start({
        let mut command = bare();
        command.arg("demo").stdin(Stdio::null());
        command
    });
    let status = demo.ends(3 * PATIENCE).await;
    let output = demo.output();
    assert_eq!(status.code(), Some(0), "{output}");
    assert!(output.contains("Everything is as expected"), "{output}");
}

#[tokio::test]
async fn the_demo_reports_programs_what_it_expected_and_saw() {
    // On an existing server with a scheduler.
    let mut command = on(live_server(), &live_server().existing("postgres"));
    command.args(["demo", "--json", "--jobs", "200"]);
    let run = tokio::task::spawn_blocking(move || run(&mut command));
    let (code, output, errors) = run.await.expect("it ends");
    assert_eq!(code, Some(0), "{output}{errors}");
    let lines = json(&output);
    let lines = lines.as_array().expect("an array");
    assert!(lines.len() > 10, "{output}");
    for line in lines {
        assert_eq!(
            names(line),
            ["actual", "at_least", "expected", "ok", "part", "what"]
        );
        assert_eq!(line["ok"], true, "{line}");
    }
    assert_eq!(
        (&lines[0]["what"], &lines[0]["expected"]),
        (&"jobs completed".into(), &200.into())
    );
    let sign_ups: Vec<i64> = lines
        .iter()
        .filter(|line| line["part"] == "sign-up")
        .filter_map(|line| line["actual"].as_i64())
        .collect();
    assert_eq!(sign_ups, [6, 3, 3, 13, 15, 6, 6, 1], "{output}");
    assert!(errors.contains("Everything is as expected"), "{errors}");
}
