//! `trax metrics`: Prometheus' own tool accepts it, the HTTP server works, and the dashboard and
//! the alert rules match it.

use super::{bare, json, on, trax};
use harness::http::ask;
use harness::process::{Process, run, send_signal};
use harness::scheduler::{connect, execute, live_database, live_server};
use harness::{PATIENCE, database, eventually};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tokio::net::TcpStream;
use trax_client::testkit::Stop;

/// A path of the project.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

fn promtool() -> Command {
    let unpacked = path("target/tools/promtool");
    if unpacked.exists() {
        Command::new(unpacked)
    } else {
        Command::new("promtool")
    }
}

/// Fails if Prometheus' parser or linter reports a problem.
fn assert_exposition(text: &str) {
    let mut child = promtool()
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is there; scripts/setup fetches it");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(text.as_bytes()).expect("promtool reads");
    drop(stdin);
    let output = child.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.is_empty(), "{said}\n{text}");
}

/// A database in which every counted event has happened.
async fn lived_in() -> trax_client::testkit::Database {
    let database = database().await;
    execute(
        &connect(&database).await,
        r#"select trax.configure_group('g', max_active_jobs => 3);
        select trax.enqueue_many('a "quoted\ task', array['1', '2', '3']::jsonb[], max_retries => 0);
        select trax.enqueue('b', group_name => 'g', run_at => now() + interval '1 h');
        select trax.complete(job_id, token) from trax.claim_next();
        select trax.fail(job_id, token, 'no') from trax.claim_next();
        select trax.complete(7, gen_random_uuid());
        select trax.schedule('m', 'c', cron => '@daily', max_retries => 0);
        select trax.trigger('m');
        select trax.fail(job_id, token, 'no') from trax.claim_next(tasks => '{c}');
        select * from trax.tick()"#,
    )
    .await;
    let relay = std::fs::read_to_string(path("sql/relay/relay.sql")).expect("it is there");
    let an_outbox =
        "insert into trax_relay.source (source, name) values (gen_random_uuid(), 'shop')";
    execute(&connect(&database).await, &(relay + an_outbox)).await;
    database
}

#[tokio::test]
async fn prometheus_understands_every_line() {
    let database = lived_in().await;
    let (code, output, errors) = run(&mut trax(&database, &["metrics"]));
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    assert_exposition(&output);
    assert!(
        !output.contains("newer version"),
        "each number is described: {output}"
    );
    assert!(
        output.contains(r#"trax_completions_total{task="a \"quoted\\ task"} 1"#),
        "{output}"
    );
    let (code, output, _) = run(&mut trax(&database, &["metrics", "--json"]));
    assert_eq!(code, Some(0));
    let samples = json(&output);
    let samples = samples.as_array().expect("an array");
    assert!(
        samples
            .iter()
            .any(|s| s["name"] == "trax_dead_letters" && s["value"] == 2.0)
    );
}

#[test]
fn each_alert_fires_when_it_should_and_not_before() {
    let tests = path("monitoring/alerts_test.yml");
    let (code, output, errors) = run(promtool().args(["test", "rules"]).arg(&tests));
    assert_eq!(code, Some(0), "{output} {errors}");
    let text = |name: &str| std::fs::read_to_string(path(name)).expect("it is there");
    let (rules, tests) = (
        text("monitoring/alerts.yml"),
        text("monitoring/alerts_test.yml"),
    );
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let mut count = 0;
    for alert in alerts {
        let quiet = format!("alertname: {alert}, exp_alerts: []");
        assert!(tests.contains(&quiet), "when {alert} does not fire");
        let fires = format!("alertname: {alert}\n        exp_alerts:\n");
        assert!(tests.contains(&fires), "when {alert} fires");
        count += 1;
    }
    assert!(count > 10, "{rules}");
}

#[test]
fn no_panel_of_the_dashboard_lies_on_another_and_its_variables_are_its_own() {
    let text = std::fs::read_to_string(path("monitoring/grafana.json")).expect("it is there");
    let dashboard = json(&text);
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut taken = BTreeSet::new();
    for panel in panels {
        let place = |name: &str| panel["gridPos"][name].as_u64().expect("a number");
        let (x, y, w, h) = (place("x"), place("y"), place("w"), place("h"));
        assert!(x + w <= 24 && w > 0 && h > 0, "{panel}");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "it lies on another: {panel}");
        }
        let title = panel["title"].as_str();
        assert!(title.is_some_and(|title| !title.is_empty()), "{panel}");
        if panel["type"] != "row" {
            let uid = &panel["datasource"]["uid"];
            assert_eq!(uid, "${datasource}", "{panel}");
            assert!(panel["targets"].as_array().is_some_and(|t| !t.is_empty()));
        }
    }
    let variables = dashboard["templating"]["list"].as_array().expect("a list");
    let mut known: Vec<&str> = variables
        .iter()
        .filter_map(|v| v["name"].as_str())
        .collect();
    // Variables that Grafana defines.
    known.extend(["__rate_interval", "__range", "__interval"]);
    let used = text.split('$').skip(1).map(|rest| {
        let rest = rest.trim_start_matches('{');
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    });
    for name in used {
        assert!(known.contains(&name), "${name} is not defined");
    }
}

#[test]
fn the_dashboard_is_one_by_the_types_of_grafana() {
    let reader = path("target/tools/grafana/bin/python3");
    let script = path("tests/command/dashboard.py");
    let read = |file: &Path| run(Command::new(&reader).arg(&script).arg(file));
    let dashboard = path("monitoring/grafana.json");
    let (code, unknown, errors) = read(&dashboard);
    assert_eq!((code, unknown.trim(), errors.as_str()), (Some(0), "", ""));

    // The check detects an error.
    let text = std::fs::read_to_string(&dashboard).expect("it is there");
    let broken = live_server().socket_dir().join("mistyped.json");
    std::fs::write(&broken, text.replace("\"gridPos\"", "\"gridPosition\""))
        .expect("it can be written");
    let (code, unknown, errors) = read(&broken);
    assert_eq!(code, Some(0), "{errors}");
    assert!(
        unknown.contains("dashboard.panels[0].gridPosition"),
        "{unknown}"
    );
}

/// The names of all metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c: char| !word(c))
        .filter(|name| name.starts_with("trax_"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn alert_rules_and_dashboard_are_valid_and_name_numbers_that_exist() {
    let rules = path("monitoring/alerts.yml");
    let (code, output, errors) = run(promtool().args(["check", "rules"]).arg(&rules));
    assert_eq!(code, Some(0), "{output} {errors}");

    let text = std::fs::read_to_string(path("monitoring/grafana.json")).expect("it is there");
    let dashboard = json(&text);
    let panels = dashboard["panels"].as_array().expect("panels");
    let expressions: Vec<String> = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten()
        .map(|target| target["expr"].as_str().expect("an expression").to_owned())
        .collect();
    assert!(expressions.len() > 20);
    for shown in [
        "sum by (state) (trax_workers_by_state{",
        "trax_schedules_stopped{",
    ] {
        assert!(expressions.iter().any(|e| e.contains(shown)), "{shown}");
    }
    let ids: BTreeSet<i64> = panels
        .iter()
        .filter_map(|panel| panel["id"].as_i64())
        .collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
    // Prometheus checks each expression as a rule, with values in place of Grafana's variables.
    let as_rules: Vec<String> = expressions
        .iter()
        .enumerate()
        .map(|(i, expression)| {
            let expression = expression
                .replace("$__rate_interval", "5m")
                .replace("$instance", ".*");
            format!(
                "  - {{record: 'panel:{i}', expr: {}}}",
                json_text(&expression)
            )
        })
        .collect();
    let file = live_server().socket_dir().join("dashboard.yml");
    let document = format!(
        "groups:\n- name: panels\n  rules:\n{}\n",
        as_rules.join("\n")
    );
    std::fs::write(&file, document).expect("it can be written");
    let (code, output, errors) = run(promtool().args(["check", "rules"]).arg(&file));
    assert_eq!(code, Some(0), "{output} {errors}");

    let database = lived_in().await;
    execute(
        &connect(&database).await,
        &format!(
            "alter database {} set trax.max_active_jobs = 5",
            database.name()
        ),
    )
    .await;
    let (_, exposition, _) = run(&mut trax(&database, &["metrics"]));
    let there = names(&exposition);
    let rules = std::fs::read_to_string(rules).expect("it is there");
    let used = names(&(rules + &expressions.join("\n")));
    let missing: Vec<&String> = used.difference(&there).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

fn json_text(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}

/// The port that a serving program printed.
async fn port_of(serving: &Process) -> u16 {
    eventually("the address is said", PATIENCE, async || {
        let said = serving.output();
        let port = said
            .split("http://127.0.0.1:")
            .nth(1)
            .and_then(|rest| rest.split('/').next())
            .and_then(|port| port.parse().ok());
        port.ok_or(said)
    })
    .await
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

#[tokio::test]
async fn an_address_serves_them_until_sigterm() {
    let database = live_database().await;
    let mut command = on(live_server(), &database);
    command.args(["metrics", "--listen", "0"]);
    let serving = Process::start(command);
    let port = port_of(&serving).await;
    let (status, body) = ask(port, GET).await.expect("an answer");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(body.contains("\ntrax_up 1\n"), "{body}");
    assert_exposition(&body);
    for (request, wanted) in [
        ("HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK"),
        ("GET / HTTP/1.0\r\n\r\n", "200 OK"),
        ("GET /metrics?x=1 HTTP/1.1\r\n\r\n", "200 OK"),
        ("GET /secret HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
    ] {
        let (status, _) = ask(port, request).await.expect("an answer");
        assert!(status.ends_with(wanted), "{request}: {status}");
    }
    let endless = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(20_000));
    assert!(ask(port, &endless).await.is_err(), "nobody reads that");
    // A silent client blocks no other client.
    let silent = TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("a connection");
    let all = (0..20).map(|_| tokio::spawn(ask(port, GET)));
    for answer in all.collect::<Vec<_>>() {
        let (status, _) = answer.await.expect("a task").expect("an answer");
        assert_eq!(status, "HTTP/1.1 200 OK");
    }
    drop(silent);
    let mut second = bare();
    second.args(["--database-url", "host=127.0.0.1", "metrics", "--listen"]);
    let (code, _, errors) = run(second.arg(port.to_string()));
    assert_eq!(code, Some(64), "{errors}");
    assert!(errors.contains("cannot listen on"), "{errors}");
    send_signal("TERM", serving.id());
    eventually("the end", PATIENCE, async || {
        if harness::process::is_alive(serving.id()) {
            Err(serving.output())
        } else {
            Ok(())
        }
    })
    .await;
}

#[tokio::test]
async fn a_database_that_is_down_is_a_number_and_comes_back() {
    let mut server = harness::options().fast().start().expect("a server starts");
    let database = server.database("app").await.expect("a database is made");
    let mut command = on(&server, &database);
    command.args(["metrics", "--listen", "127.0.0.1:0"]);
    let serving = Process::start(command);
    let port = port_of(&serving).await;
    let up = async |wanted: &str| {
        let line = format!("\ntrax_up {wanted}\n");
        eventually(&line, PATIENCE, async || {
            let (_, body) = ask(port, GET).await?;
            if body.contains(&line) {
                Ok(())
            } else {
                Err(body)
            }
        })
        .await;
    };
    up("1").await;
    server.stop(Stop::Fast).expect("it stops");
    up("0").await;
    server.start().expect("it starts again");
    up("1").await;
}
