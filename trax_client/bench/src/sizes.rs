//! Sizes of scenarios: the requested ones, or the quick ones, or the full ones with `--all`.

use std::time::Duration;

use clap::value_parser;
use trax_terminal::duration_from;

#[derive(clap::Args)]
pub(crate) struct SizeArguments {
    /// How many jobs a round of a drain, of enqueueing or of limits has
    #[arg(long, value_name = "N", value_parser = value_parser!(i64).range(1..=100_000_000))]
    jobs: Option<i64>,
    /// How many rounds to measure, after one to warm up
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// How long one round of a timed scenario takes
    #[arg(long, value_name = "TIME", value_parser = at_least_100ms)]
    seconds: Option<Duration>,
    /// How long another session holds a snapshot (held_snapshot)
    #[arg(long, value_name = "TIME", value_parser = at_least_100ms)]
    hold: Option<Duration>,
    /// How many jobs wait in the deep queue (depth)
    #[arg(long, value_name = "N", value_parser = value_parser!(i64).range(1..=100_000_000))]
    deep: Option<i64>,
    /// How many blocked jobs precede the free ones (blocked)
    #[arg(long, value_name = "N", value_parser = value_parser!(i64).range(1..=10_000_000))]
    blocked: Option<i64>,
    /// How many groups have a limit (limits)
    #[arg(long, value_name = "N", value_parser = value_parser!(i64).range(1..=1_000_000))]
    groups: Option<i64>,
    /// How many manifests there are, none due (manifests)
    #[arg(long, value_name = "N", value_parser = value_parser!(i64).range(1..=10_000_000))]
    manifests: Option<i64>,
    /// How many manifests are due at once (firing)
    #[arg(long, value_name = "N", value_parser = value_parser!(i64).range(1..=10_000_000))]
    due: Option<i64>,
    /// How many finished runs are pruned (prune)
    #[arg(long, value_name = "N", value_parser = value_parser!(i64).range(1..=100_000_000))]
    finished: Option<i64>,
    /// How many finished runs the history contains (scrape, web)
    #[arg(long, value_name = "N", value_parser = value_parser!(i64).range(1..=100_000_000))]
    history: Option<i64>,
    /// How many jobs wait, in ten groups (scrape, web)
    #[arg(long, value_name = "N", value_parser = value_parser!(i64).range(10..=100_000_000))]
    waiting: Option<i64>,
    /// How many callers wait, each for a job (await)
    #[arg(long, value_name = "N", value_parser = value_parser!(i64).range(1..=60_000))]
    callers: Option<i64>,
    /// How often to measure in one round (latency, await, depth, blocked, manifests, scrape, web)
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    samples: Option<u32>,
}

fn at_least_100ms(text: &str) -> Result<Duration, String> {
    duration_from(Duration::from_millis(100), text)
}

/// Every size used by a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    pub(crate) jobs: i64,
    pub(crate) rounds: u16,
    pub(crate) seconds: Duration,
    pub(crate) hold: Duration,
    pub(crate) deep: i64,
    pub(crate) blocked: i64,
    pub(crate) groups: i64,
    pub(crate) manifests: i64,
    pub(crate) due: i64,
    pub(crate) finished: i64,
    pub(crate) history: i64,
    pub(crate) waiting: i64,
    pub(crate) callers: i64,
    pub(crate) samples: u32,
}

impl Sizes {
    pub(crate) fn new(asked: &SizeArguments, all: bool) -> Self {
        let size =
            |asked: Option<i64>, quick, full| asked.unwrap_or(if all { full } else { quick });
        let length = |asked: Option<Duration>, quick, full| {
            asked.unwrap_or(Duration::from_secs(if all { full } else { quick }))
        };
        Sizes {
            jobs: size(asked.jobs, 100_000, 500_000),
            rounds: asked.rounds.unwrap_or(if all { 5 } else { 3 }),
            seconds: length(asked.seconds, 1, 10),
            hold: length(asked.hold, 30, 300),
            deep: size(asked.deep, 1_000_000, 10_000_000),
            blocked: size(asked.blocked, 100_000, 100_000),
            groups: size(asked.groups, 1_000, 10_000),
            manifests: size(asked.manifests, 100_000, 1_000_000),
            due: size(asked.due, 10_000, 100_000),
            finished: size(asked.finished, 200_000, 1_000_000),
            history: size(asked.history, 1_000_000, 10_000_000),
            waiting: size(asked.waiting, 100_000, 1_000_000),
            callers: size(asked.callers, 10_000, 10_000),
            samples: asked.samples.unwrap_or(if all { 1000 } else { 200 }),
        }
    }
}
