//! Steps, waits, signals and children.

mod cancel;
mod child;
mod fork;
mod signal;
mod step;
mod undo;
mod version;
mod wait;

use harness::session::{Claimed, Session};

/// Queues a job and claims it.
pub(crate) async fn running(s: &Session) -> Claimed {
    s.enqueue("'flow'").await;
    s.claim_one("tasks => '{flow}'").await
}

/// Returns the steps of a job: name, kind, result and whether it is recorded.
pub(crate) async fn steps(s: &Session, job_id: i64) -> String {
    s.get(&format!(
        "select step, kind, output, recorded_at is not null from trax.read_steps({job_id})"
    ))
    .await
}

/// Returns where a waiting job is: what it waits for, its attempts and its steps.
pub(crate) async fn place(s: &Session, job_id: i64) -> String {
    s.get(&format!(
        "select waits_for, attempts, steps from trax.work_queue where job_id = {job_id}"
    ))
    .await
}
