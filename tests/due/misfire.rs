//! Misfires: the handling of late runs.

use harness::manifest::{Hourly, complete_one, due_since};
use harness::session::{Session, session};

/// An hourly manifest whose next run is this many occurrences before the last one.
async fn late(s: &Session, options: &str, since: i32) -> Hourly {
    let hourly = Hourly::of(s).await;
    s.get(&format!(
        "select trax.schedule('m', 'm', {}, {options})",
        hourly.cron()
    ))
    .await;
    due_since(s, "m", &hourly.ago(since)).await;
    hourly
}

/// Runs due jobs until none is left, and returns their occurrences; the last occurrence is 0.
async fn runs(s: &Session, hourly: &Hourly) -> String {
    for _ in 0..40 {
        if s.tick("queue_due").await == 0 {
            let sql = format!(
                "select string_agg({}::text, ' ' order by finished_at) from trax.run",
                hourly.count_of("scheduled_for")
            );
            let next = format!(
                "select {} from trax.manifest_state",
                hourly.count_of("next_scheduled_for")
            );
            assert_eq!(s.get(&next).await, "-1", "the next is the one to come");
            s.assert_healthy().await;
            return s.get(&sql).await;
        }
        complete_one(s, "").await;
    }
    panic!("it runs for ever");
}

const SKIPPED: &str = "select skipped from trax.manifest_state";

#[tokio::test]
async fn fire_once_runs_once_for_all_that_were_missed() {
    let (_db, s) = session().await;
    let hourly = late(&s, "misfire => 'fire_once'", 30).await;
    assert_eq!(runs(&s, &hourly).await, "0", "for the newest");
}

#[tokio::test]
async fn fire_all_runs_each_that_was_missed_the_oldest_first() {
    let (_db, s) = session().await;
    let hourly = late(&s, "misfire => 'fire_all'", 4).await;
    assert_eq!(runs(&s, &hourly).await, "4 3 2 1 0");
}

#[tokio::test]
async fn fire_all_makes_up_for_no_more_than_its_limit() {
    let (_db, s) = session().await;
    let hourly = late(&s, "misfire => 'fire_all', misfire_limit => 3", 8).await;
    assert_eq!(runs(&s, &hourly).await, "8 7 6");
    // The limit counts anew for the next late runs.
    s.get("delete from trax.run").await;
    due_since(&s, "m", &hourly.ago(4)).await;
    assert_eq!(runs(&s, &hourly).await, "4 3 2");
    s.get("delete from trax.run").await;
    due_since(&s, "m", &hourly.ago(1)).await;
    assert_eq!(runs(&s, &hourly).await, "1 0");
}

#[tokio::test]
async fn fire_all_runs_what_is_on_time_beyond_its_limit_and_counts_what_it_drops() {
    let (_db, s) = session().await;
    let options = "misfire => 'fire_all', misfire_limit => 3, misfire_threshold => '50 min'";
    let hourly = late(&s, options, 8).await;
    assert_eq!(runs(&s, &hourly).await, "8 7 6 0");
    assert_eq!(s.get(SKIPPED).await, "5");
    let last = format!(
        "select {} from trax.manifest_state",
        hourly.count_of("last_skipped_for")
    );
    assert_eq!(s.get(&last).await, "1", "the last one that was dropped");
}

#[tokio::test]
async fn a_next_run_that_was_moved_by_hand_stands_for_what_was_missed_since() {
    for (options, wanted) in [
        ("misfire => 'fire_once'", "0"),
        ("misfire => 'fire_all'", "3 2 1 0"),
        ("misfire => 'skip'", ""),
        (
            "misfire => 'fire_all', misfire_threshold => '1 day'",
            "3 2 1 0",
        ),
        ("misfire => 'skip', misfire_threshold => '1 day'", "3 2 1 0"),
    ] {
        let (_db, s) = session().await;
        let hourly = Hourly::of(&s).await;
        s.get(&format!(
            "select trax.schedule('m', 'm', {}, {options})",
            hourly.cron()
        ))
        .await;
        // The next run is between two occurrences, and the stored occurrence is not changed.
        s.get(&format!(
            "update trax.manifest_state set next_run_at = {} - interval '7 min'",
            hourly.ago(3)
        ))
        .await;
        assert_eq!(runs(&s, &hourly).await, wanted, "{options}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn nothing_is_made_up_for_from_the_end_of_the_schedule_on() {
    for options in [
        "misfire => 'fire_once'",
        "misfire => 'skip', misfire_threshold => '200 min'",
    ] {
        let (_db, s) = session().await;
        let hourly = late(&s, options, 4).await;
        s.get(&format!(
            "update trax.manifest set ends_at = {}",
            hourly.ago(1)
        ))
        .await;
        assert_eq!(s.tick("queue_due").await, 1, "{options}");
        complete_one(&s, "").await;
        assert_eq!(s.tick("queue_due").await, 0, "{options}");
        let ran = format!("select {} from trax.run", hourly.count_of("scheduled_for"));
        assert_eq!(s.get(&ran).await, "2", "{options}");
    }
}

#[tokio::test]
async fn fire_all_queues_one_at_a_time_and_several_when_they_may_overlap() {
    let (_db, s) = session().await;
    late(&s, "misfire => 'fire_all'", 5).await;
    assert_eq!(s.tick("queue_due").await, 1);
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 1);
}

#[tokio::test]
async fn skip_runs_nothing_that_was_missed_and_records_it() {
    let (_db, s) = session().await;
    let hourly = late(&s, "misfire => 'skip'", 5).await;
    assert_eq!(runs(&s, &hourly).await, "");
    assert_eq!(s.get(SKIPPED).await, "6");
    let last = format!(
        "select {} from trax.manifest_state",
        hourly.count_of("last_skipped_for")
    );
    assert_eq!(s.get(&last).await, "0");
}

#[tokio::test]
async fn skip_runs_the_newest_missed_one_within_the_threshold() {
    let (_db, s) = session().await;
    let hourly = late(&s, "misfire => 'skip', misfire_threshold => '50 min'", 5).await;
    assert_eq!(runs(&s, &hourly).await, "0");
    assert_eq!(s.get(SKIPPED).await, "5");
}

#[tokio::test]
async fn what_is_late_within_the_threshold_is_not_missed() {
    for misfire in ["skip", "fire_once", "fire_all"] {
        let (_db, s) = session().await;
        let options =
            format!("misfire => '{misfire}', misfire_threshold => '110 min', misfire_limit => 1");
        let hourly = late(&s, &options, 1).await;
        assert_eq!(
            runs(&s, &hourly).await,
            "1 0",
            "{misfire}: both were in time"
        );
        assert_eq!(s.get(SKIPPED).await, "0");
    }
}

#[tokio::test]
async fn a_late_every_runs_once_or_not_at_all() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'm', every => '1 h', misfire => 'fire_all')")
        .await;
    due_since(&s, "m", "now() - interval '9 h'").await;
    assert_eq!(s.tick("queue_due").await, 1);
    complete_one(&s, "").await;
    assert_eq!(
        s.tick("queue_due").await,
        0,
        "there are no occurrences to make up for"
    );
    s.get("select trax.schedule('m', 'm', misfire => 'skip')")
        .await;
    due_since(&s, "m", "now() - interval '9 h'").await;
    assert_eq!(s.tick("queue_due").await, 0);
    let next = "select next_run_at > now() + interval '59 min', skipped from trax.manifest_state";
    assert_eq!(s.get(next).await, "t|1");
    due_since(&s, "m", "now() - interval '9 s'").await;
    assert_eq!(s.tick("queue_due").await, 1);
}

#[tokio::test]
async fn a_late_run_at_runs_unless_it_is_to_be_skipped() {
    for (misfire, queued) in [("fire_once", 1), ("fire_all", 1), ("skip", 0)] {
        let (_db, s) = session().await;
        s.get(&format!(
            "select trax.schedule('m', 'm', run_at => now() - interval '1 h', misfire => '{misfire}')"
        ))
        .await;
        assert_eq!(s.tick("queue_due").await, queued, "{misfire}");
        assert_eq!(s.tick("queue_due").await, 0, "{misfire}");
        let parked = if queued == 1 { "outcome|0" } else { "ended|1" };
        let state = "select parked_on, skipped from trax.manifest_state";
        assert_eq!(s.get(state).await, parked, "{misfire}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_cron_of_every_second_that_was_off_for_ten_years_is_no_flood() {
    for misfire in ["fire_once", "fire_all", "skip"] {
        let (_db, s) = session().await;
        s.get(&format!(
            "set statement_timeout = '5 s';
             select trax.schedule('m', 'm', cron => '* * * * * *', misfire => '{misfire}', misfire_limit => 2)"
        ))
        .await;
        due_since(&s, "m", "now() - interval '10 years'").await;
        let mut made_up = 0;
        while s
            .number(
                "select extract(epoch from now() - next_run_at)::bigint from trax.manifest_state",
            )
            .await
            > 61
        {
            made_up += s.tick("queue_due").await;
            s.get("select trax.complete(job_id, token) from trax.claim_next()")
                .await;
        }
        assert!(made_up <= 2, "{misfire}: {made_up}");
        s.assert_healthy().await;
    }
}
