//! `trax.consume_rate`: other programs share a rate with jobs.

use super::{configure, enqueue_of};
use harness::session::{Session, session};

const CONSUME: &str = "select granted, retry_after > '59 min' from trax.consume_rate('api')";

#[tokio::test]
async fn jobs_and_programs_share_a_rate() {
    let (db, s) = session().await;
    configure(&s, "api", 2).await;
    let jobs = enqueue_of(&s, "api", 2).await;
    let other = Session::of(&db).await;
    assert_eq!(other.get(CONSUME).await, "t|");
    assert_eq!(s.claim_ids("max_jobs => 10").await, jobs[..1]);
    assert_eq!(other.get(CONSUME).await, "f|t");
    let of_key = "select granted from trax.consume_rate('api', 'k', 2)";
    assert_eq!(other.get(of_key).await, "t");
    assert_eq!(other.get(of_key).await, "f");
}

#[tokio::test]
async fn it_writes_nothing_and_a_rollback_gives_nothing_back() {
    let (_db, s) = session().await;
    configure(&s, "api", 2).await;
    s.get("begin").await;
    assert_eq!(s.get(CONSUME).await, "t|");
    assert_eq!(
        s.get("select pg_current_xact_id_if_assigned() is null")
            .await,
        "t"
    );
    s.get("rollback").await;
    assert_eq!(s.get(CONSUME).await, "t|");
    assert_eq!(s.get(CONSUME).await, "f|t");
}

#[tokio::test]
async fn nothing_starts_and_nobody_waits_while_a_change_is_open() {
    let (db, s) = session().await;
    configure(&s, "api", 1).await;
    let other = Session::of(&db).await;
    s.get("begin; select trax.configure_rate('api', 1, '1 h', 3)")
        .await;
    other.get("set lock_timeout = '10 ms'").await;
    let consume = "select * from trax.consume_rate('api')";
    assert_eq!(other.get(consume).await, "f|00:00:00.1");
    let job = enqueue_of(&other, "api", 1).await[0];
    other
        .get("select trax.configure_group('g', rate => 'api')")
        .await;
    assert_eq!(other.claim_ids("").await, [0; 0]);
    let why = format!("select detail from trax.explain_job({job}) where reason = 'rate'");
    assert_eq!(
        other.get(&why).await,
        format!(
            "Job {job} needs 1 of rate \"api\", which a transaction that has not ended configures."
        )
    );
    s.get("commit").await;
    other.get("begin").await;
    assert_eq!(
        other
            .get("select granted from trax.consume_rate('api', cost => 3)")
            .await,
        "t",
        "the burst is three now"
    );
    // The consumer's transaction is open, and keeps nobody from another change.
    s.get("set lock_timeout = '5 s'; select trax.configure_rate('api', 1, '1 h', 4)")
        .await;
    other.get("commit").await;
}

#[tokio::test]
async fn what_is_left_is_shown() {
    let (_db, s) = session().await;
    configure(&s, "api", 3).await;
    enqueue_of(&s, "api", 2).await;
    let state = "select burst, available, free_at is null, closed_until is null, waiting from trax.rate_state";
    assert_eq!(s.get(state).await, "3|3|t|t|2");
    s.get("select trax.consume_rate('api', cost => 3)").await;
    assert_eq!(s.get(state).await, "3|0|f|t|2");
    let metric = "select name || labels::text || value from trax.metrics() where name like 'trax_rate%' order by 1";
    let wanted = "trax_rate_available{\"rate\": \"api\"}0\ntrax_rate_closed{\"rate\": \"api\"}0\ntrax_rate_waiting{\"rate\": \"api\"}2";
    assert_eq!(s.get(metric).await, wanted);
    // Also in a transaction that may not write.
    s.get("begin read only").await;
    assert_eq!(s.get(state).await, "3|0|f|t|2");
    s.get("commit").await;
}
