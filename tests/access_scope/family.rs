//! The limits of a role, and what a job leads to: its children, and the jobs that undo its steps.

use super::{MAIL, assert_denied, limited};
use harness::session::{Session, session};

#[tokio::test]
async fn a_limited_worker_names_only_its_own_tasks_to_undo_a_step() {
    let (db, s) = session().await;
    let (_, them) = limited(&db, &s, "sender", "'worker', tasks => '{a,b}'").await;
    s.enqueue("'a'").await;
    let job = them.claim_one("tasks => '{a}'").await;
    let record = |step: &str, task: &str| {
        format!(
            "select recorded from trax.record_step({}, '{step}', undo => '{{\"task\": \"{task}\"}}')",
            job.key()
        )
    };
    let before = s.everything().await;
    let spawn = format!("select trax.spawn({}, 'x', 'secret')", job.key());
    assert_denied(&them, &[&record("x", "secret"), &spawn]).await;
    assert_eq!(s.everything().await, before);
    assert_eq!(them.get(&record("x", "b")).await, "t");
    assert_eq!(
        them.get(&record("x", "secret")).await,
        "f",
        "what is kept names b"
    );
    them.get(&format!("select trax.cancel_own({})", job.key()))
        .await;
    assert_eq!(s.get("select task from trax.work_queue").await, "b");
}

#[tokio::test]
async fn a_job_to_undo_a_step_is_within_the_groups_of_a_limited_worker() {
    let (db, s) = session().await;
    let grant = "'worker', tasks => '{a,b}', groups => '{mine}'";
    let (role, them) = limited(&db, &s, "sender", grant).await;
    s.enqueue("'a', group_name => 'mine'").await;
    let job = them.claim_one("tasks => '{a}'").await;
    let record = format!(
        "select recorded from trax.record_step({}, 'x', undo => '{{\"task\": \"b\"}}')",
        job.key()
    );
    s.get(&format!(
        "select trax.grant_access('{role}', 'worker', tasks => '{{a,b}}', groups => '{{other}}')"
    ))
    .await;
    assert_denied(&them, &[&record]).await;
    s.get(&format!("select trax.grant_access('{role}', {grant})"))
        .await;
    assert_eq!(them.get(&record).await, "t");
}

#[tokio::test]
async fn a_tree_belongs_to_its_root_when_a_limited_producer_cancels_it() {
    let (db, s) = session().await;
    let (_, them) = limited(&db, &s, "mailer", "'producer', tasks => '{flow}'").await;
    s.enqueue("'flow'").await;
    let job = s.claim_one("").await;
    let spawn = format!("select trax.spawn({}, 'c', 'other')", job.key());
    let child = s.number(&spawn).await;
    assert_denied(&them, &[&format!("select trax.cancel({child})")]).await;
    let cancel = format!("select trax.cancel({})", job.id);
    assert_eq!(them.get(&cancel).await, "requested");
    assert_eq!(state(&s, child).await, "cancelled");
}

#[tokio::test]
async fn a_limited_producer_does_not_wait_for_the_jobs_of_others() {
    let (db, s) = session().await;
    let (_, them) = limited(&db, &s, "mailer", &format!("'producer', {MAIL}")).await;
    let job = s.enqueue("'bill.pay'").await;
    s.get(&format!(
        "begin; select from trax.work_queue where job_id = {job} for update"
    ))
    .await;
    them.get("set lock_timeout = '1 s'").await;
    for tree in ["true", "false"] {
        assert_denied(
            &them,
            &[&format!("select trax.cancel({job}, tree => {tree})")],
        )
        .await;
    }
}

async fn state(s: &Session, job_id: i64) -> String {
    s.get(&format!(
        "select state from trax.job where job_id = {job_id}"
    ))
    .await
}
