//! Checks of all shards together: moves are complete, and everything is where the router says.

use super::{Violation, by};
use crate::fact::{Attempt, Cluster, Facts};
use std::collections::{BTreeMap, BTreeSet};

/// The bits of an id from this one on carry the number of the shard that assigned it.
const SHARD_BIT: u32 = 43;

/// Runs a check if the campaign has shards.
fn in_cluster(facts: &Facts, check: impl Fn(&Cluster) -> Vec<Violation>) -> Vec<Violation> {
    facts.cluster.as_ref().map(check).unwrap_or_default()
}

/// Once all moves have ended, no group is moving and no batch is in transit.
pub(crate) fn moves_leave_nothing(facts: &Facts) -> Vec<Violation> {
    in_cluster(facts, |cluster| {
        let groups = cluster.moving.iter();
        let groups = groups.map(|group| format!("group {group} moves"));
        let left = groups.chain(cluster.departures.iter().cloned());
        left.map(|left| Violation::new("a move has left something", left))
            .collect()
    })
}

/// Waiting and running jobs, manifests, settings and open dead letters are on the shard where the
/// router looks for them, and a group that was never moved has always been there.
pub(crate) fn groups_are_where_the_router_says(facts: &Facts) -> Vec<Violation> {
    in_cluster(facts, |cluster| {
        let mut found = Vec::new();
        for (shard, group, what) in &cluster.holdings {
            let place = cluster.placements.get(group).copied().flatten();
            if place.is_some_and(|place| place != *shard) {
                let detail = format!("{what} of {group} is on shard {shard}, it is on {place:?}");
                let rule = "a group is on another shard than the router says";
                found.push(Violation::new(rule, detail));
            }
        }
        let is_still = |attempt: &&Attempt| cluster.still.contains(&&*attempt.group);
        let still = facts.attempts.iter().filter(is_still);
        for (group, attempts) in by(still, |attempt| Some(&attempt.group)) {
            let shards: BTreeSet<i32> = attempts.iter().map(|attempt| attempt.shard).collect();
            if shards.len() > 1 {
                let detail = format!("{group}: {shards:?}");
                let rule = "a group that was not moved is on several shards";
                found.push(Violation::new(rule, detail));
            }
        }
        found
    })
}

/// The shard number in an id belongs to the cluster, and each id belongs to one job.
pub(crate) fn ids_are_of_their_shard(facts: &Facts) -> Vec<Violation> {
    in_cluster(facts, |cluster| {
        let mut nonces: BTreeMap<i64, BTreeSet<&str>> = BTreeMap::new();
        let jobs = facts.jobs.iter();
        let jobs = jobs.map(|job| (job.job, job.nonce.as_deref()));
        let attempts = facts.attempts.iter();
        let attempts = attempts.map(|attempt| (attempt.job, attempt.nonce.as_deref()));
        for (job, nonce) in jobs.chain(attempts) {
            nonces.entry(job).or_default().insert(nonce.unwrap_or("-"));
        }
        let mut found = Vec::new();
        for (job, nonces) in nonces {
            let is_known = i32::try_from(job >> SHARD_BIT)
                .is_ok_and(|number| cluster.shards.contains(&number));
            if !is_known {
                found.push(Violation::new("an id is of no shard", job.to_string()));
            }
            if nonces.len() > 1 {
                let detail = format!("{job}: {nonces:?}");
                found.push(Violation::new("an id is given twice", detail));
            }
        }
        found
    })
}

/// A job that failed for good has one dead letter across all shards and at most one successor, and
/// an acknowledged requeue names that successor.
pub(crate) fn a_failed_job_has_one_dead_letter(facts: &Facts) -> Vec<Violation> {
    in_cluster(facts, |cluster| {
        let mut found = Vec::new();
        let letters = by(&cluster.letters, |letter| {
            (!letter.has_moved).then_some(letter.job)
        });
        let failed = facts.attempts.iter();
        let failed = failed.filter(|attempt| attempt.is_final && attempt.state == "failed");
        for attempt in failed {
            let letters = letters.get(&attempt.job).map_or(0, Vec::len);
            if letters != 1 {
                let detail = format!("job {} has {letters}", attempt.job);
                let rule = "a failed job has not one dead letter";
                found.push(Violation::new(rule, detail));
            }
        }
        let jobs: BTreeSet<i64> = facts.jobs.iter().map(|job| job.job).collect();
        for (letter, new) in &cluster.requeued {
            let is_so = |one: &&crate::fact::Letter| {
                one.id == *letter && one.requeued_as == Some(*new) && jobs.contains(new)
            };
            if cluster.letters.iter().filter(is_so).count() != 1 {
                let detail = format!("dead letter {letter}, job {new}");
                let rule = "an acknowledged requeue is lost";
                found.push(Violation::new(rule, detail));
            }
        }
        found
    })
}

/// A job that was cancelled while it waited ends cancelled, without another attempt.
pub(crate) fn a_cancelled_job_never_begins(facts: &Facts) -> Vec<Violation> {
    in_cluster(facts, |cluster| {
        let states: BTreeMap<i64, &str> = facts
            .jobs
            .iter()
            .map(|job| (job.job, job.state.as_str()))
            .collect();
        let goes_on = |job: &&i64| states.get(*job).is_none_or(|state| *state != "cancelled");
        let cancelled = cluster.cancelled.iter().filter(goes_on);
        cancelled
            .map(|job| {
                let detail = format!("job {job} is {:?}", states.get(job));
                Violation::new("a cancelled job goes on", detail)
            })
            .collect()
    })
}
