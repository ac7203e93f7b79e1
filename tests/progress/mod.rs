//! Progress: the reports of a running attempt, who may see them, and when they are deleted.

use harness::session::{Claimed, Session, session};

async fn report(s: &Session, job: &Claimed, progress: &str) -> String {
    s.get(&format!(
        "select trax.report_progress({}, '{progress}')",
        job.key()
    ))
    .await
}

async fn seen(s: &Session, job: &Claimed) -> String {
    s.get(&format!(
        "select state, progress from trax.job where job_id = {}",
        job.id
    ))
    .await
}

#[tokio::test]
async fn others_see_what_a_running_job_said_last() {
    let (db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    let other = Session::of(&db).await;
    assert_eq!(seen(&other, &job).await, "in_progress|");
    for said in ["0.25", "\"unpacking\"", "{\"of\": 9, \"done\": 3}"] {
        assert_eq!(report(&s, &job, said).await, "t");
        assert_eq!(seen(&other, &job).await, format!("in_progress|{said}"));
    }
    assert_eq!(s.number("select count(*) from trax.progress").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn every_end_of_the_lease_ends_its_progress() {
    for end in [
        "select trax.complete({})",
        "select trax.fail({}, 'no')",
        "select trax.fail({}, 'no', permanent => true)",
        "select trax.release({})",
        "select trax.cancel(job_id) from trax.lease; select trax.acknowledge_cancel({})",
    ] {
        let (_db, s) = session().await;
        s.enqueue("'a'").await;
        let job = s.claim_one("").await;
        report(&s, &job, "0.5").await;
        s.get(&end.replace("{}", &job.key())).await;
        let shown = seen(&s, &job).await;
        assert!(shown.ends_with('|'), "after {end}: {shown}");
        assert_eq!(report(&s, &job, "0.6").await, "f", "after {end}");
    }
}

#[tokio::test]
async fn a_stale_worker_says_nothing_about_the_next_attempt() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let first = s.claim_one("").await;
    report(&s, &first, "0.9").await;
    s.get(&format!("select trax.release({})", first.key()))
        .await;
    let second = s.claim_one("").await;
    assert_eq!(seen(&s, &second).await, "in_progress|");
    assert_eq!(report(&s, &first, "1").await, "f");
    assert_eq!(seen(&s, &second).await, "in_progress|");
    assert_eq!(report(&s, &second, "0.1").await, "t");
    assert_eq!(seen(&s, &second).await, "in_progress|0.1");
}

#[tokio::test]
async fn a_report_that_is_not_committed_holds_up_no_heartbeat_and_no_outcome() {
    let (db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    let reporter = Session::of(&db).await;
    reporter.get("begin").await;
    assert_eq!(report(&reporter, &job, "0.5").await, "t");
    s.get("set lock_timeout = '30 s'").await;
    let heartbeat = format!(
        "select held from trax.heartbeat(array[{}], array['{}'::uuid])",
        job.id, job.token
    );
    assert_eq!(s.get(&heartbeat).await, "t");
    assert_eq!(seen(&s, &job).await, "in_progress|", "not committed");
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "t"
    );
    reporter.get("commit").await;
    assert_eq!(seen(&s, &job).await, "completed|");
}

#[tokio::test]
async fn the_cleanup_forgets_what_was_said_of_leases_that_are_over_and_nothing_else() {
    let (db, s) = session().await;
    s.get("select trax.enqueue('a'), trax.enqueue('a'), trax.enqueue('a')")
        .await;
    let jobs = s.claim("max_jobs => 3").await;
    for job in &jobs {
        report(&s, job, "0.5").await;
    }
    s.get(&format!(
        "select trax.complete({}), trax.release({})",
        jobs[0].key(),
        jobs[1].key()
    ))
    .await;
    s.get(&format!(
        "update trax.progress set reported_at = now() - interval '2 min' where job_id <> {}",
        jobs[1].id
    ))
    .await;
    // A backend checks once a minute, and a new one at once.
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    let left = "select string_agg(job_id::text, ' ' order by job_id) from trax.progress";
    assert_eq!(
        s.get(left).await,
        format!("{} {}", jobs[1].id, jobs[2].id),
        "the first is over and old, the second over and fresh, the third runs"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn jobs_that_report_nothing_leave_no_row_and_no_index_entry() {
    let (_db, s) = session().await;
    s.get("select trax.enqueue_many('a', array_fill('1'::jsonb, array[100]))")
        .await;
    for job in s.claim("max_jobs => 100").await {
        s.get(&format!("select trax.complete({})", job.key())).await;
    }
    let pages = "select pg_relation_size('trax.progress'), pg_stat_get_tuples_inserted('trax.progress'::regclass)";
    assert_eq!(s.get(pages).await, "0|0");
}

#[tokio::test]
async fn what_is_missing_or_too_large_is_refused() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    let missing = s
        .refusal(&format!("select trax.report_progress({}, null)", job.key()))
        .await;
    assert_eq!(missing.code, "22004");
    assert!(missing.message.contains("\"progress\""), "{missing}");
    // The limit applies to the uncompressed size.
    let large = s
        .refusal(&format!(
            "select trax.report_progress({}, to_jsonb(repeat('x', 9000)))",
            job.key()
        ))
        .await;
    assert_eq!(large.code, "54000");
    assert!(large.detail.contains("8192"), "{large}");
    assert!(!large.hint.is_empty());
    assert_eq!(
        s.get(&format!(
            "select trax.report_progress({}, to_jsonb(repeat('x', 8000)))",
            job.key()
        ))
        .await,
        "t"
    );
}
