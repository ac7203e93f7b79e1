//! Vacuum: dead rows of the queue are removed soon, without autovacuum, once no snapshot needs
//! them.

use harness::process::send_signal;
use harness::scheduler::{connect, live_server, new_name, scheduling, status_becomes};
use harness::session::{Session, session};
use harness::statement::statement;
use harness::{PATIENCE, eventually};
use std::time::{Duration, Instant};
use trax_client::testkit::{Database, Server, Stop};

const DEAD: &str =
    "select (select n_dead_tup from pg_stat_all_tables where relid = 'trax.work_queue'::regclass),
    (select vacuum_count from pg_stat_all_tables where relid = 'trax.work_queue'::regclass)";
const MAKE: &str = "select count(*) from generate_series(1, 110) n,
        lateral trax.enqueue_many('a', array_fill(to_jsonb(n), array[1000]));
    delete from trax.work_queue; select pg_stat_force_next_flush()";

/// A separate database whose autovacuum leaves the queue alone.
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
async fn dead_events_of_needs_are_removed_too() {
    let (_db, s) = alone().await;
    s.get(
        "alter table trax.need_event set (autovacuum_enabled = off);
         insert into trax.need_event (job_id) select n from generate_series(1000001, 1110000) n;
         delete from trax.need_event;
         select pg_stat_force_next_flush()",
    )
    .await;
    let vacuumed = "select n_dead_tup < 1000 and vacuum_count > 0 from pg_stat_all_tables
        where relid = 'trax.need_event'::regclass";
    s.becomes(vacuumed, "t").await;
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
    // Three scheduler cycles, with one due job each.
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
    // The scheduler reconnects after it has seen the change.
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
    let due = statement("VacuumDue");
    s.get(&format!("prepare due (bigint) as {due}")).await;
    let of_queue = async || {
        let seen = s.get("execute due (100000)").await;
        seen.contains("work_queue|t")
    };
    assert!(of_queue().await, "a crash may have made it forget");
    s.get("set track_counts = off").await;
    assert!(!of_queue().await, "it would be due for ever");
}

/// A vacuum blocked midway by a cursor that pins an index page. Returns its process and the session
/// of the cursor.
async fn stuck(database: &Database, s: &Session) -> (i32, Session) {
    let name = database.name();
    s.get(MAKE).await;
    s.get("select trax.enqueue('last')").await;
    let holder = Session::of(database).await;
    holder
        .get(
            "begin; set local enable_seqscan = off; set local enable_bitmapscan = off;
             declare c cursor for select job_id from trax.work_queue where job_id > 0",
        )
        .await;
    holder.get("fetch 1 from c").await;
    s.get(&format!("alter database {name} set trax.vacuum = on"))
        .await;
    let pid = eventually("a vacuum that waits for a page", PATIENCE, async || {
        let seen = s
            .get(
                "select coalesce(string_agg(pid || ' ' || coalesce(wait_event, ''), ''), '') from pg_stat_activity
                 where backend_type = 'trax vacuum' and datname = current_database()",
            )
            .await;
        match seen.strip_suffix(" BufferPin") {
            Some(pid) => Ok(pid.parse().expect("a process")),
            None => Err(seen),
        }
    })
    .await;
    (pid, holder)
}

/// A separate server that does not vacuum yet, with a database and a session of it.
async fn own_server(name: &str) -> (Server, Database, Session) {
    let server = scheduling()
        .setting("trax.vacuum", "off")
        // The vacuum itself waits for the page, not one of its parallel workers.
        .setting("max_parallel_maintenance_workers", "0")
        .start()
        .expect("a server starts");
    let database = server.database(name).await.expect("a database is made");
    status_becomes(&connect(&database).await, "scheduler", "running", PATIENCE).await;
    let s = Session::of(&database).await;
    s.get("alter table trax.work_queue set (autovacuum_enabled = off)")
        .await;
    (server, database, s)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_is_dropped_in_the_middle_of_its_vacuum() {
    let (server, database, s) = own_server("dropped").await;
    let (pid, holder) = stuck(&database, &s).await;
    // Only the vacuum is left in the database, and it is stopped.
    send_signal("STOP", pid);
    drop((s, holder));
    let other = Session::of(&server.existing("postgres")).await;
    let others = "select count(*) from pg_stat_activity where datname = 'dropped' and backend_type = 'client backend'";
    eventually("our sessions are gone", PATIENCE, async || {
        match other.get(others).await.as_str() {
            "0" => Ok(()),
            seen => Err(seen.to_owned()),
        }
    })
    .await;
    let dropper = Session::of(&server.existing("postgres")).await;
    let drop = dropper.spawn("drop database dropped");
    let schedulers = "select count(*) from pg_stat_activity where datname = 'dropped' and backend_type = 'trax scheduler'";
    eventually("the scheduler is gone", PATIENCE, async || {
        match other.get(schedulers).await.as_str() {
            "0" => Ok(()),
            seen => Err(seen.to_owned()),
        }
    })
    .await;
    send_signal("CONT", pid);
    let (_, dropped) = drop.await.expect("the session lives");
    assert_eq!(dropped, Ok(String::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fast_shutdown_waits_for_no_vacuum() {
    let (mut server, database, s) = own_server("stopped").await;
    let _stuck = stuck(&database, &s).await;
    let began = Instant::now();
    server.stop(Stop::Fast).expect("it stops");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_crash_of_a_vacuum_the_next_one_removes_what_is_dead() {
    let (server, database, s) = own_server("crashed").await;
    let (pid, holder) = stuck(&database, &s).await;
    send_signal("KILL", pid);
    eventually("the crash of all", PATIENCE, async || {
        let still = s.client().simple_query("select 1").await;
        still.map_or(Ok(()), |_| Err("it answers".to_owned()))
    })
    .await;
    drop((s, holder));
    let database = server.existing(database.name());
    let s = eventually("the server is back", PATIENCE, async || {
        let client = database.connect().await;
        client.map(drop).map_err(|error| error.to_string())?;
        Ok::<_, String>(Session::of(&database).await)
    })
    .await;
    // The restarted server has lost its statistics of dead rows; more dead rows make it look again.
    s.get(MAKE).await;
    vacuums_become(&s, "a vacuum", |dead, count| dead < 1000 && count > 0).await;
    s.assert_healthy().await;
}
