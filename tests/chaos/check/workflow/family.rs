//! Children and undo jobs: each exists once, a wait for children ends when they have ended, undo
//! jobs run one after the other, and a cancel reaches the descendants.

use super::{by_id, lineages, undo_jobs, workflows};
use crate::check::{Violation, by};
use crate::fact::Facts;
use crate::workflow::fact::{Flow, Kept};
use std::collections::{BTreeMap, BTreeSet};

/// After this time in microseconds no worker begins a job that it had claimed before.
const CLAIMED_BEFORE: i64 = 15_000_000;

fn children(flow: &Flow) -> impl Iterator<Item = (&Kept, i64)> {
    let steps = flow.steps.iter().filter(|kept| kept.kind == "child");
    steps.map(|kept| (kept, kept.output.as_i64().unwrap_or(0)))
}

/// A step that spawned a child has the id of a job that is this child, and no job is a child
/// without such a step.
pub(crate) fn each_child_exists_once(facts: &Facts) -> Vec<Violation> {
    let nonces: BTreeMap<i64, Option<&str>> = facts
        .jobs
        .iter()
        .map(|job| (job.job, job.nonce.as_deref()))
        .collect();
    let spawned = by(workflows(facts), |flow| flow.parent);
    let mut found = Vec::new();
    for lineage in lineages(facts) {
        let mut known = BTreeSet::new();
        for (kept, child) in lineage.flows.iter().flat_map(|flow| children(flow)) {
            known.insert(child);
            let nonce = format!("{}/{}", lineage.nonce, kept.step);
            if nonces.get(&child) != Some(&Some(&*nonce)) {
                let detail = format!("{nonce}: job {child} is {:?}", nonces.get(&child));
                found.push(Violation::new("a child is lost", detail));
            }
        }
        for flow in &lineage.flows {
            for child in spawned.get(&flow.job).into_iter().flatten() {
                if !known.contains(&child.job) {
                    let detail =
                        format!("{} (job {}) has {known:?}: {child:?}", flow.nonce, flow.job);
                    found.push(Violation::new("a child is doubled", detail));
                }
            }
        }
    }
    found
}

/// A wait for children lists those that were spawned before it, and ended when all of them, or the
/// first, had ended.
pub(crate) fn a_wait_for_children_ends_with_them(facts: &Facts) -> Vec<Violation> {
    let flows = by_id(facts);
    let mut found = Vec::new();
    for flow in &facts.flows {
        for (place, kept) in flow.steps.iter().enumerate() {
            if kept.kind != "jobs" {
                continue;
            }
            let spawned = flow.steps[..place].iter();
            let spawned: Vec<_> = spawned
                .filter(|one| one.kind == "child")
                .map(|one| (one.output.as_i64(), Some(one.step.as_str())))
                .collect();
            let listed = kept.output.as_array().map_or(&[][..], |all| all);
            let named: Vec<_> = listed
                .iter()
                .map(|child| (child["job_id"].as_i64(), child["step"].as_str()))
                .collect();
            let ended = |child: &&serde_json::Value| {
                let job = child["job_id"].as_i64().and_then(|job| flows.get(&job));
                job.is_some_and(|job| {
                    child["state"].as_str() == Some(&*job.state)
                        && (job.finished_at <= kept.recorded_at
                            || facts.is_stepped(kept.recorded_at, job.finished_at))
                })
            };
            let ended = listed.iter().filter(ended).count();
            let is_over = match kept.waits_for.as_deref() {
                Some("any") => ended > 0 || listed.is_empty(),
                _ => ended == listed.len(),
            };
            if named != spawned || !kept.timed_out && !is_over {
                let detail = format!(
                    "{} (job {}) has {spawned:?}: {kept:?}",
                    flow.nonce, flow.job
                );
                let rule = "a wait for children ended otherwise";
                found.push(Violation::new(rule, detail));
            }
        }
    }
    found
}

/// A workflow that ended otherwise than completed has an undo job for each step that names one, the
/// newest step first, each begun after the end of the one before.
pub(crate) fn steps_are_undone_once_and_in_order(facts: &Facts) -> Vec<Violation> {
    let undone = by(undo_jobs(facts), |flow| flow.parent);
    let started = by(&facts.attempts, |attempt| {
        attempt.started_at.map(|_| attempt.job)
    });
    let begun = |job: i64| {
        let attempts = started.get(&job).into_iter().flatten();
        attempts.filter_map(|attempt| attempt.started_at).min()
    };
    let mut found = Vec::new();
    let mut violation = |rule, flow: &Flow, what: String| {
        let detail = format!(
            "{} (job {}) is {}: {what}",
            flow.nonce, flow.job, flow.state
        );
        found.push(Violation::new(rule, detail));
    };
    let ended = lineages(facts)
        .into_iter()
        .flat_map(|lineage| lineage.flows);
    for flow in ended {
        let steps = flow.steps.iter().rev();
        let steps: Vec<&str> = steps
            .filter(|kept| kept.has_undo && flow.state != "completed")
            .map(|kept| kept.step.as_str())
            .collect();
        let jobs = undone.get(&flow.job).map_or(&[][..], |jobs| jobs);
        let jobs_of = by(jobs, |job| job.of.as_deref());
        for step in &steps {
            match jobs_of.get(step).map_or(0, Vec::len) {
                0 => violation("an undo is skipped", flow, format!("step {step}")),
                1 => {}
                _ => violation("an undo is doubled", flow, format!("{:?}", jobs_of[step])),
            }
        }
        for (step, jobs) in &jobs_of {
            if !steps.contains(step) {
                violation("an undo has no step", flow, format!("{jobs:?}"));
            }
        }
        let order: Vec<_> = steps
            .iter()
            .filter_map(|step| jobs_of.get(step)?.first())
            .collect();
        for pair in order.windows(2) {
            let end = pair[0].finished_at;
            if let Some(begun) = begun(pair[1].job)
                && begun < end
                && !facts.is_stepped(begun, end)
            {
                let what = format!("{:?} began at {begun}, {:?}", pair[1], pair[0]);
                violation("steps are undone out of order", flow, what);
            }
        }
    }
    found
}

/// No descendant of a workflow that was cancelled with them begins long after.
pub(crate) fn a_cancel_reaches_the_descendants(facts: &Facts) -> Vec<Violation> {
    let flows = by_id(facts);
    let attempts = by(&facts.attempts, |attempt| Some(attempt.job));
    let mut found = Vec::new();
    for (felled, at) in &facts.felled {
        if facts.may_be_lost(*at) {
            continue;
        }
        let mut open = vec![*felled];
        while let Some(job) = open.pop() {
            let Some(flow) = flows.get(&job) else {
                continue;
            };
            open.extend(children(flow).map(|(_, child)| child));
            let late = attempts.get(&job).into_iter().flatten().filter(|attempt| {
                attempt.started_at.is_some_and(|began| {
                    began > at + CLAIMED_BEFORE && !facts.is_stepped(*at, began)
                })
            });
            for attempt in late {
                let detail = format!("job {felled} was cancelled at {at}: {attempt:?}");
                found.push(Violation::new("a cancel missed a descendant", detail));
            }
        }
    }
    found
}
