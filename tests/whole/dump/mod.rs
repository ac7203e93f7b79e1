//! Dump, restore and clones: nothing is lost, and a copy runs nothing until it is adopted.

mod over;

use harness::process::{Scratch, run_quietly};
use harness::scheduler::{
    a_cycle_runs, connect, execute, live_database, live_server, new_name, scheduler_of,
    scheduler_wakes, status, status_becomes, value, violations,
};
use harness::{PATIENCE, database, eventually, shared_server};
use std::path::Path;
use tokio_postgres::Client;
use trax_client::testkit::{Database, Server};

/// The contents of all dumped tables, with each history row's partition.
const CONTENTS: &str = "select coalesce(string_agg(t, E'\\n' order by t), '') from (
    select 'work_queue ' || x::text from trax.work_queue x
    union all select 'lease ' || x::text from trax.lease x
    union all select 'progress ' || x::text from trax.progress x
    union all select x.tableoid::regclass || ' ' || x::text from trax.run x
    union all select 'dead_letter ' || x::text from trax.dead_letter x
    union all select 'manifest ' || x::text from trax.manifest x
    union all select 'manifest_state ' || x::text from trax.manifest_state x
    union all select 'manifest_dependency ' || x::text from trax.manifest_dependency x
    union all select 'manifest_group ' || x::text from trax.manifest_group x
    union all select 'admission ' || x::text from trax.admission x
    union all select 'task ' || x::text from trax.task x
    union all select 'unique_key ' || x::text from trax.unique_key x
    union all select 'rate ' || x::text from trax.rate x
    union all select 'rate_closure ' || x::text from trax.rate_closure x
    union all select 'concurrency_token ' || x::text from trax.concurrency_token x
    union all select 'worker ' || x::text from trax.worker x
    union all select 'partition ' || inhrelid::regclass || pg_get_expr(c.relpartbound, c.oid)
        from pg_inherits join pg_class c on c.oid = inhrelid where inhparent = 'trax.run'::regclass
) rows (t)";

/// Makes jobs in every place, history on two days, and a due manifest.
async fn fill(client: &Client) {
    execute(
        client,
        "select trax.set_shard(7);
        select trax.configure_group('mail', priority => 7, max_active_jobs => 3, max_waiting => 50, overflow => 'drop_oldest');
        select trax.configure_task('report', max_retries => 5, backoff => 1.5, on_final_failure => 'acknowledge');
        select trax.enqueue('ready', '{\"n\": 1}', group_name => 'mail', priority => 5, unique_key => 'one');
        select trax.enqueue('delayed', run_at => now() + interval '1 day');
        select trax.configure_rate('api', 5, '1 min');
        select trax.close_rate('api', 'k', 'infinity');
        select trax.enqueue('rated', rate => 'api', rate_key => 'k', cost => 2);
        select trax.enqueue('never', concurrency_key => 'k', trace => '{\"id\": 7}', version => 'v1');
        select trax.enqueue_many('done', array['1', '2', '3']::jsonb[]);
        select trax.complete(job_id, token, '{\"sum\": 3}')
            from trax.claim_next(max_jobs => 10, tasks => '{done}', worker => 'w');
        select trax.enqueue('broken', unique_key => 'hour', unique_for => '1 h');
        select trax.fail(job_id, token, 'no disk', '{\"disk\": 0}', permanent => true)
            from trax.claim_next(tasks => '{broken}');
        select trax.enqueue('executing');
        select trax.claim_next(tasks => '{executing}', lease => '1 h');
        select trax.report_progress(job_id, token, '{\"done\": 0.5}') from trax.lease;
        select trax.schedule('nightly', 'report', cron => '0 2 * * *', max_retries => 2);
        select trax.schedule('off', 'report', every => '1 h', enabled => false);
        select trax.schedule('due', 'due', every => '1 h');
        select trax.acquire_token('migration', 'h', 1, '1 h');
        insert into trax.worker (name, started_at, last_seen_at) values ('idle', now(), now())",
    )
    .await;
    another_day(client).await;
}

/// Makes a partition by a cycle rather than the install script, and one for a day that the install
/// of a restore does not create.
async fn another_day(client: &Client) {
    let last: String = value(
        client,
        "select max(inhrelid::regclass::text) from pg_inherits
            where inhparent = 'trax.run'::regclass and inhrelid <> 'trax.run_default'::regclass",
    )
    .await;
    execute(
        client,
        &format!(
            "drop table {last}; update trax.manifest_state set next_run_at = now() + '1 h'
            where next_run_at is not null"
        ),
    )
    .await;
    let made = "select affected from trax.tick() where step = 'make_partitions'";
    assert_eq!(value::<i64>(client, made).await, 1);
    execute(
        client,
        "update trax.manifest_state s set next_run_at = now() - interval '1 s'
            from trax.manifest m where m.manifest_id = s.manifest_id and m.name = 'due';
        select trax.make_run_partitions(now() - interval '3 days', 0);
        insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state,
            task, group_name, input)
        select nextval('trax.work_queue_job_id_seq'), t, t, t, t, 1, 0, true, 'completed', 'old', 'default', '{}'
        from (values (now() - interval '3 days')) v (t)",
    )
    .await;
}

/// Makes a database on the live server for a restore, whose scheduler polls often.
async fn empty_target() -> Database {
    let name = new_name("restored");
    let target = live_server()
        .plain_database(&name)
        .await
        .expect("a database is made");
    let client = connect(&target).await;
    execute(
        &client,
        &format!("alter database {name} set trax.tick_interval = '50 ms'"),
    )
    .await;
    target
}

/// The scheduler of a copy waits, and `trax.status()` shows the statement to type.
async fn the_scheduler_waits_for_adopt(client: &Client) {
    let (shown, healthy, hint) = status(client, "scheduler").await;
    assert_eq!(
        (shown.as_str(), healthy),
        ("waiting for trax.adopt()", false)
    );
    assert!(hint.is_some_and(|hint| hint.contains("select trax.adopt()")));
}

/// Functions that start work are refused in a copy, with the statement to type.
async fn a_copy_refuses(client: &Client) {
    for call in [
        "select * from trax.tick()",
        "select * from trax.claim_next()",
        "select * from trax.complete_and_claim('{}', '{}')",
    ] {
        let error = client.query(call, &[]).await.expect_err(call);
        let error = error.as_db_error().expect("the server refuses");
        assert_eq!(error.code().code(), "55000", "{call}: {error:?}");
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("select trax.adopt()")),
            "{call}: {error:?}"
        );
    }
}

/// The scheduler of a copy waits, reports that, and runs after `trax.adopt()`.
async fn a_copy_runs_only_when_adopted(copy: &Database) {
    let client = connect(copy).await;
    scheduler_of(&client, copy.name(), PATIENCE).await;
    let before: String = value(&client, CONTENTS).await;
    scheduler_wakes(&client, copy.name(), 5).await;
    assert_eq!(
        value::<String>(&client, CONTENTS).await,
        before,
        "nothing ran in the copy"
    );
    the_scheduler_waits_for_adopt(&client).await;
    a_copy_refuses(&client).await;

    execute(&client, "select trax.adopt()").await;
    eventually("the due manifest's job", PATIENCE, async || {
        let sql = "select count(*) from trax.work_queue where manifest = 'due'";
        match value::<i64>(&client, sql).await {
            1 => Ok(()),
            seen => Err(format!("{seen} jobs")),
        }
    })
    .await;
    status_becomes(&client, "scheduler", "running", PATIENCE).await;
    a_cycle_runs(&client, PATIENCE).await;
    the_work_goes_on(&client).await;
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

/// Waiting jobs can be claimed, executing ones expire and run again, and a unique key is still
/// taken.
async fn the_work_goes_on(client: &Client) {
    let sql = "select trax.enqueue('ready', unique_key => 'one')
        = (select job_id from trax.unique_key where key = 'one')";
    assert!(value::<bool>(client, sql).await, "the unique key is alive");
    let sql = "select trax.enqueue('broken', unique_key => 'hour', unique_for => '1 h')
        = (select job_id from trax.run where task = 'broken')";
    assert!(value::<bool>(client, sql).await, "it outlives its job");
    // A scheduler that has not looked for two seconds extends each lease once before it expires.
    eventually("the lease is taken away", PATIENCE, async || {
        execute(
            client,
            "update trax.lease set lease_expires_at = now(), reap_at = now()",
        )
        .await;
        match value::<i64>(client, "select count(*) from trax.lease").await {
            0 => Ok(()),
            seen => Err(format!("{seen} leases")),
        }
    })
    .await;
    let sql = "select string_agg(task, ' ' order by task) from trax.claim_next(max_jobs => 10)";
    assert_eq!(
        value::<String>(client, sql).await,
        "due executing never ready"
    );
}

/// No id is assigned twice: all sequences are past the ids in use.
async fn sequences_are_behind_the_ids(client: &Client) {
    let sql = "select greatest(
        (select max(job_id) from trax.job), (select max(job_id) from trax.run)
    ) < trax.enqueue('next', run_at => now() + interval '1 year')";
    assert!(
        value::<bool>(client, sql).await,
        "the next job has a new id"
    );
    let sql = "select (select max(manifest_id) from trax.manifest) < trax.schedule('next', 'next')";
    assert!(
        value::<bool>(client, sql).await,
        "the next manifest has a new id"
    );
    let sql = "select (select max(id) from trax.dead_letter) < nextval(pg_get_serial_sequence('trax.dead_letter', 'id'))";
    assert!(
        value::<bool>(client, sql).await,
        "the next dead letter has a new id"
    );
}

/// New ids stay in the source's shard, and end where those of the next shard begin.
async fn ids_stay_in_their_shard(client: &Client) {
    let sql = "select bool_and(seqmin >> 43 = 7 and seqmax >> 43 = 7) from pg_sequence
        where seqrelid in ('trax.work_queue_job_id_seq'::regclass, 'trax.dead_letter_id_seq'::regclass)";
    assert!(
        value::<bool>(client, sql).await,
        "they end where those of the next shard begin"
    );
}

async fn filled_source() -> (Database, String) {
    let source = database().await;
    let client = connect(&source).await;
    fill(&client).await;
    assert_eq!(violations(&client).await, Vec::<String>::new());
    let contents = value(&client, CONTENTS).await;
    (source, contents)
}

async fn a_restore_is_whole(target: &Database, contents: &str) {
    let client = connect(target).await;
    assert_eq!(value::<String>(&client, CONTENTS).await, contents);
    assert_eq!(violations(&client).await, Vec::<String>::new());
    a_copy_runs_only_when_adopted(target).await;
    sequences_are_behind_the_ids(&client).await;
    ids_stay_in_their_shard(&client).await;
    // History continues, in the restored partitions and in new ones.
    execute(
        &client,
        "select trax.make_run_partitions(now() + interval '20 days', 0)",
    )
    .await;
    let all = "select bool_and(pg_get_expr(c.relpartbound, c.oid) is not null) from pg_class c
        where c.relnamespace = 'trax'::regnamespace and c.relkind = 'r' and c.relname ~ '^run_'";
    assert!(
        value::<bool>(&client, all).await,
        "every partition is attached"
    );
    execute(&client, "drop extension trax").await;
    let left = "select count(*) from pg_class where relnamespace = 'trax'::regnamespace";
    assert_eq!(
        value::<i64>(&client, left).await,
        0,
        "a restored extension drops as a whole"
    );
}

#[tokio::test]
async fn a_plain_dump_and_restore_loses_nothing_and_runs_nothing_before_it_is_adopted() {
    let (source, contents) = filled_source().await;
    let files = Scratch::new("plain-dump");
    let script = run_quietly(shared_server().command("pg_dump").arg(source.name()));
    let path = files.path().join("dump.sql");
    std::fs::write(&path, script).expect("the dump can be written");
    let target = empty_target().await;
    let mut psql = live_server().command("psql");
    psql.args(["-Xq", "-v", "ON_ERROR_STOP=1", "-d", target.name(), "-f"])
        .arg(&path);
    run_quietly(&mut psql);
    a_restore_is_whole(&target, &contents).await;
}

#[tokio::test]
async fn a_custom_dump_and_pg_restore_loses_nothing_and_runs_nothing_before_it_is_adopted() {
    let (source, contents) = filled_source().await;
    let files = Scratch::new("custom-dump");
    let path = files.path().join("dump");
    run_quietly(
        shared_server()
            .command("pg_dump")
            .args(["-Fc", "-f"])
            .arg(&path)
            .arg(source.name()),
    );
    let target = empty_target().await;
    let mut restore = live_server().command("pg_restore");
    restore
        .args(["--exit-on-error", "-j", "2", "-d", target.name()])
        .arg(&path);
    run_quietly(&mut restore);
    a_restore_is_whole(&target, &contents).await;
}

#[tokio::test]
async fn a_restore_into_the_same_server_is_a_copy_too() {
    let (source, contents) = filled_source().await;
    let name = new_name("same");
    let target = shared_server()
        .plain_database(&name)
        .await
        .expect("a database is made");
    let files = Scratch::new("same-server");
    let path = files.path().join("dump.sql");
    std::fs::write(
        &path,
        run_quietly(shared_server().command("pg_dump").arg(source.name())),
    )
    .expect("the dump can be written");
    let mut psql = shared_server().command("psql");
    psql.args(["-Xq", "-v", "ON_ERROR_STOP=1", "-1", "-d", &name, "-f"])
        .arg(&path);
    run_quietly(&mut psql);
    let client = connect(&target).await;
    assert_eq!(value::<String>(&client, CONTENTS).await, contents);
    a_copy_refuses(&client).await;
    execute(&client, "select trax.adopt()").await;
    let queued = "select affected from trax.tick() where step = 'queue_due'";
    assert_eq!(value::<i64>(&client, queued).await, 1);
    // The copy does not disturb the original.
    let client = connect(&source).await;
    assert_eq!(value::<String>(&client, CONTENTS).await, contents);
    assert_eq!(value::<i64>(&client, queued).await, 1);
}

#[tokio::test]
async fn a_clone_made_from_a_template_waits_and_the_original_goes_on() {
    let source = live_database().await;
    let client = connect(&source).await;
    execute(&client, "select trax.pause('while it is filled')").await;
    scheduler_wakes(&client, source.name(), 1).await;
    fill(&client).await;
    drop(client);
    let name = new_name("clone");
    let admin = connect(&live_server().existing("postgres")).await;
    eventually("the clone is made", PATIENCE, async || {
        // A session that has just disconnected may still be visible for a moment.
        let sql = format!("create database {name} template {}", source.name());
        admin
            .batch_execute(&sql)
            .await
            .map_err(|error| format!("{error:?}"))
    })
    .await;
    execute(
        &admin,
        &format!("alter database {name} set trax.tick_interval = '50 ms'"),
    )
    .await;
    let client = connect(&source).await;
    scheduler_of(&client, source.name(), PATIENCE).await;
    execute(&client, "select trax.resume()").await;
    eventually("the original's due manifest", PATIENCE, async || {
        let sql = "select count(*) from trax.work_queue where manifest = 'due'";
        match value::<i64>(&client, sql).await {
            1 => Ok(()),
            seen => Err(format!("{seen} jobs")),
        }
    })
    .await;
    a_copy_runs_only_when_adopted(&live_server().existing(&name)).await;
}
