//! Leases: heartbeats, stale tokens, expiry, timeouts, and release.

mod ahead;
mod beside;
mod grace;
mod look;
mod race;

use harness::session::{Claimed, Session, session};
use harness::{PATIENCE, eventually};

const NO_TOKEN: &str = "00000000-0000-4000-8000-000000000000";

fn heartbeat(job: &Claimed, lease: &str) -> String {
    format!(
        "select held, cancel_requested, lease_expires_at > clock_timestamp() + interval '1 h'
         from trax.heartbeat(array[{}], array['{}'::uuid], {lease})",
        job.id, job.token
    )
}

/// Makes every lease expire a second ago.
async fn let_leases_expire(s: &Session) {
    s.get("update trax.lease set lease_expires_at = now() - interval '1 s'")
        .await;
}

/// Makes every attempt reach its timeout this long ago.
async fn let_attempts_time_out(s: &Session, since: &str) {
    s.get(&format!(
        "update trax.lease set timeout_at = clock_timestamp() - interval '{since}'"
    ))
    .await;
}

#[tokio::test]
async fn an_attempt_whose_start_is_moved_by_hand_has_run_that_long() {
    let (_db, s) = session().await;
    s.enqueue("'own', timeout => '1 h'").await;
    s.enqueue("'default'").await;
    s.get("select count(*) from trax.claim_next(max_jobs => 2, lease => '1 day')")
        .await;
    let asked = "select task from trax.lease where cancel_requested order by task";
    s.get("update trax.lease set started_at = now() - interval '1201 s'")
        .await;
    s.tick("cancel_timed_out").await;
    assert_eq!(s.get(asked).await, "default");
    s.get("update trax.lease set started_at = now() - interval '3601 s' where task = 'own'")
        .await;
    s.tick("cancel_timed_out").await;
    assert_eq!(s.get(asked).await, "default\nown");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_heartbeat_extends_the_lease() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    assert_eq!(s.get(&heartbeat(&job, "'2 h'")).await, "t|f|t");
    assert_eq!(
        s.get("select lease_expires_at > now() + interval '119 min' from trax.lease")
            .await,
        "t"
    );
    assert_eq!(
        s.get(&heartbeat(&job, "'1 s'")).await,
        "t|f|t",
        "a heartbeat never shortens"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_heartbeat_without_a_length_gives_the_default_lease() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("lease => '100 ms'").await;
    let sql = format!(
        "select lease_expires_at - clock_timestamp() between interval '28 s' and interval '30 s'
         from trax.heartbeat(array[{}], array['{}'::uuid])",
        job.id, job.token
    );
    assert_eq!(s.get(&sql).await, "t");
}

#[tokio::test]
async fn one_heartbeat_reports_what_is_held_cancelled_and_lost() {
    let (_db, s) = session().await;
    for _ in 0..4 {
        s.enqueue("'a'").await;
    }
    let jobs = s.claim("max_jobs => 4").await;
    s.get(&format!("select trax.cancel({})", jobs[1].id)).await;
    s.get(&format!("select trax.complete({})", jobs[2].key()))
        .await;
    let (a, b, c, d) = (&jobs[0], &jobs[1], &jobs[2], &jobs[3]);
    // Ids out of order, one with another job's token, and one that never existed.
    let sql = format!(
        "select job_id, held, cancel_requested, lease_expires_at is null
         from trax.heartbeat(array[{}, {}, {}, {}, 999999],
             array['{}', '{}', '{}', '{NO_TOKEN}', '{NO_TOKEN}']::uuid[])",
        c.id, b.id, a.id, d.id, c.token, b.token, a.token
    );
    let expected = format!(
        "{}|f|f|t\n{}|t|t|f\n{}|t|f|f\n{}|f|f|t\n999999|f|f|t",
        c.id, b.id, a.id, d.id
    );
    assert_eq!(s.get(&sql).await, expected);
    s.assert_healthy().await;
}

#[tokio::test]
async fn one_heartbeat_distinguishes_a_lost_attempt_from_the_next_one_of_the_same_job() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let lost = s.claim_one("").await;
    let_leases_expire(&s).await;
    assert_eq!(s.tick("reap_expired_leases").await, 1);
    let next = s.claim_one("").await;
    let sql = format!(
        "select job_id, held, lease_expires_at is null
         from trax.heartbeat(array[{0}, {0}, {0}], array['{1}', '{2}', '{1}']::uuid[])",
        next.id, lost.token, next.token
    );
    let id = next.id;
    assert_eq!(s.get(&sql).await, format!("{id}|f|t\n{id}|t|f\n{id}|f|t"));
}

#[tokio::test]
async fn a_heartbeat_of_nothing_gives_nothing() {
    let (_db, s) = session().await;
    assert_eq!(s.get("select * from trax.heartbeat('{}', '{}')").await, "");
}

#[tokio::test]
async fn a_stale_token_changes_nothing() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h'); select * from trax.tick()")
        .await;
    s.enqueue("'a', unique_key => 'k'").await;
    let first = s.claim("max_jobs => 2").await;
    let_leases_expire(&s).await;
    assert_eq!(s.tick("reap_expired_leases").await, 2);
    s.get("update trax.work_queue set waits_for = null, run_at = queued_at")
        .await;
    let second = s.claim("max_jobs => 2").await;
    assert_eq!(second.len(), 2);
    // A cancel is requested, so that an acknowledgement with the right token would be accepted.
    s.get(&format!("select trax.cancel({})", second[1].id))
        .await;
    let before = s.everything().await;
    for stale in &first {
        let key = stale.key();
        assert_eq!(
            s.get(&format!("select trax.complete({key}, '1')")).await,
            "f"
        );
        assert_eq!(
            s.get(&format!("select trax.fail({key}, 'no')")).await,
            "lost"
        );
        assert_eq!(
            s.get(&format!("select trax.fail({key}, 'no', permanent => true)"))
                .await,
            "lost"
        );
        assert_eq!(s.get(&format!("select trax.release({key})")).await, "f");
        assert_eq!(
            s.get(&format!("select trax.acknowledge_cancel({key})"))
                .await,
            "f"
        );
        let many = format!(
            "select * from trax.complete_many(array[{}], array['{}'::uuid])",
            stale.id, stale.token
        );
        assert_eq!(s.get(&many).await, "");
        assert_eq!(s.get(&heartbeat(stale, "'9 h'")).await, "f|f|");
        // Another job's token is as invalid as an old one.
        let other = first
            .iter()
            .chain(&second)
            .find(|job| job.id != stale.id)
            .expect("two jobs");
        assert_eq!(
            s.get(&format!(
                "select trax.complete({}, '{}')",
                stale.id, other.token
            ))
            .await,
            "f"
        );
    }
    assert_eq!(s.everything().await, before);
    s.assert_healthy().await;
}

#[tokio::test]
async fn an_expired_lease_is_reaped_and_its_job_runs_again_at_once() {
    let (_db, s) = session().await;
    let id = s.enqueue("'a'").await;
    let job = s.claim_one("'gone'").await;
    assert_eq!(
        s.tick("reap_expired_leases").await,
        0,
        "a live lease is left alone"
    );
    let_leases_expire(&s).await;
    assert_eq!(s.tick("reap_expired_leases").await, 1);
    let run = "select job_id, attempt, state, failure_kind, final, worker, started_at is not null from trax.run";
    assert_eq!(
        s.get(run).await,
        format!("{id}|1|failed|lease_expired|f|gone|t")
    );
    let again = s.get("select job_id, attempt from trax.claim_next()").await;
    assert_eq!(
        again,
        format!("{id}|2"),
        "one lease plus one cycle, whatever the retry delay is"
    );
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "f",
        "the dead worker comes late"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_lease_that_expires_in_real_time_is_reaped() {
    let (_db, s) = session().await;
    s.enqueue("'a', max_retries => 0").await;
    s.claim_one("lease => '50 ms'").await;
    harness::eventually("the reaping", harness::PATIENCE, || async {
        match s.tick("reap_expired_leases").await {
            0 => Err(s
                .get("select lease_expires_at, clock_timestamp() from trax.lease")
                .await),
            _ => Ok(()),
        }
    })
    .await;
    assert_eq!(
        s.get("select state, failure_kind from trax.run").await,
        "failed|lease_expired"
    );
    assert_eq!(
        s.get("select reason, attempts from trax.dead_letter").await,
        "attempts spent|1"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_lease_that_a_heartbeat_extended_is_not_reaped() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("lease => '1 ms'").await;
    assert_eq!(s.get(&heartbeat(&job, "'2 h'")).await, "t|f|t");
    assert_eq!(s.tick("reap_expired_leases").await, 0);
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "t"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn every_expired_lease_of_a_dead_worker_is_reaped_in_one_cycle() {
    let (_db, s) = session().await;
    s.get("select count(*) from trax.enqueue_many('a', array_fill('{}'::jsonb, array[300]))")
        .await;
    s.claim("max_jobs => 200").await;
    let_leases_expire(&s).await;
    s.claim("max_jobs => 100").await;
    assert_eq!(s.tick("reap_expired_leases").await, 200);
    assert_eq!(s.number("select count(*) from trax.lease").await, 100);
    s.assert_healthy().await;
}

#[tokio::test]
async fn an_attempt_past_its_timeout_is_asked_to_stop_and_then_taken() {
    let (_db, s) = session().await;
    s.get("set trax.cancel_grace = '1 min'").await;
    let id = s.enqueue("'a', timeout => '5 min', max_retries => 1").await;
    let job = s.claim_one("lease => '1 day'").await;
    assert_eq!(s.tick("cancel_timed_out").await, 0);
    let_attempts_time_out(&s, "1 s").await;
    assert_eq!(s.tick("cancel_timed_out").await, 1);
    assert_eq!(
        s.get(&heartbeat(&job, "'2 h'")).await,
        "t|t|t",
        "the worker learns it from its heartbeat"
    );
    assert_eq!(
        s.number("select count(*) from trax.run").await,
        0,
        "within the grace it may end by itself"
    );
    let_attempts_time_out(&s, "61 s").await;
    assert_eq!(s.tick("reap_expired_leases").await, 1);
    let run = "select job_id, state, failure_kind, final from trax.run";
    assert_eq!(s.get(run).await, format!("{id}|failed|timeout|f"));
    assert_eq!(
        s.get("select attempts from trax.work_queue").await,
        "1",
        "it is retried"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_default_timeout_is_a_setting_of_the_database() {
    let (db, first) = session().await;
    first
        .get(&format!(
            "alter database {} set trax.default_timeout = '7 min'",
            db.name()
        ))
        .await;
    let s = Session::of(&db).await;
    s.enqueue("'a'").await;
    s.enqueue("'a', timeout => '3 min'").await;
    assert_eq!(
        s.get("select timeout from trax.claim_next(max_jobs => 2)")
            .await,
        "00:07:00\n00:03:00"
    );
    assert_eq!(
        s.get("select timeout_at - started_at from trax.lease order by job_id")
            .await,
        "00:07:00\n00:03:00"
    );
}

#[tokio::test]
async fn a_timed_out_attempt_that_acknowledges_ends_as_failed_and_is_retried() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    let_attempts_time_out(&s, "1 s").await;
    assert_eq!(s.tick("cancel_timed_out").await, 1);
    assert_eq!(
        s.get(&format!("select trax.acknowledge_cancel({})", job.key()))
            .await,
        "t"
    );
    assert_eq!(
        s.get("select state, failure_kind, final from trax.run")
            .await,
        "failed|timeout|f"
    );
    assert_eq!(
        s.get("select attempts, waits_for from trax.work_queue")
            .await,
        "1|time"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_timed_out_attempt_that_completes_in_its_grace_is_completed() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    let_attempts_time_out(&s, "1 s").await;
    s.tick("cancel_timed_out").await;
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "t"
    );
    assert_eq!(
        s.get("select state, final from trax.run").await,
        "completed|t"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn without_grace_a_timed_out_attempt_is_taken_in_the_same_cycle() {
    let (_db, s) = session().await;
    s.get("set trax.cancel_grace = 0").await;
    s.enqueue("'a', max_retries => 0").await;
    s.claim_one("").await;
    let_attempts_time_out(&s, "1 s").await;
    let steps = "select string_agg(affected::text, ',') from trax.tick()
                 where step in ('cancel_timed_out', 'reap_expired_leases')";
    assert_eq!(s.get(steps).await, "1,1");
    assert_eq!(s.get("select failure_kind from trax.run").await, "timeout");
    s.assert_healthy().await;
}

#[tokio::test]
async fn an_attempt_that_is_asked_late_to_stop_has_its_whole_grace() {
    let (_db, s) = session().await;
    s.get("set trax.cancel_grace = '1 min'").await;
    s.enqueue("'a'").await;
    let job = s.claim_one("lease => '1 day'").await;
    let_attempts_time_out(&s, "1 h").await;
    let steps = "select string_agg(affected::text, ',') from trax.tick()
                 where step in ('cancel_timed_out', 'reap_expired_leases')";
    assert_eq!(s.get(steps).await, "1,0");
    assert_eq!(s.get(&heartbeat(&job, "'2 h'")).await, "t|t|t");
    let_attempts_time_out(&s, "61 s").await;
    assert_eq!(s.get(steps).await, "0,1");
    s.assert_healthy().await;
}

#[tokio::test]
async fn leases_whose_manifest_is_held_hide_no_others() {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h', overlap => 'allow', max_concurrency => 2000);
           select count(trax.trigger('m')) from generate_series(1, 1000)")
        .await;
    assert_eq!(s.claim("max_jobs => 1000").await.len(), 1000);
    let free = s.enqueue("'b'").await;
    s.claim_one("").await;
    let holder = Session::of(&db).await;
    holder
        .get("begin; select from trax.manifest_state for update")
        .await;
    s.get(&format!(
        "update trax.lease set lease_expires_at = now() - interval '2 s' where job_id <> {free};
         update trax.lease set lease_expires_at = now() - interval '1 s' where job_id = {free}"
    ))
    .await;
    assert_eq!(s.tick("reap_expired_leases").await, 1);
    let ended = "select string_agg(job_id::text, ' ') from trax.run";
    assert_eq!(s.get(ended).await, free.to_string());
    s.assert_healthy().await;
    holder.get("commit").await;
    eventually("the end of the others", PATIENCE, async || {
        s.tick("reap_expired_leases").await;
        match s.number("select count(*) from trax.run").await {
            1001 => Ok(()),
            seen => Err(seen.to_string()),
        }
    })
    .await;
    s.assert_healthy().await;
}
