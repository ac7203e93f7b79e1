//! Audit: each act of an operator leaves one row, written in the act's own transaction.

use harness::session::{Session, session};
use trax_client::testkit::Database;

const ACTS: &str = "select action, kind, name, note from trax.audit order by at, id";

/// A role for this database only that may connect.
async fn person(db: &Database, s: &Session) -> String {
    let role = format!("{}_person", db.name());
    s.get(&format!("create role {role} login")).await;
    role
}

#[tokio::test]
async fn each_act_of_an_operator_leaves_one_row() {
    let (db, s) = session().await;
    let role = person(&db, &s).await;
    s.get(&format!(
        "select trax.grant_access('{role}', 'producer', tasks => '{{a,b}}'); select trax.grant_access('{role}', 'admin')"
    ))
    .await;
    let them = Session::as_role(&db, &role).await;
    them.get("set application_name = 'psql of somebody'").await;
    let job = them.number("select trax.enqueue('a')").await;
    let later = them
        .number("select trax.enqueue('a', run_at => now() + interval '1 d')")
        .await;
    for act in [
        "select trax.schedule('m', 'a', cron => '0 3 * * *')",
        "select trax.schedule('m', 'a', cron => '0 4 * * *', priority => 3)",
        "select trax.disable_manifest('m')",
        "select trax.enable_manifest('m')",
        "select trax.trigger('m')",
        "select trax.cancel_manifest('m')",
        "select trax.record_again(7, 8)",
        "select trax.configure_group('g', max_active_jobs => 3)",
        "select trax.configure_group('g', enabled => false)",
        "select trax.cancel_group('default')",
        "select trax.unschedule('m')",
        "select trax.pause('a new disk')",
        "select trax.resume()",
        "select trax.adopt()",
    ] {
        if act.contains("cancel_group") {
            them.get(&format!("select trax.run_now({later})")).await;
            them.get(&format!("select trax.cancel({job})")).await;
        }
        them.get(act).await;
    }
    let (database, triggered) = (db.name(), later + 1);
    let wanted = format!(
        "grant|role|{role}|producer; tasks: a, b
grant|role|{role}|admin
schedule|manifest|m|created
schedule|manifest|m|cron: \"0 3 * * *\" -> \"0 4 * * *\", priority: 0 -> 3
disable|manifest|m|
enable|manifest|m|
trigger|manifest|m|as job {triggered}
cancel|manifest|m|1 jobs
queue_again|job|7|as job 8
configure|group|g|created
configure|group|g|enabled: true -> false
run_now|job|{later}|
cancel|job|{job}|cancelled
cancel|group|default|1 jobs
unschedule|manifest|m|
pause|scheduler|{database}|a new disk
resume|scheduler|{database}|
adopt|scheduler|{database}|"
    );
    assert_eq!(s.get(ACTS).await, wanted);
    let who = "select distinct role, program from trax.audit where kind <> 'role'";
    assert_eq!(s.get(who).await, format!("{role}|psql of somebody"));
    s.assert_healthy().await;
}

#[tokio::test]
async fn what_changes_nothing_or_is_undone_leaves_no_row() {
    let (_db, s) = session().await;
    let group = "select trax.configure_group('g', priority => 3)";
    let manifest = "select trax.schedule('m', 'a', cron => '0 3 * * *')";
    let document = "select trax.apply('{\"manifests\": [{\"name\": \"n\", \"task\": \"a\"}]}')";
    for act in [group, manifest, document] {
        s.get(act).await;
    }
    let before = s.get(ACTS).await;
    assert_eq!(before.lines().count(), 3);
    for act in [
        group,
        manifest,
        document,
        "select trax.apply('{\"manifests\": []}', prune => true, dry_run => true)",
        "begin; select trax.pause(); select trax.unschedule('m'); rollback",
        "select trax.enable_manifest('m')",
        "select trax.resume()",
        "select trax.cancel(1000000)",
    ] {
        s.get(act).await;
    }
    assert_eq!(s.get(ACTS).await, before);
    s.get("select trax.apply('{\"manifests\": []}', prune => true)")
        .await;
    let last = "select action, kind, name, note from trax.audit order by at desc, id desc limit 1";
    assert_eq!(s.get(last).await, "unschedule|manifest|n|removed");
}

#[tokio::test]
async fn a_resolution_keeps_the_note_and_who_gave_it() {
    let (_db, s) = session().await;
    let mut letters = Vec::new();
    for _ in 0..3 {
        s.enqueue("'a', max_retries => 0").await;
        let job = s.claim_one("").await;
        s.get(&format!("select trax.fail({}, 'no')", job.key()))
            .await;
        letters.push(
            s.get(&format!(
                "select id from trax.dead_letter where job_id = {}",
                job.id
            ))
            .await,
        );
    }
    let [first, second, third] = &letters[..] else {
        panic!("three dead letters: {letters:?}");
    };
    s.get(&format!(
        "select trax.requeue_dead_letter({first}, 'the host is back');
         select trax.acknowledge_dead_letter({second}, 'not needed');
         select trax.acknowledge_dead_letter({second}, 'twice');
         select trax.requeue_dead_letters()"
    ))
    .await;
    let wanted = format!(
        "requeue|dead_letter|{first}|the host is back
acknowledge|dead_letter|{second}|not needed
requeue|dead_letter|{third}|"
    );
    assert_eq!(s.get(ACTS).await, wanted);
}

#[tokio::test]
async fn the_role_that_was_set_is_who_acted() {
    let (db, s) = session().await;
    let role = person(&db, &s).await;
    s.get(&format!("select trax.grant_access('{role}', 'admin')"))
        .await;
    s.get(&format!("set role {role}; select trax.pause(); reset role"))
        .await;
    let who = "select role = session_user, role from trax.audit where action = 'pause'";
    assert_eq!(s.get(who).await, format!("f|{role}"));
}

#[tokio::test]
async fn acts_are_kept_for_their_time() {
    let (_db, s) = session().await;
    s.get("select trax.pause(); select trax.resume()").await;
    s.get("update trax.audit set at = now() - interval '91 days' where action = 'pause'; select trax.tick()")
        .await;
    let left = "select string_agg(action, ',') from trax.audit";
    assert_eq!(s.get(left).await, "resume");
}

#[tokio::test]
async fn a_program_that_acts_for_several_people_says_for_whom() {
    let (db, s) = session().await;
    let role = person(&db, &s).await;
    s.get(&format!("select trax.grant_access('{role}', 'admin')"))
        .await;
    let them = Session::as_role(&db, &role).await;
    them.get("set application_name = 'shop'").await;
    for act in [
        "begin; set local trax.program = 'shop, أحمد: a new disk'; select trax.pause(); commit",
        "select trax.resume()",
        "set trax.program = ''; select trax.pause()",
        "select set_config('trax.program', repeat('é', 2000), false), trax.resume()",
    ] {
        them.get(act).await;
    }
    let programs = "select program from trax.audit where kind = 'scheduler' order by at, id";
    let long = "é".repeat(1_000);
    let wanted = format!("shop, أحمد: a new disk\nshop\nshop\n{long}");
    assert_eq!(s.get(programs).await, wanted);
}
