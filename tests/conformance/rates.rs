//! Rates of jobs: a job with a rate is claimed when its handler can begin, and not before.

use super::trial::{Start, Trial, Verdict, is};

pub(super) async fn rates(trial: &Trial) -> Verdict {
    trial
        .execute("select trax.configure_rate('conformance', 1000, '1 s')")
        .await?;
    let rate = ", rate => 'conformance'";
    let worker = trial.start(Start::CALM);
    // Short jobs, so that a worker that fetches jobs ahead begins to.
    for _ in 0..20 {
        trial.enqueue("echo", "{}", "").await?;
    }
    let first = trial.enqueue("echo", "{}", rate).await?;
    trial.becomes(first, "1 completed", &worker).await?;
    let long = trial.begins(1500, &worker).await?;
    let second = trial.enqueue("echo", "{}", rate).await?;
    trial.becomes(second, "1 completed", &worker).await?;
    let started_after = format!(
        "select s.started_at >= l.finished_at from trax.run s, trax.run l
        where s.job_id = {second} and l.job_id = {long}"
    );
    is(
        "claimed after the only handler has ended",
        trial.value(&started_after).await?.as_str(),
        "true",
    )
}
