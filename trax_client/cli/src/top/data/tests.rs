//! Test data for `trax top`.

use super::*;
use serde_json::json;
use std::time::Duration;

fn snapshot(at: Instant) -> Snapshot {
    let job = |job_id: i64, seconds: f64| Job {
        shard: None,
        job_id,
        task: "report.build".to_owned(),
        group: "etl".to_owned(),
        worker: "worker-1".to_owned(),
        attempt: 1,
        seconds,
        stopping: job_id == 12,
        progress: (job_id == 11).then(|| json!({"done": 0.5}).into()),
    };
    Snapshot {
        at,
        away: Vec::new(),
        database: "app".to_owned(),
        version: "0.1.0".to_owned(),
        scheduler: true,
        paused: false,
        lag: 0.0,
        dead_letters: 1.0,
        stopped: 1.0,
        enqueued: 0.0,
        counted: true,
        groups: Vec::new(),
        tasks: BTreeMap::new(),
        running: vec![job(11, 90.0), job(12, 5.0)],
        workers: vec![Worker {
            shard: None,
            name: "worker-1".to_owned(),
            state: "working".to_owned(),
            running: 2,
            seen_seconds: 3.0,
        }],
        dead: vec![Dead {
            shard: None,
            id: 4,
            task: "mail.send".to_owned(),
            stops: Some("nightly".to_owned()),
            seconds: 7200.0,
            attempts: 4,
            error: "no such\u{1b}[2J mailbox".to_owned(),
        }],
    }
}

/// Returns two snapshots taken two seconds apart.
pub(in super::super) fn screenful() -> Screenful {
    let begin = Instant::now();
    let mut first = snapshot(begin);
    let mut second = snapshot(begin + Duration::from_secs(2));
    let report = json!({"task": "report.build"});
    for (snapshot, times) in [(&mut first, 1.0), (&mut second, 2.0)] {
        for (name, labels, value) in [
            ("trax_enqueued_total", json!({}), 100.0),
            ("trax_completions_total", report.clone(), 60.0),
            ("trax_run_seconds_count", report.clone(), 60.0),
            ("trax_run_seconds_sum", report.clone(), 30.0),
            (
                "trax_failures_total",
                json!({"task": "mail.send", "kind": "error"}),
                2.0,
            ),
            (
                "trax_failures_total",
                json!({"task": "mail.send", "kind": "timeout"}),
                4.0,
            ),
            (
                "trax_queue_depth",
                json!({"group": "etl", "state": "ready"}),
                500.0,
            ),
            (
                "trax_queue_depth",
                json!({"group": "idle", "state": "ready"}),
                0.0,
            ),
            ("trax_leases", json!({"group": "etl"}), 2.0),
            ("trax_group_max_active_jobs", json!({"group": "etl"}), 4.0),
        ] {
            snapshot.take(name, &labels, value * times);
        }
    }
    let mut screenful = Screenful::of(first);
    screenful.add(second);
    screenful
}

#[test]
fn rates_are_what_two_looks_differ_by_in_a_second() {
    let screenful = screenful();
    assert_eq!(screenful.enqueued(), 50.0);
    assert_eq!(screenful.all().completions, 30.0);
    assert_eq!(screenful.all().failures, 3.0);
    let tasks = screenful.tasks();
    assert_eq!((tasks[0].0, tasks[0].1.run), ("report.build", Some(0.5)));
    assert_eq!((tasks[1].0, tasks[1].1.run), ("mail.send", None));
    assert_eq!(screenful.history, [30]);
}

#[test]
fn a_counter_that_began_again_is_not_negative() {
    let mut screenful = screenful();
    let mut restarted = snapshot(screenful.now.at + Duration::from_secs(1));
    restarted.take("trax_enqueued_total", &json!({}), 7.0);
    screenful.add(restarted);
    assert_eq!(screenful.enqueued(), 7.0);
}
