//! Two schedulers by mistake: the unique index of scheduled entries protects them if the cycle's
//! lock fails.

use harness::manifest::{complete_one, due_since, waiting};
use harness::session::{Session, session};
use harness::statement::statement;

/// Prepares a second cycle's statements in a session, to queue jobs without the cycle's lock.
async fn prepare(s: &Session) {
    let lock = statement("DueLock");
    let queue = statement("DueQueue");
    s.get(&format!(
        "prepare due_lock (timestamptz, bigint) as {lock};
         prepare due_queue (bigint[], timestamptz[], bigint[], timestamptz, int, int) as {queue}"
    ))
    .await;
}

/// Queues the entry of the only due manifest as a second cycle would.
async fn queue_by_hand(s: &Session) {
    let arguments = s
        .get("select format('%L, %L, %L, %L, 16, 31', array[s.manifest_id], array[now()], array[trax.lane_of(m.group_name, m.task)], now())
              from trax.manifest_state s
              join trax.manifest m on m.manifest_id = s.manifest_id")
        .await;
    s.get(&format!("execute due_queue ({arguments})")).await;
}

async fn due() -> (trax_client::testkit::Database, Session) {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'm', cron => '0 * * * *')")
        .await;
    due_since(&s, "m", "now() - interval '1 s'").await;
    (db, s)
}

#[tokio::test]
async fn a_second_cycle_that_has_queued_and_not_committed_makes_no_second_entry() {
    for end in ["commit", "rollback"] {
        let (db, s) = due().await;
        let other = Session::of(&db).await;
        prepare(&other).await;
        other.get("begin").await;
        queue_by_hand(&other).await;
        let pid = s.pid();
        let cycle =
            s.spawn("select sum(affected) filter (where step = 'queue_due') from trax.tick()");
        Session::of(&db).await.sees_waiting(pid).await;
        other.get(end).await;
        let (s, result) = cycle.await.expect("the task ends");
        let queued = if end == "commit" { "0" } else { "1" };
        assert_eq!(result.expect("no error reaches the loop"), queued, "{end}");
        assert_eq!(waiting(&s, "m").await, 1, "{end}");
        let failures = "select evaluation_failures, next_run_at > now() from trax.manifest_state";
        assert_eq!(s.get(failures).await, "0|t", "{end}");
        complete_one(&s, "").await;
        assert_eq!(s.tick("queue_due").await, 0, "{end}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn an_entry_that_somebody_else_queued_before_parks_the_manifest() {
    let (_db, s) = due().await;
    prepare(&s).await;
    queue_by_hand(&s).await;
    queue_by_hand(&s).await;
    assert_eq!(waiting(&s, "m").await, 1, "the second insert did nothing");
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(
        s.get("select parked_on from trax.manifest_state").await,
        "queued"
    );
    complete_one(&s, "").await;
    assert_eq!(
        s.tick("queue_due").await,
        1,
        "the occurrence that was parked"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn two_cycles_by_hand_never_hold_the_same_manifest() {
    let (db, s) = due().await;
    let other = Session::of(&db).await;
    for session in [&s, &other] {
        prepare(session).await;
        session.get("begin").await;
    }
    let lock = "execute due_lock (now(), null)";
    assert_ne!(s.get(lock).await, "");
    assert_eq!(other.get(lock).await, "", "held by the first");
    s.get("rollback").await;
    assert_ne!(other.get(lock).await, "");
    let third = Session::of(&db).await;
    assert_eq!(
        third.tick("queue_due").await,
        0,
        "a cycle steps over what is held"
    );
    other.get("rollback").await;
    assert_eq!(third.tick("queue_due").await, 1);
    third.assert_healthy().await;
}

#[tokio::test]
async fn many_cycles_by_hand_at_once_queue_each_manifest_once() {
    let (db, s) = session().await;
    s.get("select count(trax.schedule('m' || n, 'm', cron => '0 * * * *')) from generate_series(1, 200) n")
        .await;
    s.get("update trax.manifest_state set next_run_at = now(), next_scheduled_for = now()")
        .await;
    let arguments = s
        .get("select format('%L, %L, %L, now(), 16, 31', array_agg(manifest_id), array_agg(now()), array_agg(trax.lane_of(group_name, task)))
              from trax.manifest")
        .await;
    let sql = format!("execute due_queue ({arguments})");
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let other = Session::of(&db).await;
        prepare(&other).await;
        tasks.push(other.spawn(format!("{sql}; commit;").repeat(3)));
        tasks.push(
            Session::of(&db)
                .await
                .spawn("select trax.tick(); commit;".repeat(5)),
        );
    }
    for task in tasks {
        let (_, result) = task.await.expect("the task ends");
        result.expect("no error reaches the loop");
    }
    let twice = "select count(*), count(distinct manifest_id) from trax.work_queue";
    assert_eq!(s.get(twice).await, "200|200");
    s.assert_healthy().await;
}
