//! Every job exists exactly once and ends exactly once.

use super::{Violation, by};
use crate::fact::{Attempt, Facts, Job};
use std::collections::{BTreeMap, BTreeSet};

/// The complaint of `trax.check()` about an attempt during which the clock went back;
/// [`an_attempt_ends_after_it_began`] is the exact check.
const BY_THE_CLOCK: &str = "an attempt ends after it began";
/// The longest time in microseconds from the start of a statement to its lock on the unique key, on
/// a loaded machine.
const BEFORE_A_KEY: i64 = 2_000_000;

/// Every acknowledged job is in the tables. With a unique key, the acknowledged job may be one that
/// already held the key.
pub(crate) fn nothing_acknowledged_is_lost(facts: &Facts) -> Vec<Violation> {
    let nonces: BTreeSet<_> = facts
        .jobs
        .iter()
        .filter_map(|job| job.nonce.as_deref())
        .collect();
    let ids: BTreeSet<_> = facts.jobs.iter().map(|job| job.job).collect();
    let is_there = |acknowledged: &crate::fact::Acknowledgement| match acknowledged.unique {
        Some(_) => nonces.contains(&*acknowledged.nonce) || ids.contains(&acknowledged.job),
        None => nonces.contains(&*acknowledged.nonce),
    };
    facts
        .enqueued
        .iter()
        .filter(|acknowledged| !facts.may_be_lost(acknowledged.at) && !is_there(acknowledged))
        .map(|acknowledged| {
            Violation::new("an acknowledged job is lost", format!("{acknowledged:?}"))
        })
        .collect()
}

/// A job whose transaction was rolled back does not exist.
pub(crate) fn nothing_withdrawn_appears(facts: &Facts) -> Vec<Violation> {
    let nonces: BTreeSet<_> = facts
        .jobs
        .iter()
        .filter_map(|job| job.nonce.as_deref())
        .collect();
    let appears = |nonce: &&String| nonces.contains(nonce.as_str());
    let violation =
        |nonce: &String| Violation::new("a job exists that was rolled back", nonce.as_str());
    facts
        .withdrawn
        .iter()
        .filter(appears)
        .map(violation)
        .collect()
}

/// A job has one row in `trax.job`, and so does each enqueued nonce.
pub(crate) fn a_job_is_in_one_place(facts: &Facts) -> Vec<Violation> {
    let ids = by(&facts.jobs, |job| Some(job.job)).into_values();
    let originals = facts
        .jobs
        .iter()
        .filter(|job| !facts.requeued.contains(&job.job));
    let nonces = by(originals, |job| job.nonce.as_deref()).into_values();
    let violation = |rows| Violation::new("a job is in several places", format!("{rows:?}"));
    ids.chain(nonces)
        .filter(|rows| rows.len() > 1)
        .map(violation)
        .collect()
}

/// At most one final run, at most one completion, and no attempt after the final one.
pub(crate) fn a_job_ends_once(facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    for (job, attempts) in by(&facts.attempts, |attempt| Some(attempt.job)) {
        let finals: Vec<_> = attempts.iter().filter(|attempt| attempt.is_final).collect();
        let completions = attempts
            .iter()
            .filter(|one| one.state == "completed")
            .count();
        if finals.len() > 1 || completions > 1 {
            found.push(Violation::new(
                "a job ends more than once",
                format!("job {job}: {attempts:?}"),
            ));
        }
        let last = attempts.iter().map(|attempt| attempt.attempt).max();
        if finals.iter().any(|one| Some(one.attempt) < last) {
            found.push(Violation::new(
                "a job goes on after its end",
                format!("job {job}: {attempts:?}"),
            ));
        }
        let numbers = by(&attempts, |attempt| {
            attempt.started_at.map(|_| attempt.attempt)
        });
        for (number, rows) in numbers {
            if rows.len() > 1 {
                found.push(Violation::new(
                    "an attempt is recorded twice",
                    format!("job {job}, attempt {number}"),
                ));
            }
        }
    }
    found
}

/// Every acknowledged completion is in the history.
pub(crate) fn an_acknowledged_completion_stays(facts: &Facts) -> Vec<Violation> {
    let completed: BTreeSet<_> = facts
        .attempts
        .iter()
        .filter(|attempt| attempt.state == "completed")
        .map(|attempt| attempt.job)
        .collect();
    facts
        .completed
        .iter()
        .filter(|acknowledged| {
            !facts.may_be_lost(acknowledged.at) && !completed.contains(&acknowledged.job)
        })
        .map(|acknowledged| {
            Violation::new(
                "an acknowledged completion is lost",
                format!("{acknowledged:?}"),
            )
        })
        .collect()
}

/// An effect that is committed with a completion exists once for each completed job, and for no
/// other job.
pub(crate) fn effects_come_with_their_completion(facts: &Facts) -> Vec<Violation> {
    let mut effects: BTreeMap<i64, usize> = BTreeMap::new();
    for (job, _) in &facts.ledger {
        *effects.entry(*job).or_default() += 1;
    }
    let mut found = Vec::new();
    for job in &facts.jobs {
        let Some(nonce) = job
            .nonce
            .as_deref()
            .filter(|nonce| nonce.starts_with("ledger"))
        else {
            continue;
        };
        let seen = effects.remove(&job.job).unwrap_or(0);
        if seen != usize::from(job.state == "completed") {
            let detail = format!(
                "{nonce}: job {} is {} and has {seen} effects",
                job.job, job.state
            );
            found.push(Violation::new(
                "an effect and its completion are not one",
                detail,
            ));
        }
    }
    for (job, count) in effects {
        found.push(Violation::new(
            "an effect has no job",
            format!("job {job}, {count} times"),
        ));
    }
    found
}

/// Two jobs with the same unique key are never alive at once in one database. A statement takes the
/// key some time after it begins, so a job counts as alive only `BEFORE_A_KEY` after `queued_at`.
pub(crate) fn a_unique_key_is_alive_once(facts: &Facts) -> Vec<Violation> {
    let taken = |job: &Job| {
        let lags = |(from, until): &&(i64, i64)| (*from..=*until).contains(&job.queued_at);
        let lag = facts.lags.iter().filter(lags).map(|(_, until)| *until);
        lag.max().unwrap_or(job.queued_at) + BEFORE_A_KEY
    };
    let alive = |job: &&Job| {
        let (from, until) = (taken(job), job.finished_at.unwrap_or(i64::MAX));
        (from < until && !facts.is_stepped(job.queued_at, from)).then_some((from, until))
    };
    let mut found = Vec::new();
    let keys = by(&facts.jobs, |job| Some((job.unique.as_deref()?, job.shard)));
    for ((key, _), mut jobs) in keys {
        jobs.retain(|job| alive(job).is_some());
        jobs.sort_by_key(|job| alive(job));
        for pair in jobs.windows(2) {
            if alive(&pair[1]).map(|(from, _)| from) < alive(&pair[0]).map(|(_, until)| until) {
                let detail = format!("{key}: {pair:?}");
                found.push(Violation::new("a unique key is alive twice", detail));
            }
        }
    }
    found
}

/// After the drain, no job waits or runs. Jobs of manifests are left out, since manifests keep
/// running.
pub(crate) fn every_job_ends(facts: &Facts) -> Vec<Violation> {
    if facts.is_drained {
        return Vec::new();
    }
    let is_open =
        |job: &&Job| job.nonce.is_some() && matches!(&*job.state, "queued" | "in_progress");
    facts
        .jobs
        .iter()
        .filter(is_open)
        .map(|job| Violation::new("a job has not ended", format!("{job:?}")))
        .collect()
}

/// `trax.check()` reports nothing.
pub(crate) fn the_server_finds_nothing(facts: &Facts) -> Vec<Violation> {
    let violation =
        |complaint: &String| Violation::new("trax.check() complains", complaint.as_str());
    let steps_back = facts.steps.iter().any(|(before, after)| after < before);
    facts
        .complaints
        .iter()
        .filter(|complaint| !(steps_back && complaint.starts_with(BY_THE_CLOCK)))
        .map(violation)
        .collect()
}

/// An attempt ends before it begins only if the clock went back.
pub(crate) fn an_attempt_ends_after_it_began(facts: &Facts) -> Vec<Violation> {
    let is_odd = |attempt: &&Attempt| {
        let (Some(began), Some(ended)) = (attempt.started_at, attempt.finished_at) else {
            return false;
        };
        ended < began && !facts.is_stepped(ended, began)
    };
    let violation =
        |attempt| Violation::new("an attempt ends before it began", format!("{attempt:?}"));
    facts
        .attempts
        .iter()
        .filter(is_odd)
        .map(violation)
        .collect()
}
