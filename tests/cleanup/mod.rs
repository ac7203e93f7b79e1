//! Retention: whole days of history are dropped, whichever call made their partitions.

mod retention;

use harness::database;
use harness::scheduler::{connect, execute, value, violations};

const PARTITIONS: &str = "select count(*) from pg_inherits
    where inhparent = 'trax.run'::regclass and inhrelid <> 'trax.run_default'::regclass";

#[tokio::test]
async fn the_partitions_that_came_with_the_extension_are_dropped_after_retention() {
    let database = database().await;
    let client = connect(&database).await;
    let made: i64 = value(&client, PARTITIONS).await;
    assert!(made >= 4, "today and the coming three days: {made}");
    let dropped = "select trax.drop_run_partitions(now() + interval '30 days')::bigint";
    assert_eq!(value::<i64>(&client, dropped).await, made);
    assert_eq!(value::<i64>(&client, PARTITIONS).await, 0);
}

#[tokio::test]
async fn a_cycle_drops_the_days_before_retention_and_keeps_the_others() {
    let database = database().await;
    let client = connect(&database).await;
    execute(
        &client,
        "select trax.make_run_partitions(now() - interval '9 days', 2);
        insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state,
            task, group_name, input)
        select nextval('trax.work_queue_job_id_seq'), t, t, t, t, 1, 0, true, 'completed', 'old', 'default', '{}'
        from generate_series(now() - interval '9 days', now() - interval '7 days', interval '1 day') v (t)",
    )
    .await;
    // The day in which retention (7 days) ends is kept as a whole.
    let dropped = "select affected from trax.tick() where step = 'drop_partitions'";
    assert_eq!(value::<i64>(&client, dropped).await, 2);
    assert_eq!(
        value::<i64>(&client, "select count(*) from trax.run").await,
        1
    );
    assert_eq!(violations(&client).await, Vec::<String>::new());
}
