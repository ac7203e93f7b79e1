//! How many ran at once, by what is recorded.

use super::{Violation, by};
use crate::fact::{Attempt, Facts};
use harness::sweep::{Change, too_many};

/// Jobs of one concurrency key run one at a time.
const PER_KEY: i64 = 1;

fn sweep(rule: &'static str, what: &str, attempts: &[&Attempt], limit: i64) -> Vec<Violation> {
    let always = Change {
        limit,
        began: i64::MIN,
        committed: i64::MIN,
    };
    let span =
        |attempt: &&Attempt| Some((attempt.started_at?, attempt.finished_at.unwrap_or(i64::MAX)));
    let (found, _) = too_many(attempts.iter().filter_map(span), &[always]);
    let told = |text: String| Violation::new(rule, format!("{what}: {text}"));
    found.into_iter().map(told).collect()
}

/// Groups with a limit, and keys within a group.
pub(crate) fn groups_and_keys_keep_their_limits(facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    let groups = by(&facts.attempts, |attempt| Some(attempt.group.as_str()));
    for (group, limit) in &facts.group_limits {
        if let Some(attempts) = groups.get(group) {
            found.extend(sweep("a group is above its limit", group, attempts, *limit));
        }
    }
    for (key, attempts) in by(&facts.attempts, |attempt| attempt.key.as_deref()) {
        found.extend(sweep(
            "a concurrency key is above its limit",
            key,
            &attempts,
            PER_KEY,
        ));
    }
    found
}
