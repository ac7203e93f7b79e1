//! Jobs that need others: a job begins after the jobs that it needs, and is cancelled when they
//! ended otherwise; a graph is queued as a whole; a batch has its jobs and runs once they ended.

use super::{Violation, by};
use crate::fact::{Facts, Job};
use crate::graph::fact::{Added, Member};
use std::collections::{BTreeMap, BTreeSet};

/// The beginnings of the errors of jobs that the cycle cancels because of other jobs.
const BECAUSE_OF_NEEDS: [&str; 2] = ["needs job ", "none of the jobs that it needs "];

/// The jobs of a campaign by their ids.
struct Jobs<'facts> {
    facts: &'facts Facts,
    jobs: BTreeMap<i64, &'facts Job>,
    /// When the first attempt of each began.
    begun: BTreeMap<i64, i64>,
}

impl<'facts> Jobs<'facts> {
    fn of(facts: &'facts Facts) -> Self {
        let mut begun = BTreeMap::new();
        for attempt in &facts.attempts {
            if let Some(at) = attempt.started_at {
                let first = begun.entry(attempt.job).or_insert(at);
                *first = at.min(*first);
            }
        }
        let jobs = facts.jobs.iter().map(|job| (job.job, job)).collect();
        Jobs { facts, jobs, begun }
    }

    fn state(&self, job: i64) -> &'facts str {
        self.jobs.get(&job).map_or("gone", |job| &job.state)
    }

    fn has_ended(&self, job: i64) -> bool {
        matches!(self.state(job), "completed" | "failed" | "cancelled")
    }

    /// Whether a job had ended by the given time, as far as the clock shows.
    fn had_ended(&self, job: i64, by: i64) -> bool {
        let ended = self.jobs.get(&job).and_then(|job| job.finished_at);
        self.has_ended(job)
            && ended.is_some_and(|ended| ended <= by || self.facts.is_stepped(by, ended))
    }
}

/// A job of a graph, and for each name that it needs the jobs with this name: the first, and those
/// that were queued in the place of a dead letter.
struct Needy<'facts> {
    member: &'facts Member,
    needed: Vec<Vec<i64>>,
}

impl Needy<'_> {
    fn is_as_needed(&self, state: &str) -> bool {
        match &*self.member.condition {
            "completed" => state == "completed",
            "failed" => matches!(state, "failed" | "cancelled"),
            _ => true,
        }
    }

    /// Whether it may have run for jobs that had ended as it says.
    fn may_run(&self, had_ended: impl Fn(i64) -> bool, jobs: &Jobs<'_>) -> bool {
        let is_met = |job: &i64| had_ended(*job) && self.is_as_needed(jobs.state(*job));
        let mut needed = self.needed.iter().map(|named| named.iter().any(is_met));
        match &*self.member.condition {
            "failed" => needed.any(|is_met| is_met),
            _ => needed.all(|is_met| is_met),
        }
    }

    /// Whether it may have been cancelled because of jobs that had ended otherwise.
    fn may_be_cancelled(&self, jobs: &Jobs<'_>) -> bool {
        let is_unmet = |job: &i64| !self.is_as_needed(jobs.state(*job));
        let mut needed = self.needed.iter().map(|named| named.iter().any(is_unmet));
        match &*self.member.condition {
            "failed" => needed.all(|is_unmet| is_unmet),
            _ => needed.any(|is_unmet| is_unmet),
        }
    }
}

fn graphs(facts: &Facts, is_batch: bool) -> BTreeMap<i64, Vec<&Member>> {
    let members = facts.members.iter();
    by(members.filter(|one| one.is_batch == is_batch), |one| {
        Some(one.graph)
    })
}

fn needy(facts: &Facts) -> Vec<Needy<'_>> {
    let mut found = Vec::new();
    for members in graphs(facts, false).into_values() {
        let by_name = by(members.iter(), |one| Some(&*one.name));
        let of_name = |name: &String| {
            let named = by_name.get(&**name).into_iter().flatten();
            named.map(|one| one.job).collect()
        };
        let needs_some = members.iter().filter(|one| !one.needs.is_empty());
        found.extend(needs_some.map(|member| Needy {
            member,
            needed: member.needs.iter().map(of_name).collect(),
        }));
    }
    found
}

/// A job begins only after the jobs that it needs have ended as it says.
pub(crate) fn a_job_begins_after_those_it_needs(facts: &Facts) -> Vec<Violation> {
    let jobs = Jobs::of(facts);
    let mut found = Vec::new();
    for one in needy(facts) {
        let Some(&begun) = jobs.begun.get(&one.member.job) else {
            continue;
        };
        if !one.may_run(|needed| jobs.had_ended(needed, begun), &jobs) {
            let detail = format!("{:?} began at {begun}", one.member);
            found.push(Violation::new("a job begins before one it needs", detail));
        }
    }
    found
}

/// A job whose needs were met is not cancelled because of them, and any other is.
pub(crate) fn a_job_is_decided_by_its_needs(facts: &Facts) -> Vec<Violation> {
    let jobs = Jobs::of(facts);
    let mut found = Vec::new();
    for one in needy(facts) {
        let job = one.member.job;
        if !jobs.has_ended(job)
            || !one
                .needed
                .iter()
                .flatten()
                .all(|&needed| jobs.has_ended(needed))
        {
            continue;
        }
        let is_cancelled = jobs.state(job) == "cancelled";
        let error = &one.member.error;
        let by_needs = is_cancelled && BECAUSE_OF_NEEDS.iter().any(|text| error.starts_with(text));
        let is_wrong = match is_cancelled {
            true => by_needs && !one.may_be_cancelled(&jobs),
            false => !one.may_run(|_| true, &jobs),
        };
        if is_wrong {
            let detail = format!("{:?} is {}", one.member, jobs.state(job));
            found.push(Violation::new("a job is decided against its needs", detail));
        }
    }
    found
}

/// A graph has as many jobs as the nonces of its jobs say.
pub(crate) fn a_graph_is_whole(facts: &Facts) -> Vec<Violation> {
    let jobs = Jobs::of(facts);
    let wanted = |member: &&Member| {
        let nonce = jobs.jobs.get(&member.job)?.nonce.as_deref()?;
        nonce.rsplit_once("of")?.1.parse::<usize>().ok()
    };
    let mut found = Vec::new();
    for (graph, members) in graphs(facts, false) {
        let sizes: BTreeSet<_> = members.iter().map(wanted).collect();
        let names: BTreeSet<&str> = members.iter().map(|one| &*one.name).collect();
        if sizes != BTreeSet::from([Some(names.len())]) {
            let detail = format!("graph {graph} of {sizes:?} jobs: {members:?}");
            found.push(Violation::new("a graph is not whole", detail));
        }
    }
    found
}

/// The job of a batch begins after the batch was sealed and all its jobs have ended.
pub(crate) fn a_batch_begins_after_its_jobs(facts: &Facts) -> Vec<Violation> {
    let jobs = Jobs::of(facts);
    let rule = "a batch begins too early";
    let mut found = Vec::new();
    for (batch, members) in graphs(facts, true) {
        let Some(&begun) = jobs.begun.get(&batch) else {
            continue;
        };
        let mut ended = members.iter().filter(|one| !one.is_requeued);
        if !ended.all(|one| jobs.had_ended(one.job, begun)) {
            let detail = format!("batch {batch} began at {begun}: {members:?}");
            found.push(Violation::new(rule, detail));
        }
    }
    let opened = facts.opened.iter();
    for (&batch, begun) in opened.filter_map(|batch| Some((batch, jobs.begun.get(batch)?))) {
        let asked = facts.sealed.iter().filter(|(sealed, _)| *sealed == batch);
        let may_be = |asked: i64| asked <= *begun || facts.is_stepped(*begun, asked);
        if !asked.into_iter().any(|&(_, asked)| may_be(asked)) {
            let detail = format!("batch {batch} began at {begun} and was not sealed by then");
            found.push(Violation::new(rule, detail));
        }
    }
    found
}

/// A job whose place in a batch was acknowledged is one of its jobs.
pub(crate) fn a_batch_has_its_jobs(facts: &Facts) -> Vec<Violation> {
    let members = facts.members.iter().filter(|one| one.is_batch);
    let members: BTreeSet<(i64, i64)> = members.map(|one| (one.graph, one.job)).collect();
    let is_missing = |added: &&Added| {
        !facts.may_be_lost(added.at) && !members.contains(&(added.batch, added.job))
    };
    let violation = |added: &Added| Violation::new("a batch has lost a job", format!("{added:?}"));
    facts
        .added
        .iter()
        .filter(is_missing)
        .map(violation)
        .collect()
}
