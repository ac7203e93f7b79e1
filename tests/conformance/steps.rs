//! The scenarios with steps: a worker records, replays, waits, and stops.

use super::scenario::{SOON, take_away};
use super::trial::{Running, Start, Trial, Verdict, is, within};

/// Waits until the job is suspended in this step, without a lease.
async fn suspended(trial: &Trial, job: i64, step: &str, by: &Running) -> Verdict {
    let open = format!(
        "select string_agg(step, ' ') from trax.read_steps({job}) where recorded_at is null"
    );
    within("the job is suspended", SOON * 3, async || {
        let (state, open) = (trial.state(job).await?, trial.value(&open).await?);
        match (state.as_str(), open.as_str()) {
            ("0 queued", open) if open == step => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await?;
    // Its place is free.
    trial.works(by).await
}

/// Steps are recorded once, whatever their names, and later attempts get the kept results.
pub(super) async fn steps(trial: &Trial) -> Verdict {
    let input = r#"[
        {"do": "step", "name": "a"},
        {"do": "step", "name": "a"},
        {"do": "step", "name": "old", "until_attempt": 1},
        {"do": "spawn", "name": "child", "task": "conformance.echo", "input": {"n": 1}},
        {"do": "fail", "until_attempt": 1},
        {"do": "step", "name": "b"},
        {"do": "children"}
    ]"#;
    let worker = trial.start(Start::CALM);
    let job = trial.enqueue("steps", input, ", max_retries => 1").await?;
    trial.becomes(job, "2 completed", &worker).await?;
    is("steps run", trial.steps_run(job)?, names("a a old b"))?;
    let kept = format!(
        "select concat_ws(' ', r.output -> 0 = s.kept -> 'a', r.output -> 1 = s.kept -> 'a#2',
            r.output -> 3 = s.kept -> 'child', r.output -> 5 = s.kept -> 'b',
            r.output -> 6 -> 0 ->> 'state', r.output -> 6 -> 0 -> 'output')
        from trax.run r,
            (select jsonb_object_agg(step, output) as kept from trax.read_steps({job})) s
        where r.job_id = {job} and r.state = 'completed'"
    );
    let seen = trial.value(&kept).await?;
    is("results", seen.as_str(), r#"t t t t completed {"n": 1}"#)?;
    let children = "select count(*) from trax.run where task = 'conformance.echo'";
    is("children", trial.value(children).await?.as_str(), "1")?;
    let note = format!("select detail::text from trax.run where job_id = {job} and final");
    let note = trial.value(&note).await?;
    is(
        "the note of the run",
        note.as_str(),
        r#"{"unreached_steps": ["old"]}"#,
    )?;
    within("a step that was not reached is named", SOON, async || {
        let printed = trial.printed();
        match printed.contains("completed without its recorded steps \"old\"") {
            true => Ok(()),
            false => Err(printed),
        }
    })
    .await
}

/// Waits end the attempt, spend nothing, and end by time, signal, timeout or cancel.
pub(super) async fn waits(trial: &Trial) -> Verdict {
    let input = r#"[
        {"do": "sleep", "name": "nap", "ms": 1000},
        {"do": "signal", "name": "go"},
        {"do": "signal", "name": "go"},
        {"do": "signal", "name": "never", "ms": 300},
        {"do": "signal", "name": "end"}
    ]"#;
    let job = trial.enqueue("steps", input, ", max_retries => 0").await?;
    for n in [1, 2] {
        send(trial, job, "go", n).await?;
    }
    let worker = trial.start(Start::CALM);
    suspended(trial, job, "end", &worker).await?;
    send(trial, job, "end", 3).await?;
    trial.becomes(job, "1 completed", &worker).await?;
    let output = format!("select output from trax.run where job_id = {job}");
    is(
        "results",
        trial.value(&output).await?.as_str(),
        r#"[null, {"n": 1}, {"n": 2}, "timed out", {"n": 3}]"#,
    )?;
    is("runs", trial.runs(job).await?.as_str(), "1 completed")?;
    let input = r#"[
        {"do": "step", "name": "a", "undo": {"task": "conformance.echo", "input": {"of": "a"}}},
        {"do": "signal", "name": "never"}
    ]"#;
    let job = trial.enqueue("steps", input, "").await?;
    suspended(trial, job, "never", &worker).await?;
    let cancel = format!("trax.cancel({job})");
    is("cancel", trial.value(&cancel).await?.as_str(), "cancelled")?;
    let undone = "select output from trax.run where input -> 'of' is not null
        and task = 'conformance.echo' and state = 'completed'";
    within("the step is undone", SOON, async || {
        match trial.value(undone).await?.as_str() {
            r#"{"of": "a"}"# => Ok(()),
            seen => Err(seen.to_owned()),
        }
    })
    .await?;
    is("steps run", trial.steps_run(job)?, names("a"))
}

/// A step whose lease is lost while it runs is not recorded, and its handler stops.
pub(super) async fn step_stops(trial: &Trial) -> Verdict {
    let input = r#"[
        {"do": "step", "name": "slow", "ms": 2500},
        {"do": "step", "name": "after"}
    ]"#;
    // No heartbeat is due before the step ends.
    let worker = trial.start(Start::CALM);
    let job = trial.enqueue("steps", input, "").await?;
    within("the step begins", SOON, async || {
        match trial.steps_run(job)? {
            seen if seen == names("slow") => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await?;
    // The heartbeat that says that the job has begun would say that it is lost.
    let begun = format!("select not ahead from trax.lease where job_id = {job}");
    within("the begin is reported", SOON, async || {
        match trial.value(&begun).await?.as_str() {
            "true" => Ok(()),
            seen => Err(seen.to_owned()),
        }
    })
    .await?;
    let released = take_away(trial, job, "release(job_id, token)").await?;
    is("taken away", released.as_str(), "true")?;
    let claim = "select token from trax.claim_next(worker => 'suite', tasks => '{conformance.steps}', lease => '1 h')";
    let token = trial.value(claim).await?;
    trial.logs(SOON, "stopped", (job, 1), &worker).await?;
    trial.works(&worker).await?;
    let steps = format!("select count(*) from trax.read_steps({job})");
    is("recorded", trial.value(&steps).await?.as_str(), "0")?;
    let record = format!(
        "select recorded from trax.record_step({job}, '{token}', 'slow', '\"by the suite\"')"
    );
    is("recorded now", trial.value(&record).await?.as_str(), "true")?;
    let release = format!("trax.release({job}, '{token}')");
    is("released", trial.value(&release).await?.as_str(), "true")?;
    trial.becomes(job, "1 completed", &worker).await?;
    let output = format!("select output ->> 0 from trax.run where job_id = {job}");
    let output = trial.value(&output).await?;
    is("the kept result", output.as_str(), "by the suite")?;
    is("steps run", trial.steps_run(job)?, names("slow after"))
}

async fn send(trial: &Trial, job: i64, name: &str, n: i32) -> Verdict {
    let sql = format!("trax.send_signal({job}, '{name}', '{{\"n\": {n}}}')");
    is("send", trial.value(&sql).await?.as_str(), "sent")
}

fn names(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}
