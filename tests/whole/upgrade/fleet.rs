//! An upgrade keeps all stored rows, and the fleet works through it.

use super::{restored, sql_folder};
use harness::process::{Process, trax_binary};
use harness::scheduler::{live_server, new_name};
use harness::session::Session;
use harness::{PATIENCE, eventually, shared_server};
use std::process::Command;
use std::time::Instant;

/// The rows of each table, in the columns of 0.1.0; lane numbers are left out, since they change.
async fn contents(s: &Session, tables: &str) -> String {
    let mut all = Vec::new();
    for line in tables.lines() {
        let (table, columns) = line.split_once('|').expect("two columns");
        let sql = format!(
            "select coalesce(string_agg(x::text, E'\\n' order by x::text), '') from (select {columns} from {table}) x"
        );
        all.push(format!("{table}: {}", s.get(&sql).await));
    }
    all.join("\n")
}

const TABLES: &str =
    "select c.oid::regclass, string_agg(quote_ident(a.attname), ', ' order by a.attnum)
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and a.attname <> 'lane_id'
    where c.relnamespace = 'trax'::regnamespace
        and c.relkind in ('r', 'p')
        and not c.relispartition
        and c.relname <> 'lane'
    group by c.oid
    order by c.oid::regclass::text";

#[tokio::test]
async fn nothing_is_lost_and_all_of_it_is_worked_through() {
    let name = new_name("upgraded_data");
    let (_db, s) = restored(shared_server(), &name).await;
    // History on its own days, as if made long ago.
    s.get(
        "insert into trax.run
        select r.job_id + n * 1000, r.queued_at, r.run_at, r.scheduled_for, r.started_at, r.finished_at - n % 5 * interval '1 day',
            r.manifest_id, r.attempt, r.priority, r.final, r.state, r.failure_kind, r.task, r.group_name, r.manifest, r.worker,
            r.error, r.input, r.detail, r.output
        from trax.run r, generate_series(1, 10000) n where r.state = 'completed'",
    )
    .await;
    let tables = s.get(TABLES).await;
    let before = contents(&s, &tables).await;
    assert!(
        before.len() > 100_000 && tables.lines().count() >= 14,
        "{tables}"
    );
    s.get("alter extension trax update").await;
    assert_eq!(contents(&s, &tables).await, before);
    s.get("select trax.adopt()").await;
    s.assert_healthy().await;

    // An old worker ends its jobs with the old calls.
    let held =
        "select count(*) from trax.heartbeat(job_ids => (select array_agg(job_id) from trax.lease),
        tokens => (select array_agg(token) from trax.lease), lease => interval '1 h') where held";
    assert_eq!(
        s.get(held).await,
        s.get("select count(*) from trax.lease").await
    );
    s.get("select trax.acknowledge_cancel(job_id, token) from trax.lease where cancel_requested")
        .await;
    let ended = "select count(*) from trax.complete_and_claim(job_ids => (select array_agg(job_id) from trax.lease),
        tokens => (select array_agg(token) from trax.lease), worker => 'old worker', max_jobs => 1, tasks => array['no task'],
        lease => interval '1 h') where completed_job_id is not null";
    assert_eq!(s.get(ended).await, "6");

    // The other jobs are claimed in the usual order, and jobs that may not run wait.
    s.get(
        "update trax.work_queue set run_at = now() where waits_for = 'time'; select count(*) from trax.tick();
        select trax.configure_group('off', enabled => true)",
    )
    .await;
    let mut claims = 0;
    loop {
        s.get("select count(*) from trax.tick()").await;
        let jobs = s.claim("'old worker', 50").await;
        if jobs.is_empty() {
            break;
        }
        claims += jobs.len();
        for job in jobs {
            assert_eq!(
                s.get(&format!("select trax.complete({})", job.key())).await,
                "t"
            );
        }
        assert!(claims < 100, "it has an end");
    }
    assert_eq!(
        s.get("select task, waits_for from trax.work_queue").await,
        ""
    );
    assert!(claims >= 19, "{claims}");
    let unique = "select key from trax.unique_key";
    assert_eq!(s.get(unique).await, "", "all have ended");
    let next = "select name from trax.manifest m join trax.manifest_state s using (manifest_id)
        where m.enabled and m.name in ('cron', 'every') and s.next_run_at > now() order by 1";
    assert_eq!(s.get(next).await, "cron\nevery");
    let stopped = "select manifest from trax.stopped_schedule";
    assert_eq!(s.get(stopped).await, "broken", "until a person resolves it");
    s.get("select trax.requeue_dead_letter(id) from trax.dead_letter where manifest = 'broken'")
        .await;
    assert_eq!(s.claim("").await.len(), 1);
    s.assert_healthy().await;
}

/// A worker of this version starts before the update and waits for it.
#[tokio::test]
async fn a_new_worker_waits_for_the_update_and_goes_on() {
    let name = new_name("upgraded_fleet");
    let (db, s) = restored(live_server(), &name).await;
    let url = format!(
        "host={} port={} user=postgres dbname={name}",
        live_server().socket_dir().display(),
        live_server().port()
    );
    let mut command = Command::new(trax_binary());
    command.args([
        "worker",
        "--database-url",
        &url,
        "--task",
        "wait.ready",
        "--exec",
        "true",
    ]);
    let worker = Process::start(command);
    worker.says("claim: next try in", PATIENCE).await;
    let doctor = Command::new(trax_binary())
        .args(["doctor", "--database-url", &url])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned()
        + &String::from_utf8_lossy(&doctor.stderr);
    assert!(said.contains("alter extension trax update"), "{said}");
    // The worker retries and logs the reason once.
    let refused = "select xact_rollback from pg_stat_database where datname = current_database()";
    let before = s.number(refused).await;
    eventually("more calls are refused", PATIENCE, async || {
        match s.number(refused).await - before {
            5.. => Ok(()),
            seen => Err(format!("{seen} more: {}", worker.output())),
        }
    })
    .await;
    let said = worker.output();
    let times = said.matches("alter extension trax update").count();
    assert_eq!(times, 1, "{said}");
    assert!(
        said.contains("trax 0.1.0 is installed in the database, this worker is of"),
        "{said}"
    );
    assert!(!said.contains("works again"), "it never did: {said}");

    // A claim refused just before the update asks for the version after it. A worker that is
    // connecting at that moment waits elsewhere, so the update is tried again.
    let asking = "select count(*) from pg_locks l join pg_stat_activity a on a.pid = l.pid
        where l.relation = 'pg_extension'::regclass and not l.granted
            and a.query like 'select e.extversion%'";
    eventually("the worker asks for the version", PATIENCE, async || {
        s.get(
            "begin; alter extension trax update; select trax.adopt();
            lock table pg_catalog.pg_extension in access exclusive mode",
        )
        .await;
        let deadline = Instant::now() + PATIENCE / 10;
        while Instant::now() < deadline {
            // Within a transaction, the first snapshot of the statistics would be seen again.
            s.get("select pg_stat_clear_snapshot()").await;
            if s.number(asking).await == 1 {
                return Ok(());
            }
        }
        s.get("rollback").await;
        Err("it waits elsewhere".to_owned())
    })
    .await;
    s.get("commit").await;
    worker.says("claim: works again", PATIENCE).await;
    let s = Session::of(&db).await;
    eventually("the jobs that waited", PATIENCE, async || {
        let done = s
            .get("select count(*) from trax.run where task = 'wait.ready'")
            .await;
        match done.as_str() {
            "5" => Ok(()),
            _ => Err(format!("{done}; the worker: {}", worker.output())),
        }
    })
    .await;
    s.assert_healthy().await;
}

/// A dump of 0.1.0 without a version creates the current tables. Its contents do not match them
/// exactly, yet all jobs are restored.
#[tokio::test]
async fn an_old_dump_loses_no_job_in_the_tables_of_today() {
    let name = new_name("old_dump");
    let server = shared_server();
    let db = server.plain_database(&name).await.expect("it is made");
    let mut psql = server.command("psql");
    let dump = sql_folder().join("../tests/whole/upgrade/0.1.0.dump");
    let dump = std::fs::File::open(dump).expect("it can be read");
    let loaded = psql
        .args(["-qX", "-o", "/dev/null", "-d", &name])
        .stdin(dump);
    loaded.output().expect("psql runs");
    let s = Session::of(&db).await;
    s.get(
        "update trax.work_queue set lane_id = trax.lane_of(group_name, task);
        update trax.lease set lane_id = trax.lane_of(group_name, task);
        select trax.adopt()",
    )
    .await;
    s.assert_healthy().await;
    let all = "select (select count(*) from trax.work_queue), (select count(*) from trax.lease), (select count(*) from trax.run)";
    let (_db, whole) = restored(server, &new_name("old_dump_whole")).await;
    assert_eq!(s.get(all).await, whole.get(all).await);
}
