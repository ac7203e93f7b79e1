//! Groups in which a limited number of jobs may wait.

use harness::session::{Session, session};

const WAITING: &str = "select coalesce(string_agg(input::text, ' ' order by job_id), '') from trax.work_queue where group_name = 'g'";
const DROPPED: &str = "select coalesce(string_agg(input::text, ' ' order by job_id), '') from trax.run where state = 'cancelled'";

async fn limited(overflow: &str) -> (trax_client::testkit::Database, Session) {
    let (db, s) = session().await;
    s.get(&format!(
        "select trax.configure_group('g', max_waiting => 3, overflow => '{overflow}')"
    ))
    .await;
    (db, s)
}

fn many(inputs: &str) -> String {
    format!("select count(*) from trax.enqueue_many('a', '{{{inputs}}}', group_name => 'g')")
}

#[tokio::test]
async fn a_call_that_does_not_fit_is_rejected_whole() {
    let (_db, s) = limited("reject").await;
    s.get(&many("1, 2")).await;
    let before = s.everything().await;
    let refusal = s.refusal(&many("3, 4")).await;
    assert_eq!(refusal.code, "53400");
    assert_eq!(
        refusal.detail,
        "It may have 3 waiting jobs and has 2; the call would add 2."
    );
    assert_eq!(s.everything().await, before);
    s.get(&many("3")).await;
    for call in [
        "select trax.enqueue('a', group_name => 'g')",
        "select trax.enqueue('a', group_name => 'g', run_at => now() + interval '1 h')",
        "select trax.enqueue('a', group_name => 'g', unique_key => 'k')",
        "select trax.enqueue_sql('select 1', group_name => 'g')",
        "insert into trax.new_job (task, group_name) values ('a', 'h'), ('a', 'g')",
    ] {
        assert_eq!(s.refusal(call).await.code, "53400", "{call}");
    }
    assert_eq!(s.get(WAITING).await, "1 2 3");
    // Another group has room.
    s.enqueue("'a', group_name => 'h'").await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_claimed_job_makes_room_and_its_retry_comes_on_top() {
    let (_db, s) = limited("reject").await;
    s.get(&many("1, 2, 3")).await;
    let job = s.claim_one("").await;
    s.get(&many("4")).await;
    assert_eq!(s.refusal(&many("5")).await.code, "53400");
    s.get(&format!(
        "select trax.fail({}, 'no', retry_in => '1 h')",
        job.key()
    ))
    .await;
    assert_eq!(s.get(WAITING).await, "1 2 3 4");
    assert_eq!(s.refusal(&many("5")).await.code, "53400");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_in_the_middle_makes_room_too() {
    let (_db, s) = limited("reject").await;
    s.get(&many("1")).await;
    let urgent = s
        .enqueue("'a', '2', group_name => 'g', priority => 9")
        .await;
    s.get(&many("3")).await;
    assert_eq!(s.claim_ids("").await, [urgent]);
    s.get(&many("4")).await;
    assert_eq!(s.get(WAITING).await, "1 3 4");
    assert_eq!(s.refusal(&many("5")).await.code, "53400");
}

#[tokio::test]
async fn a_job_that_moves_to_another_group_makes_room_and_is_not_dropped_there() {
    let (_db, s) = limited("reject").await;
    let moved = s.enqueue("'a', '1', group_name => 'g'").await;
    s.get(&many("2, 3")).await;
    s.get(&format!(
        "select trax.change_job({moved}, group_name => 'h')"
    ))
    .await;
    s.get(&many("4")).await;
    assert_eq!(s.get(WAITING).await, "2 3 4");
    assert_eq!(s.refusal(&many("5")).await.code, "53400");
    s.get("select trax.configure_group('g', overflow => 'drop_oldest')")
        .await;
    let last = s.enqueue("'a', '5', group_name => 'g'").await;
    s.get(&format!(
        "select trax.change_job({last}, group_name => 'h')"
    ))
    .await;
    s.get(&many("6, 7, 8")).await;
    assert_eq!(s.get(WAITING).await, "6 7 8");
    assert_eq!(s.get(DROPPED).await, "2 3 4");
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_newest_are_dropped_with_the_reason() {
    let (_db, s) = limited("drop_newest").await;
    assert_eq!(s.get(&many("1, 2, 3, 4, 5")).await, "5");
    assert_eq!(s.get(WAITING).await, "1 2 3");
    assert_eq!(s.get(DROPPED).await, "4 5");
    let id = s
        .enqueue("'a', '6', group_name => 'g', unique_key => 'k'")
        .await;
    let seen = format!("select state, attempt, error, input from trax.job where job_id = {id}");
    assert_eq!(
        s.get(&seen).await,
        "cancelled|0|dropped: group \"g\" may have 3 waiting jobs (drop_newest)|6"
    );
    // Its key is free.
    assert_ne!(
        s.enqueue("'a', group_name => 'g', unique_key => 'k'").await,
        id
    );
    s.get("insert into trax.new_job (task, input, group_name, unique_key) values ('a', '7', 'g', 'l'), ('a', '8', 'h', 'm')")
        .await;
    assert_eq!(s.get(WAITING).await, "1 2 3");
    assert_eq!(s.get("select key from trax.unique_key").await, "m");
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_oldest_are_dropped_with_their_keys() {
    let (_db, s) = limited("drop_oldest").await;
    let first = s
        .enqueue("'a', '1', group_name => 'g', unique_key => 'k', concurrency_key => 'c'")
        .await;
    assert_eq!(s.get(&many("2, 3, 4, 5")).await, "4");
    assert_eq!(s.get(WAITING).await, "3 4 5");
    assert_eq!(s.get(DROPPED).await, "1 2");
    assert_eq!(s.number("select count(*) from trax.unique_key").await, 0);
    let waits = format!("call trax.await_job({first}, '1 s', null, null, null)");
    assert!(s.get(&waits).await.starts_with("cancelled||dropped: "));
    // More at once than may wait: the oldest of the new ones go too.
    s.get(&many("6, 7, 8, 9")).await;
    assert_eq!(s.get(WAITING).await, "7 8 9");
    assert_eq!(s.get(DROPPED).await, "1 2 3 4 5 6");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_that_has_begun_is_never_dropped() {
    let (_db, s) = limited("drop_oldest").await;
    s.get(&many("1, 2, 3")).await;
    for job in s.claim("max_jobs => 3").await {
        s.get(&format!(
            "select trax.fail({}, 'no', retry_in => '1 h')",
            job.key()
        ))
        .await;
    }
    // They wait for a retry, and the new one has no place.
    s.get(&many("4")).await;
    assert_eq!(s.get(WAITING).await, "1 2 3");
    assert_eq!(s.get(DROPPED).await, "4");
    s.assert_healthy().await;
}

#[tokio::test]
async fn work_that_nobody_could_refuse_comes_on_top() {
    let (_db, s) = limited("reject").await;
    s.get("select trax.enqueue('dies', group_name => 'g', max_retries => 0)")
        .await;
    s.get("select trax.fail(job_id, token, 'no') from trax.claim_next()")
        .await;
    s.get(&many("1, 2, 3")).await;
    s.get("select trax.requeue_dead_letter(id) from trax.dead_letter")
        .await;
    s.get("select trax.schedule('m', 'a', every => '1 h', group_name => 'g'); select * from trax.tick()")
        .await;
    assert_eq!(
        s.number("select count(*) from trax.work_queue where group_name = 'g'")
            .await,
        5
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_limit_counts_the_jobs_that_wait_already_and_can_be_changed_and_removed() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    other.get(&many("1, 2")).await;
    s.get("select trax.configure_group('g', max_waiting => 3)")
        .await;
    assert_eq!(other.refusal(&many("3, 4")).await.code, "53400");
    other.get(&many("3")).await;
    assert_eq!(other.refusal(&many("4")).await.code, "53400");
    s.get("select trax.configure_group('g', max_waiting => 4)")
        .await;
    other.get(&many("4")).await;
    assert_eq!(other.refusal(&many("5")).await.code, "53400");
    // A smaller one drops nothing.
    s.get("select trax.configure_group('g', max_waiting => 2, overflow => 'drop_newest')")
        .await;
    assert_eq!(s.get(WAITING).await, "1 2 3 4");
    other.get(&many("5")).await;
    assert_eq!(s.get(DROPPED).await, "5");
    s.get("select trax.configure_group('g', max_waiting => 0)")
        .await;
    other.get(&many("6, 7, 8, 9")).await;
    assert_eq!(s.number("select count(*) from trax.admission").await, 0);
    let settings = "select max_waiting, overflow from trax.manifest_group";
    assert_eq!(s.get(settings).await, "|drop_newest");
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_jobs_of_manifests_that_wait_when_a_limit_is_set_are_not_dropped() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h', group_name => 'g'); select * from trax.tick()")
        .await;
    s.get(&many("1")).await;
    s.get("select trax.configure_group('g', max_waiting => 1, overflow => 'drop_oldest')")
        .await;
    s.get(&many("2")).await;
    let left = "select string_agg(coalesce(manifest, input::text), ' ' order by job_id) from trax.work_queue";
    assert_eq!(s.get(left).await, "m 2");
    assert_eq!(s.get(DROPPED).await, "1");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_row_that_is_dropped_leaves_its_lasting_key_free() {
    let (_db, s) = limited("drop_newest").await;
    s.get(&many("1, 2, 3")).await;
    let row = "insert into trax.new_job (task, group_name, unique_key, unique_for) values ('a', 'g', 'k', '1 day')";
    s.get(row).await;
    assert_eq!(s.get("select count(*) from trax.unique_key").await, "0");
}

#[tokio::test]
async fn a_handler_that_queues_into_a_full_group_and_completes_meets_no_deadlock() {
    let (db, mut s) = limited("drop_newest").await;
    let other = Session::of(&db).await;
    let call = "trax.enqueue('a', group_name => 'g', unique_key => 'k', on_duplicate => 'replace')";
    let first = s.number(&format!("select {call}")).await;
    let job = s.claim_one("").await;
    let handler = s.transaction().await;
    handler
        .batch_execute("select trax.enqueue('b', group_name => 'g')")
        .await
        .expect("it is queued");
    let pid = other.pid();
    let other = other.spawn(format!("select {call}"));
    let watcher = Session::of(&db).await;
    watcher.sees_waiting(pid).await;
    handler
        .batch_execute(&format!("select trax.complete({})", job.key()))
        .await
        .expect("nobody waits for the lease");
    handler.commit().await.expect("it commits");
    let (_, queued) = other.await.expect("the session ends");
    assert_ne!(queued.expect("a new job"), first.to_string());
    watcher.assert_healthy().await;
}

#[tokio::test]
async fn claims_go_on_while_a_new_limit_waits_for_a_producer() {
    let (db, mut s) = limited("reject").await;
    let worker = Session::of(&db).await;
    s.get(&many("1, 2")).await;
    let producer = s.transaction().await;
    producer.batch_execute(&many("3")).await.expect("it fits");
    let operator = Session::of(&db).await;
    let pid = operator.pid();
    let operator = operator.spawn("select trax.configure_group('g', max_waiting => 9)");
    worker.sees_waiting(pid).await;
    assert_eq!(worker.claim_ids("max_jobs => 9").await.len(), 2);
    producer.commit().await.expect("it commits");
    operator
        .await
        .expect("the session ends")
        .1
        .expect("the limit is set");
    worker.get(&many("4, 5, 6, 7, 8, 9")).await;
    worker.assert_healthy().await;
}

#[tokio::test]
async fn a_full_group_waits_for_an_uncommitted_call_and_counts_its_end() {
    for (end, fits) in [("commit", false), ("rollback", true)] {
        let (db, s) = limited("reject").await;
        s.get(&many("1")).await;
        s.get("begin").await;
        s.get(&many("2, 3")).await;
        let other = Session::of(&db).await;
        let pid = other.pid();
        let waits = other.spawn(many("4"));
        s.sees_waiting(pid).await;
        s.get(end).await;
        let (_, result) = waits.await.expect("the session ends");
        assert_eq!(result.is_ok(), fits, "{end}: {result:?}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn never_do_more_wait_at_a_commit_than_may() {
    for overflow in ["reject", "drop_newest", "drop_oldest"] {
        let (db, s) = limited(overflow).await;
        let mut callers = Vec::new();
        for caller in 0..5 {
            let session = Session::of(&db).await;
            callers.push(tokio::spawn(async move {
                let mut queued = 0;
                for call in 0..40 {
                    let count = 1 + (caller + call) % 3;
                    let inputs = (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
                    queued += match session.attempt(&many(&inputs.join(", "))).await {
                        Ok(_) => count,
                        Err(refusal) => {
                            assert_eq!(refusal.code, "53400", "{refusal}");
                            0
                        }
                    };
                }
                queued
            }));
        }
        let mut completed = 0;
        while !callers.iter().all(|caller| caller.is_finished()) {
            let waiting = s.number("select count(*) from trax.work_queue").await;
            assert!(waiting <= 3, "{overflow}: {waiting}");
            for job in s.claim("max_jobs => 2").await {
                s.get(&format!("select trax.complete({})", job.key())).await;
                completed += 1;
            }
        }
        let mut queued = 0;
        for caller in callers {
            queued += caller.await.expect("the session ends");
        }
        // Each job that was accepted is somewhere.
        let ended = s.number("select count(*) from trax.run").await;
        let waiting = s.number("select count(*) from trax.work_queue").await;
        assert_eq!(ended + waiting, queued, "{overflow}");
        assert!(waiting <= 3 && completed > 0, "{overflow}");
        s.assert_healthy().await;
    }
}
