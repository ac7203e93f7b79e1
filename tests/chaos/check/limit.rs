//! The number of jobs that ran at once, from the recorded attempts.

use super::{Violation, by};
use crate::fact::{Attempt, Facts, from_the_beginning};
use crate::holder::{HOLDERS, Hold};
use harness::sweep::{LimitChange, limit_at, running_at_starts};

/// Jobs of one concurrency key run one at a time.
const PER_KEY: i64 = 1;

fn sweep(
    facts: &Facts,
    rule: &'static str,
    what: &str,
    attempts: &[&Attempt],
    limits: &[LimitChange],
) -> Vec<Violation> {
    let span =
        |attempt: &&Attempt| Some((attempt.started_at?, attempt.finished_at.unwrap_or(i64::MAX)));
    too_many(facts, rule, what, attempts.iter().filter_map(span), limits)
}

/// Returns the first starts above a limit. Starts near a clock step are ignored, since their order
/// is unknown.
fn too_many(
    facts: &Facts,
    rule: &'static str,
    what: &str,
    spans: impl Iterator<Item = (i64, i64)>,
    limits: &[LimitChange],
) -> Vec<Violation> {
    let starts = running_at_starts(spans).into_iter();
    starts
        .filter(|&(at, running)| running > limit_at(limits, at) && !facts.is_stepped(at, at))
        .take(5)
        .map(|(at, running)| {
            let limit = limit_at(limits, at);
            Violation::new(
                rule,
                format!("{what}: {running} ran at {at} where {limit} may"),
            )
        })
        .collect()
}

/// Groups with a limit, and concurrency keys across groups, keep their limits on each shard.
pub(crate) fn groups_and_keys_keep_their_limits(facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    let groups = by(&facts.attempts, |attempt| {
        Some((attempt.group.as_str(), attempt.shard))
    });
    for ((group, _), attempts) in &groups {
        let Some(changes) = facts.group_limits.get(group) else {
            continue;
        };
        // The change of the limit may be among the lost transactions.
        let most = changes.iter().map(|change| change.limit).max();
        let always = most.map(from_the_beginning);
        let limits = match always {
            Some(always) if !facts.losses.is_empty() => vec![always],
            _ => changes.clone(),
        };
        found.extend(sweep(
            facts,
            "a group is above its limit",
            group,
            attempts,
            &limits,
        ));
    }
    let limits = [from_the_beginning(PER_KEY)];
    let keys = by(&facts.attempts, |attempt| {
        Some((attempt.key.as_deref()?, attempt.shard))
    });
    for ((key, _), attempts) in keys {
        found.extend(sweep(
            facts,
            "a concurrency key is above its limit",
            key,
            &attempts,
            &limits,
        ));
    }
    found
}

/// All jobs of a database together, and the jobs of each manifest, keep their limits.
pub(crate) fn the_database_and_manifests_keep_their_limits(facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    let limits = [from_the_beginning(facts.database_limit)];
    for all in by(&facts.attempts, |attempt| Some(attempt.shard)).values() {
        found.extend(sweep(
            facts,
            "the database is above its limit",
            "all",
            all,
            &limits,
        ));
    }
    for (manifest, attempts) in by(&facts.attempts, |attempt| attempt.manifest.as_deref()) {
        let limit = facts.manifest_limits.get(manifest).copied().unwrap_or(1);
        let limits = [from_the_beginning(limit)];
        let rule = "a manifest is above its limit";
        found.extend(sweep(facts, rule, manifest, &attempts, &limits));
    }
    found
}

/// A token never has more holders than slots. Holds are ignored if a promotion may have lost them
/// or if the clock stepped while they lasted, since another session may then get the token.
pub(crate) fn tokens_are_held_by_few(facts: &Facts) -> Vec<Violation> {
    let is_sure = |hold: &&Hold| {
        let lost = |(from, until): &(i64, i64)| *from <= hold.until && hold.asked <= *until;
        hold.from < hold.until
            && !facts.is_stepped(hold.asked, hold.until)
            && !facts.losses.iter().any(lost)
    };
    let spans = facts.holds.iter().filter(is_sure);
    let spans = spans.map(|hold| (hold.from, hold.until));
    let rule = "a token has too many holders";
    too_many(facts, rule, "chaos", spans, &[from_the_beginning(HOLDERS)])
}
