//! The install: contract, comments, dump configuration, partitions, and no leftovers.

use harness::session::{Session, session};
use std::collections::BTreeSet;
use trax_client::testkit::Database;

/// The functions of the contract: arguments in order with their defaults, and the result.
const CONTRACT: &[&str] = &[
    "acquire_token(name text, holder text, max_holders int, ttl interval) returns table(slot int, token uuid, expires_at timestamptz)",
    "await_token(IN name text, IN holder text, IN max_holders int, IN ttl interval, IN wait interval, OUT slot int, OUT token uuid, OUT expires_at timestamptz) returns nothing",
    "await_job(IN job_id bigint, IN timeout interval, OUT state text, OUT output jsonb, OUT error text) returns nothing",
    "await_jobs(IN job_ids bigint[], IN timeout interval, OUT ended bigint[], IN until_message boolean default false) returns nothing",
    "get_jobs(job_ids bigint[]) returns table(job_id bigint, state text, attempt int, task text, manifest text, group_name text, priority int, run_at timestamptz, scheduled_for timestamptz, queued_at timestamptz, started_at timestamptz, finished_at timestamptz, worker text, error text, output jsonb, progress jsonb)",
    "report_worker(name text, period interval, state text default 'running'::text, info jsonb default null) returns boolean",
    "extend_token(name text, token uuid, ttl interval) returns boolean",
    "release_token(name text, token uuid) returns boolean",
    "trigger_group(group_name text) returns bigint",
    "configure_rate(name text, allowed int, period interval, burst int default null) returns void",
    "drop_rate(name text) returns void",
    "read_rate(name text, key text default null, cost int default 1) returns table(available int, free_at timestamptz)",
    "consume_rate(name text, key text default null, cost int default 1) returns table(granted boolean, retry_after interval)",
    "close_rate(name text, key text default null, until timestamptz default null) returns void",
    "activate(name text, input jsonb default null) returns bigint",
    "apply(document jsonb, prune boolean default false, dry_run boolean default false, source text default null) returns table(action text, kind text, name text, detail text)",
    "preview(name text, after timestamptz default now(), count int default 5) returns table(run_at timestamptz, local_time text, note text)",
    "preview_cron(expression text, timezone text default 'UTC'::text, after timestamptz default now(), count int default 5) returns table(run_at timestamptz, local_time text, note text)",
    "cancel_manifest(name text) returns bigint",
    "cancel_group(name text) returns bigint",
    "requeue_dead_letters(task text default null, manifest text default null, group_name text default null, since timestamptz default null, max_count int default null) returns bigint",
    "enqueue(task text, input jsonb default '{}', run_at timestamptz default null, group_name text default null, priority int default 0, max_retries int default null, timeout interval default null, unique_key text default null, concurrency_key text default null, trace jsonb default null, retry_delay interval default null, unique_for interval default null, version text default null, batch bigint default null, rate text default null, rate_key text default null, cost int default 1, on_duplicate text default null) returns bigint",
    "enqueue_many(task text, inputs jsonb[], run_at timestamptz default null, group_name text default null, priority int default 0, max_retries int default null, timeout interval default null, unique_key text default null, concurrency_key text default null, trace jsonb default null, retry_delay interval default null, unique_for interval default null, version text default null, batch bigint default null, rate text default null, rate_key text default null, cost int default 1, on_duplicate text default null) returns setof bigint",
    "enqueue_graph(document jsonb, unique_key text default null) returns table(name text, job_id bigint)",
    "read_needs(id bigint) returns table(name text, job_id bigint, state text, output jsonb, error text)",
    "read_graph(id bigint) returns table(name text, job_id bigint, task text, state text, needs text[], condition text, waits_for text, attempt int, started_at timestamptz, finished_at timestamptz, error text)",
    "open_batch(task text, input jsonb default '{}', run_at timestamptz default null, group_name text default null, priority int default 0, max_retries int default null, timeout interval default null, unique_key text default null, concurrency_key text default null, trace jsonb default null, retry_delay interval default null, unique_for interval default null, version text default null, batch bigint default null, rate text default null, rate_key text default null, cost int default 1, on_duplicate text default null) returns bigint",
    "seal_batch(batch bigint) returns bigint",
    "enqueue_sql(command text, run_at timestamptz default null, group_name text default null, priority int default 0, max_retries int default null, timeout interval default null, unique_key text default null, concurrency_key text default null, retry_delay interval default null, unique_for interval default null, run_as text default null, on_duplicate text default null) returns bigint",
    "schedule(name text, task text default null, input jsonb default null, cron text default null, every interval default null, run_at timestamptz default null, depends_on text[] default null, depends_mode text default null, dormant boolean default null, timezone text default null, group_name text default null, priority int default null, max_retries int default null, retry_delay interval default null, timeout interval default null, misfire text default null, misfire_threshold interval default null, misfire_limit int default null, overlap text default null, max_concurrency int default null, variance interval default null, exclusions jsonb default null, starts_at timestamptz default null, ends_at timestamptz default null, enabled boolean default null, on_dead_letter text default null, sql text default null, run_as text default null) returns bigint",
    "unschedule(name text) returns void",
    "enable_manifest(name text) returns void",
    "disable_manifest(name text) returns void",
    "trigger(name text, input jsonb default null, delay interval default null) returns bigint",
    "configure_group(name text, max_active_jobs int default null, priority int default null, enabled boolean default null, max_per_key int default null, rate text default null, max_waiting int default null, overflow text default null) returns void",
    "claim_next(worker text default null, max_jobs int default 1, tasks text[] default null, groups text[] default null, lease interval default null, places int default null, versions text[] default null, min_jobs int default 1, max_wait interval default null) returns table(job_id bigint, attempt int, token uuid, task text, input jsonb, manifest text, group_name text, scheduled_for timestamptz, lease_expires_at timestamptz, timeout interval, trace jsonb, max_attempts int, queued_at timestamptz, steps int)",
    "heartbeat(job_ids bigint[], tokens uuid[], lease interval default null, ahead bigint[] default null) returns table(job_id bigint, held boolean, cancel_requested boolean, lease_expires_at timestamptz)",
    "complete(job_id bigint, token uuid, output jsonb default null, detail jsonb default null) returns boolean",
    "complete_many(job_ids bigint[], tokens uuid[], outputs jsonb[] default null) returns setof bigint",
    "fail(job_id bigint, token uuid, error text, detail jsonb default null, retry_in interval default null, permanent boolean default false, close_rate boolean default false) returns text",
    "waiting_tasks(groups text[] default null) returns table(task text)",
    "report_progress(job_id bigint, token uuid, progress jsonb) returns boolean",
    "release(job_id bigint, token uuid, delay interval default null) returns boolean",
    "acknowledge_cancel(job_id bigint, token uuid) returns boolean",
    "cancel_own(job_id bigint, token uuid, reason text default null) returns boolean",
    "cancel(job_id bigint, tree boolean default true) returns text",
    "record_step(job_id bigint, token uuid, step text, output jsonb default null, undo jsonb default null, lease interval default null) returns table(recorded boolean, output jsonb)",
    "read_steps(job_id bigint) returns table(step text, kind text, output jsonb, attempt int, recorded_at timestamptz, timed_out boolean, wait jsonb, undo jsonb)",
    "sleep(job_id bigint, token uuid, step text, until timestamptz) returns text",
    "await_signal(job_id bigint, token uuid, step text, name text, until timestamptz default null) returns table(state text, payload jsonb)",
    "send_signal(job_id bigint, name text, payload jsonb default null, signal_id text default null) returns text",
    "spawn(job_id bigint, token uuid, step text, task text, input jsonb default '{}', run_at timestamptz default null, group_name text default null, priority int default 0, max_retries int default null, timeout interval default null, unique_key text default null, concurrency_key text default null, trace jsonb default null, retry_delay interval default null, unique_for interval default null, version text default null, batch bigint default null, rate text default null, rate_key text default null, cost int default 1, on_duplicate text default null) returns bigint",
    "await_children(job_id bigint, token uuid, step text, mode text default 'all'::text, until timestamptz default null) returns table(state text, children jsonb)",
    "fork(job_id bigint, from_step text default null, input jsonb default null) returns bigint",
    "configure_task(task text, max_retries int default null, retry_delay interval default null, backoff double precision default null, retry_delay_max interval default null, timeout interval default null, on_final_failure text default null) returns void",
    "reset_task(task text) returns void",
    "run_now(job_id bigint) returns text",
    "change_job(job_id bigint, input jsonb default null, run_at timestamptz default null, priority int default null, group_name text default null, max_retries int default null, timeout interval default null) returns text",
    "record_again(job_id bigint, new_job_id bigint) returns void",
    "limit_queue_time(job_id bigint, time_limit interval default null) returns boolean",
    "requeue_dead_letter(id bigint, note text default null, fresh boolean default false) returns bigint",
    "acknowledge_dead_letter(id bigint, note text default null) returns boolean",
    "tick() returns table(step text, affected bigint)",
    "pause(reason text default null) returns void",
    "resume() returns void",
    "grant_access(role regrole, level text, tasks text[] default null, groups text[] default null) returns void",
    "revoke_access(role regrole) returns void",
    "runs_as_stored(job_id bigint, token uuid) returns boolean",
    "adopt(keep boolean default false) returns void",
    "believe_clock() returns boolean",
    "start_scheduler() returns text",
    "status() returns table(item text, value text, healthy boolean, hint text)",
    "check(history interval default '01:00:00'::interval) returns table(rule text, detail text)",
    "diagnose(patience interval default '00:05:00'::interval, role name default CURRENT_USER) returns table(cause text, severity text, detail text, fix text)",
    "metrics() returns table(name text, labels jsonb, value double precision)",
    "installed() returns void",
];

/// Columns that people and tools read.
const COLUMNS: [(&str, &str); 4] = [
    (
        "job",
        "job_id state attempt task input manifest group_name priority run_at scheduled_for queued_at started_at finished_at worker error output progress parent_job_id version rate rate_key cost",
    ),
    (
        "run",
        "job_id attempt state failure_kind task input manifest group_name worker scheduled_for queued_at started_at finished_at error detail output final parent_job_id steps version rate rate_key cost",
    ),
    (
        "lease",
        "job_id attempt token worker started_at lease_expires_at cancel_requested",
    ),
    (
        "dead_letter",
        "id job_id manifest task status reason attempts last_error created_at resolved_at resolution_note requeued_job_id",
    ),
];

/// A database that also has the objects of a shard.
async fn whole_session() -> (Database, Session) {
    let (database, s) = session().await;
    s.get("create extension trax_shard").await;
    (database, s)
}

/// Returns one column of a result as a set.
async fn set(s: &Session, sql: &str) -> BTreeSet<String> {
    s.get(sql).await.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_functions_are_those_of_the_contract() {
    let (_db, s) = session().await;
    let sql = r"select p.proname || '(' || regexp_replace(replace(replace(pg_get_function_arguments(p.oid),
            'integer', 'int'), 'timestamp with time zone', 'timestamptz'), '(NULL|''{}'')::(double precision|[a-z]+)(\[\])?', '\1', 'g')
            || ') returns ' || replace(replace(coalesce(pg_get_function_result(p.oid), 'nothing'),
            'integer', 'int'), 'timestamp with time zone', 'timestamptz')
        from pg_proc p
        where p.pronamespace = 'trax'::regnamespace";
    let lower = |line: String| {
        line.replace("DEFAULT NULL", "default null")
            .replace("DEFAULT", "default")
    };
    let lower = |line: String| {
        lower(line)
            .replace("TABLE", "table")
            .replace("SETOF", "setof")
    };
    let there: BTreeSet<String> = set(&s, sql).await.into_iter().map(lower).collect();
    let missing: Vec<&&str> = CONTRACT
        .iter()
        .filter(|line| !there.contains(**line))
        .collect();
    assert!(
        missing.is_empty(),
        "missing: {missing:#?}\nthere: {there:#?}"
    );
}

#[tokio::test]
async fn no_function_is_overloaded_and_all_types_are_built_in() {
    let (_db, s) = whole_session().await;
    let overloaded = "select proname from pg_proc where pronamespace = 'trax'::regnamespace group by proname having count(*) > 1";
    assert_eq!(s.get(overloaded).await, "");
    let foreign = "select p.proname, t.typname
                   from pg_proc p, unnest(coalesce(p.proallargtypes, p.proargtypes::oid[]) || p.prorettype) a (type)
                   join pg_type t on t.oid = a.type
                   where p.pronamespace = 'trax'::regnamespace and t.typnamespace <> 'pg_catalog'::regnamespace";
    assert_eq!(s.get(foreign).await, "");
}

#[tokio::test]
async fn tables_have_the_columns_that_people_and_tools_read() {
    let (_db, s) = session().await;
    for (table, columns) in COLUMNS {
        let sql = format!(
            "select attname from pg_attribute where attrelid = 'trax.{table}'::regclass and attnum > 0"
        );
        let there = set(&s, &sql).await;
        for column in columns.split(' ') {
            assert!(
                there.contains(column),
                "trax.{table} has no column {column}"
            );
        }
    }
}

#[tokio::test]
async fn the_columns_of_new_job_are_the_arguments_of_enqueue() {
    let (_db, s) = session().await;
    let arguments = "select string_agg(n || ' ' || t::regtype, ', ' order by o)
        from pg_proc p, unnest(proargnames, proargtypes::oid[]) with ordinality a (n, t, o)
        where p.oid = 'trax.enqueue'::regproc";
    let columns = "select string_agg(attname || ' ' || atttypid::regtype, ', ' order by attnum)
        from pg_attribute where attrelid = 'trax.new_job'::regclass and attnum > 0";
    assert_eq!(s.get(columns).await, s.get(arguments).await);
}

#[tokio::test]
async fn every_table_column_view_and_function_has_a_comment() {
    let (_db, s) = whole_session().await;
    let relations = "select c.relname, c.relkind from pg_class c
                     where c.relnamespace = 'trax'::regnamespace
                         and c.relkind in ('r', 'p', 'v', 'f')
                         and c.relname !~ '^run_[0-9]+$'
                         and obj_description(c.oid, 'pg_class') is null";
    assert_eq!(s.get(relations).await, "");
    let columns = "select c.relname, a.attname from pg_class c
                   join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                   where c.relnamespace = 'trax'::regnamespace
                       and c.relkind in ('r', 'p', 'v', 'f')
                       and not c.relispartition
                       and col_description(c.oid, a.attnum) is null";
    assert_eq!(s.get(columns).await, "");
    let functions = "select p.oid::regprocedure from pg_proc p
                     where p.pronamespace = 'trax'::regnamespace and obj_description(p.oid, 'pg_proc') is null";
    assert_eq!(s.get(functions).await, "");
}

#[tokio::test]
async fn every_table_and_sequence_is_in_the_dump() {
    let (_db, s) = whole_session().await;
    let sql = "select c.relname
               from pg_class c
               join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e'
               join pg_extension e on e.oid = d.refobjid and e.extname in ('trax', 'trax_shard')
               where c.relkind in ('r', 'p', 'S')
                   and not c.oid = any (e.extconfig)
               order by 1";
    assert_eq!(
        s.get(sql).await,
        "adoption\nbelieved_clock",
        "what tells a copy from the original does not travel, nor how far a clock is believed"
    );
    let filtered = "select extcondition from pg_extension, unnest(extcondition) c where extname in ('trax', 'trax_shard') and c <> ''";
    assert_eq!(s.get(filtered).await, "", "a dump takes all rows");
}

/// A check of trax that the library takes for a foreign one is evaluated for every row.
#[tokio::test]
async fn the_library_knows_every_check_of_the_tables_it_writes_directly() {
    let (_db, s) = session().await;
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../trax_pg/src/server/table/direct_write.rs"
    );
    let source = std::fs::read_to_string(path).expect("the list can be read");
    let checks = "select c.conname from pg_constraint c
                  where c.contype = 'c'
                      and c.conrelid in ('trax.work_queue'::regclass, 'trax.lease'::regclass, 'trax.run'::regclass)";
    let checks = s.get(checks).await;
    assert!(checks.lines().count() > 10, "{checks}");
    for check in checks.lines() {
        assert!(source.contains(&format!("c\"{check}\"")), "{check}");
    }
}

/// Without one, a publication of all tables makes every update and delete of the scheduler an
/// error.
#[tokio::test]
async fn every_table_has_an_identity_for_a_publication() {
    let (_db, s) = whole_session().await;
    s.get("select trax.make_run_partitions(now() + interval '20 days', 0)")
        .await;
    let without = "select c.oid::regclass from pg_class c
                   where c.relnamespace = 'trax'::regnamespace
                       and c.relkind in ('r', 'p')
                       and c.relreplident <> 'f'
                       and not (c.relreplident = 'd' and exists (
                           select from pg_index x where x.indrelid = c.oid and x.indisprimary))";
    assert_eq!(s.get(without).await, "");
}

#[tokio::test]
async fn there_is_a_partition_for_today_the_three_days_to_come_and_everything_else() {
    let (_db, s) = session().await;
    let days = "select string_agg((to_date(right(c.relname, 8), 'YYYYMMDD') - (now() at time zone 'UTC')::date)::text, ',' order by c.relname)
                from pg_inherits i join pg_class c on c.oid = i.inhrelid
                where i.inhparent = 'trax.run'::regclass and c.relname ~ '^run_[0-9]{8}$'";
    assert_eq!(s.get(days).await, "0,1,2,3");
    let bounds = "set timezone = 'Pacific/Apia';
                  select count(*) from pg_inherits i join pg_class c on c.oid = i.inhrelid
                  where i.inhparent = 'trax.run'::regclass
                      and c.relname = 'run_' || to_char(now() at time zone 'UTC', 'YYYYMMDD')
                      and pg_get_expr(c.relpartbound, c.oid) = format('FOR VALUES FROM (%L) TO (%L)',
                          (date_trunc('day', now() at time zone 'UTC') at time zone 'UTC')::text,
                          (date_trunc('day', now() at time zone 'UTC') at time zone 'UTC' + interval '24 h')::text)";
    assert_eq!(s.get(bounds).await, "1", "a day is a day of UTC");
    assert_eq!(
        s.get("select relname from pg_class where relname = 'run_default' and relispartition")
            .await,
        "run_default"
    );
}

#[tokio::test]
async fn daily_partitions_are_no_members_of_the_extension() {
    let (_db, s) = session().await;
    let sql = "select c.relname from pg_class c
               join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e'
               where c.relname ~ '^run_[0-9]{8}$'";
    assert_eq!(
        s.get(sql).await,
        "",
        "a member's rows are not dumped, and it cannot be dropped"
    );
}

#[tokio::test]
async fn partitions_made_later_are_like_those_made_by_the_install() {
    let (_db, s) = session().await;
    s.get("select trax.make_run_partitions(now() + interval '20 days', 0)")
        .await;
    let shapes = "select count(distinct (
                      (select string_agg(a.attname || format_type(a.atttypid, a.atttypmod) || a.attnotnull, ',' order by a.attname)
                       from pg_attribute a where a.attrelid = c.oid and a.attnum > 0),
                      (select string_agg(regexp_replace(pg_get_indexdef(x.indexrelid), '^.* USING', ''), ',' order by
                          regexp_replace(pg_get_indexdef(x.indexrelid), '^.* USING', ''))
                       from pg_index x where x.indrelid = c.oid),
                      (select string_agg(k.conname || pg_get_constraintdef(k.oid), ',' order by k.conname)
                       from pg_constraint k where k.conrelid = c.oid),
                      c.relowner))
                  from pg_class c where c.relispartition and c.relkind = 'r'";
    assert_eq!(s.get(shapes).await, "1");
    assert_eq!(
        s.get("select trax.make_run_partitions(now() + interval '20 days', 0)")
            .await,
        "0",
        "once"
    );
}

#[tokio::test]
async fn every_security_definer_has_a_fixed_search_path() {
    let (_db, s) = whole_session().await;
    let sql = "select p.proname from pg_proc p
               where p.pronamespace = 'trax'::regnamespace
                   and not coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false)";
    // These functions end their transaction, which neither SECURITY DEFINER nor a fixed search path
    // allows: the first reads no table, the others set both for each of their steps.
    assert_eq!(
        s.get(&format!("{sql} order by 1")).await,
        "await_job\nawait_jobs\nawait_token\nwait_for_work"
    );
    let not_definer = "select p.proname from pg_proc p
                       where p.pronamespace = 'trax'::regnamespace
                           and not p.prosecdef
                           and p.proname not in ('await_job', 'await_jobs', 'await_token', 'wait_for_work', 'shard_of',
                               -- They must know who calls, and then take their owner's rights.
                               'activate', 'apply', 'cancel', 'change_job', 'claim_next', 'complete_and_claim', 'enqueue', 'enqueue_graph', 'enqueue_many', 'enqueue_sql', 'fork', 'get_jobs',
                               'limit_queue_time', 'open_batch', 'read_graph', 'read_needs', 'read_steps', 'record_step', 'run_now', 'schedule', 'seal_batch', 'send_signal', 'spawn', 'trigger', 'waiting_tasks')
                           and obj_description(p.oid, 'pg_proc') not like 'Internal.%'";
    assert_eq!(s.get(not_definer).await, "");
}

#[tokio::test]
async fn the_hot_path_has_no_foreign_keys_and_no_row_triggers() {
    let (_db, s) = whole_session().await;
    let sql = "select (select count(*) from pg_trigger t join pg_class c on c.oid = t.tgrelid where c.relnamespace = 'trax'::regnamespace and t.tgtype & 1 = 1
                       -- For statements by hand that move a deadline to an earlier time.
                       and t.tgname <> 'lease_deadline_moved_manually'),
                   (select count(*) from pg_constraint k where k.connamespace = 'trax'::regnamespace and k.contype = 'f'),
                   (select count(*) from pg_rewrite r join pg_class c on c.oid = r.ev_class
                    where c.relnamespace = 'trax'::regnamespace and c.relkind <> 'v')";
    assert_eq!(s.get(sql).await, "0|0|0");
}

#[tokio::test]
async fn no_index_knows_what_a_heartbeat_changes() {
    let (_db, s) = session().await;
    let sql = "select x.indexrelid::regclass from pg_index x
               where x.indrelid = 'trax.lease'::regclass and pg_get_indexdef(x.indexrelid) ~ 'lease_expires_at'";
    assert_eq!(s.get(sql).await, "");
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    let heartbeat = format!(
        "select held from trax.heartbeat(array[{}], array['{}'::uuid], '1 h')",
        job.id, job.token
    );
    let updates = "select n_tup_upd > 0, n_tup_upd = n_tup_hot_upd from pg_stat_xact_user_tables
                   where relid = 'trax.lease'::regclass";
    let seen = s
        .get(&format!("begin; {heartbeat}; {updates}; commit"))
        .await;
    assert_eq!(seen, "t\nt|t", "a heartbeat is a HOT update");
}

#[tokio::test]
async fn the_claim_index_has_the_order_of_the_claim() {
    let (_db, s) = session().await;
    let index = s
        .get("select pg_get_indexdef('trax.work_queue_ready'::regclass)")
        .await;
    assert!(
        index.ends_with("(lane_id, priority DESC, job_id) WHERE (waits_for IS NULL)"),
        "{index}"
    );
}

#[tokio::test]
async fn dropping_the_extension_leaves_nothing_and_it_can_be_made_again() {
    let (_db, s) = session().await;
    s.get("select trax.make_run_partitions(now() + interval '30 days', 1); select trax.enqueue('a'); drop extension trax cascade").await;
    let left = "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'trax'";
    assert_eq!(s.get(left).await, "0");
    s.get("create extension trax").await;
    let fresh = Session::of(&_db).await;
    fresh.enqueue("'a'").await;
    assert_eq!(fresh.claim("").await.len(), 1);
    fresh.assert_healthy().await;
}

#[tokio::test]
async fn a_session_that_used_the_old_extension_works_with_the_new_one() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.complete({}); select * from trax.tick(); drop extension trax cascade; create extension trax", job.key())).await;
    s.get("select trax.schedule('m', 'a', every => '1 h')")
        .await;
    assert_eq!(s.tick("queue_due").await, 1);
    let job = s.claim_one("").await;
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "t"
    );
    s.assert_healthy().await;
}
