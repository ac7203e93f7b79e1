//! Tests of the checkers of workflows: each broken rule is reported, and a loss that explains it is
//! not. The changes are made to the facts of two workflows.

use super::fact::{Flow, Kept, Signal};
use super::programme::undo_plan;
use super::{UNDO, WORKFLOW};
use crate::check::violations;
use crate::fact::{Attempt, Execution, Facts, Job};
use serde_json::{Value, json};

const SECOND: i64 = 1_000_000;
/// The workflow that completes, its child, the one that fails, and what undoes its steps.
const DONE: i64 = 10;
const CHILD: i64 = 11;
const FAILED: i64 = 20;
const UNDONE: [i64; 2] = [21, 22];

fn kept(step: &str, kind: &str, second: i64, output: Value) -> Kept {
    Kept {
        step: step.to_owned(),
        kind: kind.to_owned(),
        recorded_at: second * SECOND,
        output,
        ..Kept::default()
    }
}

fn waited(kept: Kept, what: Option<&str>, until: Option<i64>) -> Kept {
    Kept {
        waits_for: what.map(str::to_owned),
        until: until.map(|until| until * SECOND),
        ..kept
    }
}

fn flow(job: i64, nonce: &str, plan: &str, state: &str, end: i64, steps: Vec<Kept>) -> Flow {
    Flow {
        job,
        task: WORKFLOW.to_owned(),
        state: state.to_owned(),
        nonce: nonce.to_owned(),
        plan: plan.to_owned(),
        finished_at: end * SECOND,
        steps,
        ..Flow::default()
    }
}

fn undo(job: i64, of: &str, row: &str, end: i64) -> Flow {
    let steps = vec![kept(row, "step", end, json!("1.3"))];
    let nonce = format!("undo-f/{of}");
    Flow {
        task: UNDO.to_owned(),
        of: Some(of.to_owned()),
        parent: Some(FAILED),
        output: json!(["1.3"]),
        ..flow(job, &nonce, undo_plan(of), "completed", end, steps)
    }
}

fn flows() -> Vec<Flow> {
    let child = json!([{"step": "child.4", "job_id": CHILD, "state": "completed"}]);
    let timed_out = waited(kept("b", "signal", 6, Value::Null), Some("b"), Some(6));
    let steps = vec![
        kept("row.0", "step", 1, json!("1.1")),
        waited(kept("sleep.1", "sleep", 3, Value::Null), None, Some(3)),
        waited(kept("a", "signal", 4, json!("s-1")), Some("a"), None),
        Kept {
            timed_out: true,
            ..timed_out
        },
        kept("child.4", "child", 7, json!(CHILD)),
        waited(kept("children", "jobs", 9, child), Some("all"), None),
        kept("note.6", "step", 10, json!("1.2")),
    ];
    let plan = "row sleep=100 signal=a signal=b=500 child=row children=all note";
    let with_undo = |kept: Kept| Kept {
        has_undo: true,
        ..kept
    };
    let undoable = vec![
        with_undo(kept("row.0", "step", 1, json!("1.1"))),
        with_undo(kept("note.1", "step", 2, json!("1.2"))),
    ];
    vec![
        Flow {
            output: json!([
                "1.1",
                null,
                "s-1",
                null,
                CHILD,
                [true, ["completed"]],
                "1.2"
            ]),
            ..flow(DONE, "w", plan, "completed", 11, steps)
        },
        Flow {
            parent: Some(DONE),
            output: json!(["1.3"]),
            ..flow(
                CHILD,
                "w/child.4",
                "row",
                "completed",
                8,
                vec![kept("row.0", "step", 8, json!("1.3"))],
            )
        },
        flow(FAILED, "f", "row! note! fail", "failed", 3, undoable),
        undo(UNDONE[0], "note.1", "row.1", 5),
        undo(UNDONE[1], "row.0", "row.0", 7),
    ]
}

fn signal(word: &str, name: &str, asked: i64) -> Signal {
    Signal {
        job: DONE,
        name: name.to_owned(),
        word: word.to_owned(),
        asked: asked * SECOND,
        answer: "sent".to_owned(),
        committed: Some(asked * SECOND + 1),
        ..Signal::default()
    }
}

/// Undamaged: each job began a second before its end.
fn history() -> Facts {
    let mut facts = Facts {
        flows: flows(),
        signals: vec![signal("s-1", "a", 2)],
        is_drained: true,
        database_limit: 100,
        ..Facts::default()
    };
    for flow in &facts.flows {
        let (began, ended) = (flow.finished_at - SECOND, flow.finished_at);
        let is_done = flow.state == "completed";
        facts.jobs.push(Job {
            job: flow.job,
            state: flow.state.clone(),
            nonce: Some(flow.nonce.clone()),
            finished_at: Some(ended),
            ..Job::default()
        });
        facts.attempts.push(Attempt {
            job: flow.job,
            attempt: 1,
            is_final: true,
            state: flow.state.clone(),
            task: flow.task.clone(),
            nonce: Some(flow.nonce.clone()),
            started_at: Some(began),
            finished_at: Some(ended),
            ..Attempt::default()
        });
        facts.executions.push(Execution {
            job: flow.job,
            attempt: 1,
            nonce: flow.nonce.clone(),
            began,
            ended: Some(ended),
            word: if is_done { "ok" } else { "failed" }.to_owned(),
            ..Execution::default()
        });
        let rows = flow
            .steps
            .iter()
            .filter(|kept| kept.step.starts_with("row"));
        let rows = rows.map(|kept| (flow.nonce.clone(), kept.step.clone()));
        facts.deeds.extend(rows);
    }
    facts
}

/// Changes the history and returns the violated rules.
fn broken(change: impl Fn(&mut Facts)) -> Vec<&'static str> {
    let mut facts = history();
    change(&mut facts);
    violations(&facts).into_iter().map(|one| one.rule).collect()
}

fn expect(rule: &str, change: impl Fn(&mut Facts)) {
    let named = broken(change);
    assert!(named.contains(&rule), "{rule} is not among {named:?}");
}

/// A flow of the history, by its job.
fn of(facts: &mut Facts, job: i64) -> &mut Flow {
    let mut flows = facts.flows.iter_mut();
    flows.find(|flow| flow.job == job).expect("it is there")
}

fn step<'flow>(flow: &'flow mut Flow, name: &str) -> &'flow mut Kept {
    let mut steps = flow.steps.iter_mut();
    steps.find(|kept| kept.step == name).expect("it is there")
}

#[test]
fn workflows_that_keep_their_programmes_break_no_rule() {
    assert_eq!(violations(&history()), []);
}

#[test]
fn a_step_that_is_doubled_lost_or_out_of_order_is_named() {
    expect("a step is recorded twice", |facts| {
        let flow = of(facts, DONE);
        flow.steps.insert(1, flow.steps[0].clone());
    });
    let rule = "a workflow's steps are not those of its programme";
    expect(rule, |facts| drop(of(facts, DONE).steps.pop()));
    expect(rule, |facts| of(facts, DONE).steps.swap(0, 1));
    expect(rule, |facts| {
        of(facts, FAILED).state = "completed".to_owned()
    });
    expect("a step has not one row", |facts| {
        facts.deeds.push(facts.deeds[0].clone())
    });
    expect("a step has not one row", |facts| {
        drop(facts.deeds.remove(0))
    });
    expect("a row has no step", |facts| of(facts, FAILED).steps.clear());
    expect("a row has no step", |facts| {
        facts.deeds.push(("w-0".to_owned(), "row.0".to_owned()));
    });
    expect(
        "a workflow got another result than its job keeps",
        |facts| {
            step(of(facts, DONE), "note.6").output = json!("2.2");
        },
    );
    // Its execution began at the second 10.
    let again = |facts: &mut Facts| {
        step(of(facts, DONE), "note.6").recorded_at = 9 * SECOND;
        facts.executions[0].works.push("note.6".to_owned());
    };
    let rule = "the work of a step runs after it was recorded";
    expect(rule, again);
    let excused = broken(|facts| {
        again(facts);
        facts.losses.push((9 * SECOND, 12 * SECOND));
    });
    assert!(!excused.contains(&rule), "it may have been recorded anew");
}

#[test]
fn a_wait_that_ends_early_is_named() {
    let rule = "a wait ended before its time";
    let early = |facts: &mut Facts| step(of(facts, DONE), "sleep.1").until = Some(3 * SECOND + 1);
    expect(rule, early);
    expect(rule, |facts| {
        step(of(facts, DONE), "b").until = Some(7 * SECOND)
    });
    let excused = broken(|facts| {
        early(facts);
        facts.steps.push((8 * SECOND, 2 * SECOND));
    });
    assert!(!excused.contains(&rule), "the clock went back");
}

#[test]
fn an_attempt_that_goes_on_without_having_been_suspended_is_named() {
    let rule = "an attempt is executed twice";
    let killed = |facts: &mut Facts| {
        let first = Execution {
            began: 2 * SECOND,
            ended: Some(4 * SECOND),
            word: "killed".to_owned(),
            ..facts.executions[0].clone()
        };
        facts.executions.push(first);
    };
    expect(rule, killed);
    let excused = broken(|facts| {
        killed(facts);
        step(of(facts, DONE), "a").since = 3 * SECOND;
    });
    assert_eq!(excused, Vec::<&str>::new(), "it was suspended");
}

#[test]
fn a_signal_that_does_not_end_its_wait_is_named() {
    expect("a wait ended by a signal of nobody", |facts| {
        facts.signals.clear()
    });
    expect("a wait ended by another's signal", |facts| {
        facts.signals[0].job = FAILED
    });
    expect("a wait ended by another's signal", |facts| {
        facts.signals[0].name = "b".to_owned();
    });
    expect("a signal was taken that was rolled back", |facts| {
        facts.signals[0].is_withdrawn = true;
    });
    expect("a signal is taken twice", |facts| {
        let second = step(of(facts, DONE), "b");
        (second.timed_out, second.output) = (false, json!("s-1"));
    });
    let passed = "a signal is passed over";
    let earlier = |facts: &mut Facts| facts.signals.push(signal("s-0", "a", 1));
    expect(passed, earlier);
    let excused = broken(|facts| {
        earlier(facts);
        facts.losses.push((0, 2 * SECOND));
    });
    assert!(!excused.contains(&passed), "its commit may be lost");
    expect("a wait timed out beside its signal", |facts| {
        facts.signals.push(signal("s-2", "b", 5));
    });
    let late = broken(|facts| facts.signals.push(signal("s-2", "b", 6)));
    assert_eq!(late, Vec::<&str>::new(), "it came after the wait");
    let same = |facts: &mut Facts| {
        let mut again = signal("s-2", "a", 3);
        for signal in [&mut facts.signals[0], &mut again] {
            signal.id = Some("id".to_owned());
        }
        facts.signals.push(again);
    };
    expect("a repeated signal was sent", same);
    expect("a repeated signal was taken", |facts| {
        same(facts);
        facts.signals[1].name = "b".to_owned();
        let second = step(of(facts, DONE), "b");
        (second.timed_out, second.output) = (false, json!("s-2"));
    });
}

#[test]
fn a_child_that_is_lost_or_doubled_is_named() {
    expect("a child is lost", |facts| {
        facts.jobs.retain(|job| job.job != CHILD)
    });
    expect("a child is lost", |facts| {
        facts.jobs[1].nonce = Some("w/child.5".to_owned());
    });
    expect("a child is doubled", |facts| {
        let child = of(facts, CHILD).clone();
        facts.flows.push(Flow {
            job: CHILD + 1,
            ..child
        });
    });
    let rule = "a wait for children ended otherwise";
    expect(rule, |facts| of(facts, CHILD).finished_at = 10 * SECOND);
    expect(rule, |facts| of(facts, CHILD).state = "failed".to_owned());
    expect(rule, |facts| {
        step(of(facts, DONE), "children").output = json!([])
    });
    let rule = "a cancel missed a descendant";
    expect(rule, |facts| facts.felled.push((DONE, -20 * SECOND)));
    let soon = broken(|facts| facts.felled.push((DONE, 5 * SECOND)));
    assert_eq!(soon, Vec::<&str>::new(), "it may have been claimed before");
}

#[test]
fn an_undo_that_is_skipped_doubled_or_too_early_is_named() {
    let gone = |facts: &mut Facts| facts.flows.retain(|flow| flow.job != UNDONE[1]);
    expect("an undo is skipped", gone);
    expect("an undo is doubled", |facts| {
        let again = of(facts, UNDONE[0]).clone();
        facts.flows.push(Flow { job: 23, ..again });
    });
    expect("an undo has no step", |facts| {
        step(of(facts, FAILED), "note.1").has_undo = false;
    });
    // The first ends at the second 5, and the second begins at 6.
    expect("steps are undone out of order", |facts| {
        of(facts, UNDONE[0]).finished_at = 6 * SECOND + 1;
    });
}
