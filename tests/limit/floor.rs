//! The cost of a count while a snapshot is held: independent of the number of jobs that have gone
//! through the limit.

use harness::limit::buffers;
use harness::session::{Claimed, Session, session};

/// The number of jobs that run while a snapshot is held.
const JOBS: i64 = 5000;

/// Enqueues jobs with `enqueue` and runs them, 50 at a time, each claimed and completed by one
/// call.
async fn go_through(s: &Session, enqueue: &str) {
    s.get(&format!(
        "select count({enqueue}) from generate_series(1, {JOBS})"
    ))
    .await;
    s.get(
        "do $$
         declare ids bigint[]; tokens uuid[]; rounds int := 0;
         begin
             loop
                 select array_agg(c.job_id), array_agg(c.token) into ids, tokens
                 from trax.complete_and_claim(coalesce(ids, '{}'), coalesce(tokens, '{}'), max_jobs => 50, lease => '1 h') c
                 where c.job_id is not null;
                 exit when ids is null;
                 rounds := rounds + 1;
                 commit;
             end loop;
         end $$",
    )
    .await;
    assert_eq!(s.number("select count(*) from trax.lease").await, 0);
}

/// The median cost of seven claims of one job.
async fn claim_cost(s: &Session, enqueue: &str) -> i64 {
    let mut seen = Vec::new();
    for _ in 0..7 {
        s.get(&format!("select {enqueue}")).await;
        let claim = "select * from trax.claim_next(lease => '1 h')";
        seen.push(buffers(s, claim).await);
        s.get("select count(trax.complete(job_id, token)) from trax.lease")
            .await;
    }
    seen.sort();
    seen[3]
}

async fn assert_costs_the_same(prepare: &str, enqueue: &str) {
    let (db, s) = session().await;
    s.get(prepare).await;
    let s = Session::of(&db).await;
    let before = claim_cost(&s, enqueue).await;
    let holder = Session::of(&db).await;
    holder
        .get("begin isolation level repeatable read; select count(*) from trax.lease")
        .await;
    go_through(&s, enqueue).await;
    let after = claim_cost(&s, enqueue).await;
    println!("{enqueue}: {before} buffers before, {after} after {JOBS} jobs");
    assert!(
        after <= before + 15,
        "{enqueue}: a claim touched {before} buffers before and {after} after"
    );
    holder.get("commit").await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn of_a_group() {
    assert_costs_the_same(
        "select trax.configure_group('g', max_active_jobs => 100)",
        "trax.enqueue('a', group_name => 'g')",
    )
    .await;
}

#[tokio::test]
async fn of_a_key() {
    assert_costs_the_same(
        "select trax.configure_group('default', max_per_key => 100)",
        "trax.enqueue('a', concurrency_key => 'k')",
    )
    .await;
}

#[tokio::test]
async fn of_a_database() {
    assert_costs_the_same(
        "do $$ begin execute format('alter database %I set trax.max_active_jobs = 100', current_database()); end $$",
        "trax.enqueue('a')",
    )
    .await;
}

#[tokio::test]
async fn of_a_manifest() {
    assert_costs_the_same(
        "select trax.schedule('m', 'a', every => '1 h', overlap => 'allow', max_concurrency => 100)",
        "trax.trigger('m')",
    )
    .await;
}

/// Each kind of limit of one at a time: the statement that sets it, and the one that makes a job.
const KINDS: [(&str, &str); 4] = [
    (
        "select trax.configure_group('g', max_active_jobs => 1)",
        "trax.enqueue('a', group_name => 'g', priority => $)",
    ),
    (
        "select 1",
        "trax.enqueue('a', concurrency_key => 'k', priority => $)",
    ),
    (
        "select trax.schedule('m', 'a', every => '1 h', max_concurrency => 1)",
        "trax.trigger('m')",
    ),
    (
        "set trax.max_active_jobs = 1",
        "trax.enqueue('a', priority => $)",
    ),
];

async fn enqueue(s: &Session, job: &str, priority: i32) -> i64 {
    let priority = priority.to_string();
    s.number(&format!("select {}", job.replace('$', &priority)))
        .await
}

/// The number of further jobs that a claim takes.
async fn takes(s: &Session) -> usize {
    s.claim("max_jobs => 9, lease => '1 h'").await.len()
}

async fn complete(s: &Session, job: &Claimed) {
    let complete = format!("select trax.complete({})", job.key());
    assert_eq!(s.get(&complete).await, "t");
}

#[tokio::test]
async fn a_completion_that_is_undone_counts_again() {
    for (prepare, job) in KINDS {
        let (_db, s) = session().await;
        s.get(prepare).await;
        enqueue(&s, job, 0).await;
        let first = s.claim_one("lease => '1 h'").await;
        enqueue(&s, job, 0).await;
        s.get("begin").await;
        complete(&s, &first).await;
        assert_eq!(takes(&s).await, 1, "{job}");
        s.get("rollback").await;
        assert_eq!(takes(&s).await, 0, "{job}");
        complete(&s, &first).await;
        assert_eq!(takes(&s).await, 1, "{job}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn an_older_job_that_is_claimed_after_a_younger_one_counts() {
    for (prepare, job) in KINDS {
        let (_db, s) = session().await;
        s.get(prepare).await;
        let old = enqueue(&s, job, 0).await;
        enqueue(&s, job, 9).await;
        // A manifest's jobs share a priority, so the older one is delayed until the younger has
        // ended.
        s.get(&format!(
            "update trax.work_queue set run_at = now() + interval '1 h', waits_for = 'time' where job_id = {old}"
        ))
        .await;
        let young = s.claim_one("lease => '1 h'").await;
        assert!(young.id > old);
        complete(&s, &young).await;
        assert_eq!(takes(&s).await, 0);
        s.get(&format!("select trax.run_now({old})")).await;
        assert_eq!(s.claim_one("lease => '1 h'").await.id, old);
        enqueue(&s, job, 0).await;
        assert_eq!(takes(&s).await, 0, "{job}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_lease_written_by_hand_counts() {
    for (prepare, job) in KINDS {
        let (_db, s) = session().await;
        s.get(prepare).await;
        enqueue(&s, job, 0).await;
        let first = s.claim_one("lease => '1 h'").await;
        s.get("create table public.kept as select * from trax.lease")
            .await;
        complete(&s, &first).await;
        enqueue(&s, job, 0).await;
        let second = s.claim_one("lease => '1 h'").await;
        complete(&s, &second).await;
        enqueue(&s, job, 0).await;
        s.get("begin; insert into trax.lease select * from public.kept")
            .await;
        assert_eq!(takes(&s).await, 0, "{job}");
        s.get("commit").await;
        assert_eq!(takes(&s).await, 0, "{job}");
    }
}

#[tokio::test]
async fn what_runs_when_a_limit_is_set_counts() {
    let (_db, s) = session().await;
    let set = |limit: i32| format!("select trax.configure_group('g', max_active_jobs => {limit})");
    s.get(&set(1)).await;
    s.enqueue("'a', group_name => 'g'").await;
    s.enqueue("'a', group_name => 'g', priority => 9").await;
    let young = s.claim_one("lease => '1 h'").await;
    complete(&s, &young).await;
    s.get(&set(0)).await;
    assert_eq!(takes(&s).await, 1);
    s.get(&set(1)).await;
    s.enqueue("'a', group_name => 'g'").await;
    assert_eq!(takes(&s).await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn what_another_session_claims_beside_the_databases_limit_counts() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    s.get("set trax.max_active_jobs = 1").await;
    s.enqueue("'a'").await;
    s.enqueue("'a', priority => 9").await;
    other.get("begin").await;
    let young = s.claim_one("lease => '1 h'").await;
    complete(&s, &young).await;
    assert_eq!(takes(&other).await, 1);
    s.enqueue("'b'").await;
    s.get("begin").await;
    assert_eq!(takes(&s).await, 1, "the other has not committed");
    s.get("rollback").await;
    other.get("commit").await;
    assert_eq!(takes(&s).await, 0);
}
