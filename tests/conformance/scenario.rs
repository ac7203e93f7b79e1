//! The requirements on a worker, one scenario each.

use super::log::most_at_once;
use super::trial::{Start, Trial, Verdict, is, now, promptly, within};
use super::{many, rates, refusal, steps, unheard, versions};
use harness::PATIENCE;
use harness::scheduler::scheduler_of;
use std::time::Duration;
use trax_client::testkit::{Server, Stop};

/// Longer than any scenario.
const FOREVER: u32 = 300_000;
/// The time that a busy machine may need for an immediate action of a worker.
pub(super) const SOON: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scenario {
    /// Jobs are claimed, one transaction each, and their outputs are recorded.
    Claims,
    /// The worker runs as many jobs at once as configured, and no more.
    Concurrency,
    /// A job that takes longer than its lease keeps it.
    Heartbeats,
    /// A handler stops when its lease is lost.
    LostLease,
    /// An outcome with a lost lease is not recorded, even if another attempt is running.
    StaleToken,
    /// A cancel stops the handler.
    Cancel,
    /// Errors are retried with a delay, and then fail for good.
    Failures,
    /// A job is postponed without spending an attempt.
    Snooze,
    /// An output that the server refuses ends its job.
    TooLarge,
    /// An output that takes too long to send ends its job.
    Slow,
    /// The worker reacts to each refused outcome as the table says.
    Refusals,
    /// A handler that runs longer than its timeout is stopped.
    Timeout,
    /// Without heartbeats the worker claims nothing and keeps its leases.
    Unheard,
    /// The worker waits for an update of older SQL, and says so once.
    Update,
    /// Inputs that cannot be decoded fail, and no other job does.
    Poison,
    /// After the server restarts, outcomes are sent again and work continues.
    Restart,
    /// Steps are recorded once, and later attempts get the kept results.
    Steps,
    /// Waits end the attempt, spend nothing, and end by time, signal, timeout or cancel.
    Waits,
    /// A step whose lease is lost while it runs is not recorded.
    StepStops,
    /// A worker that names versions leaves jobs of other versions alone.
    Versions,
    /// A job with a rate is claimed when it can begin, and not before.
    Rates,
    /// A handler takes many jobs of one key in a call, each with its own outcome.
    Many,
    /// SIGTERM: running jobs end within the grace period.
    StopFinishes,
    /// SIGTERM: jobs that exceed the grace period are released.
    StopReleases,
    /// SIGKILL: another worker executes the job after the lease expires.
    Killed,
}

impl Scenario {
    pub(super) const ALL: [Scenario; 25] = [
        Scenario::Claims,
        Scenario::Concurrency,
        Scenario::Heartbeats,
        Scenario::LostLease,
        Scenario::StaleToken,
        Scenario::Cancel,
        Scenario::Failures,
        Scenario::Snooze,
        Scenario::TooLarge,
        Scenario::Slow,
        Scenario::Refusals,
        Scenario::Timeout,
        Scenario::Unheard,
        Scenario::Update,
        Scenario::Poison,
        Scenario::Restart,
        Scenario::Steps,
        Scenario::Waits,
        Scenario::StepStops,
        Scenario::Versions,
        Scenario::Rates,
        Scenario::Many,
        Scenario::StopFinishes,
        Scenario::StopReleases,
        Scenario::Killed,
    ];

    /// Runs the scenario; `server` is the trial's own server in `Restart`.
    pub(super) async fn play(self, trial: &mut Trial, server: Option<&mut Server>) -> Verdict {
        match (self, server) {
            (Scenario::Restart, Some(server)) => return restart(trial, server).await,
            (Scenario::Restart, None) => return Err("there is no server to restart".to_owned()),
            (Scenario::Killed, _) => return killed(trial).await,
            (Scenario::Claims, _) => claims(trial).await,
            (Scenario::Concurrency, _) => concurrency(trial).await,
            (Scenario::Heartbeats, _) => heartbeats(trial).await,
            (Scenario::LostLease, _) => lost_lease(trial).await,
            (Scenario::StaleToken, _) => stale_token(trial).await,
            (Scenario::Cancel, _) => cancel(trial).await,
            (Scenario::Failures, _) => failures(trial).await,
            (Scenario::Snooze, _) => snooze(trial).await,
            (Scenario::TooLarge, _) => refusal::too_large(trial).await,
            (Scenario::Slow, _) => refusal::slow(trial).await,
            (Scenario::Refusals, _) => refusal::refusals(trial).await,
            (Scenario::Timeout, _) => timeout(trial).await,
            (Scenario::Unheard, _) => unheard::unheard(trial).await,
            (Scenario::Update, _) => unheard::update(trial).await,
            (Scenario::Poison, _) => refusal::poison(trial).await,
            (Scenario::Steps | Scenario::Waits | Scenario::StepStops, _)
                if !trial.program.has_steps =>
            {
                Ok(())
            }
            (Scenario::Steps, _) => steps::steps(trial).await,
            (Scenario::Waits, _) => steps::waits(trial).await,
            (Scenario::StepStops, _) => steps::step_stops(trial).await,
            (Scenario::Versions, _) => versions::versions(trial).await,
            (Scenario::Rates, _) => rates::rates(trial).await,
            (Scenario::Many, _) if !trial.program.has_many => Ok(()),
            (Scenario::Many, _) => many::many(trial).await,
            (Scenario::StopFinishes, _) => stop_finishes(trial).await,
            (Scenario::StopReleases, _) => stop_releases(trial).await,
        }?;
        trial.is_sound().await
    }
}

async fn claims(trial: &Trial) -> Verdict {
    let inputs = [
        r#"{}"#,
        r#"{"text": "don't $1; \\ %s {}\n\t\"é 🐘\""}"#,
        r#"[1, -2.5, true, null, {"a": []}]"#,
        r#""a text""#,
        "0",
    ];
    let mut jobs = Vec::new();
    for input in inputs {
        jobs.push(trial.enqueue("echo", input, "").await?);
    }
    let foreign = trial.enqueue("of_another_worker", "{}", "").await?;
    let mut worker = trial.start(Start::CALM);
    for job in jobs {
        trial.becomes(job, "1 completed", &worker).await?;
        let sql = format!(
            "select concat_ws(' ', output = input, worker) from trax.run where job_id = {job}"
        );
        is(
            "output = input, and worker",
            trial.value(&sql).await?.as_str(),
            "t calm",
        )?;
    }
    // The lease is visible to others while the handler runs, so the claim has committed.
    let long = trial.begins(2000, &worker).await?;
    is(
        "a running job",
        trial.state(long).await?.as_str(),
        "1 in_progress",
    )?;
    let open = "select count(*) from pg_stat_activity where usename = 'conformance'
        and datname = current_database() and state like 'idle in transaction%'
        and now() - xact_start > '500 ms'";
    within(
        "no transaction is left open",
        Duration::from_secs(1),
        async || match trial.value(open).await?.as_str() {
            "0" => Ok(()),
            seen => Err(format!("{seen} open transactions")),
        },
    )
    .await?;
    trial.becomes(long, "1 completed", &worker).await?;
    is(
        "a task without a handler",
        trial.state(foreign).await?.as_str(),
        "0 queued",
    )?;
    worker.signal("TERM")?;
    worker.ends(SOON).await
}

async fn concurrency(trial: &Trial) -> Verdict {
    let wanted = trial.program.concurrency();
    let mut jobs = Vec::new();
    for _ in 0..wanted * 2 {
        jobs.push(trial.enqueue("wait", r#"{"ms": 1000}"#, "").await?);
    }
    let worker = trial.start(Start {
        concurrency: wanted,
        ..Start::CALM
    });
    for job in jobs {
        trial.becomes(job, "1 completed", &worker).await?;
    }
    is("handlers at once", most_at_once(&trial.log()?), wanted)
}

async fn heartbeats(trial: &Trial) -> Verdict {
    let start = trial.hasty();
    let worker = trial.start(start);
    // The lease and a cycle pass well before the job ends.
    let job = trial.begins(1500 * start.lease + 500, &worker).await?;
    trial.becomes(job, "1 completed", &worker).await?;
    is("runs", trial.runs(job).await?.as_str(), "1 completed")
}

/// Takes away the lease of a running job; returns the statement's answer.
pub(super) async fn take_away(trial: &Trial, job: i64, call: &str) -> Verdict<String> {
    let sql = format!("select trax.{call} from trax.lease where job_id = {job}");
    trial.value(&sql).await
}

async fn lost_lease(trial: &Trial) -> Verdict {
    let worker = trial.start(trial.hasty());
    let job = trial.begins(FOREVER, &worker).await?;
    let call = "fail(job_id, token, 'taken away', permanent => true)";
    is(
        "taken away",
        take_away(trial, job, call).await?.as_str(),
        "dead",
    )?;
    // A heartbeat is due after every third of a lease.
    trial.logs(SOON, "stopped", (job, 1), &worker).await?;
    trial.works(&worker).await?;
    is("runs", trial.runs(job).await?.as_str(), "1 failed error")
}

async fn stale_token(trial: &Trial) -> Verdict {
    // After the report that the job has begun, no heartbeat is due before the handler ends, so only
    // the outcome can detect the lost lease.
    let worker = trial.start(Start::CALM);
    let job = trial.begins(2500, &worker).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    is(
        "taken away",
        take_away(trial, job, "release(job_id, token)")
            .await?
            .as_str(),
        "true",
    )?;
    // The worker already runs the only job that it may run.
    let claim = "select token from trax.claim_next(worker => 'suite', tasks => '{conformance.wait}', lease => '1 h')";
    let token = trial.value(claim).await?;
    is("claimed by the suite", token.is_empty(), false)?;
    trial.logs(SOON, "ended", (job, 1), &worker).await?;
    trial.works(&worker).await?;
    is(
        "runs of the job of another",
        trial.runs(job).await?.as_str(),
        "",
    )?;
    let complete = format!("trax.complete({job}, '{token}')");
    is(
        "the lease of another",
        trial.value(&complete).await?.as_str(),
        "true",
    )
}

async fn cancel(trial: &Trial) -> Verdict {
    let program = &trial.program;
    let lease = program.lease_of_cancel();
    let worker = trial.start(Start {
        lease,
        ..Start::CALM
    });
    promptly("a cancel", program.cancels_within(), async || {
        let job = trial.begins(FOREVER, &worker).await?;
        let asked = now();
        let sql = format!("trax.cancel({job})");
        is("cancel", trial.value(&sql).await?.as_str(), "requested")?;
        let stopped = trial.logs(SOON * 2, "stopped", (job, 1), &worker).await?;
        trial.becomes(job, "1 cancelled", &worker).await?;
        is("runs", trial.runs(job).await?.as_str(), "1 cancelled")?;
        Ok(Duration::from_millis(stopped.at.abs_diff(asked)))
    })
    .await?;
    trial.works(&worker).await
}

/// The minutes until a waiting job is claimable, rounded.
async fn delay(trial: &Trial, job: i64) -> Verdict<String> {
    let sql = format!(
        "select round(extract(epoch from run_at - now()) / 60) || ' min' from trax.job where job_id = {job}"
    );
    trial.value(&sql).await
}

async fn failures(trial: &Trial) -> Verdict {
    let worker = trial.start(Start::CALM);
    let text = r#"{"error": "it's \"broken\" \\ $1"}"#;
    let once = trial.enqueue("fail", text, ", max_retries => 1").await?;
    trial.becomes(once, "2 failed", &worker).await?;
    is(
        "runs",
        trial.runs(once).await?.as_str(),
        "1 failed error, 2 failed error",
    )?;
    let told = format!(
        "select bool_and(position(input ->> 'error' in error) > 0) from trax.run where job_id = {once}"
    );
    is(
        "the error is recorded",
        trial.value(&told).await?.as_str(),
        "true",
    )?;
    let gone = trial
        .enqueue("fail_permanently", text, ", max_retries => 5")
        .await?;
    trial.becomes(gone, "1 failed", &worker).await?;
    let dead = format!("select count(*) from trax.dead_letter where job_id in ({once}, {gone})");
    is("dead letters", trial.value(&dead).await?.as_str(), "2")?;
    let input = r#"{"seconds": 600}"#;
    let later = trial
        .enqueue("retry_in", input, ", max_retries => 5")
        .await?;
    trial.becomes(later, "1 queued", &worker).await?;
    is("runs", trial.runs(later).await?.as_str(), "1 failed error")?;
    is("its delay", delay(trial, later).await?.as_str(), "10 min")
}

async fn snooze(trial: &Trial) -> Verdict {
    let worker = trial.start(Start::CALM);
    let job = trial.enqueue("snooze", r#"{"seconds": 600}"#, "").await?;
    trial.logs(PATIENCE / 3, "done", (job, 1), &worker).await?;
    trial.becomes(job, "0 queued", &worker).await?;
    is("runs", trial.runs(job).await?.as_str(), "")?;
    is("its delay", delay(trial, job).await?.as_str(), "10 min")
}

/// The handler stops soon after its timeout, and the run records it.
async fn timeout(trial: &Trial) -> Verdict {
    const TIMEOUT: i64 = 2000;
    let lease = trial.program.lease_of_cancel();
    let worker = trial.start(Start {
        lease,
        ..Start::CALM
    });
    let input = format!("{{\"ms\": {FOREVER}}}");
    promptly("a timeout", trial.program.cancels_within(), async || {
        let options = format!(", timeout => '{TIMEOUT} ms', max_retries => 0");
        let job = trial.enqueue("wait", &input, &options).await?;
        let begun = trial.logs(SOON, "begin", (job, 1), &worker).await?;
        let stopped = trial.logs(SOON * 2, "stopped", (job, 1), &worker).await?;
        trial.becomes(job, "1 failed", &worker).await?;
        is("runs", trial.runs(job).await?.as_str(), "1 failed timeout")?;
        let late = u64::try_from(stopped.at - begun.at - TIMEOUT);
        let late = late.map_err(|_| format!("{stopped:?} before its time: {begun:?}"))?;
        Ok(Duration::from_millis(late))
    })
    .await?;
    trial.works(&worker).await
}

async fn restart(trial: &mut Trial, server: &mut Server) -> Verdict {
    let worker = trial.start(Start::CALM);
    // The handler ends while the server is down.
    let job = trial.begins(1500, &worker).await?;
    stop(server, Stop::Fast);
    trial.logs(SOON, "done", (job, 1), &worker).await?;
    server.start().expect("the server starts");
    trial.connect().await;
    trial.becomes(job, "1 completed", &worker).await?;
    is("runs", trial.runs(job).await?.as_str(), "1 completed")?;
    let limit = trial.program.returns_within();
    let mut how = [Stop::Immediate, Stop::Fast].into_iter().cycle();
    promptly("the way back", limit, async || {
        // The worker has handled everything it received before the stop, and waits for work.
        trial.works(&worker).await?;
        stop(server, how.next().unwrap_or(Stop::Fast));
        server.start().expect("the server starts");
        let ready = now();
        trial.connect().await;
        let next = trial.begins(1, &worker).await?;
        let lines = trial.log()?;
        let begun = lines.iter().find(|line| line.job == next);
        let begun = begun.map_or(i64::MAX, |line| line.at);
        trial.becomes(next, "1 completed", &worker).await?;
        Ok(Duration::from_millis(begun.abs_diff(ready)))
    })
    .await?;
    scheduler_of(&trial.client, trial.database.name(), PATIENCE).await;
    trial.is_sound().await
}

fn stop(server: &mut Server, how: Stop) {
    server.stop(how).expect("the server stops");
}

async fn stop_finishes(trial: &Trial) -> Verdict {
    let mut worker = trial.start(Start::CALM);
    let last = trial.begins(2000, &worker).await?;
    let left = trial.enqueue("wait", r#"{"ms": 1}"#, "").await?;
    worker.signal("TERM")?;
    worker.ends(SOON).await?;
    is(
        "the job in hand",
        trial.state(last).await?.as_str(),
        "1 completed",
    )?;
    is(
        "the next one",
        trial.state(left).await?.as_str(),
        "0 queued",
    )?;
    let begun = trial.log()?.iter().any(|line| line.job == left);
    is("the next one has begun", begun, false)
}

async fn stop_releases(trial: &Trial) -> Verdict {
    let mut worker = trial.start(Start {
        grace: 1,
        concurrency: trial.program.concurrency(),
        ..Start::CALM
    });
    let mut jobs = Vec::new();
    for _ in 0..trial.program.concurrency() {
        jobs.push(trial.begins(FOREVER, &worker).await?);
    }
    worker.signal("TERM")?;
    worker.ends(SOON).await?;
    for job in jobs {
        is(
            "a job after the stop",
            trial.state(job).await?.as_str(),
            "0 queued",
        )?;
        is("runs", trial.runs(job).await?.as_str(), "")?;
        let lines = trial.log()?;
        let stopped = |line: &&super::log::Line| line.job == job && line.what == "stopped";
        is(
            "handlers that were stopped",
            lines.iter().filter(stopped).count(),
            1,
        )?;
    }
    Ok(())
}

async fn killed(trial: &Trial) -> Verdict {
    let start = trial.hasty();
    let first = trial.start(start);
    let job = trial.begins(1000 * start.lease + 2000, &first).await?;
    // The server must know that the job has begun; a prefetched job would spend no attempt.
    let end = format!("select lease_expires_at from trax.lease where job_id = {job}");
    let before = trial.value(&end).await?;
    within("a heartbeat", SOON, async || {
        match trial.value(&end).await? {
            seen if seen.is_empty() || seen == before => Err(seen),
            _ => Ok(()),
        }
    })
    .await?;
    let killed = now();
    first.signal("KILL")?;
    let second = trial.start(Start {
        name: "second",
        ..start
    });
    trial.logs(PATIENCE / 3, "begin", (job, 2), &second).await?;
    trial.becomes(job, "2 completed", &second).await?;
    let runs = "1 failed lease_expired, 2 completed";
    is("runs", trial.runs(job).await?.as_str(), runs)?;
    let lines = trial.log()?;
    let mut worked_on = lines.iter().filter(|line| {
        let of_first = (line.job, line.attempt, line.what.as_str()) == (job, 1, "done");
        of_first && line.at > killed
    });
    is("what the killed one still did", worked_on.next(), None)
}
