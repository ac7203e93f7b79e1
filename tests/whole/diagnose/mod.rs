//! Each cause of `trax.diagnose()`: the trouble is made on purpose, reported, and gone after its
//! fix is typed.

mod own_server;
mod stuck;

use harness::process::{run, trax_binary};
use harness::scheduler::{connect, live_database, live_server, status_becomes};
use harness::session::{Session, session};
use harness::{PATIENCE, eventually};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

/// The details of a cause, one per line; empty if it is not reported. The patience is zero.
async fn details(s: &Session, cause: &str) -> String {
    s.get(&format!(
        "select detail from trax.diagnose(patience => '0 s') where cause = '{cause}' order by 1"
    ))
    .await
}

/// Returns the fix of a cause reported once; `trax doctor` must show the same fix and exit with 2.
async fn fix(s: &Session, cause: &str) -> String {
    let seen = s
        .get(&format!(
            "select fix from trax.diagnose(patience => '0 s') where cause = '{cause}'"
        ))
        .await;
    assert_ne!(seen, "", "{cause} is told");
    let address = "select format('host=127.0.0.1 port=%s user=%s dbname=%s', current_setting('port'), current_user,
        current_database())";
    let mut doctor = Command::new(trax_binary());
    doctor.args(["doctor", "--json", "--patience", "0 s", "--database-url"]);
    let (code, output, errors) = run(doctor.arg(s.get(address).await));
    assert_eq!((code, errors.as_str()), (Some(2), ""), "{output}");
    let findings: Vec<Value> = serde_json::from_str(&output).expect("it is an array");
    let finding = findings.iter().find(|finding| finding["cause"] == cause);
    let finding = finding.unwrap_or_else(|| panic!("no {cause}: {output}"));
    assert_eq!(finding["fix"], seen.as_str(), "{finding}");
    seen
}

/// A session in a database without trouble, whose scheduler has ended a cycle.
async fn sound() -> Session {
    let database = live_database().await;
    let name = database.name().to_owned();
    let client = connect(&database).await;
    status_becomes(&client, "scheduler", "running", PATIENCE).await;
    drop(client);
    let s = Session::of(&live_server().existing(&name)).await;
    let cycle =
        "select count(*) from trax.tallies() where name = 'trax_last_cycle_timestamp_seconds'";
    eventually("the first cycle", PATIENCE, async || {
        match s.get(cycle).await.as_str() {
            "1" => Ok(()),
            seen => Err(seen.to_owned()),
        }
    })
    .await;
    s
}

async fn is_sound(s: &Session) {
    eventually("no cause is left", PATIENCE, async || {
        match s.get("select cause, detail from trax.diagnose()").await {
            seen if seen.is_empty() => Ok(()),
            seen => Err(seen),
        }
    })
    .await;
}

#[tokio::test]
async fn a_sound_database_has_no_cause() {
    let s = sound().await;
    is_sound(&s).await;
    s.get("select trax.enqueue('a'); select trax.schedule('m', 't', cron => '@daily')")
        .await;
    is_sound(&s).await;
}

#[tokio::test]
async fn a_paused_scheduler_and_a_copy_are_distinguished() {
    let s = sound().await;
    s.get("select trax.pause('holidays')").await;
    assert!(details(&s, "scheduler_paused").await.contains("holidays"));
    assert!(
        fix(&s, "scheduler_paused")
            .await
            .contains("select trax.resume()")
    );
    s.get("select trax.resume()").await;
    is_sound(&s).await;
    s.get("update trax.instance set system_identifier = 1")
        .await;
    assert!(
        fix(&s, "copy_not_adopted")
            .await
            .contains("select trax.adopt()")
    );
    assert_eq!(details(&s, "scheduler_paused").await, "");
    s.get("select trax.adopt()").await;
    is_sound(&s).await;
}

#[tokio::test]
async fn a_stopped_schedule_comes_first_by_its_name_and_goes_on_when_what_is_told_was_typed() {
    let s = sound().await;
    s.get("select trax.schedule('nightly', 't', cron => '@daily'); select trax.trigger('nightly')")
        .await;
    let job = s.claim_one("").await;
    let failed = format!("select trax.fail({}, 'no', permanent => true)", job.key());
    assert_eq!(s.get(&failed).await, "dead");
    let first = "select cause, severity from trax.diagnose() limit 1";
    assert_eq!(s.get(first).await, "schedule_stopped|critical");
    let said = details(&s, "schedule_stopped").await;
    assert!(
        said.starts_with("Schedule \"nightly\" ") && said.contains(": no)"),
        "{said}"
    );
    assert!(
        fix(&s, "schedule_stopped")
            .await
            .starts_with("select trax.requeue_dead_letter(")
    );
    let status = s
        .get("select item, value, healthy, hint from trax.status() limit 1")
        .await;
    assert!(
        status.starts_with("stopped schedules|1: \"nightly\" by dead letter ")
            && status.contains("|f|")
            && status.contains("trax.requeue_dead_letter("),
        "{status}"
    );
    let metric = "select name, labels, value >= 0 from trax.metrics() limit 2";
    assert_eq!(
        s.get(metric).await,
        "trax_schedules_stopped|{}|t\ntrax_schedule_stopped_seconds|{\"name\": \"nightly\"}|t"
    );
    s.get("select trax.acknowledge_dead_letter(id) from trax.dead_letter")
        .await;
    assert_eq!(details(&s, "schedule_stopped").await, "");
    is_sound(&s).await;
}

/// Another session of the same database.
async fn beside(s: &Session) -> Session {
    Session::of(&live_server().existing(&s.get("select current_database()").await)).await
}

#[tokio::test]
async fn days_made_while_the_clock_was_ahead_are_reported() {
    let s = sound().await;
    s.get("select trax.make_run_partitions(now() + interval '400 days', 3)")
        .await;
    let seen = details(&s, "clock_was_ahead").await;
    assert!(seen.starts_with("4 partitions"), "{seen}");
    let typed = fix(&s, "clock_was_ahead").await;
    let (_, drops) = typed.split_once(": ").expect("what to type");
    s.get(drops).await;
    is_sound(&s).await;
}

#[tokio::test]
async fn jobs_that_left_and_did_not_arrive_are_reported() {
    let s = sound().await;
    s.get("create extension trax_shard").await;
    s.get("select trax.enqueue('a', group_name => 'g'); select trax.depart('g', 7); select trax.depart('g', 7)")
        .await;
    is_sound(&s).await;
    s.get("update trax.departure set departed_at = now() - interval '1 h'")
        .await;
    let seen = details(&s, "move_broken_off").await;
    assert!(
        seen.starts_with("1 jobs of group \"g\" left for shard 7"),
        "{seen}"
    );
    assert_eq!(
        fix(&s, "move_broken_off").await,
        "At the router: call trax_router.move_group('g', 7, null)"
    );
}

#[tokio::test]
async fn what_status_finds_unhealthy_is_a_cause() {
    let (_db, s) = session().await;
    s.get("select trax.enqueue('a', max_retries => 0);
        select trax.fail(job_id, token, 'no') from trax.claim_next();
        select trax.schedule('m', 't', every => '1 h');
        update trax.manifest_state set next_run_at = now() - interval '1 min', evaluation_error = 'bad';
        select trax.enqueue('b');
        select from trax.claim_next();
        update trax.lease set lease_expires_at = now() - interval '1 min'")
        .await;
    let seen =
        "select string_agg(cause || ' ' || severity, ', ' order by cause) from trax.diagnose()";
    assert_eq!(
        s.get(seen).await,
        "dead_letters warning, manifests_that_cannot_be_evaluated warning, overdue_leases critical, \
         overdue_manifests critical, scheduler_not_running critical"
    );
    let unsaid = "select cause from trax.diagnose() where detail is null or fix is null or detail = '' or fix = ''";
    assert_eq!(s.get(unsaid).await, "");
}

#[tokio::test]
async fn who_holds_the_horizon_is_named() {
    let (db, s) = session().await;
    let holder = Session::of(&db).await;
    holder
        .get("set application_name = 'reporting'; begin isolation level repeatable read; select 1")
        .await;
    let seen = details(&s, "horizon_held").await;
    for part in [
        format!("Process {} ", holder.pid()),
        "application \"reporting\"".to_owned(),
        "user \"postgres\"".to_owned(),
        "idle in transaction".to_owned(),
        "begin isolation level".to_owned(),
    ] {
        assert!(seen.contains(&part), "{part}: {seen}");
    }
    let patient = "select count(*) from trax.diagnose() where cause = 'horizon_held'";
    assert_eq!(s.number(patient).await, 0, "five minutes are allowed");
    let typed = fix(&s, "horizon_held").await;
    let kill = format!("select pg_terminate_backend({})", holder.pid());
    assert!(typed.contains(&kill), "{typed}");
    s.get(&kill).await;
    eventually("the horizon is free", PATIENCE, async || {
        match details(&s, "horizon_held").await {
            seen if seen.is_empty() => Ok(()),
            seen => Err(seen),
        }
    })
    .await;
}

#[tokio::test]
async fn the_statement_of_another_is_shown_to_whom_the_server_would_show_it() {
    let (db, s) = session().await;
    let holder = Session::of(&db).await;
    holder
        .get("begin isolation level repeatable read; select 'secret'")
        .await;
    let role = harness::scheduler::new_name("asks");
    s.get(&format!(
        "create role {role} login; select trax.grant_access('{role}', 'reader')"
    ))
    .await;
    let seen = |s: Session| async move {
        // A caller may name any role, so the argument gives no rights.
        s.get(
            "select detail from trax.diagnose('0 s', role => 'postgres') where cause = 'horizon_held'",
        )
        .await
    };
    let hidden = seen(Session::as_role(&db, &role).await).await;
    assert!(hidden.contains("application \"\""), "{hidden}");
    assert!(
        hidden.ends_with("cleaned up. Members of pg_read_all_stats see its statement."),
        "{hidden}"
    );
    s.get(&format!("grant pg_read_all_stats to {role}")).await;
    let shown = seen(Session::as_role(&db, &role).await).await;
    assert!(
        shown.contains("It ran: begin isolation level repeatable read; select 'secret'"),
        "{shown}"
    );
    s.get(&format!("revoke pg_read_all_stats from {role}"))
        .await;
    holder.get("commit").await;
    let own = Session::as_role(&db, &role).await;
    own.get("begin isolation level repeatable read; select 'own'")
        .await;
    let shown = seen(Session::as_role(&db, &role).await).await;
    assert!(shown.contains("select 'own'"), "{shown}");
    own.get("commit").await;
    s.get(&format!("drop owned by {role}; drop role {role}"))
        .await;
}

#[tokio::test]
async fn dead_rows_that_a_vacuum_removes_when_it_comes_are_no_trouble() {
    let (_db, s) = session().await;
    s.get("vacuum trax.work_queue").await;
    s.get("select count(*) from generate_series(1, 70) n, lateral trax.enqueue_many('a', array_fill(to_jsonb(n), array[1000]))")
        .await;
    s.get("delete from trax.work_queue; select pg_stat_force_next_flush()")
        .await;
    let dead =
        "select n_dead_tup from pg_stat_all_tables where relid = 'trax.work_queue'::regclass";
    assert!(s.number(dead).await >= 70_000);
    let told = "select count(*) from trax.diagnose() where cause = 'dead_tuples'";
    assert_eq!(s.number(told).await, 0);
}

#[tokio::test]
async fn a_scheduler_that_is_about_to_start_is_no_trouble() {
    let name = harness::scheduler::new_name("starting");
    let db = live_server()
        .plain_database(&name)
        .await
        .expect("a database is made");
    let s = Session::of(&db).await;
    let seen = s
        .get("begin; create extension trax; select value, healthy from trax.status() where item = 'scheduler'")
        .await;
    s.get("commit").await;
    assert_eq!(seen, "starting|t");
}

#[tokio::test]
async fn a_group_that_is_off_and_a_limit_that_is_full_are_reported_when_jobs_wait() {
    let (_db, s) = session().await;
    s.get(
        "select trax.configure_group('off', enabled => false);
        select trax.configure_group('full', max_active_jobs => 1)",
    )
    .await;
    assert_eq!(details(&s, "group_paused").await, "");
    s.get(
        "select trax.enqueue('a', group_name => 'off');
        select trax.enqueue_many('b', '{1, 2}', group_name => 'full')",
    )
    .await;
    assert_eq!(s.claim("max_jobs => 5").await.len(), 1);
    assert!(details(&s, "group_paused").await.contains("\"off\""));
    let seen = details(&s, "limit_full").await;
    assert!(seen.starts_with("1 of 1 jobs of group \"full\""), "{seen}");
    let typed = fix(&s, "limit_full").await;
    assert!(typed.contains("max_active_jobs => 2"), "{typed}");
    let unclaimed = details(&s, "task_not_claimed").await;
    assert_eq!(unclaimed, "", "no worker can take what may not run");
    s.get(&fix(&s, "group_paused").await).await;
    assert_eq!(details(&s, "group_paused").await, "");
    s.get("select trax.configure_group('full', max_active_jobs => 2)")
        .await;
    assert_eq!(details(&s, "limit_full").await, "");
}

#[tokio::test]
async fn a_full_database_is_reported_when_jobs_wait() {
    let (db, s) = session().await;
    let set = format!("alter database {} set trax.max_active_jobs = 1", db.name());
    s.get(&set).await;
    let s = Session::of(&db).await;
    s.get("select trax.enqueue_many('b', '{1, 2}')").await;
    assert_eq!(s.claim("max_jobs => 5").await.len(), 1);
    let seen = details(&s, "limit_full").await;
    assert!(seen.starts_with("1 jobs of this database"), "{seen}");
    let typed = fix(&s, "limit_full").await;
    assert!(typed.contains("set trax.max_active_jobs = 2"), "{typed}");
}

#[tokio::test]
async fn beside_a_library_of_another_version_it_says_what_to_type() {
    let (_db, s) = session().await;
    s.get("update pg_extension set extversion = '0.0.9' where extname = 'trax'")
        .await;
    let refusal = s.refusal("select * from trax.diagnose()").await;
    assert_eq!(refusal.code, "55000");
    assert!(refusal.message.contains("trax 0.0.9"), "{refusal:?}");
    assert!(
        refusal.hint.contains("alter extension trax update"),
        "{refusal:?}"
    );
}

#[tokio::test]
async fn a_role_that_lacks_a_part_of_its_level_is_reported_what() {
    let (db, s) = session().await;
    let role = format!("half_{}", db.name());
    s.get(&format!(
        "create role {role} login; create role {role}_reader; grant {role}_reader to {role};
         select trax.grant_access('{role}', 'worker'); select trax.grant_access('{role}_reader', 'reader')"
    ))
    .await;
    let them = Session::as_role(&db, &role).await;
    assert_eq!(details(&them, "missing_grants").await, "");
    s.get(&format!("revoke execute on function trax.fail from {role}"))
        .await;
    let seen = details(&them, "missing_grants").await;
    assert_eq!(
        seen,
        format!(
            "Role \"{role}\" may call trax.claim_next() as level worker does, but not trax.fail()."
        )
    );
    s.get(&fix(&them, "missing_grants").await).await;
    assert_eq!(details(&them, "missing_grants").await, "");
}

#[tokio::test]
async fn runs_that_found_no_partition_are_reported_and_find_one() {
    let (_db, s) = session().await;
    s.get("insert into trax.run (job_id, queued_at, run_at, finished_at, attempt, priority, final, state, task, group_name, input)
        select 7, now(), now(), '2031-05-06 07:08 UTC', 1, 0, true, 'completed', 'a', 'g', '{}'")
        .await;
    assert_ne!(details(&s, "runs_without_partition").await, "");
    s.get(&fix(&s, "runs_without_partition").await).await;
    assert_eq!(details(&s, "runs_without_partition").await, "");
    let at = "select tableoid::regclass, job_id from trax.run";
    assert_eq!(s.get(at).await, "trax.run_20310506|7");
}

#[tokio::test]
async fn a_role_as_which_statements_cannot_run_is_reported() {
    let (db, s) = session().await;
    let role = format!("reporter_{}", db.name());
    let job = s
        .get(&format!(
            "create role {role} login;
             select from trax.schedule('m', sql => 'select 1', cron => '@daily', run_as => '{role}');
             select trax.enqueue_sql('select 1', run_at => now() + '1 h', run_as => '{role}')"
        ))
        .await;
    let job = job.trim();
    assert_eq!(details(&s, "role_refused").await, "");
    let fail = format!("statements that run as it fail, such as that of job {job}; there are 2.");
    s.get(&format!("alter role {role} nologin")).await;
    assert_eq!(
        details(&s, "role_refused").await,
        format!("Role \"{role}\" may not log in, or not connect to this database: {fail}")
    );
    s.get(&fix(&s, "role_refused").await).await;
    assert_eq!(details(&s, "role_refused").await, "");
    s.get(&format!(
        "drop owned by {role}; drop role {role}; create role {role} login"
    ))
    .await;
    let seen = details(&s, "role_refused").await;
    assert_eq!(seen, format!("Role \"{role}\" was dropped: {fail}"));
    for remedy in [
        format!("select trax.cancel({job})"),
        "select trax.unschedule('m')".to_owned(),
    ] {
        let typed = fix(&s, "role_refused").await;
        assert!(typed.starts_with(&format!("{remedy}; then ")), "{typed}");
        s.get(&remedy).await;
    }
    assert_eq!(details(&s, "role_refused").await, "");
}

/// The time limit for the server to carry out the test's action.
const LONG: Duration = Duration::from_secs(60);
