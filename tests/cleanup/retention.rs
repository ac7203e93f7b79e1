//! Retention: any caller's cycle creates partitions ahead and drops old ones.

use harness::many;
use harness::session::{Session, session};
use trax_client::testkit::Database;

const AHEAD: &str = "select count(*) from generate_series(0, 3) n
    where to_regclass('trax.run_' || to_char((now() at time zone 'UTC')::date + n, 'YYYYMMDD')) is not null";

/// Makes the partition of the day this many days ago, with rows.
fn old_day(days: i32, rows: i64) -> String {
    format!(
        "select trax.make_run_partitions(now() - interval '{days} days', 0);
         insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, task, group_name, input)
         select n, t, t, t, t, 1, 0, true, 'completed', 'old', 'default', '{{}}'
         from generate_series(1, {rows}) n, (select now() - interval '{days} days') v (t)"
    )
}

/// Runs a cycle in a new session, since each backend maintains partitions once a minute.
async fn fresh_tick(db: &Database) {
    Session::of(db).await.get("select trax.tick()").await;
}

#[tokio::test]
async fn partitions_are_made_ahead_again_when_they_are_gone() {
    let (db, s) = session().await;
    assert_eq!(s.get(AHEAD).await, "4");
    s.get("select trax.drop_run_partitions(now() + interval '9 days')")
        .await;
    assert_eq!(s.get(AHEAD).await, "0");
    fresh_tick(&db).await;
    assert_eq!(s.get(AHEAD).await, "4");
    s.assert_healthy().await;
}

#[tokio::test]
async fn many_callers_at_once_make_and_drop_without_harm() {
    let (db, s) = session().await;
    s.get("select trax.drop_run_partitions(now() + interval '9 days')")
        .await;
    s.get(&old_day(9, 10)).await;
    s.get(&old_day(8, 10)).await;
    let mut tasks = Vec::new();
    for _ in 0..8 {
        tasks.push(
            Session::of(&db)
                .await
                .spawn("select trax.tick(); commit;".repeat(20)),
        );
    }
    for n in 0..6 {
        let sql = if n % 3 != 0 {
            "select trax.make_run_partitions(now(), 3)"
        } else {
            "select trax.drop_run_partitions(now() - interval '7 days')"
        };
        tasks.push(Session::of(&db).await.spawn(sql));
    }
    for task in tasks {
        let (_, result) = task.await.expect("the task ends");
        result.expect("cleaning up at once is no error");
    }
    fresh_tick(&db).await;
    assert_eq!(s.get(AHEAD).await, "4");
    assert_eq!(s.number("select count(*) from trax.run").await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn very_many_runs_are_dropped_quickly() {
    let (db, s) = session().await;
    s.get(&old_day(9, many(1_000_000))).await;
    s.get(&old_day(2, 1)).await;
    let old = s
        .get("select 'trax.run_' || to_char((now() - interval '9 days') at time zone 'UTC', 'YYYYMMDD')")
        .await;
    let relation = format!("select to_regclass('{old}') is null");
    assert_eq!(s.get(&relation).await, "f");
    let other = Session::of(&db).await;
    let plan = "explain (analyze, wal, format json) select trax.tick()";
    let plan: serde_json::Value = serde_json::from_str(&other.get(plan).await).expect("JSON");
    assert_eq!(s.get(&relation).await, "t");
    assert_eq!(s.number("select count(*) from trax.run").await, 1);
    // Deleting the rows one by one would write a WAL record for each.
    let written = plan[0]["Plan"]["WAL Records"].as_i64();
    println!("dropping them wrote {written:?} records");
    assert!(written.is_some_and(|records| records < 10_000), "{plan}");
}

#[tokio::test]
async fn many_days_beside_a_reader_cost_one_wait() {
    let (db, s) = session().await;
    for day in 9..39 {
        s.get(&old_day(day, 1)).await;
    }
    let reader = Session::of(&db).await;
    reader.get("begin; select count(*) from trax.run").await;
    // Thirty waits of 200 ms would be six seconds.
    harness::prompt::takes_less_than(
        std::time::Duration::from_secs(3),
        "dropping what is read",
        async || {
            let began = std::time::Instant::now();
            let dropped = "select trax.drop_run_partitions(now() - interval '7 days')";
            assert_eq!(s.number(dropped).await, 0);
            began.elapsed()
        },
    )
    .await;
    reader.get("commit").await;
    let dropped = "select trax.drop_run_partitions(now() - interval '7 days')";
    assert_eq!(s.number(dropped).await, 30);
}

#[tokio::test]
async fn a_day_that_is_being_read_is_left_for_later_and_holds_nobody_up() {
    let (db, s) = session().await;
    s.get(&old_day(9, 3)).await;
    let reader = Session::of(&db).await;
    reader.get("begin; select count(*) from trax.run").await;
    s.get("select trax.schedule('m', 'm', every => '1 h')")
        .await;
    let other = Session::of(&db).await;
    // The reader's transaction is still open after the cycle, so the cycle did not wait for it.
    other.get("set statement_timeout = '30 s'").await;
    assert_eq!(other.tick("queue_due").await, 1);
    assert_eq!(s.number("select count(*) from trax.run").await, 3);
    reader.get("commit").await;
    fresh_tick(&db).await;
    assert_eq!(s.number("select count(*) from trax.run").await, 0);
}

#[tokio::test]
async fn completions_go_on_while_partitions_are_made_and_dropped() {
    let (db, s) = session().await;
    s.get("select trax.drop_run_partitions(now() + interval '9 days')")
        .await;
    s.get(&old_day(9, 10)).await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await.key();
    let writer = Session::of(&db).await;
    writer
        .get(&format!("begin; select trax.complete({job})"))
        .await;
    let other = Session::of(&db).await;
    other.get("set statement_timeout = '30 s'").await;
    other.get("select trax.tick()").await;
    writer.get("commit").await;
    fresh_tick(&db).await;
    let days = "select count(*) from generate_series(1, 3) n
        where to_regclass('trax.run_' || to_char((now() at time zone 'UTC')::date + n, 'YYYYMMDD')) is not null";
    assert_eq!(s.get(days).await, "3", "the days to come");
    s.assert_healthy().await;
}

#[tokio::test]
async fn history_that_found_no_partition_is_forgotten_too() {
    let (db, s) = session().await;
    s.get(
        "insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, task, group_name, input)
         select n, t, t, t, t, 1, 0, true, 'completed', 'old', 'default', '{}'
         from generate_series(1, 1000) n, (select now() - interval '30 days') v (t)",
    )
    .await;
    assert_eq!(
        s.number("select count(*) from trax.run_default").await,
        1000
    );
    fresh_tick(&db).await;
    assert_eq!(
        s.number("select count(*) from trax.run").await,
        0,
        "its time is over as well"
    );
}

#[tokio::test]
async fn what_has_been_kept_long_enough_goes_in_the_next_cycle_of_any_session() {
    let (_db, s) = session().await;
    let run_of = |finished: &str| {
        format!(
            "insert into trax.run (job_id, queued_at, run_at, finished_at, attempt, priority, final, state, task, group_name, input)
             values (0, now(), now(), {finished}, 0, 0, true, 'cancelled', 'old', 'default', '{{}}')"
        )
    };
    s.get("select trax.tick()").await;
    s.get(&run_of("now() - interval '30 days'")).await;
    s.get("select trax.tick()").await;
    assert_eq!(s.number("select count(*) from trax.run").await, 0);
    s.get(
        "create table trax.by_hand partition of trax.run for values from ('2020-02-01 00:00+00') to ('2020-02-03 00:00+00')",
    )
    .await;
    s.get(&run_of("'2020-02-02'")).await;
    assert_eq!(s.tick("drop_partitions").await, 1, "whatever its name");
    assert_eq!(s.get("select to_regclass('trax.by_hand')").await, "");
    s.get(&run_of("now() - interval '3 days'")).await;
    s.get("select trax.tick()").await;
    assert_eq!(s.number("select count(*) from trax.run").await, 1);
    s.get("set trax.run_retention = '2d'; select trax.tick()")
        .await;
    assert_eq!(s.number("select count(*) from trax.run").await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_database_that_is_published_does_all_its_work() {
    let server = harness::options()
        .fast()
        .setting("wal_level", "logical")
        .setting("trax.databases", "no_database_has_this_name")
        .start()
        .expect("a server starts");
    let db = server
        .database("published")
        .await
        .expect("a database is made");
    let s = Session::of(&db).await;
    s.get(
        "create publication all_of_it for all tables;
         select trax.schedule('m', 'm', every => '1 h');
         select trax.enqueue('a', unique_key => 'u', concurrency_key => 'k');
         select trax.enqueue('a', concurrency_key => 'k');
         select trax.configure_group('g', max_active_jobs => 2);
         select trax.acquire_token('t', 'h', 1, '1 h');
         insert into trax.worker (name, started_at, last_seen_at) values ('idle', now() - interval '9 days', now() - interval '9 days');
         insert into trax.run (job_id, queued_at, run_at, finished_at, attempt, priority, final, state, task, group_name, input)
             values (0, now(), now(), now() - interval '30 days', 0, 0, true, 'cancelled', 'old', 'default', '{}')",
    )
    .await;
    for _ in 0..3 {
        fresh_tick(&db).await;
        s.get("select trax.complete(job_id, token) from trax.claim_next(max_jobs => 10)")
            .await;
    }
    assert_eq!(
        s.get("select string_agg(distinct state, ' '), count(*) from trax.run")
            .await,
        "completed|3"
    );
    assert_eq!(s.get("select * from trax.failed_step").await, "");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_step_that_fails_is_reported_and_stops_no_other() {
    let (db, s) = session().await;
    s.get("select trax.drop_run_partitions(now() + interval '9 days')")
        .await;
    s.get(
        "insert into trax.worker (name, started_at, last_seen_at)
             values ('idle', now() - interval '9 days', now() - interval '9 days');
         create function public.no() returns trigger language plpgsql as 'begin raise exception ''out of order''; end';
         create trigger no before delete on trax.worker for each row execute function public.no()",
    )
    .await;
    s.get("select trax.schedule('m', 'm', every => '1 h')")
        .await;
    let other = Session::of(&db).await;
    assert_eq!(other.tick("queue_due").await, 1);
    assert_eq!(s.get(AHEAD).await, "4");
    let told = "select healthy, value from trax.status() where item = 'cleanup steps that fail'";
    let seen = s.get(told).await;
    assert!(
        seen.starts_with("f|workers that are gone, since ") && seen.ends_with(": out of order"),
        "{seen}"
    );
    let cause = "select count(*) from trax.diagnose() where cause = 'cleanup_steps_that_fail'";
    assert_eq!(s.number(cause).await, 1);
    s.get("drop function public.no() cascade").await;
    fresh_tick(&db).await;
    assert_eq!(s.get(told).await, "t|0");
    assert_eq!(s.number("select count(*) from trax.worker").await, 0);
}

#[tokio::test]
async fn a_partition_by_hand_that_covers_days_to_come_disturbs_nothing() {
    let (db, s) = session().await;
    s.get("select trax.drop_run_partitions(now() + interval '9 days')")
        .await;
    s.get("create table trax.wide partition of trax.run for values from ('2020-01-01') to ('2099-01-01')")
        .await;
    fresh_tick(&db).await;
    assert_eq!(
        s.get("select string_agg(inhrelid::regclass::text, ' ') from pg_inherits where inhparent = 'trax.run'::regclass and inhrelid <> 'trax.run_default'::regclass").await,
        "trax.wide"
    );
    s.enqueue("'a'").await;
    let job = s.claim_one("").await.key();
    assert_eq!(s.get(&format!("select trax.complete({job})")).await, "t");
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_callers_way_to_write_dates_does_not_matter() {
    for style in ["German, MDY", "SQL, DMY", "Postgres, MDY"] {
        let (_db, s) = session().await;
        s.get(&format!(
            "set datestyle = '{style}'; set timezone = 'Asia/Kathmandu'"
        ))
        .await;
        s.get("select trax.drop_run_partitions(now() + interval '9 days')")
            .await;
        s.get(&old_day(9, 1)).await;
        s.get("select trax.tick()").await;
        assert_eq!(s.get(AHEAD).await, "4", "{style}");
        assert_eq!(s.number("select count(*) from trax.run").await, 0);
    }
}

#[tokio::test]
async fn retention_works_with_a_tick_by_hand_where_nothing_is_preloaded() {
    let server = harness::options()
        .fast()
        .not_preloaded()
        .start()
        .expect("a server starts");
    let db = server.database("plain").await.expect("a database is made");
    let s = Session::of(&db).await;
    s.get("select trax.drop_run_partitions(now() + interval '9 days')")
        .await;
    s.get(&old_day(9, 10)).await;
    let mut tasks = Vec::new();
    for _ in 0..8 {
        tasks.push(
            Session::of(&db)
                .await
                .spawn("select trax.tick(); commit;".repeat(10)),
        );
    }
    for task in tasks {
        let (_, result) = task.await.expect("the task ends");
        result.expect("cleaning up at once is no error");
    }
    assert_eq!(s.get(AHEAD).await, "4");
    assert_eq!(s.number("select count(*) from trax.run").await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_retention_of_a_database_is_a_setting_and_the_last_kept_day_is_whole() {
    let (db, s) = session().await;
    for days in 1..=5 {
        s.get(&old_day(days, 1)).await;
    }
    s.get(&format!(
        "alter database {} set trax.run_retention = '3d'",
        db.name()
    ))
    .await;
    fresh_tick(&db).await;
    let kept = "select count(*), bool_and(finished_at > now() - interval '4 days') from trax.run";
    assert_eq!(s.get(kept).await, "3|t");
}
