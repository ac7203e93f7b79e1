//! Unique keys that outlive their jobs: one job per period, whatever its outcome.

use harness::scheduler::scheduling;
use harness::session::{Session, session};

const QUEUED: &str = "'a', unique_key => 'k', unique_for => '1 h'";
const KEYS: &str = "select count(*) from trax.unique_key";

/// Makes the period of every key end.
async fn pass_time(s: &Session) {
    s.get("update trax.unique_key set alive_until = now() - interval '1 s'")
        .await;
}

/// Claims the only job and completes it.
async fn complete(s: &Session) -> i64 {
    let job = s.claim_one("").await;
    let done = s.get(&format!("select trax.complete({})", job.key())).await;
    assert_eq!(done, "t");
    job.id
}

#[tokio::test]
async fn a_key_outlives_every_kind_of_end_until_its_time_is_over() {
    let ends = [
        "select trax.complete({})",
        "select trax.fail({}, 'no', permanent => true)",
        "select trax.cancel({id}); select trax.acknowledge_cancel({})",
        "select trax.release({}); select trax.cancel({id})",
        "select trax.release({}); select trax.limit_queue_time({id}, '1 us'); select * from trax.tick()",
        "update trax.lease set lease_expires_at = started_at, reap_at = started_at, max_retries = 0;
         select * from trax.tick()",
    ];
    for end in ends {
        let (_db, s) = session().await;
        let first = s.enqueue(QUEUED).await;
        let alive = "select alive_until - queued_at from trax.unique_key join trax.work_queue using (job_id)";
        assert_eq!(s.get(alive).await, "01:00:00");
        let job = s.claim_one("").await;
        s.get(
            &end.replace("{id}", &job.id.to_string())
                .replace("{}", &job.key()),
        )
        .await;
        s.assert_healthy().await;
        let before = s.everything().await;
        assert_eq!(s.enqueue(QUEUED).await, first, "{end}");
        assert_eq!(s.enqueue("'b', unique_key => 'k'").await, first, "{end}");
        s.get("insert into trax.new_job (task, unique_key) values ('c', 'k')")
            .await;
        assert_eq!(s.everything().await, before, "{end}: nothing is queued");
        pass_time(&s).await;
        s.assert_healthy().await;
        let second = s.enqueue(QUEUED).await;
        assert_ne!(second, first, "{end}");
        assert_eq!(s.enqueue("'a', unique_key => 'k'").await, second, "{end}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_producer_whose_connection_broke_asks_again() {
    let (db, s) = session().await;
    let first = s.enqueue(QUEUED).await;
    drop(s);
    let s = Session::of(&db).await;
    assert_eq!(complete(&s).await, first);
    let again =
        "select * from trax.enqueue_many('a', '{1}', unique_key => 'k', unique_for => '1 h')";
    assert_eq!(s.get(again).await, first.to_string());
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_that_lives_longer_keeps_its_key_and_its_end_frees_it() {
    let (_db, s) = session().await;
    let first = s.enqueue(QUEUED).await;
    pass_time(&s).await;
    s.tick("queue_due").await;
    assert_eq!(s.enqueue(QUEUED).await, first, "it waits");
    let job = s.claim_one("").await;
    s.get(&format!(
        "select trax.fail({}, 'no', retry_in => '0')",
        job.key()
    ))
    .await;
    assert_eq!(s.enqueue(QUEUED).await, first, "between its attempts");
    s.assert_healthy().await;
    assert_eq!(complete(&s).await, first);
    assert_eq!(s.number(KEYS).await, 0);
    assert_ne!(s.enqueue(QUEUED).await, first);
    s.assert_healthy().await;
}

#[tokio::test]
async fn who_finds_a_key_alive_does_not_change_its_time() {
    let (_db, s) = session().await;
    let first = s.enqueue("'a', unique_key => 'k'").await;
    assert_eq!(s.enqueue(QUEUED).await, first);
    assert_eq!(
        s.get("select alive_until is null from trax.unique_key")
            .await,
        "t"
    );
    complete(&s).await;
    assert_eq!(s.number(KEYS).await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn an_end_that_is_rolled_back_leaves_the_key_with_its_job() {
    let (_db, s) = session().await;
    s.enqueue(QUEUED).await;
    let job = s.claim_one("").await;
    let before = s.everything().await;
    s.get(&format!(
        "begin; select trax.complete({}); rollback",
        job.key()
    ))
    .await;
    assert_eq!(s.everything().await, before);
    s.assert_healthy().await;
}

/// A database with a key whose job has ended and whose period is over.
async fn with_key_that_is_over() -> (trax_client::testkit::Database, Session, i64) {
    let (db, s) = session().await;
    let first = s.enqueue(QUEUED).await;
    complete(&s).await;
    pass_time(&s).await;
    (db, s, first)
}

#[tokio::test]
async fn of_two_who_want_a_key_that_is_over_the_second_waits() {
    let queue = [
        "select trax.enqueue('a', unique_key => 'k', unique_for => '1 h')",
        "select * from trax.enqueue_many('a', '{1}', unique_key => 'k', unique_for => '1 h')",
        "insert into trax.new_job (task, unique_key, unique_for) values ('a', 'k', '1 h')",
    ];
    for queue in queue {
        for end in ["commit", "rollback"] {
            let (db, s, first) = with_key_that_is_over().await;
            let second = Session::of(&db).await;
            let looker = Session::of(&db).await;
            s.get("begin").await;
            let one = s.enqueue(QUEUED).await;
            let pid = second.pid();
            let other = second.spawn(queue);
            looker.sees_waiting(pid).await;
            s.get(end).await;
            let (_, result) = other.await.expect("the second session lives");
            result.expect("the second one works");
            let waits = looker.number("select job_id from trax.work_queue").await;
            assert_ne!(waits, first);
            assert_eq!(waits == one, end == "commit", "{queue} after {end}");
            looker.assert_healthy().await;
        }
    }
}

#[tokio::test]
async fn many_copies_at_once_of_keys_that_are_over_queue_each_once() {
    let (db, s) = session().await;
    let copy = "insert into trax.new_job (task, unique_key, unique_for)
        select 'a', 'k' || n, '1 h' from generate_series(1, 300) n";
    s.get(copy).await;
    s.get("select count(trax.complete(job_id, token)) from trax.claim_next(max_jobs => 1000)")
        .await;
    s.get(copy).await;
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 0);
    pass_time(&s).await;
    let mut copies = Vec::new();
    for n in 0..4 {
        let order = if n % 2 == 0 {
            "order by n"
        } else {
            "order by n desc"
        };
        copies.push(Session::of(&db).await.spawn(format!("{copy} {order}")));
    }
    for copy in copies {
        let (_, result) = copy.await.expect("the session lives");
        result.expect("no copy fails");
    }
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 300);
    s.assert_healthy().await;
}

#[tokio::test]
async fn an_older_snapshot_sees_what_has_become_of_a_key() {
    for level in ["repeatable read", "serializable"] {
        let (db, s) = session().await;
        let other = Session::of(&db).await;
        let first = other.enqueue(QUEUED).await;
        s.get(&format!(
            "begin isolation level {level}; select count(*) from trax.unique_key"
        ))
        .await;
        complete(&other).await;
        assert_eq!(s.enqueue(QUEUED).await, first, "it is kept");
        pass_time(&other).await;
        let second = s.enqueue(QUEUED).await;
        assert_ne!(second, first, "it is over");
        s.get("commit").await;
        assert_eq!(other.enqueue(QUEUED).await, second);
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_requeued_dead_letter_takes_the_key_on_for_the_rest_of_its_time() {
    let (_db, s) = session().await;
    let first = s.enqueue(QUEUED).await;
    let job = s.claim_one("").await;
    s.get(&format!(
        "select trax.fail({}, 'no', permanent => true)",
        job.key()
    ))
    .await;
    let until = "select alive_until from trax.unique_key";
    let before = s.get(until).await;
    let second = s
        .number("select trax.requeue_dead_letter(id) from trax.dead_letter")
        .await;
    assert_ne!(second, first, "it runs again");
    assert_eq!(s.get(until).await, before);
    assert_eq!(s.enqueue(QUEUED).await, second);
    s.assert_healthy().await;
    assert_eq!(complete(&s).await, second);
    assert_eq!(s.enqueue(QUEUED).await, second, "its time is not over");
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_cleanup_forgets_keys_that_are_over_and_waits_for_nobody() {
    let (db, s) = session().await;
    s.get("insert into trax.new_job (task, unique_key, unique_for) select 'a', 'k' || n, '1 h' from generate_series(1, 20) n")
        .await;
    s.get("select count(trax.complete(job_id, token)) from trax.claim_next(max_jobs => 18)")
        .await;
    s.get("update trax.unique_key set alive_until = now() - interval '1 s' where key <> 'k1'")
        .await;
    let holder = Session::of(&db).await;
    holder
        .get("begin; select from trax.unique_key where key = 'k2' for update")
        .await;
    s.tick("queue_due").await;
    let left = "select string_agg(key, ' ' order by key) from trax.unique_key";
    assert_eq!(s.get(left).await, "k1 k19 k2 k20");
    holder.get("rollback").await;
    s.tick("queue_due").await;
    assert_eq!(s.get(left).await, "k1 k19 k20");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_key_removed_by_hand_is_free() {
    let (_db, s) = session().await;
    let first = s.enqueue(QUEUED).await;
    complete(&s).await;
    s.get("delete from trax.unique_key where key = 'k'").await;
    assert_ne!(s.enqueue(QUEUED).await, first);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_prepared_transaction_holds_its_key_until_it_ends() {
    let server = scheduling()
        .setting("max_prepared_transactions", "2")
        .start()
        .expect("a server starts");
    for end in ["commit", "rollback"] {
        let db = server.database(end).await.expect("a database is made");
        let (s, looker) = (Session::of(&db).await, Session::of(&db).await);
        s.get("begin").await;
        let first = s.enqueue(QUEUED).await;
        s.get("prepare transaction 'queued'").await;
        let second = Session::of(&db).await;
        let pid = second.pid();
        let other = second.spawn(format!("select trax.enqueue({QUEUED})"));
        looker.sees_waiting(pid).await;
        s.get(&format!("{end} prepared 'queued'")).await;
        let (_, result) = other.await.expect("the session lives");
        let result = result.expect("it is answered");
        assert_eq!(result == first.to_string(), end == "commit", "{end}");
        assert_eq!(s.number("select count(*) from trax.work_queue").await, 1);

        // A prepared completion leaves the key with the same job, whether it commits or rolls back.
        let job = s.claim_one("").await;
        s.get("begin").await;
        s.get(&format!("select trax.complete({})", job.key())).await;
        s.get("prepare transaction 'completed'").await;
        let second = Session::of(&db).await;
        let other = second.spawn(format!("select trax.enqueue({QUEUED})"));
        s.get(&format!("{end} prepared 'completed'")).await;
        let (_, result) = other.await.expect("the session lives");
        assert_eq!(result.expect("it is answered"), job.id.to_string(), "{end}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_role_with_some_tasks_has_lasting_keys_for_these_alone() {
    let (db, s) = session().await;
    let role = format!("{}_mails", db.name());
    s.get(&format!(
        "create role {role} login; select trax.grant_access('{role}', 'producer', tasks => '{{mail}}')"
    ))
    .await;
    let them = Session::as_role(&db, &role).await;
    let mail = "'mail', unique_key => 'm', unique_for => '1 h'";
    let own = them.enqueue(mail).await;
    assert_eq!(complete(&s).await, own);
    assert_eq!(them.enqueue(mail).await, own, "its time is not over");
    s.enqueue(QUEUED).await;
    complete(&s).await;
    let taken = "select trax.enqueue('mail', unique_key => 'k', unique_for => '1 h')";
    let refused = them.refusal(taken).await;
    assert_eq!(refused.code, "42501", "{refused}");
    pass_time(&s).await;
    let next = them
        .enqueue("'mail', unique_key => 'k', unique_for => '1 h'")
        .await;
    assert_eq!(s.number("select job_id from trax.work_queue").await, next);
    s.assert_healthy().await;
}
