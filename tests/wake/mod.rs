//! Waiting for work: a commit wakes the waiter, which holds no snapshot.

use harness::scheduler::{connect, execute, scheduler_of, scheduler_wakes, scheduling, value};
use harness::{PATIENCE, eventually};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::Client;
use trax_client::testkit::{Database, Server};

/// Claims until nothing is left, so that only new work ends a wait.
async fn claim_all(client: &Client) {
    while !client
        .query("select job_id from trax.claim_next(max_jobs => 1000)", &[])
        .await
        .expect("a claim works")
        .is_empty()
    {}
}

/// Waits until the session with this process id waits, and checks that it holds neither a snapshot
/// nor a table lock.
async fn waits_without_a_snapshot(client: &Client, pid: i32) {
    eventually("a wait without a snapshot", PATIENCE, async || {
        let row = client
            .query_one(
                "select query like 'call trax.wait_for_work%' and state = 'active' and wait_event is not null
                     and backend_xmin is null and backend_xid is null
                     and not exists (select from pg_locks l where l.pid = a.pid and l.relation is not null),
                     state || ' ' || query
                 from pg_stat_activity a where pid = $1",
                &[&pid],
            )
            .await
            .map_err(|error| error.to_string())?;
        if row.get(0) { Ok(()) } else { Err(row.get(1)) }
    })
    .await;
}

async fn pid(client: &Client) -> i32 {
    let row = client.query_one("select pg_backend_pid()", &[]).await;
    row.expect("a backend has a process id").get(0)
}

/// A server with schedulers, a session whose last claim was empty, and one that enqueues.
async fn waiter_and_producer() -> (Server, Client, Client) {
    let server = scheduling().start().expect("a server starts");
    let database = server.database("waits").await.expect("a database is made");
    let (waiter, producer) = (connect(&database).await, connect(&database).await);
    claim_all(&waiter).await;
    (server, waiter, producer)
}

#[tokio::test]
async fn a_waiter_is_woken_by_a_commit_and_holds_no_snapshot() {
    let (_server, waiter, producer) = waiter_and_producer().await;
    let waiting_pid = pid(&waiter).await;
    let wait = tokio::spawn(async move {
        waiter
            .batch_execute("call trax.wait_for_work('10 min')")
            .await
            .expect("a wait ends");
    });
    waits_without_a_snapshot(&producer, waiting_pid).await;
    producer
        .batch_execute("begin; select trax.enqueue('t')")
        .await
        .expect("a job is enqueued");
    waits_without_a_snapshot(&producer, waiting_pid).await;
    producer.batch_execute("commit").await.expect("it commits");
    let woken = tokio::time::timeout(PATIENCE, wait).await;
    woken
        .expect("woken by the commit")
        .expect("the waiter ends");
}

#[tokio::test]
async fn a_rollback_wakes_nobody_and_the_time_ends_a_wait() {
    let (_server, waiter, producer) = waiter_and_producer().await;
    producer
        .batch_execute("begin; select trax.enqueue('t'); rollback")
        .await
        .expect("it rolls back");
    let began = Instant::now();
    waiter
        .batch_execute("call trax.wait_for_work('300 ms')")
        .await
        .expect("a wait ends");
    assert!(began.elapsed() >= Duration::from_millis(295));
}

#[tokio::test]
async fn work_that_came_after_the_last_look_ends_the_wait_at_once() {
    let (_server, waiter, producer) = waiter_and_producer().await;
    producer
        .batch_execute("select trax.enqueue_many('t', array['1', '2']::jsonb[])")
        .await
        .expect("jobs are enqueued");
    let began = Instant::now();
    for _ in 0..2 {
        waiter
            .batch_execute("call trax.wait_for_work('10 min')")
            .await
            .expect("a wait ends");
        // Of two jobs one is claimed, so a worker that waits now must not sleep.
        let claimed = waiter
            .query("select job_id from trax.claim_next()", &[])
            .await;
        assert_eq!(claimed.expect("a claim works").len(), 1);
    }
    assert!(began.elapsed() < PATIENCE, "the time is not waited for");
}

/// Returns the duration of a wait, at most `timeout`.
async fn waited(client: &Client, timeout: &str) -> Duration {
    let began = Instant::now();
    client
        .batch_execute(&format!("call trax.wait_for_work('{timeout}')"))
        .await
        .expect("a wait ends");
    began.elapsed()
}

#[tokio::test]
async fn a_session_that_has_not_looked_waits_while_nothing_is_there() {
    for (preloaded, server) in [(true, scheduling()), (false, scheduling().not_preloaded())] {
        let server = server.start().expect("a server starts");
        let database = server.database("fresh").await.expect("a database is made");
        let client = connect(&database).await;
        let whole = Duration::from_millis(795);
        assert!(waited(&client, "800 ms").await >= whole, "{preloaded}");
        // The claim took the only job.
        client
            .batch_execute("select trax.enqueue('t'); select * from trax.claim_next()")
            .await
            .expect("a job is claimed");
        assert!(waited(&client, "800 ms").await >= whole, "{preloaded}");
        client
            .batch_execute("set default_transaction_isolation = 'serializable'")
            .await
            .expect("it is set");
        assert!(waited(&client, "800 ms").await >= whole, "{preloaded}");
    }
}

#[tokio::test]
async fn work_that_is_there_ends_the_wait_of_a_session_that_has_not_looked() {
    for (preloaded, server) in [(true, scheduling()), (false, scheduling().not_preloaded())] {
        let server = server.start().expect("a server starts");
        let database = server.database("fresh").await.expect("a database is made");
        let (client, producer) = (connect(&database).await, connect(&database).await);
        execute(&producer, "select trax.enqueue('t')").await;
        // The second wait also ends, since another session may be the one that claims.
        for _ in 0..2 {
            let waited = waited(&client, "10 min").await;
            assert!(waited < PATIENCE, "{preloaded}: {waited:?}");
        }
    }
}

#[tokio::test]
async fn without_preloading_a_wait_ends_soon_after_work_has_come() {
    let server = scheduling()
        .not_preloaded()
        .start()
        .expect("a server starts");
    let database = server.database("polls").await.expect("a database is made");
    let (waiter, producer) = (connect(&database).await, connect(&database).await);
    let waiting_pid = pid(&waiter).await;
    let wait = tokio::spawn(async move { waited(&waiter, "10 min").await });
    waits_without_a_snapshot(&producer, waiting_pid).await;
    execute(&producer, "select trax.enqueue('t')").await;
    let waited = wait.await.expect("the waiter ends");
    assert!(waited < PATIENCE, "{waited:?}");
}

#[tokio::test]
async fn a_wait_inside_a_transaction_block_is_refused() {
    let database = harness::database().await;
    let client = connect(&database).await;
    let error = client
        .batch_execute("begin; call trax.wait_for_work()")
        .await
        .expect_err("it would pin the snapshot");
    let error = error.as_db_error().expect("the server refuses").clone();
    assert_eq!(error.code().code(), "25001");
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("call trax.wait_for_work()"))
    );
}

#[tokio::test]
async fn a_delayed_job_is_claimable_soon_after_its_time() {
    let server = scheduling()
        .setting("trax.tick_interval", "1h")
        .start()
        .expect("a server starts");
    let database = server.database("delays").await.expect("a database is made");
    let client = connect(&database).await;
    scheduler_of(&client, "delays", PATIENCE).await;
    let began = Instant::now();
    client
        .batch_execute(
            "select trax.enqueue('late', run_at => clock_timestamp() + interval '300 ms')",
        )
        .await
        .expect("a job is enqueued");
    // The wait does not last the hour between cycles.
    eventually("the delayed job", PATIENCE, async || {
        let rows = client.query("select 1 from trax.claim_next()", &[]).await;
        match rows {
            Ok(rows) if rows.len() == 1 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert!(
        began.elapsed() >= Duration::from_millis(300),
        "not before its time"
    );
}

/// A session that listens for work, and the channels of its notifications.
async fn listening(database: &Database) -> (Client, UnboundedReceiver<String>) {
    let config = database.config();
    let (listener, mut connection) = config
        .connect(tokio_postgres::NoTls)
        .await
        .expect("a connection is made");
    let (told, hears) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut messages =
            std::pin::pin!(std::future::poll_fn(move |cx| connection.poll_message(cx)));
        while let Some(Ok(message)) = messages.as_mut().await {
            if let tokio_postgres::AsyncMessage::Notification(notification) = message
                && told.send(notification.channel().to_owned()).is_err()
            {
                return;
            }
        }
    });
    execute(&listener, "listen trax_work").await;
    (listener, hears)
}

#[tokio::test]
async fn listeners_hear_of_committed_work() {
    let server = scheduling().start().expect("a server starts");
    let database = server.database("hears").await.expect("a database is made");
    let client = connect(&database).await;
    scheduler_of(&client, "hears", PATIENCE).await;
    let (_listener, mut hears) = listening(&database).await;
    execute(&client, "select trax.enqueue('t')").await;
    let heard = tokio::time::timeout(PATIENCE, hears.recv()).await;
    assert_eq!(
        heard.expect("a notification comes").as_deref(),
        Some("trax_work")
    );
}

#[tokio::test]
async fn listeners_hear_when_a_rate_has_room_for_jobs_that_it_held_back() {
    let server = scheduling().start().expect("a server starts");
    let database = server.database("rates").await.expect("a database is made");
    let client = connect(&database).await;
    scheduler_of(&client, "rates", PATIENCE).await;
    execute(&client, "select trax.configure_rate('api', 1, '700 ms')").await;
    execute(
        &client,
        "select trax.enqueue_many('t', '{1,2}', rate => 'api')",
    )
    .await;
    let (_listener, mut hears) = listening(&database).await;
    let claim = "select count(*) from trax.claim_next(max_jobs => 2)";
    assert_eq!(value::<i64>(&client, claim).await, 1);
    // A notification of the enqueueing may come first.
    loop {
        let heard = tokio::time::timeout(PATIENCE, hears.recv()).await;
        heard.expect("a notification comes when the rate has room");
        if value::<i64>(&client, claim).await == 1 {
            return;
        }
    }
}

/// A session that waits for a lock waits on its latch, and consumes signals set by others.
#[tokio::test]
async fn work_queued_while_the_scheduler_waits_for_a_lock_is_told_after_it() {
    let options = scheduling()
        .setting("trax.tick_interval", "'1 h'")
        .setting("deadlock_timeout", "10min");
    let server = options.start().expect("a server starts");
    let database = server.database("locked").await.expect("a database is made");
    let (client, locker) = (connect(&database).await, connect(&database).await);
    let scheduler = scheduler_of(&client, "locked", PATIENCE).await;
    let (_listener, mut hears) = listening(&database).await;
    let mut delays = Vec::new();
    // Right after a wake-up the next one is two seconds away, so a notification within 500 ms is
    // due to the queued job.
    for _ in 0..5 {
        scheduler_wakes(&client, "locked", 1).await;
        execute(&locker, "begin; lock trax.lease").await;
        execute(
            &client,
            "select trax.enqueue('t', run_at => now() + interval '1 h')",
        )
        .await;
        eventually("the scheduler waits", PATIENCE, async || {
            let sql = "select count(*) from pg_locks where pid = $1 and not granted";
            let row = client.query_one(sql, &[&scheduler]).await;
            match row.map_err(|error| error.to_string())?.get::<_, i64>(0) {
                1 => Ok(()),
                count => Err(count.to_string()),
            }
        })
        .await;
        while hears.try_recv().is_ok() {}
        execute(&client, "select trax.enqueue('t')").await;
        let released = Instant::now();
        execute(&locker, "commit").await;
        let heard = tokio::time::timeout(PATIENCE, hears.recv()).await;
        assert_eq!(heard.ok().flatten().as_deref(), Some("trax_work"));
        delays.push(released.elapsed());
    }
    delays.sort();
    assert!(delays[2] < Duration::from_millis(500), "{delays:?}");
}

#[tokio::test]
async fn a_claim_that_is_rolled_back_wakes_who_stepped_over_it() {
    let server = scheduling().start().expect("a server starts");
    let database = server.database("undone").await.expect("a database is made");
    let (waiter, claimer) = (connect(&database).await, connect(&database).await);
    // Two messages, since in one message the rollback would also undo the first statement.
    for sql in [
        "select trax.enqueue('t')",
        "begin; select trax.claim_next()",
    ] {
        claimer.batch_execute(sql).await.expect(sql);
    }
    claim_all(&waiter).await;
    let waiting_pid = pid(&waiter).await;
    let wait = tokio::spawn(async move {
        waiter
            .batch_execute("call trax.wait_for_work('10 min')")
            .await
            .expect("a wait ends");
        waiter
    });
    waits_without_a_snapshot(&connect(&database).await, waiting_pid).await;
    claimer
        .batch_execute("rollback")
        .await
        .expect("it rolls back");
    let woken = tokio::time::timeout(PATIENCE, wait).await;
    let waiter = woken
        .expect("woken by the rollback")
        .expect("the waiter ends");
    let claimed = waiter
        .query("select job_id from trax.claim_next()", &[])
        .await;
    assert_eq!(claimed.expect("a claim works").len(), 1);
}

#[tokio::test]
async fn a_loop_in_the_database_may_commit_after_a_wait() {
    let database = harness::database().await;
    let client = connect(&database).await;
    client
        .batch_execute(
            "do $$
             begin
                 for round in 1..3 loop
                     perform trax.enqueue('t');
                     commit;
                     call trax.wait_for_work('1 ms');
                     commit;
                 end loop;
             end;
             $$",
        )
        .await
        .expect("a loop of its own may commit");
    let row = client
        .query_one("select count(*) from trax.work_queue", &[])
        .await;
    assert_eq!(row.expect("jobs are counted").get::<_, i64>(0), 3);
}

#[tokio::test]
async fn work_that_a_kept_snapshot_did_not_show_ends_the_wait_at_once() {
    let (_server, waiter, producer) = waiter_and_producer().await;
    for claim in ["trax.claim_next()", "trax.claim_next(tasks => '{t}')"] {
        let look = format!(
            "begin isolation level repeatable read; select count(*) from trax.run; select * from {claim}"
        );
        // The job is enqueued after the snapshot and before the claim.
        let (snapshot, look) = look.rsplit_once(';').expect("two statements");
        waiter.batch_execute(snapshot).await.expect("it begins");
        producer
            .batch_execute("select trax.enqueue('t')")
            .await
            .expect("a job is enqueued");
        waiter.batch_execute(look).await.expect("a claim works");
        waiter.batch_execute("commit").await.expect("it commits");
        let limit = waited(&waiter, "10 min");
        let waited = tokio::time::timeout(PATIENCE, limit).await;
        waited.expect("the time is not waited for");
        let claimed = format!("select job_id from {claim}");
        let claimed = waiter.query(&claimed, &[]).await.expect("a claim works");
        assert_eq!(claimed.len(), 1, "{claim}");
        claim_all(&waiter).await;
    }
}
