//! Runs one job inline through its waits, for tests of handlers with steps.

use std::time::Duration;

use tokio_postgres::GenericClient;

use crate::id::JobId;
use crate::testkit::{self, Error, Living, Ran, pass_time};
use crate::worker::Worker;

/// The number of attempts, skipped times and cycles after which a job counts as endless.
const MOST: usize = 10_000;

/// The next act for a job.
enum Next {
    Run(String),
    Pass(Duration),
    /// The end of a job is only noticed in a cycle.
    Cycle,
    Signal(JobId, String),
    Other,
}

impl<S: Send + Sync + 'static> Worker<S> {
    /// Runs a job inline as [`run_one`](Self::run_one) does, again and again until it ends or waits
    /// for a signal, and returns its last attempt.
    ///
    /// Time is skipped while it sleeps or waits for a retry
    /// ([`pass_time`](crate::testkit::pass_time)). While it waits for its children they run in the
    /// same way, so the worker needs a handler for each of their tasks; older jobs of these tasks
    /// run before. When it waits for a signal
    /// ([`Ended::Suspended`](crate::testkit::Ended::Suspended)), the test sends it with
    /// [`Client::send_signal`](crate::Client::send_signal), or lets time pass, and calls this
    /// again.
    ///
    /// # Errors
    /// If the job has ended before or does not exist, or nothing that the test may do makes it
    /// ready; the text lists the waiting jobs. A failure of the handler is not an error here but
    /// part of [`Ran`].
    pub async fn run_through<C: GenericClient + Sync>(
        &self,
        db: &C,
        job_id: JobId,
    ) -> Result<Ran, Error> {
        let mut last = None;
        let mut has_cycled = false;
        for _ in 0..MOST {
            let tree = testkit::living(db, job_id).await?;
            let is_cycle = match next(&tree, job_id) {
                None => {
                    let ended = format!("job {job_id} has ended before, or does not exist");
                    return last.ok_or_else(|| Error::new(ended));
                }
                Some(Next::Run(task)) => {
                    let ran = self.run_one(db, &task).await?;
                    match ran.job_id == job_id {
                        true => last = Some(ran),
                        // A cycle wakes the job that waits for the first of its children.
                        false => testkit::cycle(db).await?,
                    }
                    false
                }
                Some(Next::Pass(time)) => {
                    pass_time(db, time).await?;
                    false
                }
                Some(Next::Cycle) if !has_cycled => {
                    testkit::cycle(db).await?;
                    true
                }
                Some(Next::Signal(waiting, name)) => {
                    let send = format!(
                        "job {waiting} waits for the signal \"{name}\"; send it with Client::send_signal"
                    );
                    return match last {
                        Some(ran) if waiting == job_id => Ok(ran),
                        _ => Err(Error::new(send)),
                    };
                }
                Some(Next::Cycle | Next::Other) => {
                    return Err(testkit::stuck(db, format!("job {job_id} cannot run")).await);
                }
            };
            has_cycled = is_cycle;
        }
        Err(Error::new(format!(
            "job {job_id} has not ended in {MOST} attempts"
        )))
    }
}

/// Returns the next act for a job; `None` if the job does not wait. `tree` is the job and its
/// descendants.
fn next(tree: &[Living], job_id: JobId) -> Option<Next> {
    let job = tree.iter().find(|living| living.job_id == job_id)?;
    if job.waits_for.as_deref() != Some("jobs") {
        return Some(of(job));
    }
    let others = || tree.iter().filter(move |living| living.job_id != job_id);
    let with =
        |waits_for: Option<&str>| others().find(|living| living.waits_for.as_deref() == waits_for);
    let ready = with(None).or_else(|| with(Some("time")));
    Some(match ready.or_else(|| with(Some("signal"))) {
        Some(living) => of(living),
        None if others().all(|living| living.waits_for.as_deref() == Some("jobs")) => Next::Cycle,
        None => Next::Other,
    })
}

fn of(living: &Living) -> Next {
    match living.waits_for.as_deref() {
        None => Next::Run(living.task.clone()),
        // A job is due at the very time.
        Some("time") => Next::Pass(living.due_in + Duration::from_millis(1)),
        Some("signal") => {
            let name = living.signal.clone().unwrap_or_default();
            Next::Signal(living.job_id, name)
        }
        Some(_) => Next::Other,
    }
}
