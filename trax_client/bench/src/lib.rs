//! `trax bench`: the cost of trax on this server, compared with the speed of PostgreSQL itself.
//!
//! Words: a *scenario* is one question; a *figure* is one line of its answer; the *floor* is the
//! least work that the server could do for the same result, measured in the same run. Rounds of
//! floor and measurement alternate, after a warm-up round of each that does not count; a figure is
//! the median of its rounds. Each scenario runs in a new, separate database, which is dropped at
//! the end.

mod await_jobs;
mod barrier;
mod bench_database;
mod claim_time;
mod cycle;
mod drain;
mod enqueue;
mod floor;
mod graphs;
mod latency;
mod limit;
mod machine;
mod meter;
mod producer;
mod progress;
mod prune;
mod rates;
mod relay;
mod report;
mod scenario;
mod scrape;
mod server;
mod shards;
mod single;
mod sizes;
mod snapshot;
mod sql_job;
mod sql_peer;
mod steps;
mod suspended;
mod web;

use std::cell::RefCell;
use std::process::ExitCode;
use std::rc::Rc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::LocalSet;

use self::bench_database::BenchDatabase;
use self::machine::Machine;
use self::progress::Progress;
use self::report::Report;
use self::scenario::Scenario;
use self::server::BenchServer;
use self::sizes::{SizeArguments, Sizes};
use trax_terminal::{FAILED, Failure, address, confirmed, print};

#[derive(clap::Args)]
#[command(after_help = scenario::help())]
pub struct Arguments {
    /// What to measure; default: a quick set
    #[arg(value_name = "SCENARIO", value_parser = scenario::parse)]
    scenarios: Vec<&'static Scenario>,
    /// Run every scenario at full size, which takes hours
    #[arg(long, conflicts_with = "scenarios")]
    all: bool,
    /// Do not ask for confirmation where the server has databases of others
    #[arg(long, short)]
    yes: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sizes: SizeArguments,
}

pub async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    // From here on a signal ends the run cleanly, even while the database is being created.
    let mut signals = Signals::listen()?;
    let sizes = Sizes::new(&arguments.sizes, arguments.all);
    let chosen = scenario::chosen(&arguments.scenarios, arguments.all);
    let server = BenchServer::find(address::from_environment(url.as_deref())?).await?;
    if !may_load(&server, arguments.yes).await? {
        print::log("trax", "nothing was measured");
        return Ok(ExitCode::from(FAILED));
    }
    let machine = Machine::look(&server).await?;
    let report = Rc::new(RefCell::new(Report::new(machine, arguments.json)));
    report.borrow().begin()?;

    // A separate task, so that the database is dropped even after a panic.
    let local = LocalSet::new();
    let running = local.spawn_local(play(server.clone(), chosen, sizes, Rc::clone(&report)));
    let outcome = tokio::select! {
        outcome = local.run_until(running) => outcome.unwrap_or_else(|error| Err(Failure::new(error.to_string()))),
        name = signals.next() => Err(Failure::new(format!("interrupted by {name}"))),
    };
    drop(local);
    let dropped = server.drop_database().await;
    report.borrow().end()?;
    match (outcome, dropped) {
        (Ok(()), Ok(())) => Ok(ExitCode::SUCCESS),
        (Err(failure), Ok(())) => Err(failure),
        (outcome, Err(left)) => {
            // The first failure is the cause.
            let failure = outcome
                .err()
                .map_or_else(|| left.to_string(), |cause| cause.to_string());
            Err(Failure::new(failure).hint(format!(
                "its database still exists: drop database {}",
                server.name()
            )))
        }
    }
}

/// Returns whether the server may be loaded: it has no databases of others, or the person agrees.
async fn may_load(server: &BenchServer, yes: bool) -> Result<bool, Failure> {
    const NAMED: usize = 3;
    let others = server.others().await?;
    if others.is_empty() {
        return Ok(true);
    }
    let named: Vec<String> = others
        .iter()
        .take(NAMED)
        .map(|name| format!("\"{name}\""))
        .collect();
    let more = match others.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let question = format!(
        "This server also has the database {}{more}: the bench takes all of its processor and disk. Run it here?",
        named.join(", ")
    );
    confirmed(yes, &question)
}

/// Runs the chosen scenarios, each in a fresh database.
async fn play(
    server: BenchServer,
    chosen: Vec<&'static Scenario>,
    sizes: Sizes,
    report: Rc<RefCell<Report>>,
) -> Result<(), Failure> {
    let progress = Progress::new(chosen.len());
    for scenario in chosen {
        progress.begin(scenario.name);
        server.make_database().await?;
        let bench = BenchDatabase::open(&server, sizes.clone(), progress.clone()).await?;
        let figures = (scenario.run)(&bench).await?;
        progress.end(|| report.borrow_mut().add(scenario.name, figures))?;
    }
    Ok(())
}

/// The signals that end the program.
struct Signals {
    int: Signal,
    term: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        Ok(Signals {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.int.recv() => "SIGINT",
            _ = self.term.recv() => "SIGTERM",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}
