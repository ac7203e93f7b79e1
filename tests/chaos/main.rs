//! Random faults, chosen by a seed, while producers, workers and SQL callers keep working. At the
//! end every promise is checked against the acknowledgements and the handlers' logs.
//!
//!     make chaos SEED=7 SECONDS=120
//!     CHAOS_ONLY=Promote,Cut make chaos SEED=7        only these kinds of faults
//!     make chaos SEED=7 SHARDS=3                      a router and this many shards
//!
//! The seed decides the plan: the faults, their times, durations and targets. The effects of the
//! kernel and of the machine's load cannot be repeated; the plan is printed as it proceeds.
//!
//! All processes see a clock step (`shim.c`). Leases, retries and schedules follow the clock: after
//! a step forwards, due jobs run at once; after a step backwards, they wait that much longer.
//! Leases last longer after either step until trax trusts the clock. All other promises are
//! checked: no job is lost or completed twice, limits and unique keys hold, no occurrence runs
//! twice and `fire_all` misses none.

mod caller;
mod campaign;
mod check;
mod course;
mod fact;
mod fault;
mod fleet;
mod graph;
mod holder;
mod journal;
mod machine;
mod producer;
mod random;
#[cfg(test)]
mod sabotage;
mod server;
mod shards;
mod shim;
mod strike;
mod summary;
mod target;
mod testbed;
mod wire;
mod worker;
mod workflow;

use campaign::Order;
use harness::number;
use shim::Shim;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts");
    if std::env::args().nth(1).as_deref() == Some("worker") {
        runtime.block_on(worker::run());
        return ExitCode::SUCCESS;
    }
    match number("SHARDS") {
        None => runtime.block_on(campaign(None)),
        Some(shards @ 1..=4) => runtime.block_on(campaign(i32::try_from(shards).ok())),
        Some(shards) => {
            eprintln!("SHARDS is 1 to 4, not {shards}");
            ExitCode::from(64)
        }
    }
}

async fn campaign(shards: Option<i32>) -> ExitCode {
    let any = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap_or_default().as_secs() % 1_000_000
    };
    let order = Order {
        seed: number("SEED").unwrap_or_else(any),
        time: Duration::from_secs(number("SECONDS").unwrap_or(120)),
        only: std::env::var("CHAOS_ONLY")
            .ok()
            .filter(|only| !only.is_empty()),
    };
    let violations = match shards {
        Some(shards) => shards::run(&order, shards).await,
        None => campaign::run(&order, Shim::enter()).await,
    };
    println!("violations {}", violations.len());
    let mut shown: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for violation in &violations {
        let count = shown.entry(violation.rule).or_default();
        *count += 1;
        if *count <= 5 {
            println!("  {}: {}", violation.rule, violation.detail);
        }
    }
    for (rule, count) in shown.iter().filter(|(_, count)| **count > 5) {
        println!("  {rule}: {count} in all");
    }
    if violations.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!(
        "to see it again: make chaos SEED={} SECONDS={}{}",
        order.seed,
        order.time.as_secs(),
        shards.map_or(String::new(), |shards| format!(" SHARDS={shards}"))
    );
    ExitCode::FAILURE
}
