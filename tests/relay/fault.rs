//! Faults while rows are carried: a broken connection at each message, a killed relay, a server
//! crash, two relays, and a stalled relay.

use super::{JOBS, Side, outbox_on, pair, play, trax_relay};
use harness::process::Process;
use harness::proxy::{Freezer, Proxy};
use harness::scheduler::new_name;
use harness::session::Session;
use harness::{PATIENCE, eventually, shared_server, whole_faults};
use trax_client::testkit::Stop;

impl Side {
    pub(super) async fn reaches(&self, relay: &Process, sql: &str, wanted: &str) {
        eventually(sql, PATIENCE, async || {
            let seen = self
                .attempt(sql)
                .await
                .map_err(|refusal| refusal.to_string())?;
            if seen == wanted {
                Ok(())
            } else {
                Err(format!("{seen}; the relay said: {}", relay.output()))
            }
        })
        .await;
    }
}

/// Runs relays whose connections to one side are cut at each message in turn.
async fn cut(at_source: bool) {
    let (source, target) = pair().await;
    let mut count = 0;
    let step = if whole_faults() { 1 } else { 23 };
    for message in (1..).step_by(step) {
        let proxy = Proxy::before(shared_server().port(), message).await;
        source
            .get("select trax_outbox.enqueue(gen_random_uuid()::text) from generate_series(1, 3)")
            .await;
        count += 3;
        let mut relay =
            trax_relay(&source, &target).arguments(&["--batch", "2", "--results", "--poll", "1h"]);
        relay = if at_source {
            relay.source_port(proxy.port())
        } else {
            relay.target_port(proxy.port())
        };
        let mut process = relay.start();
        if !at_source {
            // A relay that cannot reach the target at its start ends with an error, and is started
            // again.
            let has_ended = eventually("it runs or has ended", PATIENCE, async || {
                let said = process.output();
                let has_ended = said.contains("cannot reach");
                let runs = said.contains("relay number");
                (has_ended || runs).then_some(has_ended).ok_or(said)
            });
            if has_ended.await {
                process = relay.start();
            }
        }
        let relay = process;
        target
            .reaches(&relay, JOBS, &format!("{count} {count}"))
            .await;
        source
            .reaches(&relay, "select count(*) from trax_outbox.entry", "0")
            .await;
        source
            .reaches(
                &relay,
                "select count(*) from trax_outbox.result",
                &count.to_string(),
            )
            .await;
        // The relay sleeps after its start and the work for three rows.
        source
            .reaches(&relay, "select asleep from trax_outbox.target", "t")
            .await;
        drop(relay);
        if !proxy.has_cut() {
            assert!(message > 20, "{message} messages are a whole life");
            break;
        }
    }
    target.assert_healthy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_to_the_source_that_breaks_at_any_message_loses_and_doubles_nothing() {
    cut(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_to_the_target_that_breaks_at_any_message_loses_and_doubles_nothing() {
    cut(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_sleeps_notices_the_end_of_its_connection() {
    let (source, target) = pair().await;
    let relay = trax_relay(&source, &target)
        .arguments(&["--poll", "1h"])
        .start();
    source
        .reaches(&relay, "select asleep from trax_outbox.target", "t")
        .await;
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity
        where application_name = 'trax relay' and datname = current_database()";
    assert_eq!(source.number(end).await, 1);
    relay.says("relay number 2", PATIENCE).await;
    source.get("select trax_outbox.enqueue('t')").await;
    target.reaches(&relay, JOBS, "1 1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_relays_one_carries_and_the_other_takes_over() {
    let (source, target) = pair().await;
    let first = trax_relay(&source, &target).start();
    first.says("relay number 1", PATIENCE).await;
    let second = trax_relay(&source, &target).start();
    second.says("another relay carries", PATIENCE).await;
    source
        .get("select trax_outbox.enqueue(n::text) from generate_series(1, 1000) n")
        .await;
    target.reaches(&first, JOBS, "1000 1000").await;
    assert!(
        !second.output().contains("relay number"),
        "{}",
        second.output()
    );
    drop(first);
    second.says("relay number 2", PATIENCE).await;
    source
        .get("select trax_outbox.enqueue(n::text) from generate_series(1001, 1500) n")
        .await;
    target.reaches(&second, JOBS, "1500 1500").await;
    source
        .reaches(&second, "select count(*) from trax_outbox.entry", "0")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_stood_still_carries_nothing_after_its_successor() {
    let (source, target) = pair().await;
    let freezer = Freezer::before(shared_server().port()).await;
    let stalled = trax_relay(&source, &target)
        .target_port(freezer.port())
        .arguments(&["--poll", "10ms"])
        .start();
    stalled.says("relay number 1", PATIENCE).await;
    source
        .reaches(&stalled, "select asleep from trax_outbox.target", "t")
        .await;
    freezer.freeze();
    source.get("select trax_outbox.enqueue('t')").await;
    // The relay has read the row, and its first statement for the target is in progress.
    source
        .reaches(&stalled, "select asleep from trax_outbox.target", "f")
        .await;
    let holder = "select pid from pg_locks where locktype = 'advisory' and granted
        and database = (select oid from pg_database where datname = current_database())";
    let pid = source.number(holder).await;
    let successor = trax_relay(&source, &target)
        .arguments(&["--poll", "10ms"])
        .start();
    successor.says("another relay carries", PATIENCE).await;
    source
        .get(&format!("select pg_terminate_backend({pid})"))
        .await;
    successor.says("relay number 2", PATIENCE).await;
    target.reaches(&successor, JOBS, "1 1").await;
    source
        .reaches(&successor, "select count(*) from trax_outbox.entry", "0")
        .await;
    // Even after all records of the row are gone.
    target.get("delete from trax_relay.carried").await;
    freezer.thaw();
    stalled.says("carrying stopped", PATIENCE).await;
    assert!(
        stalled.output().contains("taken over"),
        "{}",
        stalled.output()
    );
    assert_eq!(target.get(JOBS).await, "1 1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_server_may_restart() {
    // A committed transaction must survive a crash.
    let durable = || {
        harness::options()
            .fast()
            .setting("synchronous_commit", "on")
    };
    let mut at_source = durable().start().expect("a server starts");
    let mut at_target = durable()
        .setting("trax.databases", "none_has_this_name")
        .start()
        .expect("a server starts");
    let (database, session) = outbox_on(&at_source).await;
    let mut source = Side { database, session };
    let database = at_target
        .database(&new_name("target"))
        .await
        .expect("a database");
    play(&at_target, &database, "relay.sql");
    let session = Session::of(&database).await;
    let mut target = Side { database, session };
    let relay = trax_relay(&source, &target).start();
    relay.says("relay number 1", PATIENCE).await;
    let mut count = 0;
    for round in 0..4 {
        source
            .get(
                "select trax_outbox.enqueue(gen_random_uuid()::text) from generate_series(1, 2000)",
            )
            .await;
        count += 2000;
        if round % 2 == 0 {
            at_target
                .stop(if round == 0 {
                    Stop::Immediate
                } else {
                    Stop::Fast
                })
                .expect("it stops");
            at_target.start().expect("it starts");
            target.session = Session::of(&target.database).await;
        } else {
            at_source
                .stop(if round == 1 {
                    Stop::Immediate
                } else {
                    Stop::Fast
                })
                .expect("it stops");
            at_source.start().expect("it starts");
            source.session = Session::of(&source.database).await;
        }
        target
            .reaches(&relay, JOBS, &format!("{count} {count}"))
            .await;
        source
            .reaches(&relay, "select count(*) from trax_outbox.entry", "0")
            .await;
    }
    drop(relay);
}
