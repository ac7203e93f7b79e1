//! The summary of a campaign.

use crate::check::Violation;
use crate::check::overlap::spent_without_a_beginning;
use crate::fact::Facts;
use crate::fault::Strike;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use trax_client::testkit::Server;

/// Prints the summary.
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
        "attempts   {}, {} executions in workers' logs, {} effects, {} tokens held; failed: {}; {} spent without a beginning",
        facts.attempts.len(),
        facts.executions.len(),
        facts.ledger.len(),
        facts.holds.len(),
        list(&failures),
        spent_without_a_beginning(facts).len()
    );
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for flow in &facts.flows {
        *ends
            .entry(format!("{} {}", flow.task, flow.state))
            .or_default() += 1;
    }
    let mut kinds_of_steps: BTreeMap<&str, usize> = BTreeMap::new();
    for kept in facts.flows.iter().flat_map(|flow| &flow.steps) {
        *kinds_of_steps.entry(&kept.kind).or_default() += 1;
    }
    println!(
        "workflows  {}; steps: {}; {} rows; {} signals, {} cancelled with their descendants",
        list(&ends),
        list(&kinds_of_steps),
        facts.deeds.len(),
        facts.signals.len(),
        facts.felled.len()
    );
    println!(
        "           longest times to a wake: {}",
        wakes(facts).join(", ")
    );
    let (of_batches, of_graphs): (Vec<_>, Vec<_>) =
        facts.members.iter().partition(|one| one.is_batch);
    let graphs: BTreeSet<i64> = of_graphs.iter().map(|one| one.graph).collect();
    println!(
        "graphs     {} of {} jobs, {} batches of {} jobs; {} starts under a rate",
        graphs.len(),
        of_graphs.len(),
        facts.opened.len(),
        of_batches.len(),
        facts
            .attempts
            .iter()
            .filter(|one| one.rate.is_some() && one.started_at.is_some())
            .count()
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

/// The longest times from what ended a wait to the record of its end, by kind.
fn wakes(facts: &Facts) -> Vec<String> {
    let ends: BTreeMap<i64, i64> = facts
        .flows
        .iter()
        .map(|flow| (flow.job, flow.finished_at))
        .collect();
    let sent: BTreeMap<&str, i64> = facts
        .signals
        .iter()
        .filter_map(|signal| Some((signal.word.as_str(), signal.committed?)))
        .collect();
    let mut longest: BTreeMap<&str, (i64, String)> = BTreeMap::new();
    for flow in &facts.flows {
        for kept in &flow.steps {
            let children = kept.output.as_array().into_iter().flatten();
            let children = children.filter_map(|child| ends.get(&child["job_id"].as_i64()?));
            let cause = match &*kept.kind {
                _ if kept.timed_out => kept.until,
                "sleep" => kept.until,
                "signal" => kept
                    .output
                    .as_str()
                    .and_then(|word| sent.get(word).copied()),
                "jobs" if kept.waits_for.as_deref() == Some("any") => children.min().copied(),
                "jobs" => children.max().copied(),
                _ => None,
            };
            // A wait that began after its cause was not suspended.
            let cause = cause.map(|cause| cause.max(kept.since));
            let Some(late) = cause.map(|cause| kept.recorded_at - cause) else {
                continue;
            };
            let longest = longest.entry(&kept.kind).or_default();
            if late > longest.0 {
                *longest = (late, flow.nonce.clone());
            }
        }
    }
    let text = |(kind, (late, nonce)): (&str, (i64, String))| {
        format!("{kind} {} ms ({nonce})", late / 1000)
    };
    longest.into_iter().map(text).collect()
}

fn list<K: std::fmt::Display>(counts: &BTreeMap<K, usize>) -> String {
    counts
        .iter()
        .map(|(what, count)| format!("{count} {what}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Words that must never appear in the server's log.
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

/// Words that begin a new message in the log.
const MESSAGE: [&str; 5] = ["ERROR: ", "LOG: ", "FATAL: ", "WARNING: ", "PANIC: "];

/// Log lines that show a mistake of the extension, with the lines that explain them.
pub(crate) fn trouble_in(server: &Server) -> Vec<Violation> {
    let log = std::fs::read(server.log_file()).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    let is_odd = |line: &str| NEVER.iter().any(|word| line.contains(word));
    // A server that cannot write WAL ends with this message.
    let is_borne = |line: &str| line.contains("No space left on device");
    // Expected deadlocks. A restore over a database in use locks everything in its own order.
    // REINDEX blocks writers and then waits for sessions that have read an index and are about to
    // write. A transaction that cancels jobs one call at a time may deadlock with one that
    // completes several, since each chooses its order of calls.
    let is_borne_by_order = |text: &str| {
        let by = |statement: &str| text.contains(statement);
        let cancels_several = by(": begin; select trax.cancel(job_id) from");
        by("deadlock detected") && (by(": DROP ") || by(": reindex ") || cancels_several)
    };
    let odd = lines.iter().enumerate();
    odd.filter(|(_, line)| is_odd(line) && !is_borne(line))
        .map(|(at, line)| {
            let more = lines[at + 1..].iter();
            let more = more.take_while(|line| !MESSAGE.iter().any(|word| line.contains(word)));
            let text: Vec<&str> = [*line].into_iter().chain(more.copied().take(9)).collect();
            text.join("\n      ")
        })
        .filter(|text| !is_borne_by_order(text))
        .take(20)
        .map(|detail| Violation {
            rule: "the server's log is clean",
            detail,
        })
        .collect()
}

/// Keeps the server's log if the campaign found a violation.
pub(crate) fn keep_log(server: &Server, name: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let kept = root.join(format!("chaos-{name}.log"));
    match std::fs::copy(server.log_file(), &kept) {
        Ok(_) => println!("the server's log: {}", kept.display()),
        Err(error) => println!("the server's log cannot be kept: {error}"),
    }
}
