//! Outcomes that the server refuses, and the expected reaction to each SQLSTATE (`sqlstates.txt`).

use super::scenario::SOON;
use super::trial::{Running, Start, Trial, Verdict, is};
use harness::proxy::Proxy;

/// The worker's reaction to a refused outcome.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Rule {
    Permanent,
    Retried,
}

/// The SQLSTATEs of a rule.
fn of(rule: Rule) -> Vec<&'static str> {
    let lines = include_str!("sqlstates.txt").lines();
    let lines = lines.filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| {
        let (code, rule) = line.split_once(' ').expect("a SQLSTATE and a rule");
        let rule = match rule {
            "permanent" => Rule::Permanent,
            "retried" => Rule::Retried,
            other => panic!("{code}: there is no rule {other}"),
        };
        (code, rule)
    });
    pairs
        .filter(|(_, its)| *its == rule)
        .map(|(code, _)| code)
        .collect()
}

/// Refuses each completion whose output names a SQLSTATE.
const REFUSE: &str = "
    create function public.refuse() returns trigger language plpgsql as $$
    declare
        code text := nullif(new.output ->> 'refused', '');
    begin
        if code is not null then
            raise exception 'refused here' using errcode = code;
        end if;
        return new;
    end $$;
    create trigger refuse before insert on trax.run for each row execute function public.refuse()";

/// Checks the end of a job whose output is refused for good at its first attempt.
async fn ends_without_output(trial: &Trial, job: i64, why: &str, by: &Running) -> Verdict {
    let (state, run, said) = match trial.program.leaves_out {
        true => ("1 completed", "1 completed", "detail ->> 'output'"),
        false => ("1 failed", "1 failed error", "error"),
    };
    trial.becomes(job, state, by).await?;
    is("runs", trial.runs(job).await?.as_str(), run)?;
    let sql = format!(
        "select concat_ws(' ', output is null, coalesce({said}, '') ~ '{why}') from trax.run where job_id = {job}"
    );
    let told = trial.value(&sql).await?;
    match told.as_str() {
        "t t" => Ok(()),
        _ => Err(format!(
            "no output, and why: {told}; {}",
            trial
                .value(&format!(
                    "select concat_ws(' | ', error, detail::text) from trax.run where job_id = {job}"
                ))
                .await?
        )),
    }
}

pub(super) async fn too_large(trial: &Trial) -> Verdict {
    let limit = "alter database {} set trax.max_input_bytes = '50kB'";
    trial
        .execute(&limit.replace("{}", trial.database.name()))
        .await?;
    let worker = trial.start(Start::CALM);
    let job = trial
        .enqueue("large", r#"{"bytes": 70000}"#, ", max_retries => 5")
        .await?;
    ends_without_output(trial, job, ".", &worker).await?;
    trial.works(&worker).await
}

/// A proxy stalls the message with the most bytes.
pub(super) async fn slow(trial: &Trial) -> Verdict {
    if !trial.program.is_whole() {
        return Ok(());
    }
    let proxy = Proxy::still_before_longer(trial.port(), 80_000).await;
    let job = trial
        .enqueue("large", r#"{"bytes": 90000}"#, ", max_retries => 5")
        .await?;
    let worker = trial.start_through(proxy.port(), trial.hasty());
    trial.logs(SOON, "done", (job, 1), &worker).await?;
    trial.works(&worker).await?;
    ends_without_output(trial, job, "no answer", &worker).await?;
    trial.works(&worker).await?;
    is("a message stood still", proxy.has_cut(), true)
}

pub(super) async fn refusals(trial: &Trial) -> Verdict {
    trial.execute(REFUSE).await?;
    let enqueue = async |codes: Vec<&'static str>| -> Verdict<Vec<i64>> {
        let mut jobs = Vec::new();
        for code in codes {
            let input = format!("{{\"refused\": \"{code}\"}}");
            jobs.push(trial.enqueue("echo", &input, ", max_retries => 5").await?);
        }
        Ok(jobs)
    };
    let permanent = enqueue(of(Rule::Permanent)).await?;
    // A one-page example need not report the server's message.
    let why = if trial.program.is_whole() {
        "refused here"
    } else {
        "refused"
    };
    let worker = trial.start(Start {
        concurrency: trial.program.concurrency(),
        ..Start::CALM
    });
    for job in permanent {
        ends_without_output(trial, job, why, &worker).await?;
    }
    trial.works(&worker).await?;
    if !trial.program.is_whole() {
        return Ok(());
    }
    // Accepted and refused outcomes are sent together, since all jobs are queued at once.
    trial.execute("begin").await?;
    let (mut retried, mut good) = (Vec::new(), Vec::new());
    for codes in of(Rule::Retried).chunks(3) {
        retried.extend(enqueue(codes.to_vec()).await?);
        good.extend(enqueue(vec![""]).await?);
    }
    trial.execute("commit").await?;
    for job in &retried {
        trial.logs(SOON * 3, "done", (*job, 1), &worker).await?;
    }
    // A refused outcome occupies no slot and delays no other outcome.
    for job in good {
        trial.becomes(job, "1 completed", &worker).await?;
    }
    trial.works(&worker).await?;
    for job in &retried {
        let state = trial.state(*job).await?;
        is(
            "one that is reported again",
            state.as_str(),
            "1 in_progress",
        )?;
    }
    trial.execute("drop trigger refuse on trax.run").await?;
    for job in retried {
        trial.becomes(job, "1 completed", &worker).await?;
        is("runs", trial.runs(job).await?.as_str(), "1 completed")?;
    }
    Ok(())
}

/// Inputs that cannot be decoded fail, and no other job does.
pub(super) async fn poison(trial: &Trial) -> Verdict {
    let deep = format!("{}{}", "[".repeat(2000), "]".repeat(2000));
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for input in [r#"{"count": "many"}"#, "[]", &deep] {
        good.push(trial.enqueue("echo", "{}", "").await?);
        bad.push(trial.enqueue("typed", input, ", max_retries => 0").await?);
        good.push(trial.enqueue("typed", r#"{"count": 7}"#, "").await?);
    }
    // All jobs are queued before the first claim.
    let worker = trial.start(Start {
        concurrency: trial.program.concurrency(),
        ..Start::CALM
    });
    for job in good {
        trial.becomes(job, "1 completed", &worker).await?;
    }
    for job in bad {
        trial.becomes(job, "1 failed", &worker).await?;
        let sql = format!(
            "select concat_ws(' ', failure_kind, error <> '') from trax.run where job_id = {job}"
        );
        is("its failure", trial.value(&sql).await?.as_str(), "error t")?;
    }
    let counts = "select string_agg(distinct output ->> 'count', ' ') from trax.run
        where task = 'conformance.typed' and state = 'completed'";
    is("outputs", trial.value(counts).await?.as_str(), "8")
}
