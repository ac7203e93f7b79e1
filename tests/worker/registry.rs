//! Live workers, as `trax.worker_state` shows them.

use super::{enqueue, start, worker, worker_at};
use harness::process::{Process, send_signal, trax_binary};
use harness::proxy::Slow;
use harness::scheduler::{connect, execute, value};
use harness::session::{Session, session};
use harness::{PATIENCE, database, eventually, shared_server};
use std::process::Command;
use std::time::Duration;
use tokio_postgres::{Client, Config};
use trax_client::Context;

async fn state_is(client: &Client, name: &str, wanted: &str) {
    let sql = format!(
        "select coalesce((select state from trax.worker_state where name = '{name}'), 'unknown')"
    );
    eventually(
        &format!("{name} {wanted}"),
        PATIENCE,
        async || match value::<String>(client, &sql).await {
            state if state == wanted => Ok(()),
            state => Err(state),
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_seen_before_it_has_claimed_anything_and_until_it_stops() {
    let database = database().await;
    let client = connect(&database).await;
    let begun = std::sync::Arc::new(tokio::sync::Notify::new());
    let (say, go_on) = (
        begun.clone(),
        std::sync::Arc::new(tokio::sync::Notify::new()),
    );
    let wait = go_on.clone();
    let running = worker(&database)
        .name("w")
        .handle("t", move |(): (), _: Context| {
            let (say, wait) = (say.clone(), wait.clone());
            async move {
                say.notify_one();
                wait.notified().await;
                Ok(())
            }
        });
    let running = start(running);
    state_is(&client, "w", "idle").await;
    let said = "select concat_ws(' ', version = (select extversion from pg_extension where extname = 'trax'),
            host <> '', info -> 'tasks', info -> 'concurrency', running_tasks)
        from trax.worker_state";
    assert_eq!(value::<String>(&client, said).await, "t t [\"t\"] 10 {}");
    enqueue(&client, "t", ()).await;
    begun.notified().await;
    state_is(&client, "w", "working").await;
    assert_eq!(value::<String>(&client, said).await, "t t [\"t\"] 10 {t}");
    running.shutdown.drain();
    state_is(&client, "w", "stopping").await;
    go_on.notify_one();
    running.drain().await;
    state_is(&client, "w", "unknown").await;
}

#[tokio::test]
async fn a_worker_that_ends_while_it_reports_that_it_stops_leaves_nothing() {
    let database = database().await;
    let client = connect(&database).await;
    let host = Slow::before(shared_server().port(), Duration::from_millis(20)).await;
    let mut config = Config::new();
    config
        .host("127.0.0.1")
        .port(host.port())
        .user("postgres")
        .dbname(database.name());
    for name in ["a", "b", "c"] {
        let running = start(
            worker_at(config.clone())
                .name(name)
                .handle("t", |(): (), _: Context| async { Ok(()) }),
        );
        state_is(&client, name, "idle").await;
        running.drain().await;
        let left = value::<i64>(&client, "select count(*) from trax.worker").await;
        assert_eq!(left, 0, "{name}");
    }
}

#[tokio::test]
async fn times_without_end_are_taken_as_very_long() {
    let database = database().await;
    let client = connect(&database).await;
    let running = start(
        worker(&database)
            .grace(Duration::MAX)
            .cancel_patience(Duration::MAX)
            .handle("t", |(): (), _: Context| async { Ok(()) }),
    );
    enqueue(&client, "t", ()).await;
    let completed = "select count(*) from trax.run where state = 'completed'";
    Session::of(&database).await.becomes(completed, "1").await;
    assert_eq!(running.drain().await.completed, 1);
}

#[tokio::test]
async fn a_worker_that_could_not_report_does_so_when_it_can() {
    let database = database().await;
    let client = connect(&database).await;
    // As in the middle of an update.
    let hide = "alter function trax.report_worker rename to hidden";
    execute(&client, hide).await;
    let running = start(
        worker(&database)
            .lease(Duration::from_secs(3))
            .handle("t", |(): (), _: Context| async { Ok(()) }),
    );
    enqueue(&client, "t", ()).await;
    let reported = "select count(*) from trax.worker where info ? 'concurrency'";
    let completed = "select count(*) from trax.run where state = 'completed'";
    let session = Session::of(&database).await;
    session.becomes(completed, "1").await;
    execute(
        &client,
        "alter function trax.hidden rename to report_worker",
    )
    .await;
    session.becomes(reported, "1").await;
    running.drain().await;
    assert_eq!(value::<i64>(&client, reported).await, 0);
}

#[tokio::test]
async fn who_is_not_heard_of_for_two_reports_is_gone_and_not_counted() {
    let (_db, s) = session().await;
    let seen = "select string_agg(name || ' ' || state, ', ' order by name) from trax.worker_state";
    let living = "select value::int from trax.metrics() where name = 'trax_workers'";
    let by_state = "select string_agg(concat_ws(' ', labels ->> 'state', value), ', ' order by labels ->> 'state')
        from trax.metrics() where name = 'trax_workers_by_state'";
    s.get(
        "select trax.report_worker('a', '10 s', info => '{\"host\": \"h\"}'), trax.report_worker('b', '1 h')",
    )
    .await;
    s.get("update trax.worker set last_seen_at = now() - interval '19 s'")
        .await;
    assert_eq!(s.get(seen).await, "a idle, b idle");
    assert_eq!(s.number(living).await, 2);
    s.get("update trax.worker set last_seen_at = now() - interval '21 s'")
        .await;
    assert_eq!(s.get(seen).await, "a gone, b idle");
    assert_eq!(s.number(living).await, 1);
    s.get("select trax.report_worker('a', '10 s', 'stopping')")
        .await;
    assert_eq!(s.get(seen).await, "a stopping, b idle");
    assert_eq!(
        s.get("select host from trax.worker_state where name = 'a'")
            .await,
        "h"
    );
    // A claim does not update a worker that sends reports itself.
    s.enqueue("'t'").await;
    s.claim_one("worker => 'b'").await;
    assert_eq!(
        s.get("select info from trax.worker where name = 'b'").await,
        "{}"
    );
    assert_eq!(s.get(seen).await, "a stopping, b working");
    let states = "gone 0, idle 0, stopping 1, working 1";
    assert_eq!(s.get(by_state).await, states);
    s.get("select trax.report_worker('a', '10 s', 'stopped')")
        .await;
    assert_eq!(s.get(seen).await, "b working");
    for (call, code) in [
        ("trax.report_worker('', '1 s')", "22023"),
        ("trax.report_worker('a', '0')", "22023"),
        ("trax.report_worker('a', null)", "22004"),
        ("trax.report_worker('a', '1 s', 'asleep')", "22023"),
        (
            "trax.report_worker('a', '1 s', info => to_jsonb(repeat('x', 9000)))",
            "54000",
        ),
    ] {
        let refusal = s.refusal(&format!("select {call}")).await;
        assert_eq!(refusal.code, code, "{call}: {refusal}");
        assert!(
            !refusal.detail.is_empty() && !refusal.hint.is_empty(),
            "{call}: {refusal}"
        );
    }
}

#[tokio::test]
async fn a_report_beside_an_open_claim_of_its_worker_answers_at_once_that_it_was_not_taken() {
    let (db, s) = session().await;
    let open = Session::of(&db).await;
    open.enqueue("'t'").await;
    open.get("begin").await;
    open.claim_one("worker => 'w'").await;
    for state in ["running", "stopping", "stopped"] {
        let report = format!("select trax.report_worker('w', '10 s', '{state}', '[1]')");
        assert_eq!(s.get(&report).await, "f", "{state}");
    }
    open.get("commit").await;
    let report = "select trax.report_worker('w', '10 s', info => '[1]')";
    assert_eq!(s.get(report).await, "t");
    let info = "select info from trax.worker where name = 'w'";
    assert_eq!(s.get(info).await, "[1]");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_says_what_it_is_until_the_server_has_taken_it() {
    let database = database().await;
    let open = Session::of(&database).await;
    open.enqueue("'another'").await;
    open.get("begin").await;
    open.claim_one("worker => 'w'").await;
    let client = connect(&database).await;
    let handler = |(): (), _: Context| async { Ok(()) };
    let running = worker(&database).name("w").lease(Duration::from_secs(3));
    let running = start(running.handle("t", handler));
    let answered = "select count(*) from pg_stat_activity
        where datname = current_database()
            and query like '%report_worker%'
            and state = 'idle'
            and pid <> pg_backend_pid()";
    eventually(
        "a report that was not taken",
        PATIENCE,
        async || match value::<i64>(&client, answered).await {
            0 => Err("none".to_owned()),
            _ => Ok(()),
        },
    )
    .await;
    open.get("commit").await;
    let tasks = "select coalesce((select info ->> 'tasks' from trax.worker where name = 'w'), '')";
    eventually("its tasks", PATIENCE, async || {
        match value::<String>(&client, tasks).await {
            tasks if tasks == "[\"t\"]" => Ok(()),
            tasks => Err(tasks),
        }
    })
    .await;
    running.drain().await;
}

#[tokio::test]
async fn a_worker_that_does_not_report_is_known_by_its_claims_and_leases() {
    let (_db, s) = session().await;
    let state = "select state from trax.worker_state where name = 'w'";
    s.enqueue("'t'").await;
    let job = s.claim_one("worker => 'w'").await;
    assert_eq!(s.get(state).await, "working");
    s.get("update trax.worker set last_seen_at = now() - interval '1 h'")
        .await;
    assert_eq!(s.get(state).await, "working", "its lease lives");
    s.get(&format!("select trax.complete({})", job.key())).await;
    assert_eq!(s.get(state).await, "gone");
    s.get("update trax.worker set last_seen_at = now() - interval '1 min'")
        .await;
    assert_eq!(s.get(state).await, "idle");
}

#[tokio::test]
async fn reports_of_a_thousand_workers_leave_their_rows_where_they_are() {
    let (_db, s) = session().await;
    s.get("select trax.report_worker('w' || n, '1 h') from generate_series(1, 1000) n")
        .await;
    let size = "select pg_relation_size('trax.worker') / 8192";
    // No updated column is indexed. A new session anywhere keeps dead rows for a moment, and new
    // row versions then go to other pages: a third of them on a busy machine.
    let mut seen = Vec::new();
    for _ in 0..5 {
        s.get("vacuum trax.worker").await;
        s.get("select pg_stat_reset()").await;
        let first = s.number(size).await;
        for _ in 0..20 {
            s.get("select trax.report_worker('w' || n, '1 h') from generate_series(1, 1000) n")
                .await;
        }
        s.get("select pg_stat_force_next_flush()").await;
        let in_place = "select (100 * n_tup_hot_upd / n_tup_upd)::int from pg_stat_user_tables
            where relid = 'trax.worker'::regclass";
        seen.push((s.number(in_place).await, first, s.number(size).await));
        if let Some((51.., first, last)) = seen.last()
            && *last <= 6 * first
        {
            return;
        }
    }
    panic!("percents in place, pages before, pages after: {seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_ends_at_once_leaves_nothing() {
    let database = database().await;
    let client = connect(&database).await;
    // The last report has half a second, which may be too short on a loaded machine.
    let mut left = vec![0];
    for _ in 0..5 {
        for _ in 0..20 {
            let handler = |(): (), _: Context| async { Ok(()) };
            start(worker(&database).handle("t", handler)).drain().await;
        }
        let seen = value::<i64>(&client, "select count(*) from trax.worker").await;
        if left.last() == Some(&seen) {
            return;
        }
        left.push(seen);
    }
    panic!("some are left each time: {left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_is_gone_within_two_reports() {
    let database = database().await;
    let client = connect(&database).await;
    let mut command = Command::new(trax_binary());
    let address = format!(
        "host={} port={} user=postgres dbname={}",
        shared_server().socket_dir().display(),
        shared_server().port(),
        database.name()
    );
    command.args(["--database-url", &address]);
    command.args(["worker", "--lease", "3", "--all-tasks", "--exec", "cat"]);
    let worker = Process::start(command);
    let state = "select string_agg(state, ',') from trax.worker_state";
    let becomes = async |wanted: &str| {
        eventually(wanted, PATIENCE, async || {
            match value::<Option<String>>(&client, state).await {
                Some(state) if state == wanted => Ok(()),
                state => Err(format!("{state:?}")),
            }
        })
        .await;
    };
    becomes("idle").await;
    send_signal("KILL", worker.id());
    becomes("gone").await;
    let since =
        "select extract(epoch from clock_timestamp() - last_seen_at)::float8 from trax.worker";
    let since = value::<f64>(&client, since).await;
    assert!(since > 2.0, "{since}");
    execute(
        &client,
        "select trax.report_worker(name, '1 s', 'stopped') from trax.worker",
    )
    .await;
    assert_eq!(value::<Option<String>>(&client, state).await, None);
}
