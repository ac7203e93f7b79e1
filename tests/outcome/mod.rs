//! Outcomes: completion, failure and retry, release, cancellation.

mod cancel;
mod retry;
mod snapshot;

use harness::session::{Session, session};

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
async fn a_completion_says_what_was_left_out_of_its_output() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    let complete = |detail: &str| {
        let key = job.key();
        format!("select trax.complete({key}, detail => {detail})")
    };
    let large = "to_jsonb(repeat('x', 2000000))";
    assert_eq!(s.refusal(&complete(large)).await.code, "54000");
    let detail = "'{\"output\": \"left out\"}'";
    assert_eq!(s.get(&complete(detail)).await, "t");
    let run = "select state, output is null, detail ->> 'output' from trax.run";
    assert_eq!(s.get(run).await, "completed|t|left out");
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
    // Out of order; the second is done, the fourth has the fifth's token, the first is listed
    // twice, and the fifth is left out.
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
async fn complete_many_finds_its_leases_whatever_stands_between_them() {
    let (_db, s) = session().await;
    s.get("select count(*) from trax.enqueue_many('a', array_fill('{}'::jsonb, array[300]))")
        .await;
    // Leases in the order of jobs, with gaps: some jobs wait, and some have ended.
    s.get("select trax.cancel(job_id) from trax.work_queue where job_id % 17 = 0")
        .await;
    s.get("select count(*) from trax.claim_next(max_jobs => 280)")
        .await;
    s.get("select trax.complete(job_id, token) from trax.lease where job_id % 5 = 0")
        .await;
    for seed in ["0.1", "0.5", "0.9"] {
        // In any order: valid tokens, some of them twice, invalid ones, and jobs without a lease.
        s.get(&format!("select setseed({seed})")).await;
        s.get(
            "create temp table asked as
             select job_id, case when random() < 0.1 then gen_random_uuid() else token end as token
             from (select job_id, token from trax.lease where random() < 0.5
                   union all select job_id, token from trax.lease where random() < 0.1
                   union all select job_id, gen_random_uuid() from trax.work_queue
                   union all select job_id, gen_random_uuid() from trax.run
                   union all select unnest('{-9223372036854775808, 0, 9223372036854775807}'::bigint[]),
                                    gen_random_uuid()) asked
             order by random()",
        )
        .await;
        let expected = s
            .get("select count(*), sum(job_id) from trax.lease where (job_id, token) in (select job_id, token from asked)")
            .await;
        let left = s
            .get("select sum(job_id) from trax.lease where (job_id, token) not in (select job_id, token from asked)")
            .await;
        assert_ne!(expected, "0|");
        assert_eq!(
            s.get(
                "select count(*), sum(job_id) from trax.complete_many(
                     (select array_agg(job_id) from asked), (select array_agg(token) from asked)) job_id",
            )
            .await,
            expected
        );
        assert_eq!(s.get("select sum(job_id) from trax.lease").await, left);
        s.get("drop table asked").await;
    }
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

/// Calls a statement repeatedly with its jobs in this order; returns any forbidden errors.
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
