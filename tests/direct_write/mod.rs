//! Additions of administrators to the tables of every job are respected, although their rows are
//! written directly.

mod by_statement;

use harness::session::{Session, session};
use trax_client::testkit::Database;

/// The partition of today, as the server would route a row.
async fn today(s: &Session) -> String {
    s.get("select p.name from trax.run_partitions() p where p.period @> clock_timestamp()")
        .await
}

async fn how(s: &Session) -> String {
    s.get("select value from trax.status() where item = 'rows of the hot tables'")
        .await
}

/// Enqueues, claims and completes jobs, and fails one with a retry and one for good.
async fn lives(s: &Session) {
    s.get(
        "select trax.enqueue_many('a', array_fill('{}'::jsonb, array[10]), max_retries => 1);
         select trax.complete_many(array_agg(job_id), array_agg(token)) from trax.claim_next(max_jobs => 4);
         select trax.complete(c.job_id, c.token)
         from trax.claim_next() c
         cross join lateral trax.heartbeat(array[c.job_id], array[c.token], '2 h');
         select from trax.claim_next() c, trax.heartbeat(array[c.job_id], array[c.token], '3 h');
         select trax.fail(job_id, token, 'no', retry_in => '0 s') from trax.claim_next();
         select trax.fail(job_id, token, 'no', permanent => true) from trax.claim_next();
         select trax.release(job_id, token) from trax.claim_next()",
    )
    .await;
}

#[tokio::test]
async fn tables_as_the_extension_makes_them_are_written_directly() {
    let (_db, s) = session().await;
    assert_eq!(how(&s).await, "written directly");
    s.get("alter table trax.lease add note int").await;
    assert_eq!(
        how(&s).await,
        "written by statements: trax.lease (column \"note\")"
    );
    s.get("alter table trax.lease drop note").await;
    assert_eq!(how(&s).await, "written directly");
}

/// As in pg_repack: a copy, a log filled by row triggers, and the log applied to the copy.
#[tokio::test]
async fn a_copy_that_row_triggers_keep_up_has_every_row() {
    let (db, s) = session().await;
    lives(&s).await;
    // A session that has written directly notices the trigger.
    let worker = Session::of(&db).await;
    lives(&worker).await;
    let run = s
        .get("select 'run_' || to_char(clock_timestamp() at time zone 'UTC', 'YYYYMMDD')")
        .await;
    for (table, key) in [
        ("work_queue", "job_id"),
        ("lease", "job_id"),
        (run.as_str(), "(job_id, attempt, final)"),
    ] {
        s.get(&format!(
            "create table public.log_{table} (id bigint generated always as identity, gone trax.{table}, came trax.{table});
             create function public.note_{table}() returns trigger language plpgsql as $$
             begin
                 insert into public.log_{table} (gone, came) values (old, new);
                 return null;
             end $$;
             begin;
             create trigger repack_trigger after insert or delete or update on trax.{table}
                 for each row execute function public.note_{table}();
             create table public.copy_{table} as table trax.{table};
             commit"
        ))
        .await;
        lives(&worker).await;
        lives(&s).await;
        let differs = s
            .get(&format!(
                "do $$
                 declare l public.log_{table};
                 begin
                     for l in select * from public.log_{table} order by id loop
                         if not l.gone is null then
                             delete from public.copy_{table} c where (c).{key} is not distinct from (l.gone).{key};
                         end if;
                         if not l.came is null then
                             insert into public.copy_{table} select (l.came).*;
                         end if;
                     end loop;
                 end $$;
                 select 'missing', count(*) from (table trax.{table} except all table public.copy_{table}) x
                 having count(*) > 0
                 union all
                 select 'too many', count(*) from (table public.copy_{table} except all table trax.{table}) x
                 having count(*) > 0"
            ).replace("(c).(job_id, attempt, final)", "(c.job_id, c.attempt, c.final)")
             .replace("(l.gone).(job_id, attempt, final)", "((l.gone).job_id, (l.gone).attempt, (l.gone).final)")
             .replace("(c).job_id", "c.job_id"))
            .await;
        assert_eq!(differs, "", "{table}");
        assert!(how(&s).await.contains("trigger \"repack_trigger\""));
        s.get(&format!("drop trigger repack_trigger on trax.{table}"))
            .await;
    }
    assert_eq!(how(&s).await, "written directly");
    s.assert_healthy().await;
}

#[tokio::test]
async fn what_is_added_to_a_table_counts_for_every_row() {
    let (_db, s) = session().await;
    let run = today(&s).await;
    for (add, remove, refused) in [
        (
            "alter table trax.run add constraint small check (length(coalesce(output::text, '')) < 30)".to_owned(),
            "alter table trax.run drop constraint small".to_owned(),
            "23514",
        ),
        (
            format!("alter table {run} alter detail set not null"),
            format!("alter table {run} alter detail drop not null"),
            "23502",
        ),
        (
            format!("create unique index once on {run} ((output ->> 'n'))"),
            "drop index trax.once".to_owned(),
            "23505",
        ),
        (
            format!("create rule never as on insert to {run} do instead nothing; create rule never as on insert to trax.run do instead nothing"),
            format!("drop rule never on {run}; drop rule never on trax.run"),
            "55000",
        ),
        (
            "create function public.no() returns trigger language plpgsql as 'begin return null; end';
             create trigger no before insert on trax.run for each row execute function public.no()".to_owned(),
            "drop function public.no() cascade".to_owned(),
            "55000",
        ),
    ] {
        s.enqueue("'a'").await;
        s.enqueue("'a'").await;
        let jobs = s.claim("max_jobs => 2").await;
        s.get(&add).await;
        let complete = |n: usize| {
            format!(
                "select trax.complete({}, '{{\"n\": \"a text that is longer than allowed\"}}')",
                jobs[n].key()
            )
        };
        if refused == "23505" {
            s.get(&complete(1)).await;
        }
        let refusal = s.refusal(&complete(0)).await;
        assert_eq!(refusal.code, refused, "{add}: {refusal}");
        s.get(&remove).await;
        assert_eq!(s.get(&complete(0)).await, "t");
        if refused != "23505" {
            assert_eq!(s.get(&complete(1)).await, "t");
        }
        s.get("delete from trax.run").await;
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn added_columns_have_their_defaults() {
    let (_db, s) = session().await;
    s.get(
        "alter table trax.work_queue add seen timestamptz not null default now(),
             add twice bigint generated always as (job_id * 2) stored;
         alter table trax.lease add seen timestamptz not null default now();
         alter table trax.run add seen timestamptz not null default now()",
    )
    .await;
    lives(&s).await;
    assert_eq!(
        s.get(
            "select (select bool_and(twice = 2 * job_id and seen <= now()) from trax.work_queue),
                (select count(seen) from trax.run)"
        )
        .await,
        "t|7"
    );
    assert_eq!(s.claim("max_jobs => 100").await.len(), 3);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_claim_skips_what_another_one_has_where_statements_delete() {
    let (db, s) = session().await;
    s.get("alter table trax.work_queue add note int; alter table trax.lease add note int")
        .await;
    s.get("select trax.enqueue_many('a', array_fill('{}'::jsonb, array[4]))")
        .await;
    let other = Session::of(&db).await;
    other.get("begin").await;
    let first = other.claim_ids("max_jobs => 2").await;
    let second = s.claim_ids("max_jobs => 10").await;
    other.get("commit").await;
    assert_eq!((first.len(), second.len()), (2, 2));
    assert!(first.iter().all(|id| !second.contains(id)));
    s.assert_healthy().await;
}

/// The partitions that hold runs.
const PLACES: &str = "select distinct tableoid::regclass from trax.run order by 1";

async fn completes(s: &Session) {
    s.enqueue("'a'").await;
    let job = s.claim_one("").await.key();
    assert_eq!(s.get(&format!("select trax.complete({job})")).await, "t");
}

async fn without_partitions() -> (Database, Session) {
    let (db, s) = session().await;
    s.get("select trax.drop_run_partitions(now() + interval '9 days')")
        .await;
    (db, s)
}

#[tokio::test]
async fn a_run_goes_where_the_server_would_put_it() {
    let (_db, s) = without_partitions().await;
    let name = s
        .get("select 'trax.run_' || to_char(clock_timestamp() at time zone 'UTC', 'YYYYMMDD')")
        .await;
    // The name of the current day with the range of another.
    s.get(&format!(
        "create table {name} partition of trax.run for values from ('2020-01-01') to ('2020-02-01')"
    ))
    .await;
    completes(&s).await;
    assert_eq!(s.get(PLACES).await, "trax.run_default");
    s.get(&format!(
        "delete from trax.run; drop table {name};
         create table trax.month partition of trax.run for values from (minvalue) to (now() + interval '15 days')"
    ))
    .await;
    completes(&s).await;
    assert_eq!(s.get(PLACES).await, "trax.month");
    s.get("delete from trax.run; alter table trax.month rename to renamed")
        .await;
    completes(&s).await;
    assert_eq!(s.get(PLACES).await, "trax.renamed");
    s.get("delete from trax.run; alter table trax.run detach partition trax.renamed")
        .await;
    completes(&s).await;
    assert_eq!(s.get(PLACES).await, "trax.run_default");
    s.get(
        "delete from trax.run; drop table trax.renamed;
         create table trax.years partition of trax.run for values from ('2020-01-01') to (maxvalue) partition by range (finished_at);
         create table trax.year partition of trax.years for values from ('2020-01-01') to ('2099-01-01')",
    )
    .await;
    completes(&s).await;
    assert_eq!(s.get(PLACES).await, "trax.year");
    // The same columns in another order.
    s.get(
        "drop table trax.years; delete from trax.run;
         do $$ begin
             execute (select 'create table trax.other (' || string_agg(format('%I %s', attname, format_type(atttypid, atttypmod))
                     || case when attcollation = (select oid from pg_collation where collname = 'C' and collnamespace = 'pg_catalog'::regnamespace) then ' collate \"C\"' else '' end
                     || case when attnotnull then ' not null' else '' end, ', ' order by attnum desc) || ')'
                 from pg_attribute where attrelid = 'trax.run'::regclass and attnum > 0);
         end $$;
         alter table trax.other add constraint run_state_known check (state in ('completed', 'failed', 'cancelled')),
             add constraint run_failure_kind_known check (failure_kind in ('error', 'lease_expired', 'timeout', 'expired')),
             add constraint run_failure_kind_only_when_failed check ((state = 'failed') = (failure_kind is not null)),
             add constraint run_only_failures_are_retried check (final or state = 'failed'),
             add constraint run_attempt_not_negative check (attempt >= 0);
         alter table trax.run attach partition trax.other for values from ('2020-01-01') to ('2099-01-01')",
    )
    .await;
    completes(&s).await;
    assert_eq!(s.get(PLACES).await, "trax.other");
    s.assert_healthy().await;
}

const COVERED: &str = "select count(*) from generate_series(0, 3) n
    where exists (
        select from trax.run_partitions() p
        where p.period @> date_trunc('day', clock_timestamp(), 'UTC') + n * interval '1 day' + interval '12 h'
    )";

#[tokio::test]
async fn a_day_gets_a_partition_beside_those_of_others_and_whatever_has_its_name() {
    let (_db, s) = without_partitions().await;
    let (today, tomorrow, name) = (
        "date_trunc('day', clock_timestamp(), 'UTC')",
        "date_trunc('day', clock_timestamp(), 'UTC') + interval '1 day'",
        "select 'run_' || to_char(clock_timestamp() at time zone 'UTC', 'YYYYMMDD')",
    );
    let name = s.get(name).await;
    s.get(&format!(
        "create table trax.{name} (detached text);
         do $$ begin execute format(
             'create table trax.half partition of trax.run for values from (%L) to (%L)',
             {tomorrow} - interval '2 h', {tomorrow} + interval '3 h'); end $$;
         select trax.make_run_partitions({today}, 3)"
    ))
    .await;
    assert_eq!(s.get(COVERED).await, "4");
    let gaps = format!(
        "select tstzmultirange(tstzrange({today}, {today} + interval '4 days')) - range_agg(p.period) from trax.run_partitions() p"
    );
    assert_eq!(s.get(&gaps).await, "{}");
    completes(&s).await;
    assert_ne!(s.get(PLACES).await, "trax.run_default");
    assert_eq!(
        s.get(&format!("select trax.make_run_partitions({today}, 3)"))
            .await,
        "0"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn rows_of_the_default_partition_move_into_the_partition_of_their_day() {
    let (db, s) = without_partitions().await;
    completes(&s).await;
    completes(&s).await;
    assert_eq!(s.get(PLACES).await, "trax.run_default");
    let before = s.get("select r::text from trax.run r order by 1").await;
    Session::of(&db).await.get("select trax.tick()").await;
    assert_eq!(s.get(COVERED).await, "4");
    assert_ne!(s.get(PLACES).await, "trax.run_default");
    assert_eq!(
        s.get("select r::text from trax.run r order by 1").await,
        before
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn partitions_are_made_where_history_is_configured_to_be() {
    let (_db, s) = without_partitions().await;
    let space = harness::scheduler::new_name("space");
    s.get("set allow_in_place_tablespaces = on").await;
    s.get(&format!("create tablespace {space} location ''"))
        .await;
    s.get(&format!("alter table trax.run set tablespace {space}"))
        .await;
    s.get("select trax.make_run_partitions(now(), 0)").await;
    let place = "select t.spcname from pg_class c join pg_tablespace t on t.oid = c.reltablespace
        where c.relname ~ '^run_[0-9]{8}$' and c.relnamespace = 'trax'::regnamespace";
    assert_eq!(s.get(place).await, space);
    completes(&s).await;
    assert_ne!(s.get(PLACES).await, "trax.run_default");
    s.get("drop extension trax cascade").await;
    s.get(&format!("drop tablespace {space}")).await;
}
