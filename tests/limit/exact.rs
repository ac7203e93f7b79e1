//! Many claimers under load: by the recorded attempts, no limit is exceeded at any instant, and
//! every job ends.

use harness::dice::Dice;
use harness::eventually;
use harness::limit::most_at_once;
use harness::session::{Claimed, Session, session};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

const CLAIMERS: u64 = 10;
/// The number of jobs of each of the six kinds.
const JOBS: i64 = 120;

/// Two groups of limit 2, a group whose limit changes, keys with limit 1 in the default group, keys
/// with limit 2, and a group with both limits.
async fn load(s: &Session) {
    s.get(
        "select trax.configure_group('two', max_active_jobs => 2);
         select trax.configure_group('too', max_active_jobs => 2);
         select trax.configure_group('moving', max_active_jobs => 1);
         select trax.configure_group('pairs', max_per_key => 2);
         select trax.configure_group('both', max_active_jobs => 3);",
    )
    .await;
    for (group, key) in [
        ("two", "null"),
        ("too", "null"),
        ("moving", "null"),
        ("default", "'single ' || n % 4"),
        ("pairs", "'pair ' || n % 3"),
        ("both", "'both ' || n % 4"),
    ] {
        s.get(&format!(
            "select count(trax.enqueue('t' || n % 3, jsonb_build_object('key', {key}), group_name => '{group}',
                 concurrency_key => {key}, priority => n % 4, max_retries => 1000000))
             from generate_series(1, {JOBS}) n"
        ))
        .await;
    }
}

/// Ends a claimed job in a random way.
async fn end(s: &Session, dice: &mut Dice, job: &Claimed) {
    let key = job.key();
    let sql = match dice.roll(12) {
        0 => format!("select trax.fail({key}, 'no', retry_in => '0')"),
        1 => format!("select trax.release({key})"),
        2 => format!("begin; select trax.complete({key}); rollback; select trax.complete({key})"),
        _ => format!("select trax.complete({key})"),
    };
    s.get(&sql).await;
}

/// Claims jobs; `strict` uses a serializable transaction, which may be refused.
async fn claim(s: &Session, count: u64, strict: bool) -> Vec<Claimed> {
    let arguments = format!(
        "max_jobs => {count}, lease => '1 h', worker => 'w{}'",
        s.pid()
    );
    if !strict {
        return s.claim(&arguments).await;
    }
    let sql = format!(
        "begin isolation level serializable; select count(*) from trax.lease;
         select from trax.claim_next({arguments}); commit"
    );
    if let Err(refusal) = s.attempt(&sql).await {
        assert_eq!(refusal.code, "40001", "{refusal}");
        s.get("rollback").await;
        return Vec::new();
    }
    let mine = format!(
        "select job_id, token from trax.lease where worker = 'w{}'",
        s.pid()
    );
    let claimed = s.get(&mine).await;
    let claimed = claimed.lines().map(|line| {
        let (id, token) = line.split_once('|').expect("two columns");
        Claimed {
            id: id.parse().expect("a job id is a number"),
            token: token.to_owned(),
        }
    });
    claimed.collect()
}

fn claimer(s: Session, seed: u64, done: Arc<AtomicBool>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut dice = Dice::of(seed);
        while !done.load(Ordering::Relaxed) {
            let count = 1 + dice.roll(3);
            match dice.roll(15) {
                0 => {
                    s.get("begin").await;
                    s.claim(&format!("max_jobs => {count}")).await;
                    s.get("rollback").await;
                }
                1 => {
                    // No call ends these jobs: their leases expire.
                    s.claim(&format!("max_jobs => {count}, lease => '20 ms'"))
                        .await;
                }
                roll => {
                    let jobs = claim(&s, count, roll == 2).await;
                    if jobs.is_empty() {
                        s.get("call trax.wait_for_work('20 ms')").await;
                    }
                    tokio::time::sleep(Duration::from_millis(dice.roll(4))).await;
                    for job in &jobs {
                        end(&s, &mut dice, job).await;
                    }
                }
            }
        }
    })
}

/// Reads the leases repeatedly; returns the most leases of each group and key in one snapshot.
fn watcher(s: Session, done: Arc<AtomicBool>) -> JoinHandle<BTreeMap<String, i64>> {
    let sql = "select group_name || '=' || count(*) from trax.lease where group_name <> 'moving' group by group_name
               union all
               select concurrency_key || '=' || count(*) from trax.lease where concurrency_key is not null
               group by concurrency_key";
    tokio::spawn(async move {
        let mut most = BTreeMap::new();
        while !done.load(Ordering::Relaxed) {
            for line in s.get(sql).await.lines() {
                let (what, count) = line.split_once('=').expect("a name and a number");
                let count: i64 = count.parse().expect("a count is a number");
                let seen = most.entry(what.to_owned()).or_insert(0);
                *seen = count.max(*seen);
            }
        }
        most
    })
}

fn limit_of(what: &str) -> i64 {
    match what {
        "two" | "too" => 2,
        "both" => 3,
        pair if pair.starts_with("pair ") => 2,
        "default" | "pairs" => i64::MAX,
        _ => 1,
    }
}

/// Runs `sql` repeatedly, with the number of the round in place of `$round`.
fn again(s: Session, sql: &'static str, done: Arc<AtomicBool>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut round = 0;
        while !done.load(Ordering::Relaxed) {
            s.get(&sql.replace("$round", &round.to_string())).await;
            round += 1;
            tokio::time::sleep(Duration::from_millis(7)).await;
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_one_too_many_runs_at_any_instant_and_everything_completes() {
    let (db, s) = session().await;
    load(&s).await;
    let done = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for seed in 0..CLAIMERS {
        tasks.push(claimer(Session::of(&db).await, seed, done.clone()));
    }
    tasks.push(again(
        Session::of(&db).await,
        "select * from trax.tick()",
        done.clone(),
    ));
    tasks.push(again(
        Session::of(&db).await,
        "select trax.configure_group('moving', max_active_jobs => (array[1, 4, 2, 0, 3])[1 + $round % 5])",
        done.clone(),
    ));
    let watched = watcher(Session::of(&db).await, done.clone());
    let left =
        "select count(*), string_agg(distinct group_name || coalesce(' ' || waits_for, ''), ', ')
                from (select group_name, waits_for from trax.work_queue
                      union all select group_name, 'runs' from trax.lease) j";
    eventually("the end of all jobs", Duration::from_secs(60), async || {
        let seen = s.get(left).await;
        if seen == "0|" { Ok(()) } else { Err(seen) }
    })
    .await;
    done.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no claimer met an error");
    }
    let watched = watched.await.expect("the watcher lives");
    for (what, most) in &watched {
        assert!(
            *most <= limit_of(what),
            "{most} leases at once: {watched:?}"
        );
    }
    assert_eq!(
        s.number("select count(*) from trax.run where state = 'completed'")
            .await,
        JOBS * 6
    );
    s.assert_healthy().await;
    let groups = "case when group_name in ('two', 'too', 'both') then group_name end";
    assert_eq!(most_at_once(&s, groups).await, "both=3\ntoo=2\ntwo=2");
    assert_eq!(
        most_at_once(&s, "input->>'key'").await,
        "both 0=1\nboth 1=1\nboth 2=1\nboth 3=1\npair 0=2\npair 1=2\npair 2=2\nsingle 0=1\nsingle 1=1\nsingle 2=1\nsingle 3=1"
    );
}

#[tokio::test]
async fn an_attempt_that_takes_the_place_of_another_starts_when_that_has_ended() {
    let (db, s) = session().await;
    let (locker, claimer) = (Session::of(&db).await, Session::of(&db).await);
    s.get("select trax.configure_group('g', max_active_jobs => 1)")
        .await;
    s.get("select trax.enqueue_many('a', array['1', '2']::jsonb[], group_name => 'g')")
        .await;
    let first = s.claim_one("").await;
    // The claim has begun while the first job still runs.
    locker.get("begin; lock table trax.manifest_group").await;
    let pid = claimer.pid();
    let claim = claimer.spawn("select count(*) from trax.claim_next()");
    s.sees_waiting(pid).await;
    s.get(&format!("select trax.complete({})", first.key()))
        .await;
    locker.get("commit").await;
    let (_, claimed) = claim.await.expect("the claimer lives");
    assert_eq!(claimed.expect("a claim works"), "1");
    assert_eq!(
        most_at_once(&s, "group_name").await,
        "g=1",
        "by the server's clock one at a time"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_one_too_many_runs_in_the_whole_database() {
    let (db, s) = session().await;
    s.get(&format!(
        "alter database {} set trax.max_active_jobs = 3",
        db.name()
    ))
    .await;
    s.get("select count(trax.enqueue('t' || n % 3, group_name => 'g' || n % 5)) from generate_series(1, 300) n")
        .await;
    let done = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for seed in 0..8 {
        tasks.push(claimer(Session::of(&db).await, seed, done.clone()));
    }
    tasks.push(again(
        Session::of(&db).await,
        "select * from trax.tick()",
        done.clone(),
    ));
    let most = AtomicI64::new(0);
    eventually("the end of all jobs", Duration::from_secs(30), async || {
        let seen = s
            .get("select count(*), (select count(*) from trax.work_queue) from trax.lease")
            .await;
        let (running, waiting) = seen.split_once('|').expect("two numbers");
        let running: i64 = running.parse().expect("a count is a number");
        most.fetch_max(running, Ordering::Relaxed);
        if running == 0 && waiting == "0" {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
    done.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no claimer met an error");
    }
    let most = most.into_inner();
    assert!(most <= 3, "{most} ran at once");
    s.assert_healthy().await;
    assert_eq!(most_at_once(&s, "'all'").await, "all=3");
}
