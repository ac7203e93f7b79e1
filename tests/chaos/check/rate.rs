//! The starts of jobs under a rate, from the recorded attempts.

use super::{Violation, by};
use crate::fact::{Attempt, Facts};
use crate::graph::RATE;

const SECOND: i64 = 1_000_000;

/// No window of starts has more than the burst and what the rate allows in its time. A clock step
/// ends all windows: the times around it do not show how far apart two starts were.
pub(crate) fn rates_are_kept(facts: &Facts) -> Vec<Violation> {
    let under_rate = facts.attempts.iter().filter(|one| one.rate.is_some());
    let keys = by(under_rate, |one| Some((one.rate_key.as_deref(), one.shard)));
    let mut found = Vec::new();
    for ((key, _), attempts) in keys {
        let start = |one: &&Attempt| Some((one.started_at?, one.cost));
        let mut starts: Vec<(i64, i64)> = attempts.iter().filter_map(start).collect();
        starts.sort_unstable();
        if let Some((at, over)) = first_over(facts, &starts) {
            let detail = format!("{} {key:?}: {over} µs too early at {at}", RATE.name);
            found.push(Violation::new("a rate is not kept", detail));
        }
    }
    found
}

/// Returns the first start that ends a window with too much in it, and how much later it might have
/// been.
fn first_over(facts: &Facts, starts: &[(i64, i64)]) -> Option<(i64, i64)> {
    let each = SECOND / RATE.allowed;
    // Everything is counted in the time in which the rate allows it.
    let (mut used, mut lowest, mut last) = (0, i64::MAX, None);
    for &(at, cost) in starts {
        if last.is_some_and(|last| facts.is_stepped(last, at)) {
            lowest = i64::MAX;
        }
        last = Some(at);
        lowest = lowest.min(used - at);
        used += cost * each;
        let over = used - at - lowest - RATE.burst * each;
        if over > 0 {
            return Some((at, over));
        }
    }
    None
}
