//! Waiting sessions hold nothing that others need, and start soon when work arrives.

use harness::process::Halted;
use harness::prompt::{Handover, median};
use harness::scheduler::{connect, execute, live_database, live_server, value};
use harness::session::Session;
use harness::{PATIENCE, eventually};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_postgres::Client;
use trax_client::testkit::Database;
use trax_client::{Context, Worker};

/// A poll interval longer than any test.
const NEVER: Duration = Duration::from_secs(600);
/// The number of starts that are measured.
const STARTS: usize = 50;
/// The limit for two busy cores; an idle machine needs a millisecond or less.
const SOON: Duration = Duration::from_millis(20);
/// The alternative limit, in multiples of the time that PostgreSQL needs to wake a session.
const HANDOVERS: u32 = 20;

/// A worker of the Rust client that reports when it starts a job; a `'hold'` job never ends.
fn worker(database: &Database) -> mpsc::UnboundedReceiver<Instant> {
    let (tell, starts) = mpsc::unbounded_channel();
    let held = tell.clone();
    let worker = Worker::new(database.config())
        .without_signals()
        .poll_interval(NEVER)
        .handle("now", move |(): (), _: Context| {
            let told = tell.send(Instant::now());
            async move { Ok(told?) }
        })
        .handle("hold", move |(): (), _: Context| {
            let told = held.send(Instant::now());
            async move {
                told?;
                std::future::pending::<()>().await;
                Ok(())
            }
        });
    tokio::spawn(async move {
        if let Err(error) = worker.run().await {
            eprintln!("the worker ended: {error}");
        }
    });
    starts
}

async fn started(starts: &mut mpsc::UnboundedReceiver<Instant>) -> Instant {
    let start = tokio::time::timeout(PATIENCE, starts.recv()).await;
    start.expect("a job is started").expect("the worker lives")
}

/// The sessions of this database that wait as expected, then all that hold a snapshot or a
/// transaction.
const WAITING: &str = "
    select
        format('%s workers, %s listeners, %s waiters, %s loops, %s schedulers',
            count(*) filter (where application_name like 'trax worker%' and state = 'idle'),
            count(*) filter (where query = 'listen trax_work' and application_name = 'listener' and state = 'idle'),
            count(*) filter (where query like 'call trax.wait_for_work%' and wait_event_type = 'Extension'),
            count(*) filter (where query like 'do %' and wait_event_type = 'Extension'),
            count(*) filter (where backend_type = 'trax scheduler' and wait_event_type in ('Extension', 'Activity'))),
        coalesce(string_agg(format('%s %s: %s', backend_type, state, query), '; ') filter (
            where backend_xmin is not null or backend_xid is not null or state like 'idle in transaction%'), 'none')
    from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()";

/// Waits until all `expected` sessions wait and none holds a snapshot or a transaction.
async fn nobody_holds(s: &Session, expected: &str) {
    eventually("waits that hold nothing", PATIENCE, async || {
        let seen = s.get(WAITING).await;
        if seen == format!("{expected}|none") {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
}

/// Runs a waiting statement in a separate session.
async fn wait_in(database: &Database, before: &str, wait: &'static str) {
    let session = Session::of(database).await;
    session.get(before).await;
    session.spawn(wait);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_waits_holds_a_snapshot_and_vacuum_removes_what_died_meanwhile() {
    let database = live_database().await;
    let s = Session::of(&database).await;
    let mut starts = worker(&database);
    // The worker has run one job and is executing another.
    s.get("select trax.enqueue('now', 'null'); select trax.enqueue('hold', 'null')")
        .await;
    started(&mut starts).await;
    started(&mut starts).await;
    let listener = Session::of(&database).await;
    listener.get("set application_name = 'listener'").await;
    listener.get("listen trax_work").await;
    let looked = "select * from trax.claim_next()";
    wait_in(&database, looked, "call trax.wait_for_work('10 min')").await;
    let repeatable =
        "set default_transaction_isolation = 'repeatable read'; select * from trax.claim_next()";
    wait_in(&database, repeatable, "call trax.wait_for_work('10 min')").await;
    wait_in(
        &database,
        looked,
        "do $$ begin call trax.wait_for_work('10 min'); end $$",
    )
    .await;
    wait_in(
        &database,
        looked,
        "do $$ begin perform trax.claim_next(); commit; call trax.wait_for_work('10 min'); end $$",
    )
    .await;
    let workers = s
        .number("select count(*) from pg_stat_activity where datname = current_database() and application_name like 'trax worker%'")
        .await;
    assert!(workers > 0);
    nobody_holds(
        &s,
        &format!("{workers} workers, 1 listeners, 2 waiters, 2 loops, 1 schedulers"),
    )
    .await;

    // The effect of held snapshots: vacuum could not empty the table.
    s.get("create table litter as select n from generate_series(1, 10000) n")
        .await;
    s.get("delete from litter").await;
    eventually("an empty table after a vacuum", PATIENCE, async || {
        s.get("vacuum litter").await;
        match s.get("select pg_relation_size('litter')").await.as_str() {
            "0" => Ok(()),
            size => Err(format!("{size} bytes; {}", s.get(WAITING).await)),
        }
    })
    .await;
}

#[tokio::test]
async fn what_a_process_waits_for_has_a_name_from_17_on() {
    let database = live_database().await;
    let s = Session::of(&database).await;
    s.get("select trax.acquire_token('place', 'other', 1, '1 h')")
        .await;
    let job = s
        .enqueue("'nobody.runs.this', run_at => now() + interval '1 day'")
        .await;
    let waits = [
        (
            "call trax.wait_for_work('10 min')".to_owned(),
            "TraxWaitForWork",
        ),
        (
            format!("call trax.await_job({job}, '10 min', null, null, null)"),
            "TraxAwaitJob",
        ),
        (
            "call trax.await_token('place', 'me', 1, '1 h', '10 min', null, null, null)".to_owned(),
            "TraxAwaitToken",
        ),
    ];
    let named = s.number("show server_version_num").await >= 170_000;
    for (wait, name) in waits {
        let session = Session::of(&database).await;
        session.get("select * from trax.claim_next()").await;
        let sql = format!(
            "select wait_event_type, wait_event from pg_stat_activity where pid = {}",
            session.pid()
        );
        drop(session.spawn(&wait));
        let expected = format!("Extension|{}", if named { name } else { "Extension" });
        eventually(name, PATIENCE, async || match s.get(&sql).await {
            seen if seen == expected => Ok(()),
            seen => Err(seen),
        })
        .await;
    }
    let expected = if named { "TraxIdle" } else { "Extension" };
    let sql = "select count(*) from pg_stat_activity
        where backend_type in ('trax scheduler', 'trax launcher') and wait_event_type = 'Extension' and wait_event = ";
    eventually("processes that sleep", PATIENCE, async || {
        match s.number(&format!("{sql}'{expected}'")).await {
            0 => Err("none".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
}

#[tokio::test]
async fn who_waits_for_the_end_of_a_scheduler_says_so() {
    let database = live_database().await;
    let s = Session::of(&live_server().existing("postgres")).await;
    let scheduler = format!(
        "select pid from pg_stat_activity where backend_type = 'trax scheduler' and datname = '{}'",
        database.name()
    );
    let pid = s.number(&scheduler).await as i32;
    let wait_of = |pid: i32| {
        format!(
            "select wait_event_type, wait_event from pg_stat_activity where pid = {pid} and wait_event_type = 'Extension'"
        )
    };
    // The halted scheduler cannot end, but holds nothing that others need.
    let halted = Halted::asleep(&s, pid).await;
    let dropping = Session::of(&live_server().existing("postgres")).await;
    let by = dropping.pid();
    let drop_it = format!("drop database {}", database.name());
    let dropped = dropping.spawn(drop_it);
    let named = s.number("show server_version_num").await >= 170_000;
    let name = if named { "TraxScheduler" } else { "Extension" };
    eventually(name, PATIENCE, async || match s.get(&wait_of(by)).await {
        seen if seen == format!("Extension|{name}") => Ok(()),
        seen => Err(seen),
    })
    .await;
    drop(halted);
    dropped.await.expect("it ends").1.expect("it is dropped");
}

/// Checks that the median delay from the commit of an enqueue to the start of its job is short, by
/// itself or compared with the plain wake-ups measured in between.
fn assert_soon(what: &str, delays: Vec<Duration>, handovers: Vec<Duration>) {
    let (delay, handover) = (median(delays), median(handovers));
    println!("{what}: half start within {delay:?}, a handover takes {handover:?}");
    assert!(
        delay < SOON.max(handover * HANDOVERS),
        "{delay:?} beside {handover:?}"
    );
}

/// Waits until no job waits or runs, and the claiming sessions have slept for longer than the
/// interval between wake-ups.
async fn is_idle(client: &Client, asleep: &str) {
    eventually("an idle database", PATIENCE, async || {
        let sql = format!(
            "select (select count(*) from trax.lease) + (select count(*) from trax.work_queue) = 0
                 and (select coalesce(bool_and(state_change < clock_timestamp() - interval '20 ms' and {asleep}), false)
                      from pg_stat_activity
                      where datname = current_database() and pid <> pg_backend_pid()
                          and backend_type = 'client backend')"
        );
        if value::<bool>(client, &sql).await { Ok(()) } else { Err("busy".to_owned()) }
    })
    .await;
}

/// Jobs enqueued while all claiming sessions are `asleep` start soon.
async fn start_soon(
    what: &str,
    client: &Client,
    asleep: &str,
    enqueue: &str,
    starts: &mut mpsc::UnboundedReceiver<Instant>,
) {
    let mut handover = Handover::of(&live_server().existing("postgres")).await;
    let (mut delays, mut handovers) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        handovers.push(handover.time().await);
        is_idle(client, asleep).await;
        execute(client, enqueue).await;
        let committed = Instant::now();
        delays.push(started(starts).await.saturating_duration_since(committed));
    }
    assert_soon(what, delays, handovers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listening_worker_starts_jobs_without_polling() {
    let database = live_database().await;
    let client = connect(&database).await;
    let mut starts = worker(&database);
    execute(&client, "select trax.enqueue('now', 'null')").await;
    started(&mut starts).await;
    let asleep = "application_name like 'trax worker%' and state = 'idle'";
    let enqueue = "select trax.enqueue('now', 'null')";
    start_soon(
        "a worker that listens",
        &client,
        asleep,
        enqueue,
        &mut starts,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_over_wait_for_work_starts_jobs_without_polling() {
    let database = live_database().await;
    let (client, worker) = (connect(&database).await, connect(&database).await);
    let (tell, mut starts) = mpsc::unbounded_channel();
    let looping = tokio::spawn(async move {
        loop {
            let sql = "select job_id, token from trax.claim_next()";
            let claimed = worker.query(sql, &[]).await.expect("a claim works");
            let Some(job) = claimed.first() else {
                execute(&worker, "call trax.wait_for_work('10 min')").await;
                continue;
            };
            if tell.send(Instant::now()).is_err() {
                return;
            }
            let (id, token): (i64, uuid::Uuid) = (job.get(0), job.get(1));
            let sql = "select trax.complete($1, $2)";
            let done = worker.query_one(sql, &[&id, &token]).await;
            assert!(done.expect("a completion works").get::<_, bool>(0));
        }
    });
    let asleep = "query like 'call trax.wait_for_work%' and wait_event_type = 'Extension'";
    let enqueue = "select trax.enqueue('now')";
    start_soon(
        "a loop over wait_for_work",
        &client,
        asleep,
        enqueue,
        &mut starts,
    )
    .await;
    looping.abort();
    let end = looping.await.expect_err("the loop has no end of its own");
    assert!(end.is_cancelled(), "{end}");
}

#[tokio::test]
async fn a_wait_commits_nothing_that_its_caller_has_written() {
    let database = harness::database().await;
    let s = Session::of(&database).await;
    for level in ["read committed", "repeatable read", "serializable"] {
        s.get(&format!("set default_transaction_isolation = '{level}'"))
            .await;
        let refusal = s
            .refusal(
                "do $$ begin
                     perform trax.enqueue('a');
                     call trax.wait_for_work('1 ms');
                     raise exception 'undone';
                 end $$",
            )
            .await;
        assert_eq!(refusal.message, "undone", "{level}");
        // A loop continues after a wait that has ended its transaction.
        s.get(
            "do $$ begin
                 for round in 1..3 loop
                     call trax.wait_for_work('1 ms');
                     perform count(*) from trax.work_queue;
                 end loop;
             end $$",
        )
        .await;
        assert!(s.claim("").await.is_empty(), "{level}");
    }
}
