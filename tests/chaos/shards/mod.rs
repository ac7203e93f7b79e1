//! A campaign over a router and its shards: producers enqueue through the router, a fleet works for
//! all shards, groups with active jobs move between shards, and the last shard joins midway.

mod fact;
mod mover;
mod producer;
#[cfg(test)]
mod sabotage;
mod strike;
mod testbed;

use crate::campaign::Order;
use crate::check::Violation;
use crate::course::{LONG, LOOK, REVIVAL, WATCH, drain, join, judge, look_at, strike_all};
use crate::fact::{Cluster, Execution, Facts, Kind, Schedule, from_the_beginning};
use crate::fault::{Fault, plan};
use crate::fleet::{Fleet, RUST};
use crate::journal::Journal;
use crate::producer::Pace;
use crate::strike::{Damage, Result};
use crate::summary;
use crate::testbed::{Address, DATABASE_LIMIT, connect, now};
use crate::workflow::post::{self, Office};
use mover::{Mover, Tally};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use strike::Campaigner;
use testbed::{FLEET, MARKET, MOVING, PRODUCERS, STILL, Testbed, clock, schedules};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// The time limit for a look at a shard that may be stopped.
const PATIENCE: Duration = Duration::from_secs(2);
/// The number of producers.
const CROWD: usize = 5;
/// The number of movers; mostly each group has one at a time.
const MOVERS: usize = 2;

/// Runs a campaign with this many shards, if PL/Proxy is installed; returns the violated rules.
pub(crate) async fn run(order: &Order, shards: i32) -> Vec<Violation> {
    let only = order.only.as_deref();
    let strikes = plan(order.seed, order.time, Fault::is_for_shards, only);
    println!(
        "chaos: seed {}, {} s, {} faults, a router and {shards} shards",
        order.seed,
        order.time.as_secs(),
        strikes.len()
    );
    let Some(mut testbed) = Testbed::new(shards).await else {
        return Vec::new();
    };
    let mut damage = Damage::default();
    let mut fleet = Fleet::of_router(&testbed.router.url(FLEET, "worker"));
    let (journal, pace) = (Arc::new(Journal::default()), Arc::new(Pace::default()));
    let (producers, movers) = crowd(order, &testbed, &journal, &pace);
    let addresses = testbed.shards.iter().map(|shard| shard.address.clone());
    let watch = tokio::spawn(watch(
        addresses.collect(),
        Arc::clone(&journal),
        Arc::clone(&pace),
    ));
    let others = vec![watch, post(order, &testbed, &journal, &pace)];
    let mut campaigner = Campaigner {
        testbed: &mut testbed,
        fleet: &mut fleet,
        damage: &mut damage,
    };
    let missed = strike_all(&strikes, &mut campaigner).await;

    let healed = Instant::now();
    pace.stop.store(true, Ordering::Relaxed);
    join(producers).await;
    let mut tally = Tally::default();
    for mover in movers {
        tally += mover.await.expect("a mover does not panic");
    }
    let finished = mover::finish(&testbed).await;
    let finished_in = healed.elapsed();
    let is_alive = revive(&testbed, &mut fleet).await;
    let revived_in = healed.elapsed();
    let drained = drain(async || testbed.in_shards().await, &mut fleet).await;
    println!(
        "healed; then all moves ended within {finished_in:.1?}, all did something again within {revived_in:.1?}, \
         all jobs ended within {:.1?}",
        healed.elapsed()
    );
    pace.finished.store(true, Ordering::Relaxed);
    join(others).await;

    let mut facts = told(&journal, damage, shards);
    facts.is_drained = drained.is_ok();
    let read = fact::read(&testbed, &mut facts).await;
    read.expect("the tables are read");
    // Manifests keep running, so the handlers' logs are read after the tables.
    facts.executions = fleet.executions();
    let mut found = judge(&facts, finished.and(is_alive).and(drained), &fleet);
    for site in testbed.sites() {
        found.extend(summary::trouble_in(&site.server));
    }
    if !found.is_empty() {
        for site in testbed.sites() {
            summary::keep_log(&site.server, &format!("{}-{}", order.seed, site.name));
        }
    }
    let pages = journal.read();
    summary::print(&facts, &strikes, &missed, &pages.errors);
    println!(
        "shards     {} moves, broken off {} times; {} calls with an unknown end, {} refused, \
         {} cancelled, {} requeued, {} scheduled",
        tally.moved,
        tally.broken_off,
        pages.unknown,
        pages.withdrawn.len(),
        pages.cancelled.len(),
        pages.requeued.len(),
        pages.scheduled.len()
    );
    found
}

/// The acknowledgements to clients and the damage to the servers.
fn told(journal: &Journal, damage: Damage, shards: i32) -> Facts {
    let pages = journal.read();
    let once = |name: &String| Schedule {
        name: name.clone(),
        kind: Kind::Once,
    };
    let mut schedules = schedules(shards);
    schedules.extend(pages.scheduled.iter().map(once));
    let moving = MOVING
        .iter()
        .filter_map(|(group, limit)| Some((*group, (*limit)?)));
    let limits = STILL.into_iter().chain(moving);
    Facts {
        enqueued: pages.enqueued,
        withdrawn: pages.withdrawn,
        signals: pages.signals,
        felled: pages.felled,
        crashes: damage.crashes,
        lags: damage.lags,
        group_limits: limits
            .map(|(group, limit)| (group, vec![from_the_beginning(limit)]))
            .collect(),
        database_limit: DATABASE_LIMIT,
        schedules,
        complaints: pages.complaints,
        cluster: Some(Cluster {
            cancelled: pages.cancelled,
            requeued: pages.requeued,
            ..Cluster::default()
        }),
        ..Facts::default()
    }
}

/// Returns the tasks of the producers and of the last shard's joining, and those of the movers.
fn crowd(
    order: &Order,
    testbed: &Testbed,
    journal: &Arc<Journal>,
    pace: &Arc<Pace>,
) -> (Vec<JoinHandle<()>>, Vec<JoinHandle<Tally>>) {
    let joined = testbed.shards.len().saturating_sub(1).max(1);
    let joined = Arc::new(AtomicU64::new(joined as u64));
    let producer = |number| {
        tokio::spawn(crate::producer::run(
            format!("p{number}"),
            testbed.router.route(PRODUCERS, "producer"),
            MARKET,
            order.seed,
            Arc::clone(journal),
            Arc::clone(pace),
        ))
    };
    let growing = mover::grow(
        testbed.router.address.clone(),
        order.time / 2,
        mover::growth(testbed),
        Arc::clone(&joined),
        Arc::clone(journal),
    );
    let mover = |number| {
        let name = format!("mover {number}");
        let (journal, pace) = (Arc::clone(journal), Arc::clone(pace));
        let mover = Mover::new(&name, testbed, &joined, order.seed, journal, pace);
        tokio::spawn(mover.run())
    };
    let producers = (0..CROWD).map(producer);
    let producers = producers.chain([tokio::spawn(growing)]).collect();
    (producers, (0..MOVERS).map(mover).collect())
}

/// Returns the task of the post, which sends through the router.
fn post(
    order: &Order,
    testbed: &Testbed,
    journal: &Arc<Journal>,
    pace: &Arc<Pace>,
) -> JoinHandle<()> {
    let shards = testbed.shards.iter();
    let office = Office {
        config: testbed.router.route(PRODUCERS, "producer"),
        eyes: shards.map(|shard| shard.address.clone()).collect(),
        has_router: true,
    };
    let (journal, pace) = (Arc::clone(journal), Arc::clone(pace));
    tokio::spawn(post::run(
        "post".to_owned(),
        office,
        order.seed,
        journal,
        pace,
    ))
}

/// Looks at the tables of all shards throughout the campaign.
async fn watch(shards: Vec<Address>, journal: Arc<Journal>, pace: Arc<Pace>) {
    let mut sessions: Vec<Option<Client>> = shards.iter().map(|_| None).collect();
    while !pace.is_finished() {
        let mut backlog = 0;
        for (address, session) in shards.iter().zip(&mut sessions) {
            let looking = async {
                let client = match session.take() {
                    Some(client) => client,
                    None => address.connect_as("watcher").await?,
                };
                let here = look_at(&client, &journal).await?;
                let letters = "select id from trax.dead_letter where resolved_at is null order by random() limit 5";
                let letters = client.query(letters, &[]).await?;
                *session = Some(client);
                let ids = letters.iter().map(|row| row.get::<_, i64>(0)).collect();
                Ok::<_, tokio_postgres::Error>((here, ids))
            };
            // A shard that is down or stopped is looked at again later.
            if let Ok(Ok((here, ids))) = tokio::time::timeout(PATIENCE, looking).await {
                backlog += here;
                let ids: Vec<i64> = ids;
                let letters = pace.letters.lock();
                letters.unwrap_or_else(PoisonError::into_inner).extend(ids);
            }
        }
        pace.backlog.store(backlog, Ordering::Relaxed);
        tokio::time::sleep(WATCH).await;
    }
}

/// Waits until the router accepts jobs for each shard, each scheduler queues manifests again, and
/// each worker has begun a new job of each shard.
async fn revive(testbed: &Testbed, fleet: &mut Fleet) -> Result<()> {
    let (begun, since) = (Instant::now(), now());
    let mut waited = String::new();
    let router = testbed.router.route(PRODUCERS, "producer");
    loop {
        fleet.refill();
        let executions = fleet.executions();
        let is_new = |one: &&Execution| one.began > since;
        let new = executions.iter().filter(is_new);
        let new: BTreeSet<_> = new.map(|one| (&*one.worker, one.shard)).collect();
        let mut missing = Vec::new();
        for shard in &testbed.shards {
            let clock = clock(shard.number.expect("it is a shard"));
            let idle = |worker: &&str| !new.contains(&(*worker, shard.number));
            missing.extend(
                RUST.into_iter()
                    .filter(idle)
                    .map(|worker| format!("{worker} at {}", shard.name)),
            );
            let queued = format!(
                "select exists (select from trax.run where manifest = '{clock} seconds' and state = 'completed'
                    and queued_at > to_timestamp({since} / 1000000.0))"
            );
            let row = shard.admin().await.query_one(&queued, &[]).await;
            match row.map(|row| row.get(0)) {
                Ok(true) => {}
                Ok(false) => missing.push(format!("the scheduler of {}", shard.name)),
                Err(error) => missing.push(format!("{queued}: {error:?}")),
            }
            let enqueue = format!(
                "select trax.enqueue('work', jsonb_build_object('nap', 300), priority => 31, group_name => '{clock}')
                from generate_series(1, 6)"
            );
            let enqueueing = async {
                let client = connect(&router).await?;
                client.batch_execute(&enqueue).await
            };
            match tokio::time::timeout(LONG, enqueueing).await {
                Ok(Ok(())) => {}
                other => missing.push(format!("{enqueue}: {other:?}")),
            }
        }
        if missing.is_empty() {
            if begun.elapsed() > LONG {
                println!("        the last to come back: {waited}");
            }
            return Ok(());
        }
        waited = missing.join(", ");
        if begun.elapsed() > REVIVAL {
            return Err(format!("after {REVIVAL:?}, not back: {waited}"));
        }
        tokio::time::sleep(2 * LOOK).await;
    }
}
