//! Due manifests: the queued jobs, their occurrences, and the reasons for parking a manifest.

mod exclusion;
mod guard;
mod misfire;
mod on_dead_letter;
mod overlap;
mod share;
mod variance;

use harness::session::{Session, session};

const STATE: &str =
    "select s.parked_on, s.next_run_at is null, s.evaluation_failures from trax.manifest_state s";

/// Makes a manifest due at this time.
async fn due_since(s: &Session, at: &str) {
    s.get(&format!(
        "update trax.manifest_state set next_run_at = {at}, next_scheduled_for = {at}"
    ))
    .await;
}

async fn run_once(s: &Session) {
    let job = s.claim_one("").await;
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "t"
    );
}

#[tokio::test]
async fn a_due_manifest_is_queued_once_for_its_occurrence() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', cron => '0 * * * *')")
        .await;
    assert_eq!(s.tick("queue_due").await, 0);
    due_since(&s, "date_trunc('hour', now())").await;
    s.get("update trax.manifest set misfire_threshold = '2 h'")
        .await;
    assert_eq!(s.tick("queue_due").await, 1);
    assert_eq!(s.tick("queue_due").await, 0);
    let job = "select q.manifest, q.scheduled, q.scheduled_for = date_trunc('hour', q.queued_at), q.run_at = q.queued_at,
                   s.last_scheduled_for = q.scheduled_for, s.next_run_at = q.scheduled_for + interval '1 h'
               from trax.work_queue q join trax.manifest_state s using (manifest_id)";
    assert_eq!(s.get(job).await, "m|t|t|t|t|t");
    let claimed = "select c.scheduled_for = s.last_scheduled_for, c.manifest
                   from trax.claim_next() c, trax.manifest_state s";
    assert_eq!(s.get(claimed).await, "t|m");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_late_cycle_runs_a_missed_cron_once() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', cron => '0 * * * *')")
        .await;
    due_since(&s, "date_trunc('hour', now()) - interval '50 h'").await;
    assert_eq!(s.tick("queue_due").await, 1);
    assert_eq!(
        s.get("select next_run_at > now() from trax.manifest_state")
            .await,
        "t"
    );
    run_once(&s).await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(s.number("select count(*) from trax.run").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn occurrences_within_the_misfire_threshold_are_not_missed() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', cron => '*/10 * * * * *')")
        .await;
    due_since(
        &s,
        "to_timestamp(floor(extract(epoch from now()) / 10) * 10 - 30)",
    )
    .await;
    assert_eq!(s.tick("queue_due").await, 1);
    let next = "select next_run_at - last_scheduled_for from trax.manifest_state";
    assert_eq!(s.get(next).await, "00:00:10", "30 s late is within 60 s");
    run_once(&s).await;
    assert_eq!(s.tick("queue_due").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_due_manifest_that_executes_is_parked_and_runs_once_when_it_ends() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', cron => '0 * * * *')")
        .await;
    due_since(&s, "now() - interval '1 s'").await;
    assert_eq!(s.tick("queue_due").await, 1);
    let job = s.claim_one("").await;
    due_since(&s, "date_trunc('hour', now()) - interval '5 h'").await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(s.get(STATE).await, "executing|t|0");
    assert_eq!(s.tick("queue_due").await, 0);
    s.assert_healthy().await;
    s.get(&format!("select trax.complete({})", job.key())).await;
    assert_eq!(s.tick("queue_due").await, 1);
    let next =
        "select q.scheduled_for = date_trunc('hour', now()), s.next_run_at > now(), s.parked_on
                from trax.work_queue q, trax.manifest_state s";
    assert_eq!(s.get(next).await, "t|t|");
    run_once(&s).await;
    assert_eq!(
        s.tick("queue_due").await,
        0,
        "once, however much was missed"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn an_attempt_that_fails_keeps_its_manifest_parked_until_the_last() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', cron => '0 * * * *')")
        .await;
    due_since(&s, "now() - interval '1 s'").await;
    s.tick("queue_due").await;
    let job = s.claim_one("").await;
    assert_eq!(
        s.get(&format!("select trax.fail({}, 'no')", job.key()))
            .await,
        "retrying"
    );
    due_since(&s, "now()").await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(
        s.get(STATE).await,
        "queued|t|0",
        "its scheduled entry waits for the retry"
    );
    assert_eq!(
        s.get("select distinct trax.cancel(job_id) from trax.work_queue")
            .await,
        "cancelled"
    );
    assert_eq!(s.tick("queue_due").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_triggered_by_hand_counts_as_executing() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h'); select trax.trigger('m')")
        .await;
    let job = s.claim_one("").await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(s.get(STATE).await, "executing|t|0");
    s.get(&format!("select trax.complete({})", job.key())).await;
    assert_eq!(
        s.get("select parked_on, next_run_at > now() from trax.manifest_state")
            .await,
        "|t"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_due_manifest_whose_scheduled_entry_waits_is_parked() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', cron => '0 * * * *')")
        .await;
    due_since(&s, "now() - interval '1 s'").await;
    s.tick("queue_due").await;
    due_since(&s, "now()").await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(s.get(STATE).await, "queued|t|0");
    s.assert_healthy().await;
    run_once(&s).await;
    assert_eq!(s.tick("queue_due").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_triggered_by_hand_that_waits_does_not_hold_the_schedule_back() {
    let (_db, s) = session().await;
    s.get(
        "select trax.schedule('m', 'a', every => '1 h'); select trax.trigger('m', delay => '1 h')",
    )
    .await;
    assert_eq!(s.tick("queue_due").await, 1);
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 2);
}

#[tokio::test]
async fn a_second_scheduled_entry_is_impossible() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h'); select * from trax.tick()")
        .await;
    let refusal = s
        .refusal(
            "insert into trax.work_queue (lane_id, queued_at, run_at, scheduled_for, scheduled, manifest_id, task, group_name, manifest, input)
             select lane_id, now(), now(), now(), true, manifest_id, task, group_name, manifest, input from trax.work_queue",
        )
        .await;
    assert_eq!(refusal.code, "23505", "{refusal}");
}

/// A manifest whose job has failed for good, and which is due again.
async fn with_dead_letter(schedule: &str) -> Session {
    let (_, s) = session().await;
    s.get(&format!(
        "select trax.schedule('m', 'a', {schedule}, max_retries => 0)"
    ))
    .await;
    due_since(&s, "now() - interval '1 s'").await;
    assert_eq!(s.tick("queue_due").await, 1);
    let job = s.claim_one("").await;
    assert_eq!(
        s.get(&format!("select trax.fail({}, 'no')", job.key()))
            .await,
        "dead"
    );
    due_since(&s, "now() - interval '1 s'").await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(s.get(STATE).await, "dead_letter|t|0");
    s.assert_healthy().await;
    s
}

#[tokio::test]
async fn a_dead_letter_parks_its_manifest_until_it_is_acknowledged() {
    for schedule in ["cron => '0 * * * *'", "every => '1 h'"] {
        let s = with_dead_letter(schedule).await;
        assert_eq!(
            s.get("select trax.acknowledge_dead_letter(id, 'seen') from trax.dead_letter")
                .await,
            "t"
        );
        assert_eq!(s.tick("queue_due").await, 1, "{schedule}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_requeued_dead_letter_lets_its_manifest_go_on_when_the_job_ends() {
    for schedule in ["cron => '0 * * * *'", "every => '1 h'"] {
        let s = with_dead_letter(schedule).await;
        s.get("select trax.requeue_dead_letter(id) from trax.dead_letter")
            .await;
        assert_eq!(
            s.tick("queue_due").await,
            0,
            "{schedule}: the requeued job stands for the occurrence"
        );
        s.assert_healthy().await;
        run_once(&s).await;
        s.get("update trax.manifest_state set next_run_at = now(), next_scheduled_for = now() where next_run_at > now()")
            .await;
        assert_eq!(s.tick("queue_due").await, 1, "{schedule}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_requeue_right_after_the_failure_does_not_run_every_twice() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h', max_retries => 0)")
        .await;
    s.tick("queue_due").await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.fail({}, 'no')", job.key()))
        .await;
    // No cycle has parked the manifest on its dead letter in between.
    s.get("select trax.requeue_dead_letter(id) from trax.dead_letter")
        .await;
    s.tick("queue_due").await;
    assert_eq!(
        s.number("select count(*) from trax.work_queue").await,
        1,
        "the requeued job stands for the occurrence"
    );
    run_once(&s).await;
    assert_eq!(
        s.get("select next_run_at > now() from trax.manifest_state")
            .await,
        "t"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_disabled_group_parks_its_due_manifests_until_it_is_enabled() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', cron => '0 * * * *', group_name => 'g'); select trax.configure_group('g', enabled => false)").await;
    due_since(&s, "now() - interval '1 s'").await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(s.get(STATE).await, "group_disabled|t|0");
    s.assert_healthy().await;
    s.get("select trax.configure_group('g', enabled => true)")
        .await;
    assert_eq!(s.tick("queue_due").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn one_cycle_queues_at_most_its_limit_and_the_longest_due_first() {
    let (_db, s) = session().await;
    s.get(
        "select count(trax.schedule('m' || n, 'a', every => '1 h')) from generate_series(1, 10) n",
    )
    .await;
    s.get(
        "update trax.manifest_state set next_run_at = now() - manifest_id * interval '1 s',
             next_scheduled_for = now() - manifest_id * interval '1 s'",
    )
    .await;
    s.get("set trax.max_entries_per_cycle = 4").await;
    assert_eq!(s.tick("queue_due").await, 4);
    assert_eq!(
        s.get(
            "select string_agg(manifest_id::text, ',' order by manifest_id) from trax.work_queue"
        )
        .await,
        "7,8,9,10"
    );
    s.get("set trax.max_entries_per_cycle = 0").await;
    assert_eq!(s.tick("queue_due").await, 6, "0 is unlimited");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_damaged_manifest_does_not_stop_the_others_and_status_shows_it() {
    let (_db, s) = session().await;
    s.get("select count(trax.schedule('m' || n, 'a', cron => '0 * * * *')) from generate_series(1, 5) n").await;
    s.get(
        "update trax.manifest set timezone = 'Mars/Olympus' where name = 'm2';
         update trax.manifest set cron = 'nonsense' where name = 'm4'",
    )
    .await;
    due_since(&s, "now() - interval '1 s'").await;
    let shown = "select value, healthy, hint <> '' from trax.status() where item = 'manifests that cannot be evaluated'";
    assert_eq!(s.get(shown).await, "0|t|");
    assert_eq!(s.tick("queue_due").await, 3);
    let failed = "select m.name, s.evaluation_failures, s.evaluation_error like '%' || coalesce(nullif(m.timezone, 'UTC'), m.cron) || '%'
                  from trax.manifest_state s join trax.manifest m using (manifest_id)
                  where s.evaluation_error is not null order by m.name";
    assert_eq!(
        s.get(failed).await,
        "m2|0|t\nm4|1|t",
        "a zone that is missing is the server's trouble"
    );
    assert_eq!(s.get(shown).await, "2|f|t");
    assert_eq!(s.tick("queue_due").await, 0);
    s.get("select trax.schedule('m2', 'a', timezone => 'UTC'); select trax.schedule('m4', 'a', cron => '0 * * * *')").await;
    assert_eq!(s.get(shown).await, "0|t|");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_damaged_zone_does_not_stop_outcomes() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h'); select * from trax.tick()")
        .await;
    s.enqueue("'b'").await;
    let damaged = s.claim_one("tasks => array['a']").await;
    let sound = s.claim_one("tasks => array['b']").await;
    s.get("update trax.manifest set timezone = 'Mars/Olympus'")
        .await;
    let done = format!(
        "select count(*) from trax.complete_many(array[{}, {}], array['{}', '{}']::uuid[])",
        damaged.id, sound.id, damaged.token, sound.token
    );
    assert_eq!(s.get(&done).await, "2");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_damaged_zone_does_not_stop_the_reaper() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h'); select * from trax.tick()")
        .await;
    s.enqueue("'b'").await;
    let jobs = s.claim("max_jobs => 2").await;
    s.get(&format!("select trax.cancel({})", jobs[0].id)).await;
    s.get(
        "update trax.manifest set timezone = 'Mars/Olympus';
         update trax.lease set lease_expires_at = now() - interval '1 s', reap_at = now() - interval '1 s'",
    )
    .await;
    assert_eq!(s.tick("reap_expired_leases").await, 2);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_manifest_whose_job_is_being_ended_does_not_stop_the_cycle() {
    let (db, a) = session().await;
    let ticker = Session::of(&db).await;
    ticker.get("set lock_timeout = '30 s'").await;
    a.get("select trax.schedule('busy', 'a', cron => '0 * * * *'); select trax.trigger('busy')")
        .await;
    a.get("select trax.schedule('free', 'b', every => '1 h')")
        .await;
    let job = a.claim_one("tasks => array['a']").await;
    due_since(&a, "now() - interval '1 s'").await;
    a.get(&format!("begin; select trax.complete({})", job.key()))
        .await;
    assert_eq!(ticker.tick("queue_due").await, 1);
    a.get("commit").await;
    assert_eq!(ticker.tick("queue_due").await, 1);
    ticker.assert_healthy().await;
}
