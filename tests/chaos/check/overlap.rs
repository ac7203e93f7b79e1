//! Compares the handlers' own logs with the recorded attempts.

use super::{Violation, by};
use crate::fact::{Attempt, Crash, Execution, Facts};
use crate::workflow::fact::Kept;
use crate::workflow::{UNDO, WORKFLOW};
use std::collections::BTreeMap;

/// The longest time between a claim and a crash that undoes it, counted from the start of the
/// handler, in microseconds.
const BEFORE_A_CRASH: i64 = 10_000_000;
/// Tasks whose handlers write a log.
const LOGGED: [&str; 6] = ["work", "tick", "exec", "count.words", WORKFLOW, UNDO];
/// Tasks whose handlers log as soon as they begin; an external program needs a moment until its
/// first line.
const LOGGED_AT_ONCE: [&str; 2] = ["work", "tick"];
/// The number of times in a row that a prefetched job may be lost without spending an attempt.
const FREE_LOSSES: usize = 3;

fn recorded(facts: &Facts) -> BTreeMap<(i64, i32), &Attempt> {
    let key = |attempt: &Attempt| (attempt.job, attempt.attempt);
    facts
        .attempts
        .iter()
        .map(|attempt| (key(attempt), attempt))
        .collect()
}

/// Whether the server may have forgotten the start of `first` by the time `second` began.
fn was_undone(facts: &Facts, first: &Execution, second: &Execution) -> bool {
    let steps = facts
        .steps
        .iter()
        .map(|(before, after)| (after - before).abs());
    let slack = steps.max().unwrap_or(0);
    let (since, until) = (first.began - BEFORE_A_CRASH - slack, second.began + slack);
    let crashed = |crash: &Crash| {
        let is_there = match (crash.shard, first.shard) {
            (Some(crashed), Some(of)) => crashed == of,
            _ => true,
        };
        is_there && (since..=until).contains(&crash.at)
    };
    let lost = |(from, to): &(i64, i64)| since <= *to && until >= *from;
    facts.crashes.iter().any(crashed) || facts.losses.iter().any(lost)
}

/// Whether the lease of `first` was lost before the worker reported the start of the job. Such a
/// loss spends no attempt and is recorded under the previous attempt number.
fn was_lost_unheard(facts: &Facts, first: &Execution, second: &Execution) -> bool {
    facts.attempts.iter().any(|lost| {
        (lost.job, lost.attempt) == (first.job, first.attempt - 1)
            && lost.kind.as_deref() == Some("lease_expired")
            && lost.started_at.is_none()
            && lost.worker.as_deref() == Some(&*first.worker)
            && lost
                .finished_at
                .is_some_and(|at| (first.began..=second.began).contains(&at))
    })
}

/// Whether the job was suspended during an execution, perhaps without its worker knowing. The
/// history of a cancelled job lacks the wait that the cancel ended.
fn was_suspended(facts: &Facts, first: &Execution) -> bool {
    let flow = facts.flows.iter().find(|flow| flow.job == first.job);
    flow.is_some_and(|flow| {
        let until = first.ended.unwrap_or(i64::MAX);
        let during = |kept: &Kept| (first.began..=until).contains(&kept.since);
        flow.state == "cancelled" || flow.steps.iter().any(during)
    })
}

/// The same attempt of a job begins twice only if a crash undid its claim, if it was released or
/// suspended, or if its first start was never reported to the server.
pub(crate) fn an_attempt_is_executed_once(facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    for ((job, attempt), mut executions) in
        by(&facts.executions, |one| Some((one.job, one.attempt)))
    {
        executions.sort_by_key(|one| one.began);
        for pair in executions.windows(2) {
            let given_back = matches!(&*pair[0].word, "released" | "dropped");
            let in_order = !facts.is_stepped(pair[0].began, pair[0].began)
                && !facts.is_stepped(pair[1].began, pair[1].began);
            if !given_back
                && in_order
                && pair[0].nonce == pair[1].nonce
                && !was_undone(facts, pair[0], pair[1])
                && !was_lost_unheard(facts, pair[0], pair[1])
                && !was_suspended(facts, pair[0])
            {
                let detail = format!("job {job}, attempt {attempt}: {pair:?}");
                found.push(Violation::new("an attempt is executed twice", detail));
            }
        }
    }
    found
}

/// An execution begins only after the previous attempt's execution has ended, or after the history
/// shows that the lease of that attempt had ended.
pub(crate) fn no_two_executions_at_once(facts: &Facts) -> Vec<Violation> {
    let recorded = recorded(facts);
    let mut found = Vec::new();
    for (job, mut executions) in by(&facts.executions, |one| Some((one.job, one.nonce.as_str()))) {
        executions.sort_by_key(|one| one.began);
        for (at, second) in executions.iter().enumerate() {
            // A worker that is about to begin a job cannot know that a clock step has expired its
            // lease.
            let is_late = recorded
                .get(&(second.job, second.attempt))
                .is_some_and(|run| {
                    let claimed = run.started_at.unwrap_or(second.began);
                    facts.is_stepped(claimed, second.began)
                });
            if is_late || facts.is_stepped(second.began, second.began) {
                continue;
            }
            for first in &executions[..at] {
                let goes_on = first.ended.is_none_or(|ended| ended > second.began);
                let taken_away = recorded
                    .get(&(first.job, first.attempt))
                    .is_some_and(|run| {
                        let taken =
                            matches!(run.kind.as_deref(), Some("lease_expired" | "timeout"));
                        taken && run.finished_at <= Some(second.began)
                    });
                if goes_on
                    && !taken_away
                    && first.attempt != second.attempt
                    && !was_undone(facts, first, second)
                    && !was_lost_unheard(facts, first, second)
                {
                    let detail = format!("{job:?}: {first:?} and {second:?}");
                    found.push(Violation::new("a job is executed twice at once", detail));
                }
            }
        }
    }
    found
}

/// An attempt recorded as completed was executed to its end.
pub(crate) fn a_completion_was_executed(facts: &Facts) -> Vec<Violation> {
    let executions = by(&facts.executions, |one| Some((one.job, one.attempt)));
    let is_missing = |attempt: &&Attempt| {
        let done = executions.get(&(attempt.job, attempt.attempt));
        let went_well = done.is_some_and(|all| {
            all.iter()
                .any(|one| one.word == "ok" && one.nonce == attempt.nonce.as_deref().unwrap_or("-"))
        });
        attempt.state == "completed" && LOGGED.contains(&&*attempt.task) && !went_well
    };
    facts
        .attempts
        .iter()
        .filter(is_missing)
        .map(|attempt| Violation::new("a completion without an execution", format!("{attempt:?}")))
        .collect()
}

/// Returns the attempts that an expired lease spent although no handler began them.
pub(crate) fn spent_without_a_beginning(facts: &Facts) -> Vec<&Attempt> {
    let executions = by(&facts.executions, |one| Some((one.job, one.attempt)));
    let never_began = |attempt: &&Attempt| {
        attempt.kind.as_deref() == Some("lease_expired")
            && attempt.started_at.is_some()
            && LOGGED_AT_ONCE.contains(&&*attempt.task)
            && !executions.contains_key(&(attempt.job, attempt.attempt))
    };
    facts.attempts.iter().filter(never_began).collect()
}

/// A lost worker spends at most one attempt of a claim that is missing in its log: it may be killed
/// after it reports the start and before it writes the line. A job lost [`FREE_LOSSES`] times may
/// have killed its workers, and the next loss spends an attempt.
pub(crate) fn what_never_began_is_not_spent(facts: &Facts) -> Vec<Violation> {
    let is_free = |attempt: &&Attempt| {
        attempt.kind.as_deref() == Some("lease_expired") && attempt.started_at.is_none()
    };
    let free = by(facts.attempts.iter().filter(is_free), |one| Some(one.job));
    let often = |job: i64| free.get(&job).is_some_and(|rows| rows.len() >= FREE_LOSSES);
    let spent = spent_without_a_beginning(facts).into_iter();
    let claims = by(spent.filter(|one| !often(one.job)), |one| {
        Some((one.worker.as_deref()?, one.started_at?))
    });
    let mut found = Vec::new();
    for ((worker, at), spent) in claims {
        if spent.len() > 1 {
            let jobs: Vec<_> = spent.iter().map(|one| (one.job, one.attempt)).collect();
            let detail = format!("{} of the claim of {worker} at {at}: {jobs:?}", spent.len());
            found.push(Violation::new(
                "an attempt is spent that never began",
                detail,
            ));
        }
    }
    found
}
