//! Graphs: jobs that need others; batches. Each test counts cycles: nothing else runs one.

mod batch;
mod decide;
mod document;
mod event;
mod letter;
mod overflow;
mod race;

use harness::session::Session;
use std::collections::HashMap;

/// Queues a graph of jobs, each written `name:needed,needed/when`, whose tasks have their names;
/// returns their ids.
pub(crate) async fn queued(s: &Session, jobs: &str, on_failure: &str) -> HashMap<String, i64> {
    let jobs: Vec<String> = jobs.split_whitespace().map(job).collect();
    let sql = format!(
        r#"select * from trax.enqueue_graph('{{"jobs": [{}], "on_failure": "{on_failure}"}}')"#,
        jobs.join(", ")
    );
    let rows = s.get(&sql).await;
    let pair = |line: &str| {
        let (name, id) = line.split_once('|').expect("two columns");
        (name.to_owned(), id.parse().expect("an id is a number"))
    };
    rows.lines().map(pair).collect()
}

fn job(text: &str) -> String {
    let (text, when) = match text.split_once('/') {
        Some((text, when)) => (text, format!(r#", "when": "{when}""#)),
        None => (text, String::new()),
    };
    let (name, needs) = text.split_once(':').unwrap_or((text, ""));
    let needs: Vec<String> = needs
        .split(',')
        .filter(|need| !need.is_empty())
        .map(|need| format!("\"{need}\""))
        .collect();
    format!(
        r#"{{"name": "{name}", "task": "{name}", "needs": [{}]{when}}}"#,
        needs.join(", ")
    )
}

/// Claims the job of a task and completes it.
pub(crate) async fn complete(s: &Session, task: &str) {
    let job = s.claim_one(&format!("tasks => '{{{task}}}'")).await;
    s.get(&format!(
        "select trax.complete({}, '\"{task}\"')",
        job.key()
    ))
    .await;
}

/// Claims the job of a task and lets it fail for good.
pub(crate) async fn fail(s: &Session, task: &str) {
    let job = s.claim_one(&format!("tasks => '{{{task}}}'")).await;
    s.get(&format!(
        "select trax.fail({}, 'no', permanent => true)",
        job.key()
    ))
    .await;
}

/// Returns the jobs of the graph of a job with their states.
pub(crate) async fn states(s: &Session, job_id: i64) -> String {
    let sql = format!(
        "select string_agg(coalesce(name, task) || ' ' || state, ', ' order by job_id) from trax.read_graph({job_id})"
    );
    s.get(&sql).await
}

/// Checks that nobody waits for anything any more.
pub(crate) async fn assert_no_needs(s: &Session) {
    let left = "select (select count(*) from trax.need), (select count(*) from trax.need_event)";
    assert_eq!(s.get(left).await, "0|0");
    s.assert_healthy().await;
}
