//! Parents that complete at the same time, and edges that change meanwhile.

use super::family;
use harness::manifest::{complete, complete_one, running, state, waiting};
use harness::session::{Claimed, Refusal, Session, session};
use trax_client::testkit::Database;

const PARENTS: i64 = 50;

async fn sessions(db: &Database, count: i64) -> Vec<Session> {
    let mut sessions = Vec::new();
    for _ in 0..count {
        sessions.push(Session::of(db).await);
    }
    sessions
}

/// Triggers all parents and claims their jobs.
async fn all_running(s: &Session) -> Vec<Claimed> {
    s.get(&format!(
        "select count(trax.trigger('p' || n)) from generate_series(1, {PARENTS}) n"
    ))
    .await;
    let jobs = s.claim(&format!("max_jobs => {PARENTS}")).await;
    assert_eq!(jobs.len() as i64, PARENTS);
    jobs
}

/// Runs each session's statements at the same time as the others'; several statements end with a
/// commit. All must succeed.
async fn at_once(sessions: Vec<Session>, statements: Vec<String>) -> Vec<Session> {
    let tasks: Vec<_> = sessions
        .into_iter()
        .zip(statements)
        .map(|(session, sql)| session.spawn(sql))
        .collect();
    let mut back = Vec::new();
    for task in tasks {
        let (session, result) = task.await.expect("the task ends");
        result.expect("a completion is no error");
        back.push(session);
    }
    back
}

async fn fires_once(s: &Session, round: i32) {
    assert_eq!(s.tick("queue_due").await, 1, "round {round}");
    assert_eq!(s.tick("queue_due").await, 0, "round {round}");
    complete_one(s, "tasks => '{c}'").await;
    assert_eq!(s.tick("queue_due").await, 0, "round {round}");
}

async fn fan_in(mode: &str) {
    let (db, s) = session().await;
    family(&s, PARENTS, &format!(", depends_mode => '{mode}'")).await;
    let mut others = sessions(&db, PARENTS).await;
    for round in 0..6 {
        let jobs = all_running(&s).await;
        let statements = jobs
            .iter()
            .map(|job| format!("select trax.complete({})", job.key()))
            .collect();
        others = at_once(others, statements).await;
        fires_once(&s, round).await;
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn fifty_parents_that_complete_at_once_fire_a_child_of_all_once() {
    fan_in("all").await;
}

#[tokio::test]
async fn fifty_parents_that_complete_at_once_fire_a_child_of_any_once() {
    fan_in("any").await;
}

/// The first session locks the child; all others wait in their own transactions, and then commit
/// one after the other.
async fn fan_in_of_open_transactions(begin: &str) {
    let (db, s) = session().await;
    family(&s, PARENTS, "").await;
    let mut others = sessions(&db, PARENTS).await;
    for round in 0..2 {
        let jobs = all_running(&s).await;
        let first = others.remove(0);
        first
            .get(&format!("{begin}; select trax.complete({})", jobs[0].key()))
            .await;
        let pids: Vec<i32> = others.iter().map(Session::pid).collect();
        let tasks: Vec<_> = others
            .into_iter()
            .zip(&jobs[1..])
            .map(|(other, job)| {
                other.spawn(format!(
                    "{begin}; select trax.complete({}); commit",
                    job.key()
                ))
            })
            .collect();
        for pid in pids {
            s.sees_waiting(pid).await;
        }
        assert_eq!(state(&s, "c").await, "|f");
        first.get("commit").await;
        others = vec![first];
        for task in tasks {
            let (other, result) = task.await.expect("the task ends");
            result.expect("a completion is no error");
            others.push(other);
        }
        fires_once(&s, round).await;
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn fifty_parents_in_open_transactions_fire_the_child_once() {
    fan_in_of_open_transactions("begin").await;
}

#[tokio::test]
async fn parents_completed_under_old_snapshots_fire_the_child_or_are_refused() {
    for level in ["repeatable read", "serializable"] {
        let (db, s) = session().await;
        let old = Session::of(&db).await;
        family(&s, 2, "").await;
        let first = running(&s, "p1").await;
        let second = running(&s, "p2").await;
        old.get(&format!(
            "begin isolation level {level}; select count(*) from trax.lease"
        ))
        .await;
        complete(&s, &first).await;
        // This transaction's snapshot does not show that the other parent has succeeded.
        let sql = format!("select trax.complete({}); commit", second.key());
        match old.attempt(&sql).await {
            Ok(_) => {}
            Err(refusal) => {
                assert_eq!(refusal.code, "40001", "{level}: {refusal}");
                old.get("rollback").await;
                complete(&old, &second).await;
            }
        }
        assert_eq!(
            s.tick("queue_due").await,
            1,
            "{level}: both parents have succeeded"
        );
        s.assert_healthy().await;
    }
}

/// Runs `sql` in another session, commits the open transaction of `s` when that session waits for
/// it, and returns the result of `sql`.
async fn after_commit_of(
    db: &Database,
    s: &Session,
    other: Session,
    sql: &str,
) -> Result<String, Refusal> {
    let pid = other.pid();
    let waiting = other.spawn(sql);
    Session::of(db).await.sees_waiting(pid).await;
    s.get("commit").await;
    waiting.await.expect("the task ends").1
}

#[tokio::test]
async fn a_child_enabled_while_its_last_parent_completes_is_due() {
    let (db, s) = session().await;
    family(&s, 1, ", enabled => false").await;
    let job = running(&s, "p1").await;
    s.get(&format!("begin; select trax.complete({})", job.key()))
        .await;
    let other = Session::of(&db).await;
    let enabled = after_commit_of(&db, &s, other, "select trax.enable_manifest('c')").await;
    enabled.expect("enabling is no error");
    assert_eq!(s.tick("queue_due").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_child_that_loses_its_other_parent_while_the_last_completes_is_due() {
    let (db, s) = session().await;
    family(&s, 2, "").await;
    let job = running(&s, "p1").await;
    s.get(&format!("begin; select trax.complete({})", job.key()))
        .await;
    let other = Session::of(&db).await;
    let change = "select trax.schedule('c', 'c', depends_on => '{p1}')";
    let changed = after_commit_of(&db, &s, other, change).await;
    changed.expect("a change is no error");
    assert_eq!(s.tick("queue_due").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_completion_that_waits_for_a_change_of_the_child_sees_it() {
    let (db, s) = session().await;
    family(&s, 2, "").await;
    let job = running(&s, "p1").await;
    s.get("begin; select trax.schedule('c', 'c', depends_on => '{p1}')")
        .await;
    let other = Session::of(&db).await;
    let completion = format!("select trax.complete({})", job.key());
    let completed = after_commit_of(&db, &s, other, &completion).await;
    assert_eq!(completed.expect("a completion is no error"), "t");
    assert_eq!(s.tick("queue_due").await, 1);
    s.assert_healthy().await;
}

/// Two sessions add one half of a circle each.
async fn halves(begin: &str) {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    s.get("select trax.schedule('a', 'a'); select trax.schedule('b', 'b')")
        .await;
    other
        .get(&format!("{begin}; select count(*) from trax.manifest"))
        .await;
    s.get("begin; select trax.schedule('a', 'a', depends_on => '{b}')")
        .await;
    let half = "select trax.schedule('b', 'b', depends_on => '{a}')";
    let added = after_commit_of(&db, &s, other, half).await;
    let refusal = added.expect_err("the second half of a circle is refused");
    assert!(
        refusal.code == "22023" && refusal.detail.contains("b -> a -> b")
            || refusal.code == "40001" && begin.contains("isolation"),
        "{refusal}"
    );
    assert_eq!(
        s.number("select count(*) from trax.manifest_dependency")
            .await,
        1
    );
}

#[tokio::test]
async fn two_sessions_do_not_make_a_circle_between_them() {
    halves("begin").await;
}

#[tokio::test]
async fn two_sessions_do_not_make_a_circle_under_old_snapshots() {
    halves("begin isolation level repeatable read").await;
}

#[tokio::test]
async fn parents_of_several_children_complete_in_any_order_without_a_deadlock() {
    let (db, s) = session().await;
    family(&s, PARENTS, "").await;
    s.get(&format!(
        "select count(trax.schedule('d' || k, 'd', depends_mode => 'any', depends_on =>
             array(select 'p' || n from generate_series(1, {PARENTS}) n where n % 5 <> k)))
         from generate_series(0, 4) k"
    ))
    .await;
    let mut others = sessions(&db, 10).await;
    for _ in 0..4 {
        let jobs = all_running(&s).await;
        let statements = (0..10)
            .map(|n| {
                let mut mine: Vec<&Claimed> = jobs.iter().skip(n).step_by(10).collect();
                if n % 2 == 1 {
                    mine.reverse();
                }
                let ids: Vec<String> = mine.iter().map(|job| job.id.to_string()).collect();
                let tokens: Vec<&str> = mine.iter().map(|job| job.token.as_str()).collect();
                format!(
                    "select trax.complete_many('{{{}}}', '{{{}}}')",
                    ids.join(","),
                    tokens.join(",")
                )
            })
            .collect();
        others = at_once(others, statements).await;
        assert_eq!(s.tick("queue_due").await, 6);
        for _ in 0..6 {
            complete_one(&s, "").await;
        }
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn no_success_is_lost_to_a_cycle_that_queues_the_child_meanwhile() {
    let (db, s) = session().await;
    family(&s, PARENTS, ", depends_mode => 'any'").await;
    let jobs = all_running(&s).await;
    let statements = jobs
        .iter()
        .map(|job| format!("select trax.complete({})", job.key()))
        .collect();
    let others = sessions(&db, PARENTS).await;
    let ticking = Session::of(&db).await;
    let cycles = ticking.spawn("select trax.tick(); commit;".repeat(40));
    at_once(others, statements).await;
    let (_, result) = cycles.await.expect("the task ends");
    result.expect("a cycle has no error");
    let mut runs = 0;
    loop {
        s.tick("queue_due").await;
        if waiting(&s, "c").await == 0 {
            break;
        }
        complete_one(&s, "tasks => '{c}'").await;
        runs += 1;
    }
    assert!((1..=3).contains(&runs), "{runs} runs");
    let left = "select count(*) from trax.manifest_dependency where satisfied_at is not null";
    assert_eq!(
        s.number(left).await,
        0,
        "every success was followed by a run"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_transaction_of_several_schedules_and_another_schedule_do_not_deadlock() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    let pid = other.pid();
    let schedule = |name| format!("select trax.schedule('{name}', 'm', cron => '0 0 1 1 *')");
    for name in ["a", "b"] {
        s.get(&schedule(name)).await;
    }
    s.get(&format!("begin; {}", schedule("a"))).await;
    let task = other.spawn(format!("set lock_timeout = '3 s'; {}", schedule("b")));
    let watcher = Session::of(&db).await;
    // The call may wait or be done; the other session must be able to continue.
    let seen = format!("select state, wait_event_type from pg_stat_activity where pid = {pid}");
    harness::eventually("it waits or has ended", harness::PATIENCE, || async {
        match watcher.get(&seen).await {
            now if now == "active|Lock" || now.starts_with("idle") => Ok(()),
            now => Err(now),
        }
    })
    .await;
    s.get(&format!(
        "set local lock_timeout = '30 s'; {}",
        schedule("b")
    ))
    .await;
    s.get("commit").await;
    let (_, result) = task.await.expect("the task ends");
    result.expect("no deadlock");
}

#[tokio::test]
async fn an_activation_that_meets_the_end_of_its_parent_leaves_one_job_or_none() {
    let (db, s) = session().await;
    s.get("select trax.schedule('p', 'p'); select trax.schedule('c', 'c', depends_on => '{p}', dormant => true)")
        .await;
    for _ in 0..10 {
        let job = running(&s, "p").await;
        let activating = Session::of(&db).await.spawn("select trax.activate('c')");
        complete(&s, &job).await;
        let (_, result) = activating.await.expect("the task ends");
        match result {
            Ok(_) => {
                complete_one(&s, "tasks => '{c}'").await;
            }
            Err(refusal) => assert_eq!(refusal.code, "55000", "{refusal}"),
        }
        assert_eq!(waiting(&s, "c").await, 0);
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_child_that_is_forgotten_while_its_parent_completes_leaves_nothing() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    let pid = other.pid();
    family(&s, 1, "").await;
    let job = running(&s, "p1").await;
    s.get("begin; select trax.unschedule('c')").await;
    let completion = other.spawn(format!("select trax.complete({})", job.key()));
    let watcher = Session::of(&db).await;
    let seen = format!("select state, wait_event_type from pg_stat_activity where pid = {pid}");
    harness::eventually("it waits or has ended", harness::PATIENCE, || async {
        match watcher.get(&seen).await {
            now if now == "active|Lock" || now.starts_with("idle") => Ok(()),
            now => Err(now),
        }
    })
    .await;
    s.get("commit").await;
    let (_, result) = completion.await.expect("the task ends");
    assert_eq!(result.expect("a completion is no error"), "t");
    assert_eq!(s.tick("queue_due").await, 0);
    let left = "select count(*) from trax.manifest_dependency";
    assert_eq!(s.number(left).await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn disabling_enabling_and_changing_children_never_deadlocks_with_completions() {
    let (db, s) = session().await;
    family(&s, PARENTS, ", depends_mode => 'any'").await;
    s.get("select trax.schedule('r', 'r', run_at => now() + interval '1 h'); select trax.schedule('d', 'd', depends_on => '{c,r}')")
        .await;
    for _ in 0..3 {
        let jobs = all_running(&s).await;
        let mut others = sessions(&db, 14).await;
        let mut statements: Vec<String> = (0..10)
            .map(|n| {
                let mine = jobs.iter().skip(n).step_by(10);
                mine.map(|job| format!("select trax.complete({}); commit;", job.key()))
                    .collect()
            })
            .collect();
        statements.push(
            "select trax.disable_manifest('c'); commit; select trax.enable_manifest('c'); commit;"
                .repeat(10),
        );
        statements.push("select trax.schedule('c', 'c', depends_on => '{p1,p2}', depends_mode => 'any'); commit; select trax.schedule('c', 'c', priority => 3); commit;".repeat(10));
        statements.push("select trax.tick(); commit;".repeat(20));
        statements.push(
            "select trax.schedule('d', 'd', depends_on => '{r,c}'); commit; select trax.trigger('c'); commit;"
                .repeat(10),
        );
        others.truncate(statements.len());
        at_once(others, statements).await;
        s.get("select trax.cancel_manifest('c'), trax.cancel_manifest('d'); select trax.tick()")
            .await;
        s.get("select trax.complete(job_id, token) from trax.claim_next(max_jobs => 1000)")
            .await;
        s.get(&format!("select trax.schedule('c', 'c', depends_mode => 'any', depends_on => array(select 'p' || n from generate_series(1, {PARENTS}) n))"))
            .await;
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_child_that_appears_while_its_parent_completes_is_due_or_still_waits() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    let pid = other.pid();
    family(&s, 1, "").await;
    let job = running(&s, "p1").await;
    // The completion has read its children and waits for the first; a second one is added.
    s.get("begin; select from trax.manifest_state s join trax.manifest m using (manifest_id) where m.name = 'c' for update of s")
        .await;
    let completion = other.spawn(format!("select trax.complete({})", job.key()));
    let third = Session::of(&db).await;
    third.sees_waiting(pid).await;
    third
        .get("select trax.schedule('late', 'late', depends_on => '{p1}')")
        .await;
    s.get("rollback").await;
    let (_, result) = completion.await.expect("the task ends");
    assert_eq!(result.expect("a completion is no error"), "t");
    let satisfied = s
        .get("select satisfied_at is not null from trax.manifest_dependency d join trax.manifest m on m.manifest_id = d.child_id where m.name = 'late'")
        .await;
    let seen = (satisfied.as_str(), state(&s, "late").await);
    assert!(
        seen == ("t", "|t".to_owned()) || seen == ("f", "|f".to_owned()),
        "satisfied and due go together: {seen:?}"
    );
    s.tick("queue_due").await;
    assert_eq!(waiting(&s, "c").await, 1);
}
