//! The cost of the hot statements in buffers: independent of the number of waiting, blocked and
//! ended jobs.

use harness::limit::{buffers, typical_buffers};
use harness::many;
use harness::session::{Claimed, Session, session};

/// The tolerance for deeper trees and an extra page at the edges.
const SLACK: i64 = 12;

const CLAIM: &str = "select * from trax.claim_next()";
const CLAIM_MANY: &str = "select * from trax.claim_next(max_jobs => 20)";

/// The buffers of a claim of one job and of a claim of twenty, in a new backend.
async fn claim_cost(db: &trax_client::testkit::Database) -> (i64, i64) {
    claim_cost_with(db, "select 1").await
}

/// As [`claim_cost`], after `settings`. First removes the effects of earlier measurements: dead
/// entries and deeper trees.
async fn claim_cost_with(db: &trax_client::testkit::Database, settings: &str) -> (i64, i64) {
    let s = Session::of(db).await;
    s.get("truncate trax.lease").await;
    s.get("vacuum trax.work_queue").await;
    s.get(settings).await;
    (
        typical_buffers(&s, CLAIM).await,
        typical_buffers(&s, CLAIM_MANY).await,
    )
}

/// Adds waiting jobs to the lane of task `a`. `columns` are further columns and `values` their
/// values.
async fn load(s: &Session, count: i64, group: &str, columns: &str, values: &str) {
    s.get(&format!(
        "insert into trax.work_queue (lane_id, queued_at, run_at, task, group_name, input {columns})
         select trax.lane_of('{group}', 'a'), now(), now() + n * interval '1 ms', 'a', '{group}', '{{\"n\": 1}}' {values}
         from generate_series(1, {count}) n"
    ))
    .await;
}

async fn with_thousand_jobs() -> (trax_client::testkit::Database, Session) {
    let (db, s) = session().await;
    s.enqueue("'a'").await;
    load(&s, 999, "default", "", "").await;
    s.get("vacuum analyze trax.work_queue").await;
    (db, s)
}

fn assert_same(what: &str, before: (i64, i64), after: (i64, i64)) {
    println!("{what}: {before:?} buffers before, {after:?} after");
    assert!(
        after.0 <= before.0 + SLACK && after.1 <= before.1 + SLACK,
        "{what}: a claim of one and of twenty touched {before:?} buffers before and {after:?} after"
    );
}

#[tokio::test]
async fn a_claim_costs_the_same_with_a_thousand_and_with_very_many_waiting_jobs() {
    let (db, s) = with_thousand_jobs().await;
    let before = claim_cost(&db).await;
    load(&s, many(999_000), "default", "", "").await;
    assert_same("many waiting", before, claim_cost(&db).await);
}

#[tokio::test]
async fn a_claim_costs_the_same_behind_delayed_and_disabled_jobs() {
    let (db, s) = with_thousand_jobs().await;
    let before = claim_cost(&db).await;
    load(
        &s,
        many(100_000),
        "default",
        ", waits_for, priority",
        ", 'time', 31",
    )
    .await;
    assert_same("many delayed in front", before, claim_cost(&db).await);
    s.get("select trax.enqueue('a', group_name => 'off'); select trax.configure_group('off', enabled => false, priority => 31)").await;
    load(&s, many(100_000), "off", ", priority", ", 31").await;
    assert_same(
        "many in a disabled group in front",
        before,
        claim_cost(&db).await,
    );
    let filtered = "select * from trax.claim_next(tasks => array['nothing', 'else'])";
    let cost = typical_buffers(&Session::of(&db).await, filtered).await;
    assert!(
        cost <= before.0,
        "a claim of other tasks looks at none of these: {cost}"
    );
}

/// Completes this many jobs and returns the median cost.
async fn completion_cost(s: &Session) -> i64 {
    let jobs: Vec<Claimed> = s.claim("max_jobs => 9").await;
    let mut seen = Vec::new();
    for job in jobs {
        seen.push(buffers(s, &format!("select trax.complete({})", job.key())).await);
    }
    seen.sort();
    seen[4]
}

#[tokio::test]
async fn claims_and_completions_cost_the_same_whatever_has_ended() {
    let (db, s) = with_thousand_jobs().await;
    let before = (
        claim_cost(&db).await,
        completion_cost(&Session::of(&db).await).await,
    );
    let ended = many(100_000);
    s.get(&format!(
        "insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, task, group_name, input)
         select n + 10000000, now(), now(), now(), now(), 1, 0, true, 'completed', 'a', 'default', '{{}}'
         from generate_series(1, {ended}) n"
    ))
    .await;
    let after = (
        claim_cost(&db).await,
        completion_cost(&Session::of(&db).await).await,
    );
    assert_same("many finished", before.0, after.0);
    println!(
        "a completion: {} buffers before, {} after",
        before.1, after.1
    );
    assert!(
        after.1 <= before.1 + SLACK,
        "a completion touched {} buffers before and {} after",
        before.1,
        after.1
    );
}

#[tokio::test]
async fn the_callers_planner_settings_change_nothing() {
    let (db, s) = with_thousand_jobs().await;
    load(&s, many(50_000), "default", "", "").await;
    let before = claim_cost(&db).await;
    let completion = completion_cost(&Session::of(&db).await).await;
    for settings in [
        "set enable_indexscan = off; set enable_indexonlyscan = off; set enable_bitmapscan = off; set enable_seqscan = on",
        "set plan_cache_mode = force_custom_plan; set enable_tidscan = off; set enable_sort = off",
        "set plan_cache_mode = force_generic_plan; set enable_nestloop = off; set enable_hashjoin = on; set enable_mergejoin = on",
        "set seq_page_cost = 0; set random_page_cost = 1000; set cpu_index_tuple_cost = 1000; set jit = on; set jit_above_cost = 0",
        "set from_collapse_limit = 1; set join_collapse_limit = 1; select set_config(name, 'on', false) from pg_settings where name in ('force_parallel_mode', 'debug_parallel_query'); set work_mem = '64kB'",
    ] {
        assert_same(settings, before, claim_cost_with(&db, settings).await);
        let them = Session::of(&db).await;
        them.get(settings).await;
        let seen = completion_cost(&them).await;
        assert!(
            seen <= completion + SLACK,
            "{settings}: a completion touched {completion} buffers and now {seen}"
        );
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_callers_planner_settings_are_put_back() {
    let (_db, s) = session().await;
    let settings = "select name, setting from pg_settings where name ~ '^enable_|^plan_cache_mode$|^jit$' order by name";
    s.get("set enable_seqscan = on; set enable_indexscan = off; set plan_cache_mode = force_custom_plan").await;
    let before = s.get(settings).await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    s.refusal("select trax.requeue_dead_letter(99)").await;
    s.get(&format!(
        "select trax.complete({}); select * from trax.tick()",
        job.key()
    ))
    .await;
    assert_eq!(s.get(settings).await, before);
    // An error inside a statement of trax as well: the run's partition is missing.
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    s.get("alter table trax.run rename to walk").await;
    s.refusal(&format!("select trax.complete({})", job.key()))
        .await;
    assert_eq!(s.get(settings).await, before);
}

/// Compares a cycle with a hundred manifests and one with a hundred thousand, none of them due;
/// `settle` runs in between.
async fn assert_idle_cycle_is_a_probe(settle: &str) {
    let (db, s) = session().await;
    let add = |from: i64, to: i64| {
        format!(
            "with made as (
                 insert into trax.manifest (name, task, every)
                 select 'm' || n, 'a', '1 h' from generate_series({from}, {to}) n
                 returning manifest_id, group_name
             )
             insert into trax.manifest_state (manifest_id, group_name, next_run_at, next_scheduled_for)
             select manifest_id, group_name, now() + interval '1 day', now() + interval '1 day' from made"
        )
    };
    s.get(&add(1, 100)).await;
    let before = typical_buffers(&Session::of(&db).await, "select * from trax.tick()").await;
    s.get(&add(101, 100_000)).await;
    s.get(settle).await;
    let after = typical_buffers(&Session::of(&db).await, "select * from trax.tick()").await;
    println!("a cycle after {settle}: {before} buffers before, {after} after");
    assert!(
        after <= before + SLACK,
        "a cycle touched {before} buffers before and {after} after"
    );
}

#[tokio::test]
async fn a_cycle_costs_the_same_with_a_hundred_and_a_hundred_thousand_manifests() {
    assert_idle_cycle_is_a_probe("analyze trax.manifest_state").await;
}

#[tokio::test]
async fn a_cycle_is_a_probe_before_the_statistics_know_the_manifests() {
    assert_idle_cycle_is_a_probe("select 1").await;
}

#[tokio::test]
async fn a_heartbeat_and_an_enqueue_cost_the_same_however_much_waits() {
    let (db, s) = with_thousand_jobs().await;
    let job = s.claim_one("lease => '1 h'").await;
    let heartbeat = format!(
        "select * from trax.heartbeat(array[{}], array['{}'::uuid])",
        job.id, job.token
    );
    let enqueue = "select trax.enqueue('a', unique_key => gen_random_uuid()::text)";
    let them = Session::of(&db).await;
    let before = (
        typical_buffers(&them, &heartbeat).await,
        typical_buffers(&them, enqueue).await,
    );
    load(&s, many(100_000), "default", "", "").await;
    let them = Session::of(&db).await;
    let after = (
        typical_buffers(&them, &heartbeat).await,
        typical_buffers(&them, enqueue).await,
    );
    println!("a heartbeat and an enqueue: {before:?} buffers before, {after:?} after");
    assert!(
        after.0 <= before.0 + SLACK && after.1 <= before.1 + SLACK,
        "{before:?} before and {after:?} after"
    );
}

/// Makes many live leases, waiting jobs and unique keys of other tasks.
async fn crowd(s: &Session) {
    s.get(
        "insert into trax.lease (job_id, lane_id, token, started_at, extended_at, lease_expires_at, timeout_at, reap_at, queued_at,
             run_at, attempt, priority, worker, task, group_name, input, unique_key)
         select n + 1000000, 1, gen_random_uuid(), now(), now(), now() + interval '1 h', now() + interval '1 h',
             now() + interval '1 h', now(), now(), 1, 0, 'w', 'crowd', 'default', '{}', 'crowd' || n
         from generate_series(1, 20000) n;
         insert into trax.unique_key (key, job_id) select unique_key, job_id from trax.lease where task = 'crowd'",
    )
    .await;
    load(s, 20_000, "default", "", "").await;
}

/// The most buffers of any statement about one job, however many others exist.
const ONE_JOB: i64 = 40;

/// Runs a few jobs of a separate task; returns each statement with its buffers.
async fn one_job(s: &Session) -> Vec<(String, i64)> {
    let mut costs = Vec::new();
    let waiting = s.enqueue("'single', unique_key => 'waiting'").await;
    for _ in 0..3 {
        s.enqueue("'single', unique_key => gen_random_uuid()::text")
            .await;
    }
    let jobs = s.claim("max_jobs => 4, tasks => array['single']").await;
    let (released, failed, completed) = (&jobs[1], &jobs[2], &jobs[3]);
    assert_eq!(jobs[0].id, waiting);
    let beat = format!(
        "select * from trax.heartbeat(array[{}], array['{}'::uuid])",
        released.id, released.token
    );
    let cancelled = s
        .enqueue("'single', run_at => now() + interval '1 h'")
        .await;
    for sql in [
        "select trax.enqueue('single', unique_key => 'waiting')".to_owned(),
        beat,
        format!("select trax.release({}, delay => '1 h')", released.key()),
        format!("select trax.fail({}, 'no')", failed.key()),
        format!("select trax.complete({})", completed.key()),
        format!("select trax.cancel({waiting})"),
        format!("select trax.cancel({cancelled})"),
        "select * from trax.claim_next(tasks => array['single'])".to_owned(),
    ] {
        let cost = buffers(s, &sql).await;
        costs.push((sql, cost));
    }
    s.get(&format!(
        "select trax.fail({}, 'no', permanent => true)",
        jobs[0].key()
    ))
    .await;
    costs
}

/// Checks the cost after the first round in a backend, which makes plans and fills caches. The
/// minimum of a few rounds counts, since DDL in other databases empties the caches.
async fn assert_one_job_is_cheap(s: &Session, what: &str) {
    one_job(s).await;
    let rounds = [one_job(s).await, one_job(s).await, one_job(s).await];
    for (at, (sql, _)) in rounds[0].iter().enumerate() {
        let costs = rounds.each_ref().map(|round| round[at].1);
        let least = costs.into_iter().min().expect("three rounds");
        assert!(
            least <= ONE_JOB,
            "{what}: {sql}\n  touched {costs:?} buffers"
        );
    }
}

#[tokio::test]
async fn a_plan_made_on_empty_tables_does_not_scan_full_ones() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    other.enqueue("'a', run_at => '2099-01-01'").await;
    assert_one_job_is_cheap(&s, "empty tables").await;
    crowd(&other).await;
    assert_one_job_is_cheap(&s, "plans of empty tables").await;
    assert_one_job_is_cheap(&Session::of(&db).await, "tables without statistics").await;
    other.get("vacuum analyze").await;
    assert_one_job_is_cheap(&Session::of(&db).await, "tables with statistics").await;
}

#[tokio::test]
async fn the_callers_planner_settings_make_nothing_scan() {
    let (db, s) = session().await;
    s.enqueue("'a', run_at => '2099-01-01'").await;
    crowd(&s).await;
    s.get("vacuum analyze").await;
    for settings in [
        "set enable_indexscan = off; set enable_indexonlyscan = off; set enable_bitmapscan = off",
        "set enable_nestloop = off; set enable_tidscan = off; set enable_material = off; set enable_memoize = off",
        "set plan_cache_mode = force_custom_plan; set seq_page_cost = 0; set random_page_cost = 1000",
    ] {
        let them = Session::of(&db).await;
        them.get(settings).await;
        assert_one_job_is_cheap(&them, settings).await;
    }
}

const CHECK: &str = "select * from trax.check()";

/// Makes history of jobs that ended this long ago, in the partition of that day, which autovacuum
/// leaves alone; returns its pages.
async fn history(s: &Session, first: i64, count: i64, ago: &str) -> i64 {
    s.get(&format!(
        "select trax.make_run_partitions(now() - interval '{ago}', 0);
         insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, task, group_name, input)
         select {first} + n, t, t, t, t, 1, 0, true, 'completed', 'old', 'default', '{{}}'
         from (select now() - interval '{ago}') v (t), generate_series(1, {count}) n"
    ))
    .await;
    let partition = format!("select tableoid::regclass from trax.run where job_id = {first} + 1");
    let partition = s.get(&partition).await;
    s.get(&format!(
        "alter table {partition} set (autovacuum_enabled = off)"
    ))
    .await;
    s.number(&format!(
        "select pg_relation_size(tableoid) / current_setting('block_size')::int
         from trax.run where job_id = {first} + 1"
    ))
    .await
}

#[tokio::test]
async fn check_reads_the_history_of_the_last_hour_once_and_none_of_the_days_before() {
    let (db, s) = session().await;
    s.get("select count(trax.enqueue('a')) from generate_series(1, 10)")
        .await;
    s.claim("max_jobs => 5, lease => '1 h'").await;
    // `trax.check()` reads tables of the system, too, of which autovacuum would make statistics.
    s.get("vacuum analyze").await;
    let before = typical_buffers(&Session::of(&db).await, CHECK).await;
    for (first, ago) in [(1_000_000, "2 days"), (2_000_000, "3 days")] {
        let pages = history(&s, first, 50_000, ago).await;
        assert!(pages > 500, "{pages} pages");
    }
    let with_old = typical_buffers(&Session::of(&db).await, CHECK).await;
    let pages = history(&s, 3_000_000, 50_000, "0 s").await;
    let with_new = typical_buffers(&Session::of(&db).await, CHECK).await;
    println!("check: {before} buffers, {with_old} with old and {with_new} with {pages} new pages");
    // Live jobs are looked up in each partition, whose trees are deeper.
    assert!(with_old < before + 600, "{before} and {with_old} buffers");
    // A read of the ended jobs, and another for attempts that ended before they began.
    assert!(
        with_new < with_old + 2 * pages + 200,
        "{with_old} and {with_new} buffers, {pages} pages"
    );
}

#[tokio::test]
async fn check_looks_for_waiting_jobs_that_have_ended_in_one_pass() {
    let (_db, s) = session().await;
    s.get("select count(trax.enqueue('a')) from generate_series(1, 10)")
        .await;
    for (first, ago) in [(1_000_000, "2 days"), (2_000_000, "3 days")] {
        history(&s, first, 1_000, ago).await;
    }
    let before = buffers(&s, CHECK).await;
    load(&s, 20_000, "default", "", "").await;
    s.get("vacuum analyze trax.work_queue").await;
    let pages = s
        .number("select pg_relation_size('trax.work_queue') / current_setting('block_size')::int")
        .await;
    let after = buffers(&s, CHECK).await;
    println!("check: {before} buffers with 10, {after} with 20,010 jobs in {pages} pages");
    // A lookup of each job in each partition would cost a dozen buffers per job.
    assert!(
        after < before + 10_000,
        "{before} and {after} buffers, {pages} pages"
    );
}
