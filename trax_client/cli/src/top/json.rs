//! The JSON output of `trax top`.

use serde::Serialize;

use super::data::{Dead, Group, Job, Rates, Screenful, Worker};

/// The content of the screen, with every row.
#[derive(Serialize)]
pub(super) struct TopJson<'a> {
    database: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    away: &'a [String],
    version: &'a str,
    scheduler_running: bool,
    scheduler_paused: bool,
    scheduler_lag_seconds: f64,
    /// Whether claims and outcomes are counted, which requires the library to be preloaded.
    counted: bool,
    enqueued_per_second: f64,
    claims_per_second: f64,
    completions_per_second: f64,
    failures_per_second: f64,
    stopped_schedules: f64,
    dead_letters: f64,
    groups: &'a [Group],
    running: &'a [Job],
    tasks: Vec<Task<'a>>,
    workers: &'a [Worker],
    dead: &'a [Dead],
}

#[derive(Serialize)]
struct Task<'a> {
    task: &'a str,
    #[serde(flatten)]
    rates: Rates,
}

impl<'a> TopJson<'a> {
    pub(super) fn of(screenful: &'a Screenful) -> Self {
        let (now, all) = (&screenful.now, screenful.all());
        let tasks = screenful.tasks().into_iter();
        TopJson {
            database: &now.database,
            away: &now.away,
            version: &now.version,
            scheduler_running: now.scheduler,
            scheduler_paused: now.paused,
            scheduler_lag_seconds: now.lag,
            counted: now.counted,
            enqueued_per_second: screenful.enqueued(),
            claims_per_second: all.claims,
            completions_per_second: all.completions,
            failures_per_second: all.failures,
            stopped_schedules: now.stopped,
            dead_letters: now.dead_letters,
            groups: &now.groups,
            running: &now.running,
            tasks: tasks.map(|(task, rates)| Task { task, rates }).collect(),
            workers: &now.workers,
            dead: &now.dead,
        }
    }
}
