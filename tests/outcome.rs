//! Outcomes: completion, failure and retry, release, cancellation.

use harness::session::{Session, session};

/// How long after its last failure the waiting job may run again, in seconds.
const RETRY_SECONDS: &str = "select extract(epoch from q.run_at - r.finished_at)
    from trax.work_queue q join trax.run r on r.job_id = q.job_id
    order by r.attempt desc limit 1";

async fn promote(s: &Session) {
    s.get("update trax.work_queue set run_at = now() - interval '1 s'")
        .await;
    s.tick("promote_delayed").await;
}

#[tokio::test]
async fn a_completion_is_recorded_with_all_that_was_known() {
    let (_db, s) = session().await;
    let id = s
        .enqueue("'a', '{\"x\": 1}', group_name => 'g', priority => 4")
        .await;
    let job = s.claim_one("'w'").await;
    assert_eq!(
        s.get(&format!(
            "select trax.complete({}, '{{\"y\": 2}}')",
            job.key()
        ))
        .await,
        "t"
    );
    let run = "select job_id, attempt, state, failure_kind, task, input, output, manifest, group_name, worker,
                   scheduled_for, error, detail, final, queued_at <= started_at, started_at <= finished_at
               from trax.run";
    assert_eq!(
        s.get(run).await,
        format!("{id}|1|completed||a|{{\"x\": 1}}|{{\"y\": 2}}||g|w||||t|t|t")
    );
    let tables = "select (select count(*) from trax.work_queue), (select count(*) from trax.lease),
                      (select count(*) from trax.dead_letter)";
    assert_eq!(s.get(tables).await, "0|0|0");
    assert_eq!(
        s.get("select state, attempt, output, priority from trax.job")
            .await,
        "completed|1|{\"y\": 2}|4"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_second_completion_is_refused_and_changes_nothing() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    assert_eq!(
        s.get(&format!("select trax.complete({}, '1')", job.key()))
            .await,
        "t"
    );
    let before = s.everything().await;
    assert_eq!(
        s.get(&format!("select trax.complete({}, '2')", job.key()))
            .await,
        "f"
    );
    assert_eq!(
        s.get(&format!("select trax.fail({}, 'no')", job.key()))
            .await,
        "lost"
    );
    assert_eq!(s.everything().await, before);
}

#[tokio::test]
async fn a_completion_that_rolls_back_never_was() {
    let (_db, s) = session().await;
    s.get("create table effect (n int)").await;
    s.enqueue("'a', unique_key => 'k'").await;
    let job = s.claim_one("").await;
    let before = s.everything().await;
    s.get("begin; insert into effect values (1)").await;
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "t"
    );
    s.get("rollback").await;
    assert_eq!(s.everything().await, before);
    s.get("begin; insert into effect values (2)").await;
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "t"
    );
    s.get("commit").await;
    assert_eq!(
        s.get("select n from effect").await,
        "2",
        "the effect is there exactly once"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_handler_enqueues_the_next_step_in_the_transaction_that_completes() {
    let (_db, s) = session().await;
    s.enqueue("'one'").await;
    let job = s.claim_one("").await;
    s.get(&format!(
        "begin; select trax.complete({}); select trax.enqueue('two'); commit",
        job.key()
    ))
    .await;
    assert_eq!(
        s.get("select task, state from trax.job order by job_id")
            .await,
        "one|completed\ntwo|queued"
    );
}

#[tokio::test]
async fn complete_many_records_live_tokens_and_leaves_stale_ones() {
    let (_db, s) = session().await;
    for n in 0..5 {
        s.enqueue(&format!("'a', '{n}', unique_key => 'k{n}'"))
            .await;
    }
    let j = s.claim("max_jobs => 5").await;
    s.get(&format!(
        "select trax.complete({}, '\"early\"')",
        j[1].key()
    ))
    .await;
    // In disorder; the second is done, the fourth has the fifth's token, the first is named twice, the fifth is left out.
    let sql = format!(
        "select string_agg(c::text, ',' order by c) from trax.complete_many(
             array[{}, {}, {}, {}, {}], array['{}', '{}', '{}', '{}', '{}']::uuid[],
             array['\"three\"', '\"two\"', null, '\"four\"', null]::jsonb[]) c",
        j[2].id,
        j[1].id,
        j[0].id,
        j[3].id,
        j[0].id,
        j[2].token,
        j[1].token,
        j[0].token,
        j[4].token,
        j[0].token
    );
    assert_eq!(s.get(&sql).await, format!("{},{}", j[0].id, j[2].id));
    let runs = "select input, output, state from trax.run order by input";
    assert_eq!(
        s.get(runs).await,
        "0||completed\n1|\"early\"|completed\n2|\"three\"|completed"
    );
    assert_eq!(
        s.get("select string_agg(key, ',' order by key) from trax.unique_key")
            .await,
        "k3,k4"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn complete_many_without_outputs_stores_none() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    let sql = format!(
        "select * from trax.complete_many(array[{}], array['{}'::uuid])",
        job.id, job.token
    );
    assert_eq!(s.get(&sql).await, job.id.to_string());
    assert_eq!(s.get("select output is null from trax.run").await, "t");
    assert_eq!(
        s.get("select * from trax.complete_many('{}', '{}')").await,
        ""
    );
}

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
        // Jitter takes away a tenth at most.
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
async fn a_release_spends_no_attempt() {
    let (_db, s) = session().await;
    let id = s
        .enqueue(
            "'a', '[1]', group_name => 'g', priority => 3, max_retries => 0, timeout => '1 min',
        unique_key => 'k', concurrency_key => 'c', trace => '9'",
        )
        .await;
    let waiting = "select to_jsonb(q) - 'run_at' from trax.work_queue q";
    let before = s.get(waiting).await;
    for _ in 0..3 {
        let job = s.claim_one("").await;
        assert_eq!(
            s.get(&format!("select trax.release({})", job.key())).await,
            "t"
        );
        assert_eq!(s.get(waiting).await, before, "it waits as it did");
    }
    assert_eq!(
        s.get("select job_id, attempt from trax.claim_next()").await,
        format!("{id}|1")
    );
    assert_eq!(s.number("select count(*) from trax.run").await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_release_may_say_when_the_job_is_claimable_again() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    assert_eq!(
        s.get(&format!(
            "select trax.release({}, delay => '1 h')",
            job.key()
        ))
        .await,
        "t"
    );
    assert!(s.claim("").await.is_empty());
    let sql = "select attempts, waits_for, run_at between now() + interval '59 min' and now() + interval '61 min'
               from trax.work_queue";
    assert_eq!(s.get(sql).await, "0|time|t");
    promote(&s).await;
    assert_eq!(s.claim("").await.len(), 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn an_old_job_that_was_released_is_claimed_before_younger_ones() {
    let (_db, s) = session().await;
    let old = s.enqueue("'a'").await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.release({})", job.key())).await;
    assert_eq!(s.claim_ids("").await, [old]);
}

#[tokio::test]
async fn cancel_says_where_the_job_was() {
    let (_db, s) = session().await;
    let id = s.enqueue("'a'").await;
    let cancel = format!("select trax.cancel({id})");
    assert_eq!(s.get("select trax.cancel(999999)").await, "unknown");
    assert_eq!(s.get(&cancel).await, "cancelled");
    let run =
        "select job_id, attempt, state, failure_kind, final, started_at, worker from trax.run";
    assert_eq!(s.get(run).await, format!("{id}|0|cancelled||t||"));
    assert_eq!(s.get("select count(*) from trax.dead_letter").await, "0");
    assert!(s.claim("").await.is_empty());
    let before = s.everything().await;
    assert_eq!(s.get(&cancel).await, "finished");
    assert_eq!(s.everything().await, before);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_delayed_job_and_a_retry_can_be_cancelled() {
    let (_db, s) = session().await;
    let delayed = s.enqueue("'a', run_at => now() + interval '1 h'").await;
    let retried = s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.fail({}, 'no')", job.key()))
        .await;
    assert_eq!(
        s.get(&format!(
            "select trax.cancel({delayed}), trax.cancel({retried})"
        ))
        .await,
        "cancelled|cancelled"
    );
    let jobs = s
        .get("select job_id, state, attempt from trax.job order by job_id")
        .await;
    assert_eq!(
        jobs,
        format!("{delayed}|cancelled|0\n{retried}|cancelled|1")
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_running_job_is_asked_to_stop_and_acknowledges() {
    let (_db, s) = session().await;
    let id = s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    let acknowledge = format!("select trax.acknowledge_cancel({})", job.key());
    let before = s.everything().await;
    assert_eq!(s.get(&acknowledge).await, "f", "nobody asked");
    assert_eq!(s.everything().await, before);
    assert_eq!(
        s.get(&format!("select trax.cancel({id})")).await,
        "requested"
    );
    assert_eq!(
        s.get(&format!("select trax.cancel({id})")).await,
        "requested"
    );
    assert_eq!(
        s.get("select cancel_requested, timed_out from trax.lease")
            .await,
        "t|f"
    );
    assert_eq!(s.get(&acknowledge).await, "t");
    assert_eq!(
        s.get("select state, failure_kind, final, attempt from trax.run")
            .await,
        "cancelled||t|1"
    );
    assert_eq!(s.get(&acknowledge).await, "f");
    assert_eq!(s.get("select count(*) from trax.dead_letter").await, "0");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cancelled_job_that_fails_is_neither_retried_nor_a_dead_letter() {
    let (_db, s) = session().await;
    for arguments in ["", ", permanent => true", ", retry_in => '1 s'"] {
        s.enqueue("'a'").await;
        let job = s.claim_one("").await;
        s.get(&format!("select trax.cancel({})", job.id)).await;
        assert_eq!(
            s.get(&format!(
                "select trax.fail({}, 'stopped'{arguments})",
                job.key()
            ))
            .await,
            "dead"
        );
    }
    assert_eq!(
        s.get("select distinct state, error, final from trax.run")
            .await,
        "cancelled|stopped|t"
    );
    let left =
        "select (select count(*) from trax.work_queue), (select count(*) from trax.dead_letter)";
    assert_eq!(s.get(left).await, "0|0");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cancelled_job_that_was_done_anyway_is_completed() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.cancel({})", job.id)).await;
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "t"
    );
    assert_eq!(s.get("select state from trax.job").await, "completed");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cancelled_job_whose_worker_is_gone_ends_as_cancelled() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.cancel({})", job.id)).await;
    s.get("update trax.lease set lease_expires_at = now() - interval '1 s', reap_at = now() - interval '1 s'").await;
    assert_eq!(s.tick("reap_expired_leases").await, 1);
    assert_eq!(
        s.get("select state, final from trax.run").await,
        "cancelled|t"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cancelled_job_that_times_out_meanwhile_stays_cancelled() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    assert_eq!(
        s.get(&format!("select trax.cancel({})", job.id)).await,
        "requested"
    );
    s.get("update trax.lease set timeout_at = now() - interval '1 s', reap_at = now() - interval '1 s'").await;
    s.tick("cancel_timed_out").await;
    assert_eq!(
        s.get(&format!("select trax.acknowledge_cancel({})", job.key()))
            .await,
        "t"
    );
    assert_eq!(
        s.get("select state, final from trax.run").await,
        "cancelled|t"
    );
    assert_eq!(
        s.number("select count(*) from trax.work_queue").await,
        0,
        "a cancelled job is not retried"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_timed_out_job_that_is_cancelled_afterwards_is_cancelled() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    s.get("update trax.lease set timeout_at = now() - interval '1 s', reap_at = now() - interval '1 s'").await;
    s.tick("cancel_timed_out").await;
    assert_eq!(
        s.get(&format!("select trax.cancel({})", job.id)).await,
        "requested"
    );
    assert_eq!(
        s.get(&format!("select trax.acknowledge_cancel({})", job.key()))
            .await,
        "t"
    );
    assert_eq!(
        s.get("select state, final from trax.run").await,
        "cancelled|t"
    );
    assert_eq!(
        s.number("select count(*) from trax.work_queue").await,
        0,
        "a cancelled job is not retried"
    );
    s.assert_healthy().await;
}

/// Calls one statement again and again with its jobs in this order; gives what it must not see.
async fn keep_calling(s: Session, sql: String, rounds: usize) -> Vec<String> {
    let mut refusals = Vec::new();
    for _ in 0..rounds {
        if let Err(refusal) = s.attempt(&format!("{sql}; rollback")).await {
            refusals.push(refusal.to_string());
            s.get("rollback").await;
        }
    }
    refusals
}

#[tokio::test]
async fn calls_that_name_the_same_jobs_in_opposite_order_do_not_deadlock() {
    let (db, s) = session().await;
    s.get("select count(*) from trax.enqueue_many('a', array_fill('{}'::jsonb, array[300]))")
        .await;
    s.claim("max_jobs => 300, lease => '1 h'").await;
    let arrays = |order: &str| {
        format!(
            "(select array_agg(job_id order by job_id {order}) from trax.lease),
             (select array_agg(token order by job_id {order}) from trax.lease)"
        )
    };
    let (up, down) = (arrays("asc"), arrays("desc"));
    let mut callers = Vec::new();
    for sql in [
        format!("begin; select count(*) from trax.complete_many({up})"),
        format!("begin; select count(*) from trax.complete_many({down})"),
        format!("begin; select count(*) from trax.heartbeat({up})"),
        format!("begin; select count(*) from trax.heartbeat({down})"),
    ] {
        callers.push(tokio::spawn(keep_calling(Session::of(&db).await, sql, 40)));
    }
    for caller in callers {
        assert_eq!(
            caller.await.expect("the caller lives"),
            Vec::<String>::new()
        );
    }
    s.assert_healthy().await;
}
