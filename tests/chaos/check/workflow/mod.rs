//! Compares the steps of workflows with their programmes: each step once with its row, each wait
//! ended by what ended it, each child and each undo once.

pub(crate) mod family;
pub(crate) mod signal;
pub(crate) mod step;

use super::by;
use crate::fact::{Facts, Job};
use crate::workflow::fact::Flow;
use crate::workflow::{UNDO, WORKFLOW};
use std::collections::BTreeMap;

/// The jobs of a workflow: the first, and those that continue from its dead letters.
struct Lineage<'facts> {
    nonce: &'facts str,
    flows: Vec<&'facts Flow>,
}

/// Returns the workflows and undo jobs all jobs of which have ended.
fn lineages(facts: &Facts) -> Vec<Lineage<'_>> {
    let lives = |job: &&Job| matches!(&*job.state, "queued" | "in_progress");
    let living = by(facts.jobs.iter().filter(lives), |job| job.nonce.as_deref());
    by(&facts.flows, |flow| Some(flow.nonce.as_str()))
        .into_iter()
        .filter(|(nonce, _)| !living.contains_key(nonce))
        .map(|(nonce, flows)| Lineage { nonce, flows })
        .collect()
}

fn workflows(facts: &Facts) -> impl Iterator<Item = &Flow> {
    facts.flows.iter().filter(|flow| flow.task == WORKFLOW)
}

fn undo_jobs(facts: &Facts) -> impl Iterator<Item = &Flow> {
    facts.flows.iter().filter(|flow| flow.task == UNDO)
}

/// Returns the flows by their ids.
fn by_id(facts: &Facts) -> BTreeMap<i64, &Flow> {
    facts.flows.iter().map(|flow| (flow.job, flow)).collect()
}
