//! The cost of limits in buffers: blocked jobs at the front cost nothing.

use harness::limit::{buffers, typical_buffers};
use harness::many;
use harness::session::{Session, session};
use std::time::Instant;
use trax_client::testkit::Database;

const CLAIM: &str = "select * from trax.claim_next(lease => '1 h')";

/// Equal within a tenth and a few buffers.
fn assert_same(what: &str, before: i64, after: i64) {
    println!("{what}: {before} buffers before, {after} after");
    assert!(
        after <= before + before / 10 + 12,
        "{what}: a claim touched {before} buffers before and {after} after"
    );
}

/// Enqueues jobs of task `a`, before all others.
async fn load(s: &Session, count: i64, group: &str, key: &str) {
    s.get(&format!(
        "select count(*) from trax.enqueue_many('a', array_fill('{{}}'::jsonb, array[{count}]),
             group_name => '{group}', concurrency_key => {key}, priority => 31)"
    ))
    .await;
}

/// A thousand claimable jobs.
async fn with_free_jobs() -> (Database, Session) {
    let (db, s) = session().await;
    s.get("select count(trax.enqueue('free', group_name => 'free')) from generate_series(1, 1000)")
        .await;
    (db, s)
}

async fn claim_cost(db: &Database) -> i64 {
    typical_buffers(&Session::of(db).await, CLAIM).await
}

#[tokio::test]
async fn very_many_jobs_of_a_full_group_in_front_cost_nothing() {
    let (db, s) = with_free_jobs().await;
    s.get("select trax.configure_group('full', max_active_jobs => 1, priority => 31)")
        .await;
    s.enqueue("'a', group_name => 'full'").await;
    s.claim_one("groups => array['full'], lease => '1 h'").await;
    s.enqueue("'a', group_name => 'full'").await;
    s.get("vacuum analyze trax.work_queue").await;
    let before = claim_cost(&db).await;
    load(&s, many(100_000), "full", "null").await;
    assert_same("many of a full group", before, claim_cost(&db).await);
    let other = Session::of(&db).await;
    other.get("set trax.max_active_jobs = 1").await;
    let cost = typical_buffers(&other, CLAIM).await;
    println!("a claim of a full database: {cost}");
    assert!(cost <= before, "a claim of a full database touched {cost}");
}

/// Claims until every blocked job has left its lane.
async fn clear(s: &Session) {
    let began = Instant::now();
    let front = "select count(*) from trax.work_queue where waits_for is null and concurrency_key is not null";
    let mut claims = 0;
    while s.number(front).await > 0 {
        assert!(claims < 60, "{claims} claims and keys are still in front");
        s.get(CLAIM).await;
        claims += 1;
    }
    println!("{claims} claims cleared the lane in {:?}", began.elapsed());
}

/// The cost of a claim without and with very many jobs at the front that have left their lane;
/// `settle` runs after they have left.
async fn cost_behind_a_key(settle: &str) -> (i64, i64) {
    let (db, s) = with_free_jobs().await;
    s.enqueue("'a', concurrency_key => 'k', priority => 31")
        .await;
    s.claim_one("tasks => array['a'], lease => '1 h'").await;
    s.get("vacuum analyze trax.work_queue").await;
    let before = claim_cost(&db).await;
    load(&s, many(100_000), "default", "'k'").await;
    clear(&s).await;
    s.get(settle).await;
    (before, claim_cost(&db).await)
}

#[tokio::test]
async fn very_many_jobs_behind_a_key_leave_their_lane_and_cost_nothing() {
    let (before, after) = cost_behind_a_key("vacuum trax.work_queue").await;
    assert_same("many behind a key", before, after);
}

#[tokio::test]
async fn a_claim_soon_after_many_left_their_lane_does_not_read_what_they_left() {
    let (before, after) = cost_behind_a_key("select 1").await;
    assert_same("many just left", before, after);
}

/// Checks that a claim costs the same without and with many jobs behind each key that `open`
/// occupies in a transaction, from the second claim on; `#` is the job and token of a lease of `k`.
async fn assert_same_beside(open: &str, keys: &[&str]) {
    let (db, s) = with_free_jobs().await;
    let busy = Session::of(&db).await;
    s.enqueue("'a', concurrency_key => 'k', priority => 31")
        .await;
    let job = s.claim_one("tasks => array['a'], lease => '1 h'").await;
    s.get("vacuum analyze trax.work_queue").await;
    let before = claim_cost(&db).await;
    s.enqueue("'b', concurrency_key => 'k2'").await;
    busy.get(&format!("begin; {}", open.replace('#', &job.key())))
        .await;
    for key in keys {
        load(&s, many(50_000), "default", key).await;
    }
    let began = Instant::now();
    s.get(CLAIM).await;
    println!("the first claim took {:?}", began.elapsed());
    assert_same(open, before, claim_cost(&db).await);
    busy.get("commit").await;
    let next = s.claim_one("tasks => array['a'], lease => '1 h'").await;
    let first = "select min(job_id) from trax.job where task = 'a' and job_id <> ";
    assert_eq!(next.id, s.number(&format!("{first} {}", job.id)).await);
}

#[tokio::test]
async fn jobs_behind_an_open_completion_are_not_read_by_every_claim() {
    assert_same_beside("select trax.complete(#)", &["'k'"]).await;
}

#[tokio::test]
async fn jobs_behind_an_open_claim_are_not_read_by_every_claim() {
    let open = "select trax.complete(#); select * from trax.claim_next(tasks => array['b'])";
    assert_same_beside(open, &["'k'", "'k2'"]).await;
}

#[tokio::test]
async fn a_completion_behind_a_key_costs_the_same_however_many_wait() {
    let (_db, s) = session().await;
    let mut costs = Vec::new();
    for count in [10, many(20_000)] {
        s.enqueue("'a', concurrency_key => 'k', priority => 31")
            .await;
        load(&s, count, "default", "'k'").await;
        let mut seen = Vec::new();
        for _ in 0..6 {
            let mut jobs = Vec::new();
            while jobs.is_empty() {
                jobs = s.claim("max_jobs => 1").await;
            }
            s.get(CLAIM).await;
            seen.push(buffers(&s, &format!("select trax.complete({})", jobs[0].key())).await);
        }
        seen.sort();
        costs.push(seen[2]);
    }
    assert_same("completions before many of their key", costs[0], costs[1]);
}

#[tokio::test]
async fn a_claim_beside_a_group_with_a_high_limit_costs_the_same_for_any_number_of_its_tasks() {
    let (db, s) = with_free_jobs().await;
    s.get("select trax.configure_group('big', max_active_jobs => 500)")
        .await;
    s.get("select count(trax.enqueue('big', group_name => 'big')) from generate_series(1, 600)")
        .await;
    assert_eq!(
        s.claim("max_jobs => 500, groups => array['big'], lease => '1 h'")
            .await
            .len(),
        500
    );
    s.get("vacuum analyze trax.work_queue; ").await;
    s.get("vacuum analyze trax.lease").await;
    let before = claim_cost(&db).await;
    s.get(
        "select count(trax.enqueue('big' || n, group_name => 'big')) from generate_series(1, 50) n",
    )
    .await;
    assert_same(
        "50 more tasks of a full group",
        before,
        claim_cost(&db).await,
    );
}

/// The cost of a cycle that repairs, with this many jobs behind a key and behind a manifest.
async fn cost_of_a_repair(count: i64) -> i64 {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'm', every => '1 h', max_concurrency => 1)")
        .await;
    s.get(&format!(
        "select count(trax.trigger('m')) from generate_series(1, {count})"
    ))
    .await;
    load(&s, count, "default", "'k'").await;
    for _ in 0..2 {
        s.claim("max_jobs => 1").await;
    }
    while s
        .number("select count(*) from trax.work_queue where waits_for is null")
        .await
        > 0
    {
        s.get(CLAIM).await;
    }
    s.get("vacuum analyze trax.work_queue").await;
    // A backend repairs in its first cycle. Every measurement uses a new backend, so the cost of
    // its first accesses is the same in all.
    let manager = Session::of(&db).await;
    buffers(&manager, "select * from trax.tick()").await
}

#[tokio::test]
async fn a_cycle_reads_nothing_of_what_waits_behind_one_key_or_manifest() {
    let few = cost_of_a_repair(10).await;
    assert_same(
        "a cycle beside 10,000 blocked",
        few,
        cost_of_a_repair(10_000).await,
    );
}
