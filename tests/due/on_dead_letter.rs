//! Schedules that stop at a dead letter, and those that continue.

use super::{due_since, with_dead_letter};
use harness::manifest::{state, succeed};
use harness::session::{Session, session};

const OPEN: &str = "select count(*) from trax.dead_letter where status = 'awaiting_intervention'";
const STOPPED: &str = "select manifest, reason, last_error from trax.stopped_schedule";

/// Claims the only job and fails it for good.
async fn die(s: &Session) {
    let job = s.claim_one("").await;
    let failed = format!("select trax.fail({}, 'no', permanent => true)", job.key());
    assert_eq!(s.get(&failed).await, "dead");
}

#[tokio::test]
async fn a_schedule_that_continues_comes_although_a_dead_letter_is_open() {
    for schedule in ["cron => '0 * * * *'", "every => '1 h'"] {
        let (_db, s) = session().await;
        s.get(&format!(
            "select trax.schedule('m', 'a', {schedule}, on_dead_letter => 'continue')"
        ))
        .await;
        for _ in 0..3 {
            due_since(&s, "now() - interval '1 s'").await;
            assert_eq!(s.tick("queue_due").await, 1, "{schedule}");
            die(&s).await;
            s.tick("queue_due").await;
            let next = "select parked_on is null, next_run_at > now() + interval '1 s' from trax.manifest_state";
            assert_eq!(s.get(next).await, "t|t", "{schedule}: after the failure");
            s.assert_healthy().await;
        }
        assert_eq!(s.number(OPEN).await, 1, "that of the first failure");
        assert_eq!(s.get(STOPPED).await, "");
        let reason = "select count(*) from trax.explain_manifest('m') where reason = 'dead_letter'";
        assert_eq!(s.number(reason).await, 0);
    }
}

#[tokio::test]
async fn a_dependent_that_continues_runs_after_each_success_of_its_parent() {
    let (_db, s) = session().await;
    s.get(
        "select trax.schedule('p', 'p');
         select trax.schedule('c', 'a', depends_on => '{p}', on_dead_letter => 'continue');
         select trax.schedule('d', 'b', depends_on => '{c}')",
    )
    .await;
    for _ in 0..2 {
        succeed(&s, "p").await;
        assert_eq!(s.tick("queue_due").await, 1);
        die(&s).await;
        s.assert_healthy().await;
    }
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 0);
    succeed(&s, "p").await;
    s.tick("queue_due").await;
    harness::manifest::complete_one(&s, "tasks => '{a}'").await;
    assert_eq!(s.tick("queue_due").await, 1, "what depends on it");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_stopped_schedule_goes_on_at_once_when_it_is_to_continue() {
    let calls = [
        "select trax.schedule('m', 'a', on_dead_letter => 'continue')",
        "select trax.apply('{\"manifests\": [{\"name\": \"m\", \"task\": \"a\", \"max_retries\": 0, {schedule},
            \"on_dead_letter\": \"continue\"}]}')",
    ];
    for (schedule, written) in [
        ("cron => '0 * * * *'", "\"cron\": \"0 * * * *\""),
        ("every => '1 h'", "\"every\": \"1 h\""),
    ] {
        for call in calls {
            let s = with_dead_letter(schedule).await;
            assert_eq!(s.get(STOPPED).await, "m|attempts spent|no");
            s.get(&call.replace("{schedule}", written)).await;
            assert_eq!(state(&s, "m").await, "|t", "{schedule} {call}");
            assert_eq!(s.get(STOPPED).await, "");
            assert_eq!(s.tick("queue_due").await, 1, "{schedule} {call}");
            assert_eq!(s.number(OPEN).await, 1);
            s.assert_healthy().await;
        }
    }
}

#[tokio::test]
async fn one_that_is_to_stop_waits_for_the_dead_letter_that_is_open() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', cron => '0 * * * *', on_dead_letter => 'continue')")
        .await;
    due_since(&s, "now() - interval '1 s'").await;
    s.tick("queue_due").await;
    die(&s).await;
    s.get("select trax.schedule('m', 'a', on_dead_letter => 'stop')")
        .await;
    assert_eq!(s.get(STOPPED).await, "m|failed permanently|no");
    due_since(&s, "now() - interval '1 s'").await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(state(&s, "m").await, "dead_letter|f");
    s.get("select trax.acknowledge_dead_letter(id) from trax.dead_letter")
        .await;
    assert_eq!(s.tick("queue_due").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_requeued_job_does_not_hold_a_schedule_that_continues() {
    for schedule in ["cron => '0 * * * *'", "every => '1 h'"] {
        let (_db, s) = session().await;
        s.get(&format!(
            "select trax.schedule('m', 'a', {schedule}, on_dead_letter => 'continue')"
        ))
        .await;
        due_since(&s, "now() - interval '1 s'").await;
        s.tick("queue_due").await;
        die(&s).await;
        let next = "select next_run_at, parked_on from trax.manifest_state";
        let before = s.get(next).await;
        s.get("select trax.requeue_dead_letter(id) from trax.dead_letter")
            .await;
        assert_eq!(s.get(next).await, before, "{schedule}");
        due_since(&s, "now() - interval '1 s'").await;
        assert_eq!(s.tick("queue_due").await, 1, "{schedule}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn one_that_runs_once_and_continues_has_had_its_run_when_that_failed() {
    let settled = "select m.enabled, s.parked_on from trax.manifest m join trax.manifest_state s using (manifest_id)";
    for at_first in ["continue", "stop"] {
        let (_db, s) = session().await;
        s.get(&format!(
            "select trax.schedule('m', 'a', run_at => now() + interval '1 h', on_dead_letter => '{at_first}');
             update trax.manifest_state set next_run_at = now()"
        ))
        .await;
        assert_eq!(s.tick("queue_due").await, 1);
        die(&s).await;
        if at_first == "stop" {
            assert_eq!(s.get(settled).await, "t|outcome");
            assert_eq!(s.get(STOPPED).await, "", "nothing is to come");
            s.get("select trax.schedule('m', 'a', on_dead_letter => 'continue')")
                .await;
        }
        assert_eq!(s.get(settled).await, "f|ended", "{at_first}");
        s.get("select trax.requeue_dead_letter(id) from trax.dead_letter")
            .await;
        harness::manifest::complete_one(&s, "").await;
        assert_eq!(s.get(settled).await, "f|ended", "{at_first}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_change_waits_for_a_cycle_that_is_about_to_park() {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'a', cron => '0 * * * *')")
        .await;
    due_since(&s, "now() - interval '1 s'").await;
    s.tick("queue_due").await;
    die(&s).await;
    due_since(&s, "now() - interval '1 s'").await;
    let cycle = Session::of(&db).await;
    cycle.get("begin; select count(*) from trax.tick()").await;
    let other = Session::of(&db).await;
    let pid = other.pid();
    let changed = other.spawn("select trax.schedule('m', 'a', on_dead_letter => 'continue')");
    s.sees_waiting(pid).await;
    cycle.get("commit").await;
    let (_, changed) = changed.await.expect("the other session lives");
    changed.expect("it waits and goes on");
    assert_eq!(state(&s, "m").await, "|t");
    assert_eq!(s.tick("queue_due").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_change_that_is_not_committed_yet_is_not_overtaken_by_a_cycle() {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h')")
        .await;
    s.tick("queue_due").await;
    die(&s).await;
    let other = Session::of(&db).await;
    other
        .get("begin; select trax.schedule('m', 'a', on_dead_letter => 'continue')")
        .await;
    assert_eq!(s.tick("queue_due").await, 0, "its state is held");
    other.get("commit").await;
    assert_eq!(s.tick("queue_due").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn schedules_with_nothing_to_come_are_not_stopped() {
    let (_db, s) = session().await;
    s.get(
        "select trax.schedule('by-hand', 'a');
         select trax.schedule('off', 'a', cron => '0 * * * *');
         select trax.schedule('dormant', 'a', depends_on => '{off}', dormant => true)",
    )
    .await;
    for name in ["by-hand", "off", "dormant"] {
        s.get(&format!("select trax.trigger('{name}')")).await;
        die(&s).await;
    }
    assert_eq!(s.get(STOPPED).await, "off|failed permanently|no");
    s.get("select trax.disable_manifest('off')").await;
    assert_eq!(s.get(STOPPED).await, "");
    assert_eq!(s.number(OPEN).await, 3);
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_setting_decides_for_schedules_that_do_not_say() {
    let (_db, s) = session().await;
    let stored =
        "select string_agg(name || ' ' || on_dead_letter, ', ' order by name) from trax.manifest";
    s.get("select trax.schedule('before', 'a')").await;
    s.get("set trax.on_dead_letter = continue").await;
    s.get("select trax.schedule('before', 'b'), trax.schedule('after', 'a'), trax.schedule('said', 'a', on_dead_letter => 'stop')")
        .await;
    assert_eq!(
        s.get(stored).await,
        "after continue, before stop, said stop",
        "a change of something else keeps what is stored"
    );
    let document =
        r#"select count(*) from trax.apply('{"manifests": [{"name": "document", "task": "a"}]}')"#;
    s.get(document).await;
    assert!(s.get(stored).await.contains("document continue"));
    s.get("set trax.on_dead_letter = stop").await;
    s.get(document).await;
    assert!(s.get(stored).await.contains("document stop"));
    let refusal = s.refusal("set trax.on_dead_letter = proceed").await;
    assert_eq!(refusal.hint, "Available values: stop, continue.");
}
