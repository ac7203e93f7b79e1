//! Bulk operations on manifests and groups: dead letters, cancellations and timeouts.

use harness::manifest::{
    Hourly, complete, complete_one, due_since, running, state, succeed, waiting,
};
use harness::session::{Claimed, Session, session};

async fn fail(s: &Session, job: &Claimed) -> String {
    s.get(&format!("select trax.fail({}, 'no')", job.key()))
        .await
}

/// Makes dead jobs: task a in group g (two of them an hour old), b in group g, b in group h, and
/// one of manifest m.
async fn dead(s: &Session) {
    s.get("select trax.schedule('m', 'm', max_retries => 0); select trax.trigger('m');
           select trax.enqueue_many('a', array['1','2','3']::jsonb[], group_name => 'g', max_retries => 0);
           select trax.enqueue('b', group_name => 'g', max_retries => 0);
           select trax.enqueue('b', group_name => 'h', max_retries => 0)")
        .await;
    for job in s.claim("max_jobs => 10").await {
        assert_eq!(fail(s, &job).await, "dead");
    }
    s.get("update trax.dead_letter set created_at = created_at - interval '1 h' where input in ('1', '2')")
        .await;
    assert_eq!(s.number(OPEN).await, 6);
}

const OPEN: &str = "select count(*) from trax.dead_letter where status = 'awaiting_intervention'";

async fn requeue(s: &Session, arguments: &str) -> i64 {
    s.number(&format!("select trax.requeue_dead_letters({arguments})"))
        .await
}

#[tokio::test]
async fn requeue_dead_letters_takes_what_matches_all_that_is_given() {
    let (_db, s) = session().await;
    for (arguments, count) in [
        ("", 6),
        ("task => 'a'", 3),
        ("task => 'b', group_name => 'g'", 1),
        ("manifest => 'm'", 1),
        ("group_name => 'g'", 4),
        ("since => now() - interval '10 min'", 4),
        ("since => now() - interval '10 min', task => 'a'", 1),
        ("max_count => 2", 2),
        ("max_count => 0", 0),
        ("task => 'nobody'", 0),
        ("manifest => 'm', task => 'a'", 0),
    ] {
        s.get("truncate trax.dead_letter, trax.work_queue, trax.run, trax.lease; delete from trax.manifest; delete from trax.manifest_state")
            .await;
        dead(&s).await;
        assert_eq!(requeue(&s, arguments).await, count, "{arguments}");
        assert_eq!(s.number(OPEN).await, 6 - count, "{arguments}");
        let jobs = s.number("select count(*) from trax.work_queue").await;
        assert_eq!(jobs, count, "{arguments}");
    }
}

#[tokio::test]
async fn the_oldest_dead_letters_are_requeued_first() {
    let (_db, s) = session().await;
    dead(&s).await;
    requeue(&s, "max_count => 2").await;
    let inputs = "select string_agg(input::text, ' ' order by job_id) from trax.work_queue";
    assert_eq!(s.get(inputs).await, "1 2");
    assert_eq!(requeue(&s, "").await, 4);
    assert_eq!(requeue(&s, "").await, 0);
    s.assert_healthy().await;
}

/// Triggers a manifest and claims its job.
async fn executed(s: &Session, manifest: &str) -> Claimed {
    s.get(&format!("select trax.trigger('{manifest}')")).await;
    s.claim_one(&format!("tasks => '{{{manifest}}}', lease => '1 h'"))
        .await
}

#[tokio::test]
async fn requeueing_many_and_completing_jobs_of_their_manifests_do_not_deadlock() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    s.get("select trax.schedule('a', 'a', max_retries => 0); select trax.schedule('b', 'b', max_retries => 0)")
        .await;
    // The oldest dead letter belongs to the manifest that is locked last.
    for manifest in ["b", "a"] {
        let job = executed(&s, manifest).await;
        assert_eq!(fail(&s, &job).await, "dead");
    }
    let first = executed(&s, "a").await;
    let second = executed(&s, "b").await;
    other.get("set lock_timeout = '20 s'; begin").await;
    complete(&other, &first).await;
    let pid = s.pid();
    let requeued = s.spawn("select trax.requeue_dead_letters()");
    other.sees_waiting(pid).await;
    complete(&other, &second).await;
    other.get("commit").await;
    let (s, result) = requeued.await.expect("the task ends");
    assert_eq!(result.expect("neither is a victim"), "2");
    let order = "select string_agg(task, ' ' order by job_id) from trax.work_queue";
    assert_eq!(s.get(order).await, "b a", "the oldest first all the same");
    s.assert_healthy().await;
}

#[tokio::test]
async fn requeueing_many_takes_unique_keys_before_manifests() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    s.get("select trax.schedule('m', 'm', max_retries => 0)")
        .await;
    let job = executed(&s, "m").await;
    assert_eq!(fail(&s, &job).await, "dead");
    let keyed = "select trax.enqueue('k', unique_key => 'k', max_retries => 0)";
    s.get(keyed).await;
    let job = s.claim_one("").await;
    assert_eq!(fail(&s, &job).await, "dead");
    let of_manifest = executed(&s, "m").await;
    other.get("set lock_timeout = '20 s'; begin").await;
    other.get(keyed).await;
    let pid = s.pid();
    let requeued = s.spawn("select trax.requeue_dead_letters()");
    other.sees_waiting(pid).await;
    complete(&other, &of_manifest).await;
    other.get("commit").await;
    let (s, result) = requeued.await.expect("the task ends");
    assert_eq!(
        result.expect("neither is a victim"),
        "1",
        "another job took the key"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_requeued_job_is_as_the_dead_one_was_with_fresh_attempts_and_both_are_linked() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'm', input => '{\"k\": 1}', priority => 7, group_name => 'g', timeout => '7 min', max_retries => 1, retry_delay => '0')")
        .await;
    let first = running(&s, "m").await;
    assert_eq!(fail(&s, &first).await, "retrying");
    s.tick("promote_delayed").await;
    let second = s.claim_one("").await;
    assert_eq!(fail(&s, &second).await, "dead");
    assert_eq!(requeue(&s, "manifest => 'm'").await, 1);
    let linked = format!(
        "select d.job_id = {}, d.attempts, d.status, d.requeued_job_id = q.job_id, q.attempts, q.input, q.priority, q.group_name,
             q.timeout, q.manifest, q.max_retries from trax.dead_letter d, trax.work_queue q",
        first.id
    );
    assert_eq!(
        s.get(&linked).await,
        "t|2|requeued|t|0|{\"k\": 1}|7|g|00:07:00|m|1"
    );
    let third = s.claim_one("").await;
    assert_eq!(fail(&s, &third).await, "retrying", "the count starts anew");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_dead_letter_parks_its_manifest_and_a_trigger_by_hand_still_works() {
    let (_db, s) = session().await;
    let hourly = Hourly::of(&s).await;
    s.get(&format!(
        "select trax.schedule('m', 'm', {}, max_retries => 0)",
        hourly.cron()
    ))
    .await;
    due_since(&s, "m", &hourly.ago(0)).await;
    s.tick("queue_due").await;
    let job = s.claim_one("").await;
    assert_eq!(fail(&s, &job).await, "dead");
    due_since(&s, "m", &hourly.ago(0)).await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(state(&s, "m").await, "dead_letter|f");
    succeed(&s, "m").await;
    assert_eq!(
        s.tick("queue_due").await,
        0,
        "a success by hand resolves nothing"
    );
    let by_hand = running(&s, "m").await;
    assert_eq!(fail(&s, &by_hand).await, "dead");
    assert_eq!(s.number(OPEN).await, 1, "one that is unresolved");
    let resolve = "select trax.acknowledge_dead_letter(id, 'seen') from trax.dead_letter";
    assert_eq!(s.get(resolve).await, "t");
    assert_eq!(s.tick("queue_due").await, 1);
    let job = s.claim_one("").await;
    assert_eq!(fail(&s, &job).await, "dead");
    assert_eq!(
        s.number(OPEN).await,
        1,
        "a new failure is a new dead letter"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn of_many_who_requeue_at_once_each_takes_others() {
    let (db, s) = session().await;
    s.get("select count(trax.schedule('m' || n, 'm', max_retries => 0)), count(trax.trigger('m' || n)) from generate_series(1, 60) n")
        .await;
    for job in s.claim("max_jobs => 100").await {
        fail(&s, &job).await;
    }
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let sql = "select trax.requeue_dead_letters(max_count => 20)";
        tasks.push(Session::of(&db).await.spawn(sql));
    }
    for task in tasks {
        let (_, result) = task.await.expect("the task ends");
        result.expect("requeueing at once is no error");
    }
    requeue(&s, "").await;
    let once = "select count(*), count(distinct manifest) from trax.work_queue";
    assert_eq!(s.get(once).await, "60|60");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_bulk_requeue_and_one_of_a_single_dead_letter_do_not_deadlock() {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'm', max_retries => 0)")
        .await;
    let job = running(&s, "m").await;
    fail(&s, &job).await;
    let id = s.number("select id from trax.dead_letter").await;
    // The manifest is locked: the single requeue waits first, and the bulk requeue behind it.
    s.get("begin; select from trax.manifest_state for update")
        .await;
    let watcher = Session::of(&db).await;
    let single = Session::of(&db).await;
    let bulk = Session::of(&db).await;
    let (single_pid, bulk_pid) = (single.pid(), bulk.pid());
    let single = single.spawn(format!("select trax.requeue_dead_letter({id})"));
    watcher.sees_waiting(single_pid).await;
    let bulk = bulk.spawn("select trax.requeue_dead_letters()");
    watcher.sees_waiting(bulk_pid).await;
    s.get("rollback").await;
    for task in [single, bulk] {
        let (_, result) = task.await.expect("the task ends");
        if let Err(refusal) = result {
            assert_eq!(refusal.code, "55000", "the other was first: {refusal}");
        }
    }
    assert_eq!(waiting(&s, "m").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn cancel_manifest_ends_what_waits_asks_what_runs_and_lets_the_schedule_go_on() {
    let (_db, s) = session().await;
    let hourly = Hourly::of(&s).await;
    s.get(&format!(
        "select trax.schedule('m', 'm', {}); select trax.schedule('other', 'other')",
        hourly.cron()
    ))
    .await;
    let job = running(&s, "m").await;
    s.get("select trax.trigger('m'); select trax.trigger('m', delay => '1 h'); select trax.trigger('other')")
        .await;
    assert_eq!(s.get("select trax.cancel_manifest('m')").await, "3");
    assert_eq!(waiting(&s, "m").await, 0);
    assert_eq!(waiting(&s, "other").await, 1);
    let asked = format!(
        "select cancel_requested from trax.lease where job_id = {}",
        job.id
    );
    assert_eq!(s.get(&asked).await, "t");
    let acknowledged = format!("select trax.acknowledge_cancel({})", job.key());
    assert_eq!(s.get(&acknowledged).await, "t");
    assert_eq!(
        s.get("select state, count(*) from trax.run group by 1")
            .await,
        "cancelled|3"
    );
    assert_eq!(s.get("select trax.cancel_manifest('m')").await, "0");
    due_since(&s, "m", &hourly.ago(0)).await;
    assert_eq!(s.tick("queue_due").await, 1);
    assert_eq!(s.get("select trax.cancel_manifest('m')").await, "1");
    due_since(&s, "m", &hourly.ago(0)).await;
    assert_eq!(
        s.tick("queue_due").await,
        1,
        "a cancelled occurrence counts as done"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn cancel_group_reaches_every_job_of_the_group() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'm', group_name => 'g'); select trax.trigger_group('g'); select trax.enqueue('a', group_name => 'g');
           select trax.enqueue('a', group_name => 'g', run_at => now() + interval '1 h'); select trax.enqueue('a')")
        .await;
    let job = s.claim_one("tasks => '{m}'").await;
    assert_eq!(s.get("select trax.cancel_group('g')").await, "3");
    assert_eq!(
        s.get("select group_name from trax.work_queue").await,
        "default"
    );
    assert_eq!(fail(&s, &job).await, "dead");
    assert_eq!(
        s.number(OPEN).await,
        0,
        "a cancelled job is not dead-lettered"
    );
    for call in [
        "trax.cancel_group('nobody')",
        "trax.cancel_manifest('nobody')",
        "trax.trigger_group('nobody')",
    ] {
        let refusal = s.refusal(&format!("select {call}")).await;
        assert_eq!(refusal.code, "42704", "{call}: {refusal}");
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn trigger_group_triggers_its_enabled_manifests() {
    let (_db, s) = session().await;
    s.get("select count(trax.schedule('m' || n, 'm', group_name => 'g', enabled => n <> 2)) from generate_series(1, 4) n; select trax.schedule('o', 'o')")
        .await;
    assert_eq!(s.get("select trax.trigger_group('g')").await, "3");
    let names = "select string_agg(manifest, ' ' order by manifest) from trax.work_queue";
    assert_eq!(s.get(names).await, "m1 m3 m4");
}

#[tokio::test]
async fn a_manifests_timeout_is_first_a_request_and_then_an_end() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'm', timeout => '1 ms', max_retries => 0); set trax.cancel_grace = '10 s'")
        .await;
    let job = running(&s, "m").await;
    let beat = format!(
        "select cancel_requested from trax.heartbeat(array[{}], array['{}']::uuid[])",
        job.id, job.token
    );
    harness::eventually("the request", harness::PATIENCE, || async {
        s.tick("cancel_timed_out").await;
        match s.get(&beat).await.as_str() {
            "t" => Ok(()),
            seen => Err(seen.to_owned()),
        }
    })
    .await;
    assert_eq!(
        s.number("select count(*) from trax.run").await,
        0,
        "it has its grace"
    );
    s.get("update trax.lease set timeout_at = timeout_at - interval '1 min', reap_at = reap_at - interval '1 min'; set trax.cancel_grace = 0")
        .await;
    s.tick("reap_expired_leases").await;
    assert_eq!(
        s.get("select state, failure_kind, final from trax.run")
            .await,
        "failed|timeout|t"
    );
    assert_eq!(s.number(OPEN).await, 1);
    assert_eq!(
        s.get(&beat).await,
        "f",
        "the lease is lost and nothing more is asked"
    );
    requeue(&s, "").await;
    let job = s.claim_one("").await;
    complete(&s, &job).await;
    s.get("select trax.trigger('m')").await;
    complete_one(&s, "").await;
    s.assert_healthy().await;
}

/// Makes dead jobs with one unique key and these inputs.
async fn dead_of_one_key(s: &Session, inputs: std::ops::RangeInclusive<i32>) {
    for input in inputs {
        s.get(&format!(
            "select trax.enqueue('pay', '{input}', unique_key => 'customer 7', max_retries => 0)"
        ))
        .await;
        let job = s.claim_one("tasks => '{pay}'").await;
        assert_eq!(fail(s, &job).await, "dead");
    }
}

#[tokio::test]
async fn a_dead_letter_stays_while_another_job_has_its_unique_key() {
    let (_db, s) = session().await;
    dead_of_one_key(&s, 1..=3).await;
    for input in 1..=3 {
        assert_eq!(requeue(&s, "max_count => 2").await, 1);
        assert_eq!(requeue(&s, "").await, 0);
        assert_eq!(s.number(OPEN).await, 3 - i64::from(input));
        let waiting = "select job_id from trax.work_queue";
        let waiting = s.number(waiting).await;
        let stays = "select min(id) from trax.dead_letter where status = 'awaiting_intervention'";
        let stays = s.get(stays).await;
        if !stays.is_empty() {
            let call = format!("select trax.requeue_dead_letter({stays})");
            let refusal = s.refusal(&call).await;
            assert_eq!(refusal.code, "23505", "{refusal}");
            let words = format!("job {waiting} has the unique key \"customer 7\"");
            assert_eq!(refusal.message, words);
            assert!(
                refusal
                    .hint
                    .contains(&format!("acknowledge_dead_letter({stays})"))
            );
        }
        let job = s.claim_one("tasks => '{pay}'").await;
        assert_eq!(
            s.get("select input from trax.lease").await,
            input.to_string()
        );
        complete(&s, &job).await;
    }
    assert_eq!(s.number(OPEN).await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_warning_says_how_many_letters_stay_and_why() {
    let (db, s) = session().await;
    dead_of_one_key(&s, 1..=3).await;
    let mut psql = harness::shared_server().command("psql");
    psql.args(["-XAtc", "select trax.requeue_dead_letters()", db.name()]);
    let output = psql.output().expect("psql runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1");
    let said = String::from_utf8_lossy(&output.stderr);
    let words = "WARNING:  2 dead letters were not requeued because another job has the unique key";
    assert!(said.contains(words), "{said}");
}

#[tokio::test]
async fn letters_that_must_stay_do_not_use_up_what_a_call_may_requeue() {
    let (_db, s) = session().await;
    dead_of_one_key(&s, 1..=2).await;
    s.get(
        "select trax.enqueue('pay', '3', unique_key => 'customer 7');
        select trax.enqueue('mail', max_retries => 0)",
    )
    .await;
    let job = s.claim_one("tasks => '{mail}'").await;
    assert_eq!(fail(&s, &job).await, "dead");
    assert_eq!(requeue(&s, "max_count => 1").await, 1);
    let tasks = "select string_agg(task || input, ' ' order by job_id) from trax.work_queue";
    assert_eq!(s.get(tasks).await, "pay3 mail{}");
}

#[tokio::test]
async fn a_key_that_an_ended_job_keeps_alive_is_in_the_way_of_others_only() {
    let (_db, s) = session().await;
    dead_of_one_key(&s, 1..=1).await;
    s.get("select trax.enqueue('pay', '2', unique_key => 'customer 7', max_retries => 0, unique_for => '1 h')")
        .await;
    let job = s.claim_one("tasks => '{pay}'").await;
    assert_eq!(fail(&s, &job).await, "dead");
    // The second job passes its key on to its successor.
    assert_eq!(requeue(&s, "").await, 1);
    assert_eq!(s.get("select input from trax.work_queue").await, "2");
    let job = s.claim_one("tasks => '{pay}'").await;
    complete(&s, &job).await;
    assert_eq!(requeue(&s, "").await, 0, "its time is not over");
    s.get("update trax.unique_key set alive_until = now()")
        .await;
    assert_eq!(requeue(&s, "").await, 1);
}
