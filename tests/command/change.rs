//! Changes of what waits: `trax jobs change`, `trax enqueue --on-duplicate`, and the settings of
//! tasks and full groups.

use super::{objects, refused, said};
use harness::session::session;
use serde_json::json;

#[tokio::test]
async fn jobs_change_tells_of_each_job_what_became_of_it() {
    let (db, s) = session().await;
    let waits = s.enqueue("'a', '1'").await;
    s.enqueue("'b'").await;
    let runs = s.claim_one("tasks => '{b}'").await.id;
    let change = |id: i64, more: &[&str]| {
        let id = id.to_string();
        let all = [&["jobs", "change", id.as_str()], more].concat();
        objects(&db, &all)
    };
    let all = [
        "--input",
        "{\"n\": 1.10}",
        "--run-at",
        "2100-01-01 00:00+00",
        "--priority",
        "7",
        "--group",
        "g",
        "--max-retries",
        "1",
        "--timeout",
        "90s",
    ];
    let changed = change(waits, &all);
    assert_eq!(changed, [json!({"job_id": waits, "result": "changed"})]);
    let job = "select input, run_at at time zone 'UTC', priority, group_name, max_retries, timeout from trax.work_queue";
    assert_eq!(
        s.get(job).await,
        "{\"n\": 1.10}|2100-01-01 00:00:00|7|g|1|00:01:30"
    );
    let errors = refused(
        &db,
        1,
        &[
            "jobs",
            "change",
            &runs.to_string(),
            "4711",
            "--priority",
            "1",
        ],
    );
    assert_eq!(errors, "");
    let errors = refused(&db, 64, &["jobs", "change", "1"]);
    assert!(errors.contains("--priority"), "{errors}");
}

#[tokio::test]
async fn enqueue_replaces_and_postpones_the_job_that_waits() {
    let (db, s) = session().await;
    let put = |input: &str, more: &[&str]| {
        let all = [
            &["enqueue", "index", input, "--unique-key", "k", "--quiet"],
            more,
        ]
        .concat();
        said(&db, &all)
    };
    let first = put("1", &[]);
    assert_eq!(put("2", &["--on-duplicate", "keep"]), first);
    assert_eq!(s.get("select input from trax.work_queue").await, "1");
    assert_eq!(put("3", &["--on-duplicate", "replace"]), first);
    let at = "2100-01-01 00:00+00";
    assert_eq!(
        put("4", &["--on-duplicate", "postpone", "--run-at", at]),
        first
    );
    let job = "select input, run_at at time zone 'UTC' from trax.work_queue";
    assert_eq!(s.get(job).await, "4|2100-01-01 00:00:00");
}

#[tokio::test]
async fn tasks_are_set_listed_exported_and_reset() {
    let (db, s) = session().await;
    said(
        &db,
        &[
            "task",
            "set",
            "mail",
            "--max-retries",
            "8",
            "--retry-delay",
            "10s",
            "--backoff",
            "1.5",
            "--retry-delay-max",
            "1 day",
            "--timeout",
            "30s",
            "--on-final-failure",
            "acknowledge",
        ],
    );
    said(&db, &["task", "set", "scan", "--max-retries", "0"]);
    let listed = objects(&db, &["task", "list"]);
    assert_eq!(
        listed[0],
        json!({"name": "mail", "max_retries": 8, "retry_delay": "00:00:10", "backoff": 1.5, "retry_delay_max": "24:00:00",
            "timeout": "00:00:30", "on_final_failure": "acknowledge"})
    );
    assert_eq!(said(&db, &["task", "list", "-q"]), "mail\nscan\n");
    let exported = said(&db, &["manifest", "export"]);
    assert!(
        exported.contains("[[tasks]]\nname = \"mail\""),
        "{exported}"
    );
    let files = harness::process::Scratch::new("tasks");
    let path = files.path().join("tasks.toml");
    std::fs::write(&path, exported).expect("a file can be written");
    let path = path.display().to_string();
    said(&db, &["manifest", "diff", &path, "--exit-code"]);
    said(&db, &["task", "reset", "mail", "scan"]);
    assert_eq!(s.number("select count(*) from trax.task").await, 0);
    said(&db, &["manifest", "apply", &path, "--yes"]);
    assert_eq!(objects(&db, &["task", "list"]), listed);
}

#[tokio::test]
async fn a_full_group_shows_its_limit_of_waiting_jobs() {
    let (db, s) = session().await;
    let set = ["group", "set", "g", "--max-waiting", "1"];
    said(&db, &[&set[..], &["--overflow", "drop_oldest"]].concat());
    s.get("select * from trax.enqueue_many('a', '{1, 2}', group_name => 'g')")
        .await;
    let listed = &objects(&db, &["group", "list"])[0];
    assert_eq!(
        (
            &listed["max_waiting"],
            &listed["overflow"],
            &listed["ready"]
        ),
        (&json!(1), &json!("drop_oldest"), &json!(1))
    );
    let table = said(&db, &["group", "list"]);
    assert!(table.contains("1, drop_oldest"), "{table}");
    said(&db, &[&set[..], &["--overflow", "reject"]].concat());
    let errors = refused(&db, 1, &["enqueue", "a", "--group", "g"]);
    assert!(errors.contains("group \"g\" is full"), "{errors}");
}
