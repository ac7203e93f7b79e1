//! The scenarios, by name.

use std::future::Future;
use std::pin::Pin;

use super::bench_database::BenchDatabase;
use super::report::Figure;
use super::{
    await_jobs, claim_time, cycle, drain, enqueue, floor, graphs, latency, limit, producer, prune,
    rates, relay, scrape, shards, single, snapshot, sql_job, steps, suspended, web,
};
use trax_terminal::Failure;

type Answer<'g> = Pin<Box<dyn Future<Output = Result<Vec<Figure>, Failure>> + 'g>>;

/// A scenario, which answers one question.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// The question, as shown in the help.
    about: &'static str,
    /// Whether it runs by default.
    quick: bool,
    pub(crate) run: for<'g> fn(&'g BenchDatabase) -> Answer<'g>,
}

macro_rules! scenario {
    ($name:literal, $quick:literal, $run:path, $about:literal) => {
        Scenario {
            name: $name,
            about: $about,
            quick: $quick,
            run: |bench| Box::pin($run(bench)),
        }
    };
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(
        "floor",
        true,
        floor::run,
        "what PostgreSQL itself can do: drain, COPY, commit"
    ),
    scenario!(
        "drain",
        true,
        drain::run,
        "a full queue drained by workers of the Rust client"
    ),
    scenario!(
        "sql_drain",
        true,
        drain::run_sql,
        "the same by plain SQL, 100 jobs a call: the server alone"
    ),
    scenario!(
        "single",
        true,
        single::run,
        "jobs claimed and completed one by one over 8 connections"
    ),
    scenario!(
        "enqueue",
        true,
        enqueue::run,
        "jobs queued by 1000, compared with COPY"
    ),
    scenario!(
        "copy",
        false,
        enqueue::run_copy,
        "the same by COPY into trax.new_job"
    ),
    scenario!(
        "latency",
        true,
        latency::run,
        "how soon a job begins on an idle system"
    ),
    scenario!(
        "sql",
        false,
        sql_job::run,
        "statements that the server runs by itself"
    ),
    scenario!(
        "await",
        false,
        await_jobs::run,
        "very many callers that wait for jobs, over one connection"
    ),
    scenario!(
        "wake",
        true,
        producer::run,
        "what enqueueing adds to transactions that commit anyway"
    ),
    scenario!(
        "held_snapshot",
        false,
        snapshot::run,
        "a steady load while another session holds a snapshot"
    ),
    scenario!(
        "depth",
        false,
        claim_time::depth,
        "one claim while very many jobs wait"
    ),
    scenario!(
        "blocked",
        false,
        claim_time::blocked,
        "one claim with very many blocked jobs in front"
    ),
    scenario!(
        "limits",
        false,
        limit::run,
        "limits of very many groups, compared with none"
    ),
    scenario!(
        "rates",
        false,
        rates::run,
        "a rate reached by 8 claimers, claims beside held jobs, and consume_rate"
    ),
    scenario!(
        "manifests",
        true,
        cycle::manifests,
        "a cycle with very many manifests that are not due"
    ),
    scenario!(
        "firing",
        true,
        cycle::firing,
        "manifests that are due at once"
    ),
    scenario!("prune", false, prune::run, "pruning of finished runs"),
    scenario!(
        "scrape",
        false,
        scrape::run,
        "all metrics, with very many runs and waiting jobs"
    ),
    scenario!(
        "relay",
        false,
        relay::run,
        "an outbox: what the source pays, rows carried, how late they are"
    ),
    scenario!(
        "shards",
        false,
        shards::run,
        "what a router adds to a call, and one fleet of several servers"
    ),
    scenario!(
        "steps",
        false,
        steps::run,
        "steps recorded, by SQL and in workflows; how soon a signal is received"
    ),
    scenario!(
        "suspended",
        false,
        suspended::run,
        "what very many suspended jobs add to others; sleepers; children"
    ),
    scenario!(
        "graphs",
        false,
        graphs::run,
        "what a job that needs many others costs them; how soon it is ready; graphs queued"
    ),
    scenario!(
        "web",
        false,
        web::run,
        "the pages of trax web, with very many runs and waiting jobs"
    ),
];

/// Returns the named scenarios, in the order of the table; without names the quick ones, or all.
pub(crate) fn chosen(named: &[&'static Scenario], all: bool) -> Vec<&'static Scenario> {
    let is_chosen = |scenario: &Scenario| match named {
        [] => all || scenario.quick,
        named => named.iter().any(|other| other.name == scenario.name),
    };
    SCENARIOS
        .iter()
        .filter(|scenario| is_chosen(scenario))
        .collect()
}

pub(crate) fn parse(name: &str) -> Result<&'static Scenario, String> {
    let known = || {
        SCENARIOS
            .iter()
            .map(|s| s.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    SCENARIOS
        .iter()
        .find(|scenario| scenario.name == name)
        .ok_or_else(|| format!("there is no such scenario; use one of {}", known()))
}

/// Returns the list under `--help`; a star marks the quick set.
pub(crate) fn help() -> String {
    let mut text = "Scenarios (* the quick set):\n".to_owned();
    for scenario in SCENARIOS {
        let star = if scenario.quick { '*' } else { ' ' };
        text += &format!("{star} {:<14} {}\n", scenario.name, scenario.about);
    }
    text + "\nThe database of the connection is not changed: the benchmark creates its own, and drops it."
}
