//! Vacuum: dead rows of the queue go soon, without autovacuum, while nobody holds them.

use harness::scheduler::{connect, live_server, new_name, status_becomes};
use harness::session::{Session, session};
use harness::{PATIENCE, eventually};
use trax_client::testkit::Database;

const DEAD: &str =
    "select (select n_dead_tup from pg_stat_all_tables where relid = 'trax.work_queue'::regclass),
    (select vacuum_count from pg_stat_all_tables where relid = 'trax.work_queue'::regclass)";
const MAKE: &str = "select count(*) from generate_series(1, 110) n,
        lateral trax.enqueue_many('a', array_fill(to_jsonb(n), array[1000]));
    delete from trax.work_queue; select pg_stat_force_next_flush()";

/// A database of its own whose autovacuum leaves the queue alone.
async fn alone() -> (Database, Session) {
    let database = live_server()
        .database(&new_name("vacuum"))
        .await
        .expect("a database is made");
    let client = connect(&database).await;
    status_becomes(&client, "scheduler", "running", PATIENCE).await;
    let s = Session::of(&database).await;
    s.get("alter table trax.work_queue set (autovacuum_enabled = off)")
        .await;
    (database, s)
}

async fn vacuums_become(s: &Session, what: &str, wanted: impl Fn(i64, i64) -> bool) {
    eventually(what, PATIENCE, async || {
        let seen = s.get(DEAD).await;
        let (dead, count) = seen.split_once('|').expect("two numbers");
        if wanted(
            dead.parse().expect("a number"),
            count.parse().expect("a number"),
        ) {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_dead_is_removed_without_autovacuum_and_the_worker_ends() {
    let (_db, s) = alone().await;
    s.get(MAKE).await;
    vacuums_become(&s, "a vacuum", |dead, count| dead < 1000 && count > 0).await;
    let workers = "select count(*) from pg_stat_activity where backend_type = 'trax vacuum' and datname = current_database()";
    eventually("the worker ends", PATIENCE, async || {
        match s.get(workers).await.as_str() {
            "0" => Ok(()),
            seen => Err(seen.to_owned()),
        }
    })
    .await;
}

#[tokio::test]
async fn a_held_snapshot_is_not_vacuumed_against_again_and_again() {
    let (db, s) = alone().await;
    let holder = Session::of(&db).await;
    holder
        .get("begin isolation level repeatable read; select 1")
        .await;
    s.get(MAKE).await;
    vacuums_become(&s, "a first vacuum", |_, count| count > 0).await;
    let before = s
        .get(
            "select vacuum_count from pg_stat_all_tables where relid = 'trax.work_queue'::regclass",
        )
        .await;
    // Three looks of the scheduler, each as a job that is due in turn.
    s.get("select trax.schedule('m', 'm', every => '1 s')")
        .await;
    for n in 1..=3 {
        eventually("a cycle", PATIENCE, async || {
            s.get("select trax.complete(job_id, token) from trax.claim_next(tasks => '{m}')")
                .await;
            match s
                .number("select count(*) from trax.run where task = 'm'")
                .await
            {
                seen if seen >= 2 * n => Ok(()),
                seen => Err(seen.to_string()),
            }
        })
        .await;
    }
    let after = s
        .get(
            "select vacuum_count from pg_stat_all_tables where relid = 'trax.work_queue'::regclass",
        )
        .await;
    assert_eq!(before, after, "the horizon is where it was");
    holder.get("commit").await;
    vacuums_become(&s, "the rest is removed", |dead, _| dead < 1000).await;
}

#[tokio::test]
async fn a_database_with_a_vacuum_is_dropped_at_once() {
    let (db, s) = alone().await;
    s.get(MAKE).await;
    vacuums_become(&s, "dead rows", |dead, count| dead > 1000 || count > 0).await;
    let name = db.name().to_owned();
    drop(s);
    let other = Session::of(&live_server().existing("postgres")).await;
    eventually("our session is gone", PATIENCE, async || {
        let sql = format!("select count(*) from pg_stat_activity where datname = '{name}' and backend_type = 'client backend'");
        match other.get(&sql).await.as_str() {
            "0" => Ok(()),
            seen => Err(seen.to_owned()),
        }
    })
    .await;
    other.get(&format!("drop database {name}")).await;
}

#[tokio::test]
async fn vacuum_can_be_switched_off() {
    let (db, s) = alone().await;
    s.get(&format!(
        "alter database {} set trax.vacuum = off",
        db.name()
    ))
    .await;
    // The scheduler connects again when it has seen that.
    let since = "select backend_start > (select now() - interval '1 s') from pg_stat_activity where backend_type = 'trax scheduler' and datname = current_database()";
    eventually("a new scheduler", PATIENCE, async || {
        match s.get(since).await.as_str() {
            "t" => Ok(()),
            seen => Err(seen.to_owned()),
        }
    })
    .await;
    s.get(MAKE).await;
    s.get("select trax.schedule('m', 'm', every => '1 s')")
        .await;
    eventually("cycles", PATIENCE, async || {
        s.get("select trax.complete(job_id, token) from trax.claim_next(tasks => '{m}')")
            .await;
        match s
            .number("select count(*) from trax.run where task = 'm'")
            .await
        {
            5.. => Ok(()),
            seen => Err(seen.to_string()),
        }
    })
    .await;
    vacuums_become(&s, "nothing is vacuumed", |dead, count| {
        dead > 100_000 && count == 0
    })
    .await;
}

#[tokio::test]
async fn a_large_queue_is_due_for_its_size_only_where_the_server_notes_vacuums() {
    let (_db, s) = session().await;
    s.get("alter table trax.work_queue set (autovacuum_enabled = off)")
        .await;
    s.get(
        "select count(*) from trax.enqueue_many('a', array_fill(to_jsonb(repeat('x', 1900)), array[36000]))",
    )
    .await;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../sql/query/vacuum_due.sql");
    let due = std::fs::read_to_string(path).expect("the statement is there");
    s.get(&format!("prepare due (bigint) as {due}")).await;
    let of_queue = async || {
        let seen = s.get("execute due (100000)").await;
        seen.contains("work_queue|t")
    };
    assert!(of_queue().await, "a crash may have made it forget");
    s.get("set track_counts = off").await;
    assert!(!of_queue().await, "it would be due for ever");
}
