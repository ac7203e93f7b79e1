//! Versions of jobs: a worker that names versions leaves jobs of other versions alone.

use super::scenario::SOON;
use super::trial::{Start, Trial, Verdict, is};

pub(super) async fn versions(trial: &Trial) -> Verdict {
    if !trial.program.has_versions {
        return Ok(());
    }
    let mut jobs = Vec::new();
    for version in [", version => 'v1'", ", version => 'v2'", ""] {
        jobs.push(trial.enqueue("echo", "{}", version).await?);
    }
    let [old, new, any] = jobs[..] else {
        unreachable!("three were queued")
    };
    let mut worker = trial.start(Start {
        version: "v2",
        ..Start::CALM
    });
    trial.becomes(new, "1 completed", &worker).await?;
    trial.becomes(any, "1 completed", &worker).await?;
    // The job before them would have been claimed first.
    is(
        "a job of another version",
        trial.state(old).await?.as_str(),
        "0 queued",
    )?;
    // A worker that reports itself reports its versions.
    let reason = format!(
        "select string_agg(e.reason, ' ') from trax.explain_job({old}) e
        where exists (select from trax.worker w where w.info ? 'tasks')"
    );
    let reason = trial.value(&reason).await?;
    is(
        "its reason",
        ["", "version"].contains(&reason.as_str()),
        true,
    )?;
    worker.signal("TERM")?;
    worker.ends(SOON).await?;
    let worker = trial.start(Start {
        name: "second",
        ..Start::CALM
    });
    trial.becomes(old, "1 completed", &worker).await
}
