//! Settings of a database change how statements are parsed, planned and printed, but not the
//! behavior of trax.

use harness::scheduler::new_name;
use harness::session::Session;
use harness::shared_server;
use trax_client::testkit::Database;
use trax_client::{ClaimOptions, Client, NewJob};

/// Each setting differs from its default. `odd` is a schema, a tablespace, an access method and an
/// operator in it.
const ODD: &[&str] = &[
    "standard_conforming_strings = off",
    "escape_string_warning = off",
    "backslash_quote = off",
    "transform_null_equals = on",
    "array_nulls = off",
    "xmloption = document",
    "xmlbinary = hex",
    "datestyle = 'SQL, DMY'",
    "intervalstyle = sql_standard",
    "bytea_output = escape",
    "extra_float_digits = -15",
    "quote_all_identifiers = on",
    "timezone = 'Asia/Kathmandu'",
    "lc_numeric = 'C'",
    "lc_time = 'C'",
    "search_path = odd",
    "row_security = off",
    "default_tablespace = odd",
    "temp_tablespaces = odd",
    "default_table_access_method = odd",
    "default_toast_compression = pglz",
    "default_transaction_isolation = 'repeatable read'",
    "default_transaction_deferrable = on",
    "session_replication_role = replica",
    "check_function_bodies = off",
    "enable_seqscan = off",
    "enable_indexscan = off",
    "enable_indexonlyscan = off",
    "enable_bitmapscan = off",
    "enable_tidscan = off",
    "enable_sort = off",
    "enable_incremental_sort = off",
    "enable_hashagg = off",
    "enable_hashjoin = off",
    "enable_mergejoin = off",
    "enable_nestloop = off",
    "enable_material = off",
    "enable_memoize = off",
    "enable_partition_pruning = off",
    "constraint_exclusion = off",
    "plan_cache_mode = force_custom_plan",
    "from_collapse_limit = 1",
    "join_collapse_limit = 1",
    "jit = on",
    "jit_above_cost = 0",
    "jit_inline_above_cost = -1",
    "jit_optimize_above_cost = -1",
    "work_mem = '64 kB'",
    "maintenance_work_mem = '1 MB'",
    "statement_timeout = '60 s'",
    "lock_timeout = '60 s'",
    "idle_in_transaction_session_timeout = '60 s'",
    "synchronous_commit = off",
    "client_min_messages = error",
];

/// Statements over the life of jobs that do not depend on the time of day.
const LIFE: &[&str] = &[
    "select trax.configure_group('mail', priority => 7, max_active_jobs => 3, max_per_key => 2)",
    "select trax.enqueue('a', '{\"text\": \"it''s\", \"none\": null}', group_name => 'mail', unique_key => 'one', timeout => '90 s')",
    "select trax.enqueue('a', unique_key => 'one')",
    "select * from trax.enqueue_many('b', array['1', 'null', '\"x\"']::pg_catalog.jsonb[], priority => 3, concurrency_key => 'k')",
    "insert into trax.new_job (task, input, group_name, timeout) values ('c', '[1.5, 0.1]', 'mail', '1 day 2 h'), ('c', null, null, null)",
    "select trax.enqueue('later', run_at => '2099-01-31 10:00:00+00')",
    "select trax.schedule('nightly', 'report', cron => '30 2 * * MON-FRI', timezone => 'Europe/Berlin', priority => 2,
        exclusions => '[{\"dates\": [\"2031-12-24\"]}]', starts_at => '2031-12-20 00:00:00+00')",
    "select trax.schedule('each', 'each', every => '90 min', variance => '0 s', max_retries => 1)",
    "select trax.schedule('after', 'after', depends_on => '{each}')",
    "select extract(epoch from run_at), local_time, note from trax.preview('nightly', count => 4)",
    "select extract(epoch from run_at), local_time from trax.preview_cron('0 12 1 * *', timezone => 'Asia/Tokyo', after => '2031-01-01 00:00:00+00', count => 2)",
    "select * from trax.tick()",
    "select job_id, attempt, task, input, group_name, timeout is not null from trax.claim_next(max_jobs => 10, worker => 'w', lease => '1 h')",
    "select job_id, held, cancel_requested from trax.heartbeat((select array_agg(l.job_id order by l.job_id) from trax.lease l),
        (select array_agg(l.token order by l.job_id) from trax.lease l), lease => '2 h')",
    "select l.task, trax.report_progress(l.job_id, l.token, '0.25') from trax.lease l where l.task = 'a'",
    "select l.task, trax.complete(l.job_id, l.token, '{\"pi\": 3.14159265358979}') from trax.lease l where l.task = 'a'",
    "select l.task, trax.fail(l.job_id, l.token, 'it''s no', '{\"n\": 1}', permanent => true) from trax.lease l where l.task = 'b'",
    "select l.task, trax.fail(l.job_id, l.token, 'again', retry_in => '0 s') from trax.lease l where l.task = 'each'",
    "select l.task, trax.release(l.job_id, l.token) from trax.lease l where l.task = 'c' order by l.job_id",
    "select id, task, status, reason, attempts, last_error from trax.dead_letter",
    "select trax.requeue_dead_letter(1, 'it''s mended')",
    "select task, attempt from trax.claim_next(tasks => '{each}')",
    "select l.task, trax.complete(l.job_id, l.token) from trax.lease l where l.task = 'each'",
    "select * from trax.tick()",
    "select action, kind, name from trax.apply('{\"manifests\": [{\"name\": \"applied\", \"task\": \"t\", \"cron\": \"0 3 * * *\", \"timezone\": \"UTC\"}], \"groups\": [{\"name\": \"g\", \"priority\": 3}]}')",
    "select action, kind, name from trax.apply('{\"manifests\": []}', prune => true) order by 3",
    "select slot from trax.acquire_token('n', 'h', 1, '1 h')",
    "select count(*) from trax.acquire_token('n', 'i', 1, '1 h')",
    "select trax.grant_access('pg_signal_backend', 'worker', tasks => '{a,it''s}'), trax.grant_access('pg_checkpoint', 'producer', groups => '{mail}')",
    "select trax.grant_access('pg_monitor', 'reader'), trax.revoke_access('pg_checkpoint')",
    "select * from trax.access_scope",
    "select * from trax.check()",
    "select trax.cancel(job_id), trax.cancel(4711) from trax.work_queue where task = 'later'",
    "select trax.trigger('nightly', '{\"by\": \"hand\"}'), trax.trigger_group('default')",
    "select state, task, attempt, input, group_name, priority, error, output, progress from trax.job order by job_id, attempt",
    "select trax.make_run_partitions(clock_timestamp() - interval '20 days', 1)",
    "select trax.drop_run_partitions(clock_timestamp() - interval '10 days')",
    "select count(*) from trax.run_partitions()",
    "select item, healthy from trax.status() where item not like 'scheduler%' order by item",
    "select * from trax.check()",
    "select cause from trax.diagnose() where cause not like 'scheduler%' order by 1",
    "select name, labels from trax.metrics() where name like 'trax_q%' or name like 'trax_lease%' order by name, labels::text",
    "select name, value from trax.metrics() where name in ('trax_queue_depth', 'trax_leases', 'trax_dead_letters', 'trax_manifests') order by name, labels::text",
];

/// A database with these settings, in force before the extension is created.
async fn with(settings: &[&str]) -> (Database, Session) {
    made("", settings)
        .await
        .expect("every server makes a plain one")
}

/// As [`with`], for a database created with these options; `None` if the server cannot create it.
async fn made(how: &str, settings: &[&str]) -> Option<(Database, Session)> {
    let name = new_name("settings");
    let admin = Session::of(&shared_server().existing("postgres")).await;
    if let Err(refusal) = admin
        .attempt(&format!("create database {name} {how}"))
        .await
    {
        eprintln!("skipped: this server makes no database {how}: {refusal}");
        return None;
    }
    let database = shared_server().existing(&name);
    let s = Session::of(&database).await;
    s.get("create schema odd; create access method odd type table handler heap_tableam_handler")
        .await;
    for setting in settings {
        s.get(&format!("alter database {name} set {setting}")).await;
    }
    let s = Session::of(&database).await;
    s.get("create extension trax").await;
    let s = Session::of(&database).await;
    Some((database, s))
}

/// The results of each step, with those of the typed client at the end.
async fn life(s: &Session) -> Vec<String> {
    let mut said = Vec::new();
    for sql in LIFE {
        let answer = match s.attempt(sql).await {
            Ok(answer) => answer,
            Err(refusal) => refusal.to_string(),
        };
        said.push(format!("{sql}\n{answer}"));
    }
    let client = Client::new(s.client());
    let mut copy = client.copy_in().await.expect("a COPY begins");
    for n in 0..3 {
        let job = NewJob::new("typed", serde_json::json!({ "n": n, "text": "a\\b'c\"d" }));
        copy.add(&job).await.expect("the server takes it");
    }
    copy.finish().await.expect("the COPY ends");
    let options = ClaimOptions::new().max_jobs(9).tasks(["typed"]);
    for job in client.claim(&options).await.expect("jobs are claimed") {
        let done = client
            .complete(job.job_id, job.token, &job.input)
            .await
            .expect("it is completed");
        let input: serde_json::Value = job.input.read().expect("it is JSON");
        said.push(format!("typed {input} {done}"));
    }
    said
}

#[tokio::test]
async fn no_setting_of_a_database_changes_what_jobs_do() {
    let admin = Session::of(&shared_server().existing("postgres")).await;
    admin.get("set allow_in_place_tablespaces = on").await;
    admin.get("create tablespace odd location ''").await;
    let (_plain_db, plain) = with(&[]).await;
    let expected = life(&plain).await;
    assert!(
        expected.iter().any(|line| line.starts_with("typed ")),
        "{expected:?}"
    );
    let (_db, odd) = with(ODD).await;
    let seen = life(&odd).await;
    for (seen, expected) in seen.iter().zip(&expected) {
        assert_eq!(seen, expected);
    }
    assert_eq!(seen.len(), expected.len());
}

/// Rights and names in a Turkish database, where `lower('INSERT')` is a different word.
const IN_TURKISH: &[&str] = &[
    "create role settings_of_{name}; grant trigger on trax.lease to settings_of_{name}",
    "select count(*) from trax.diagnose() where cause = 'trigger_right'",
    "revoke trigger on trax.lease from settings_of_{name}; select trax.grant_access('settings_of_{name}', 'admin')",
    "select count(*) from trax.check()",
    "select trax.enqueue('INBOX.I', group_name => 'İI', unique_key => 'I')",
    "select trax.enqueue('inbox.i', group_name => 'iı', unique_key => 'i')",
    "select task, group_name from trax.claim_next(tasks => '{inbox.i}')",
    "select task, group_name from trax.claim_next(groups => '{İI}')",
    "select count(*) from trax.preview_cron('0 12 * * FRI', timezone => 'ASIA/ISTANBUL')",
    "select trax.schedule('I', 'i', cron => '0 12 * JUL FRI', timezone => 'Asia/Istanbul', misfire => 'SKIP')",
    "select state, task from trax.job order by job_id",
];

#[tokio::test]
async fn no_locale_of_a_database_changes_what_jobs_do() {
    let (_plain_db, plain) = with(&[]).await;
    let mut expected = life(&plain).await;
    let turkish = async |s: &Session| {
        let name = s.get("select current_database()").await;
        let mut said = Vec::new();
        for sql in IN_TURKISH {
            let answer = s.attempt(&sql.replace("{name}", &name)).await;
            said.push(answer.unwrap_or_else(|refusal| refusal.to_string()));
        }
        said
    };
    expected.extend(turkish(&plain).await);
    for how in [
        "template template0 locale_provider icu icu_locale 'tr-TR'",
        "template template0 lc_collate 'tr_TR.UTF-8' lc_ctype 'tr_TR.UTF-8'",
        "template template0 lc_collate 'de_DE.UTF-8' lc_ctype 'de_DE.UTF-8'",
    ] {
        let locale = if how.contains("de_DE") {
            "de_DE"
        } else {
            "tr_TR"
        };
        let admin = Session::of(&shared_server().existing("postgres")).await;
        let mut settings = Vec::new();
        for setting in ["lc_numeric", "lc_monetary", "lc_time", "lc_messages"] {
            let set = format!("{setting} = '{locale}.UTF-8'");
            match admin.attempt(&format!("set {set}")).await {
                Ok(_) => settings.push(set),
                Err(refusal) => eprintln!("skipped: {refusal}"),
            }
        }
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let Some((_db, s)) = made(how, &settings).await else {
            continue;
        };
        let mut seen = life(&s).await;
        seen.extend(turkish(&s).await);
        // The server's own messages may be in another language.
        for (seen, expected) in seen.iter().zip(&expected) {
            assert_eq!(seen, expected, "{how}");
        }
        assert_eq!(seen.len(), expected.len());
    }
}
