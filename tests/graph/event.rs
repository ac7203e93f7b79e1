//! Many events and needs: what they cost, and what they may not keep from others.

use super::{assert_no_needs, complete, queued};
use harness::limit::buffers;
use harness::session::{Session, session};

#[tokio::test]
async fn dead_events_are_not_read_by_each_cycle_and_a_late_one_is_found() {
    let (db, s) = session().await;
    let (reader, late) = (Session::of(&db).await, Session::of(&db).await);
    queued(&s, "a b:a c d:c", "cancel").await;
    let a = s.claim_one("tasks => '{a}'").await;
    late.get(&format!("begin; select trax.complete({})", a.key()))
        .await;
    reader
        .get("begin isolation level repeatable read; select count(*) from trax.need_event")
        .await;
    s.get(
        "insert into trax.need_event (job_id) select n from generate_series(1000000, 1499999) n;
         delete from trax.need_event",
    )
    .await;
    let cycle = "select * from trax.tick()";
    let whole = buffers(&s, cycle).await;
    let mut least = whole;
    for _ in 0..5 {
        least = least.min(buffers(&s, cycle).await);
    }
    assert!(least * 4 < whole, "{whole} buffers, then {least}");
    complete(&s, "c").await;
    assert_eq!(s.tick("promote_delayed").await, 1, "d");
    late.get("commit").await;
    let woken = "select max(affected) filter (where step = 'promote_delayed') from trax.tick()";
    s.becomes(woken, "1").await;
    reader.get("commit").await;
    complete(&s, "b").await;
    complete(&s, "d").await;
    assert_no_needs(&s).await;
}
