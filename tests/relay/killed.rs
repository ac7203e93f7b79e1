//! Relays that are killed at a message or hang, and rows without a notification.

use super::{JOBS, WAITING, pair, trax_relay};
use harness::process::{Halted, run};
use harness::proxy::Proxy;
use harness::{PATIENCE, eventually, shared_server, whole_faults};
use std::time::Duration;

/// Kills relays that each wait for one message in turn.
async fn kill_at_every_message(at_source: bool) {
    let (source, target) = pair().await;
    let mut count = 0;
    let step = if whole_faults() { 1 } else { 19 };
    for message in (10..).step_by(step) {
        source
            .get("select trax_outbox.enqueue(gen_random_uuid()::text) from generate_series(1, 3)")
            .await;
        count += 3;
        let proxy = Proxy::still_before(shared_server().port(), message).await;
        let relay = trax_relay(&source, &target).arguments(&["--batch", "2", "--poll", "1h"]);
        let stuck = if at_source {
            relay.source_port(proxy.port())
        } else {
            relay.target_port(proxy.port())
        };
        let process = stuck.start();
        let is_over = eventually("it is stuck or sleeps", PATIENCE, async || {
            let sleeps = process.output().contains("relay number")
                && source.get(WAITING).await == "0"
                && source.get("select asleep from trax_outbox.target").await == "t";
            (proxy.has_cut() || sleeps)
                .then_some(!proxy.has_cut())
                .ok_or_else(|| process.output())
        })
        .await;
        // Dropping it sends SIGKILL.
        drop(process);
        drop(proxy);
        trax_relay(&source, &target).once();
        assert_eq!(
            target.get(JOBS).await,
            format!("{count} {count}"),
            "{message}"
        );
        assert_eq!(source.get(WAITING).await, "0");
        if is_over {
            assert!(message > 20, "{message} messages are a whole life");
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_killed_at_a_message_of_the_source_loses_and_doubles_nothing() {
    kill_at_every_message(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_killed_at_a_message_of_the_target_loses_and_doubles_nothing() {
    kill_at_every_message(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_killed_between_the_commit_and_its_word_doubles_nothing() {
    let (source, target) = pair().await;
    source.get("select trax_outbox.enqueue('t')").await;
    let proxy = Proxy::still_before_answer(shared_server().port(), "COMMIT").await;
    let relay = trax_relay(&source, &target)
        .target_port(proxy.port())
        .start();
    target.reaches(&relay, JOBS, "1 1").await;
    eventually("the answer is held up", PATIENCE, async || {
        proxy.has_cut().then_some(()).ok_or_else(|| relay.output())
    })
    .await;
    assert_eq!(source.get(WAITING).await, "1");
    drop(relay);
    trax_relay(&source, &target).once();
    assert_eq!(target.get(JOBS).await, "1 1");
    assert_eq!(source.get(WAITING).await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_without_a_notification_is_found_by_polling() {
    let (source, target) = pair().await;
    let relay = trax_relay(&source, &target)
        .arguments(&["--poll", "100ms"])
        .start();
    source
        .reaches(&relay, "select asleep from trax_outbox.target", "t")
        .await;
    source
        .get("insert into trax_outbox.entry (task, input) values ('t', '{}')")
        .await;
    // Well before the check that runs each minute.
    eventually("it is carried", Duration::from_secs(30), async || {
        let jobs = target.get(JOBS).await;
        (jobs == "1 1").then_some(()).ok_or(jobs)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_hangs_is_replaced() {
    let (source, target) = pair().await;
    let patient = |poll| {
        trax_relay(&source, &target)
            .arguments(&["--patience", "1s", "--poll", poll])
            .start()
    };
    let first = patient("1h");
    source
        .reaches(&first, "select asleep from trax_outbox.target", "t")
        .await;
    let halted = Halted::new(first.id());
    let second = patient("100ms");
    second.says("another relay carries", PATIENCE).await;
    second.says("relay number 2", PATIENCE).await;
    source.get("select trax_outbox.enqueue('t')").await;
    target.reaches(&second, JOBS, "1 1").await;
    drop(halted);
    first.says("another relay carries", PATIENCE).await;
    source.get("select trax_outbox.enqueue('u')").await;
    target.reaches(&second, JOBS, "2 2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_sleeps_longer_than_it_may_hang_keeps_its_place() {
    let (source, target) = pair().await;
    let relay = trax_relay(&source, &target)
        .arguments(&["--patience", "1s", "--poll", "1h"])
        .start();
    source
        .reaches(&relay, "select asleep from trax_outbox.target", "t")
        .await;
    // The session of the relay shows regular activity.
    let touched = "select count(*) > 0 from pg_stat_activity
        where application_name = 'trax relay' and datname = current_database()
            and state_change > backend_start + interval '6 s'";
    source.reaches(&relay, touched, "t").await;
    assert!(
        !relay.output().contains("relay number 2"),
        "{}",
        relay.output()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_beside_a_running_relay_says_so_and_ends() {
    let (source, target) = pair().await;
    let relay = trax_relay(&source, &target).start();
    relay.says("relay number 1", PATIENCE).await;
    let (code, _, said) = run(&mut trax_relay(&source, &target).command(&["--once"]));
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("another relay carries the rows of this outbox"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_hangs_inside_a_transaction_is_replaced() {
    let (source, target) = pair().await;
    source.get("select trax_outbox.enqueue('t')").await;
    let key = source.get("select key from trax_outbox.entry").await;
    // The answer with the id of the row's job comes before the commit.
    let proxy = Proxy::still_before_answer(shared_server().port(), &key).await;
    let patient = || trax_relay(&source, &target).arguments(&["--patience", "5s"]);
    let first = patient().target_port(proxy.port()).start();
    eventually("the answer is held up", PATIENCE, async || {
        proxy.has_cut().then_some(()).ok_or_else(|| first.output())
    })
    .await;
    let halted = Halted::new(first.id());
    let second = patient().start();
    second.says("another relay carries", PATIENCE).await;
    target.reaches(&second, JOBS, "1 1").await;
    source.reaches(&second, WAITING, "0").await;
    drop(halted);
}
