//! `trax lock`: a program under a token.

use harness::process::{Orphan, Process, children, is_alive, run, send_signal, trax_binary};
use harness::session::session;
use harness::{PATIENCE, eventually, shared_server};
use std::process::Command;
use trax_client::testkit::Database;

fn lock(db: &Database, arguments: &[&str]) -> Command {
    let server = shared_server();
    let mut command = Command::new(trax_binary());
    command.arg("--database-url").arg(format!(
        "host={} port={} user=postgres dbname={}",
        server.socket_dir().display(),
        server.port(),
        db.name()
    ));
    command.arg("lock").args(arguments);
    command
}

#[tokio::test]
async fn the_program_runs_while_the_token_is_held_and_its_exit_code_is_ours() {
    let (db, s) = session().await;
    let script = "echo $TRAX_LOCK_NAME $TRAX_LOCK_SLOT $TRAX_LOCK_TOKEN; exit 3";
    let (code, out, errors) = run(&mut lock(&db, &["n", "--", "sh", "-c", script]));
    assert_eq!((code, errors.as_str()), (Some(3), ""));
    let words: Vec<&str> = out.split_whitespace().collect();
    assert_eq!((words[..2].to_vec(), words[2].len()), (vec!["n", "1"], 36));
    assert_eq!(s.get("select * from trax.concurrency_token").await, "");
    for (arguments, expected) in [
        (vec!["n", "--", "sh", "-c", "kill -9 $$"], 137),
        (vec!["n", "--", "no_program_has_this_name"], 127),
        (vec!["n", "--", "/etc/passwd"], 126),
        (vec!["n"], 64),
        (vec!["n", "--ttl", "soon", "--", "true"], 64),
        (vec!["n", "--wait", "1s", "--no-wait", "--", "true"], 64),
        (vec!["n", "--max-holders", "0", "--", "true"], 64),
        (vec!["", "--", "true"], 1),
    ] {
        assert_eq!(
            run(&mut lock(&db, &arguments)).0,
            Some(expected),
            "{arguments:?}"
        );
    }
    assert_eq!(s.get("select * from trax.concurrency_token").await, "");
}

/// `trax lock` with a program that prints its process id and then sleeps.
async fn holding(db: &Database, options: &[&str], script: &str) -> (Process, Orphan) {
    let script = format!("{script} echo pid $$ >&2; while :; do sleep 0.05; done");
    let mut arguments = options.to_vec();
    arguments.extend(["--", "sh", "-c", &script]);
    let process = Process::start(lock(db, &arguments));
    let said = process.says("\n", PATIENCE).await;
    let pid = said
        .trim()
        .rsplit(' ')
        .next()
        .and_then(|pid| pid.parse().ok());
    (process, Orphan(pid.expect("a process id")))
}

#[tokio::test]
async fn who_does_not_get_it_in_time_ends_with_75() {
    let (db, s) = session().await;
    let (mut held, _program) = holding(&db, &["n"], "").await;
    assert_eq!(
        run(&mut lock(&db, &["n", "--no-wait", "--", "true"])).0,
        Some(75)
    );
    let waited = run(&mut lock(&db, &["n", "--wait", "100ms", "--", "true"]));
    assert_eq!(waited.0, Some(75));
    assert!(waited.2.contains("\"n\" is held by others"), "{}", waited.2);
    let two = ["n", "--max-holders", "2", "--no-wait", "--", "true"];
    assert_eq!(run(&mut lock(&db, &two)).0, Some(0));
    let mut next = Process::start(lock(&db, &["n", "--", "echo", "my turn"]));
    let waiting = "select count(*) from trax.concurrency_waiter";
    eventually("the next one waits", PATIENCE, async || {
        let seen = s.number(waiting).await;
        if seen == 1 {
            Ok(())
        } else {
            Err(seen.to_string())
        }
    })
    .await;
    send_signal("TERM", held.id());
    assert_eq!(
        held.ends(PATIENCE).await.code(),
        Some(143),
        "the signal is handed on"
    );
    assert_eq!(next.ends(PATIENCE).await.code(), Some(0));
    next.says("my turn", PATIENCE).await;
}

#[tokio::test]
async fn a_lost_token_stops_the_program_first_gently_then_for_good() {
    let (db, s) = session().await;
    let options = ["n", "--ttl", "1s", "--grace", "5s"];
    let (mut held, program) = holding(&db, &options, "trap 'echo asked >&2' TERM;").await;
    s.get("delete from trax.concurrency_token").await;
    let status = held.ends(PATIENCE).await;
    assert_eq!(status.code(), Some(74), "{}", held.output());
    let said = held.says("was lost", PATIENCE).await;
    assert!(said.contains("asked"), "{said}");
    assert!(!is_alive(program.0), "SIGKILL after the grace");
}

#[tokio::test]
async fn a_program_does_not_outlive_its_lock() {
    let (db, _s) = session().await;
    let (held, program) = holding(&db, &["n", "--ttl", "3s"], "").await;
    send_signal("KILL", held.id());
    eventually("the end of the program", PATIENCE, async || {
        if is_alive(program.0) {
            Err("it lives".to_owned())
        } else {
            Ok(())
        }
    })
    .await;
    let (code, ..) = run(&mut lock(&db, &["n", "--wait", "10m", "--", "true"]));
    assert_eq!(code, Some(0), "its token ended with its time");
}

#[tokio::test]
async fn a_signal_ends_a_wait_for_the_lock() {
    let (db, s) = session().await;
    s.get("select trax.acquire_token('n', 'h', 1, '1 h')").await;
    let mut waits = Process::start(lock(&db, &["n", "--", "true"]));
    let waiting = "select count(*) from trax.concurrency_waiter";
    eventually("the wait", PATIENCE, async || {
        let seen = s.number(waiting).await;
        if seen == 1 {
            Ok(())
        } else {
            Err(seen.to_string())
        }
    })
    .await;
    send_signal("INT", waits.id());
    assert_eq!(waits.ends(PATIENCE).await.code(), Some(130));
}

#[tokio::test]
async fn signals_and_the_loss_of_the_token_reach_what_a_program_left_running() {
    let (db, s) = session().await;
    // The program ignores SIGTERM, and its child inherits that.
    let left = r#"trap "" TERM; sh -c 'trap "echo heard >&2" USR1; echo pid $$ >&2; while :; do sleep 0.05; done' & "#;
    let options = ["n", "--ttl", "2s", "--grace", "10m"];
    let mut arguments = options.to_vec();
    let script = format!("{left} exit 3");
    arguments.extend(["--", "sh", "-c", &script]);
    let mut held = Process::start(lock(&db, &arguments));
    let said = held.says("pid", PATIENCE).await;
    let pid = said
        .split_whitespace()
        .nth(1)
        .and_then(|pid| pid.parse().ok());
    let left = Orphan(pid.expect("a process id"));
    eventually(
        "the end of the program",
        PATIENCE,
        async || match children(held.id(), "sh")[..] {
            [] => Ok(()),
            ref seen => Err(format!("{seen:?}")),
        },
    )
    .await;
    send_signal("USR1", held.id());
    held.says("heard", PATIENCE).await;
    assert!(is_alive(left.0), "it has the grace");
    s.get("delete from trax.concurrency_token").await;
    let status = held.ends(PATIENCE).await;
    assert_eq!(status.code(), Some(74), "{}", held.output());
    assert!(!is_alive(left.0), "it went with the token");
}
