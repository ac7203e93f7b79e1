//! Checkers: pure functions over [`Facts`]. Each names the violated rule and the rows concerned.

mod conservation;
mod graph;
mod limit;
pub(crate) mod overlap;
mod rate;
mod schedule;
mod shard;
pub(crate) mod workflow;

use crate::fact::Facts;
use std::collections::BTreeMap;
use workflow::{family, signal, step};

/// A violated rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    pub(crate) rule: &'static str,
    pub(crate) detail: String,
}

impl Violation {
    fn new(rule: &'static str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Violation { rule, detail }
    }
}

type Checker = fn(&Facts) -> Vec<Violation>;

const CHECKERS: [Checker; 41] = [
    conservation::nothing_acknowledged_is_lost,
    conservation::nothing_withdrawn_appears,
    conservation::a_job_is_in_one_place,
    conservation::a_job_ends_once,
    conservation::an_acknowledged_completion_stays,
    conservation::effects_come_with_their_completion,
    conservation::every_job_ends,
    conservation::the_server_finds_nothing,
    overlap::an_attempt_is_executed_once,
    overlap::no_two_executions_at_once,
    overlap::a_completion_was_executed,
    overlap::what_never_began_is_not_spent,
    limit::groups_and_keys_keep_their_limits,
    limit::the_database_and_manifests_keep_their_limits,
    limit::tokens_are_held_by_few,
    conservation::a_unique_key_is_alive_once,
    conservation::an_attempt_ends_after_it_began,
    schedule::an_occurrence_runs_once,
    schedule::occurrences_are_those_of_the_schedule,
    shard::moves_leave_nothing,
    shard::groups_are_where_the_router_says,
    shard::ids_are_of_their_shard,
    shard::a_failed_job_has_one_dead_letter,
    shard::a_cancelled_job_never_begins,
    step::steps_are_those_of_the_programme,
    step::each_step_has_its_row,
    step::recorded_work_does_not_run_again,
    step::a_replay_gets_what_is_kept,
    step::waits_end_in_time,
    signal::each_signal_is_taken_once,
    signal::signals_are_taken_in_order,
    family::each_child_exists_once,
    family::a_wait_for_children_ends_with_them,
    family::steps_are_undone_once_and_in_order,
    family::a_cancel_reaches_the_descendants,
    graph::a_job_begins_after_those_it_needs,
    graph::a_job_is_decided_by_its_needs,
    graph::a_graph_is_whole,
    graph::a_batch_begins_after_its_jobs,
    graph::a_batch_has_its_jobs,
    rate::rates_are_kept,
];

/// Returns all violations.
pub(crate) fn violations(facts: &Facts) -> Vec<Violation> {
    CHECKERS.iter().flat_map(|checker| checker(facts)).collect()
}

/// Groups things by a key.
fn by<K: Ord, T>(
    things: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> Option<K>,
) -> BTreeMap<K, Vec<T>> {
    let mut groups: BTreeMap<K, Vec<T>> = BTreeMap::new();
    for thing in things {
        if let Some(key) = key(&thing) {
            groups.entry(key).or_default().push(thing);
        }
    }
    groups
}
