//! Metrics: the counted events, the absence of rolled-back ones, and that a scrape does not read a
//! long queue.

use harness::scheduler::{connect, execute, live_database, value};
use harness::session::Session;
use harness::{PATIENCE, eventually};
use std::sync::OnceLock;
use tokio_postgres::Client;
use trax_client::testkit::{Database, Server};

/// A session in a new database of a separate server: with hundreds of databases, not every database
/// and task has a place in shared memory.
async fn session() -> (Database, Session) {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let options = harness::options().fast();
        let options = options.setting("trax.databases", "no_database_has_this_name");
        options.start().expect("a server starts")
    });
    let name = harness::scheduler::new_name("counted");
    let database = server.database(&name).await.expect("a database is made");
    let session = Session::of(&database).await;
    (database, session)
}

/// Returns the value of a sample, or an empty text.
async fn sample(s: &Session, name: &str, labels: &str) -> String {
    s.get(&format!(
        "select value from trax.metrics() where name = '{name}' and labels = '{labels}'"
    ))
    .await
}

#[tokio::test]
async fn samples_are_named_as_prometheus_names_them_and_no_two_are_the_same() {
    let (_db, s) = session().await;
    s.get("select trax.configure_rate('r', 5, '1 s'); select trax.configure_group('g', max_active_jobs => 3);
        select trax.enqueue('a', group_name => 'g')")
        .await;
    let job = s.claim_one("").await;
    s.get(&format!(
        "select trax.complete({}); select slot from trax.acquire_token('nightly', 'me', 1, '1 min')",
        job.key()
    ))
    .await;
    let held = sample(&s, "trax_tokens_held", r#"{"name": "nightly"}"#).await;
    assert_eq!(held, "1");
    let wrong = "select name, labels from trax.metrics()
        where name !~ '^trax_[a-z0-9_]+$'
            or value is null
            or exists (select from jsonb_each(labels) l where l.key !~ '^[a-z]+$' or jsonb_typeof(l.value) <> 'string')";
    assert_eq!(s.get(wrong).await, "");
    let twice = "select name, labels from trax.metrics() group by 1, 2 having count(*) > 1";
    assert_eq!(s.get(twice).await, "");
    let labels = "select distinct k from trax.metrics(), jsonb_object_keys(labels) k order by 1";
    assert_eq!(
        s.get(labels).await.replace('\n', " "),
        "call group kind le name rate state table task version",
        "nothing that a job brings but its task and its group"
    );
}

#[tokio::test]
async fn claims_and_outcomes_are_counted_by_task() {
    let (_db, s) = session().await;
    s.get("select trax.enqueue_many('a', array_fill('1'::jsonb, array[8]), max_retries => 1, timeout => '1 h')")
        .await;
    let jobs = s.claim("max_jobs => 6").await;
    s.get(&format!("select trax.complete({})", jobs[0].key()))
        .await;
    let many = format!(
        "select count(*) from trax.complete_many(array[{}, {}], array['{}', '{}']::uuid[])",
        jobs[1].id, jobs[2].id, jobs[1].token, jobs[2].token
    );
    s.get(&many).await;
    s.get(&format!("select trax.fail({}, 'no')", jobs[3].key()))
        .await;
    let permanent = format!(
        "select trax.fail({}, 'no', permanent => true)",
        jobs[4].key()
    );
    s.get(&permanent).await;
    s.get(&format!(
        "select trax.cancel({}); select trax.acknowledge_cancel({})",
        jobs[5].id,
        jobs[5].key()
    ))
    .await;
    let waits = s
        .number("select min(job_id) from trax.work_queue where waits_for is null")
        .await;
    s.get(&format!("select trax.cancel({waits})")).await;
    s.claim_one("lease => '1 ms'").await;
    s.get("select pg_sleep(0.002); select * from trax.tick()")
        .await;
    for (name, labels, wanted) in [
        ("claims_total", r#"{"task": "a"}"#, "7"),
        ("completions_total", r#"{"task": "a"}"#, "3"),
        ("cancellations_total", r#"{"task": "a"}"#, "2"),
        ("failures_total", r#"{"task": "a", "kind": "error"}"#, "2"),
        (
            "failures_total",
            r#"{"task": "a", "kind": "lease_expired"}"#,
            "1",
        ),
        ("leases_lost_total", r#"{"task": "a"}"#, "1"),
        ("retries_total", r#"{"task": "a"}"#, "2"),
        ("run_seconds_count", r#"{"task": "a"}"#, "7"),
        ("wait_seconds_count", r#"{"task": "a"}"#, "7"),
        ("wait_seconds_bucket", r#"{"task": "a", "le": "+Inf"}"#, "7"),
        ("enqueued_total", "{}", "8"),
        ("dead_letters", "{}", "1"),
    ] {
        let seen = sample(&s, &format!("trax_{name}"), labels).await;
        assert_eq!(seen, wanted, "{name} {labels}");
    }
    let falls = "select name from (
            select name, value < lag(value) over (partition by name order by (labels ->> 'le')::float) as falls
            from trax.metrics() where name like '%bucket'
        ) b where falls";
    assert_eq!(
        s.get(falls).await,
        "",
        "each bucket holds the one before it"
    );
}

#[tokio::test]
async fn a_job_that_waited_too_long_is_a_failure_of_its_own_kind() {
    let (_db, s) = session().await;
    s.get("select trax.enqueue('a'); update trax.work_queue set expires_at = now()")
        .await;
    assert_eq!(s.tick("expire_queued").await, 1);
    let seen = sample(
        &s,
        "trax_failures_total",
        r#"{"task": "a", "kind": "expired"}"#,
    )
    .await;
    assert_eq!(seen, "1");
}

#[tokio::test]
async fn what_is_undone_is_not_counted() {
    let (_db, s) = session().await;
    s.get("select trax.enqueue_many('a', array_fill('1'::jsonb, array[3]))")
        .await;
    s.get("begin; select trax.complete(job_id, token) from trax.claim_next(); rollback")
        .await;
    assert_eq!(
        sample(&s, "trax_claims_total", r#"{"task": "a"}"#).await,
        "0"
    );
    s.get(
        "begin;
        select job_id from trax.claim_next();
        savepoint one;
        select job_id from trax.claim_next();
        savepoint two;
        select job_id from trax.claim_next();
        release savepoint two;
        rollback to savepoint one;
        commit",
    )
    .await;
    assert_eq!(
        sample(&s, "trax_claims_total", r#"{"task": "a"}"#).await,
        "1"
    );
}

#[tokio::test]
async fn stale_calls_are_counted_by_call() {
    let (_db, s) = session().await;
    let stale = "1, gen_random_uuid()";
    s.get(&format!(
        "select trax.complete({stale});
        select trax.fail({stale}, 'no');
        select trax.release({stale});
        select trax.acknowledge_cancel({stale});
        select trax.cancel_own({stale});
        select * from trax.complete_many('{{1, 2}}', array[gen_random_uuid(), gen_random_uuid()]);
        select * from trax.heartbeat('{{1, 2}}', array[gen_random_uuid(), gen_random_uuid()])"
    ))
    .await;
    for (call, wanted) in [
        ("complete", "3"),
        ("fail", "1"),
        ("release", "1"),
        ("acknowledge_cancel", "1"),
        ("cancel_own", "1"),
        ("heartbeat", "2"),
    ] {
        let labels = format!(r#"{{"call": "{call}"}}"#);
        let seen = sample(&s, "trax_stale_calls_total", &labels).await;
        assert_eq!(seen, wanted, "{call}");
    }
}

#[tokio::test]
async fn what_waits_and_runs_is_reported_by_group() {
    let (_db, s) = session().await;
    s.get("select trax.enqueue_many('a', array_fill('1'::jsonb, array[3]), group_name => 'g');
        select trax.enqueue('b', group_name => 'g');
        select trax.enqueue('a', group_name => 'g', run_at => now() + interval '1 h');
        select trax.enqueue('k', group_name => 'h', concurrency_key => 'k') from generate_series(1, 3);
        update trax.work_queue set run_at = now() - interval '1 h' where task = 'b'")
        .await;
    s.claim("max_jobs => 10, tasks => '{k}'").await;
    s.get("select trax.cancel(job_id) from trax.lease").await;
    let depth = "select labels ->> 'group', labels ->> 'state', value from trax.metrics()
        where name = 'trax_queue_depth' and value > 0 order by 1, 2";
    assert_eq!(s.get(depth).await, "g|delayed|1\ng|ready|4\nh|blocked|2");
    let age = sample(&s, "trax_queue_oldest_age_seconds", r#"{"group": "g"}"#).await;
    let age: f64 = age.parse().expect("a number");
    assert!((3600.0..3700.0).contains(&age), "{age}");
    let leases = "select labels ->> 'group', value from trax.metrics() where name = 'trax_leases' order by 1";
    assert_eq!(s.get(leases).await, "g|0\nh|1");
    assert_eq!(sample(&s, "trax_leases_cancel_requested", "{}").await, "1");
    assert_eq!(sample(&s, "trax_workers_busy", "{}").await, "1");
}

#[tokio::test]
async fn a_long_queue_is_sampled_and_few_jobs_beside_it_are_exact() {
    let (_db, s) = session().await;
    s.get(
        "select count(*) from generate_series(1, 200) n, lateral
            trax.enqueue_many('many', array_fill(to_jsonb(n), array[1000]), group_name => 'many');
        select trax.enqueue_many('few', array_fill('1'::jsonb, array[3]), group_name => 'few')",
    )
    .await;
    let pages = s
        .number("select pg_relation_size('trax.work_queue') / 8192")
        .await;
    assert!(pages > 1500, "{pages} pages are counted whole");
    let many = sample(
        &s,
        "trax_queue_depth",
        r#"{"group": "many", "state": "ready"}"#,
    )
    .await;
    let many: f64 = many.parse().expect("a number");
    assert!((150_000.0..250_000.0).contains(&many), "{many}");
    let few = sample(
        &s,
        "trax_queue_depth",
        r#"{"group": "few", "state": "ready"}"#,
    )
    .await;
    assert_eq!(few, "3");
    // The rows that the scrape read, by the statistics of this session.
    let statistics = "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint from pg_stat_xact_user_tables
        where schemaname = 'trax' and (relname = 'work_queue' or relname ~ '^run_')";
    for statement in ["select 1", "analyze trax.work_queue"] {
        s.get(statement).await;
        let seen = s
            .get(&format!(
                "begin; {statistics}; select count(*) from trax.metrics(); {statistics}; commit"
            ))
            .await;
        let seen: Vec<i64> = seen
            .lines()
            .map(|line| line.parse().expect("a number"))
            .collect();
        let read = seen[2] - seen[0];
        assert!(read < 130_000, "{read} rows were read after: {statement}");
    }
}

async fn number_of(client: &Client, name: &str) -> Result<f64, String> {
    let sql = "select sum(value) from trax.metrics() where name = $1";
    let row = client.query_one(sql, &[&name]).await;
    let row = row.map_err(|error| format!("{error:?}"))?;
    row.get::<_, Option<f64>>(0).ok_or("no sample".to_owned())
}

#[tokio::test]
async fn the_scheduler_is_reported_with_its_cycles_and_its_lag() {
    let database = live_database().await;
    let client = connect(&database).await;
    eventually("a counted cycle", PATIENCE, async || {
        match number_of(&client, "trax_cycle_duration_seconds_count").await? {
            count if count > 0.0 => Ok(()),
            count => Err(count.to_string()),
        }
    })
    .await;
    let age = "select extract(epoch from clock_timestamp())::float - value from trax.metrics()
        where name = 'trax_last_cycle_timestamp_seconds'";
    assert!(value::<f64>(&client, age).await.abs() < 30.0);
    assert_eq!(number_of(&client, "trax_scheduler_running").await, Ok(1.0));
    execute(
        &client,
        "select trax.pause(); select trax.schedule('m', 't', every => '1 h');
        update trax.manifest_state set next_run_at = now() - interval '100 s'",
    )
    .await;
    assert_eq!(number_of(&client, "trax_scheduler_paused").await, Ok(1.0));
    assert_eq!(number_of(&client, "trax_manifests_overdue").await, Ok(1.0));
    let lag = number_of(&client, "trax_scheduler_lag_seconds").await;
    assert!(lag.as_ref().is_ok_and(|lag| *lag > 99.0), "{lag:?}");
}

#[tokio::test]
async fn without_preloading_there_are_the_numbers_of_the_tables() {
    let server = harness::options()
        .fast()
        .not_preloaded()
        .start()
        .expect("a server starts");
    let database = server.database("plain").await.expect("a database is made");
    let s = Session::of(&database).await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.complete({})", job.key())).await;
    assert_eq!(sample(&s, "trax_enqueued_total", "{}").await, "1");
    let counted =
        "select name from trax.metrics() where name ~ '_total$' and name <> 'trax_enqueued_total'";
    assert_eq!(s.get(counted).await, "");
}

#[tokio::test]
async fn more_tasks_than_places_are_counted_together() {
    let (_db, s) = session().await;
    s.get("select trax.enqueue('t' || n) from generate_series(1, 250) n")
        .await;
    for _ in 0..3 {
        s.get("select count(trax.complete(job_id, token)) from trax.claim_next(max_jobs => 100)")
            .await;
    }
    let seen =
        "select count(*), sum(value), max(value) filter (where labels ->> 'task' = '(others)')
        from trax.metrics() where name = 'trax_completions_total'";
    assert_eq!(s.get(seen).await, "201|250|50");
}

/// A group name costs six series for as long as any row of it exists, and the number of names is
/// unlimited.
#[tokio::test]
async fn more_groups_than_places_are_counted_together_and_those_without_jobs_go() {
    let (_db, s) = session().await;
    s.get(
        "insert into trax.new_job (task, group_name) select 'a', 'few ' || n from generate_series(1, 2000) n;
         insert into trax.new_job (task, group_name) select 'a', 'many' from generate_series(1, 3);
         select trax.configure_group('few 2000', max_active_jobs => 5)",
    )
    .await;
    let series = "select count(*), count(distinct labels ->> 'group') from trax.metrics() where labels ? 'group'";
    // Five states, an age and leases for each.
    assert_eq!(s.get(series).await, "707|101");
    let depth = "select value from trax.metrics() where name = 'trax_queue_depth' and labels = ";
    let of = |group: &str| format!("{depth} '{{\"group\": \"{group}\", \"state\": \"ready\"}}'");
    assert_eq!(s.get(&of("many")).await, "3");
    assert_eq!(s.get(&of("(others)")).await, "1901");
    let sum = "select sum(value) from trax.metrics() where name = ";
    assert_eq!(s.get(&format!("{sum} 'trax_queue_depth'")).await, "2003");
    assert_eq!(s.claim("max_jobs => 1000").await.len(), 1000);
    assert_eq!(s.claim("max_jobs => 900").await.len(), 900);
    assert_eq!(s.get(&format!("{sum} 'trax_leases'")).await, "1900");
    assert_eq!(s.get(&format!("{sum} 'trax_queue_depth'")).await, "103");
    assert_eq!(s.claim("max_jobs => 1000").await.len(), 103);
    s.get("select trax.complete_many(array_agg(job_id), array_agg(token)) from trax.lease")
        .await;
    // Only the configured group is left, without an age.
    assert_eq!(s.get(series).await, "8|1");
}

#[tokio::test]
async fn a_session_that_is_ended_while_it_looks_for_a_place_leaves_its_claims_to_others() {
    let server = harness::options()
        .fast()
        .setting("trax.databases", "no_database_has_this_name")
        .start()
        .expect("a server starts");
    let other = server.database("other").await.expect("a database is made");
    let db = server.database("app").await.expect("a database is made");
    Session::of(&other).await.enqueue("'a'").await;
    let (s, locker) = (Session::of(&db).await, Session::of(&db).await);
    // More tasks than one database has places for.
    s.get("select count(trax.enqueue('t' || n)) from generate_series(1, 300) n")
        .await;
    assert_eq!(s.claim("max_jobs => 250").await.len(), 250);
    let claimer = Session::of(&db).await;
    let pid = claimer.pid();
    claimer.get("select count(*) from trax.run").await;
    // The claim looks up dropped databases, whose places it could use, and waits for the catalog.
    locker
        .get("begin; lock table pg_database in access exclusive mode")
        .await;
    let claim = tokio::spawn(async move {
        let claim = claimer
            .client()
            .simple_query("select * from trax.claim_next()");
        claim.await.is_err()
    });
    locker.sees_waiting(pid).await;
    // The client sees the end of the session before its locks are released, so wait for the
    // process.
    let gone = format!("select pg_terminate_backend({pid}, 10000)");
    assert_eq!(locker.get(&gone).await, "t");
    assert!(claim.await.expect("it ends"));
    locker.get("rollback").await;
    s.get("set statement_timeout = '10 s'").await;
    assert_eq!(s.claim("max_jobs => 250").await.len(), 50);
    let log = std::fs::read_to_string(server.log_file()).expect("the log can be read");
    assert!(!log.contains("already borrowed") && !log.contains("already mutably borrowed"));
}
