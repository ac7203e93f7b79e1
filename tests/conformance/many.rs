//! Handlers that take many jobs in one call: of one key, each job with an outcome of its own.

use super::scenario::SOON;
use super::trial::{Start, Trial, Verdict, is, within};

/// The jobs of a full call (README.md).
const FULL: usize = 3;

async fn enqueue(trial: &Trial, key: &str, how: &str, jobs: usize) -> Verdict<Vec<i64>> {
    let input = format!(r#"{{"key": "{key}", "do": "{how}"}}"#);
    let mut queued = Vec::new();
    for _ in 0..jobs {
        queued.push(trial.enqueue("many", &input, ", max_retries => 0").await?);
    }
    Ok(queued)
}

/// Waits until the jobs are claimed; no call of them begins.
async fn gathered(trial: &Trial, jobs: &[i64]) -> Verdict {
    for &job in jobs {
        let state = within("a job is claimed", SOON, async || {
            match trial.state(job).await? {
                state if state == "0 queued" => Err(state),
                state => Ok(state),
            }
        })
        .await?;
        is(
            "a job whose call is not full",
            state.as_str(),
            "1 in_progress",
        )?;
    }
    let begun = trial.log()?.iter().any(|line| jobs.contains(&line.job));
    is("a call that is not full has begun", begun, false)
}

pub(super) async fn many(trial: &Trial) -> Verdict {
    let start = Start {
        concurrency: 3 * FULL,
        grace: 1,
        ..Start::CALM
    };
    let mut worker = trial.start(start);
    let waiting = enqueue(trial, "b", "complete", FULL - 1).await?;
    gathered(trial, &waiting).await?;
    let mut full = enqueue(trial, "a", "complete", FULL - 1).await?;
    gathered(trial, &full).await?;
    full.extend(enqueue(trial, "a", "complete", 1).await?);
    for &job in &full {
        trial.becomes(job, "1 completed", &worker).await?;
    }
    gathered(trial, &waiting).await?;
    let failing = enqueue(trial, "b", "fail", 1).await?;
    trial.becomes(failing[0], "1 failed", &worker).await?;
    for &job in full.iter().chain(&waiting) {
        trial.becomes(job, "1 completed", &worker).await?;
        let output = format!("select output from trax.run where job_id = {job}");
        let together = trial.value(&output).await?;
        is("jobs in the call", together.as_str(), "3")?;
    }
    let left = enqueue(trial, "c", "complete", FULL - 1).await?;
    gathered(trial, &left).await?;
    worker.signal("TERM")?;
    worker.ends(SOON).await?;
    for &job in &left {
        let state = trial.state(job).await?;
        is(
            "a job in no call after the stop",
            state.as_str(),
            "0 queued",
        )?;
        is("runs", trial.runs(job).await?.as_str(), "")?;
    }
    let begun = trial.log()?.iter().any(|line| left.contains(&line.job));
    is("a call begins although the worker ends", begun, false)
}
