//! Work in the target that takes longer than a relay waits: a large row, or another session's lock.

use super::{JOBS, pair, trax_relay};
use harness::session::Session;
use harness::{PATIENCE, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_takes_longer_than_the_patience_is_held_and_stops_no_other() {
    let (source, target) = pair().await;
    target
        .get(
            "create function stop_one() returns trigger language plpgsql as $$
            begin
                perform pg_sleep(60);
                return new;
            end
            $$;
            create trigger stop_one before insert on trax_relay.carried
            for each row when (new.id = 2) execute function stop_one();
            create constraint trigger stop_one_at_last after insert on trax_relay.carried
            deferrable initially deferred
            for each row when (new.id = 4) execute function stop_one()",
        )
        .await;
    source
        .get("select trax_outbox.enqueue(n::text) from generate_series(1, 8) n")
        .await;
    let relay = trax_relay(&source, &target)
        .arguments(&["--patience", "2 s"])
        .start();
    target.reaches(&relay, JOBS, "6 6").await;
    let held = "select waiting, held, trouble like '2 rows are held back; row 2 %(57014)' from trax_relay.source";
    target.reaches(&relay, held, "2|2|t").await;
    source
        .get("select trax_outbox.enqueue(n::text) from generate_series(9, 12) n")
        .await;
    target.reaches(&relay, JOBS, "10 10").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_row_of_the_source_leaves_no_session_behind_in_the_target() {
    let (source, target) = pair().await;
    trax_relay(&source, &target).once();
    source.get("select trax_outbox.enqueue('t')").await;
    let other = Session::of(target.database()).await;
    other
        .get("begin; select from trax_relay.source for update")
        .await;
    let relay = trax_relay(&source, &target)
        .arguments(&["--patience", "1 s"])
        .start();
    eventually("it has begun four times", PATIENCE, async || {
        let said = relay.output();
        let times = said.matches("carrying stopped").count();
        (times >= 4).then_some(()).ok_or(said)
    })
    .await;
    let behind = "select count(*) <= 1 from pg_stat_activity
        where application_name = 'trax relay' and datname = current_database() and wait_event_type = 'Lock'";
    assert_eq!(target.get(behind).await, "t");
    // The relay was waiting for the lock.
    assert!(relay.output().contains("(55P03)"), "{}", relay.output());
    other.get("rollback").await;
    target.reaches(&relay, JOBS, "1 1").await;
}
