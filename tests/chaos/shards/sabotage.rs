//! Tests of the checkers for shards: each broken rule is reported, and harmless changes are not.
//! The changes are made to the facts of two shards.

use crate::check::violations;
use crate::fact::{
    Acknowledgement, Attempt, Cluster, Crash, Execution, Facts, Job, Letter, from_the_beginning,
};
use std::collections::BTreeMap;

const FIRST: i64 = 1 << 43;
const SECOND: i64 = 2 << 43;
const MINUTE: i64 = 60_000_000;

/// An attempt that ended a second after the given minute, and its execution.
fn attempt(shard: i32, job: i64, group: &str, minute: i64, state: &str) -> (Attempt, Execution) {
    let nonce = format!("work-{job}");
    let (began, ended) = (minute * MINUTE, minute * MINUTE + 1_000_000);
    let is_final = state != "retried";
    let state = if is_final { state } else { "failed" };
    let word = if state == "completed" { "ok" } else { "failed" };
    let attempt = Attempt {
        shard,
        job,
        attempt: 1,
        is_final,
        state: state.to_owned(),
        task: "work".to_owned(),
        group: group.to_owned(),
        nonce: Some(nonce.clone()),
        worker: Some("w".to_owned()),
        started_at: Some(began),
        finished_at: Some(ended),
        ..Attempt::default()
    };
    let execution = Execution {
        shard: Some(shard),
        job,
        attempt: 1,
        worker: "w".to_owned(),
        nonce,
        began,
        ended: Some(ended),
        word: word.to_owned(),
        works: Vec::new(),
    };
    (attempt, execution)
}

/// Three jobs: one that failed once on the first shard, moved, and completed on the second; one
/// that failed for good on the second, whose dead letter moved to the first; one of a group that
/// never moves.
fn history() -> Facts {
    let (moved, dead, still) = (FIRST + 1, SECOND + 1, FIRST + 2);
    let (again, mut executed_again) = attempt(2, moved, "moving", 2, "completed");
    let again = Attempt {
        attempt: 2,
        ..again
    };
    executed_again.attempt = 2;
    let (attempts, mut executions): (Vec<_>, Vec<_>) = [
        attempt(1, moved, "moving", 1, "retried"),
        attempt(2, dead, "moving", 3, "failed"),
        attempt(1, still, "still", 4, "completed"),
    ]
    .into_iter()
    .unzip();
    executions.push(executed_again);
    let attempts: Vec<_> = attempts.into_iter().chain([again]).collect();
    let finals = attempts.iter().filter(|attempt| attempt.is_final);
    let jobs: Vec<_> = finals.map(job).collect();
    let acknowledged = |job: &Job| Acknowledgement {
        nonce: job.nonce.clone().unwrap_or_default(),
        job: job.job,
        ..Acknowledgement::default()
    };
    let letter = Letter {
        id: SECOND + 1,
        job: dead,
        ..Letter::default()
    };
    let left = Letter {
        has_moved: true,
        ..letter.clone()
    };
    Facts {
        enqueued: jobs.iter().map(acknowledged).collect(),
        jobs,
        attempts,
        executions,
        group_limits: BTreeMap::from([("still", vec![from_the_beginning(1)])]),
        database_limit: 2,
        is_drained: true,
        cluster: Some(Cluster {
            shards: [1, 2].into(),
            placements: [
                ("moving".to_owned(), Some(2)),
                ("still".to_owned(), Some(1)),
            ]
            .into(),
            holdings: vec![
                (2, "moving".to_owned(), "settings"),
                (1, "still".to_owned(), "settings"),
            ],
            still: vec!["still"],
            letters: vec![left, letter],
            ..Cluster::default()
        }),
        ..Facts::default()
    }
}

fn job(attempt: &Attempt) -> Job {
    Job {
        shard: attempt.shard,
        job: attempt.job,
        state: attempt.state.clone(),
        nonce: attempt.nonce.clone(),
        finished_at: attempt.finished_at,
        ..Job::default()
    }
}

/// Changes the history and returns the violated rules.
fn broken(change: impl Fn(&mut Facts, &mut Cluster)) -> Vec<&'static str> {
    let mut facts = history();
    let mut cluster = facts.cluster.take().expect("there are shards");
    change(&mut facts, &mut cluster);
    facts.cluster = Some(cluster);
    violations(&facts).into_iter().map(|one| one.rule).collect()
}

fn expect(rule: &str, change: impl Fn(&mut Facts, &mut Cluster)) {
    let named = broken(change);
    assert!(named.contains(&rule), "{rule} is not among {named:?}");
}

#[test]
fn a_move_breaks_no_rule() {
    assert_eq!(violations(&history()), []);
}

#[test]
fn a_job_on_two_shards_is_named() {
    expect("a job ends more than once", |facts, _| {
        let (also, _) = attempt(2, FIRST + 2, "still", 4, "completed");
        facts.attempts.push(also);
    });
    expect("a job is in several places", |facts, _| {
        let (also, _) = attempt(2, FIRST + 2, "still", 4, "completed");
        facts.jobs.push(job(&also));
    });
    // Enqueued at two shards, as by a client that tries another shard after an unknown result.
    expect("a job is in several places", |facts, _| {
        let (mut also, _) = attempt(2, SECOND + 2, "still", 9, "completed");
        also.nonce = facts.jobs[0].nonce.clone();
        facts.jobs.push(job(&also));
    });
    expect("a job goes on after its end", |facts, _| {
        let (also, _) = attempt(2, FIRST + 2, "still", 9, "retried");
        facts.attempts.push(Attempt { attempt: 2, ..also });
    });
    expect("an attempt is recorded twice", |facts, _| {
        let (also, _) = attempt(2, FIRST + 1, "moving", 9, "retried");
        facts.attempts.push(also);
    });
    expect("an acknowledged job is lost", |facts, _| {
        facts.jobs.remove(0);
    });
    expect("a job exists that was rolled back", |facts, _| {
        facts.withdrawn.push(format!("work-{}", FIRST + 2));
    });
}

#[test]
fn an_execution_too_many_is_named_unless_the_shard_that_it_was_of_crashed() {
    let twice = |facts: &mut Facts| {
        let again = Execution {
            shard: Some(2),
            began: 5 * MINUTE,
            ended: Some(6 * MINUTE),
            ..facts.executions[2].clone()
        };
        facts.executions.push(again);
    };
    let at_once = |facts: &mut Facts| facts.executions[0].ended = Some(3 * MINUTE);
    let rules = [
        "an attempt is executed twice",
        "a job is executed twice at once",
    ];
    for rule in rules {
        let change = |facts: &mut Facts| match rule == rules[0] {
            true => twice(facts),
            false => at_once(facts),
        };
        expect(rule, |facts, _| change(facts));
        let crashed = |shard| {
            broken(|facts, _| {
                change(facts);
                let at = facts.executions[0].began + 1;
                let later = facts.executions[2].began + 1;
                for at in [at, later] {
                    let shard = Some(shard);
                    facts.crashes.push(Crash { shard, at });
                }
            })
        };
        assert_eq!(crashed(1), Vec::<&str>::new(), "a crash undoes claims");
        assert!(crashed(2).contains(&rule), "another shard crashed");
    }
}

#[test]
fn what_a_move_leaves_is_named() {
    let rule = "a move has left something";
    expect(rule, |_, cluster| {
        cluster.departures.push("batch 1 of group g".to_owned());
    });
    expect(rule, |_, cluster| cluster.moving.push("moving".to_owned()));
    let rule = "a group is on another shard than the router says";
    for what in ["a waiting job", "a manifest", "settings", "a dead letter"] {
        expect(rule, |_, cluster| {
            cluster.holdings.push((1, "moving".to_owned(), what));
        });
    }
    expect(
        "a group that was not moved is on several shards",
        |facts, _| {
            facts.attempts[2].shard = 2;
            facts.attempts.push(facts.attempts[2].clone());
            facts.attempts[2].shard = 1;
        },
    );
}

#[test]
fn an_id_of_no_shard_and_one_of_two_jobs_are_named() {
    expect("an id is of no shard", |facts, _| {
        facts.attempts[2].job = 7;
    });
    expect("an id is given twice", |facts, _| {
        facts.attempts[2].nonce = Some("work-another".to_owned());
    });
}

#[test]
fn a_dead_letter_that_is_lost_or_doubled_is_named() {
    let rule = "a failed job has not one dead letter";
    expect(rule, |_, cluster| {
        cluster.letters.pop();
    });
    expect(rule, |_, cluster| cluster.letters[0].has_moved = false);
    expect("an acknowledged requeue is lost", |_, cluster| {
        cluster.requeued.push((SECOND + 1, FIRST + 9));
    });
    let kept = broken(|_, cluster| {
        cluster.letters[1].requeued_as = Some(FIRST + 1);
        cluster.requeued.push((SECOND + 1, FIRST + 1));
    });
    assert_eq!(kept, Vec::<&str>::new());
    expect("a cancelled job goes on", |_, cluster| {
        cluster.cancelled.push(FIRST + 1);
    });
}

#[test]
fn limits_and_unique_keys_count_on_each_shard_for_itself() {
    let beside = |shard: i32| {
        broken(move |facts, _| {
            let (mut one, mut executed) = attempt(shard, FIRST + 3, "moving", 4, "completed");
            one.key = Some("k".to_owned());
            facts.attempts[2].key = Some("k".to_owned());
            executed.nonce = one.nonce.clone().expect("it has one");
            let jobs = [&one, &facts.attempts[2]].map(|attempt| Job {
                unique: Some("u".to_owned()),
                queued_at: 0,
                ..job(attempt)
            });
            facts.jobs.retain(|one| one.job != FIRST + 2);
            facts.jobs.extend(jobs);
            facts.attempts.push(one);
            facts.executions.push(executed);
        })
    };
    assert_eq!(beside(2), Vec::<&str>::new());
    let here = beside(1);
    for rule in [
        "a concurrency key is above its limit",
        "a unique key is alive twice",
    ] {
        assert!(here.contains(&rule), "{rule} is not among {here:?}");
    }
}
