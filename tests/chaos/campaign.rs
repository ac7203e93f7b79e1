//! A campaign: starts the participants, applies and heals the planned faults, waits until all jobs
//! have ended, and runs the checkers.

use crate::caller;
use crate::check::Violation;
use crate::course::{LONG, LOOK, REVIVAL, WATCH, drain, join, judge, look_at, strike_all};
use crate::fact::{self, Crash, Execution, Facts, from_the_beginning};
use crate::fault::{Fault, plan};
use crate::fleet::{Fleet, LOGGED};
use crate::graph::producer::seal_all;
use crate::holder;
use crate::journal::Journal;
use crate::producer::{self, Pace};
use crate::random::Random;
use crate::shim::Shim;
use crate::strike::{Campaigner, Damage};
use crate::summary;
use crate::testbed::{
    CALLERS, CHANGED, DATABASE_LIMIT, GROUPS, MANIFEST_LIMITS, PRODUCERS, Testbed, ZONED, now,
    schedules,
};
use crate::workflow::post::{self, Office};
use harness::sweep::LimitChange;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;

/// The arguments of a campaign.
pub(crate) struct Order {
    pub(crate) seed: u64,
    pub(crate) time: Duration,
    /// The names of the faults to use; `None` allows all.
    pub(crate) only: Option<String>,
}

/// Runs the campaign and returns the violated rules.
pub(crate) async fn run(order: &Order, mut shim: Shim) -> Vec<Violation> {
    let synchronous = Random::new(order.seed, "testbed").percent(40);
    // These two faults can end the wait for a synchronous standby early, so that a later promotion
    // would lose an acknowledged commit.
    let may_come = |fault: Fault| {
        fault.is_for_one_server()
            && !(synchronous && matches!(fault, Fault::Cancel | Fault::Setting))
    };
    let strikes = plan(order.seed, order.time, may_come, order.only.as_deref());
    println!(
        "chaos: seed {}, {} s, {} faults, {} standby",
        order.seed,
        order.time.as_secs(),
        strikes.len(),
        if synchronous {
            "a synchronous"
        } else {
            "an asynchronous"
        }
    );
    let mut testbed = Testbed::new(synchronous).await;
    let mut damage = Damage::default();
    prove(&mut shim, &testbed, &mut damage).await;
    let mut fleet = Fleet::new(&testbed);
    let (journal, pace) = (Arc::new(Journal::default()), Arc::new(Pace::default()));
    let (producers, others) = crowd(order.seed, &testbed, &journal, &pace);
    let mut striker = Campaigner {
        testbed: &mut testbed,
        fleet: &mut fleet,
        damage: &mut damage,
        shim,
    };
    let missed = strike_all(&strikes, &mut striker).await;

    let healed = Instant::now();
    pace.stop.store(true, Ordering::Relaxed);
    join(producers).await;
    let stopped = healed.elapsed();
    let sealed = seal_all(&testbed.admin().await).await;
    let sealed = sealed.expect("the open batches are sealed");
    journal.note(|pages| pages.sealed.extend(sealed));
    let is_alive = revive(&testbed, &mut fleet).await;
    let revived = healed.elapsed();
    let is_drained = drain(async || vec![testbed.admin().await], &mut fleet)
        .await
        .and(is_alive);
    println!(
        "healed; then producers stopped within {stopped:.1?}, all did something again within {revived:.1?}, \
         all jobs ended within {:.1?}",
        healed.elapsed()
    );
    pace.finished.store(true, Ordering::Relaxed);
    join(others).await;

    let pages = journal.read();
    let mut facts = Facts {
        enqueued: pages.enqueued,
        withdrawn: pages.withdrawn,
        completed: pages.completed,
        signals: pages.signals,
        felled: pages.felled,
        opened: pages.opened,
        added: pages.added,
        sealed: pages.sealed,
        crashes: damage.crashes,
        losses: damage.losses,
        group_limits: limits(damage.limits),
        database_limit: DATABASE_LIMIT,
        manifest_limits: MANIFEST_LIMITS.into(),
        lags: damage.lags,
        steps: damage.steps,
        schedules: schedules(),
        complaints: pages.complaints,
        holds: pages.holds,
        is_drained: is_drained.is_ok(),
        ..Facts::default()
    };
    let client = testbed.admin().await;
    let snapshot = "begin isolation level repeatable read";
    client
        .batch_execute(snapshot)
        .await
        .expect("a snapshot is taken");
    fact::read(&client, 0, &mut facts)
        .await
        .expect("the tables are read");
    // Manifests keep running, so the handlers' logs are read after the tables.
    facts.executions = fleet.executions();
    let mut found = judge(&facts, is_drained, &fleet);
    found.extend(summary::trouble_in(&testbed.primary));
    if !found.is_empty() {
        summary::keep_log(&testbed.primary, &order.seed.to_string());
    }
    summary::print(&facts, &strikes, &missed, &pages.errors);
    found
}

/// Checks that the shim reaches the server. Without this check its faults might have no effect, and
/// the driver and the server might use different clocks.
async fn prove(shim: &mut Shim, testbed: &Testbed, damage: &mut Damage) {
    const STEP: i64 = 5_000_000;
    let client = testbed.admin().await;
    let clock = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
    let before = now();
    damage.steps.push(shim.step_to(STEP));
    let row = client.query_one(clock, &[]).await;
    let seen: i64 = row.expect("the server answers").get(0);
    let after = now();
    damage.steps.push(shim.step_to(0));
    assert!(
        before + STEP <= seen && seen <= after,
        "the server's clock does not step: it shows {seen} between {before} and {after}"
    );
    let table = "create table public.large as select n from generate_series(1, 10000) n";
    // A WAL write at that moment crashes the server instead, and it restarts.
    for _ in 0..3 {
        let client = testbed.admin().await;
        shim.fill(&testbed.primary.data_dir());
        let refused = client.batch_execute(table).await;
        shim.free();
        let refused = refused.expect_err("the server's disk is full");
        match refused.code() {
            Some(code) => return assert_eq!(code, &SqlState::DISK_FULL, "{refused}"),
            None => damage.crashes.push(Crash::at(now())),
        }
    }
    panic!("the server's disk is full, and it ends each time");
}

/// The limits of the groups over time.
fn limits(changes: Vec<LimitChange>) -> BTreeMap<&'static str, Vec<LimitChange>> {
    let first = |(group, limit)| (group, vec![from_the_beginning(limit)]);
    let mut limits = BTreeMap::from(GROUPS.map(first));
    limits.entry(CHANGED.0).or_default().extend(changes);
    limits
}

type Tasks = Vec<JoinHandle<()>>;

/// Returns the tasks of the producers, and those of the callers, holders, posts and watchers.
fn crowd(seed: u64, testbed: &Testbed, journal: &Arc<Journal>, pace: &Arc<Pace>) -> (Tasks, Tasks) {
    let shared = || (Arc::clone(journal), Arc::clone(pace));
    let producers = (0..4).map(|number| {
        let (journal, pace) = shared();
        let config = testbed.route(PRODUCERS, "producer");
        tokio::spawn(producer::run(
            format!("p{number}"),
            config,
            producer::SERVER,
            seed,
            journal,
            pace,
        ))
    });
    let callers = (0..3).map(|number| {
        let (journal, pace) = shared();
        let config = testbed.route(CALLERS, "caller");
        tokio::spawn(caller::run(
            format!("c{number}"),
            config,
            seed,
            journal,
            pace,
        ))
    });
    let holders = (0..4).map(|number| {
        let (journal, pace) = shared();
        let config = testbed.route(CALLERS, "caller");
        tokio::spawn(holder::run(
            format!("h{number}"),
            config,
            seed,
            journal,
            pace,
        ))
    });
    let posts = (0..2).map(|number| {
        let (journal, pace) = shared();
        let office = Office {
            config: testbed.route(CALLERS, "caller"),
            eyes: vec![testbed.address.clone()],
            has_router: false,
        };
        tokio::spawn(post::run(
            format!("post{number}"),
            office,
            seed,
            journal,
            pace,
        ))
    });
    let (journal, pace) = shared();
    let watch = tokio::spawn(watch(testbed.address.clone(), journal, pace));
    let others = callers.chain(holders).chain(posts).chain([watch]);
    (producers.collect(), others.collect())
}

/// Looks at the tables throughout the campaign, to find violations that last only a moment.
async fn watch(address: crate::testbed::Address, journal: Arc<Journal>, pace: Arc<Pace>) {
    while !pace.is_finished() {
        if let Ok(client) = address.connect_as("watcher").await {
            while !pace.is_finished() {
                let Ok(backlog) = look_at(&client, &journal).await else {
                    break;
                };
                pace.backlog.store(backlog, Ordering::Relaxed);
                tokio::time::sleep(WATCH).await;
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until the scheduler queues manifests again and each worker has begun a new job.
async fn revive(testbed: &Testbed, fleet: &mut Fleet) -> Result<(), String> {
    let (begun, since) = (Instant::now(), now());
    let mut waited = String::new();
    let enqueue = "select trax.enqueue('work', jsonb_build_object('nap', 200), priority => 31) from generate_series(1, 20)";
    let queued = format!(
        "select exists (select from trax.run where manifest = 'seconds' and state = 'completed'
             and queued_at > to_timestamp({since} / 1000000.0)),
         (select s.next_scheduled_for = p.run_at from trax.manifest_state s join trax.manifest m using (manifest_id),
             trax.preview(m.name, count => 1) p where m.name = '{ZONED}')"
    );
    loop {
        fleet.refill();
        let client = testbed.admin().await;
        let (scheduler, zoned): (bool, bool) = match client.query_one(&queued, &[]).await {
            Ok(row) => (row.get(0), row.get(1)),
            Err(error) => return Err(format!("{queued}: {error:?}")),
        };
        let executions = fleet.executions();
        let is_idle = |worker: &str| {
            let is_new = |one: &Execution| one.worker == worker && one.began > since;
            !executions.iter().any(is_new)
        };
        let idle: Vec<_> = LOGGED
            .into_iter()
            .filter(|worker| is_idle(worker))
            .collect();
        if scheduler && zoned && idle.is_empty() {
            if begun.elapsed() > LONG {
                println!("        the last to come back: {waited}");
            }
            return Ok(());
        }
        waited = format!(
            "nothing was begun by {idle:?}; manifests are queued: {scheduler}; the next run follows \
             the zone data: {zoned}"
        );
        if begun.elapsed() > REVIVAL {
            return Err(format!("after {REVIVAL:?} {waited}"));
        }
        client
            .batch_execute(enqueue)
            .await
            .map_err(|error| format!("{enqueue}: {error:?}"))?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
