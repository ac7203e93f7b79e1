//! Prefetched jobs: losing one spends no attempt, but only a limited number of times.

use super::let_leases_expire;
use harness::session::session;

#[tokio::test]
async fn a_lost_job_that_no_handler_began_spends_no_attempt() {
    let (_db, s) = session().await;
    for _ in 0..3 {
        s.enqueue("'a', max_retries => 0").await;
    }
    let jobs = s.claim("max_jobs => 3, places => 1").await;
    let (first, others) = (
        &jobs[0],
        format!("array[{}, {}]::bigint[]", jobs[1].id, jobs[2].id),
    );
    s.get(&format!(
        "select held from trax.heartbeat(array(select job_id from trax.lease order by 1),
            array(select token from trax.lease order by job_id), ahead => {others})"
    ))
    .await;
    let_leases_expire(&s).await;
    assert_eq!(s.tick("reap_expired_leases").await, 3);
    let dead = "select string_agg(job_id::text, ' ') from trax.dead_letter";
    assert_eq!(s.get(dead).await, first.id.to_string(), "its handler ran");
    let waiting = "select job_id, attempts from trax.work_queue order by job_id";
    let expected = format!("{}|0\n{}|0", jobs[1].id, jobs[2].id);
    assert_eq!(s.get(waiting).await, expected);
    let runs = "select attempt, state, failure_kind, final, started_at is null, error from trax.run where not final";
    let run = "0|failed|lease_expired|f|t|its worker was lost before it reported the begin";
    assert_eq!(s.get(runs).await, format!("{run}\n{run}"));
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_that_is_lost_before_it_begins_again_and_again_comes_to_its_end() {
    let (_db, s) = session().await;
    let id = s.enqueue("'a', max_retries => 1").await;
    let mut attempts = Vec::new();
    while s.number("select count(*) from trax.dead_letter").await == 0 {
        let sql = "select attempt from trax.claim_next(places => 0)";
        attempts.push(s.get(sql).await);
        let_leases_expire(&s).await;
        assert_eq!(s.tick("reap_expired_leases").await, 1);
    }
    assert_eq!(attempts.join(" "), "1 1 1 1 2 2 2 2");
    let dead = "select job_id, attempts, reason from trax.dead_letter";
    assert_eq!(s.get(dead).await, format!("{id}|2|attempts spent"));
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_heartbeat_says_which_jobs_have_begun() {
    let (_db, s) = session().await;
    for _ in 0..2 {
        s.enqueue("'a'").await;
    }
    let jobs = s.claim("max_jobs => 2, places => 0").await;
    let beat = |ahead: &str| {
        format!(
            "select held from trax.heartbeat(array[{}, {}], array['{}', '{}']::uuid[], ahead => {ahead})",
            jobs[0].id, jobs[1].id, jobs[0].token, jobs[1].token
        )
    };
    let ahead = "select string_agg(ahead::text, ' ' order by job_id) from trax.lease";
    assert_eq!(
        s.get(&beat(&format!("array[{}]::bigint[]", jobs[1].id)))
            .await,
        "t\nt"
    );
    assert_eq!(s.get(ahead).await, "false true");
    assert_eq!(
        s.get(&beat("array(select job_id from trax.lease)")).await,
        "t\nt"
    );
    assert_eq!(s.get(ahead).await, "false true", "what has begun has begun");
    assert_eq!(s.get(&beat("null")).await, "t\nt");
    assert_eq!(s.get(ahead).await, "false false");
    let_leases_expire(&s).await;
    assert_eq!(s.tick("reap_expired_leases").await, 2);
    assert_eq!(
        s.get("select distinct attempts from trax.work_queue").await,
        "1"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_timeout_of_a_job_that_was_fetched_ahead_counts_from_its_begin() {
    let (_db, s) = session().await;
    s.enqueue("'a', timeout => '5 min'").await;
    let job = s.claim_one("places => 0, lease => '1 h'").await;
    // The job has waited for an hour at its worker.
    s.get("update trax.lease set timeout_at = now() - interval '55 min'")
        .await;
    assert_eq!(s.tick("cancel_timed_out").await, 0);
    assert_eq!(s.tick("reap_expired_leases").await, 0);
    let beat = |ahead: &str| {
        format!(
            "select held, cancel_requested from trax.heartbeat(array[{0}], array['{1}'::uuid], '1 h', ahead => {ahead})",
            job.id, job.token
        )
    };
    assert_eq!(
        s.get(&beat(&format!("array[{}::bigint]", job.id))).await,
        "t|f"
    );
    assert_eq!(s.tick("cancel_timed_out").await, 0);
    assert_eq!(s.get(&beat("null")).await, "t|f");
    let left = "select timeout_at - extended_at from trax.lease";
    assert_eq!(s.get(left).await, "00:05:00");
    assert_eq!(s.tick("cancel_timed_out").await, 0);
    assert_eq!(s.get(&beat("null")).await, "t|f");
    s.get("update trax.lease set timeout_at = now() - interval '1 s'")
        .await;
    assert_eq!(s.tick("cancel_timed_out").await, 1);
    s.assert_healthy().await;
}
