//! Manifests: the rows stored by `trax.schedule`, the first run, and the actions of a person.

mod apply;
mod explain;
mod preview;
mod race;
mod timing;
mod zone;
mod zone_update;

use harness::manifest::{Hourly, due_since, state};
use harness::session::{Session, session};

const STATE: &str = "select m.name, m.enabled, s.parked_on, s.next_run_at at time zone 'UTC'
    from trax.manifest m join trax.manifest_state s using (manifest_id) order by m.name";

/// Returns everything stored about manifests except the time of the last change.
async fn stored(s: &Session) -> String {
    s.get(
        "select to_jsonb(m) - 'updated_at', to_jsonb(s)
         from trax.manifest m join trax.manifest_state s using (manifest_id) order by m.name",
    )
    .await
}

async fn run_once(s: &Session) {
    let job = s.claim_one("").await;
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "t"
    );
}

/// Returns the next run of a manifest with this schedule, in UTC.
async fn first_run(s: &Session, schedule: &str) -> String {
    s.get(&format!("select trax.schedule('x', 'a', {schedule})"))
        .await;
    let next = s
        .get("select next_run_at at time zone 'UTC' from trax.manifest_state")
        .await;
    s.get("select trax.unschedule('x')").await;
    next
}

#[tokio::test]
async fn schedule_stores_a_manifest_and_gives_its_id() {
    let (_db, s) = session().await;
    let id = s.number("select trax.schedule('m', 'a')").await;
    let manifest = "select manifest_id, name, task, input, group_name, cron, every, run_at, timezone, priority,
                        max_retries, retry_delay, timeout, enabled, disabled_reason, misfire, overlap, dormant
                    from trax.manifest";
    assert_eq!(
        s.get(manifest).await,
        format!("{id}|m|a|{{}}|default||||UTC|0||||t||fire_once|queue|f")
    );
    assert_eq!(
        s.get(STATE).await,
        "m|t||",
        "without a schedule it only runs when triggered"
    );
    assert_eq!(s.number("select trax.schedule('m', 'b')").await, id);
    assert_eq!(s.get("select task from trax.manifest").await, "b");
    s.assert_healthy().await;
}

#[tokio::test]
async fn what_is_not_given_keeps_its_value() {
    let (_db, s) = session().await;
    s.get(
        "select trax.schedule('m', 'a', input => '[1]', cron => '0 2 * * *', timezone => 'Europe/Berlin',
             group_name => 'g', priority => 5, max_retries => 6, retry_delay => '7 s', timeout => '8 s',
             starts_at => '2020-01-01Z', ends_at => '2200-01-01Z', enabled => false)",
    )
    .await;
    let before = stored(&s).await;
    s.get("select trax.schedule('m', 'a')").await;
    assert_eq!(stored(&s).await, before);
    s.get("select trax.schedule('m', 'a', priority => 6)").await;
    assert_eq!(
        stored(&s).await,
        before.replace("\"priority\": 5", "\"priority\": 6")
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_change_that_names_no_task_keeps_what_runs() {
    let (_db, s) = session().await;
    s.get(
        "select trax.schedule('task', 'a', input => '[1]', cron => '0 2 * * *');
         select trax.schedule('statement', sql => 'select 1', cron => '0 2 * * *')",
    )
    .await;
    let what = "select string_agg(concat_ws(' ', name, task, input, run_as, timezone), '; ' order by name desc)
        from trax.manifest";
    let before = s.get(what).await;
    for name in ["task", "statement"] {
        s.get(&format!(
            "select trax.schedule('{name}', timezone => 'Europe/Berlin')"
        ))
        .await;
    }
    assert_eq!(s.get(what).await, before.replace("UTC", "Europe/Berlin"));
    s.get("select trax.schedule('task', input => '[2]')").await;
    assert_eq!(
        s.get("select input from trax.manifest where name = 'task'")
            .await,
        "[2]"
    );
    let refusal = s
        .refusal("select trax.schedule('statement', input => '[2]')")
        .await;
    assert_eq!(refusal.code, "22023");
    let refusal = s
        .refusal("select trax.schedule('new', timezone => 'Europe/Berlin')")
        .await;
    assert_eq!(refusal.code, "22004");
    assert!(refusal.hint.contains("task =>"), "{refusal}");
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_same_schedule_again_changes_nothing() {
    let (_db, s) = session().await;
    for schedule in [
        "cron => '0 2 * * *'",
        "every => '1 h'",
        "run_at => '2099-01-01Z'",
        "enabled => false, every => '1 h'",
    ] {
        let call = format!("select trax.schedule('m', 'a', {schedule})");
        s.get(&call).await;
        // A value that a new evaluation would not give.
        s.get(
            "update trax.manifest_state set next_run_at = next_run_at + interval '13 s',
                 next_scheduled_for = next_scheduled_for + interval '13 s'",
        )
        .await;
        let before = stored(&s).await;
        s.get(&call).await;
        assert_eq!(stored(&s).await, before, "{schedule}");
        s.get("select trax.unschedule('m')").await;
    }
}

#[tokio::test]
async fn a_changed_schedule_replaces_the_old_one() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', run_at => '2099-01-01Z')")
        .await;
    assert_eq!(s.get(STATE).await, "m|t||2099-01-01 00:00:00");
    s.get("select trax.schedule('m', 'a', run_at => '2098-01-01Z')")
        .await;
    assert_eq!(s.get(STATE).await, "m|t||2098-01-01 00:00:00");
    s.get("select trax.schedule('m', 'a', every => '1 h')")
        .await;
    assert_eq!(
        s.get("select cron, every, run_at from trax.manifest").await,
        "|01:00:00|"
    );
    assert_eq!(
        s.get("select next_run_at <= clock_timestamp() from trax.manifest_state")
            .await,
        "t",
        "first run at once"
    );
    s.get("select trax.schedule('m', 'a', cron => '0 0 1 1 *')")
        .await;
    assert_eq!(
        s.get("select cron, every, run_at from trax.manifest").await,
        "0 0 1 1 *||"
    );
    let new_year = "select next_run_at at time zone 'UTC' = date_trunc('year', now() at time zone 'UTC') + interval '1 year'
                    from trax.manifest_state";
    assert_eq!(s.get(new_year).await, "t");
    s.assert_healthy().await;
}

#[tokio::test]
async fn cron_has_five_fields_or_six_and_monday_is_one() {
    let (_db, s) = session().await;
    let five = first_run(&s, "cron => '30 2 * * *'").await;
    assert!(five.ends_with(" 02:30:00"), "{five}");
    let six = first_run(&s, "cron => '15 30 2 * * *'").await;
    assert!(six.ends_with(" 02:30:15"), "{six}");
    for (day, weekday) in [("1", "Mon"), ("0", "Sun"), ("7", "Sun"), ("SAT", "Sat")] {
        let next = first_run(&s, &format!("cron => '0 12 * * {day}'")).await;
        assert_eq!(
            s.get(&format!("select to_char('{next}'::timestamp, 'Dy')"))
                .await,
            weekday,
            "{day}"
        );
    }
}

#[tokio::test]
async fn the_next_run_of_a_cron_is_the_first_one_from_now() {
    let (_db, s) = session().await;
    let sql = "select s.next_run_at at time zone 'UTC' = date_trunc('day', m.created_at at time zone 'UTC') + interval '1 day'
               from trax.manifest m join trax.manifest_state s using (manifest_id)";
    s.get("select trax.schedule('m', 'a', cron => '0 0 * * *')")
        .await;
    assert_eq!(s.get(sql).await, "t");
}

#[tokio::test]
async fn a_schedule_begins_at_its_start_and_ends_at_its_end() {
    let (_db, s) = session().await;
    assert_eq!(
        first_run(&s, "cron => '0 0 * * *', starts_at => '2099-05-05Z'").await,
        "2099-05-05 00:00:00"
    );
    assert_eq!(
        first_run(
            &s,
            "cron => '0 0 * * *', starts_at => '2099-05-05 00:00:01Z'"
        )
        .await,
        "2099-05-06 00:00:00"
    );
    assert_eq!(
        first_run(&s, "every => '1 h', starts_at => '2099-05-05Z'").await,
        "2099-05-05 00:00:00"
    );
    s.get("select trax.schedule('m', 'a', every => '1 h', ends_at => now() - interval '1 s')")
        .await;
    assert_eq!(s.get(STATE).await, "m|t|ended|");
    assert_eq!(s.tick("queue_due").await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_schedule_whose_end_has_come_queues_nothing_more() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h', starts_at => '2098-01-01Z', ends_at => '2099-01-01Z')").await;
    s.get("update trax.manifest set starts_at = now() - interval '1 day', ends_at = now() - interval '1 s';
           update trax.manifest_state set next_run_at = now(), next_scheduled_for = now()").await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(s.get(STATE).await, "m|t|ended|");
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_definition_reaches_its_jobs() {
    let (_db, s) = session().await;
    s.get(
        "select trax.schedule('m', 'a', input => '[1]', every => '1 h', group_name => 'g', priority => 5,
             max_retries => 6, retry_delay => '7 s', timeout => '8 s');
         select * from trax.tick();
         select trax.trigger('m')",
    )
    .await;
    let jobs =
        "select task, input, manifest, group_name, priority, max_retries, retry_delay, timeout,
                    scheduled, scheduled_for is not null
                from trax.work_queue order by job_id";
    let common = "a|[1]|m|g|5|6|00:00:07|00:00:08";
    assert_eq!(s.get(jobs).await, format!("{common}|t|t\n{common}|f|f"));
    let job = s.claim("max_jobs => 2").await.remove(0);
    s.get(&format!("select trax.fail({}, 'no')", job.key()))
        .await;
    let delay = "select extract(epoch from q.run_at - r.finished_at) between 6.3 and 7
                 from trax.work_queue q join trax.run r using (job_id)";
    assert_eq!(s.get(delay).await, "t", "the manifest's retry delay counts");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_disabled_manifest_is_not_queued_and_goes_on_with_its_next_run() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', cron => '0 0 1 1 *')")
        .await;
    s.get("select trax.disable_manifest('m')").await;
    assert_eq!(s.get(STATE).await, "m|f|disabled|");
    assert_eq!(s.tick("queue_due").await, 0);
    s.get("select trax.disable_manifest('m'); select trax.enable_manifest('m')")
        .await;
    let next = "select m.enabled, s.parked_on, s.next_run_at > now() from trax.manifest m join trax.manifest_state s using (manifest_id)";
    assert_eq!(s.get(next).await, "t||t");
    let before = stored(&s).await;
    s.get("select trax.enable_manifest('m')").await;
    assert_eq!(
        stored(&s).await,
        before,
        "enabling what is enabled changes nothing"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn what_came_while_it_was_disabled_is_late_when_it_is_enabled() {
    let off_and_on = [
        ("disable_manifest('m')", "enable_manifest('m')"),
        (
            "schedule('m', 'm', enabled => false)",
            "schedule('m', 'm', enabled => true)",
        ),
    ];
    for (off, on) in off_and_on {
        for (misfire, runs) in [("fire_once", 1), ("skip", 0)] {
            let (_db, s) = session().await;
            let hourly = Hourly::of(&s).await;
            s.get(&format!(
                "select trax.schedule('m', 'm', {}, misfire => '{misfire}')",
                hourly.cron()
            ))
            .await;
            due_since(&s, "m", &hourly.ago(2)).await;
            s.get(&format!("select trax.{off}")).await;
            assert_eq!(state(&s, "m").await, "disabled|f");
            assert_eq!(s.tick("queue_due").await, 0);
            s.get(&format!("select trax.{on}")).await;
            assert_eq!(s.tick("queue_due").await, runs, "{misfire}, {on}");
            let sql = format!(
                "select count(*) from trax.work_queue where scheduled_for <> {}",
                hourly.ago(0)
            );
            assert_eq!(s.get(&sql).await, "0", "once, for the newest");
            s.assert_healthy().await;
        }
    }
}

#[tokio::test]
async fn a_schedule_that_was_changed_while_it_was_off_owes_nothing() {
    let (_db, s) = session().await;
    let hourly = Hourly::of(&s).await;
    s.get(&format!(
        "select trax.schedule('m', 'm', {})",
        hourly.cron()
    ))
    .await;
    due_since(&s, "m", &hourly.ago(2)).await;
    s.get("select trax.disable_manifest('m'); select trax.schedule('m', 'm', cron => '0 0 1 1 *')")
        .await;
    s.get("select trax.enable_manifest('m')").await;
    assert_eq!(s.tick("queue_due").await, 0);
    s.get("select trax.schedule('new', 'm', cron => '* * * * *', enabled => false)")
        .await;
    s.get("select trax.enable_manifest('new')").await;
    let next = "select bool_and(next_run_at > now()) from trax.manifest_state";
    assert_eq!(s.get(next).await, "t", "it was never on");
}

#[tokio::test]
async fn a_manifest_that_is_disabled_while_due_is_parked_by_the_cycle() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h')")
        .await;
    s.get("update trax.manifest set enabled = false").await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(s.get(STATE).await, "m|f|disabled|");
}

#[tokio::test]
async fn unschedule_cancels_what_waits_and_leaves_what_runs() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h'); select trax.trigger('m')")
        .await;
    let running = s.claim_one("").await;
    s.get("select * from trax.tick(); select trax.trigger('m', delay => '1 h')")
        .await;
    assert_eq!(s.get("select trax.unschedule('m')").await, "");
    let left =
        "select (select count(*) from trax.manifest), (select count(*) from trax.manifest_state),
                    (select count(*) from trax.work_queue), (select count(*) from trax.lease)";
    assert_eq!(s.get(left).await, "0|0|0|1");
    assert_eq!(
        s.get("select distinct state, manifest from trax.run").await,
        "cancelled|m"
    );
    assert_eq!(
        s.get(&format!("select trax.complete({})", running.key()))
            .await,
        "t"
    );
    assert_eq!(s.refusal("select trax.unschedule('m')").await.code, "42704");
    s.assert_healthy().await;
}

#[tokio::test]
async fn trigger_queues_now_or_later_with_its_own_input_or_another() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', input => '[1]', cron => '0 0 1 1 *')")
        .await;
    let before = stored(&s).await;
    s.get("select trax.trigger('m'); select trax.trigger('m', '[2]'); select trax.trigger('m', delay => '1 h')").await;
    assert_eq!(stored(&s).await, before, "the schedule is not touched");
    let jobs = "select input, waits_for, run_at - queued_at, manifest, scheduled_for from trax.work_queue order by job_id";
    assert_eq!(
        s.get(jobs).await,
        "[1]||00:00:00|m|\n[2]||00:00:00|m|\n[1]|time|01:00:00|m|"
    );
    let job = s.claim("max_jobs => 2").await.remove(0);
    s.get(&format!("select trax.complete({})", job.key())).await;
    let next = "select next_run_at at time zone 'UTC' = date_trunc('year', now() at time zone 'UTC') + interval '1 year'
                from trax.manifest_state";
    assert_eq!(s.get(next).await, "t");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_disabled_manifest_can_be_triggered() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h', enabled => false)")
        .await;
    let id = s.number("select trax.trigger('m')").await;
    assert_eq!(s.claim_ids("").await, [id]);
    assert_eq!(s.get(STATE).await, "m|f|disabled|");
}

#[tokio::test]
async fn a_schedule_that_rolls_back_leaves_nothing() {
    let (_db, s) = session().await;
    let before = s.everything().await;
    s.get("begin; select trax.schedule('m', 'new', every => '1 s', group_name => 'new'); select * from trax.tick(); rollback").await;
    assert_eq!(s.everything().await, before);
}
