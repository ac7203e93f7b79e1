//! What a campaign has to say in the end.

use crate::check::Violation;
use crate::check::overlap::spent_without_a_beginning;
use crate::fact::Facts;
use crate::fault::Strike;
use std::collections::BTreeMap;
use trax_client::testkit::Server;

/// Prints it.
pub(crate) fn print(
    facts: &Facts,
    strikes: &[Strike],
    missed: &[String],
    errors: &BTreeMap<String, usize>,
) {
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for job in &facts.jobs {
        *states.entry(&job.state).or_default() += 1;
    }
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for strike in strikes {
        *kinds.entry(format!("{:?}", strike.fault)).or_default() += 1;
    }
    let mut failures: BTreeMap<&str, usize> = BTreeMap::new();
    for attempt in &facts.attempts {
        if let Some(kind) = &attempt.kind {
            *failures.entry(kind).or_default() += 1;
        }
    }
    println!(
        "jobs       {} acknowledged, {} in the tables: {}",
        facts.enqueued.len(),
        facts.jobs.len(),
        list(&states)
    );
    println!(
        "attempts   {}, {} executions in workers' logs, {} effects; failed: {}; {} spent without a beginning",
        facts.attempts.len(),
        facts.executions.len(),
        facts.ledger.len(),
        list(&failures),
        spent_without_a_beginning(facts).len()
    );
    println!("faults     {}; {} missed", list(&kinds), missed.len());
    println!(
        "crashes    {}, of them with loss {}",
        facts.crashes.len(),
        facts.losses.len()
    );
    println!("errors of clients:");
    for (error, count) in errors {
        println!("    {count:5} {error}");
    }
}

fn list<K: std::fmt::Display>(counts: &BTreeMap<K, usize>) -> String {
    counts
        .iter()
        .map(|(what, count)| format!("{count} {what}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// What the server's log must never say.
const NEVER: [&str; 8] = [
    "PANIC",
    "panicked",
    "XX000",
    "internal error",
    "could not open relation",
    "cache lookup failed",
    "deadlock detected",
    "was terminated by signal 11",
];

/// Lines of the server's log that tell of a mistake of the extension's.
pub(crate) fn trouble_in(server: &Server) -> Vec<Violation> {
    let log = std::fs::read(server.log_file()).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let odd = log
        .lines()
        .filter(|line| NEVER.iter().any(|word| line.contains(word)))
        // So ends a server that cannot write its log.
        .filter(|line| !line.contains("No space left on device"));
    odd.take(20)
        .map(|line| Violation {
            rule: "the server's log is clean",
            detail: line.to_owned(),
        })
        .collect()
}
