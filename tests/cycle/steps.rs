//! Failing steps: each undoes only its own work, is reported, and does not stop other steps.

use harness::session::{Session, session};
use harness::shared_server;

/// The failed steps of the last cycle.
const TOLD: &str =
    "select healthy, value from trax.status() where item = 'cleanup steps that fail'";
const FAILED: &str =
    "select coalesce(string_agg(step, ' ' order by step), '') from trax.failed_step";

async fn leases_end(s: &Session) {
    s.get("update trax.lease set lease_expires_at = now() - interval '1 s', reap_at = now() - interval '1 s'")
        .await;
}

/// Refuses every such statement on a row of a table.
async fn refuse(s: &Session, table: &str, what: &str) {
    s.get(&format!(
        "create or replace function public.test_no() returns trigger language plpgsql
             as 'begin raise exception ''out of order''; end';
         create trigger test_no before {what} execute function public.test_no()"
    ))
    .await;
    assert_eq!(
        s.number(&format!("select count(*) from pg_trigger where tgname = 'test_no' and tgrelid = '{table}'::regclass")).await,
        1
    );
}

/// The number of jobs that one cycle handled in each of these steps.
async fn cycle(s: &Session, steps: &str) -> String {
    s.get(&format!(
        "select string_agg(affected::text, ' ' order by n)
         from trax.tick() with ordinality t (step, affected, n)
         where step = any ('{{{steps}}}')"
    ))
    .await
}

#[tokio::test]
async fn a_lease_whose_end_cannot_be_recorded_stops_nothing_else() {
    let (db, s) = session().await;
    let name = format!("no_{}", db.name());
    s.get(&format!(
        "select count(trax.enqueue(case when n % 5 = 0 then 'bad' else 'good' end, max_retries => 0)) from generate_series(1, 20) n;
         alter table trax.run add constraint {name} check (task <> 'bad') not valid"
    ))
    .await;
    assert_eq!(s.claim("max_jobs => 100").await.len(), 20);
    s.get("select trax.schedule('m', 'm', every => '1 h'); select trax.enqueue('later', run_at => now() + interval '1 h');
           update trax.work_queue set run_at = now() where task = 'later'")
        .await;
    leases_end(&s).await;
    let steps = "reap_expired_leases, queue_due, promote_delayed";
    assert_eq!(cycle(&s, steps).await, "16 1 1");
    let left = "select string_agg(distinct task, ' '), count(*) from trax.lease";
    assert_eq!(s.get(left).await, "bad|4");
    assert_eq!(s.number("select count(*) from trax.dead_letter").await, 16);
    let seen = s.get(TOLD).await;
    assert!(
        seen.starts_with("f|reap_expired_leases, since ") && seen.ends_with(&format!("\"{name}\"")),
        "{seen}"
    );
    s.assert_healthy().await;
    // A step that rests does not count as a success, and a repeated failure is not logged again.
    assert_eq!(cycle(&s, steps).await, "0 0 0");
    leases_end(&s).await;
    assert_eq!(cycle(&s, steps).await, "0 0 0");
    let other = Session::of(&db).await;
    assert_eq!(cycle(&other, steps).await, "0 0 0");
    assert!(s.get(TOLD).await.starts_with("f|reap_expired_leases"));
    let log = std::fs::read_to_string(shared_server().log_file()).expect("the log can be read");
    let said = "a step of the cycle failed (reap_expired_leases): new row for relation";
    let said = log
        .lines()
        .filter(|line| line.contains(said) && line.contains(&name))
        .count();
    assert_eq!(said, 1);
    s.get(&format!(
        "alter table trax.run drop constraint {name};
         update trax.failed_step set failed_at = now() - interval '1 min'"
    ))
    .await;
    leases_end(&s).await;
    let fresh = Session::of(&db).await;
    assert_eq!(cycle(&fresh, steps).await, "4 0 0");
    assert_eq!(s.get(TOLD).await, "t|0");
    s.assert_healthy().await;
}

#[tokio::test]
async fn history_that_takes_no_row_stops_only_what_writes_history() {
    let (_db, s) = session().await;
    s.get(
        "select count(trax.enqueue('a')) from generate_series(1, 100);
           alter table trax.run alter detail set not null",
    )
    .await;
    assert_eq!(s.claim("max_jobs => 100").await.len(), 100);
    leases_end(&s).await;
    s.get("select trax.schedule('m', 'm', every => '1 h')")
        .await;
    let steps = "reap_expired_leases, queue_due";
    assert_eq!(cycle(&s, steps).await, "0 1");
    assert_eq!(s.number("select count(*) from trax.lease").await, 100);
    assert_eq!(s.get(FAILED).await, "reap_expired_leases");
    s.get("alter table trax.run alter detail drop not null")
        .await;
    leases_end(&s).await;
    assert_eq!(cycle(&s, steps).await, "100 0");
    s.assert_healthy().await;
}

#[tokio::test]
async fn what_a_failed_step_had_freed_is_held_again() {
    let (db, s) = session().await;
    s.get("select trax.configure_group('g', max_active_jobs => 1);
           select trax.enqueue('a', group_name => 'g', unique_key => 'u', concurrency_key => 'k', max_retries => 0);
           select trax.enqueue('b', group_name => 'g', concurrency_key => 'k')")
        .await;
    s.claim_one("tasks => '{a}'").await;
    let other = Session::of(&db).await;
    let none = async || {
        assert_eq!(s.claim("").await.len(), 0);
        assert_eq!(other.claim("").await.len(), 0);
        assert_eq!(Session::of(&db).await.claim("").await.len(), 0);
    };
    none().await;
    leases_end(&s).await;
    // The last action at the end of a job, after its slots are free.
    refuse(
        &s,
        "trax.unique_key",
        "delete on trax.unique_key for each row",
    )
    .await;
    let lost = "select coalesce(sum(value), 0)::bigint from trax.tallies() where name = 'trax_leases_lost_total'";
    for _ in 0..3 {
        assert_eq!(s.tick("reap_expired_leases").await, 0);
        none().await;
        leases_end(&s).await;
    }
    assert_eq!(s.get(FAILED).await, "reap_expired_leases");
    assert_eq!(s.number(lost).await, 0);
    assert_eq!(s.number("select count(*) from trax.run").await, 0);
    s.assert_healthy().await;
    s.get("drop function public.test_no() cascade").await;
    assert_eq!(s.tick("reap_expired_leases").await, 1);
    assert_eq!(s.number(lost).await, 1);
    other.claim_one("tasks => '{b}'").await;
    none().await;
    s.assert_healthy().await;
}

/// A step, the work for it, and the statement that then fails.
const STEPS: [(&str, &str, &str, &str); 4] = [
    (
        "cancel_timed_out",
        "select trax.enqueue('t'); select count(*) from trax.claim_next(lease => '1 h');
         update trax.lease set timeout_at = now() - interval '1 s', reap_at = now() - interval '1 s'",
        "trax.lease",
        "update on trax.lease for each row when (new.timed_out)",
    ),
    (
        "expire_queued",
        "select trax.limit_queue_time(trax.enqueue('t'), '1 us')",
        "trax.work_queue",
        "delete on trax.work_queue for each row",
    ),
    (
        "promote_delayed",
        "select trax.enqueue('t', run_at => now() + interval '1 h'); update trax.work_queue set run_at = now()",
        "trax.work_queue",
        "update on trax.work_queue for each row",
    ),
    (
        "queue_due",
        "select trax.schedule('n', 'n', every => '1 h')",
        "trax.manifest_state",
        "update on trax.manifest_state for each row",
    ),
];

#[tokio::test]
async fn each_step_fails_by_itself_and_goes_on_when_it_can() {
    for (step, work, table, refused) in STEPS {
        let (db, s) = session().await;
        s.get(work).await;
        s.get("select trax.schedule('m', 'm', every => '1 h')")
            .await;
        refuse(&s, table, refused).await;
        let seen = cycle(&s, &format!("{step}, queue_due")).await;
        let others = if step == "queue_due" { "0" } else { "1" };
        assert!(seen.split(' ').any(|count| count == "0"), "{step}: {seen}");
        assert!(
            seen.split(' ').any(|count| count == others),
            "{step}: {seen}"
        );
        assert_eq!(s.get(FAILED).await, step);
        s.get("drop function public.test_no() cascade").await;
        assert!(s.tick(step).await > 0, "{step}");
        s.get("update trax.failed_step set failed_at = now() - interval '1 min'")
            .await;
        let fresh = Session::of(&db).await;
        fresh.get("select * from trax.tick()").await;
        assert_eq!(s.get(FAILED).await, "", "{step}");
    }
}

#[tokio::test]
async fn a_cancel_ends_the_cycle_and_is_no_failure_of_its_step() {
    let (_db, s) = session().await;
    s.get("select trax.enqueue('t', run_at => now() + interval '1 h'); update trax.work_queue set run_at = now();
           create function public.test_waits() returns trigger language plpgsql as 'begin perform pg_sleep(600); return new; end';
           create trigger test_waits before update on trax.work_queue for each row execute function public.test_waits();
           set statement_timeout = '500 ms'")
        .await;
    let refusal = s.refusal("select * from trax.tick()").await;
    assert_eq!(refusal.code, "57014", "{refusal}");
    s.get("reset statement_timeout; drop function public.test_waits() cascade")
        .await;
    assert_eq!(s.get(FAILED).await, "");
    assert_eq!(s.tick("promote_delayed").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cycle_with_nothing_to_do_takes_no_transaction_id() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'm', every => '1 h'); select trax.enqueue('later', run_at => now() + interval '1 h');
           select * from trax.tick()")
        .await;
    s.claim_one("lease => '1 h'").await;
    s.get("begin; select * from trax.tick()").await;
    let taken = "select pg_current_xact_id_if_assigned() is not null";
    assert_eq!(s.get(taken).await, "f");
    s.get("commit").await;
}

#[tokio::test]
async fn a_part_of_the_repair_that_fails_stops_no_other_part() {
    let (db, s) = session().await;
    s.enqueue("'a', max_retries => 0").await;
    let dead = s.claim_one("").await;
    s.get(&format!(
        "select trax.fail({}, 'no'); delete from trax.dead_letter",
        dead.key()
    ))
    .await;
    // As if the job before it had ended without letting it in.
    let blocked = s.enqueue("'b', concurrency_key => 'k'").await;
    s.get("update trax.work_queue set waits_for = 'key'").await;
    refuse(
        &s,
        "trax.dead_letter",
        "insert on trax.dead_letter for each row",
    )
    .await;
    assert_eq!(
        cycle(&Session::of(&db).await, "reap_dead_letters").await,
        "0"
    );
    assert_eq!(s.claim_ids("").await, [blocked]);
    assert_eq!(s.get(FAILED).await, "repair");
    s.get("drop trigger test_no on trax.dead_letter").await;
    assert_eq!(
        cycle(&Session::of(&db).await, "reap_dead_letters").await,
        "1"
    );
    assert_eq!(s.get(FAILED).await, "");
    s.assert_healthy().await;
}
