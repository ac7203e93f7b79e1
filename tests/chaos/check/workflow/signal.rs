//! A wait for a signal ends by a signal of that name to that job; each is taken once, in the order
//! of commits.

use super::{Lineage, lineages};
use crate::check::{Violation, by};
use crate::fact::Facts;
use crate::workflow::fact::{Flow, Kept, Signal};
use std::collections::{BTreeMap, BTreeSet};

/// The words of signals that the driver sends in prepared transactions, which no post knows.
pub(crate) const PREPARED: &str = "prepared";
/// The longest time in microseconds from the snapshot of a call to the time that it records.
const SNAPSHOT: i64 = 500_000;

fn word(kept: &Kept) -> &str {
    kept.output.as_str().unwrap_or_default()
}

/// The waits of a flow that ended by a signal.
fn received(flow: &Flow) -> impl Iterator<Item = &Kept> {
    let steps = flow.steps.iter();
    steps.filter(|kept| kept.kind == "signal" && !kept.timed_out)
}

/// Each received signal was sent to the job under that name and not rolled back, and was received
/// once; of those with one id, only one was sent and received.
pub(crate) fn each_signal_is_taken_once(facts: &Facts) -> Vec<Violation> {
    let sent: BTreeMap<&str, &Signal> = facts
        .signals
        .iter()
        .map(|signal| (signal.word.as_str(), signal))
        .collect();
    let mut found = Vec::new();
    for Lineage { nonce, flows } in lineages(facts) {
        let jobs: BTreeSet<i64> = flows.iter().map(|flow| flow.job).collect();
        let mut taken: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut ids: BTreeMap<&str, &str> = BTreeMap::new();
        for kept in flows.iter().flat_map(|flow| received(flow)) {
            let word = word(kept);
            let steps = taken.entry(word).or_default();
            // A job that continues from a dead letter keeps the steps of the earlier one.
            if steps.insert(&kept.step) && steps.len() > 1 {
                let detail = format!("{nonce}: {word} by {steps:?}");
                found.push(Violation::new("a signal is taken twice", detail));
            }
            let Some(signal) = sent.get(word) else {
                if !word.starts_with(PREPARED) {
                    let detail = format!("{nonce}: {kept:?}");
                    found.push(Violation::new("a wait ended by a signal of nobody", detail));
                }
                continue;
            };
            let is_its =
                jobs.contains(&signal.job) && Some(&signal.name) == kept.waits_for.as_ref();
            if !is_its {
                let detail = format!("{nonce}: {kept:?} by {signal:?}");
                found.push(Violation::new("a wait ended by another's signal", detail));
            }
            if signal.is_withdrawn {
                let detail = format!("{nonce}: {signal:?}");
                found.push(Violation::new(
                    "a signal was taken that was rolled back",
                    detail,
                ));
            }
            let before = signal.id.as_deref().and_then(|id| ids.insert(id, word));
            if before.is_some_and(|before| before != word) {
                let detail = format!("{nonce}: {before:?} and {signal:?}");
                found.push(Violation::new("a repeated signal was taken", detail));
            }
        }
    }
    let kept = |signal: &&Signal| signal.sent().is_some_and(|at| !facts.may_be_lost(at));
    let with_id = facts.signals.iter().filter(kept);
    for (_, signals) in by(with_id, |signal| Some((signal.job, signal.id.as_deref()?))) {
        if signals.len() > 1 {
            let detail = format!("{signals:?}");
            found.push(Violation::new("a repeated signal was sent", detail));
        }
    }
    found
}

/// A signal that was committed before another was sent is taken before it, and a wait does not time
/// out beside a signal that was there.
pub(crate) fn signals_are_taken_in_order(facts: &Facts) -> Vec<Violation> {
    let sent = by(&facts.signals, |signal| {
        Some((signal.job, signal.name.as_str()))
    });
    let mut found = Vec::new();
    for flow in &facts.flows {
        let mut taken: BTreeSet<&str> = BTreeSet::new();
        for kept in flow.steps.iter().filter(|kept| kept.kind == "signal") {
            let name = kept.waits_for.as_deref().unwrap_or_default();
            let all = sent.get(&(flow.job, name)).map_or(&[][..], |all| all);
            let own = all.iter().find(|signal| signal.word == word(kept));
            // The time at which every earlier signal was there for certain.
            let seen = match own {
                _ if kept.timed_out => kept.recorded_at - SNAPSHOT,
                Some(signal) => signal.asked,
                None => i64::MIN,
            };
            taken.insert(word(kept));
            let was_there = |signal: &&&Signal| {
                signal.sent().is_some_and(|at| {
                    at < seen && !facts.may_be_lost(at) && !facts.is_stepped(at, seen)
                })
            };
            let passed = all.iter().filter(was_there);
            for signal in passed.filter(|signal| !taken.contains(&*signal.word)) {
                let detail = format!("{} (job {}): {signal:?} by {kept:?}", flow.nonce, flow.job);
                let rule = match kept.timed_out {
                    true => "a wait timed out beside its signal",
                    false => "a signal is passed over",
                };
                found.push(Violation::new(rule, detail));
            }
        }
    }
    found
}
