//! A session that waits while a rate holds jobs back is woken when it has room.

use super::enqueue_of;
use harness::session::session;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_session_that_waits_is_woken_when_a_rate_has_room() {
    let (_db, s) = session().await;
    s.get("select trax.configure_rate('api', 1, '700 ms')")
        .await;
    let jobs = enqueue_of(&s, "api", 2).await;
    assert_eq!(s.claim_ids("max_jobs => 2").await, jobs[..1]);
    let began = Instant::now();
    let mut late = Vec::new();
    while late.is_empty() {
        s.get("call trax.wait_for_work('1 min')").await;
        late = s.claim_ids("max_jobs => 2").await;
    }
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(late, jobs[1..]);
}
