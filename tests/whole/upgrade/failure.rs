//! Failed updates, and objects that users made on trax tables.

use super::{catalog, old_session, restored};
use harness::scheduler::new_name;
use harness::session::Session;
use harness::shared_server;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_failed_update_says_what_is_in_its_way_and_leaves_the_old_version_as_it_was() {
    let name = new_name("failed_update");
    let (_db, s) = restored(shared_server(), &name).await;
    s.get(
        "create schema report;
        create view report.waiting as select * from trax.job where state = 'queued';
        create view report.queue as select * from trax.work_queue;
        create view report.late as select l.job_id from trax.lease l where l.lease_expires_at < now();
        create view report.limits as select * from trax.concurrency_limit;
        create view report.done as select r.job_id from trax.run r;
        create function report.ask() returns bigint language sql as $$select trax.enqueue('asked')$$;
        create view report.lanes as select * from trax.lane",
    )
    .await;
    let (before, stored) = (catalog(&s).await, s.everything().await);
    let refusal = s.refusal("alter extension trax update").await;
    assert_eq!(refusal.code, "2BP01", "{refusal}");
    assert!(
        refusal.detail.contains("view report.lanes depends on"),
        "{refusal}"
    );
    assert!(
        refusal.hint.contains("alter extension trax update"),
        "{refusal}"
    );
    assert_eq!(catalog(&s).await, before);
    assert_eq!(s.everything().await, stored);

    // The other objects stay unchanged.
    s.get("drop view report.lanes; alter extension trax update; select trax.adopt()")
        .await;
    s.get("select report.ask()").await;
    assert_eq!(
        s.get("select count(*) from report.waiting where task = 'asked'")
            .await,
        "1"
    );
    s.get("table report.late; table report.limits; table report.done; table report.queue")
        .await;
    s.assert_healthy().await;
}

/// A session that waits for a table lock makes all later sessions wait behind it.
#[tokio::test]
async fn an_update_that_waits_for_a_transaction_lets_all_others_go_first() {
    let (db, s) = old_session("test_waiting_update").await;
    let open = Session::of(&db).await;
    open.get("begin; select count(*) from trax.run").await;
    let before = catalog(&s).await;
    let update = Session::of(&db).await;
    let pid = update.pid();
    let waiting = update.spawn("alter extension trax update");
    s.sees_waiting(pid).await;
    let begin = Instant::now();
    for _ in 0..20 {
        s.get("insert into trax.worker (name, started_at, last_seen_at) values (gen_random_uuid()::text, now(), now())")
            .await;
    }
    assert!(
        begin.elapsed() < Duration::from_secs(20),
        "{:?}",
        begin.elapsed()
    );
    s.get(&format!("select pg_cancel_backend({pid})")).await;
    let (update, refused) = waiting.await.expect("it ends");
    assert_eq!(refused.expect_err("it was cancelled").code, "57014");
    assert_eq!(catalog(&s).await, before);

    let waiting = update.spawn("alter extension trax update");
    s.sees_waiting(pid).await;
    open.get("commit").await;
    let (_update, updated) = waiting.await.expect("it ends");
    updated.expect("the tables were free");
    s.assert_healthy().await;
}

/// All tables are locked until the update commits.
#[tokio::test]
async fn whoever_reads_beside_an_update_waits_no_longer_than_it_takes() {
    let name = new_name("update_beside");
    let (db, s) = restored(shared_server(), &name).await;
    s.get(
        "insert into trax.work_queue (lane_id, queued_at, run_at, task, group_name, input)
        select n % 7, now(), now(), 'many.' || n % 7, 'default', '1' from generate_series(1, 50000) n;
        insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, task, group_name, input)
        select -n, now(), now(), now(), now(), 1, 0, true, 'completed', 'many', 'default', '1' from generate_series(1, 50000) n",
    )
    .await;
    let beside = Session::of(&db).await;
    let (end, mut ended) = tokio::sync::oneshot::channel::<()>();
    let reading = tokio::spawn(async move {
        let mut longest = Duration::ZERO;
        while ended.try_recv().is_err() {
            let begin = Instant::now();
            beside.get("select count(*) from trax.manifest").await;
            longest = longest.max(begin.elapsed());
        }
        longest
    });
    let begin = Instant::now();
    s.get("alter extension trax update").await;
    let took = begin.elapsed();
    end.send(()).expect("it reads");
    let longest = reading.await.expect("it ends");
    println!("the update took {took:?}, the longest wait beside it {longest:?}");
    assert!(
        longest < took + Duration::from_secs(1),
        "{longest:?} of {took:?}"
    );
    assert!(took < Duration::from_secs(40), "{took:?}");
    let moved = "select count(*) from trax.work_queue where lane_id = trax.lane_of(group_name, task) and task like 'many.%'";
    assert_eq!(s.get(moved).await, "50000");
    s.get("select trax.adopt()").await;
    s.assert_healthy().await;
}
