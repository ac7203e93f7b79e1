//! A mixed load: claimers, some with terminated connections, changing limits, and keys across
//! groups. A sweep over the recorded attempts then checks that no limit was exceeded at any instant
//! and that no job starved.
//!
//! Runs for 8 seconds, or for `TRAX_SWEEP_SECONDS`.

use harness::eventually;
use harness::scheduler::live_database;
use harness::session::Session;
use harness::sweep::{Attempt, LimitChange, too_many};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use trax_client::testkit::Database;
use uuid::Uuid;

const CLAIMERS: u64 = 16;
const GROUPS: usize = 4;
const KEYS: i64 = 200;
/// The duration of a handler.
const WORK: Duration = Duration::from_millis(2);
/// The maximum number of waiting jobs, so that a job waits long only if others are preferred.
const BACKLOG: i64 = 600;
/// The number of other jobs that may start while a job waits, on a machine of any speed: those of
/// other groups while its own group has limit 1. A run of a minute showed 5,000.
const OVERTAKEN: usize = 15_000;
/// The interval between limit changes; each group's limit changes once a second.
const CHANGE_EVERY: Duration = Duration::from_millis(250);
const KILL_EVERY: Duration = Duration::from_millis(300);
/// The sequence of limits of each group, from a different start for each; 0 means no limit.
const LIMITS: [i64; 6] = [2, 3, 1, 4, 0, 1];
/// Longer than a live claimer needs, and short compared with the load.
const LEASE: &str = "interval '1 s'";

fn seconds() -> Duration {
    let seconds = std::env::var("TRAX_SWEEP_SECONDS");
    Duration::from_secs(seconds.map_or(8, |text| {
        text.parse()
            .expect("TRAX_SWEEP_SECONDS is a number of seconds")
    }))
}

type Held = (Vec<i64>, Vec<Uuid>);

/// Claims, works and completes until `done`, by single calls, by `complete_and_claim` and with
/// failures in turn.
async fn work(s: &Session, seed: u64, done: &AtomicBool) -> Result<(), Error> {
    let client = s.client();
    let worker = format!("worker {}", s.pid());
    client
        .batch_execute("set application_name = 'claimer'")
        .await?;
    let claim = format!(
        "select job_id, token from trax.claim_next(worker => $1, max_jobs => $2, lease => {LEASE})"
    );
    let claim = client.prepare(&claim).await?;
    let next = format!(
        "select job_id, token from trax.complete_and_claim($1, $2, worker => $3, max_jobs => $4, lease => {LEASE})
         where job_id is not null"
    );
    let next = client.prepare(&next).await?;
    let complete = client.prepare("select trax.complete_many($1, $2)").await?;
    let fail = client
        .prepare("select trax.fail($1, $2, 'tries again', retry_in => '0')")
        .await?;
    let mut held: Held = Held::default();
    for round in seed.. {
        let max_jobs = 1 + (round % 3) as i32;
        let rows = match round % 5 {
            0 if !done.load(Ordering::Relaxed) => {
                client
                    .query(&next, &[&held.0, &held.1, &worker, &max_jobs])
                    .await?
            }
            1 if !held.0.is_empty() => {
                client.execute(&fail, &[&held.0[0], &held.1[0]]).await?;
                client
                    .execute(&complete, &[&&held.0[1..], &&held.1[1..]])
                    .await?;
                Vec::new()
            }
            _ => {
                client.execute(&complete, &[&held.0, &held.1]).await?;
                if done.load(Ordering::Relaxed) {
                    return Ok(());
                }
                client.query(&claim, &[&worker, &max_jobs]).await?
            }
        };
        held = rows
            .iter()
            .map(|row| (row.get::<_, i64>(0), row.get::<_, Uuid>(1)))
            .unzip();
        if held.0.is_empty() {
            client
                .batch_execute("call trax.wait_for_work('20 ms')")
                .await?;
        } else {
            tokio::time::sleep(WORK).await;
        }
    }
    Ok(())
}

fn was_killed(error: &Error) -> bool {
    error.is_closed() || error.code() == Some(&SqlState::ADMIN_SHUTDOWN)
}

/// A claimer that reconnects after each termination; returns the number of terminations.
fn claimer(db: Database, seed: u64, done: Arc<AtomicBool>) -> JoinHandle<usize> {
    tokio::spawn(async move {
        let mut killed = 0;
        while !done.load(Ordering::Relaxed) {
            let s = Session::of(&db).await;
            match work(&s, seed, &done).await {
                Ok(()) => break,
                Err(error) if was_killed(&error) => killed += 1,
                Err(error) => panic!("a claimer met an error: {error:?}"),
            }
        }
        killed
    })
}

/// Repeatedly terminates a session that holds a lease.
fn killer(s: Session, done: Arc<AtomicBool>) -> JoinHandle<()> {
    tokio::spawn(async move {
        while !done.load(Ordering::Relaxed) {
            s.get(
                "select pg_terminate_backend(pid)
                 from (select a.pid
                       from trax.lease l
                       join pg_stat_activity a on l.worker = 'worker ' || a.pid
                       where a.application_name = 'claimer' and a.datname = current_database()
                       order by random()
                       limit 1) v",
            )
            .await;
            tokio::time::sleep(KILL_EVERY).await;
        }
    })
}

async fn now(s: &Session) -> i64 {
    s.number("select (extract(epoch from clock_timestamp()) * 1000000)::bigint")
        .await
}

/// Sets the limit of a group; returns the time of the change.
async fn set(s: &Session, group: usize, limit: i64) -> LimitChange {
    let began = now(s).await;
    s.get(&format!(
        "select trax.configure_group('g{group}', max_active_jobs => {limit})"
    ))
    .await;
    LimitChange {
        limit: if limit == 0 { i64::MAX } else { limit },
        began,
        committed: now(s).await,
    }
}

/// Changes the limits in turn; returns the changes of each group.
fn changer(s: Session, done: Arc<AtomicBool>) -> JoinHandle<Vec<Vec<LimitChange>>> {
    tokio::spawn(async move {
        let mut changes = vec![Vec::new(); GROUPS];
        for round in 0.. {
            let group = round % GROUPS;
            let limit = LIMITS[(round / GROUPS + group) % LIMITS.len()];
            changes[group].push(set(&s, group, limit).await);
            if done.load(Ordering::Relaxed) {
                break;
            }
            tokio::time::sleep(CHANGE_EVERY).await;
        }
        changes
    })
}

/// Keeps jobs waiting until `done`; returns the number of jobs. Keys span all groups.
fn producer(s: Session, done: Arc<AtomicBool>) -> JoinHandle<i64> {
    tokio::spawn(async move {
        let mut made = 0;
        while !done.load(Ordering::Relaxed) {
            let missing = BACKLOG - s.number("select count(*) from trax.work_queue").await;
            if missing > 0 {
                let first = made + 1;
                made += missing;
                s.get(&format!(
                    "select count(trax.enqueue('t' || n % 3, jsonb_build_object('key', key), group_name => 'g' || n / 7 % ({GROUPS} + 1),
                         concurrency_key => key, max_retries => 1000000))
                     from (select n, 'k' || n * 7919 % {KEYS} as key from generate_series({first}, {made}) n) n"
                ))
                .await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        made
    })
}

/// Reads the leases, which limits count; returns the most leases of one key in a snapshot.
fn watcher(s: Session, done: Arc<AtomicBool>) -> JoinHandle<i64> {
    tokio::spawn(async move {
        let mut most = 0;
        while !done.load(Ordering::Relaxed) {
            let sql = "select coalesce(max(held), 0)
                       from (select count(*) as held from trax.lease group by concurrency_key) k";
            most = most.max(s.number(sql).await);
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        most
    })
}

async fn all_end(s: &Session) {
    let left = "select (select count(*) from trax.work_queue), (select count(*) from trax.lease)";
    eventually("the end of all jobs", Duration::from_secs(60), async || {
        let seen = s.get(left).await;
        if seen == "0|0" { Ok(()) } else { Err(seen) }
    })
    .await;
}

/// Returns the spans of the attempts for each value of `by`.
fn spans<'a>(
    attempts: &'a [Attempt],
    by: impl Fn(&'a Attempt) -> &'a str,
) -> BTreeMap<&'a str, Vec<(i64, i64)>> {
    let mut spans: BTreeMap<&str, Vec<(i64, i64)>> = BTreeMap::new();
    for attempt in attempts {
        spans
            .entry(by(attempt))
            .or_default()
            .push((attempt.started_at, attempt.finished_at));
    }
    spans
}

fn assert_groups(attempts: &[Attempt], changes: &[Vec<LimitChange>]) {
    let spans = spans(attempts, |attempt| &attempt.group);
    for (group, changes) in changes.iter().enumerate() {
        let spans = spans[format!("g{group}").as_str()].iter().copied();
        let count = spans.len();
        let (found, most) = too_many(spans, changes);
        println!(
            "g{group}: {count} attempts, {} limits, {most} at most at once",
            changes.len()
        );
        assert_eq!(found, Vec::<String>::new(), "g{group}: {changes:?}");
    }
}

fn assert_keys(attempts: &[Attempt]) {
    let one = [LimitChange {
        limit: 1,
        began: 0,
        committed: 0,
    }];
    let spans = spans(attempts, |attempt| {
        attempt.key.as_deref().expect("each job has a key")
    });
    assert_eq!(spans.len() as i64, KEYS);
    for (key, spans) in spans {
        let (found, _) = too_many(spans.into_iter(), &one);
        assert_eq!(found, Vec::<String>::new(), "{key}");
    }
}

fn assert_nothing_starved(attempts: &[Attempt]) {
    let mut starts: Vec<i64> = attempts.iter().map(|attempt| attempt.started_at).collect();
    starts.sort_unstable();
    let place = |at: i64| starts.partition_point(|start| *start < at);
    let (overtaken, longest) = attempts
        .iter()
        .map(|attempt| {
            (
                place(attempt.started_at).saturating_sub(place(attempt.since)),
                attempt,
            )
        })
        .max_by_key(|(overtaken, _)| *overtaken)
        .expect("there are attempts");
    let waited = Duration::from_micros((longest.started_at - longest.since).unsigned_abs());
    println!("the longest wait: {waited:?}, in which {overtaken} others started");
    assert!(overtaken < OVERTAKEN, "{overtaken} before {longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_changing_limits_and_dying_workers_never_one_too_many_runs_and_nothing_starves() {
    let db = live_database().await;
    let s = Session::of(&db).await;
    // All groups are limited before the load begins.
    let mut before = Vec::new();
    for group in 0..GROUPS {
        before.push(set(&s, group, 2).await);
    }
    let done = Arc::new(AtomicBool::new(false));
    let produced = producer(Session::of(&db).await, done.clone());
    let ended = Arc::new(AtomicBool::new(false));
    let mut claimers = Vec::new();
    for seed in 0..CLAIMERS {
        claimers.push(claimer(db.clone(), seed, ended.clone()));
    }
    let killed = killer(Session::of(&db).await, done.clone());
    let changed = changer(Session::of(&db).await, done.clone());
    let watched = watcher(Session::of(&db).await, ended.clone());
    let began = Instant::now();
    tokio::time::sleep(seconds()).await;
    done.store(true, Ordering::Relaxed);
    let jobs = produced.await.expect("the producer met no error");
    killed.await.expect("the killer met no error");
    let mut changes = changed.await.expect("the changer met no error");
    all_end(&s).await;
    ended.store(true, Ordering::Relaxed);
    let took = began.elapsed();
    let mut kills = 0;
    for claimer in claimers {
        kills += claimer.await.expect("no claimer met an error");
    }
    for (changes, first) in changes.iter_mut().zip(before) {
        changes.insert(0, first);
    }
    let attempts = Attempt::all(&s).await;
    let reaped = s
        .number("select count(*) from trax.run where failure_kind = 'lease_expired'")
        .await;
    println!(
        "{jobs} jobs, {} attempts in {took:?}; {kills} sessions killed, {reaped} leases expired",
        attempts.len()
    );
    assert_groups(&attempts, &changes);
    assert_keys(&attempts);
    assert_eq!(watched.await.expect("the watcher met no error"), 1);
    assert_nothing_starved(&attempts);
    assert!(kills > 3 && reaped > 0, "workers died with jobs in hand");
    let completed =
        "select count(*), count(distinct job_id) from trax.run where final and state = 'completed'";
    assert_eq!(s.get(completed).await, format!("{jobs}|{jobs}"));
    s.assert_healthy().await;
}
