//! `trax enqueue` of many jobs: from a file, from lines, and the jobs left after an error.

use super::{json, objects, refused, said, trax};
use harness::process::{Scratch, run};
use harness::session::session;
use harness::{PATIENCE, eventually};
use serde_json::Value;
use std::io::Write;
use std::process::Stdio;
use trax_client::testkit::Database;

#[tokio::test]
async fn a_file_of_lines_is_queued_in_its_order_with_the_options() {
    let (db, s) = session().await;
    let files = Scratch::new("enqueue");
    let path = files.path().join("inputs.jsonl");
    let lines: String = (0..2300).map(|n| format!("{{\"n\": {n}}}\n\n")).collect();
    std::fs::write(&path, lines).expect("a file can be written");
    let path = path.display().to_string();
    let output = said(
        &db,
        &[
            "enqueue",
            "bulk",
            "--file",
            &path,
            "--group",
            "g",
            "--priority",
            "4",
            "--version",
            "v1",
        ],
    );
    assert_eq!(output.lines().count(), 2300);
    let wrong = "select count(*) from (
            select (input ->> 'n')::int n, row_number() over (order by job_id) - 1 as place, group_name, priority, version
            from trax.work_queue
        ) q where n <> place or group_name <> 'g' or priority <> 4
            or version is distinct from 'v1'";
    assert_eq!(s.number(wrong).await, 0);
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 2300);
    let ids = objects(&db, &["enqueue", "bulk", "--file", &path]);
    assert_eq!(ids.len(), 2300);
    let id = &objects(&db, &["enqueue", "one"])[0]["job_id"];
    assert_eq!(
        s.get("select job_id from trax.work_queue where task = 'one'")
            .await,
        id.to_string()
    );
}

#[tokio::test]
async fn every_digit_of_a_number_is_queued_and_shown() {
    let (db, s) = session().await;
    let input = "{\"id\": 12345678901234567890123, \"price\": 1.10}";
    let id = said(&db, &["enqueue", "t", input]);
    let files = Scratch::new("digits");
    let path = files.path().join("inputs.jsonl");
    std::fs::write(&path, format!("{input}\n")).expect("a file can be written");
    said(
        &db,
        &["enqueue", "t", "--file", &path.display().to_string()],
    );
    s.get("select trax.schedule('m', 't')").await;
    said(&db, &["manifest", "trigger", "m", "--input", input]);
    let sql = "select string_agg(distinct input::text, ' ') from trax.work_queue";
    assert_eq!(s.get(sql).await, input);
    let shown = said(&db, &["jobs", "show", "--json", id.trim()]);
    assert!(shown.contains(&format!("\"input\":{input}")), "{shown}");
    let shown = said(&db, &["jobs", "show", id.trim()]);
    assert!(shown.contains("\"id\": 12345678901234567890123"), "{shown}");
}

/// Returns the exit code, the printed ids and the error messages for an input with an error in its
/// third line.
fn with_a_mistake(db: &Database, options: &[&str]) -> (Option<i32>, Vec<Value>, String) {
    let mut child = trax(db, &["enqueue", "bulk", "-", "--json"])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(b"1\n2\n{oops\n4\n").expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let ids = json(&String::from_utf8_lossy(&output.stdout));
    let ids = ids.as_array().cloned().expect("an array");
    (output.status.code(), ids, errors)
}

#[tokio::test]
async fn after_a_line_that_is_not_json_no_line_is_queued() {
    let (db, s) = session().await;
    let (code, ids, errors) = with_a_mistake(&db, &[]);
    assert_eq!((code, ids.len()), (Some(64), 0), "{errors}");
    assert!(
        errors.contains("line 3") && errors.contains("no job was queued"),
        "{errors}"
    );
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 0);
    // The same when the server refuses an input that is too large.
    let files = Scratch::new("large");
    let path = files.path().join("inputs.jsonl");
    let large = format!("1\n\"{}\"\n", "x".repeat(1_100_000));
    std::fs::write(&path, "1\n".repeat(2000) + &large).expect("a file can be written");
    let errors = refused(
        &db,
        1,
        &["enqueue", "t", "--file", &path.display().to_string()],
    );
    assert!(errors.contains("54000"), "{errors}");
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 0);
}

#[tokio::test]
async fn of_a_stream_what_was_printed_before_a_mistake_is_queued() {
    let (db, s) = session().await;
    let (code, ids, errors) = with_a_mistake(&db, &["--stream"]);
    assert_eq!((code, ids.len()), (Some(64), 2), "{errors}");
    assert!(errors.contains("line 3"), "{errors}");
    assert_eq!(
        s.get("select string_agg(input::text, ' ' order by job_id) from trax.work_queue")
            .await,
        "1 2"
    );
}

#[tokio::test]
async fn who_stops_reading_ids_gets_no_panic_and_all_jobs() {
    let (db, s) = session().await;
    let files = Scratch::new("pipe");
    let path = files.path().join("inputs.jsonl");
    std::fs::write(&path, "1\n".repeat(20_000)).expect("a file can be written");
    let command = format!(
        "{} --database-url \"$URL\" enqueue t --file {} | head -1",
        harness::process::trax_binary().display(),
        path.display()
    );
    let server = harness::shared_server();
    let url = format!(
        "postgres://postgres@127.0.0.1:{}/{}",
        server.port(),
        db.name()
    );
    let (code, output, errors) = run(std::process::Command::new("sh")
        .args(["-c", &command])
        .env("URL", url));
    assert_eq!(
        (code, output.lines().count(), errors.as_str()),
        (Some(0), 1, "")
    );
    assert_eq!(
        s.number("select count(*) from trax.work_queue").await,
        20_000
    );
}

#[tokio::test]
async fn of_a_stream_a_line_is_queued_while_the_next_one_is_still_to_come() {
    let (db, s) = session().await;
    let mut child = trax(&db, &["enqueue", "slow", "-", "--stream"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    for queued in 1..=2 {
        stdin.write_all(b"1\n").expect("it reads");
        eventually("the job", PATIENCE, async || {
            match s.number("select count(*) from trax.work_queue").await {
                count if count == queued => Ok(()),
                other => Err(other.to_string()),
            }
        })
        .await;
    }
    drop(stdin);
    assert!(child.wait().expect("it ends").success());
}

#[tokio::test]
async fn a_time_is_read_in_the_zone_of_who_typed_it() {
    let (db, s) = session().await;
    let arguments = ["enqueue", "t", "--run-at", "2040-07-01 10:00"];
    let (code, _, errors) = run(trax(&db, &arguments).env("TZ", "Europe/Berlin"));
    assert_eq!(code, Some(0), "{errors}");
    let at = "select run_at at time zone 'UTC' from trax.work_queue";
    assert_eq!(s.get(at).await, "2040-07-01 08:00:00");
    let errors = refused(&db, 64, &["enqueue", "t", "--run-at", "some day"]);
    assert!(
        errors.contains("\"some day\" is not a time") && errors.contains("tomorrow"),
        "{errors}"
    );
}

#[tokio::test]
async fn jobs_and_lines_join_a_batch_that_the_command_opens_and_seals() {
    let (db, s) = session().await;
    let files = Scratch::new("batch");
    let path = files.path().join("inputs.jsonl");
    std::fs::write(&path, "1\n2\n").expect("a file can be written");
    let path = path.display().to_string();
    let opened = said(&db, &["enqueue", "report", "{}", "--open-batch"]);
    let batch = opened.trim();
    said(&db, &["enqueue", "mail", "3", "--batch", batch]);
    said(&db, &["enqueue", "mail", "--file", &path, "--batch", batch]);
    s.get("select * from trax.tick()").await;
    let waits = s.claim("tasks => '{report}'").await;
    assert!(waits.is_empty(), "it is not sealed");
    let sealed = objects(&db, &["graph", "seal", batch]);
    assert_eq!(sealed[0]["jobs"], 3);
    for mail in s.claim("tasks => '{mail}', max_jobs => 3").await {
        s.get(&format!("select trax.complete({})", mail.key()))
            .await;
    }
    assert_eq!(s.tick("promote_delayed").await, 1);
    let report = s.claim_one("tasks => '{report}'").await;
    assert_eq!(report.id.to_string(), batch);
}
