//! A unique key that is alive, and a call that replaces or postpones the job that waits with it.

use harness::session::{Session, session};

const WAITING: &str = "select job_id, input, extract(epoch from run_at - queued_at)::int, group_name, priority, max_retries,
    timeout, retry_delay, concurrency_key, trace, version, waits_for, unique_key from trax.work_queue order by job_id";

/// Queues a job with the key `k`, and returns its id.
async fn put(s: &Session, arguments: &str) -> i64 {
    s.enqueue(&format!("'index', unique_key => 'k', {arguments}"))
        .await
}

#[tokio::test]
async fn keep_is_the_default_and_changes_nothing() {
    let (_db, s) = session().await;
    let first = put(&s, "input => '1'").await;
    let before = s.everything().await;
    for choice in ["null", "'keep'"] {
        let again = format!("input => '2', priority => 9, on_duplicate => {choice}");
        assert_eq!(put(&s, &again).await, first);
    }
    assert_eq!(s.everything().await, before);
}

#[tokio::test]
async fn replace_gives_input_and_options_to_the_job_that_waits_and_keeps_its_time() {
    let (_db, s) = session().await;
    let all = "input => '1', run_at => now() + interval '100 s', group_name => 'g', priority => 3, max_retries => 7,
        timeout => '9 s', retry_delay => '8 s', concurrency_key => 'c', trace => '{\"a\": 1}', version => 'v1'";
    let first = put(&s, all).await;
    let other = "input => '2', run_at => now() + interval '900 s', group_name => 'h', priority => 4, max_retries => 1,
        timeout => '5 s', retry_delay => '6 s', concurrency_key => 'd', trace => '{\"b\": 1}', version => 'v2'";
    assert_eq!(
        put(&s, &format!("{other}, on_duplicate => 'replace'")).await,
        first
    );
    assert_eq!(
        s.get(WAITING).await,
        format!("{first}|2|100|h|4|1|00:00:05|00:00:06|d|{{\"b\": 1}}|v2|time|k")
    );
    s.assert_healthy().await;
    // Options that the call leaves out are the defaults.
    assert_eq!(put(&s, "on_duplicate => 'replace'").await, first);
    assert_eq!(
        s.get(WAITING).await,
        format!("{first}|{{}}|100|default|0|||||||time|k")
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn postpone_moves_the_time_too_in_both_directions() {
    let (_db, s) = session().await;
    let first = put(&s, "run_at => now() + interval '100 s'").await;
    for (seconds, waits_for) in [(700, "time"), (50, "time"), (-50, "")] {
        let again = format!(
            "run_at => now() + interval '{seconds} s', input => '{seconds}', on_duplicate => 'postpone'"
        );
        assert_eq!(put(&s, &again).await, first);
        let sql = "select input, round(extract(epoch from run_at - now())), coalesce(waits_for, '') from trax.work_queue";
        let due = seconds.max(0);
        assert_eq!(s.get(sql).await, format!("{seconds}|{due}|{waits_for}"));
        s.assert_healthy().await;
    }
    assert_eq!(s.claim_ids("").await, [first]);
}

#[tokio::test]
async fn a_ready_job_that_is_postponed_is_not_claimed_before_its_time() {
    let (_db, s) = session().await;
    let first = put(&s, "input => '1'").await;
    let second = s.enqueue("'index'").await;
    put(
        &s,
        "run_at => now() + interval '1 h', on_duplicate => 'postpone'",
    )
    .await;
    assert_eq!(s.claim_ids("max_jobs => 10").await, [second]);
    s.get("update trax.work_queue set run_at = now()").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    assert_eq!(s.claim_ids("max_jobs => 10").await, [first]);
}

#[tokio::test]
async fn a_replaced_job_is_claimed_from_its_new_lane_at_its_age() {
    let (_db, s) = session().await;
    let first = put(&s, "group_name => 'g'").await;
    let others = s.enqueue("'index', group_name => 'h'").await;
    assert_eq!(
        s.claim_ids("groups => '{h}', max_jobs => 9").await,
        [others]
    );
    put(&s, "group_name => 'h', on_duplicate => 'replace'").await;
    assert_eq!(s.claim("groups => '{g}'").await, []);
    assert_eq!(s.claim_ids("groups => '{h}'").await, [first]);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_between_its_attempts_is_replaced_and_keeps_its_attempts() {
    let (_db, s) = session().await;
    let first = put(&s, "input => '1'").await;
    let job = s.claim_one("").await;
    let fail = format!("select trax.fail({}, 'no', retry_in => '1 h')", job.key());
    assert_eq!(s.get(&fail).await, "retrying");
    assert_eq!(
        put(&s, "input => '2', on_duplicate => 'replace'").await,
        first
    );
    s.get(&format!("select trax.run_now({first})")).await;
    let seen = s
        .get("select job_id, attempt, input from trax.claim_next()")
        .await;
    assert_eq!(seen, format!("{first}|2|2"));
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_that_runs_is_left_alone_and_a_new_one_takes_the_key_over() {
    for choice in ["replace", "postpone"] {
        let (_db, s) = session().await;
        let first = put(&s, "input => '1'").await;
        let job = s.claim_one("").await;
        let again = |n: i32| {
            format!("input => '{n}', run_at => now() + interval '1 h', on_duplicate => '{choice}'")
        };
        let second = put(&s, &again(2)).await;
        assert_ne!(second, first);
        s.assert_healthy().await;
        // The next calls meet the job that waits, and one that keeps gets its id.
        assert_eq!(put(&s, &again(3)).await, second);
        assert_eq!(put(&s, "input => '4'").await, second);
        let input = format!("select input from trax.lease where job_id = {first}");
        assert_eq!(s.get(&input).await, "1");
        assert_eq!(
            s.get(&format!("select trax.complete({})", job.key())).await,
            "t"
        );
        s.assert_healthy().await;
        s.get(&format!("select trax.run_now({second})")).await;
        let seen = s.get("select job_id, input from trax.claim_next()").await;
        assert_eq!(seen, format!("{second}|3"));
    }
}

#[tokio::test]
async fn a_job_that_lost_its_key_is_retried_and_dies_without_it() {
    let (_db, s) = session().await;
    let first = put(&s, "max_retries => 1").await;
    let job = s.claim_one("").await;
    let second = put(
        &s,
        "run_at => now() + interval '1 h', on_duplicate => 'replace'",
    )
    .await;
    s.get(&format!(
        "select trax.fail({}, 'no', retry_in => '0')",
        job.key()
    ))
    .await;
    s.assert_healthy().await;
    assert_eq!(put(&s, "on_duplicate => 'replace'").await, second);
    let job = s.claim_one("").await;
    assert_eq!(job.id, first);
    s.get(&format!("select trax.fail({}, 'no')", job.key()))
        .await;
    s.get("select trax.requeue_dead_letter(id) from trax.dead_letter")
        .await;
    s.assert_healthy().await;
    assert_eq!(
        s.get("select job_id from trax.unique_key").await,
        second.to_string()
    );
}

#[tokio::test]
async fn a_job_with_recorded_steps_counts_as_begun() {
    let (_db, s) = session().await;
    let first = put(&s, "input => '1'").await;
    let job = s.claim_one("").await;
    s.get(&format!(
        "select trax.record_step({0}, 'charge'); select trax.release({0}, '1 h')",
        job.key()
    ))
    .await;
    let second = put(&s, "input => '2', on_duplicate => 'replace'").await;
    assert_ne!(second, first);
    let input = format!("select input, unique_key from trax.work_queue where job_id = {first}");
    assert_eq!(s.get(&input).await, "1|");
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_period_of_a_key_is_not_cut_short() {
    let (_db, s) = session().await;
    let key = "unique_for => '1 h', on_duplicate => 'replace'";
    let first = put(&s, &format!("input => '1', {key}")).await;
    assert_eq!(put(&s, &format!("input => '2', {key}")).await, first);
    let prolonged = "unique_for => '2 h', on_duplicate => 'replace'";
    assert_eq!(put(&s, prolonged).await, first, "it waits");
    let alive = "select alive_until > now() + interval '119 min' from trax.unique_key";
    assert_eq!(s.get(alive).await, "t");
    let job = s.claim_one("").await;
    let before = s.everything().await;
    assert_eq!(put(&s, key).await, first, "it runs");
    assert_eq!(s.everything().await, before);
    s.get(&format!("select trax.complete({})", job.key())).await;
    assert_eq!(put(&s, key).await, first, "it has ended");
    s.get("update trax.unique_key set alive_until = now() - interval '1 s'")
        .await;
    assert_ne!(put(&s, key).await, first, "its period is over");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_of_another_task_is_refused_and_stays() {
    let (_db, s) = session().await;
    let first = put(&s, "input => '1'").await;
    let before = s.everything().await;
    let refusal = s
        .refusal("select trax.enqueue('other', unique_key => 'k', on_duplicate => 'replace')")
        .await;
    assert_eq!(refusal.code, "55000");
    assert!(refusal.message.contains("task \"index\""), "{refusal}");
    let refusal = s
        .refusal(
            "select trax.enqueue_sql('select 1', unique_key => 'k', on_duplicate => 'replace')",
        )
        .await;
    assert_eq!(refusal.code, "55000");
    assert_eq!(s.everything().await, before);
    assert_eq!(s.enqueue("'other', unique_key => 'k'").await, first);
}

#[tokio::test]
async fn a_statement_is_replaced_with_its_role() {
    let (_db, s) = session().await;
    s.get("create role reports login").await;
    let put = |command: &str, more: &str| {
        format!(
            "select trax.enqueue_sql('{command}', run_at => now() + interval '1 h', unique_key => 'k', on_duplicate => 'replace'{more})"
        )
    };
    let first = s.number(&put("select 1", "")).await;
    let again = put("select 2", ", run_as => 'reports'");
    assert_eq!(s.number(&again).await, first);
    let seen = "select input ->> 'command', run_as from trax.work_queue";
    assert_eq!(s.get(seen).await, "select 2|reports");
    s.assert_healthy().await;
}

#[tokio::test]
async fn rows_of_new_job_replace_each_other_in_their_order() {
    let (_db, s) = session().await;
    let waits = put(&s, "input => '0'").await;
    s.get(
        "insert into trax.new_job (task, input, unique_key, on_duplicate)
        select 'index', to_jsonb(n), case n % 2 when 0 then 'k' else 'l' end, 'replace' from generate_series(1, 3000) n",
    )
    .await;
    let seen = "select unique_key, input, job_id = $ from trax.work_queue order by unique_key";
    let seen = seen.replace('$', &waits.to_string());
    assert_eq!(s.get(&seen).await, "k|3000|t\nl|2999|f");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_child_takes_the_place_of_the_job_that_waits() {
    let (_db, s) = session().await;
    s.enqueue("'parent'").await;
    let parent = s.claim_one("").await;
    let first = put(&s, "input => '1'").await;
    let spawn = format!(
        "select trax.spawn({}, 'c', 'index', '2', unique_key => 'k', on_duplicate => 'replace')",
        parent.key()
    );
    assert_eq!(s.number(&spawn).await, first);
    assert_eq!(s.number(&spawn).await, first);
    assert_eq!(s.get("select input from trax.work_queue").await, "2");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_that_is_claimed_at_the_same_moment_runs_as_it_was() {
    let (db, s) = session().await;
    let first = put(&s, "input => '1'").await;
    s.get("begin").await;
    let job = s.claim_one("").await;
    let other = Session::of(&db).await;
    let pid = other.pid();
    let waits = other
        .spawn("select trax.enqueue('index', '2', unique_key => 'k', on_duplicate => 'replace')");
    s.sees_waiting(pid).await;
    s.get("commit").await;
    let (other, second) = waits.await.expect("the session ends");
    let second: i64 = second.expect("it is queued").parse().expect("an id");
    assert_ne!(second, first);
    other.assert_healthy().await;
    let input = format!("select input from trax.lease where job_id = {first}");
    assert_eq!(s.get(&input).await, "1");
    s.get(&format!("select trax.complete({})", job.key())).await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_claim_that_is_rolled_back_leaves_the_job_to_be_replaced() {
    let (db, s) = session().await;
    let first = put(&s, "input => '1'").await;
    s.get("begin").await;
    s.claim_one("").await;
    let other = Session::of(&db).await;
    let pid = other.pid();
    let waits = other
        .spawn("select trax.enqueue('index', '2', unique_key => 'k', on_duplicate => 'replace')");
    s.sees_waiting(pid).await;
    s.get("rollback").await;
    let (_other, second) = waits.await.expect("the session ends");
    assert_eq!(second.expect("it is replaced"), first.to_string());
    assert_eq!(
        s.get("select job_id, input from trax.claim_next()").await,
        format!("{first}|2")
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_is_not_claimed_while_it_is_being_replaced() {
    let (db, s) = session().await;
    let first = put(&s, "input => '1'").await;
    s.get("begin").await;
    put(&s, "input => '2', on_duplicate => 'replace'").await;
    let other = Session::of(&db).await;
    assert_eq!(other.claim("").await, []);
    s.get("commit").await;
    let seen = other
        .get("select job_id, input from trax.claim_next()")
        .await;
    assert_eq!(seen, format!("{first}|2"));
}

#[tokio::test]
async fn of_two_that_replace_the_later_commit_wins() {
    let (db, s) = session().await;
    let first = put(&s, "input => '1'").await;
    s.get("begin").await;
    put(&s, "input => '2', on_duplicate => 'replace'").await;
    let other = Session::of(&db).await;
    let pid = other.pid();
    let waits = other
        .spawn("select trax.enqueue('index', '3', unique_key => 'k', on_duplicate => 'replace')");
    s.sees_waiting(pid).await;
    s.get("commit").await;
    let (_other, id) = waits.await.expect("the session ends");
    assert_eq!(id.expect("it is replaced"), first.to_string());
    assert_eq!(s.get("select input from trax.work_queue").await, "3");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_call_waits_for_the_uncommitted_job_and_replaces_it() {
    for (end, input) in [("commit", "2"), ("rollback", "2")] {
        let (db, s) = session().await;
        s.get("begin").await;
        let first = put(&s, "input => '1'").await;
        let other = Session::of(&db).await;
        let pid = other.pid();
        let waits = other.spawn(
            "select trax.enqueue('index', '2', unique_key => 'k', on_duplicate => 'replace')",
        );
        s.sees_waiting(pid).await;
        s.get(end).await;
        let (_other, id) = waits.await.expect("the session ends");
        let is_first = id.expect("it is queued") == first.to_string();
        assert_eq!(is_first, end == "commit");
        assert_eq!(s.get("select input from trax.work_queue").await, input);
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_call_waits_for_the_end_of_the_job_and_queues_a_new_one() {
    let (db, s) = session().await;
    let first = put(&s, "input => '1'").await;
    let job = s.claim_one("").await;
    s.get("begin").await;
    s.get(&format!("select trax.complete({})", job.key())).await;
    let other = Session::of(&db).await;
    let pid = other.pid();
    let waits = other
        .spawn("select trax.enqueue('index', '2', unique_key => 'k', on_duplicate => 'replace')");
    s.sees_waiting(pid).await;
    s.get("commit").await;
    let (_other, id) = waits.await.expect("the session ends");
    assert_ne!(id.expect("it is queued"), first.to_string());
    assert_eq!(s.get("select input from trax.work_queue").await, "2");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_replaced_job_leaves_its_place_before_a_key_to_the_next() {
    let (_db, s) = session().await;
    s.enqueue("'a', concurrency_key => 'c'").await;
    let running = s.claim_one("").await;
    let waits = put(&s, "concurrency_key => 'c'").await;
    let blocked = s.enqueue("'index', concurrency_key => 'c'").await;
    // Both are blocked, and the first is let in.
    assert_eq!(s.claim("max_jobs => 9").await, []);
    s.get(&format!("select trax.complete({})", running.key()))
        .await;
    put(
        &s,
        "run_at => now() + interval '1 h', on_duplicate => 'postpone'",
    )
    .await;
    s.get("select * from trax.tick()").await;
    assert_eq!(s.claim_ids("max_jobs => 9").await, [blocked]);
    assert_ne!(waits, blocked);
    s.assert_healthy().await;
}

#[tokio::test]
async fn many_callers_leave_one_job_that_waits() {
    let (db, s) = session().await;
    let mut callers = Vec::new();
    for caller in 0..6 {
        let calls = (0..40)
            .map(|n| {
                format!(
                    "select trax.enqueue('index', '{}', unique_key => 'k', on_duplicate => 'replace');",
                    caller * 1000 + n
                )
            })
            .collect::<String>();
        callers.push(Session::of(&db).await.spawn(calls));
    }
    let mut claimed = 0;
    while !callers.iter().all(|caller| caller.is_finished()) {
        assert!(
            s.number("select count(*) from trax.work_queue where unique_key is not null")
                .await
                <= 1
        );
        for job in s.claim("max_jobs => 10").await {
            claimed += 1;
            assert_eq!(
                s.get(&format!("select trax.complete({})", job.key())).await,
                "t"
            );
        }
    }
    for caller in callers {
        let (_, result) = caller.await.expect("the session ends");
        result.expect("each call returns a job");
    }
    let left = s.claim_ids("max_jobs => 10").await.len();
    assert!(left <= 1 && claimed + left > 0, "{claimed} {left}");
    s.assert_healthy().await;
}
