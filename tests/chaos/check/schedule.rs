//! Compares the occurrences of manifests with the jobs that ran.

use super::{Violation, by};
use crate::fact::{Attempt, Facts, Kind};
use std::collections::BTreeSet;

const SECOND: i64 = 1_000_000;

/// An occurrence has one job.
pub(crate) fn an_occurrence_runs_once(facts: &Facts) -> Vec<Violation> {
    let occurrence = |attempt: &&Attempt| Some((attempt.manifest.clone()?, attempt.scheduled_for?));
    let mut found = Vec::new();
    for ((manifest, at), attempts) in by(&facts.attempts, occurrence) {
        let jobs: BTreeSet<_> = attempts.iter().map(|attempt| attempt.job).collect();
        if jobs.len() > 1 {
            let detail = format!("{manifest} at {at}: jobs {jobs:?}");
            found.push(Violation::new("an occurrence runs twice", detail));
        }
    }
    found
}

/// Cron jobs run at their times and `fire_all` at every one of them; `every` runs its interval
/// after the previous end, and dependents run after their parents.
pub(crate) fn occurrences_are_those_of_the_schedule(facts: &Facts) -> Vec<Violation> {
    let manifests = by(&facts.attempts, |attempt| attempt.manifest.as_deref());
    let mut found = Vec::new();
    for schedule in &facts.schedules {
        let none = Vec::new();
        let attempts = manifests.get(schedule.name.as_str()).unwrap_or(&none);
        let at = BTreeSet::from_iter(attempts.iter().filter_map(|attempt| attempt.scheduled_for));
        let violation = |detail: String| {
            Violation::new(
                "a schedule is not kept",
                format!("{}: {detail}", schedule.name),
            )
        };
        match &schedule.kind {
            Kind::Some(period) | Kind::All(period) => {
                let period = period * SECOND;
                let odd = at.iter().filter(|at| *at % period != 0);
                found.extend(odd.map(|at| violation(format!("{at} is none of its times"))));
                if let (Kind::All(_), Some(first), Some(last)) =
                    (&schedule.kind, at.first(), at.last())
                {
                    let all = (last - first) / period + 1;
                    // A promotion or a restore that loses a run also loses the fact that it was
                    // queued.
                    if all != at.len() as i64 {
                        found.push(violation(format!("{} of {all} occurrences ran", at.len())));
                    }
                }
            }
            Kind::Every(period) => found.extend(
                too_soon(facts, attempts, *period)
                    .into_iter()
                    .map(violation),
            ),
            Kind::After(parent) => {
                let parents = manifests.get(parent.as_ref()).unwrap_or(&none);
                found.extend(
                    before_parents(facts, attempts, parents)
                        .into_iter()
                        .map(violation),
                );
            }
            Kind::Once => {
                let done = attempts
                    .iter()
                    .filter(|attempt| attempt.state == "completed")
                    .count();
                if done != 1 {
                    found.push(violation(format!("it completed {done} times")));
                }
            }
        }
    }
    found
}

/// Returns the jobs of an `every` manifest that were queued too soon after the last success.
fn too_soon(facts: &Facts, attempts: &[&Attempt], period: i64) -> Vec<String> {
    let ends: BTreeSet<i64> = attempts
        .iter()
        .filter(|attempt| attempt.state == "completed")
        .filter_map(|attempt| attempt.finished_at)
        .collect();
    let queued: BTreeSet<i64> = attempts.iter().map(|attempt| attempt.queued_at).collect();
    let mut found = Vec::new();
    let is_sure = |at: &i64| !facts.is_stepped(*at - period * SECOND, *at);
    for at in queued.into_iter().filter(is_sure) {
        let last = ends.range(..at).next_back();
        if let Some(last) = last.filter(|last| at < *last + period * SECOND) {
            found.push(format!("queued at {at}, the last one ended at {last}"));
        }
    }
    found
}

/// Returns the dependents that were queued before enough parents had completed.
fn before_parents(facts: &Facts, children: &[&Attempt], parents: &[&Attempt]) -> Vec<String> {
    let mut done: Vec<i64> = parents
        .iter()
        .filter(|attempt| attempt.state == "completed")
        .filter_map(|attempt| attempt.finished_at)
        .collect();
    done.sort_unstable();
    let jobs = by(children, |attempt| Some(attempt.job));
    let mut queued: Vec<i64> = jobs
        .values()
        .map(|attempts| attempts[0].queued_at)
        .collect();
    queued.sort_unstable();
    let mut found = Vec::new();
    for (count, at) in queued.iter().enumerate() {
        let over = done.partition_point(|done| done <= at);
        if over <= count && !facts.is_stepped(*at, *at) {
            found.push(format!(
                "run {} was queued at {at}, when {over} parents had completed",
                count + 1
            ));
        }
    }
    found
}
