//! Claiming: order, filters, no job twice, no job hidden.

mod aging;
mod complete_and_claim;
mod enough;
mod lane;
mod version;

use harness::session::{Claimed, Session, session};
use std::collections::BTreeSet;

#[tokio::test]
async fn claim_next_without_arguments_takes_the_oldest_job() {
    let (_db, s) = session().await;
    let first = s.enqueue("'a'").await;
    s.enqueue("'b'").await;
    assert_eq!(s.claim_ids("").await, [first]);
    let lease =
        "select worker like '%:' || pg_backend_pid(), attempt, lease_expires_at - started_at,
                     timeout_at - started_at, cancel_requested
                 from trax.lease";
    assert_eq!(s.get(lease).await, "t|1|00:00:30|00:20:00|f");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_claim_of_nothing_gives_no_rows() {
    let (_db, s) = session().await;
    let before = s.everything().await;
    assert!(s.claim("").await.is_empty());
    assert!(
        s.claim("'w', 1000, array['a'], array['g'], '5 s'")
            .await
            .is_empty()
    );
    assert_eq!(s.everything().await, before);
}

#[tokio::test]
async fn a_claim_gives_all_that_a_worker_needs() {
    let (_db, s) = session().await;
    let id = s
        .enqueue("'a', '{\"x\": 1}', group_name => 'g', trace => '{\"t\": 2}'")
        .await;
    let sql = "select job_id, attempt, task, input, manifest, group_name, scheduled_for, timeout, trace,
                   lease_expires_at between clock_timestamp() + '55 s' and clock_timestamp() + '60 s'
               from trax.claim_next(worker => 'me', lease => '1 min')";
    let seen = s.get(sql).await;
    assert_eq!(
        seen,
        format!("{id}|1|a|{{\"x\": 1}}||g||00:20:00|{{\"t\": 2}}|t")
    );
    assert_eq!(
        s.get("select worker, state from trax.job").await,
        "me|in_progress"
    );
}

#[tokio::test]
async fn the_order_is_group_priority_then_own_priority_then_age() {
    let (_db, s) = session().await;
    s.get(
        "select trax.configure_group('high', priority => 20);
         select trax.configure_group('low', priority => 1);
         select trax.configure_group('low2', priority => 1)",
    )
    .await;
    // Groups, tasks and priorities are interleaved, so that no lane is in order by chance.
    s.get(
        "select count(trax.enqueue('t' || n % 3, to_jsonb(n), group_name => g, priority => (n * 7) % 4))
         from generate_series(1, 20) n, unnest(array['low', 'high', 'default', 'low2']) g",
    )
    .await;
    let expected = s
        .get(
            "select string_agg(q.job_id::text, ',' order by coalesce(g.priority, 0) desc, q.priority desc, q.job_id)
             from trax.work_queue q left join trax.manifest_group g on g.name = q.group_name",
        )
        .await;
    let mut claimed = Vec::new();
    for max_jobs in [1, 7, 1, 30, 1000] {
        let ids = s.claim_ids(&format!("max_jobs => {max_jobs}")).await;
        claimed.extend(ids.iter().map(ToString::to_string));
    }
    assert_eq!(claimed.join(","), expected);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_changed_group_priority_counts_at_once_for_what_waits() {
    let (_db, s) = session().await;
    let old = s.enqueue("'a', group_name => 'x', priority => 31").await;
    let young = s.enqueue("'a', group_name => 'y'").await;
    s.get("select trax.configure_group('y', priority => 5)")
        .await;
    assert_eq!(s.claim_ids("").await, [young]);
    let younger = s.enqueue("'a', group_name => 'y'").await;
    s.get("select trax.configure_group('y', priority => 0)")
        .await;
    assert_eq!(s.claim_ids("max_jobs => 2").await, [old, younger]);
}

#[tokio::test]
async fn a_claim_takes_only_the_tasks_and_groups_it_names() {
    let (_db, s) = session().await;
    s.get(
        "select count(trax.enqueue(t, group_name => g)) from unnest(array['a', 'b', 'c']) t, unnest(array['x', 'y', 'z']) g",
    )
    .await;
    let claimed = |arguments: &'static str| {
        let s = &s;
        async move {
            let sql = format!(
                "select string_agg(group_name || task, ',' order by group_name, task)
                 from trax.claim_next(max_jobs => 100, {arguments})"
            );
            s.get(&sql).await
        }
    };
    assert_eq!(claimed("tasks => array['nothing']").await, "");
    assert_eq!(
        claimed("tasks => array['a', 'b', 'a'], groups => array['x']").await,
        "xa,xb"
    );
    assert_eq!(claimed("groups => array['z', 'x']").await, "xc,za,zb,zc");
    assert_eq!(claimed("tasks => array['b', 'a']").await, "ya,yb");
    assert_eq!(claimed("worker => null").await, "yc");
}

#[tokio::test]
async fn a_claim_takes_up_to_a_thousand_jobs() {
    let (_db, s) = session().await;
    s.get("select count(*) from trax.enqueue_many('a', array_fill('{}'::jsonb, array[1001]))")
        .await;
    assert_eq!(s.claim_ids("max_jobs => 1000").await.len(), 1000);
    assert_eq!(s.claim_ids("max_jobs => 1").await.len(), 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn tokens_are_random_and_never_the_same() {
    let (_db, s) = session().await;
    s.get("select count(*) from trax.enqueue_many('a', array_fill('{}'::jsonb, array[1000]))")
        .await;
    let tokens: BTreeSet<String> = s
        .claim("max_jobs => 1000")
        .await
        .into_iter()
        .map(|job| job.token)
        .collect();
    assert_eq!(tokens.len(), 1000);
    let random = |token: &&String| token.as_bytes()[14] == b'4';
    assert_eq!(tokens.iter().filter(random).count(), 1000, "version 4");
}

#[tokio::test]
async fn two_open_transactions_claim_different_jobs() {
    let (db, a) = session().await;
    let b = Session::of(&db).await;
    b.get("set lock_timeout = '30 s'").await;
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(a.enqueue("'a'").await);
    }
    a.get("begin").await;
    b.get("begin").await;
    assert_eq!(a.claim_ids("max_jobs => 2").await, ids[..2]);
    assert_eq!(b.claim_ids("max_jobs => 2").await, ids[2..4]);
    assert_eq!(a.claim_ids("max_jobs => 9").await, ids[4..]);
    assert!(b.claim_ids("max_jobs => 9").await.is_empty());
    a.get("rollback").await;
    b.get("commit").await;
    assert_eq!(
        b.claim_ids("max_jobs => 9").await,
        [&ids[..2], &ids[4..]].concat()
    );
    b.assert_healthy().await;
}

#[tokio::test]
async fn a_claim_hides_no_job_that_it_does_not_take() {
    let (db, a) = session().await;
    let b = Session::of(&db).await;
    b.get("set lock_timeout = '30 s'").await;
    let one = a.enqueue("'a', group_name => 'x'").await;
    let two = a.enqueue("'a', group_name => 'y'").await;
    let three = a.enqueue("'b', group_name => 'x'").await;
    a.get("begin").await;
    assert_eq!(a.claim_ids("max_jobs => 1").await, [one]);
    assert_eq!(b.claim_ids("max_jobs => 1").await, [two]);
    assert_eq!(b.claim_ids("max_jobs => 1").await, [three]);
    a.get("commit").await;
    b.assert_healthy().await;
}

#[tokio::test]
async fn a_claim_that_rolls_back_leaves_the_job_as_it_was() {
    let (_db, s) = session().await;
    let id = s.enqueue("'a', unique_key => 'k'").await;
    let before = s.everything().await;
    s.get("begin").await;
    assert_eq!(s.claim_ids("").await, [id]);
    s.get("rollback").await;
    assert_eq!(s.everything().await, before);
}

#[tokio::test]
async fn a_job_is_claimed_and_completed_in_one_transaction() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    s.get("begin").await;
    let job = s.claim_one("").await;
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "t"
    );
    s.get("commit").await;
    assert_eq!(s.get("select state from trax.job").await, "completed");
    s.assert_healthy().await;
}

/// Claims and completes until nothing is left; returns the number of claimed jobs.
async fn drain(s: &Session, max_jobs: usize) -> usize {
    let mut claimed = 0;
    loop {
        let jobs: Vec<Claimed> = s.claim(&format!("max_jobs => {max_jobs}")).await;
        if jobs.is_empty() {
            return claimed;
        }
        claimed += jobs.len();
        let ids: Vec<String> = jobs.iter().map(|job| job.id.to_string()).collect();
        let tokens: Vec<&str> = jobs.iter().map(|job| job.token.as_str()).collect();
        let done = s
            .number(&format!(
                "select count(*) from trax.complete_many('{{{}}}', '{{{}}}')",
                ids.join(","),
                tokens.join(",")
            ))
            .await;
        assert_eq!(done as usize, jobs.len(), "a live lease is never lost");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_claimers_complete_twenty_thousand_jobs_exactly_once() {
    const JOBS: i64 = 20_000;
    let (db, s) = session().await;
    s.get(&format!(
        "select count(trax.enqueue('t' || n % 5, to_jsonb(n), group_name => 'g' || n % 3, priority => n % 4))
         from generate_series(1, {JOBS}) n"
    ))
    .await;
    let mut claimers = Vec::new();
    for number in 0..8 {
        let claimer = Session::of(&db).await;
        let max_jobs = [1, 10, 100, 25][number % 4];
        claimers.push(tokio::spawn(async move { drain(&claimer, max_jobs).await }));
    }
    let mut claims = 0;
    for claimer in claimers {
        claims += claimer.await.expect("the claimer lives");
    }
    assert_eq!(claims as i64, JOBS);
    let runs = "select count(*), count(distinct job_id), count(distinct input), min(attempt), max(attempt),
                    count(*) filter (where final and state = 'completed'), count(distinct worker)
                from trax.run";
    assert_eq!(
        s.get(runs).await,
        format!("{JOBS}|{JOBS}|{JOBS}|1|1|{JOBS}|8")
    );
    let left = "select (select count(*) from trax.work_queue), (select count(*) from trax.lease)";
    assert_eq!(s.get(left).await, "0|0");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_that_commits_late_is_claimed_next() {
    let (db, late) = session().await;
    let s = Session::of(&db).await;
    late.get("begin").await;
    let id = late.enqueue("'a'").await;
    for _ in 0..10 {
        s.get("select count(*) from trax.enqueue_many('a', array_fill('{}'::jsonb, array[1000]))")
            .await;
        let done = s
            .number(
                "with claimed as materialized (select job_id, token from trax.claim_next(max_jobs => 1000)),
                      held as (select array_agg(job_id) as ids, array_agg(token) as tokens from claimed)
                 select count(*) from held, trax.complete_many(held.ids, held.tokens)",
            )
            .await;
        assert_eq!(done, 1000);
    }
    assert!(s.claim("").await.is_empty());
    s.enqueue("'a'").await;
    late.get("commit").await;
    assert_eq!(s.claim_ids("").await, [id]);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_that_another_transaction_locks_is_stepped_over() {
    let (db, a) = session().await;
    let b = Session::of(&db).await;
    b.get("set lock_timeout = '30 s'").await;
    let one = a.enqueue("'a'").await;
    let two = a.enqueue("'a'").await;
    a.get(&format!("begin; select trax.cancel({one})")).await;
    assert_eq!(b.claim_ids("max_jobs => 5").await, [two]);
    a.get("rollback").await;
    assert_eq!(b.claim_ids("max_jobs => 5").await, [one]);
}

#[tokio::test]
async fn a_claim_in_a_read_only_transaction_changes_nothing() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let before = s.everything().await;
    let refusal = s
        .refusal("begin read only; select * from trax.claim_next()")
        .await;
    s.get("rollback").await;
    assert_eq!(refusal.code, "25006", "{refusal}");
    assert_eq!(s.everything().await, before);
}

#[tokio::test]
async fn a_completion_in_a_read_only_transaction_changes_nothing() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("'w'").await;
    s.enqueue("'a'").await;
    let before = s.everything().await;
    let complete = format!("select trax.complete({})", job.key());
    // The worker is already registered, so only the call itself can be refused.
    for call in [complete.as_str(), "select * from trax.claim_next('w')"] {
        let refusal = s.refusal(&format!("begin read only; {call}")).await;
        s.get("rollback").await;
        assert_eq!(refusal.code, "25006", "{call}: {refusal}");
    }
    assert_eq!(s.everything().await, before);
}

#[tokio::test]
async fn a_column_that_was_added_and_dropped_again_stops_nothing() {
    let (_db, s) = session().await;
    for table in ["work_queue", "lease", "run", "manifest_group"] {
        s.get(&format!(
            "alter table trax.{table} add column note text;
             alter table trax.{table} drop column note"
        ))
        .await;
    }
    let id = s.enqueue("'a', '{\"n\": 1}'").await;
    let job = s.claim_one("'w'").await;
    s.get(&format!("select trax.complete({})", job.key())).await;
    assert_eq!(
        s.get("select job_id, state, input, worker from trax.run")
            .await,
        format!("{id}|completed|{{\"n\": 1}}|w")
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn tables_of_another_version_are_refused_with_what_to_type() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    for (change, undo, found) in [
        (
            "alter column trace type text",
            "alter column trace type jsonb using trace::jsonb",
            "trax.work_queue: its column trace has another type",
        ),
        (
            "rename column trace to traces",
            "rename column traces to trace",
            "trax.work_queue: its columns are others",
        ),
        (
            "rename to away",
            "rename to work_queue",
            "trax.work_queue: there is no such table",
        ),
    ] {
        s.get(&format!("alter table trax.work_queue {change}"))
            .await;
        let refusal = s.refusal("select trax.enqueue('a')").await;
        assert_eq!(refusal.code, "55000", "{refusal}");
        assert_eq!(
            refusal.message,
            "the tables of trax and its library are of different versions"
        );
        assert!(refusal.detail.contains(found), "{refusal}");
        assert!(
            refusal
                .hint
                .starts_with("Type: alter extension trax update;")
                && refusal.hint.contains("restart PostgreSQL"),
            "{refusal}"
        );
        let table = if change.ends_with("away") {
            "away"
        } else {
            "work_queue"
        };
        s.get(&format!("alter table trax.{table} {undo}")).await;
        s.enqueue("'a'").await;
    }
    assert_eq!(s.claim("max_jobs => 10").await.len(), 4);
}

#[tokio::test]
async fn a_statement_that_the_tables_of_another_version_do_not_answer_says_what_to_type() {
    let (db, s) = session().await;
    for (change, call, found) in [
        (
            "alter table trax.manifest rename column misfire to late",
            "select trax.schedule('m', 'a')",
            "misfire",
        ),
        (
            "alter table trax.dead_letter rename to buried",
            "select trax.requeue_dead_letters()",
            "dead_letter",
        ),
    ] {
        s.get(change).await;
        let refusal = Session::of(&db).await.refusal(call).await;
        assert_eq!(refusal.code, "55000", "{refusal}");
        assert_eq!(
            refusal.message,
            "the tables of trax and its library are of different versions"
        );
        assert!(refusal.detail.contains(found), "{refusal}");
        assert!(
            refusal
                .hint
                .starts_with("Type: alter extension trax update;"),
            "{refusal}"
        );
    }
}

#[tokio::test]
async fn a_claim_under_an_old_snapshot_takes_no_job_twice() {
    for level in ["repeatable read", "serializable"] {
        let (db, a) = session().await;
        let b = Session::of(&db).await;
        let one = a.enqueue("'a'").await;
        let two = a.enqueue("'a'").await;
        a.get(&format!(
            "begin isolation level {level}; select count(*) from trax.work_queue"
        ))
        .await;
        assert_eq!(b.claim_ids("").await, [one]);
        match a
            .attempt("select job_id from trax.claim_next(max_jobs => 9)")
            .await
        {
            Ok(seen) => assert_eq!(seen, two.to_string(), "{level}"),
            Err(refusal) => assert_eq!(refusal.code, "40001", "{level}: {refusal}"),
        }
        a.get("rollback").await;
        b.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_worker_whose_first_claim_was_undone_is_registered_with_the_next() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let registered = "select name from trax.worker";
    for undo in ["rollback", "rollback to before; commit"] {
        s.get("begin; savepoint before; select trax.claim_next('w')")
            .await;
        s.get(undo).await;
        assert_eq!(s.get(registered).await, "", "{undo}");
    }
    s.claim_one("'w'").await;
    assert_eq!(s.get(registered).await, "w");
}
