//! Neither objects in a caller's session nor the contents of a job affect trax's statements.

use super::*;

/// Functions, operators and tables that shadow the names used by trax's statements. Each call
/// leaves a mark that no rollback removes.
const HOSTILE: &str = r#"
create schema evil;
create sequence evil.calls;
do $do$
declare
    kind text;
    operator text;
    header text;
begin
    foreach kind in array array['bigint', 'int', 'smallint', 'text', 'uuid', 'timestamptz', 'boolean', 'oid', 'name', 'interval', 'jsonb', 'date', 'tid']
    loop
        execute format('create function evil.trap(%1$s, %1$s) returns boolean language plpgsql as
            $f$ begin perform pg_catalog.nextval(''evil.calls''); raise exception ''hostile''; end $f$', kind);
        foreach operator in array array['=', '<>', '<', '<=', '>', '>=', '||', '~', '+', '-']
        loop
            execute format('create operator evil.%1$s (function = evil.trap, leftarg = %2$s, rightarg = %2$s)', operator, kind);
        end loop;
    end loop;
    foreach header in array array[
        'now() returns timestamptz', 'clock_timestamp() returns timestamptz', 'gen_random_uuid() returns uuid',
        'pg_backend_pid() returns int', 'unnest(anyarray) returns setof anyelement', 'count(bigint) returns bigint',
        'bool_or(boolean) returns boolean', 'bool_and(boolean) returns boolean', 'min(timestamptz) returns timestamptz',
        'max(int) returns int', 'timezone(text, timestamptz) returns timestamp', 'timezone(text, timestamp) returns timestamptz',
        'format(text, variadic text[]) returns text', 'to_char(date, text) returns text', 'current_setting(text) returns text',
        'current_setting(text, boolean) returns text', 'generate_series(int, int) returns setof int',
        'to_regclass(text) returns regclass', 'to_date(text, text) returns date', 'substr(text, int) returns text',
        'current_database() returns name', 'pg_is_in_recovery() returns boolean', 'octet_length(text) returns int',
        'date_trunc(text, timestamptz) returns timestamptz', 'quote_literal(text) returns text',
        'regexp_split_to_table(text, text) returns setof text', 'int8eq(bigint, bigint) returns boolean'
    ]
    loop
        execute 'create function evil.' || header || ' language plpgsql as
            $f$ begin perform pg_catalog.nextval(''evil.calls''); raise exception ''hostile''; end $f$';
    end loop;
end $do$;
"#;

/// Temporary tables take precedence unless a search path says otherwise.
const HOSTILE_TABLES: &str = "
create temp table work_queue (job_id text); create temp table lease (job_id text); create temp table run (job_id text);
create temp table manifest (name int); create temp table manifest_state (name int); create temp table lane (lane_id text);
create temp table manifest_group (name int); create temp table instance (a int); create temp table adoption (a int); create temp table unique_key (key int);
create temp table dead_letter (id text); create temp table pg_class (oid text); create temp table pg_proc (oid text);
create temp table pg_inherits (a text); create temp table pg_extension (a text); create temp table pg_database (a text);
create temp table pg_stat_activity (pid text);
set search_path = evil, pg_temp, pg_catalog, public";

/// Calls every function in the life of jobs; returns the results.
async fn whole_life(s: &Session, role: &str) -> Vec<String> {
    let mut seen = Vec::new();
    for sql in [
        "select trax.configure_group('g', priority => 3, enabled => true)",
        "select trax.schedule('m', 'm', every => '1 h', timezone => 'Europe/Berlin')",
        "select trax.schedule('c', 'c', cron => '0 2 * * *', timezone => 'Europe/Berlin')",
        "select trax.schedule('m', 'm', priority => 2)",
        "select trax.enqueue('a', unique_key => 'u')",
        "select trax.enqueue('a', unique_key => 'u')",
        "select * from trax.enqueue_many('b', array['1', '2', '3', '4']::jsonb[], group_name => 'g')",
        "select trax.enqueue('later', run_at => '2099-01-01')",
        "select trax.trigger('c')",
        "select * from trax.tick()",
        "select trax.cancel(1)",
        "select trax.disable_manifest('c')",
        "select trax.enable_manifest('c')",
        "select trax.unschedule('c')",
        "select trax.pause()",
        "select trax.resume()",
        "select trax.adopt()",
        "select * from trax.check()",
    ] {
        seen.push(s.get(sql).await);
    }
    seen.push(
        s.get(&format!("select trax.grant_access('{role}', 'admin')"))
            .await,
    );
    assert_ne!(s.get("select * from trax.status()").await, "");
    let jobs = s.claim("max_jobs => 5").await;
    assert_eq!(jobs.len(), 5);
    for (job, call) in jobs.iter().zip([
        "select trax.complete({})",
        "select trax.fail({}, 'no', permanent => true)",
        "select trax.fail({}, 'no', retry_in => '1 h')",
        "select trax.release({})",
        "select trax.acknowledge_cancel({})",
    ]) {
        let held = format!(
            "select held from trax.heartbeat(array[{}], array['{}'::pg_catalog.uuid])",
            job.id, job.token
        );
        seen.push(s.get(&held).await);
        seen.push(s.get(&call.replace("{}", &job.key())).await);
    }
    seen.push(s.get("select trax.requeue_dead_letter(1)").await);
    seen.push(s.get("select * from trax.tick()").await);
    seen.push(s.get("select * from trax.check()").await);
    seen
}

#[tokio::test]
async fn a_hostile_search_path_changes_nothing() {
    let (plain_db, plain) = session().await;
    let plain_role = role(&plain_db, &plain, &["admin"]).await;
    let expected = whole_life(&Session::as_role(&plain_db, &plain_role).await, &plain_role).await;

    for caller in ["admin", "postgres"] {
        let (db, s) = session().await;
        let admin = role(&db, &s, &["admin"]).await;
        s.get(HOSTILE).await;
        s.get(&format!("grant usage on schema evil to public; grant all on sequence evil.calls to public; grant temp on database {} to public", db.name())).await;
        let caller = if caller == "admin" { &admin } else { caller };
        let them = Session::as_role(&db, caller).await;
        them.get(HOSTILE_TABLES).await;
        let trapped = them.refusal("select 1::bigint = 1::bigint").await;
        assert_eq!(trapped.message, "hostile", "the trap works");
        s.get("alter sequence evil.calls restart").await;
        assert_eq!(whole_life(&them, &admin).await, expected, "{caller}");
        assert_eq!(
            s.get("select is_called from evil.calls").await,
            "f",
            "no trap was sprung"
        );
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn the_extension_can_be_made_under_a_hostile_search_path() {
    let name = "test_hostile_install";
    let db = harness::shared_server()
        .plain_database(name)
        .await
        .expect("a database is made");
    let s = Session::of(&db).await;
    s.get(HOSTILE).await;
    s.get("set search_path = evil, pg_catalog, public").await;
    s.get("create extension trax").await;
    let other = Session::of(&db).await;
    assert_eq!(
        other.get("select is_called from evil.calls").await,
        "f",
        "no trap was sprung"
    );
    other.enqueue("'a'").await;
    assert_eq!(other.claim("").await.len(), 1);
    other.assert_healthy().await;
}

#[tokio::test]
async fn nothing_from_a_job_becomes_sql() {
    let (_db, s) = session().await;
    let text = "'; drop schema trax cascade; --$$ \" \\ %s {} \u{1F600}";
    let quoted = literal(text);
    s.get(&format!(
        "select trax.schedule({quoted}, {quoted}, input => to_jsonb({quoted}::text), every => '1 h', group_name => {quoted});
         select trax.enqueue({quoted}, to_jsonb({quoted}::text), group_name => {quoted}, unique_key => {quoted}, concurrency_key => {quoted});
         select * from trax.tick();
         select trax.configure_group({quoted}, priority => 2)"
    ))
    .await;
    let jobs = s
        .claim(&format!(
            "max_jobs => 9, worker => {quoted}, tasks => array[{quoted}], groups => array[{quoted}]"
        ))
        .await;
    assert_eq!(jobs.len(), 2);
    for job in &jobs {
        s.get(&format!(
            "select trax.fail({}, {quoted}, to_jsonb({quoted}::text), permanent => true)",
            job.key()
        ))
        .await;
    }
    let kept = format!(
        "select count(*) from trax.run where task = {quoted} and error = {quoted} and worker = {quoted} and detail #>> '{{}}' = {quoted}"
    );
    assert_eq!(s.number(&kept).await, 2);
    s.get(&format!("select trax.requeue_dead_letter(id, {quoted}) from trax.dead_letter; select trax.unschedule({quoted}); select trax.pause({quoted})")).await;
    s.assert_healthy().await;
}
