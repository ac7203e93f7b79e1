//! Transactions that enqueue early and commit late.

use super::{ROUND, UNANNOUNCED, claim, pass, vacuum};
use harness::process::send_signal;
use harness::scheduler::{connect, execute, scheduler_of, scheduling, violations};
use harness::session::{Session, session};
use harness::{PATIENCE, eventually};
use std::time::Instant;
use tokio_postgres::Client;
use trax_client::testkit::Server;

fn jobs() -> usize {
    let jobs = std::env::var("TRAX_LATE_JOBS");
    jobs.map_or(4 * ROUND, |text| {
        text.parse().expect("TRAX_LATE_JOBS is a number of jobs")
    })
}

/// Claims, and waits for work in between, until `wanted` are claimed; returns the number of empty
/// claims.
async fn claim_all(client: &Client, mut wanted: Vec<i64>) -> usize {
    let mut vain = 0;
    while !wanted.is_empty() {
        let claimed = claim(client).await;
        vain += usize::from(claimed.is_empty());
        for job in claimed {
            assert!(wanted.contains(&job), "job {job} and not one of {wanted:?}");
            wanted.retain(|id| *id != job);
        }
        if !wanted.is_empty() {
            execute(client, "call trax.wait_for_work('10 min')").await;
        }
    }
    vain
}

/// Enqueues into several lanes in a transaction that stays open.
async fn late(s: &Session) -> Vec<i64> {
    s.get("begin").await;
    let mut ids = vec![s.enqueue("'a'").await];
    s.get("savepoint half").await;
    ids.push(s.enqueue("'a', priority => 3").await);
    ids.push(s.enqueue("'b', group_name => 'g'").await);
    ids
}

/// Waits until the session with this pid waits for work.
async fn waits(s: &Session, pid: i32) {
    eventually("a wait for work", PATIENCE, async || {
        // Within a transaction, the first snapshot of the statistics would be seen again.
        s.get("select pg_stat_clear_snapshot()").await;
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
async fn jobs_that_commit_after_many_later_ones_have_passed_are_found_by_the_next_claim() {
    let (db, passer) = session().await;
    let (first, second, third) = (
        Session::of(&db).await,
        Session::of(&db).await,
        Session::of(&db).await,
    );
    let waiter = Session::of(&db).await;
    let firsts = late(&first).await;
    pass(passer.client()).await;
    let seconds = late(&second).await;
    vacuum(passer.client()).await;
    // No vacuum from here on, as behind a held snapshot.
    let rounds = (jobs() / ROUND).max(2);
    for _ in 2..rounds {
        pass(passer.client()).await;
    }
    let thirds = late(&third).await;
    pass(passer.client()).await;
    println!("{} jobs passed", rounds * ROUND);

    // A waiting session is woken and finds them.
    let pid = waiter.pid();
    let waiting = tokio::spawn(async move {
        let vain = claim_all(waiter.client(), seconds).await;
        (waiter, vain)
    });
    waits(&passer, pid).await;
    second.get("commit").await;
    let found = tokio::time::timeout(PATIENCE, waiting).await;
    let (_, vain) = found.expect("it is woken").expect("the waiter finds them");
    assert!(vain <= 3, "{vain} claims before it found them");

    // The session that claimed the later jobs finds them with its first claim.
    first.get("commit").await;
    assert_eq!(claim_all(passer.client(), firsts).await, 0);

    // A new session finds them too.
    let fresh = Session::of(&db).await;
    third.get("commit").await;
    assert_eq!(claim_all(fresh.client(), thirds).await, 0);
    passer.assert_healthy().await;
}

/// A server with prepared transactions, and a session in its database.
async fn two_phase() -> (Server, Session) {
    two_phase_of(2).await
}

/// As [`two_phase`], with this many prepared transactions at once.
async fn two_phase_of(most: usize) -> (Server, Session) {
    let server = scheduling()
        .setting("max_prepared_transactions", most.to_string())
        .start()
        .expect("a server starts");
    let database = server
        .database("prepared")
        .await
        .expect("a database is made");
    let session = Session::of(&database).await;
    (server, session)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_prepared_transaction_did_counts_from_the_moment_it_ends() {
    let (_server, s) = two_phase().await;
    let claimed = "select count(*) from trax.claim_next(max_jobs => 9)";
    s.get("select trax.configure_group('g', max_active_jobs => 1)")
        .await;
    s.get("begin; select trax.enqueue_many('t', '{1,2}', group_name => 'g')")
        .await;
    s.get("prepare transaction 'enqueued'").await;
    pass(s.client()).await;
    vacuum(s.client()).await;
    pass(s.client()).await;
    s.get("commit prepared 'enqueued'").await;

    s.get(&format!("begin; {claimed}")).await;
    s.get("prepare transaction 'claimed'").await;
    assert_eq!(s.get(claimed).await, "0");
    s.get("rollback prepared 'claimed'").await;
    assert_eq!(s.get(claimed).await, "1");

    assert_eq!(s.get(claimed).await, "0", "the group is full");
    s.get("begin; select trax.complete(job_id, token) from trax.lease")
        .await;
    s.get("prepare transaction 'completed'").await;
    assert_eq!(s.get(claimed).await, "0");
    s.get("commit prepared 'completed'").await;
    assert_eq!(s.get(claimed).await, "1");
    s.assert_healthy().await;
}

/// The commit of the prepared transaction `enqueued` ends a wait of `waiter`, which is returned.
async fn commit_prepared_wakes(s: &Session, waiter: Session) -> Session {
    waiter.get("select * from trax.claim_next()").await;
    let pid = waiter.pid();
    let began = Instant::now();
    let wait = waiter.spawn("call trax.wait_for_work('10 min')");
    waits(s, pid).await;
    s.get("commit prepared 'enqueued'").await;
    let (waiter, waited) = tokio::time::timeout(PATIENCE, wait)
        .await
        .expect("it is woken")
        .expect("the wait ends");
    assert_eq!(waited.as_deref(), Ok(""));
    assert!(began.elapsed() < PATIENCE);
    waiter
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_prepared_transaction_wakes_who_waits() {
    let (server, s) = two_phase().await;
    s.get("begin; select trax.enqueue('t')").await;
    s.get("prepare transaction 'enqueued'").await;
    let waiter = Session::of(&server.existing("prepared")).await;
    commit_prepared_wakes(&s, waiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_was_prepared_before_a_restart_is_found() {
    let (mut server, s) = two_phase().await;
    s.get("begin; select trax.enqueue('a')").await;
    s.get("prepare transaction 'late'").await;
    drop(s);
    server.restart().expect("the server restarts");
    let client = connect(&server.existing("prepared")).await;
    pass(&client).await;
    vacuum(&client).await;
    pass(&client).await;
    execute(&client, "commit prepared 'late'").await;
    eventually("the prepared job", UNANNOUNCED, async || {
        match claim(&client).await.as_slice() {
            [1] => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_transaction_that_was_prepared_before_a_restart_wakes_who_waits() {
    let (mut server, s) = two_phase().await;
    s.get("begin; select trax.enqueue('t')").await;
    s.get("prepare transaction 'enqueued'").await;
    drop(s);
    server.restart().expect("the server restarts");
    let database = server.existing("prepared");
    let (s, waiter) = (Session::of(&database).await, Session::of(&database).await);
    // The scheduler has read the list of prepared transactions.
    scheduler_of(&connect(&database).await, "prepared", PATIENCE).await;
    commit_prepared_wakes(&s, waiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_transaction_that_was_prepared_before_a_crash_wakes_who_waits() {
    let (server, s) = two_phase().await;
    s.get("begin; select trax.enqueue('t')").await;
    s.get("prepare transaction 'enqueued'").await;
    // The server restarts with new shared memory but the same start time. Connections are accepted
    // until the crash is noticed; a new checkpointer shows that the server has restarted.
    let checkpointer =
        "select max(pid)::text from pg_stat_activity where backend_type = 'checkpointer'";
    let before = s.get(checkpointer).await;
    send_signal("KILL", s.pid());
    let database = server.existing("prepared");
    let client = eventually("the server is back", PATIENCE, async || {
        let (client, connection) = database
            .config()
            .connect(tokio_postgres::NoTls)
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        let row = client.query_one(checkpointer, &[]).await;
        match row.map(|row| row.get::<_, Option<String>>(0)) {
            Ok(Some(pid)) if pid != before => Ok(client),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
    scheduler_of(&client, "prepared", PATIENCE).await;
    let (s, waiter) = (Session::of(&database).await, Session::of(&database).await);
    let waiter = commit_prepared_wakes(&s, waiter).await;
    assert_eq!(waiter.claim("").await.len(), 1);
}

/// A two-phase subscription in `prepared` to orders of the database `source`; each order makes a
/// job.
async fn subscribed(server: &Server, s: &Session) -> Session {
    let source = server.database("source").await.expect("a database is made");
    let source = Session::of(&source).await;
    let orders = "create table public.orders (id int primary key)";
    source
        .get(&format!(
            "{orders}; create publication p for table public.orders"
        ))
        .await;
    source
        .get("select pg_create_logical_replication_slot('s', 'pgoutput', false, true)")
        .await;
    s.get(&format!(
        "{orders};
         create function public.ordered() returns trigger language plpgsql as
             'begin perform trax.enqueue($$t$$ || new.id); return null; end';
         create trigger ordered after insert on public.orders for each row execute function public.ordered();
         alter table public.orders enable always trigger ordered"
    ))
    .await;
    s.get(&format!(
        "create subscription s connection 'host={} port={} user=postgres dbname=source' publication p
         with (create_slot = false, slot_name = 's', copy_data = false, two_phase = true)",
        server.socket_dir().display(),
        server.port()
    ))
    .await;
    eventually("both phases", PATIENCE, async || {
        let state = "select subtwophasestate from pg_subscription";
        match s.get(state).await {
            seen if seen == "e" => Ok(()),
            seen => Err(seen),
        }
    })
    .await;
    source
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_transaction_that_a_subscription_ends_is_found_and_leaves_nothing_behind() {
    let server = scheduling()
        .setting("max_prepared_transactions", "3")
        .setting("wal_level", "logical")
        .start()
        .expect("a server starts");
    let database = server
        .database("prepared")
        .await
        .expect("a database is made");
    let s = Session::of(&database).await;
    let source = subscribed(&server, &s).await;
    for n in 1..=4 {
        source
            .get(&format!(
                "begin; insert into public.orders values ({n}); prepare transaction 'p{n}'"
            ))
            .await;
        eventually("it is prepared here", PATIENCE, async || {
            let sql = "select count(*) from pg_prepared_xacts where database = 'prepared'";
            match s.get(sql).await {
                seen if seen == "1" => Ok(()),
                seen => Err(seen),
            }
        })
        .await;
        assert!(s.claim("").await.is_empty());
        source.get(&format!("commit prepared 'p{n}'")).await;
        eventually("its job", PATIENCE, async || {
            match s.claim("").await.len() {
                1 => Ok(()),
                seen => Err(format!("{seen}")),
            }
        })
        .await;
    }
    // Prepared transactions of this database itself still have room.
    s.get("begin; select trax.enqueue('own'); prepare transaction 'own'")
        .await;
    assert!(s.claim("").await.is_empty());
    s.get("commit prepared 'own'").await;
    assert_eq!(s.claim("").await.len(), 1);
    s.get("alter subscription s disable; alter subscription s set (slot_name = none); drop subscription s")
        .await;
    s.assert_healthy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_many_prepared_transactions_enqueued_is_found_as_each_ends() {
    let (_server, s) = two_phase_of(40).await;
    for round in 0..2 {
        for n in 0..40 {
            s.get(&format!("begin; select trax.enqueue('t{n}')")).await;
            s.get(&format!("prepare transaction 'p{n}'")).await;
        }
        assert!(s.claim("max_jobs => 100").await.is_empty());
        for n in 0..40 {
            s.get(&format!("commit prepared 'p{n}'")).await;
            assert_eq!(s.claim("max_jobs => 100").await.len(), 1, "{round} {n}");
        }
    }
    s.assert_healthy().await;
}
