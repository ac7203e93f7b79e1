//! Enqueueing: ids, unique keys, delays, priorities, and the effects of a rollback.

mod change;
mod explain;
mod on_duplicate;
mod overflow;
mod unique_for;

use harness::scheduler::{scheduler_of, scheduling};
use harness::session::{Session, session};
use harness::{PATIENCE, eventually};

#[tokio::test]
async fn enqueue_gives_the_id_of_a_waiting_job() {
    let (_db, s) = session().await;
    let id = s
        .enqueue("'report.build', '{\"day\": 1}', group_name => 'g', priority => 7")
        .await;
    let job = "select job_id, state, attempt, task, input, group_name, priority, manifest, worker,
                   run_at = queued_at, started_at, finished_at
               from trax.job";
    let seen = s.get(job).await;
    assert_eq!(
        seen,
        format!("{id}|queued|0|report.build|{{\"day\": 1}}|g|7|||t||")
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_without_options_has_the_defaults() {
    let (_db, s) = session().await;
    s.enqueue("task => 'a'").await;
    s.enqueue("task => 'a', input => null").await;
    let sql = "select input, group_name, priority, max_retries, timeout, waits_for, attempts
               from trax.work_queue order by job_id";
    assert_eq!(s.get(sql).await, "{}|default|0||||0\n{}|default|0||||0");
}

#[tokio::test]
async fn every_option_of_enqueue_reaches_the_lease() {
    let (_db, s) = session().await;
    s.enqueue(
        "'a', '[1]', group_name => 'g', priority => 31, max_retries => 9, timeout => '90 s',
         unique_key => 'u', concurrency_key => 'c', trace => '{\"id\": 5}', retry_delay => '7 s'",
    )
    .await;
    let claimed = "select attempt, max_attempts, task, input, group_name, timeout, trace from trax.claim_next()";
    assert_eq!(s.get(claimed).await, "1|10|a|[1]|g|00:01:30|{\"id\": 5}");
    let lease = "select priority, max_retries, unique_key, concurrency_key, timeout_at - started_at, retry_delay from trax.lease";
    assert_eq!(s.get(lease).await, "31|9|u|c|00:01:30|00:00:07");
}

#[tokio::test]
async fn enqueue_many_gives_ids_in_the_order_of_the_inputs() {
    let (_db, s) = session().await;
    let sql = "with made as (
                   select e.id, e.position
                   from rows from (trax.enqueue_many('a', array(select to_jsonb(n) from generate_series(1, 5000) n)))
                       with ordinality as e (id, position)
               )
               select count(*) from made";
    assert_eq!(s.number(sql).await, 5000);
    let wrong = "with numbered as (
                     select input::int as input, row_number() over (order by job_id) as position from trax.work_queue
                 )
                 select count(*) from numbered where input <> position";
    assert_eq!(s.number(wrong).await, 0);
    let ids = s
        .get("select * from trax.enqueue_many('b', array['10', '20', '30']::jsonb[])")
        .await;
    let inputs = s
        .get("select job_id from trax.work_queue where task = 'b' order by input::int")
        .await;
    assert_eq!(ids, inputs);
}

#[tokio::test]
async fn enqueue_many_of_nothing_gives_nothing() {
    let (_db, s) = session().await;
    assert_eq!(
        s.get("select * from trax.enqueue_many('a', '{}')").await,
        ""
    );
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 0);
}

#[tokio::test]
async fn enqueue_many_gives_its_options_to_every_job() {
    let (_db, s) = session().await;
    s.get(
        "select * from trax.enqueue_many('a', array['1', '2']::jsonb[], group_name => 'g', priority => 3,
             max_retries => 0, timeout => '1 h', concurrency_key => 'c', trace => '7', run_at => '2099-01-01Z',
             retry_delay => '7 s')",
    )
    .await;
    let sql = "select distinct group_name, priority, max_retries, timeout, concurrency_key, trace, retry_delay, waits_for,
                   run_at at time zone 'UTC'
               from trax.work_queue";
    assert_eq!(
        s.get(sql).await,
        "g|3|0|01:00:00|c|7|00:00:07|time|2099-01-01 00:00:00"
    );
}

#[tokio::test]
async fn a_unique_key_that_waits_gives_its_job_and_queues_nothing() {
    let (_db, s) = session().await;
    let first = s.enqueue("'a', '1', unique_key => 'k'").await;
    let before = s.everything().await;
    assert_eq!(
        s.enqueue("'other', '2', unique_key => 'k', priority => 9")
            .await,
        first
    );
    assert_eq!(s.everything().await, before);
    assert_ne!(
        s.enqueue("'a', unique_key => 'K'").await,
        first,
        "keys are compared exactly"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_unique_key_of_several_inputs_is_refused_as_only_one_would_have_a_job() {
    let (_db, s) = session().await;
    let many = |inputs: &str| {
        format!("select * from trax.enqueue_many('a', '{inputs}', unique_key => 'k')")
    };
    for inputs in ["{1,2,3}", "{1,1}"] {
        let refusal = s.refusal(&many(inputs)).await;
        assert_eq!(refusal.code, "22023", "{refusal}");
        for words in [
            "unique_key",
            "the others would have no job",
            "trax.enqueue(task, input, unique_key => ...)",
        ] {
            assert!(refusal.to_string().contains(words), "{refusal}");
        }
    }
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 0);
    let id = s.get(&many("{1}")).await;
    assert_eq!(s.get(&many("{2}")).await, id, "the live job has the key");
    assert_eq!(s.get(&many("{}")).await, "");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_unique_key_is_alive_while_its_job_executes() {
    let (_db, s) = session().await;
    let first = s.enqueue("'a', unique_key => 'k'").await;
    s.claim_one("").await;
    assert_eq!(s.enqueue("'a', unique_key => 'k'").await, first);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_unique_key_is_alive_between_attempts() {
    let (_db, s) = session().await;
    let first = s.enqueue("'a', unique_key => 'k'").await;
    let job = s.claim_one("").await;
    s.get(&format!(
        "select trax.fail({}, 'no', retry_in => '0')",
        job.key()
    ))
    .await;
    assert_eq!(s.enqueue("'a', unique_key => 'k'").await, first);
    let job = s.claim_one("").await;
    s.get(&format!("select trax.release({})", job.key())).await;
    assert_eq!(s.enqueue("'a', unique_key => 'k'").await, first);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_unique_key_is_free_after_every_kind_of_end() {
    let (_db, s) = session().await;
    let ends = [
        "select trax.complete({})",
        "select trax.fail({}, 'no', permanent => true)",
        "select trax.cancel({id}); select trax.acknowledge_cancel({})",
        "update trax.lease set lease_expires_at = started_at, reap_at = started_at, max_retries = 0;
         select * from trax.tick()",
    ];
    for end in ends {
        let first = s.enqueue("'a', unique_key => 'k'").await;
        let job = s.claim_one("").await;
        s.get(
            &end.replace("{id}", &job.id.to_string())
                .replace("{}", &job.key()),
        )
        .await;
        assert_eq!(
            s.number("select count(*) from trax.unique_key").await,
            0,
            "{end}"
        );
        let second = s.enqueue("'a', unique_key => 'k'").await;
        assert_ne!(first, second, "{end}");
        assert_eq!(
            s.get(&format!("select trax.cancel({second})")).await,
            "cancelled"
        );
        assert_eq!(
            s.number("select count(*) from trax.unique_key").await,
            0,
            "a cancel while it waits"
        );
        s.assert_healthy().await;
    }
}

/// Two sessions take a key: the second waits for the first one's transaction.
async fn two_take_one_key(end: &str) -> (Session, i64, i64) {
    let (db, first) = session().await;
    let second = Session::of(&db).await;
    let looker = Session::of(&db).await;
    first.get("begin").await;
    let one = first.enqueue("'a', unique_key => 'k'").await;
    let pid = second.pid();
    let other = second.spawn("select trax.enqueue('a', unique_key => 'k')");
    looker.sees_waiting(pid).await;
    first.get(end).await;
    let (_, two) = other.await.expect("the second session lives");
    let two = two
        .expect("the second enqueue works")
        .parse()
        .expect("an id");
    (looker, one, two)
}

#[tokio::test]
async fn two_sessions_at_once_make_one_job_of_a_unique_key() {
    let (s, one, two) = two_take_one_key("commit").await;
    assert_eq!(one, two);
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_unique_key_that_was_rolled_back_is_free_for_who_waits() {
    let (s, one, two) = two_take_one_key("rollback").await;
    assert_ne!(one, two);
    assert_eq!(
        s.get("select job_id from trax.work_queue").await,
        two.to_string()
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_rolled_back_enqueue_leaves_nothing() {
    let (_db, s) = session().await;
    let before = s.everything().await;
    s.get(
        "begin;
         select trax.enqueue('new.task', group_name => 'new.group', unique_key => 'k', run_at => now() + '1 h');
         select * from trax.enqueue_many('new.task', array['1', '2']::jsonb[]);
         rollback",
    )
    .await;
    assert_eq!(s.everything().await, before);
    assert!(s.claim("max_jobs => 10").await.is_empty());
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_delayed_job_is_claimed_only_after_its_time_and_a_cycle() {
    let (_db, s) = session().await;
    let id = s.enqueue("'a', run_at => clock_timestamp() + '1 h'").await;
    assert_eq!(s.tick("promote_delayed").await, 0);
    assert!(s.claim("").await.is_empty());
    assert_eq!(
        s.get("select state, run_at > now() from trax.job").await,
        "queued|t"
    );
    s.get("update trax.work_queue set run_at = now() - interval '1 s', queued_at = now() - interval '1 h'").await;
    assert!(s.claim("").await.is_empty(), "the cycle makes it claimable");
    assert_eq!(s.tick("promote_delayed").await, 1);
    assert_eq!(s.claim_ids("").await, [id]);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_whose_time_is_past_is_claimable_at_once() {
    let (_db, s) = session().await;
    let id = s.enqueue("'a', run_at => now() - interval '1 day'").await;
    // The zero of a program's type for times. The wait begins when the job is queued.
    let zero = s.enqueue("'a', run_at => '0001-01-01'").await;
    s.get("insert into trax.new_job (task, run_at) values ('a', '0001-01-01')")
        .await;
    let begins = "select count(*), bool_and(run_at >= queued_at) from trax.work_queue";
    assert_eq!(s.get(begins).await, "3|t");
    let oldest = "select max(value) < 60 from trax.metrics() where name like '%oldest%' or name like '%overdue%'";
    assert_eq!(s.get(oldest).await, "t");
    assert_eq!(s.claim_ids("max_jobs => 2").await, [id, zero]);
}

#[tokio::test]
async fn a_cycle_makes_all_delayed_jobs_claimable_that_are_due() {
    let (_db, s) = session().await;
    s.get(
        "select count(trax.enqueue('a', to_jsonb(n), run_at => clock_timestamp() + '1 h')) from generate_series(1, 500) n;
         update trax.work_queue set run_at = now() - interval '1 s' where input::int <= 300",
    )
    .await;
    assert_eq!(s.tick("promote_delayed").await, 300);
    assert_eq!(s.claim("max_jobs => 1000").await.len(), 300);
    s.assert_healthy().await;
}

#[tokio::test]
async fn two_transactions_that_meet_a_new_task_do_not_wait_for_each_other() {
    let (db, a) = session().await;
    let b = Session::of(&db).await;
    b.get("set lock_timeout = '30 s'").await;
    a.get("begin").await;
    let one = a.enqueue("'new'").await;
    let two = b.enqueue("'new'").await;
    a.get("commit").await;
    let mut ids = b.claim_ids("max_jobs => 10").await;
    ids.sort();
    assert_eq!(ids, [one, two]);
    b.assert_healthy().await;
}

#[tokio::test]
async fn the_number_of_a_lane_is_a_hash_of_its_names_that_never_changes() {
    let (_db, s) = session().await;
    let expected = "('x' || left(encode(sha256(convert_to(g, 'UTF8') || '\\x00' || convert_to(t, 'UTF8') || '\\x00'), 'hex'), 16))::bit(64)::bigint";
    let wrong = format!(
        "select count(*) from (values ('default', 'report.build'), ('a', 'bc'), ('ab', 'c'), ('é', '日本')) v (g, t)
         where trax.lane_of(g, t) is distinct from {expected}"
    );
    assert_eq!(s.number(&wrong).await, 0);
    s.enqueue("'report.build'").await;
    let stored = "select count(*) from trax.work_queue where lane_id = trax.lane_of('default', 'report.build')";
    assert_eq!(s.number(stored).await, 1);
}

#[tokio::test]
async fn jobs_survive_in_one_place_through_their_whole_life() {
    let (_db, s) = session().await;
    let id = s.enqueue("'a'").await;
    let places = "select (select count(*) from trax.work_queue), (select count(*) from trax.lease),
                      (select count(*) from trax.run where final), (select string_agg(state, ',') from trax.job)";
    assert_eq!(s.get(places).await, "1|0|0|queued");
    let job = s.claim_one("").await;
    assert_eq!(s.get(places).await, "0|1|0|in_progress");
    s.get(&format!(
        "select trax.fail({}, 'no', retry_in => '0')",
        job.key()
    ))
    .await;
    assert_eq!(s.get(places).await, "1|0|0|queued");
    assert_eq!(s.get("select attempt, error from trax.job").await, "1|no");
    let job = s.claim_one("").await;
    assert_eq!(job.id, id, "a retry keeps the id");
    s.get(&format!("select trax.complete({})", job.key())).await;
    assert_eq!(s.get(places).await, "0|0|1|completed");
    assert_eq!(s.get("select attempt from trax.job").await, "2");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_that_waited_longer_than_its_limit_ends_as_expired() {
    let (_db, s) = session().await;
    let limit = async |id: i64, limit: &str| {
        s.get(&format!("select trax.limit_queue_time({id}, {limit})"))
            .await
    };
    let id = s.enqueue("'a', unique_key => 'k'").await;
    let kept = s.enqueue("'a'").await;
    assert_eq!(limit(id, "'1 us'").await, "t");
    assert_eq!(limit(kept, "'1 h'").await, "t");
    let later = s.enqueue("'a', run_at => now() + interval '1 h'").await;
    assert_eq!(limit(later, "'1 us'").await, "t", "from its time on");
    let freed = s.enqueue("'a'").await;
    assert_eq!(limit(freed, "'1 us'").await, "t");
    assert_eq!(limit(freed, "null").await, "t");
    assert_eq!(s.tick("expire_queued").await, 1);
    let run = s
        .get("select job_id, state, failure_kind, final, attempt, started_at from trax.run")
        .await;
    assert_eq!(run, format!("{id}|failed|expired|t|0|"));
    assert_eq!(s.number("select count(*) from trax.unique_key").await, 0);
    assert_eq!(s.claim_ids("max_jobs => 9").await, [kept, freed]);
    for id in [id, kept, 999_999] {
        assert_eq!(limit(id, "'1 h'").await, "f", "{id} does not wait");
    }
    let refusal = s
        .refusal(&format!("select trax.limit_queue_time({later}, '0')"))
        .await;
    assert_eq!(refusal.code, "22023", "{refusal}");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_scheduler_wakes_when_a_job_has_waited_too_long() {
    let server = scheduling()
        .setting("trax.tick_interval", "1h")
        .start()
        .expect("a server starts");
    let database = server.database("waits").await.expect("a database is made");
    let s = Session::of(&database).await;
    scheduler_of(s.client(), "waits", PATIENCE).await;
    s.get("select trax.limit_queue_time(trax.enqueue('a'), '200 ms')")
        .await;
    eventually("the end of a job that waits", PATIENCE, async || {
        match s.get("select state from trax.job").await.as_str() {
            "failed" => Ok(()),
            seen => Err(seen.to_owned()),
        }
    })
    .await;
}

#[tokio::test]
async fn run_now_makes_a_job_claimable_before_its_time_and_says_where_a_job_is() {
    let (db, s) = session().await;
    let place = async |id: i64| s.get(&format!("select trax.run_now({id})")).await;
    let id = s.enqueue("'a', concurrency_key => 'k'").await;
    assert_eq!(place(id).await, "ready");
    let job = s.claim_one("").await;
    assert_eq!(place(id).await, "in_progress");
    s.get(&format!("select trax.fail({}, 'no')", job.key()))
        .await;
    // Another session has found that nothing is claimable.
    let other = Session::of(&db).await;
    assert_eq!(other.claim_ids("").await, [0; 0]);
    s.get("begin").await;
    assert_eq!(place(id).await, "ready");
    s.get("rollback").await;
    assert_eq!(other.claim_ids("").await, [0; 0], "it was undone");
    assert_eq!(place(id).await, "ready");
    assert_eq!(s.get("select run_at <= now() from trax.job").await, "t");
    let job = other.claim_one("").await;
    assert_eq!(job.id, id);
    let behind = s.enqueue("'a', concurrency_key => 'k'").await;
    assert_eq!(other.claim_ids("").await, [0; 0]);
    assert_eq!(place(behind).await, "blocked");
    s.get(&format!("select trax.complete({})", job.key())).await;
    assert_eq!(place(id).await, "finished");
    assert_eq!(place(id + 1000).await, "unknown");
    let later = s.enqueue("'b', run_at => now() + interval '1 h'").await;
    assert_eq!(place(later).await, "ready");
    assert_eq!(other.claim_ids("tasks => '{b}'").await, [later]);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_unique_key_whose_job_has_ended_is_free_for_an_older_snapshot_too() {
    let queue = [
        "select trax.enqueue('a', unique_key => 'k')",
        "select * from trax.enqueue_many('a', '{1}', unique_key => 'k')",
        "insert into trax.new_job (task, unique_key) values ('a', 'k')",
    ];
    for queue in queue {
        for level in ["repeatable read", "serializable"] {
            let (db, s) = session().await;
            let other = Session::of(&db).await;
            let first = other.enqueue("'a', unique_key => 'k'").await;
            s.get(&format!(
                "begin isolation level {level}; select count(*) from trax.unique_key"
            ))
            .await;
            let job = other.claim_one("").await;
            other
                .get(&format!("select trax.complete({})", job.key()))
                .await;
            s.get(queue).await;
            s.get("commit").await;
            let waits = "select count(*), min(job_id) > {} from trax.work_queue"
                .replace("{}", &first.to_string());
            assert_eq!(s.get(&waits).await, "1|t", "{queue} in {level}");
            s.assert_healthy().await;
        }
    }
}
