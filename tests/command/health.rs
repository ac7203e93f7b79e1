//! `trax worker` under systemd and health probes.

use super::{bare, on, trax};
use harness::http::{get, status_becomes};
use harness::process::{Process, Scratch, run, send_signal};
use harness::scheduler::{connect, execute, scheduling, value};
use harness::{PATIENCE, database, eventually};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use trax_client::testkit::Stop;

/// Waits for a datagram that contains this line; returns all of it.
async fn hears(manager: &UnixDatagram, line: &str) -> String {
    let heard = Mutex::new(Vec::new());
    eventually(&format!("the word {line:?}"), PATIENCE, async || {
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        let mut datagram = [0; 1024];
        while let Ok(length) = manager.recv(&mut datagram) {
            let said = String::from_utf8_lossy(&datagram[..length]).into_owned();
            if said.lines().any(|said| said == line) {
                return Ok(said);
            }
            heard.push(said);
        }
        Err(format!("{heard:?}"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_waits_for_its_database_and_reports_systemd_and_probes_how_it_is() {
    let mut server = scheduling().start().expect("a server starts");
    let database = server.database("served").await.expect("a database is made");
    tokio::task::block_in_place(|| server.stop(Stop::Fast)).expect("it stops");

    let files = Scratch::new("systemd");
    let path = files.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket can be made");
    manager.set_nonblocking(true).expect("it can be changed");
    let mut command = on(&server, &database);
    let exec = r#"test -z "$NOTIFY_SOCKET$WATCHDOG_USEC$WATCHDOG_PID""#;
    command.args(["worker", "--health", "0", "--all-tasks", "--exec", exec]);
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "1000000");
    let mut service = Process::start(command);
    let port = port_of(&service).await;
    let why = status_becomes(port, "/readyz", 503).await;
    assert!(why.starts_with("claim: "), "{why}");
    hears(&manager, "WATCHDOG=1").await;

    tokio::task::block_in_place(|| server.start()).expect("it starts again");
    hears(&manager, "READY=1").await;
    status_becomes(port, "/readyz", 200).await;
    let client = connect(&database).await;
    execute(&client, "select trax.enqueue('t')").await;
    eventually(
        "the program saw nothing of the manager",
        PATIENCE,
        async || {
            let sql = "select coalesce(string_agg(state, ' '), '') from trax.run";
            match value::<String>(&client, sql).await.as_str() {
                "completed" => Ok(()),
                seen => Err(seen.to_owned()),
            }
        },
    )
    .await;
    send_signal("TERM", service.id());
    let last = hears(&manager, "STOPPING=1").await;
    assert!(!last.contains("READY=1"), "{last}");
    let status = service.ends(PATIENCE).await;
    assert!(status.success(), "{}", service.output());
    assert!(get(port, "/livez").await.is_err());
}

/// The port that the service printed.
async fn port_of(service: &Process) -> u16 {
    eventually("the address is said", PATIENCE, async || {
        let said = service.output();
        let port = said
            .split("serving http://127.0.0.1:")
            .nth(1)
            .and_then(|rest| rest.split('/').next())
            .and_then(|port| port.parse().ok());
        port.ok_or(said)
    })
    .await
}

#[tokio::test]
async fn a_wrong_address_is_refused_and_a_wrong_socket_only_reported() {
    let database = database().await;
    let worker = [
        "worker",
        "--until-empty",
        "--all-tasks",
        "--exec",
        "true",
        "--health",
    ];
    let (code, _, errors) = run(trax(&database, &worker).arg("203.0.113.1:80"));
    assert_eq!(code, Some(64), "{errors}");
    assert!(
        errors.contains("cannot listen on 203.0.113.1:80"),
        "{errors}"
    );
    let mut command = trax(&database, &worker[..5]);
    let (code, _, errors) = run(command.env("NOTIFY_SOCKET", "/does/not/exist"));
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("health: NOTIFY_SOCKET: "), "{errors}");
}

#[test]
fn the_example_of_a_unit_is_one_that_systemd_takes() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../trax_client/examples/systemd/trax-worker@.service");
    let text = std::fs::read_to_string(&unit).expect("it is there");
    // The programs named in the unit may be missing on this machine, so stand-ins are checked.
    let files = Scratch::new("unit");
    let here = files.path().join("trax-worker@tea.service");
    let program = files.path().join("trax");
    std::fs::write(&program, "#!/bin/sh\n").expect("it can be written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("so it can");
    let text = text.replace("/usr/bin/trax", &program.display().to_string());
    std::fs::write(&here, &text).expect("it can be written");
    let mut verify = Command::new("systemd-analyze");
    let (code, output, errors) = run(verify.args(["verify", "--man=no"]).arg(&here));
    assert_eq!((code, output.as_str(), errors.as_str()), (Some(0), "", ""));
    // Every option of its command line must exist.
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let words: Vec<&str> = line
        .expect("it starts something")
        .split_whitespace()
        .collect();
    let (_, help, _) = run(bare().args(["worker", "--help"]));
    for option in words.iter().filter(|word| word.starts_with("--")) {
        assert!(help.contains(option), "{option}: {help}");
    }
}
