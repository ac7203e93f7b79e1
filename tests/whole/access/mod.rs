//! The rights of each level, and the isolation of trax's statements from a caller's session.

mod code;
mod hostile;
mod install;
mod matrix;

use harness::session::{Session, session};
use std::collections::BTreeSet;
use trax_client::testkit::Database;

const READER: &str = "status check diagnose metrics preview preview_cron explain_job explain_manifest read_steps read_rate read_needs read_graph get_jobs await_job await_jobs shard_of";
const PRODUCER: &str = "enqueue enqueue_many enqueue_sql enqueue_graph open_batch seal_batch limit_queue_time trigger cancel change_job run_now record_again send_signal fork read_steps read_needs read_graph get_jobs await_job await_jobs shard_of acquire_token await_token extend_token release_token consume_rate";
const WORKER: &str = "claim_next heartbeat complete complete_many fail release acknowledge_cancel cancel_own record_step read_steps sleep await_signal send_signal spawn await_children enqueue enqueue_many enqueue_graph open_batch seal_batch read_needs read_graph
    limit_queue_time activate complete_and_claim wait_for_work acquire_token await_token extend_token release_token consume_rate close_rate
    report_progress report_worker waiting_tasks runs_as_stored get_jobs await_job await_jobs shard_of";
/// The functions that only an admin may call.
const ADMIN: &str =
    "schedule unschedule enable_manifest disable_manifest configure_group configure_rate drop_rate configure_task reset_task requeue_dead_letter
    acknowledge_dead_letter requeue_dead_letters trigger_group apply cancel_manifest cancel_group tick pause resume believe_clock adopt set_shard start_scheduler grant_access
    revoke_access";

/// A successful call of each function in the database made by [`furnished`]. `{job}` and `{token}`
/// belong to the executing job.
const CALLS: &[(&str, &str)] = &[
    ("status", "select count(*) from trax.status()"),
    ("check", "select count(*) from trax.check()"),
    ("diagnose", "select count(*) from trax.diagnose()"),
    ("metrics", "select count(*) from trax.metrics()"),
    ("enqueue", "select trax.enqueue('a')"),
    ("enqueue_sql", "select trax.enqueue_sql('select 1')"),
    (
        "enqueue_many",
        "select * from trax.enqueue_many('a', array['1', '2']::jsonb[])",
    ),
    (
        "enqueue_graph",
        r#"select * from trax.enqueue_graph('{"jobs": [{"name": "n", "task": "a"}]}')"#,
    ),
    ("open_batch", "select trax.open_batch('a')"),
    ("seal_batch", "select trax.seal_batch(trax.open_batch('a'))"),
    ("read_needs", "select * from trax.read_needs({job})"),
    ("read_graph", "select * from trax.read_graph({job})"),
    ("configure_task", "select trax.configure_task('a')"),
    ("reset_task", "select trax.reset_task('furnished')"),
    ("trigger", "select trax.trigger('m')"),
    ("cancel", "select trax.cancel({job})"),
    ("run_now", "select trax.run_now({job})"),
    ("change_job", "select trax.change_job({job}, priority => 1)"),
    ("record_again", "select trax.record_again({job}, 1)"),
    (
        "limit_queue_time",
        "select trax.limit_queue_time({job}, '1 h')",
    ),
    ("get_jobs", "select * from trax.get_jobs(array[{job}])"),
    (
        "await_job",
        "call trax.await_job({job}, '1 ms', null, null, null)",
    ),
    (
        "await_jobs",
        "call trax.await_jobs(array[{job}], '1 ms', null)",
    ),
    ("report_worker", "select trax.report_worker('w', '10 s')"),
    ("waiting_tasks", "select * from trax.waiting_tasks()"),
    ("claim_next", "select * from trax.claim_next()"),
    (
        "heartbeat",
        "select * from trax.heartbeat(array[{job}], array[{token}])",
    ),
    ("complete", "select trax.complete({job}, {token})"),
    (
        "complete_many",
        "select * from trax.complete_many(array[{job}], array[{token}])",
    ),
    ("fail", "select trax.fail({job}, {token}, 'no')"),
    ("release", "select trax.release({job}, {token})"),
    (
        "report_progress",
        "select trax.report_progress({job}, {token}, '0.5')",
    ),
    (
        "acknowledge_cancel",
        "select trax.acknowledge_cancel({job}, {token})",
    ),
    ("cancel_own", "select trax.cancel_own({job}, {token})"),
    (
        "record_step",
        "select * from trax.record_step({job}, {token}, 's', '1')",
    ),
    ("read_steps", "select * from trax.read_steps({job})"),
    ("sleep", "select trax.sleep({job}, {token}, 'z', now())"),
    (
        "await_signal",
        "select * from trax.await_signal({job}, {token}, 'w', 'n', now())",
    ),
    ("send_signal", "select trax.send_signal({job}, 'n')"),
    ("spawn", "select trax.spawn({job}, {token}, 'c', 'a')"),
    (
        "await_children",
        "select * from trax.await_children({job}, {token}, 'j', until => now())",
    ),
    (
        "fork",
        "select trax.fork((select j.job_id from trax.get_jobs(array(select generate_series(1, 20)::bigint)) j where j.state = 'failed'))",
    ),
    (
        "schedule",
        "select trax.schedule('n', 'a', cron => '0 2 * * *', timezone => 'Europe/Berlin')",
    ),
    ("unschedule", "select trax.unschedule('m')"),
    ("enable_manifest", "select trax.enable_manifest('m')"),
    ("disable_manifest", "select trax.disable_manifest('m')"),
    (
        "configure_group",
        "select trax.configure_group('g', priority => 1)",
    ),
    ("requeue_dead_letter", "select trax.requeue_dead_letter(1)"),
    (
        "acknowledge_dead_letter",
        "select trax.acknowledge_dead_letter(1)",
    ),
    ("requeue_dead_letters", "select trax.requeue_dead_letters()"),
    ("trigger_group", "select trax.trigger_group('default')"),
    ("apply", "select * from trax.apply('{\"manifests\": []}')"),
    ("cancel_manifest", "select trax.cancel_manifest('m')"),
    ("cancel_group", "select trax.cancel_group('default')"),
    ("preview", "select * from trax.preview('m')"),
    (
        "preview_cron",
        "select * from trax.preview_cron('0 2 * * *')",
    ),
    ("explain_job", "select * from trax.explain_job({job})"),
    (
        "explain_manifest",
        "select * from trax.explain_manifest('m')",
    ),
    (
        "complete_and_claim",
        "select * from trax.complete_and_claim(array[{job}], array[{token}])",
    ),
    ("wait_for_work", "call trax.wait_for_work('1 ms')"),
    (
        "acquire_token",
        "select * from trax.acquire_token('n', 'h', 1, '30 s')",
    ),
    (
        "await_token",
        "call trax.await_token('n', 'h', 1, '30 s', '1 s', null, null, null)",
    ),
    (
        "extend_token",
        "select trax.extend_token('n', gen_random_uuid(), '30 s')",
    ),
    (
        "release_token",
        "select trax.release_token('n', gen_random_uuid())",
    ),
    (
        "configure_rate",
        "select trax.configure_rate('r', 5, '1 s')",
    ),
    (
        "consume_rate",
        "select * from trax.consume_rate('furnished')",
    ),
    (
        "close_rate",
        "select trax.close_rate('furnished', until => now())",
    ),
    ("drop_rate", "select trax.drop_rate('furnished')"),
    ("read_rate", "select * from trax.read_rate('furnished')"),
    ("activate", "select trax.activate('m')"),
    ("tick", "select * from trax.tick()"),
    ("pause", "select trax.pause('why')"),
    ("resume", "select trax.resume()"),
    ("believe_clock", "select trax.believe_clock()"),
    ("adopt", "select trax.adopt()"),
    ("set_shard", "select trax.set_shard(0)"),
    ("shard_of", "select trax.shard_of({job})"),
    (
        "grant_access",
        "select trax.grant_access('{role}', 'reader')",
    ),
    ("revoke_access", "select trax.revoke_access('{role}')"),
    ("start_scheduler", "select trax.start_scheduler()"),
    (
        "runs_as_stored",
        "select trax.runs_as_stored({job}, {token})",
    ),
];

/// A database with a job in every place, a superuser session, and the executing job with its token.
async fn furnished() -> (Database, Session, String, String) {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h'); select trax.enqueue('dies'); select trax.enqueue('runs'); select trax.enqueue('waits'); select trax.configure_rate('furnished', 5, '1 s'); select trax.configure_task('furnished')").await;
    let dies = s.claim_one("tasks => array['dies']").await;
    s.get(&format!(
        "select trax.fail({}, 'no', permanent => true)",
        dies.key()
    ))
    .await;
    let runs = s.claim_one("tasks => array['runs']").await;
    (
        db,
        s,
        runs.id.to_string(),
        format!("'{}'::uuid", runs.token),
    )
}

/// Creates a role with these levels for this database only.
async fn role(db: &Database, s: &Session, levels: &[&str]) -> String {
    let role = format!(
        "{}_{}",
        db.name(),
        if levels.is_empty() {
            "nobody"
        } else {
            levels[0]
        }
    );
    s.get(&format!("create role {role} login")).await;
    for level in levels {
        s.get(&format!("select trax.grant_access('{role}', '{level}')"))
            .await;
    }
    role
}

fn allowed(level: &str) -> BTreeSet<String> {
    let names = match level {
        "reader" => READER.to_owned(),
        "producer" => PRODUCER.to_owned(),
        "worker" => WORKER.to_owned(),
        "admin" => [READER, PRODUCER, WORKER, ADMIN].join(" "),
        _ => String::new(),
    };
    names.split_whitespace().map(str::to_owned).collect()
}

/// Checks that `level` has exactly the expected rights, in the catalog and by trying each call.
async fn assert_level(level: &str) {
    let (db, s, job, token) = furnished().await;
    let levels: &[&str] = if level.is_empty() { &[] } else { &[level] };
    let role = role(&db, &s, levels).await;
    let allowed = allowed(level);
    let granted = format!(
        "select p.proname from pg_proc p
         where p.pronamespace = 'trax'::regnamespace and has_function_privilege('{role}', p.oid, 'execute')"
    );
    let granted: BTreeSet<String> = s.get(&granted).await.lines().map(str::to_owned).collect();
    assert_eq!(granted, allowed);
    let them = Session::as_role(&db, &role).await;
    for &(function, call) in CALLS {
        let call = call
            .replace("{job}", &job)
            .replace("{token}", &token)
            .replace("{role}", &role);
        them.get("begin").await;
        match (them.attempt(&call).await, allowed.contains(function)) {
            (Ok(_), true) => {}
            (Err(refusal), false) if refusal.code == "42501" => {}
            // Allowed only inside the run of a declared parent.
            (Err(refusal), true) if function == "activate" && refusal.code == "55000" => {}
            // Refused inside a transaction block, such as this test's.
            (Err(refusal), true)
                if matches!(
                    function,
                    "wait_for_work" | "await_token" | "await_job" | "await_jobs"
                ) && refusal.code == "25001" => {}
            // The shared server excludes its databases from trax.databases.
            (Err(refusal), true) if function == "start_scheduler" && refusal.code == "55000" => {}
            (seen, may) => panic!("{call}\n  as {level:?}, which may: {may}, gave {seen:?}"),
        }
        them.get("rollback").await;
    }
    assert_tables(&s, &them, &role, matches!(level, "reader" | "admin")).await;
    assert_new_job(&s, &them, &role, allowed.contains("enqueue")).await;
    s.assert_healthy().await;
}

/// Checks that every table is readable or not, as expected, and never writable.
async fn assert_tables(s: &Session, them: &Session, role: &str, reads: bool) {
    let tables = "select c.relname from pg_class c
                  where c.relnamespace = 'trax'::regnamespace and c.relkind in ('r', 'p', 'v') and not c.relispartition";
    for table in s.get(tables).await.lines() {
        let seen = them
            .attempt(&format!("select count(*) from trax.{table}"))
            .await;
        match (&seen, reads) {
            (Ok(_), true) => {}
            (Err(refusal), false) if refusal.code == "42501" => {}
            _ => panic!("trax.{table}, which may be read: {reads}, gave {seen:?}"),
        }
    }
    let written = format!(
        "select c.relname, p.privilege
         from pg_class c, unnest(array['insert', 'update', 'delete', 'truncate', 'references', 'trigger']) p (privilege)
         where c.relnamespace = 'trax'::regnamespace
             and c.relkind in ('r', 'p', 'v')
             and has_table_privilege('{role}', c.oid, p.privilege)
         union all
         select c.relname, p.privilege
         from pg_class c, unnest(array['usage', 'update']) p (privilege)
         where c.relnamespace = 'trax'::regnamespace
             and c.relkind = 'S'
             and has_sequence_privilege('{role}', c.oid, p.privilege)"
    );
    assert_eq!(s.get(&written).await, "");
    assert_eq!(
        s.get(&format!(
            "select has_schema_privilege('{role}', 'trax', 'create')"
        ))
        .await,
        "f"
    );
}

/// Checks that COPY and INSERT into `trax.new_job` enqueue jobs for roles that may enqueue, and
/// that no role has any other right on it.
async fn assert_new_job(s: &Session, them: &Session, role: &str, enqueues: bool) {
    let inserted = them
        .attempt("insert into trax.new_job (task, unique_key) values ('copied', 'copied')")
        .await;
    match (&inserted, enqueues) {
        (Ok(_), true) => {}
        (Err(refusal), false) if refusal.code == "42501" => {}
        _ => panic!("as {role}, who may enqueue: {enqueues}, gave {inserted:?}"),
    }
    let queued = "select count(*) from trax.work_queue where task = 'copied'";
    assert_eq!(s.number(queued).await, i64::from(enqueues));
    let granted = format!(
        "select string_agg(p.privilege, ' ') from unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']) p (privilege)
         where has_table_privilege('{role}', 'trax.new_job', p.privilege)"
    );
    assert_eq!(
        s.get(&granted).await,
        if enqueues { "insert" } else { "" },
        "and it has no other right"
    );
    let server = format!("select has_server_privilege('{role}', 'trax', 'usage')");
    assert_eq!(s.get(&server).await, "f");
}

#[tokio::test]
async fn a_role_without_grants_sees_nothing_and_can_do_nothing() {
    assert_level("").await;
}

#[tokio::test]
async fn a_reader_reads_and_changes_nothing() {
    assert_level("reader").await;
}

#[tokio::test]
async fn a_producer_enqueues_triggers_and_cancels() {
    assert_level("producer").await;
}

#[tokio::test]
async fn a_worker_claims_ends_and_enqueues() {
    assert_level("worker").await;
}

#[tokio::test]
async fn an_admin_may_use_everything_and_write_no_table() {
    assert_level("admin").await;
}

#[tokio::test]
async fn the_levels_cover_every_function_that_is_not_internal() {
    let (_db, s) = session().await;
    let functions = "select p.proname from pg_proc p
                     where p.pronamespace = 'trax'::regnamespace
                         and p.proname <> 'installed'
                         and obj_description(p.oid, 'pg_proc') not like 'Internal.%'";
    let functions: BTreeSet<String> = s.get(functions).await.lines().map(str::to_owned).collect();
    assert_eq!(functions, allowed("admin"));
    let called: BTreeSet<String> = CALLS
        .iter()
        .map(|(function, _)| (*function).to_owned())
        .collect();
    assert_eq!(called, allowed("admin"), "each has a call here");
}

#[tokio::test]
async fn nothing_is_granted_to_public() {
    let (_db, s) = session().await;
    let sql = "select p.oid::regprocedure::text from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
               where p.pronamespace = 'trax'::regnamespace and a.grantee = 0
               union all
               select c.oid::regclass::text from pg_class c, aclexplode(c.relacl) a
               where c.relnamespace = 'trax'::regnamespace and a.grantee = 0
               union all
               select n.nspname from pg_namespace n, aclexplode(n.nspacl) a
               where n.nspname = 'trax' and a.grantee = 0";
    assert_eq!(s.get(sql).await, "");
}

#[tokio::test]
async fn of_several_levels_the_last_one_counts() {
    let (db, s, ..) = furnished().await;
    let role = role(
        &db,
        &s,
        &["producer", "worker", "reader", "worker", "worker"],
    )
    .await;
    let granted = format!(
        "select p.proname from pg_proc p
         where p.pronamespace = 'trax'::regnamespace and has_function_privilege('{role}', p.oid, 'execute')"
    );
    let granted: BTreeSet<String> = s.get(&granted).await.lines().map(str::to_owned).collect();
    assert_eq!(granted, allowed("worker"));
}

#[tokio::test]
async fn a_role_with_a_name_that_needs_quotes_can_be_granted() {
    let (db, s) = session().await;
    let role = format!("{} \"x'; drop", db.name());
    let quoted = format!("\"{}\"", role.replace('"', "\"\""));
    s.get(&format!(
        "create role {quoted} login; select trax.grant_access({}, 'producer')",
        literal(&quoted)
    ))
    .await;
    let them = Session::as_role(&db, &role).await;
    them.enqueue("'a'").await;
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[tokio::test]
async fn history_made_after_the_grant_can_be_read() {
    let (db, s) = session().await;
    let role = role(&db, &s, &["reader"]).await;
    s.get("select trax.make_run_partitions(now() + interval '9 days', 0)")
        .await;
    let them = Session::as_role(&db, &role).await;
    assert_eq!(
        them.get("select count(*) from trax.run where finished_at > now() + interval '8 days'")
            .await,
        "0"
    );
}
