//! The slots for running jobs, shared by several databases.

use super::{Gate, through};
use crate::worker::{start, worker};
use harness::proxy::Slow;
use harness::session::session;
use harness::{PATIENCE, eventually};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use trax_client::{Context, Stopped};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_are_shared_and_a_database_without_work_leaves_them() {
    let (first, a) = session().await;
    let (second, b) = session().await;
    a.get("select trax.enqueue('t') from generate_series(1, 1000)")
        .await;
    let gate = Gate::new();
    let worker = gate.guard(worker(&first).also(second.config()));
    let worker = start(worker.concurrency(4).prefetch(0));
    let sees = async |here: usize, there: usize| {
        eventually("places are shared", PATIENCE, async || {
            match (gate.of(&first), gate.of(&second)) {
                now if now == (here, there) => Ok(()),
                now => Err(format!("{now:?}")),
            }
        })
        .await;
    };
    sees(4, 0).await;
    b.get("select trax.enqueue('t') from generate_series(1, 1000)")
        .await;
    // A free slot goes to the database with fewer running jobs, until each has half.
    eventually("each has its half", PATIENCE, async || {
        match (gate.of(&first), gate.of(&second)) {
            (2, 2) => Ok(()),
            now => {
                gate.end_one(now.0 + now.1);
                Err(format!("{now:?}"))
            }
        }
    })
    .await;
    // All slots go to the database with work.
    b.get("select trax.cancel_group('default')").await;
    gate.open.add_permits(30);
    sees(4, 0).await;
    gate.open.add_permits(3000);
    a.becomes("select count(*) from trax.work_queue", "0").await;
    let summary = worker.drain().await;
    assert_eq!(summary.stopped, Stopped::Drained);
    let most = *gate.most.lock().expect("no test panics here");
    assert_eq!(most, 4);
}

/// Runs jobs of this many databases, each with enough jobs, in this many slots. Once every database
/// has begun a job, counts each database's share of the next `last` jobs.
async fn shares(databases: usize, places: usize, last: usize) -> Vec<usize> {
    let mut all = Vec::new();
    for _ in 0..databases {
        let (database, s) = session().await;
        s.get("select count(trax.enqueue('t')) from generate_series(1, 3000)")
            .await;
        all.push(database);
    }
    let begun: Arc<Mutex<Vec<String>>> = Arc::default();
    let note = Arc::clone(&begun);
    let first = all
        .iter()
        .skip(1)
        .fold(worker(&all[0]), |worker, other| worker.also(other.config()));
    let worker = first.handle_any(move |_: serde_json::Value, ctx: Context| {
        let database = ctx.database().and_then(|at| at.get_dbname());
        let database = database.expect("it is from somewhere").to_owned();
        note.lock().expect("no test panics here").push(database);
        async { Ok(()) }
    });
    // No job waits for a slot: each database claims when it has one.
    let worker = start(worker.concurrency(places).prefetch(0));
    let counted = Mutex::new(Vec::new());
    eventually("all run jobs", PATIENCE, async || {
        let begun = begun.lock().expect("no test panics here");
        let firsts = all.iter().map(|database| {
            let first = begun.iter().position(|name| name == database.name());
            first.unwrap_or(begun.len())
        });
        let from = firsts.max().unwrap_or_default() + 1;
        let Some(counted_from) = begun.get(from..from + last) else {
            return Err(format!(
                "{} have begun, all of them from {from}",
                begun.len()
            ));
        };
        let count = |name: &str| counted_from.iter().filter(|one| *one == name).count();
        let counts = all.iter().map(|database| count(database.name()));
        *counted.lock().expect("no test panics here") = counts.collect();
        Ok(())
    })
    .await;
    worker.drain().await;
    counted.into_inner().expect("no test panics here")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_fewer_places_than_databases_each_has_half_its_share_at_least() {
    for (databases, places) in [(2, 1), (5, 4)] {
        let begun = shares(databases, places, 200 * databases).await;
        assert!(begun.iter().all(|jobs| *jobs >= 100), "{places}: {begun:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_one_has_its_share_of_the_places_and_no_more() {
    let (here, s) = session().await;
    let (there, t) = session().await;
    for session in [&s, &t] {
        session
            .get("select count(trax.enqueue('t')) from generate_series(1, 900)")
            .await;
    }
    // A round trip takes longer than slots are reserved for it.
    let delay = Duration::from_millis(75);
    let slow = Slow::before(harness::shared_server().port(), delay).await;
    let worker = worker(&here).also(through(slow.port(), &there));
    let gate = Gate::new();
    let worker = start(gate.guard(worker.concurrency(4)));
    eventually("each has its half", PATIENCE, async || {
        match (gate.of(&here), gate.of(&there)) {
            (2, 2) => Ok(()),
            now => {
                gate.end_one(now.0 + now.1);
                Err(format!("{now:?}"))
            }
        }
    })
    .await;
    gate.open.add_permits(300);
    let ends = "select count(*) from trax.run";
    eventually("300 more have run", PATIENCE, async || {
        match gate.open.available_permits() {
            0 => Ok(()),
            left => Err(left.to_string()),
        }
    })
    .await;
    worker.shutdown.drain();
    gate.open.add_permits(999);
    worker.drain().await;
    let (fast, slow) = (s.number(ends).await, t.number(ends).await);
    assert!(fast >= 150 && slow > 0, "{fast} and {slow}");
}
