//! Many callers of one process over one connection.

use harness::scheduler::scheduling;
use harness::session::{Session, session};
use harness::{PATIENCE, eventually};
use std::time::Duration;
use trax_client::testkit::Database;
use trax_client::{Client, Error, JobId, JobResult, JobWaiter};

const LONG: Duration = Duration::from_secs(600);

fn waiter(db: &Database) -> JobWaiter {
    JobWaiter::new(db.config())
}

async fn connections(s: &Session) -> i64 {
    s.get("select pg_stat_clear_snapshot()").await;
    s.number(
        "select count(*) from pg_stat_activity
         where application_name = 'trax job waiter' and datname = current_database()",
    )
    .await
}

/// Waits until the connection of a waiter sleeps in a call that names this many jobs.
async fn sleeps_with(s: &Session, jobs: usize) {
    let sql = "select wait_event_type = 'Extension' and state = 'active',
            cardinality(string_to_array(query, ',')) - 3, left(query, 100)
        from pg_stat_activity
        where application_name = 'trax job waiter' and datname = current_database()";
    eventually("a call that waits", PATIENCE, async || {
        s.get("select pg_stat_clear_snapshot()").await;
        let seen = s.get(sql).await;
        if seen.starts_with(&format!("t|{jobs}|")) {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
}

#[tokio::test]
async fn callers_share_one_connection_and_each_gets_its_own_answer() {
    let (db, s) = session().await;
    let ids = s
        .get("select trax.enqueue_many('double', array(select to_jsonb(n) from generate_series(1, 300) n))")
        .await;
    let ids: Vec<i64> = ids
        .lines()
        .map(|id| id.parse().expect("a number"))
        .collect();
    let waiter = waiter(&db);
    let callers: Vec<_> = ids
        .iter()
        .map(|&id| {
            let waiter = waiter.clone();
            tokio::spawn(async move { waiter.await_job::<i64>(JobId(id), LONG).await })
        })
        .collect();
    // The first message names all jobs requested before it is sent.
    eventually("one connection", PATIENCE, async || {
        match connections(&s).await {
            1 => Ok(()),
            n => Err(n.to_string()),
        }
    })
    .await;
    s.get(
        "with c as materialized (select * from trax.claim_next(max_jobs => 300))
         select trax.complete(job_id, token, to_jsonb(2 * (input #>> '{}')::bigint)) from c",
    )
    .await;
    for (number, caller) in (1..).zip(callers) {
        let ended = tokio::time::timeout(PATIENCE, caller).await;
        let result = ended.expect("it is answered").expect("it runs");
        assert_eq!(result.expect("it ended"), JobResult::Completed(2 * number));
    }
    assert_eq!(connections(&s).await, 1);
}

#[tokio::test]
async fn a_caller_who_comes_later_joins_the_call_and_one_who_leaves_costs_nothing() {
    let (db, s) = session().await;
    let (first, second) = (s.enqueue("'a'").await, s.enqueue("'b'").await);
    let waiter = waiter(&db);
    let one = waiter.clone();
    let one = tokio::spawn(async move { one.await_job::<()>(JobId(first), LONG).await });
    sleeps_with(&s, 1).await;
    let two = waiter.clone();
    let two = tokio::spawn(async move { two.await_job::<()>(JobId(second), LONG).await });
    sleeps_with(&s, 2).await;
    let late = waiter
        .await_job::<()>(JobId(first), Duration::from_millis(50))
        .await;
    assert_eq!(late.expect("the time is up"), JobResult::NotEnded);
    one.abort();
    s.get(&format!("select trax.cancel({second})")).await;
    let ended = tokio::time::timeout(PATIENCE, two).await;
    let result = ended.expect("it is answered").expect("it runs");
    assert_eq!(result.expect("it ended"), JobResult::Cancelled(None));
}

#[tokio::test]
async fn a_waiter_finds_its_way_back_and_hears_what_ended_meanwhile() {
    let (db, s) = session().await;
    let job_id = s.enqueue("'a'").await;
    let waiter = waiter(&db);
    let caller = tokio::spawn(async move { waiter.await_job::<()>(JobId(job_id), LONG).await });
    sleeps_with(&s, 1).await;
    s.get(
        "begin; select pg_terminate_backend(pid, 5000) from pg_stat_activity
         where application_name = 'trax job waiter' and datname = current_database()",
    )
    .await;
    s.get(&format!("select trax.cancel({job_id}); commit"))
        .await;
    let ended = tokio::time::timeout(PATIENCE, caller).await;
    let result = ended.expect("it is answered").expect("it runs");
    assert_eq!(result.expect("it ended"), JobResult::Cancelled(None));
}

#[tokio::test]
async fn a_waiter_waits_on_over_a_restart_of_the_server() {
    let mut server = scheduling().start().expect("a server starts");
    let db = server.database("waited").await.expect("a database is made");
    let s = Session::of(&db).await;
    let ended = s.enqueue("'ended'").await;
    let later = s.enqueue("'later'").await;
    let waiter = waiter(&db);
    let callers = [ended, later].map(|job_id| {
        let waiter = waiter.clone();
        tokio::spawn(async move { waiter.await_job::<()>(JobId(job_id), LONG).await })
    });
    sleeps_with(&s, 2).await;
    drop(s);
    server.restart().expect("the server starts again");
    let s = Session::of(&db).await;
    s.get(&format!("select trax.cancel({ended})")).await;
    let [first, second] = callers;
    let answer = tokio::time::timeout(PATIENCE, first).await;
    let result = answer.expect("it is answered").expect("it runs");
    assert_eq!(result.expect("it ended"), JobResult::Cancelled(None));
    sleeps_with(&s, 1).await;
    s.get(&format!("select trax.cancel({later})")).await;
    let answer = tokio::time::timeout(PATIENCE, second).await;
    let result = answer.expect("it is answered").expect("it runs");
    assert_eq!(result.expect("it ended"), JobResult::Cancelled(None));
}

#[tokio::test]
async fn a_caller_who_asks_for_what_is_not_there_or_not_his_disturbs_no_other() {
    let (db, s) = session().await;
    let role = format!("{}_mails", db.name());
    s.get(&format!(
        "create role {role} login; select trax.grant_access('{role}', 'producer', tasks => '{{mail}}')"
    ))
    .await;
    let (own, other) = (s.enqueue("'mail'").await, s.enqueue("'bill'").await);
    let mut config = db.config();
    config.user(&role);
    let waiter = JobWaiter::new(config);
    let first = waiter.clone();
    let first = tokio::spawn(async move { first.await_job::<()>(JobId(own), LONG).await });
    sleeps_with(&s, 1).await;
    let refused = waiter.await_job::<()>(JobId(other), LONG).await;
    assert!(
        matches!(refused, Err(Error::NotPermitted(_))),
        "{refused:?}"
    );
    let unknown = waiter.await_job::<()>(JobId(4711), LONG).await;
    assert!(matches!(unknown, Err(Error::UnknownName(_))), "{unknown:?}");
    let said = unknown.expect_err("it is unknown").to_string();
    assert!(
        said.ends_with("Pass the id that enqueue() returned."),
        "{said}"
    );
    s.get(&format!("select trax.cancel({own})")).await;
    let ended = tokio::time::timeout(PATIENCE, first).await;
    let result = ended.expect("it is answered").expect("it runs");
    assert_eq!(result.expect("it ended"), JobResult::Cancelled(None));
}

#[tokio::test]
async fn the_client_reads_a_job_and_waits_for_one() {
    let (db, s) = session().await;
    let job_id = JobId(s.enqueue("'a', priority => 7").await);
    let client = Client::new(s.client());
    let job = client.job(job_id).await.expect("an answer").expect("a job");
    assert_eq!(
        (job.priority, job.attempt, job.state.has_ended()),
        (7, 0, false)
    );
    assert!(client.job(JobId(4711)).await.expect("an answer").is_none());
    let result = client.await_job::<String>(job_id, Duration::ZERO).await;
    assert_eq!(result.expect("it is known"), JobResult::NotEnded);
    let unknown = client.await_job::<String>(JobId(4711), LONG).await;
    assert!(matches!(unknown, Err(Error::UnknownName(_))), "{unknown:?}");
    let claimed = s.claim_one("").await;
    s.get(&format!(
        "select trax.complete({}, '\"done\"')",
        claimed.key()
    ))
    .await;
    let result = client.await_job::<String>(job_id, LONG).await;
    assert_eq!(
        result.expect("it ended"),
        JobResult::Completed("done".to_owned())
    );
    drop(db);
}
