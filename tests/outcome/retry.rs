//! Failure: a retry or a dead letter, and its time.

use super::promote;
use harness::session::{Session, session};
use harness::shared_server;

/// The delay from the last failure of the waiting job to its next run, in seconds.
const RETRY_SECONDS: &str = "select extract(epoch from q.run_at - r.finished_at)
    from trax.work_queue q join trax.run r on r.job_id = q.job_id
    order by r.attempt desc limit 1";

#[tokio::test]
async fn a_failure_is_recorded_and_retried() {
    let (_db, s) = session().await;
    let id = s.enqueue("'a'").await;
    let job = s.claim_one("'w'").await;
    let said = s
        .get(&format!(
            "select trax.fail({}, 'broken', detail => '{{\"at\": 3}}')",
            job.key()
        ))
        .await;
    assert_eq!(said, "retrying");
    let run =
        "select job_id, attempt, state, failure_kind, error, detail, final, worker from trax.run";
    assert_eq!(
        s.get(run).await,
        format!("{id}|1|failed|error|broken|{{\"at\": 3}}|f|w")
    );
    assert_eq!(
        s.get("select job_id, attempts, waits_for from trax.work_queue")
            .await,
        format!("{id}|1|time")
    );
    assert_eq!(
        s.get("select state, attempt, error from trax.job").await,
        "queued|1|broken"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_default_is_that_of_the_session_that_reports_the_failure() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    for own in [&s, &other] {
        own.get("set trax.default_max_retries = 0").await;
        s.enqueue("'a'").await;
        let job = s.claim_one("").await;
        let fail = format!("select trax.fail({}, 'no')", job.key());
        let (reporter, said) = match std::ptr::eq(own, &s) {
            true => (&other, "retrying"),
            false => (&s, "dead"),
        };
        assert_eq!(reporter.get(&fail).await, said);
        s.get("select trax.cancel(job_id) from trax.work_queue")
            .await;
    }
}

#[tokio::test]
async fn with_fewer_retries_than_it_has_had_the_next_attempt_is_the_last() {
    let (_db, s) = session().await;
    let job = s.enqueue("'a', max_retries => 5").await;
    let claim = "select attempt, max_attempts from trax.claim_next()";
    for attempt in 1..=2 {
        assert_eq!(s.get(claim).await, format!("{attempt}|6"));
        s.get("select trax.fail(job_id, token, 'no', retry_in => '0') from trax.lease")
            .await;
    }
    s.get(&format!("select trax.change_job({job}, max_retries => 0)"))
        .await;
    assert_eq!(s.get(claim).await, "3|3");
    let fail = "select trax.fail(job_id, token, 'no') from trax.lease";
    assert_eq!(s.get(fail).await, "dead");
}

#[tokio::test]
async fn a_job_has_its_own_delay_and_knows_its_last_attempt() {
    let (_db, s) = session().await;
    s.get("set trax.retry_backoff = 2; set trax.default_max_retries = 2")
        .await;
    let queued = "'a', retry_delay => '40 s'";
    s.enqueue(queued).await;
    s.enqueue(&format!("{queued}, max_retries => 1, group_name => 'b'"))
        .await;
    for (group, attempts) in [("default", 3), ("b", 2)] {
        for attempt in 1..=attempts {
            let waits = format!("from trax.work_queue where group_name = '{group}'");
            let queued_at = s.get(&format!("select queued_at {waits}")).await;
            let claim = format!(
                "select attempt, max_attempts, queued_at from trax.claim_next(groups => '{{{group}}}')"
            );
            assert_eq!(
                s.get(&claim).await,
                format!("{attempt}|{attempts}|{queued_at}")
            );
            let end = if attempt == attempts {
                "dead"
            } else {
                "retrying"
            };
            let fail = "select trax.fail(job_id, token, 'no') from trax.lease";
            assert_eq!(s.get(fail).await, end);
            if attempt < attempts {
                let delay: f64 = s
                    .get(&format!(
                        "select extract(epoch from max(q.run_at) - max(r.finished_at))
                         from trax.work_queue q join trax.run r using (job_id) where q.group_name = '{group}'"
                    ))
                    .await
                    .parse()
                    .expect("a number");
                let expected = 40.0 * f64::from(1 << (attempt - 1));
                assert!(
                    delay <= expected && delay >= expected * 0.9,
                    "{delay} is not within a tenth below {expected}"
                );
                promote(&s).await;
            }
        }
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn retries_wait_longer_each_time_up_to_the_cap() {
    let (_db, s) = session().await;
    s.get("set trax.retry_delay = '100 s'; set trax.retry_backoff = 3; set trax.retry_delay_max = '500 s'").await;
    s.enqueue("'a', max_retries => 10").await;
    for expected in [100.0, 300.0, 500.0, 500.0] {
        let job = s.claim_one("").await;
        assert_eq!(
            s.get(&format!("select trax.fail({}, 'no')", job.key()))
                .await,
            "retrying"
        );
        let delay: f64 = s.get(RETRY_SECONDS).await.parse().expect("a number");
        // Jitter subtracts at most a tenth.
        assert!(
            delay <= expected && delay >= expected * 0.9,
            "{delay} is not within a tenth below {expected}"
        );
        promote(&s).await;
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_default_delay_is_five_minutes_and_the_default_retries_are_three() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    for attempt in 1..=4 {
        let job = s.claim_one("").await;
        let said = s
            .get(&format!("select trax.fail({}, 'no')", job.key()))
            .await;
        assert_eq!(said, if attempt < 4 { "retrying" } else { "dead" });
        if attempt == 1 {
            let delay: f64 = s.get(RETRY_SECONDS).await.parse().expect("a number");
            assert!((270.0..=300.0).contains(&delay), "{delay}");
        }
        promote(&s).await;
    }
    assert_eq!(
        s.get("select attempt, final from trax.run order by attempt")
            .await,
        "1|f\n2|f\n3|f\n4|t"
    );
    assert_eq!(
        s.get("select status, attempts, last_error from trax.dead_letter")
            .await,
        "awaiting_intervention|4|no"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_without_retries_is_dead_after_its_first_failure() {
    let (_db, s) = session().await;
    let id = s.enqueue("'a', '[7]', max_retries => 0").await;
    let job = s.claim_one("").await;
    assert_eq!(
        s.get(&format!("select trax.fail({}, 'no')", job.key()))
            .await,
        "dead"
    );
    let dead = "select job_id, task, status, reason, attempts, last_error, manifest, input, created_at is not null,
                    resolved_at, resolution_note, requeued_job_id
                from trax.dead_letter";
    assert_eq!(
        s.get(dead).await,
        format!("{id}|a|awaiting_intervention|attempts spent|1|no||[7]|t|||")
    );
    assert_eq!(
        s.get("select state, error from trax.job").await,
        "failed|no"
    );
    assert!(s.claim("").await.is_empty());
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_permanent_failure_is_not_retried() {
    let (_db, s) = session().await;
    s.enqueue("'a', max_retries => 9").await;
    let job = s.claim_one("").await;
    let sql = format!(
        "select trax.fail({}, 'never', permanent => true, retry_in => '1 s')",
        job.key()
    );
    assert_eq!(s.get(&sql).await, "dead");
    assert_eq!(
        s.get("select reason, attempts from trax.dead_letter").await,
        "failed permanently|1"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_worker_may_say_when_the_retry_is() {
    let (_db, s) = session().await;
    s.enqueue("'a', max_retries => 2").await;
    let job = s.claim_one("").await;
    assert_eq!(
        s.get(&format!(
            "select trax.fail({}, 'no', retry_in => '3 days')",
            job.key()
        ))
        .await,
        "retrying"
    );
    assert_eq!(
        s.get(RETRY_SECONDS).await.parse::<f64>().expect("a number"),
        259_200.0
    );
    promote(&s).await;
    let job = s.claim_one("").await;
    assert_eq!(
        s.get(&format!(
            "select trax.fail({}, 'no', retry_in => '0')",
            job.key()
        ))
        .await,
        "retrying"
    );
    let job = s.claim_one("").await;
    let last = format!("select trax.fail({}, 'no', retry_in => '0')", job.key());
    assert_eq!(
        s.get(&last).await,
        "dead",
        "a wish for a retry makes no more attempts"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn an_error_text_is_cut_at_64_kib() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    s.get(&format!(
        "select trax.fail({}, repeat('é', 100000))",
        job.key()
    ))
    .await;
    assert_eq!(
        s.get("select octet_length(error), error ~ '^é+$' from trax.run")
            .await,
        "65536|t"
    );
}

#[tokio::test]
async fn a_job_with_the_longest_timeout_is_retried_and_released() {
    let (_db, s) = session().await;
    // The longest allowed timeout: ten years with leap days.
    s.enqueue("'a', timeout => '3660 days'").await;
    let job = s.claim_one("").await;
    let fail = format!("select trax.fail({}, 'x', retry_in => '0')", job.key());
    assert_eq!(s.get(&fail).await, "retrying");
    let job = s.claim_one("").await;
    let release = format!("select trax.release({})", job.key());
    assert_eq!(s.get(&release).await, "t");
    s.get("select trax.schedule('m', 'a', every => '3660 days', timeout => '3660 days')")
        .await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_retry_that_a_clock_ahead_of_now_decided_comes_after_its_delay_from_now() {
    let (db, s) = session().await;
    for delay in ["10 min", "3 days"] {
        s.enqueue("'a'").await;
        let job = s.claim_one("").await;
        let fail = format!(
            "select trax.fail({}, 'no', retry_in => '{delay}')",
            job.key()
        );
        assert_eq!(s.get(&fail).await, "retrying");
    }
    let later = s
        .enqueue("'a', run_at => now() + interval '500 days'")
        .await;
    // The effect of a failure while the clock is 400 days ahead.
    s.get(&format!(
        "update trax.run set finished_at = finished_at + interval '400 days';
         update trax.work_queue set run_at = run_at + interval '400 days' where job_id <> {later}"
    ))
    .await;
    let days = "select string_agg((extract(epoch from run_at - now()) / 86400)::numeric(9, 2)::text, ' ' order by job_id) from trax.work_queue";
    assert_eq!(s.get(days).await, "400.01 403.00 500.00");
    for _ in 0..2 {
        Session::of(&db)
            .await
            .get("select * from trax.tick()")
            .await;
        assert_eq!(s.get(days).await, "0.01 3.00 500.00");
    }
    let log = std::fs::read_to_string(shared_server().log_file()).expect("the log can be read");
    assert!(log.contains("2 retries were due too far ahead"));
}
