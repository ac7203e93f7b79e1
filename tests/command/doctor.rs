//! `trax doctor`: findings of the database, findings of the client, and exit codes.

use super::{bare, json, on, trax};
use harness::pooler::Pooler;
use harness::process::{run, trax_binary};
use harness::scheduler::{connect, execute, live_database, live_server, status_becomes};
use harness::{PATIENCE, database, shared_server};
use std::process::Command;
use tokio::net::{TcpListener, TcpStream};

fn causes(command: &mut Command) -> (Option<i32>, Vec<String>) {
    let (code, output, errors) = run(command.arg("--json"));
    assert_eq!(errors, "");
    let findings = json(&output);
    let findings = findings.as_array().expect("an array");
    let text = |finding: &serde_json::Value, name: &str| finding[name].as_str().map(str::to_owned);
    for finding in findings {
        for name in ["cause", "severity", "detail", "fix"] {
            assert!(
                text(finding, name).is_some_and(|text| !text.is_empty()),
                "{finding}"
            );
        }
    }
    let causes = findings.iter().filter_map(|finding| text(finding, "cause"));
    (code, causes.collect())
}

#[tokio::test]
async fn a_sound_database_is_healthy_and_what_was_looked_at_is_said() {
    let database = live_database().await;
    status_becomes(&connect(&database).await, "scheduler", "running", PATIENCE).await;
    let (code, output, errors) = run(on(live_server(), &database).arg("doctor"));
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    assert!(output.starts_with("healthy: "), "{output}");
    assert!(output.contains("a round trip"), "{output}");
    let (code, found) = causes(on(live_server(), &database).arg("doctor"));
    assert_eq!((code, found), (Some(0), Vec::new()));
    let (code, output, _) = run(on(live_server(), &database).args(["doctor", "--quiet"]));
    assert_eq!((code, output.as_str()), (Some(0), ""));
}

#[tokio::test]
async fn a_trouble_is_reported_with_the_line_to_type_and_exit_code_two() {
    let database = live_database().await;
    let client = connect(&database).await;
    execute(&client, "select trax.pause('a test')").await;
    let (code, output, _) = run(on(live_server(), &database).arg("doctor"));
    assert_eq!(code, Some(2), "{output}");
    assert!(output.contains("critical scheduler_paused"), "{output}");
    assert!(output.contains("a test"), "{output}");
    assert!(output.contains("type: trax resume"), "{output}");
    let (code, output, _) = run(on(live_server(), &database).args(["doctor", "--quiet"]));
    assert_eq!((code, output.as_str()), (Some(2), "scheduler_paused\n"));
}

#[tokio::test]
async fn patience_is_a_length_of_time() {
    let database = live_database().await;
    let client = connect(&database).await;
    status_becomes(&client, "scheduler", "running", PATIENCE).await;
    execute(&client, "begin isolation level repeatable read; select 1").await;
    let (code, found) = causes(on(live_server(), &database).arg("doctor"));
    assert_eq!((code, found), (Some(0), Vec::new()));
    let (code, found) =
        causes(on(live_server(), &database).args(["doctor", "--patience", "1 microsecond"]));
    assert_eq!(code, Some(2));
    assert!(found.contains(&"horizon_held".to_owned()), "{found:?}");
    let (code, _, errors) =
        run(on(live_server(), &database).args(["doctor", "--patience", "a while"]));
    assert_eq!(code, Some(64));
    assert!(errors.contains("a while"), "{errors}");
}

#[tokio::test]
async fn a_database_that_cannot_be_reached_is_reported_by_its_reason() {
    let server = shared_server();
    let address = |database: &str, user: &str, port: u16| {
        format!(
            "host={} port={port} user={user} dbname={database}",
            server.socket_dir().display()
        )
    };
    for (url, cause) in [
        (
            address("no_such_thing", "postgres", server.port()),
            "no_database",
        ),
        (
            address("postgres", "nobody_at_all", server.port()),
            "login_refused",
        ),
        (address("postgres", "postgres", 1), "unreachable"),
        (
            address("postgres", "postgres", server.port()),
            "not_installed",
        ),
    ] {
        let found = causes(bare().args(["--database-url", &url, "doctor"]));
        assert_eq!(found, (Some(2), vec![cause.to_owned()]), "{url}");
    }
    let two = format!(
        "host=127.0.0.1,{} port=1,{} user=postgres dbname=postgres",
        server.socket_dir().display(),
        server.port()
    );
    let (_, found) = causes(bare().args(["--database-url", &two, "doctor"]));
    assert_eq!(
        found,
        ["not_installed", "unreachable"],
        "the other one answers"
    );
    let (code, _, errors) = run(bare().args(["--database-url", "no url", "doctor"]));
    assert_eq!(code, Some(64), "{errors}");
}

#[tokio::test]
async fn a_role_without_grants_is_reported_which_it_needs() {
    let database = database().await;
    let client = connect(&database).await;
    let role = format!("bare_{}", database.name());
    execute(&client, &format!("create role {role} login")).await;
    let url = format!(
        "host={} port={} user={role} dbname={}",
        shared_server().socket_dir().display(),
        shared_server().port(),
        database.name()
    );
    let (code, output, _) = run(bare().args(["--database-url", &url, "doctor"]));
    assert_eq!(code, Some(2));
    assert!(
        output.contains(&format!("trax grant {role} reader")),
        "{output}"
    );
    let (code, _, errors) = run(&mut trax(&database, &["grant", &role, "reader"]));
    assert_eq!(code, Some(0), "{errors}");
    let (_, found) = causes(bare().args(["--database-url", &url, "doctor"]));
    assert!(!found.contains(&"missing_grants".to_owned()), "{found:?}");
}

#[tokio::test]
async fn a_group_with_almost_the_name_of_one_with_settings_is_a_notice() {
    let database = live_database().await;
    let client = connect(&database).await;
    status_becomes(&client, "scheduler", "running", PATIENCE).await;
    execute(
        &client,
        "select trax.configure_group('reports', max_active_jobs => 2), trax.enqueue('t', group_name => 'report'),
                trax.enqueue('t', group_name => 'other')",
    )
    .await;
    let doctor = || {
        let mut command = on(live_server(), &database);
        command.arg("doctor");
        command
    };
    assert_eq!(
        causes(&mut doctor()),
        (Some(0), vec!["group_like_another".to_owned()])
    );
    let (_, output, _) = run(&mut doctor());
    let output = output.replace("\n  ", " ");
    assert!(
        output.contains("Group \"report\" is used") && output.contains("trax group set report"),
        "{output}"
    );
    execute(&client, "select trax.configure_group('report')").await;
    assert_eq!(causes(&mut doctor()), (Some(0), Vec::new()));
}

#[tokio::test]
async fn an_extension_of_another_version_than_the_program_is_reported() {
    let database = database().await;
    let client = connect(&database).await;
    execute(
        &client,
        "update pg_extension set extversion = '99.0.0' where extname = 'trax'",
    )
    .await;
    let (code, found) = causes(&mut trax(&database, &["doctor"]));
    assert_eq!(code, Some(2));
    assert!(found.contains(&"client_version".to_owned()), "{found:?}");
}

/// Runs the program with a wrong clock, for this process only.
fn at_another_time(offset: &str, url: &str) -> Command {
    let mut command = Command::new("faketime");
    command
        .args(["-f", offset])
        .arg(trax_binary())
        .args(["--database-url", url, "doctor"])
        // Timers are not affected.
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command
}

#[tokio::test]
async fn clocks_that_differ_are_reported_with_how_far() {
    let database = live_database().await;
    status_becomes(&connect(&database).await, "scheduler", "running", PATIENCE).await;
    let url = format!(
        "host={} port={} user=postgres dbname={}",
        live_server().socket_dir().display(),
        live_server().port(),
        database.name()
    );
    for (offset, told) in [
        ("+90s", "s behind this machine's"),
        ("-1h", "s ahead of this machine's"),
    ] {
        let found = causes(&mut at_another_time(offset, &url));
        assert_eq!(found, (Some(2), vec!["clock_difference".to_owned()]));
        let (_, output, _) = run(&mut at_another_time(offset, &url));
        assert!(output.contains(told), "{offset}: {output}");
        assert!(output.contains("timedatectl set-ntp true"), "{output}");
    }
    assert_eq!(causes(&mut at_another_time("+1s", &url)), (Some(0), vec![]));
}

#[tokio::test]
async fn a_transaction_pooler_is_distinguished_from_a_proxy() {
    let database = live_database().await;
    status_becomes(&connect(&database).await, "scheduler", "running", PATIENCE).await;
    let pooler = Pooler::of(live_server(), 2).await;
    let url = format!(
        "host=127.0.0.1 port={} user=postgres dbname={}",
        pooler.port(),
        database.name()
    );
    let doctor = || {
        let mut command = bare();
        command.args(["--database-url", &url, "doctor"]);
        command
    };
    assert_eq!(causes(&mut doctor()), (Some(0), vec!["pooler".to_owned()]));
    let (_, output, _) = run(&mut doctor());
    let output = output.replace("\n  ", " ");
    assert!(
        output.contains("assigns a server process to each transaction"),
        "{output}"
    );
}

#[tokio::test]
async fn what_stands_between_client_and_server_is_a_notice() {
    let database = live_database().await;
    status_becomes(&connect(&database).await, "scheduler", "running", PATIENCE).await;
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    let behind = live_server().port();
    let proxy = tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let mut to = TcpStream::connect(("127.0.0.1", behind))
                .await
                .expect("the server is there");
            tokio::spawn(async move {
                // Either side may end first.
                tokio::io::copy_bidirectional(&mut from, &mut to).await.ok()
            });
        }
    });
    let url = |port: u16| {
        format!(
            "host=127.0.0.1 port={port} user=postgres dbname={}",
            database.name()
        )
    };
    let direct = url(behind);
    let through = url(port);
    let doctor = move |url: String| causes(bare().args(["--database-url", &url, "doctor"]));
    let straight = tokio::task::spawn_blocking(move || doctor(direct));
    let straight = straight.await.expect("the program ends");
    assert_eq!(straight, (Some(0), Vec::new()));
    let found = tokio::task::spawn_blocking(move || doctor(through)).await;
    let found = found.expect("the program ends");
    assert_eq!(found, (Some(0), vec!["pooler".to_owned()]), "no illness");
    proxy.abort();
}
