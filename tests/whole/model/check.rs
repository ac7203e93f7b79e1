//! The properties of every state, and the effect of leaving out a rule.

use super::action::Action;
use super::{ALL, Fence, MAX_RETRIES, Model, Rules, State};
use stateright::{Checker, HasDiscoveries, Model as Checked, Property, Representative};
use std::collections::{BTreeSet, HashSet};

const ONE_COMPLETION: &str = "a job has at most one completion";
const ENDS_ONCE: &str = "a job ends once";
const NO_USURPER: &str = "an outcome is recorded for the holder of the lease";
const GROUP_LIMIT: &str = "no claim exceeds the limit of the group";
const KEY_LIMIT: &str = "no claim exceeds the limit of the key";
const ATTEMPTS: &str = "a job has no more attempts than it may";
const NO_DEAD_END: &str = "where nothing more can happen all jobs have ended";

impl Checked for Model {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.first()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let possible = |action: &Action| self.step(state, *action).is_some();
        actions.extend(self.all_actions().into_iter().filter(possible));
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        self.step(before, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(ONE_COMPLETION, |_, state: &State| {
                state.jobs.iter().all(|job| job.completed <= 1)
            }),
            Property::always(ENDS_ONCE, |_, state: &State| {
                state.jobs.iter().all(|job| job.ends <= 1)
            }),
            Property::always(NO_USURPER, |_, state: &State| !state.usurped),
            Property::always(GROUP_LIMIT, |_, state: &State| !state.over_limit),
            Property::always(KEY_LIMIT, |_, state: &State| !state.over_key),
            Property::always(ATTEMPTS, |_, state: &State| {
                let attempts = state.jobs.iter().map(|job| job.completed + job.failed);
                attempts.max() <= Some(1 + MAX_RETRIES)
            }),
            Property::always(NO_DEAD_END, |model: &Model, state: &State| {
                let mut all = model.all_actions().into_iter();
                state.all_ended() || all.any(|action| model.step(state, action).is_some())
            }),
        ];
        if self.is_whole() {
            properties.extend(met());
        }
        properties
    }
}

/// States that the model must reach for its proof to be meaningful.
fn met() -> [Property<Model>; 5] {
    [
        Property::sometimes("a second attempt completes", |_, state: &State| {
            state.jobs.iter().any(|job| job.completed_as == 2)
        }),
        Property::sometimes("a job dies", |_, state: &State| {
            let mut jobs = state.jobs.iter();
            jobs.any(|job| job.ends == 1 && job.completed == 0)
        }),
        Property::sometimes("a stale worker is refused", |_, state: &State| {
            state.refused
        }),
        Property::sometimes(
            "all that may run at once does",
            |model: &Model, state: &State| state.leases() == model.most_at_once(),
        ),
        Property::sometimes("a job is kept back", |model: &Model, state: &State| {
            let mut jobs = state.jobs.iter();
            !model.keyed || jobs.any(|job| job.is_blocked())
        }),
    ]
}

impl Model {
    /// Three workers race for three jobs with one retry each.
    fn of(rules: Rules, limit: u8, keyed: bool) -> Model {
        Model {
            rules,
            workers: 3,
            jobs: 3,
            limit,
            resizes: Vec::new(),
            keyed,
            kills: 2,
            expiries: 2,
            failures: 1,
            releases: 1,
        }
    }

    /// Two workers race for two jobs: enough for the failures that the first rules prevent.
    fn small(rules: Rules, limit: u8) -> Model {
        Model {
            workers: 2,
            jobs: 2,
            ..Model::of(rules, limit, false)
        }
    }

    /// Whether the model allows every kind of event.
    fn is_whole(&self) -> bool {
        self.expiries > 1 && self.failures > 0
    }

    fn most_at_once(&self) -> u8 {
        let jobs = u8::try_from(self.jobs).expect("there are few jobs");
        let limits = self.resizes.iter().chain([&self.limit]);
        let widest = limits.map(|&limit| if limit == 0 { jobs } else { limit.min(jobs) });
        let widest = widest.max().expect("there is a limit");
        if self.keyed { 1 } else { widest }
    }

    /// Checks that the properties hold in every reachable state and that every path ends, never in
    /// a dead end, with all jobs ended.
    fn holds(self) {
        self.assert_no_circle();
        let explored = self.checker().threads(2).symmetry().spawn_dfs().join();
        println!("{} states", explored.unique_state_count());
        explored.assert_properties();
        assert!(explored.is_done());
    }

    /// Depth-first search: no path returns to the same state or an equivalent one.
    fn assert_no_circle(&self) {
        let first = self.first().representative();
        let mut seen = HashSet::from([first.clone()]);
        let mut on_path = HashSet::from([first.clone()]);
        let mut path = vec![(first.clone(), self.successors(&first))];
        while let Some((state, left)) = path.last_mut() {
            let Some(next) = left.pop() else {
                on_path.remove(state);
                path.pop();
                continue;
            };
            assert!(!on_path.contains(&next), "a circle through {next:?}");
            if seen.insert(next.clone()) {
                on_path.insert(next.clone());
                let left = self.successors(&next);
                path.push((next, left));
            }
        }
    }

    fn successors(&self, state: &State) -> Vec<State> {
        let steps = self.all_actions().into_iter();
        let next = steps.filter_map(|action| self.step(state, action));
        next.map(|state| state.representative()).collect()
    }

    /// Checks that the property fails without the rule; prints a path to the failure.
    fn breaks(self, property: &'static str) {
        let wanted = HasDiscoveries::AnyOf(BTreeSet::from([property]));
        let explored = self.checker().finish_when(wanted).spawn_bfs().join();
        println!("not any more: {property}");
        let condition = explored.model().property(property).condition;
        for (state, action) in explored.assert_any_discovery(property).into_vec() {
            if !condition(explored.model(), &state) {
                println!("  {state:?}");
                return;
            }
            println!("  {:?}", action.expect("only the last state has none"));
        }
        panic!("the last state of a discovery is where it does not hold");
    }
}

#[test]
fn with_a_limit_of_one_every_path_keeps_every_promise() {
    Model::of(ALL, 1, false).holds();
}

#[test]
fn without_a_limit_every_path_keeps_every_promise() {
    Model {
        jobs: 2,
        ..Model::of(ALL, 0, false)
    }
    .holds();
}

#[test]
fn with_a_key_every_path_keeps_every_promise() {
    Model::of(ALL, 0, true).holds();
}

#[test]
fn with_a_limit_that_changes_every_path_keeps_every_promise() {
    Model {
        jobs: 2,
        kills: 1,
        resizes: vec![1, 0, 1],
        ..Model::of(ALL, 2, false)
    }
    .holds();
}

#[test]
fn with_a_key_in_a_limited_group_every_path_keeps_every_promise() {
    Model {
        jobs: 2,
        resizes: vec![2],
        ..Model::of(ALL, 1, true)
    }
    .holds();
}

#[test]
fn where_a_workers_word_is_taken_for_its_lease_a_job_completes_twice() {
    let rules = Rules {
        fence: Fence::Nothing,
        ..ALL
    };
    Model::small(rules, 0).breaks(ONE_COMPLETION);
}

#[test]
fn where_any_lease_of_the_job_will_do_a_stale_worker_ends_the_attempt_of_another() {
    let rules = Rules {
        fence: Fence::JobOnly,
        ..ALL
    };
    Model::small(rules, 0).breaks(NO_USURPER);
}

#[test]
fn where_claims_of_a_limited_group_go_side_by_side_they_exceed_its_limit() {
    let rules = Rules {
        group_lock: false,
        ..ALL
    };
    Model::small(rules, 1).breaks(GROUP_LIMIT);
}

/// A model in which keys depend on the missing repair: reapers skip a locked key, and sessions are
/// killed.
fn without_the_repair(may_wait: bool) -> Model {
    let rules = Rules {
        may_wait,
        repair: false,
        ..ALL
    };
    Model {
        kills: 0,
        expiries: 0,
        ..Model::of(rules, 0, true)
    }
}

#[test]
fn outcomes_that_wait_for_the_lock_of_a_key_leave_nothing_behind_it_for_ever() {
    without_the_repair(true).holds();
}

#[test]
fn where_outcomes_do_not_wait_for_the_lock_of_a_key_a_job_stays_behind_it_for_ever() {
    without_the_repair(false).breaks(NO_DEAD_END);
}

#[test]
fn without_the_repair_a_job_stays_behind_a_key_that_a_reaper_left_to_others() {
    let rules = Rules {
        repair: false,
        ..ALL
    };
    Model::of(rules, 0, true).breaks(NO_DEAD_END);
}

#[test]
fn where_claims_do_not_see_that_a_lease_is_being_ended_a_job_stays_behind_its_key_for_ever() {
    let mut model = without_the_repair(true);
    model.rules.sees_ends = false;
    model.breaks(NO_DEAD_END);
}
