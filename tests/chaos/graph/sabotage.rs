//! Tests of the checkers of graphs, batches and rates: each broken rule is reported. The changes
//! are made to the facts of a graph of four jobs, a batch of two, and starts under a rate.

use super::RATE;
use super::fact::{Added, Member};
use crate::check::violations;
use crate::fact::{Attempt, Facts, Job};

const SECOND: i64 = 1_000_000;
const BATCH: i64 = 20;

fn job(facts: &mut Facts, job: i64, state: &str, began: Option<i64>, ended: i64) {
    facts.jobs.push(Job {
        job,
        state: state.to_owned(),
        nonce: Some(format!("graph-{}.{job}of4", job / 10)),
        finished_at: Some(ended * SECOND),
        ..Job::default()
    });
    facts.attempts.push(Attempt {
        job,
        attempt: 1,
        is_final: true,
        state: state.to_owned(),
        task: "odd".to_owned(),
        started_at: began.map(|at| at * SECOND),
        finished_at: Some(ended * SECOND),
        ..Attempt::default()
    });
}

fn member(job: i64, condition: &str, needs: &[&str]) -> Member {
    Member {
        graph: 10,
        job,
        name: format!("n{job}"),
        condition: condition.to_owned(),
        needs: needs.iter().map(|&name| name.to_owned()).collect(),
        ..Member::default()
    }
}

/// A graph whose first job completed and whose second failed; a batch that was sealed before its
/// last job ended.
fn facts() -> Facts {
    let mut facts = Facts {
        is_drained: true,
        database_limit: 100,
        ..Facts::default()
    };
    job(&mut facts, 10, "completed", Some(1), 2);
    job(&mut facts, 11, "failed", Some(1), 3);
    job(&mut facts, 12, "completed", Some(2), 4);
    job(&mut facts, 13, "cancelled", None, 5);
    let doomed = Member {
        error: "needs job 11 \"n11\", which failed".to_owned(),
        ..member(13, "completed", &["n10", "n11"])
    };
    facts.members = vec![
        member(10, "", &[]),
        member(11, "", &[]),
        member(12, "completed", &["n10"]),
        doomed,
    ];
    job(&mut facts, BATCH, "completed", Some(9), 10);
    job(&mut facts, 21, "completed", Some(1), 2);
    job(&mut facts, 22, "failed", Some(1), 8);
    for job in [21, 22] {
        let (at, batch) = (0, BATCH);
        facts.added.push(Added { at, batch, job });
        facts.members.push(Member {
            graph: BATCH,
            is_batch: true,
            job,
            ..Member::default()
        });
    }
    facts.opened = vec![BATCH];
    facts.sealed = vec![(BATCH, 3 * SECOND)];
    // The burst at once, and then as fast as the rate allows.
    let burst = (0..RATE.burst).map(|_| 0);
    let later = (1..5).map(|number| number * SECOND / RATE.allowed);
    for (number, at) in burst.chain(later).enumerate() {
        facts.attempts.push(Attempt {
            job: 100 + number as i64,
            is_final: true,
            started_at: Some(at),
            finished_at: Some(at),
            rate: Some(RATE.name.to_owned()),
            cost: 1,
            ..Attempt::default()
        });
    }
    facts
}

fn named(change: &dyn Fn(&mut Facts)) -> Vec<&'static str> {
    let mut facts = facts();
    change(&mut facts);
    let mut rules: Vec<_> = violations(&facts).into_iter().map(|one| one.rule).collect();
    rules.dedup();
    rules
}

fn attempt(facts: &mut Facts, job: i64) -> &mut Attempt {
    let mut attempts = facts.attempts.iter_mut();
    attempts.find(|one| one.job == job).expect("it is there")
}

fn state(facts: &mut Facts, job: i64, state: &str) {
    let mut jobs = facts.jobs.iter_mut();
    let job = jobs.find(|one| one.job == job).expect("it is there");
    state.clone_into(&mut job.state);
}

#[test]
fn each_broken_rule_of_a_graph_a_batch_and_a_rate_is_named() {
    assert_eq!(violations(&facts()), [], "nothing is broken yet");
    type Change = &'static dyn Fn(&mut Facts);
    let changes: [(&str, Change); 13] = [
        ("a job begins before one it needs", &|facts| {
            attempt(facts, 12).started_at = Some(SECOND)
        }),
        ("a job begins before one it needs", &|facts| {
            attempt(facts, 13).started_at = Some(4 * SECOND)
        }),
        ("a job begins before one it needs", &|facts| {
            facts.members[2] = member(12, "failed", &["n10"])
        }),
        ("a job is decided against its needs", &|facts| {
            state(facts, 13, "completed")
        }),
        ("a job is decided against its needs", &|facts| {
            facts.members[3].condition = "failed".to_owned()
        }),
        ("a job is decided against its needs", &|facts| {
            facts.members[3].condition = "ended".to_owned()
        }),
        ("a job is decided against its needs", &|facts| {
            facts.members[3].needs = vec!["n10".to_owned()]
        }),
        ("a graph is not whole", &|facts| {
            facts.members.remove(0);
        }),
        ("a batch begins too early", &|facts| {
            attempt(facts, BATCH).started_at = Some(7 * SECOND)
        }),
        ("a batch begins too early", &|facts| {
            state(facts, 22, "in_progress")
        }),
        ("a batch begins too early", &|facts| {
            facts.sealed = vec![(BATCH, 11 * SECOND)]
        }),
        ("a batch has lost a job", &|facts| {
            facts.members.pop();
        }),
        ("a rate is not kept", &|facts| {
            attempt(facts, 104).started_at = Some(SECOND / RATE.allowed * 2)
        }),
    ];
    for (rule, change) in changes {
        let named = named(change);
        assert!(named.contains(&rule), "{rule} is not among {named:?}");
    }
}

#[test]
fn a_clock_step_a_requeued_job_and_a_lost_commit_explain_what_they_can() {
    let stepped = named(&|facts| {
        attempt(facts, 12).started_at = Some(SECOND);
        facts.steps.push((2 * SECOND, SECOND));
    });
    assert_eq!(stepped, Vec::<&str>::new());
    let again = named(&|facts| {
        attempt(facts, 104).started_at = Some(SECOND / RATE.allowed * 2);
        facts.steps.push((SECOND / RATE.allowed, SECOND));
    });
    assert_eq!(again, Vec::<&str>::new());
    // The job that failed was requeued after the decision, and completed.
    let requeued = named(&|facts| {
        job(facts, 14, "completed", Some(6), 7);
        let name = "n11".to_owned();
        let is_requeued = true;
        facts.members.push(Member {
            name,
            is_requeued,
            ..member(14, "", &[])
        });
    });
    assert_eq!(requeued, Vec::<&str>::new());
    let lost = named(&|facts| {
        facts.members.pop();
        facts.losses.push((0, 0));
    });
    assert_eq!(lost, Vec::<&str>::new());
}
