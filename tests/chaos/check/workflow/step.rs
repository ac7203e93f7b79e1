//! Each step is recorded once, in the order of the programme, with its row; a replay gets it; a
//! wait does not end before its time.

use super::{Lineage, lineages};
use crate::check::{Violation, by};
use crate::fact::Facts;
use crate::workflow::fact::{Flow, Kept};
use crate::workflow::programme::{Act, Deed, acts};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The longest time in microseconds that an execution goes on after a promotion.
const GOES_ON: i64 = 10_000_000;

/// The acts of a flow that record a step.
fn steps_of(flow: &Flow) -> Vec<Act> {
    let acts = acts(&flow.plan).into_iter();
    acts.filter(|act| act.step.is_some()).collect()
}

/// A job has recorded the first steps of its programme, each once, and all of them if it has
/// completed; one that fails for good at its end has not completed.
pub(crate) fn steps_are_those_of_the_programme(facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    for flow in &facts.flows {
        let acts = steps_of(flow);
        let expected: Vec<_> = acts
            .iter()
            .map(|act| (act.step.as_deref().unwrap_or_default(), act.kind()))
            .collect();
        let recorded: Vec<_> = flow
            .steps
            .iter()
            .map(|kept| (kept.step.as_str(), kept.kind.as_str()))
            .collect();
        let names: BTreeSet<_> = recorded.iter().collect();
        if names.len() < recorded.len() {
            let detail = format!("{} (job {}): {recorded:?}", flow.nonce, flow.job);
            found.push(Violation::new("a step is recorded twice", detail));
        }
        let is_done = flow.state == "completed";
        let never_completes = acts_end_in_failure(flow);
        let in_order = match may_lack_a_step(facts, flow) {
            true => recorded.iter().all(|one| expected.contains(one)),
            false => expected.starts_with(&recorded),
        };
        if !in_order || is_done && (recorded.len() < expected.len() || never_completes) {
            let detail = format!(
                "{} (job {}) is {}, {:?}: {recorded:?}",
                flow.nonce, flow.job, flow.state, flow.plan
            );
            let rule = "a workflow's steps are not those of its programme";
            found.push(Violation::new(rule, detail));
        }
    }
    found
}

/// Whether an execution may have gone on after a step that a promotion lost: it knew the result,
/// and still held the lease. A later execution records that step anew.
fn may_lack_a_step(facts: &Facts, flow: &Flow) -> bool {
    let is_near = |at: i64| {
        let mut losses = facts.losses.iter();
        losses.any(|(from, until)| (*from..=*until + GOES_ON).contains(&at))
    };
    let mut steps = flow.steps.iter();
    steps.any(|kept| is_near(kept.recorded_at) || is_near(kept.since))
}

fn acts_end_in_failure(flow: &Flow) -> bool {
    acts(&flow.plan).iter().any(|act| act.deed == Deed::Fail)
}

/// A row that is committed with the record of a step exists once for each recorded step.
pub(crate) fn each_step_has_its_row(facts: &Facts) -> Vec<Violation> {
    let mut rows: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (nonce, step) in &facts.deeds {
        *rows.entry((nonce, step)).or_default() += 1;
    }
    let mut found = Vec::new();
    let lineages = lineages(facts);
    for Lineage { nonce, flows } in &lineages {
        let recorded = flows.iter().flat_map(|flow| &flow.steps);
        let steps: BTreeSet<_> = recorded
            .filter(|kept| kept.step.starts_with("row."))
            .map(|kept| kept.step.as_str())
            .collect();
        for step in steps {
            let seen = rows.remove(&(nonce, step)).unwrap_or(0);
            if seen != 1 {
                let detail = format!("{nonce}, step {step}: {seen} rows");
                found.push(Violation::new("a step has not one row", detail));
            }
        }
    }
    let ended: BTreeSet<_> = lineages.iter().map(|lineage| lineage.nonce).collect();
    let known: BTreeSet<_> = facts
        .jobs
        .iter()
        .filter_map(|job| job.nonce.as_deref())
        .collect();
    for ((nonce, step), seen) in rows {
        // Those of a job that lives may be of a step that it still remembers.
        if ended.contains(nonce) || !known.contains(nonce) {
            let detail = format!("{nonce}, step {step}: {seen} rows");
            found.push(Violation::new("a row has no step", detail));
        }
    }
    found
}

/// An execution that began after a step was recorded does not run its work again.
pub(crate) fn recorded_work_does_not_run_again(facts: &Facts) -> Vec<Violation> {
    let executions = by(&facts.executions, |one| Some(one.job));
    let mut found = Vec::new();
    for flow in &facts.flows {
        for execution in executions.get(&flow.job).into_iter().flatten() {
            let runs = |kept: &&Kept| {
                execution.works.contains(&kept.step)
                    && kept.recorded_at < execution.began
                    && !facts.is_stepped(kept.recorded_at, execution.began)
                    && !facts.may_be_lost(execution.began)
            };
            for kept in flow.steps.iter().filter(runs) {
                let detail = format!("{}: {kept:?} and {execution:?}", flow.nonce);
                let rule = "the work of a step runs after it was recorded";
                found.push(Violation::new(rule, detail));
            }
        }
    }
    found
}

/// The attempt that completed got the result of each step that the job keeps.
pub(crate) fn a_replay_gets_what_is_kept(facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    let completed = facts.flows.iter().filter(|flow| flow.state == "completed");
    for flow in completed {
        let of_step = |act: &Act| {
            flow.steps
                .iter()
                .find(|kept| Some(&kept.step) == act.step.as_ref())
        };
        let acts = steps_of(flow);
        let results: Vec<Value> = acts.iter().filter_map(of_step).map(result).collect();
        if Value::from(results.clone()) != flow.output {
            let detail = format!("{} got {}, it keeps {results:?}", flow.nonce, flow.output);
            let rule = "a workflow got another result than its job keeps";
            found.push(Violation::new(rule, detail));
        }
    }
    found
}

/// The result that the handler gets of a step.
fn result(kept: &Kept) -> Value {
    match &*kept.kind {
        "sleep" => Value::Null,
        "jobs" => {
            let children = kept.output.as_array().cloned().unwrap_or_default();
            let states = children.iter().map(|child| child["state"].clone());
            json!([!kept.timed_out, states.collect::<Vec<_>>()])
        }
        "signal" if kept.timed_out => Value::Null,
        _ => kept.output.clone(),
    }
}

/// A sleep, and a wait that timed out, did not end before its time.
pub(crate) fn waits_end_in_time(facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    for flow in &facts.flows {
        let ends_by_time = |kept: &&Kept| kept.timed_out || kept.kind == "sleep";
        for kept in flow.steps.iter().filter(ends_by_time) {
            let until = kept.until.unwrap_or(i64::MAX);
            if kept.recorded_at < until && !facts.is_stepped(kept.recorded_at, until) {
                let detail = format!("{} (job {}): {kept:?}", flow.nonce, flow.job);
                found.push(Violation::new("a wait ended before its time", detail));
            }
        }
    }
    found
}
