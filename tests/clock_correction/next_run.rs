//! Next runs that a wrong clock has put into the far future are corrected.

use harness::manifest::Hourly;
use harness::session::{Session, session};
use harness::shared_server;

/// Days to the next run of each manifest, by name.
const DAYS: &str = "select m.name, floor(extract(epoch from s.next_run_at - now()) / 86400)
    from trax.manifest_state s join trax.manifest m using (manifest_id) order by 1";

const MANIFESTS: &str = "select trax.schedule('daily', 'a', cron => '0 0 * * *');
    select trax.schedule('interval', 'a', every => '2 days');
    select trax.schedule('leap', 'a', cron => '0 0 29 2 *', timezone => 'Europe/Berlin');
    select trax.schedule('once', 'a', run_at => now() + interval '900 days');
    select trax.schedule('starts', 'a', cron => '0 0 * * *', starts_at => now() + interval '500 days');
    select trax.schedule('varied', 'a', cron => '0 0 * * *', variance => interval '10 min')";

#[tokio::test]
async fn next_runs_that_a_clock_ahead_of_now_decided_are_computed_anew_and_reported() {
    let (db, s) = session().await;
    s.get(MANIFESTS).await;
    s.get("update trax.manifest_state set next_run_at = now() + interval '1 day', next_scheduled_for = now() + interval '1 day'
           where manifest_id = (select manifest_id from trax.manifest where name = 'interval')")
        .await;
    let right = s.get(DAYS).await;
    let (_, kept) = right.split_once("leap").expect("its line");
    // The effect of a cycle while the clock is 400 days ahead.
    s.get("update trax.manifest_state s set
               next_run_at = next_run_at + interval '400 days', next_scheduled_for = next_scheduled_for + interval '400 days',
               last_scheduled_for = now() + interval '400 days', last_success_at = now() + interval '400 days',
               decided_at = now() + interval '400 days'
           from trax.manifest m where m.manifest_id = s.manifest_id and m.name in ('daily', 'interval', 'varied')")
        .await;
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    let seen = s.get(DAYS).await;
    let varied = seen.lines().last().expect("a line");
    assert!(
        varied.starts_with("varied|0") || varied.starts_with("varied|1"),
        "{seen}"
    );
    assert!(seen.starts_with("daily|0\ninterval|"), "{seen}");
    let interval =
        "select next_run_at between now() + interval '1 day' and now() + interval '2 days'
        from trax.manifest_state join trax.manifest using (manifest_id) where name = 'interval'";
    assert_eq!(s.get(interval).await, "t", "{seen}");
    let lines = |text: &str| -> Vec<String> {
        text.lines()
            .filter(|line| line.contains("once") || line.contains("starts"))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(lines(&seen), lines(kept), "rules explain them");
    let log = std::fs::read_to_string(shared_server().log_file()).expect("the log can be read");
    assert!(log.contains("3 manifests had next runs later than their schedules allow"));
    s.assert_healthy().await;
}

#[tokio::test]
async fn an_occurrence_that_has_run_does_not_come_back() {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'a', cron => '* * * * *')")
        .await;
    // The clock was set back slightly: the last occurrence is ahead, and the next one further.
    s.get(
        "update trax.manifest_state set
               last_scheduled_for = date_trunc('minute', now()) + interval '20 min',
               next_run_at = date_trunc('minute', now()) + interval '21 min',
               next_scheduled_for = date_trunc('minute', now()) + interval '21 min',
               decided_at = now() + interval '20 min'",
    )
    .await;
    let next = "select next_run_at from trax.manifest_state";
    let before = s.get(next).await;
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    assert_eq!(s.get(next).await, before);
}

/// An hourly manifest whose last run was `ran`, rescheduled by a clock that was two days ahead;
/// `also` makes further changes. Returns the next occurrence, where the last one is 0.
async fn armed_ahead(ran: &str, also: &str) -> String {
    let (db, s) = session().await;
    let hourly = Hourly::of(&s).await;
    let ran = ran.replace("last", &hourly.ago(0));
    s.get(&format!(
        "select trax.schedule('m', 'a', {});
         update trax.manifest set updated_at = now() - interval '1 day';
         update trax.manifest_state set last_scheduled_for = {ran}, last_queued_at = {ran},
             next_run_at = next_run_at + interval '2 days', next_scheduled_for = next_scheduled_for + interval '2 days',
             decided_at = now() + interval '2 days';
         {also}",
        hourly.cron()
    ))
    .await;
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    let next = hourly.count_of("next_scheduled_for");
    s.get(&format!("select {next} from trax.manifest_state"))
        .await
}

#[tokio::test]
async fn a_manifest_that_was_armed_by_a_clock_ahead_runs_at_its_next_occurrence() {
    assert_eq!(armed_ahead("last", "").await, "-1");
    // The run had another schedule, which has changed since.
    let changed = "update trax.manifest set updated_at = now() + interval '2 days'";
    assert_eq!(armed_ahead("last - interval '7 min'", changed).await, "-1");
}

#[tokio::test]
async fn an_occurrence_that_other_zone_data_had_elsewhere_does_not_run_twice() {
    assert_eq!(armed_ahead("last - interval '7 min'", "").await, "-2");
}

/// Values that a person may set by hand.
const BY_HAND: [&str; 2] = [
    "next_run_at = now() + interval '5 days'",
    "next_run_at = now() + interval '5 days', next_scheduled_for = now() + interval '5 days'",
];

#[tokio::test]
async fn a_next_run_that_somebody_sets_by_hand_stays_however_far_ahead() {
    for by_hand in BY_HAND {
        let (db, s) = session().await;
        s.get(
            "select trax.schedule('cron', 'a', cron => '0 * * * *');
             select trax.schedule('every', 'a', every => '1 h');
             select trax.schedule('varied', 'a', every => '1 h', variance => interval '10 min')",
        )
        .await;
        s.get(&format!("update trax.manifest_state set {by_hand}"))
            .await;
        Session::of(&db)
            .await
            .get("select * from trax.tick()")
            .await;
        let kept = "select count(*) from trax.manifest_state where next_run_at > now() + interval '4 days'";
        assert_eq!(s.number(kept).await, 3, "{by_hand}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn what_was_to_run_at_once_by_a_clock_ahead_of_now_runs_at_once() {
    let (db, s) = session().await;
    s.get("select trax.schedule('parent', 'a'); select trax.schedule('child', 'c', depends_on => '{parent}');
           select trax.schedule('rests', 'r', cron => '* * * * *');
           select trax.trigger('parent')")
        .await;
    let job = s.claim_one("tasks => '{a}'").await;
    s.get(&format!("select trax.complete({})", job.key())).await;
    // By a clock that is a month ahead, the child is due and a failed manifest rests.
    s.get("update trax.manifest_state s set next_run_at = now() + interval '30 days', decided_at = now() + interval '30 days',
               next_scheduled_for = case m.name when 'child' then now() + interval '30 days' else date_trunc('minute', now()) end,
               evaluation_error = case m.name when 'rests' then 'no' end
           from trax.manifest m where m.manifest_id = s.manifest_id and m.name in ('child', 'rests')")
        .await;
    let fresh = Session::of(&db).await;
    fresh.get("select * from trax.tick()").await;
    fresh.get("select * from trax.tick()").await;
    let queued = "select string_agg(task, ' ' order by task) from trax.work_queue";
    assert_eq!(s.get(queued).await, "c r");
    s.assert_healthy().await;
}
