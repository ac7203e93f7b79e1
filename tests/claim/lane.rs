//! Lanes: the cost of a claim depends on the waiting jobs and not on past ones, and a claim finds
//! all of them.

use harness::limit::{buffers, typical_buffers};
use harness::scheduler::{execute, scheduling};
use harness::session::{Session, session};
use harness::{PATIENCE, eventually, many};
use std::time::{Duration, Instant};
use trax_client::testkit::Database;

const CLAIM: &str = "select * from trax.claim_next(lease => '1 h')";

/// The tolerance for deeper trees and an extra page at the edges.
const SLACK: i64 = 12;

/// Enqueues this many jobs, each with a different task or group.
async fn enqueue_names(s: &Session, count: i64, arguments: &str) {
    s.get(&format!(
        "select count(trax.enqueue({arguments})) from generate_series(1, {count}) n"
    ))
    .await;
}

/// Claims a thousand at a time until nothing is left; returns the jobs in order.
async fn claim_all(s: &Session) -> Vec<i64> {
    let mut all = Vec::new();
    loop {
        let ids = s.claim_ids("max_jobs => 1000, lease => '1 h'").await;
        if ids.is_empty() {
            return all;
        }
        all.extend(ids);
    }
}

/// The buffers of a claim in a new session, with twenty jobs waiting.
async fn claim_cost(db: &Database) -> i64 {
    let s = Session::of(db).await;
    s.get("truncate trax.lease").await;
    s.get("vacuum trax.work_queue").await;
    enqueue_names(&s, 20, "'one'").await;
    let cost = typical_buffers(&s, CLAIM).await;
    claim_all(&s).await;
    cost
}

#[tokio::test]
async fn a_claim_costs_the_same_after_very_many_names_came_and_went() {
    let (db, s) = session().await;
    let before = claim_cost(&db).await;
    let names = many(60_000);
    enqueue_names(&s, names / 2, "'task' || n").await;
    enqueue_names(&s, names / 2, "'task', group_name => 'group' || n").await;
    let claimed = claim_all(&s).await;
    assert_eq!(i64::try_from(claimed.len()), Ok(names));
    assert!(claimed.is_sorted(), "in order of age, over all lanes");
    let after = claim_cost(&db).await;
    println!("{before} buffers before, {after} after");
    assert!(after <= before + SLACK, "{before} before, {after} after");
    assert_eq!(s.number("select count(*) from trax.lane").await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_claim_costs_the_same_beside_ten_thousand_groups_that_wait() {
    let (db, s) = session().await;
    enqueue_names(&s, 100, "'one'").await;
    let cost = async || {
        s.get("vacuum analyze trax.work_queue").await;
        typical_buffers(&Session::of(&db).await, CLAIM).await
    };
    let before = cost().await;
    enqueue_names(&s, 10_000, "'task', group_name => 'group' || n").await;
    // A recheck of some lanes may fall into some of the claims.
    let after = cost().await;
    println!("{before} buffers before, {after} after");
    assert!(after <= before + SLACK, "{before} before, {after} after");
    assert_eq!(
        s.get(
            "select array_agg(distinct task order by task) from trax.claim_next(max_jobs => 1000)"
        )
        .await,
        "{one,task}"
    );
}

/// More lanes than the 65,536 for which a database has places in shared memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_lanes_than_have_places_are_all_found_in_their_order_and_hinder_no_other_database() {
    let server = scheduling().start().expect("a server starts");
    let crowded = server.database("crowded").await.expect("it is made");
    let other = server.database("other").await.expect("it is made");
    let s = Session::of(&crowded).await;
    enqueue_names(&s, 70_000, "'task' || n").await;
    let beside = Session::of(&other).await;
    enqueue_names(&beside, 1000, "'task' || n").await;
    beside.get("vacuum analyze trax.work_queue").await;
    assert_eq!(beside.claim("").await.len(), 1);
    // Ten claims in one statement. A session without places in shared memory keeps its list of
    // lanes for twenty times the duration of reading it, which on a busy machine can end between
    // two statements. A claim takes 12 buffers, and each reading 97.
    let ten = "select count(*) from generate_series(1, 10) n
        cross join lateral (select from trax.claim_next(max_jobs => least(n, 1)) offset 0) c";
    let cost = buffers(&beside, ten).await / 10;
    assert!(cost < 60, "a claim in another database touches {cost}");
    assert_eq!(claim_all(&beside).await.len(), 1000 - 11);

    let fresh = Session::of(&crowded).await;
    let urgent = s.enqueue("'urgent', priority => 9").await;
    assert_eq!(fresh.claim_ids("lease => '1 h'").await, [urgent]);

    // The session has read all lanes and sleeps; a job in a lane without a place wakes it.
    let mine = "tasks => '{mine}', lease => '1 h'";
    for _ in 0..2 {
        assert!(fresh.claim_ids(mine).await.is_empty());
        fresh.get("call trax.wait_for_work('1 ms')").await;
    }
    assert!(fresh.claim_ids(mine).await.is_empty());
    let began = Instant::now();
    fresh.get("call trax.wait_for_work('300 ms')").await;
    assert!(began.elapsed() >= Duration::from_millis(295));
    let job = s.enqueue("'mine'").await;
    let cost = buffers(&fresh, &format!("select * from trax.claim_next({mine})")).await;
    println!("a claim of a new lane touches {cost} buffers");
    assert!(cost < 1000, "it reads all lanes again: {cost}");
    assert_eq!(
        s.number("select job_id from trax.lease where task = 'mine'")
            .await,
        job
    );

    // A place that a lane gets later hides none of its older rows.
    let mut claimed = Vec::new();
    for _ in 0..20 {
        claimed.extend(fresh.claim_ids("max_jobs => 1000, lease => '1 h'").await);
    }
    s.get(
        "select count(trax.enqueue(task)) from (
             select task from trax.work_queue order by job_id desc limit 20000
         ) last",
    )
    .await;
    for s in [&fresh, &Session::of(&crowded).await] {
        claimed.extend(s.claim_ids("max_jobs => 1000, lease => '1 h'").await);
    }
    claimed.extend(claim_all(&Session::of(&crowded).await).await);
    assert_eq!(claimed.len(), 90_000);
    assert!(claimed.is_sorted(), "in order of age");
    let last = s.enqueue("'last'").await;
    assert_eq!(fresh.claim_ids("").await, [last]);
    s.assert_healthy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_transaction_that_ends_makes_no_session_read_all_lanes() {
    let server = scheduling()
        .setting("max_prepared_transactions", "50")
        .start()
        .expect("a server starts");
    let db = server.database("prepared").await.expect("it is made");
    let s = Session::of(&db).await;
    // More than a table of fixed size could remember, and all rolled back.
    for n in 0..40 {
        s.get("begin; select trax.enqueue('undone')").await;
        s.get(&format!("prepare transaction 'undone {n}'")).await;
    }
    for n in 0..40 {
        s.get(&format!("rollback prepared 'undone {n}'")).await;
    }
    enqueue_names(&s, 2000, "'task' || n").await;
    s.get("vacuum analyze trax.work_queue").await;
    let claimer = Session::of(&db).await;
    let before = typical_buffers(&claimer, CLAIM).await;
    let mut after = Vec::new();
    for n in 0..5 {
        s.get("begin; select trax.enqueue('late', priority => 3)")
            .await;
        s.get(&format!("prepare transaction 'late {n}'")).await;
        s.get(&format!("commit prepared 'late {n}'")).await;
        after.push(buffers(&claimer, CLAIM).await);
        assert_eq!(
            s.number("select count(*) from trax.work_queue where task = 'late'")
                .await,
            0,
            "it is claimed at once"
        );
    }
    // A recheck reads some lanes, not all 2,000. All are read once, when the claimer's list of a
    // second ago is too old.
    println!("{before} buffers before, {after:?} after");
    after.sort_unstable();
    assert!(
        after[after.len() / 2] <= before + 200,
        "{before} before, {after:?} after"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_database_leaves_its_places_to_others() {
    let server = scheduling().start().expect("a server starts");
    let mut costs = Vec::new();
    // Two of these databases together have more lanes than there are places.
    for name in ["first", "second", "third"] {
        let db = server.database(name).await.expect("it is made");
        let s = Session::of(&db).await;
        enqueue_names(&s, 60_000, "'task' || n").await;
        assert_eq!(s.claim_ids("").await.len(), 1);
        // A new session need not read all lanes.
        costs.push(buffers(&Session::of(&db).await, CLAIM).await);
        drop(s);
        let other = Session::of(&server.existing("postgres")).await;
        other
            .get(&format!("drop database {name} with (force)"))
            .await;
        let seen = "select string_agg(distinct datname, ' ') from pg_stat_activity where backend_type like 'trax s%'";
        eventually("it is gone", PATIENCE, async || {
            match other.get(seen).await {
                seen if seen.contains(name) => Err(seen),
                _ => Ok(()),
            }
        })
        .await;
    }
    println!("{costs:?} buffers");
    // Reading all lanes would take two buffers for each.
    assert!(costs.iter().all(|&cost| cost < 10_000), "{costs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_a_prepared_transaction_queued_in_many_sections_is_claimed_at_once() {
    let server = scheduling()
        .setting("max_prepared_transactions", "2")
        .start()
        .expect("a server starts");
    let db = server.database("sections").await.expect("it is made");
    let (s, claimer) = (Session::of(&db).await, Session::of(&db).await);
    // The claimer knows all lanes, and that they are empty.
    enqueue_names(&s, 9, "'task' || n").await;
    assert_eq!(claim_all(&claimer).await.len(), 9);
    for (end, found) in [("rollback", 0), ("commit", 9)] {
        s.get("begin").await;
        enqueue_names(&s, 9, "'task' || n, priority => n").await;
        s.get("prepare transaction 'many'").await;
        assert_eq!(claim_all(&claimer).await.len(), 0);
        s.get(&format!("{end} prepared 'many'")).await;
        let claimed = claimer.claim_ids("max_jobs => 1000, lease => '1 h'").await;
        assert_eq!(claimed.len(), found, "{end}");
        assert!(
            claimed.is_sorted_by(|a, b| a > b),
            "the highest priority first"
        );
    }
    s.assert_healthy().await;
}

/// Two names with the same number: rows of the second are in the lane of the first.
async fn two_names_in_one_lane() -> (Database, Session) {
    let (db, s) = session().await;
    s.get(
        "insert into trax.work_queue (lane_id, queued_at, run_at, task, group_name, input)
         select trax.lane_of('g', 'a'), now(), now(), (array['a', 'b'])[1 + n % 2], (array['g', 'h'])[1 + n % 2], '{}'
         from generate_series(1, 6) n",
    )
    .await;
    (db, s)
}

#[tokio::test]
async fn a_claim_of_one_of_two_names_with_one_number_takes_no_job_of_the_other() {
    for (names, wanted) in [
        ("tasks => '{a}'", "ga"),
        ("groups => '{h}'", "hb"),
        ("tasks => '{a}', groups => '{h}'", "no"),
    ] {
        let (db, s) = two_names_in_one_lane().await;
        let taken = s.claim_ids(&format!("{names}, max_jobs => 9")).await;
        let others =
            format!("select count(*) from trax.lease where group_name || task <> '{wanted}'");
        assert_eq!(s.number(&others).await, 0, "{names}");
        let rest = Session::of(&db).await.claim_ids("max_jobs => 9").await;
        assert!(rest.is_sorted());
        assert_eq!(taken.len() + rest.len(), 6);
    }
}

#[tokio::test]
async fn of_two_names_with_one_number_each_has_its_own_limit() {
    let (_db, s) = two_names_in_one_lane().await;
    s.get("select trax.configure_group('g', max_active_jobs => 1)")
        .await;
    let mut claimed = 0;
    for _ in 0..3 {
        claimed += s.claim("max_jobs => 9, lease => '1 h'").await.len();
        assert!(s.claim("tasks => '{a}'").await.is_empty());
        let of_group = "select count(*) from trax.lease where group_name = 'g'";
        assert_eq!(s.number(of_group).await, 1);
        s.get("select count(trax.complete(job_id, token)) from trax.lease")
            .await;
    }
    assert_eq!(claimed, 6);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_wait_after_a_claim_of_some_tasks_ends_when_a_job_of_another_waits() {
    let (db, s) = session().await;
    let producer = Session::of(&db).await;
    let waited = async |timeout: &str| {
        let began = Instant::now();
        s.get(&format!("call trax.wait_for_work('{timeout}')"))
            .await;
        began.elapsed()
    };
    let other = producer.enqueue("'b'").await;
    assert!(s.claim_ids("tasks => array['a']").await.is_empty());
    assert!(waited("10 min").await < PATIENCE);
    // The wait has reported that job once, so a worker of this task alone does not loop.
    assert!(s.claim_ids("tasks => array['a']").await.is_empty());
    assert!(waited("300 ms").await >= Duration::from_millis(295));
    producer.enqueue("'c'").await;
    assert!(waited("10 min").await < PATIENCE);
    assert_eq!(s.claim_ids("tasks => array['b']").await, [other]);
}

#[tokio::test]
async fn a_key_that_came_free_beside_an_open_claim_lets_in_with_the_next_cycle() {
    let (db, s) = session().await;
    let claimer = Session::of(&db).await;
    let job = "'a', concurrency_key => 'k', max_retries => 0";
    s.enqueue(job).await;
    s.claim_one("lease => '1 h'").await;
    // A cycle has repaired, and does not repair again within a minute.
    s.tick("queue_due").await;
    let next = s.enqueue(job).await;
    claimer.get("begin").await;
    assert!(claimer.claim("").await.is_empty());
    s.get("update trax.lease set lease_expires_at = now(), reap_at = now()")
        .await;
    s.tick("reap_expired_leases").await;
    claimer.get("commit").await;
    let blocked = "select count(*) from trax.work_queue where waits_for = 'key'";
    assert_eq!(s.number(blocked).await, 1, "the reaper could not let it in");
    s.tick("queue_due").await;
    assert_eq!(s.claim_ids("").await, [next]);
    s.assert_healthy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publication_of_all_tables_stops_neither_the_cycle_nor_a_worker() {
    let server = scheduling()
        .setting("wal_level", "logical")
        .start()
        .expect("a server starts");
    let db = server.database("published").await.expect("it is made");
    let s = Session::of(&db).await;
    s.get("create publication everything for all tables").await;
    for round in 0..2 {
        execute(
            s.client(),
            &format!(
                "select trax.configure_group('g', max_active_jobs => 5);
                 select trax.schedule('m{round}', 'm', every => '1 h', group_name => 'g');
                 select trax.schedule('child{round}', 'm', depends_on => array['m{round}']);
                 select trax.enqueue('a', unique_key => 'k{round}', concurrency_key => 'c');
                 select trax.enqueue('a', concurrency_key => 'c');
                 select trax.enqueue('b', run_at => now() + interval '1 ms', max_retries => 0);
                 select trax.acquire_token('t', 'h', 1, '1 h');
                 select pg_sleep(0.01);
                 select * from trax.tick()"
            ),
        )
        .await;
        execute(
            s.client(),
            "select trax.report_progress(job_id, token, '1') from trax.claim_next(max_jobs => 1);
             select trax.complete(job_id, token) from trax.claim_next(max_jobs => 100);
             select trax.fail(job_id, token, 'no') from trax.claim_next(max_jobs => 100);
             select trax.release(job_id, token) from trax.lease;
             select * from trax.tick()",
        )
        .await;
        execute(
            s.client(),
            &format!("select trax.unschedule('child{round}')"),
        )
        .await;
    }
    let without = "select string_agg(c.relname, ', ' order by c.relname)
        from pg_class c
        where c.relnamespace = 'trax'::regnamespace
            and c.relkind in ('r', 'p')
            and c.relreplident = 'd'
            and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)";
    println!("without a key, and never changed: {}", s.get(without).await);
    // A cycle in a new session repairs and cleans up.
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    s.assert_healthy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_many_lanes_are_found_in_their_order_after_a_restart() {
    let mut server = scheduling().start().expect("a server starts");
    let db = server.database("restarted").await.expect("it is made");
    let s = Session::of(&db).await;
    enqueue_names(&s, 3000, "'task' || n % 300, priority => n % 3").await;
    let order = "select job_id from trax.work_queue order by priority desc, job_id";
    let expected = s.get(order).await;
    drop(s);
    server.restart().expect("it restarts");
    let s = eventually("a connection", PATIENCE, async || {
        let client = server.existing("restarted").connect().await;
        client.map(drop).map_err(|error| error.to_string())?;
        Ok::<_, String>(Session::of(&server.existing("restarted")).await)
    })
    .await;
    let claimed: Vec<String> = claim_all(&s).await.iter().map(i64::to_string).collect();
    assert_eq!(claimed.join("\n"), expected);
}

#[tokio::test]
async fn a_cycle_beside_a_claim_that_is_rolled_back_hides_no_job() {
    let (db, s) = session().await;
    let jobs = [
        s.enqueue("'a'").await,
        s.enqueue("'b', priority => 3").await,
    ];
    // The lanes are known to all sessions from here on.
    assert!(s.claim_ids("tasks => array['other']").await.is_empty());
    let ticker = Session::of(&db).await;
    ticker.get("begin").await;
    assert_eq!(ticker.claim_ids("max_jobs => 10").await.len(), 2);
    // The first cycle of a backend repairs: in this transaction both lanes are empty.
    ticker.get("select count(*) from trax.tick()").await;
    ticker.get("rollback").await;
    for s in [&s, &Session::of(&db).await] {
        let mut found = s.claim_ids("max_jobs => 10").await;
        found.sort_unstable();
        assert_eq!(found, jobs);
        s.get("select trax.release(job_id, token) from trax.lease")
            .await;
    }
}
