//! After an update of the server's zone data, next runs are recomputed.

use harness::session::{Session, session};

const DAMAGE: &str = "update trax.manifest_state
    set next_run_at = next_run_at + interval '1 h', next_scheduled_for = next_scheduled_for + interval '1 h'";

/// Whether each manifest's next run matches its schedule, by the preview after now.
const RIGHT: &str = "select m.name, s.next_scheduled_for = p.run_at, s.next_run_at >= p.run_at
    from trax.manifest m
    join trax.manifest_state s using (manifest_id)
    cross join lateral trax.preview(m.name, count => 1) p
    order by m.name";

#[tokio::test]
async fn next_runs_in_zones_are_corrected_once_after_an_update_of_the_data() {
    let (db, s) = session().await;
    s.get(
        "select trax.schedule('berlin', 'a', cron => '30 4 * * *', timezone => 'Europe/Berlin');
         select trax.schedule('utc', 'a', cron => '30 4 * * *');
         select * from trax.tick()",
    )
    .await;
    assert_ne!(
        s.get("select zone_data from trax.instance").await,
        "",
        "the first cycle notes the data"
    );
    s.get(DAMAGE).await;
    // With the same data, nothing is rechecked.
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    assert_eq!(
        s.get("select bool_or(next_scheduled_for = next_run_at) from trax.manifest_state")
            .await,
        "t"
    );
    let wrong =
        "select count(*) from trax.manifest_state s join trax.manifest m using (manifest_id)
        where (s.next_scheduled_for at time zone m.timezone)::time = '05:30'";
    assert_eq!(s.get(wrong).await, "2");
    // With other data, a new session corrects the manifests that depend on a zone.
    s.get("update trax.instance set zone_data = 'of last year'")
        .await;
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    assert_eq!(s.get(wrong).await, "1", "the one in UTC depends on no data");
    assert_eq!(
        s.get("select zone_data = 'of last year' from trax.instance")
            .await,
        "f"
    );
    s.get("update trax.manifest_state set next_run_at = next_run_at - interval '1 h', next_scheduled_for = next_scheduled_for - interval '1 h'
           where manifest_id = (select manifest_id from trax.manifest where name = 'utc')")
        .await;
    assert_eq!(s.get(RIGHT).await, "berlin|t|t\nutc|t|t");
    s.assert_healthy().await;
}

#[tokio::test]
async fn what_the_variance_added_stays_when_a_run_is_corrected() {
    let (db, s) = session().await;
    s.get(
        "select trax.schedule('m', 'a', cron => '30 4 * * *', timezone => 'Europe/Berlin', variance => interval '10 min');
         select * from trax.tick()",
    )
    .await;
    let delay = "select next_run_at - next_scheduled_for from trax.manifest_state";
    let before = s.get(delay).await;
    s.get(DAMAGE).await;
    s.get("update trax.instance set zone_data = 'of last year'")
        .await;
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    assert_eq!(s.get(delay).await, before);
    assert_eq!(
        s.get("select (next_scheduled_for at time zone 'Europe/Berlin')::time from trax.manifest_state").await,
        "04:30:00"
    );
}

/// A daily manifest that is next due in `from_now`; `planned` is its next run by the old data.
async fn planned(s: &Session, from_now: &str, planned: &str) {
    // The tests may go on in a later minute.
    s.get("create table public.begun as select date_trunc('minute', now()) as at")
        .await;
    let minute = format!(
        "select to_char(((select at from public.begun) + interval '{from_now}') at time zone 'Asia/Kolkata', 'FMMI FMHH24')"
    );
    let minute = s.get(&minute).await;
    s.get(&format!(
        "select trax.schedule('m', 'm', cron => '{minute} * * *', timezone => 'Asia/Kolkata');
         select * from trax.tick();
         update trax.manifest_state
         set next_run_at = p.at, next_scheduled_for = p.at, last_scheduled_for = p.at - interval '1 day'
         from (select at + interval '{planned}' as at from public.begun) p;
         update trax.instance set zone_data = 'of last year'"
    ))
    .await;
}

/// The minutes from now to the next run, and from the beginning of the test to its occurrence.
const NEXT: &str = "select round(extract(epoch from next_run_at - now()) / 60),
    round(extract(epoch from next_scheduled_for - (select at from public.begun)) / 60) from trax.manifest_state";

#[tokio::test]
async fn an_occurrence_that_the_new_data_has_just_passed_runs_at_once() {
    let (db, s) = session().await;
    planned(&s, "-30 min", "30 min").await;
    let fresh = Session::of(&db).await;
    assert_eq!(fresh.tick("queue_due").await, 1);
    let next = s.get(NEXT).await;
    assert!(next.ends_with("|1410"), "and tomorrow: {next}");
}

#[tokio::test]
async fn an_occurrence_that_ran_by_the_old_data_does_not_run_again_by_the_new() {
    let (db, s) = session().await;
    // Today's run was half an hour ago; by the new data it would be due in half an hour.
    planned(&s, "30 min", "1 day -30 min").await;
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    let next = s.get(NEXT).await;
    assert!(next.ends_with("|1470"), "{next}");
}

#[tokio::test]
async fn a_next_run_that_another_transaction_holds_is_corrected_later() {
    let (db, s) = session().await;
    planned(&s, "3 h", "4 h").await;
    s.get("begin; select from trax.manifest_state for update")
        .await;
    let other = Session::of(&db).await;
    other.get("select * from trax.tick()").await;
    assert!(other.get(NEXT).await.ends_with("|240"));
    s.get("rollback").await;
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    assert!(s.get(NEXT).await.ends_with("|180"));
}

#[tokio::test]
async fn adopting_computes_next_runs_with_the_data_of_this_server() {
    let (db, s) = session().await;
    planned(&s, "3 h", "4 h").await;
    Session::of(&db).await.get("select trax.adopt()").await;
    assert!(s.get(NEXT).await.ends_with("|180"));
    let noted = "select zone_data <> 'of last year' from trax.instance";
    assert_eq!(s.get(noted).await, "t");
}

#[tokio::test]
async fn a_run_in_its_variance_delay_is_not_lost_by_an_update_of_the_data() {
    let (db, s) = session().await;
    planned(&s, "-2 min", "-2 min").await;
    s.get("update trax.manifest_state set next_run_at = now() + interval '1 h'")
        .await;
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    assert_eq!(s.get(NEXT).await, "60|-2");
}

#[tokio::test]
async fn an_occurrence_that_has_come_by_the_old_data_waits_for_that_of_the_new() {
    let (db, s) = session().await;
    planned(&s, "30 min", "-1 min").await;
    let fresh = Session::of(&db).await;
    assert_eq!(fresh.tick("queue_due").await, 0);
    assert!(s.get(NEXT).await.ends_with("|30"));
}

#[tokio::test]
async fn an_occurrence_that_has_come_by_the_old_data_and_by_the_new_runs_once() {
    for (right, was) in [("-10 min", "-20 min"), ("-20 min", "-10 min")] {
        let (db, s) = session().await;
        planned(&s, right, was).await;
        let fresh = Session::of(&db).await;
        assert_eq!(fresh.tick("queue_due").await, 1);
        let next = s.get(NEXT).await;
        let minutes = if right == "-10 min" { "|1430" } else { "|1420" };
        assert!(next.ends_with(minutes), "{right}: {next}");
        s.get("delete from trax.work_queue").await;
        assert_eq!(fresh.tick("queue_due").await, 0);
    }
}
