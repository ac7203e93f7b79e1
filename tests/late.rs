//! The head of the queue: a job that becomes claimable after many later ones have passed is found at once, whatever
//! made it late, and so is the head after a crash, a restart and a promotion.
//!
//! 20,000 later jobs pass, or as many as `TRAX_LATE_JOBS` says.

use harness::scheduler::{connect, execute, scheduling, value, violations};
use harness::session::{Session, session};
use harness::standby::Standby;
use harness::{PATIENCE, eventually};
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use trax_client::testkit::Stop;
use uuid::Uuid;

const SECOND: Duration = Duration::from_secs(1);
/// Jobs enqueued and passed at once.
const ROUND: usize = 5_000;

fn jobs() -> usize {
    let jobs = std::env::var("TRAX_LATE_JOBS");
    jobs.map_or(4 * ROUND, |text| {
        text.parse().expect("TRAX_LATE_JOBS is a number of jobs")
    })
}

/// Enqueues `ROUND` jobs, and claims and completes by the thousand until nothing is claimable.
async fn pass(client: &Client) {
    execute(
        client,
        &format!(
            "select count(*) from trax.enqueue_many('a', array_fill('{{}}'::jsonb, array[{ROUND}]))"
        ),
    )
    .await;
    let sql = "select completed_job_id, job_id, token
               from trax.complete_and_claim($1, $2, max_jobs => 1000)";
    let call = client.prepare(sql).await.expect("it is a statement");
    let mut held: (Vec<i64>, Vec<Uuid>) = Default::default();
    let mut completed = 0;
    loop {
        let rows = client.query(&call, &[&held.0, &held.1]).await;
        let rows = rows.expect("completing and claiming works");
        let (done, claimed): (Vec<_>, Vec<_>) = rows
            .iter()
            .partition(|row| row.get::<_, Option<i64>>(0).is_some());
        assert_eq!(done.len(), held.0.len(), "a live lease is never lost");
        completed += done.len();
        held = claimed
            .iter()
            .map(|row| (row.get::<_, i64>(1), row.get::<_, Uuid>(2)))
            .unzip();
        if held.0.is_empty() {
            break;
        }
    }
    assert_eq!(completed, ROUND, "what was just enqueued and nothing else");
}

async fn vacuum(client: &Client) {
    execute(client, "vacuum trax.work_queue").await;
    execute(client, "vacuum trax.lease").await;
}

/// The jobs that one claim takes.
async fn claim(client: &Client) -> Vec<i64> {
    let sql = "select job_id from trax.claim_next(max_jobs => 100)";
    let rows = client.query(sql, &[]).await.expect("a claim works");
    rows.iter().map(|row| row.get(0)).collect()
}

/// Waits for work and claims, until `wanted` are claimed; gives when that was.
async fn claim_all(client: &Client, mut wanted: Vec<i64>) -> Instant {
    while !wanted.is_empty() {
        for job in claim(client).await {
            assert!(wanted.contains(&job), "job {job} and not one of {wanted:?}");
            wanted.retain(|id| *id != job);
        }
        if !wanted.is_empty() {
            execute(client, "call trax.wait_for_work('10 s')").await;
        }
    }
    Instant::now()
}

/// A transaction that has enqueued into several lanes and stays open.
async fn late(s: &Session) -> Vec<i64> {
    s.get("begin").await;
    let mut ids = vec![s.enqueue("'a'").await];
    s.get("savepoint half").await;
    ids.push(s.enqueue("'a', priority => 3").await);
    ids.push(s.enqueue("'b', group_name => 'g'").await);
    ids
}

/// Waits until the session of `waiter` waits for work.
async fn waits(s: &Session, pid: i32) {
    eventually("a wait for work", PATIENCE, async || {
        let seen = s
            .get(&format!(
                "select wait_event_type, query from pg_stat_activity where pid = {pid}"
            ))
            .await;
        if seen.starts_with("Extension|call trax.wait_for_work") {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_commit_after_many_later_ones_have_passed_are_claimed_within_a_second() {
    let (db, passer) = session().await;
    let (first, second, third) = (
        Session::of(&db).await,
        Session::of(&db).await,
        Session::of(&db).await,
    );
    let waiter = Session::of(&db).await;
    let began = Instant::now();
    let firsts = late(&first).await;
    pass(passer.client()).await;
    let seconds = late(&second).await;
    vacuum(passer.client()).await;
    // Left unvacuumed from here on, as behind a snapshot that somebody holds.
    for _ in 0..(jobs() / ROUND).saturating_sub(2) {
        pass(passer.client()).await;
    }
    let thirds = late(&third).await;
    pass(passer.client()).await;
    println!("{} jobs passed in {:?}", jobs(), began.elapsed());

    // Who waits is woken and finds them.
    let pid = waiter.pid();
    let waiting = tokio::spawn(async move {
        let found = claim_all(waiter.client(), seconds).await;
        (waiter, found)
    });
    waits(&passer, pid).await;
    second.get("commit").await;
    let committed = Instant::now();
    let (_, found) = waiting.await.expect("the waiter finds them");
    let mut took = vec![found.duration_since(committed)];

    // Who has let the later ones pass finds them.
    first.get("commit").await;
    let committed = Instant::now();
    let found = claim_all(passer.client(), firsts).await;
    took.push(found.duration_since(committed));

    // And who has seen nothing of it.
    let fresh = Session::of(&db).await;
    third.get("commit").await;
    let committed = Instant::now();
    let found = claim_all(fresh.client(), thirds).await;
    took.push(found.duration_since(committed));
    println!("claimed {took:?} after the commits");
    assert!(took.iter().all(|took| *took < SECOND), "{took:?}");
    passer.assert_healthy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_jobs_that_become_claimable_late_are_claimed_in_their_order() {
    let (db, s) = session().await;
    let claimer = Session::of(&db).await;
    // Each is late for a reason of its own.
    let delayed = s.enqueue("'a', run_at => now() + interval '1 h'").await;
    let key = s.enqueue("'k', concurrency_key => 'k'").await;
    let held = s.claim_one("tasks => '{k}', lease => '1 h'").await;
    assert_eq!(held.id, key);
    let behind = s.enqueue("'a', concurrency_key => 'k'").await;
    let paused = s.enqueue("'a', group_name => 'g'").await;
    s.get("select trax.configure_group('g', enabled => false)")
        .await;
    let mut taken = Vec::new();
    for _ in 0..3 {
        let id = s.enqueue("'a'").await;
        taken.push(s.claim_one("lease => '1 h'").await);
        assert_eq!(taken.last().map(|job| job.id), Some(id));
    }
    let undone = s.enqueue("'a'").await;
    claimer.get("begin").await;
    assert_eq!(claimer.claim_ids("").await, [undone]);
    pass(s.client()).await;
    vacuum(s.client()).await;
    pass(s.client()).await;
    let young = s.enqueue("'a'").await;

    let [released, failed, expired] = taken.as_slice() else {
        panic!("three are held: {taken:?}");
    };
    claimer.get("rollback").await;
    s.get(&format!("select trax.release({})", released.key()))
        .await;
    s.get(&format!(
        "select trax.fail({}, 'again', retry_in => '0')",
        failed.key()
    ))
    .await;
    s.get(&format!(
        "update trax.lease set lease_expires_at = now(), reap_at = now() where job_id = {};
         update trax.work_queue set run_at = now() where job_id = {delayed}",
        expired.id
    ))
    .await;
    assert_eq!(s.tick("reap_expired_leases").await, 1);
    s.get(&format!("select trax.complete({})", held.key()))
        .await;
    s.get("select trax.configure_group('g', enabled => true)")
        .await;
    let began = Instant::now();
    assert_eq!(
        s.claim_ids("max_jobs => 100").await,
        [
            delayed,
            behind,
            paused,
            released.id,
            failed.id,
            expired.id,
            undone,
            young
        ]
    );
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    s.assert_healthy().await;
}

/// Jobs that wait behind many that have passed, oldest first, one of them committed late; and one that is executed.
struct Head {
    waiting: Vec<i64>,
    running: (i64, Uuid),
}

impl Head {
    /// `lost` is a transaction that has enqueued before all others and stays open.
    async fn make(client: &Client, late: &Client, lost: &Client) -> Head {
        execute(lost, "begin").await;
        execute(lost, "select trax.enqueue('a')").await;
        execute(late, "begin").await;
        let mut waiting = vec![value::<i64>(late, "select trax.enqueue('a')").await];
        let running = "select trax.enqueue('a')";
        let job: i64 = value(client, running).await;
        let sql = "select job_id, token from trax.claim_next(lease => '1 h')";
        let row = client.query_one(sql, &[]).await.expect("one is claimed");
        assert_eq!(row.get::<_, i64>(0), job);
        pass(client).await;
        pass(client).await;
        execute(late, "commit").await;
        for _ in 0..3 {
            waiting.push(value(client, "select trax.enqueue('a')").await);
        }
        Head {
            waiting,
            running: (job, row.get(1)),
        }
    }

    /// The first claim of all finds what waits, in order, and what was executed can be completed.
    async fn is_found(&self, client: &Client) {
        let began = Instant::now();
        assert_eq!(claim(client).await, self.waiting);
        assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
        let done = client
            .query_one(
                "select trax.complete($1, $2)",
                &[&self.running.0, &self.running.1],
            )
            .await;
        assert!(done.expect("a completion works").get::<_, bool>(0));
        // What comes now is found too, and what was never committed never was.
        let new: i64 = value(client, "select trax.enqueue('a')").await;
        assert_eq!(claim(client).await, [new]);
        assert_eq!(violations(client).await, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_and_after_a_restart_the_first_claim_finds_the_head() {
    for how in [Stop::Immediate, Stop::Fast] {
        let mut server = scheduling()
            .setting("synchronous_commit", "on")
            .start()
            .expect("a server starts");
        let database = server.database("head").await.expect("a database is made");
        let (client, late, lost) = (
            connect(&database).await,
            connect(&database).await,
            connect(&database).await,
        );
        let head = Head::make(&client, &late, &lost).await;
        server.stop(how).expect("the server stops");
        server.start().expect("the server starts again");
        head.is_found(&connect(&database).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_promotion_the_first_claim_finds_the_head() {
    let server = scheduling().start().expect("a server starts");
    let database = server.database("head").await.expect("a database is made");
    let (client, late, lost) = (
        connect(&database).await,
        connect(&database).await,
        connect(&database).await,
    );
    let standby = Standby::of(&server, &[]).await;
    let other = standby.connect("head").await;
    let head = Head::make(&client, &late, &lost).await;
    let written: String = value(&client, "select pg_current_wal_insert_lsn()::text").await;
    standby.has_replayed(&other, &written).await;
    // A claim that is refused meanwhile leaves nothing behind that misleads later ones.
    let refused = other.query("select * from trax.claim_next()", &[]).await;
    let refused = refused.expect_err("a standby gives no jobs");
    assert_eq!(refused.code().map(|code| code.code()), Some("25006"));
    execute(&other, "select pg_promote(wait => true)").await;
    head.is_found(&other).await;
}
