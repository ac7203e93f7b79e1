//! Children: spawned once, and awaited.

use super::{place, running, steps};
use harness::limit::waits_or_ends;
use harness::session::{Claimed, Session, session};

fn spawn(job: &Claimed, step: &str) -> String {
    format!(
        "select trax.spawn({}, '{step}', 'child', '{{\"n\": 1}}')",
        job.key()
    )
}

fn wait(job: &Claimed, step: &str, options: &str) -> String {
    format!(
        "select * from trax.await_children({}, '{step}'{options})",
        job.key()
    )
}

/// Completes the next child.
async fn complete_child(s: &Session, output: &str) -> i64 {
    let child = s.claim_one("tasks => '{child}'").await;
    s.get(&format!(
        "select trax.complete({}, '{output}')",
        child.key()
    ))
    .await;
    child.id
}

#[tokio::test]
async fn a_child_is_spawned_once_for_each_step() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    let child = s.number(&spawn(&job, "a")).await;
    assert_eq!(s.number(&spawn(&job, "a")).await, child);
    let other = s.number(&spawn(&job, "b")).await;
    assert_ne!(other, child);
    let parent = "select job_id, parent_job_id, task, input from trax.work_queue order by 1";
    let id = job.id;
    assert_eq!(
        s.get(parent).await,
        format!("{child}|{id}|child|{{\"n\": 1}}\n{other}|{id}|child|{{\"n\": 1}}")
    );
    assert_eq!(
        steps(&s, id).await,
        format!("a|child|{child}|t\nb|child|{other}|t")
    );
    s.get(&format!("select trax.release({})", job.key())).await;
    assert_eq!(s.get(&spawn(&job, "c")).await, "", "the lease is lost");
    complete_child(&s, "1").await;
    let run = "select parent_job_id from trax.run";
    assert_eq!(s.get(run).await, id.to_string());
    s.assert_healthy().await;
}

#[tokio::test]
async fn two_steps_may_have_the_same_child_and_wait_for_it_twice() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    for step in ["a", "b"] {
        let spawn = format!(
            "select trax.spawn({}, '{step}', 'child', unique_key => 'k')",
            job.key()
        );
        s.get(&spawn).await;
    }
    let soon = ", until => clock_timestamp() + interval '1 hour'";
    assert_eq!(s.get(&wait(&job, "soon", soon)).await, "suspended|");
    s.get(
        "update trax.work_queue set wait_until = now() where wait_until is not null;
         update trax.step set wait = wait || jsonb_build_object('until', now()) where wait ? 'until'",
    )
    .await;
    s.get("select * from trax.tick()").await;
    let job = s.claim_one("tasks => '{flow}'").await;
    let timed_out = s.get(&wait(&job, "soon", soon)).await;
    assert!(timed_out.starts_with("timed_out|"), "{timed_out}");
    assert_eq!(s.get(&wait(&job, "all", "")).await, "suspended|");
    complete_child(&s, "1").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    let job = s.claim_one("tasks => '{flow}'").await;
    let ended = s.get(&wait(&job, "all", "")).await;
    assert!(ended.starts_with("ended|"), "{ended}");
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_answer_on_thousands_of_children_takes_one_pass() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    s.get(&format!(
        "select count(trax.spawn({}, 'child ' || n, 'child')) from generate_series(1, 8000) n",
        job.key()
    ))
    .await;
    let complete = "select count(*) from (
            select array_agg(job_id) as ids, array_agg(token) as tokens
            from trax.claim_next(max_jobs => 1000, tasks => '{child}')
        ) c
        cross join lateral trax.complete_many(c.ids, c.tokens) where c.ids is not null";
    for _ in 0..8 {
        assert_eq!(s.get(complete).await, "1000");
    }
    // In one pass for each child it took 15 s.
    s.get("set statement_timeout = '5 s'").await;
    let shown = format!(
        "select state, jsonb_array_length(children) from trax.await_children({}, 'all of them')",
        job.key()
    );
    assert_eq!(s.get(&shown).await, "ended|8000");
}

#[tokio::test]
async fn a_parent_sleeps_until_all_its_children_have_ended() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    let (a, b) = (
        s.number(&spawn(&job, "a")).await,
        s.number(&spawn(&job, "b")).await,
    );
    assert_eq!(s.get(&wait(&job, "w", "")).await, "suspended|");
    assert_eq!(place(&s, job.id).await, "jobs|0|3");
    s.tick("promote_delayed").await;
    complete_child(&s, "1").await;
    assert_eq!(s.tick("promote_delayed").await, 0);
    let second = s.claim_one("tasks => '{child}'").await;
    s.get(&format!(
        "select trax.fail({}, 'no', permanent => true)",
        second.key()
    ))
    .await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    let again = s.claim_one("").await;
    let ended = format!(
        "ended|[{{\"step\": \"a\", \"error\": null, \"state\": \"completed\", \"job_id\": {a}, \"output\": 1}}, {{\"step\": \"b\", \"error\": \"no\", \"state\": \"failed\", \"job_id\": {b}, \"output\": null}}]"
    );
    assert_eq!(s.get(&wait(&again, "w", "")).await, ended);
    assert_eq!(s.get(&wait(&again, "w", "")).await, ended, "on a replay");
    let left = "select (select count(*) from trax.need), (select count(*) from trax.need_event)";
    assert_eq!(s.get(left).await, "0|0");
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_first_end_is_enough_for_a_wait_for_any() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    for step in ["a", "b", "c"] {
        s.get(&spawn(&job, step)).await;
    }
    assert_eq!(s.get(&wait(&job, "w", ", 'any'")).await, "suspended|");
    complete_child(&s, "1").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    let again = s.claim_one("tasks => '{flow}'").await;
    let states = "select state, (select string_agg(c ->> 'state', ' ') from jsonb_array_elements(children) c) from trax.await_children($, 'w', 'any')";
    let states = states.replace('$', &again.key());
    assert_eq!(s.get(&states).await, "ended|completed queued queued");
    assert_eq!(s.get(&wait(&again, "rest", "")).await, "suspended|");
    complete_child(&s, "2").await;
    assert_eq!(s.tick("promote_delayed").await, 0);
    complete_child(&s, "3").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_wait_for_no_children_is_over_and_one_has_a_time() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    assert_eq!(s.get(&wait(&job, "none", "")).await, "ended|[]");
    s.get(&spawn(&job, "a")).await;
    let past = ", until => now() - interval '1 s'";
    assert!(
        s.get(&wait(&job, "w", past))
            .await
            .starts_with("timed_out|[{")
    );
    let refusal = s.refusal(&wait(&job, "x", ", 'some'")).await;
    assert_eq!(
        (refusal.code.as_str(), refusal.message.as_str()),
        ("22023", "mode \"some\" does not exist")
    );
}

#[tokio::test]
async fn a_child_that_ends_while_its_parent_is_suspended_wakes_it() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    let job = running(&s).await;
    s.get(&spawn(&job, "a")).await;
    let child = s.claim_one("tasks => '{child}'").await;
    // The end of the child is committed, and a cycle has taken its event, before the parent's wait.
    s.get("begin").await;
    assert_eq!(s.get(&wait(&job, "w", "")).await, "suspended|");
    other
        .get(&format!("select trax.complete({})", child.key()))
        .await;
    assert_eq!(other.tick("promote_delayed").await, 0);
    s.get("commit").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    let woken = s.claim_one("").await;
    s.get(&format!("select trax.complete({})", woken.key()))
        .await;
    // The wait is committed before the end of the child.
    let job = running(&s).await;
    s.get(&spawn(&job, "a")).await;
    let child = s.claim_one("tasks => '{child}'").await;
    other.get("begin").await;
    other
        .get(&format!("select trax.complete({})", child.key()))
        .await;
    assert_eq!(s.get(&wait(&job, "w", "")).await, "suspended|");
    assert_eq!(s.tick("promote_delayed").await, 0);
    other.get("commit").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_child_with_a_live_unique_key_is_the_job_that_has_it() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    let known = s.enqueue("'child', unique_key => 'k'").await;
    let spawn = format!(
        "select trax.spawn({}, 'a', 'child', unique_key => 'k')",
        job.key()
    );
    assert_eq!(s.number(&spawn).await, known);
    assert_eq!(s.number(&spawn).await, known);
    assert_eq!(steps(&s, job.id).await, format!("a|child|{known}|t"));
    assert_eq!(s.get(&wait(&job, "w", "")).await, "suspended|");
    s.tick("promote_delayed").await;
    complete_child(&s, "1").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cancel_leaves_the_job_of_another_that_has_the_key_of_a_child() {
    let (_db, s) = session().await;
    let other = s.enqueue("'other', unique_key => 'invoice 7'").await;
    let job = running(&s).await;
    let spawned = format!(
        "select trax.spawn({}, 'u', 'sum', '[1]', unique_key => 'invoice 7')",
        job.key()
    );
    assert_eq!(s.number(&spawned).await, other);
    let own = format!("select trax.spawn({}, 'own', 'sum')", job.key());
    let own = s.number(&own).await;
    s.get(&format!(
        "select * from trax.await_children({}, 'all')",
        job.key()
    ))
    .await;
    s.get(&format!("select trax.cancel({})", job.id)).await;
    let left = "select job_id from trax.work_queue";
    assert_eq!(s.number(left).await, other);
    let ended = format!("select state from trax.job where job_id = {own}");
    assert_eq!(s.get(&ended).await, "cancelled");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_that_waits_for_another_is_not_its_child() {
    let (_db, s) = session().await;
    let keyed = |key: &str, step: &str, unique: &str| {
        format!("select trax.spawn({key}, '{step}', 'flow', unique_key => '{unique}')")
    };
    let id = s.enqueue("'flow', unique_key => 'root'").await;
    let root = s.claim_one("").await;
    let own = s.refusal(&keyed(&root.key(), "own", "root")).await;
    assert_eq!(own.code, "55000");
    assert_eq!(
        own.message,
        format!("job {id} itself has the unique key of the child")
    );
    assert!(own.hint.contains("unique_key =>"), "{own}");
    s.get(&keyed(&root.key(), "c", "child")).await;
    let child = s.claim_one("").await;
    s.get(&keyed(&child.key(), "g", "grandchild")).await;
    let grandchild = s.claim_one("").await;
    for unique in ["root", "child"] {
        let circle = s.refusal(&keyed(&grandchild.key(), "up", unique)).await;
        assert_eq!(circle.code, "55000", "{circle}");
        assert!(
            circle
                .message
                .ends_with(&format!("waits for job {}", grandchild.id))
        );
    }
    // Also without a parent: it needs the job already.
    s.enqueue("'flow', unique_key => 'shared'").await;
    let shared = s.claim_one("").await;
    assert_eq!(
        s.number(&keyed(&root.key(), "s", "shared")).await,
        shared.id
    );
    s.get(&wait(&root, "w", "")).await;
    let circle = s.refusal(&keyed(&shared.key(), "up", "root")).await;
    assert_eq!(circle.code, "55000", "{circle}");
    // An ended job keeps its key for a time, and ends no wait.
    let ended = "'flow', unique_key => 'ended', unique_for => '1 h'";
    let ended = s.enqueue(ended).await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.spawn({}, 'c', 'flow')", job.key()))
        .await;
    s.get(&format!("select trax.complete({})", job.key())).await;
    let orphan = s.claim_one("").await;
    assert_eq!(s.number(&keyed(&orphan.key(), "up", "ended")).await, ended);
    s.assert_healthy().await;
}

/// Two executed jobs, each of which is a child of the other.
async fn of_each_other(s: &Session) -> Vec<Claimed> {
    let mut jobs = Vec::new();
    for key in ["one", "other"] {
        s.enqueue(&format!("'flow', unique_key => '{key}'")).await;
        jobs.push(s.claim_one("").await);
    }
    for (job, key) in jobs.iter().zip(["other", "one"]) {
        s.get(&format!(
            "select trax.spawn({}, 'c', 'flow', unique_key => '{key}')",
            job.key()
        ))
        .await;
    }
    jobs
}

#[tokio::test]
async fn of_two_jobs_that_are_children_of_each_other_only_one_waits() {
    let (_db, s) = session().await;
    let jobs = of_each_other(&s).await;
    let (one, other) = (&jobs[0], &jobs[1]);
    assert_eq!(s.get(&wait(one, "w", "")).await, "suspended|");
    for mode in ["", ", 'any'"] {
        let circle = s.refusal(&wait(other, "w", mode)).await;
        assert_eq!(circle.code, "55000", "{circle}");
    }
    let until = ", until => now() + interval '1 h'";
    assert_eq!(s.get(&wait(other, "w", until)).await, "suspended|");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_wait_for_any_may_be_in_a_circle_if_a_child_is_in_none() {
    let (_db, s) = session().await;
    let jobs = of_each_other(&s).await;
    let (one, other) = (&jobs[0], &jobs[1]);
    assert_eq!(s.get(&wait(one, "w", "")).await, "suspended|");
    s.get(&spawn(other, "own")).await;
    assert_eq!(s.get(&wait(other, "w", ", 'any'")).await, "suspended|");
    complete_child(&s, "1").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn of_two_waits_for_each_other_that_begin_at_once_one_is_refused() {
    let (db, s) = session().await;
    let jobs = of_each_other(&s).await;
    let (one, other) = (&jobs[0], &jobs[1]);
    let second = Session::of(&db).await;
    let pid = second.pid();
    s.get("begin").await;
    assert_eq!(s.get(&wait(one, "w", "")).await, "suspended|");
    let waiting = second.spawn(wait(other, "w", ""));
    waits_or_ends(&s, pid, &waiting).await;
    s.get("commit").await;
    let (_, refused) = waiting.await.expect("it ends");
    let circle = refused.expect_err("each would wait for the other");
    assert_eq!(circle.code, "55000", "{circle}");
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_end_of_a_job_that_another_just_begins_to_await_is_not_missed() {
    let (db, s) = session().await;
    let ending = Session::of(&db).await;
    let first = running(&s).await;
    s.get(&spawn(&first, "a")).await;
    assert_eq!(s.get(&wait(&first, "w", "")).await, "suspended|");
    s.tick("promote_delayed").await;
    s.get("select trax.configure_group('g', max_waiting => 1, overflow => 'drop_oldest')")
        .await;
    for is_dropped in [false, true] {
        s.enqueue("'shared', group_name => 'g', unique_key => 'k'")
            .await;
        let job = running(&s).await;
        s.get(&format!(
            "select trax.spawn({}, 'u', 'shared', unique_key => 'k')",
            job.key()
        ))
        .await;
        let end = match is_dropped {
            true => "select trax.enqueue('next', group_name => 'g')".to_owned(),
            false => {
                let shared = s.claim_one("tasks => '{shared}'").await;
                format!("select trax.complete({})", shared.key())
            }
        };
        ending.get(&format!("begin; {end}")).await;
        assert_eq!(s.get(&wait(&job, "w", "")).await, "suspended|");
        assert_eq!(s.tick("promote_delayed").await, 0);
        ending.get("commit").await;
        assert_eq!(s.tick("promote_delayed").await, 1, "{end}");
        let woken = s.claim_one("tasks => '{flow}'").await;
        s.get(&format!("select trax.complete({})", woken.key()))
            .await;
    }
    s.assert_healthy().await;
}
