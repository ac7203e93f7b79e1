//! Code of other roles attached to trax tables. Such code would run as the owner of the extension,
//! a superuser, and is never executed.

use harness::session::{Session, session};
use harness::shared_server;
use trax_client::testkit::Database;

/// A role that may create functions in its own schema, and a session of that role.
async fn mallory(db: &Database, s: &Session) -> (String, Session) {
    let role = format!("{}_mallory", db.name());
    s.get(&format!(
        "create role {role} login; create schema shop authorization {role}; grant usage on schema shop to public;
         select trax.grant_access('{role}', 'producer')"
    ))
    .await;
    let them = Session::as_role(db, &role).await;
    them.get(&format!(
        "create function shop.rise() returns trigger language plpgsql as $$
            begin execute 'alter role {role} superuser'; return new; end $$;
         create function shop.yes(text) returns boolean language sql immutable as 'select true';
         create function shop.one(int) returns int language sql immutable as 'select 1';
         create function shop.like(text, text) returns boolean language sql immutable as 'select true';
         create operator shop.@@ (function = shop.like, leftarg = text, rightarg = text);
         create domain shop.kind as text; create type shop.pair as (a int)"
    ))
    .await;
    (role, them)
}

async fn assert_refused(s: &Session, why: &str) {
    for call in [
        "select trax.enqueue('a')",
        "select * from trax.claim_next()",
        "select * from trax.tick()",
        "select trax.schedule('m', 'a')",
        "select trax.grant_access('pg_monitor', 'reader')",
    ] {
        let refusal = s.refusal(call).await;
        assert_eq!(refusal.code, "55000", "{why}: {call}: {refusal}");
        assert!(
            refusal.message.contains("_mallory\"") && refusal.detail.contains("shop."),
            "{why}: {call}: {refusal}"
        );
        assert!(refusal.hint.contains("trax.diagnose()"), "{refusal}");
    }
}

async fn is_superuser(s: &Session, role: &str) -> String {
    s.get(&format!(
        "select rolsuper from pg_roles where rolname = '{role}'"
    ))
    .await
}

/// Critical causes that are due to other roles, each with its fix.
async fn told(s: &Session) -> String {
    s.get(
        "select cause, fix from trax.diagnose()
         where severity = 'critical' and cause in ('code_of_others', 'trigger_right') order by 1, 2",
    )
    .await
}

#[tokio::test]
async fn the_right_to_create_triggers_is_no_way_to_a_superuser() {
    let (db, s) = session().await;
    let (role, them) = mallory(&db, &s).await;
    let victim = Session::of(&db).await;
    for (table, event) in [
        ("work_queue", "insert"),
        ("manifest_state", "update"),
        ("dead_letter", "insert"),
        ("worker", "insert or update"),
        ("access_scope", "delete"),
        ("new_job", "insert"),
    ] {
        victim.get("select trax.enqueue('a'); select * from trax.tick(); select * from trax.claim_next()").await;
        s.get(&format!("grant trigger on trax.{table} to {role}"))
            .await;
        let right = format!("trigger_right|revoke trigger on table trax.{table} from {role}");
        assert_eq!(told(&s).await, right);
        them.get(&format!(
            "create trigger rise before {event} on trax.{table} for each statement execute function shop.rise()"
        ))
        .await;
        assert_refused(&victim, table).await;
        assert_eq!(them.refusal("select trax.enqueue('a')").await.code, "55000");
        assert_eq!(
            told(&s).await,
            format!(
                "code_of_others|Drop it, or, if you trust what it does: alter function shop.rise() owner to postgres\n{right}"
            )
        );
        let rule = format!(
            "drop trigger rise on trax.{table}; revoke trigger on table trax.{table} from {role}"
        );
        s.get(&rule).await;
        assert_eq!(told(&s).await, "");
    }
    victim.get("select trax.enqueue('a')").await;
    assert_eq!(is_superuser(&s, &role).await, "f");
    s.assert_healthy().await;
}

#[tokio::test]
async fn functions_of_others_are_seen_wherever_a_table_calls_them() {
    let (db, s) = session().await;
    let (role, _) = mallory(&db, &s).await;
    let victim = Session::of(&db).await;
    for (add, take_away) in [
        (
            "alter table trax.work_queue add constraint c check (shop.yes(task))",
            "alter table trax.work_queue drop constraint c",
        ),
        (
            "alter table trax.dead_letter add added int default shop.one(1)",
            "alter table trax.dead_letter drop added",
        ),
        (
            "alter table trax.manifest add added int generated always as (shop.one(priority)) stored",
            "alter table trax.manifest drop added",
        ),
        (
            "create index i on trax.lease (shop.one(attempt))",
            "drop index trax.i",
        ),
        (
            "create index i on trax.progress (job_id) where shop.one(job_id::int) = 1",
            "drop index trax.i",
        ),
        (
            "create rule r as on insert to trax.unique_key do also select shop.one(1)",
            "drop rule r on trax.unique_key",
        ),
        (
            "create policy p on trax.worker using (shop.yes(name))",
            "drop policy p on trax.worker",
        ),
        (
            "alter table trax.manifest_group add constraint c check (name operator(shop.@@) 'g')",
            "alter table trax.manifest_group drop constraint c",
        ),
        (
            "alter table trax.worker add added shop.kind",
            "alter table trax.worker drop added",
        ),
        (
            "create domain public.kind as shop.kind; alter table trax.run add added public.kind",
            "drop domain public.kind cascade",
        ),
        (
            "create domain public.kind as text constraint c check (shop.yes(value)); alter table trax.dead_letter add added public.kind",
            "drop domain public.kind cascade",
        ),
        (
            "create domain public.kind as int default shop.one(1); alter table trax.lease add added public.kind",
            "drop domain public.kind cascade",
        ),
        // In an expression, whatever the type of the column.
        (
            "alter table trax.work_queue add constraint c check (task::shop.kind is not null)",
            "alter table trax.work_queue drop constraint c",
        ),
        (
            "create index i on trax.lease ((worker::shop.kind::text))",
            "drop index trax.i",
        ),
        (
            "alter table trax.run add added text default 'a'::shop.kind",
            "alter table trax.run drop added",
        ),
        (
            "create rule r as on insert to trax.unique_key do also select 'a'::shop.kind",
            "drop rule r on trax.unique_key",
        ),
        (
            "create policy p on trax.worker using (name::shop.kind = 'a')",
            "drop policy p on trax.worker",
        ),
        (
            "create trigger t before insert on trax.dead_letter for each row when (new.task::shop.kind is null)
                 execute function suppress_redundant_updates_trigger()",
            "drop trigger t on trax.dead_letter",
        ),
        // In another type.
        (
            "alter table trax.worker add added shop.kind[]",
            "alter table trax.worker drop added",
        ),
        (
            "create type public.pair as (a int, b shop.kind[]);
             alter table trax.worker add added public.pair",
            "alter table trax.worker drop added; drop type public.pair",
        ),
        // The type's owner may add a domain to it.
        (
            "alter table trax.worker add added text default (null::shop.pair)::text",
            "alter table trax.worker drop added",
        ),
        (
            "create type public.span as range (subtype = shop.kind);
             alter table trax.lease add added public.span",
            "drop type public.span cascade",
        ),
        (
            "create trigger t before insert on trax.new_job for each row execute function shop.rise()",
            "drop trigger t on trax.new_job",
        ),
        (
            "create table public.old partition of trax.run for values from ('2020-01-01') to ('2020-01-02');
             alter table public.old add check (shop.yes(task))",
            "drop table public.old",
        ),
    ] {
        victim.get("select trax.enqueue('a'); select * from trax.claim_next()").await;
        s.get(add).await;
        assert_refused(&victim, add).await;
        assert!(told(&s).await.starts_with("code_of_others|"), "{add}");
        s.get(take_away).await;
        assert_eq!(told(&s).await, "", "{add}");
    }
    // A superuser's function is trusted while he owns it.
    s.get(
        "alter function shop.yes(text) owner to postgres;
         alter table trax.work_queue add constraint c check (shop.yes(task))",
    )
    .await;
    victim.get("select trax.enqueue('a')").await;
    s.get(&format!("alter function shop.yes(text) owner to {role}"))
        .await;
    assert_refused(&victim, "an owner that changed").await;
    s.get(&format!("alter role {role} superuser")).await;
    victim.get("select trax.enqueue('a')").await;
    s.get(&format!("alter role {role} nosuperuser")).await;
    assert_refused(&victim, "a role that changed").await;
    s.get("alter table trax.work_queue drop constraint c").await;
    // A superuser's domain is trusted while its constraints are.
    s.get(
        "create domain public.kind as text;
         alter table trax.work_queue add constraint c check (task::public.kind is not null)",
    )
    .await;
    victim.get("select trax.enqueue('a')").await;
    s.get("alter domain public.kind add constraint d check (shop.yes(value))")
        .await;
    assert_refused(&victim, "a domain with a new constraint").await;
    s.get("alter domain public.kind drop constraint d").await;
    victim.get("select trax.enqueue('a')").await;
    s.get("alter domain public.kind add constraint d check (shop.yes(value))")
        .await;
    assert_refused(&victim, "a domain with a constraint again").await;
    s.get("drop domain public.kind cascade").await;
    s.assert_healthy().await;
}

/// A check made before waiting for the table lock would miss the trigger.
#[tokio::test]
async fn a_trigger_that_comes_while_a_statement_waits_for_its_table_does_not_run() {
    let (db, s) = session().await;
    let (role, them) = mallory(&db, &s).await;
    s.get("select trax.schedule('due', 'a', every => '1 h')")
        .await;
    for (table, call) in [
        ("work_queue", "select trax.enqueue('a')"),
        ("manifest", "select trax.schedule('m', 'a', priority => 1)"),
        ("manifest_state", "select * from trax.tick()"),
        (
            "unique_key",
            "select trax.enqueue('a', unique_key => clock_timestamp()::text)",
        ),
        (
            "access_scope",
            "select trax.grant_access('pg_monitor', 'producer', tasks => '{a}')",
        ),
    ] {
        let victim = Session::of(&db).await;
        victim
            .get("select trax.enqueue('a'); select trax.schedule('m', 'a')")
            .await;
        s.get(&format!(
            "update trax.manifest_state set next_run_at = now(), next_scheduled_for = now();
             grant trigger on trax.{table} to {role}"
        ))
        .await;
        them.get(&format!(
            "begin;
             create trigger rise before insert or update or delete on trax.{table} for each statement execute function shop.rise()"
        ))
        .await;
        let pid = victim.pid();
        let waiting = victim.spawn(call);
        s.sees_waiting(pid).await;
        them.get("commit").await;
        let (_victim, outcome) = waiting.await.expect("the call ends");
        assert_eq!(is_superuser(&s, &role).await, "f", "{table}");
        match outcome {
            Err(refusal) if refusal.code == "55000" => {}
            other => panic!("{table}: {other:?}"),
        }
        s.get(&format!(
            "drop trigger rise on trax.{table}; revoke trigger on trax.{table} from {role}"
        ))
        .await;
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cleanup_that_meets_code_of_others_stops_without_a_word_for_each_step() {
    let (db, s) = session().await;
    let (role, them) = mallory(&db, &s).await;
    s.get(&format!("grant trigger on trax.worker to {role}"))
        .await;
    let victim = Session::of(&db).await;
    them.get(
        "begin;
         create trigger rise before insert or update or delete on trax.worker for each statement execute function shop.rise()",
    )
    .await;
    let pid = victim.pid();
    let waiting = victim.spawn("select count(*) from trax.tick()");
    s.sees_waiting(pid).await;
    them.get("commit").await;
    let (victim, outcome) = waiting.await.expect("the call ends");
    outcome.expect("what the cycle did before stands");
    assert_eq!(is_superuser(&s, &role).await, "f");
    assert_eq!(s.get("select count(*) from trax.failed_step").await, "0");
    let log = std::fs::read_to_string(shared_server().log_file()).expect("the log can be read");
    let said: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("a step of the cycle failed") && line.contains(&role))
        .collect();
    assert!(said.is_empty(), "{said:#?}");
    let refusal = victim.attempt("select * from trax.tick()").await;
    assert_eq!(refusal.expect_err("the next one is refused").code, "55000");
}

/// A superuser created the event trigger, with a function of another role.
#[tokio::test]
async fn an_event_trigger_of_others_costs_partitions_and_grants_and_no_job() {
    let (db, s) = session().await;
    let (role, them) = mallory(&db, &s).await;
    them.get(&format!(
        "create function shop.watch() returns event_trigger language plpgsql as $$
            begin execute 'alter role {role} superuser'; end $$"
    ))
    .await;
    let newest = "select max(relname) from pg_class where relname ~ '^run_[0-9]{8}$'";
    let newest = s.get(newest).await;
    let is_there = format!("select to_regclass('trax.{newest}') is not null");
    s.get(&format!(
        "drop table trax.{newest}; create event trigger watch on ddl_command_end execute function shop.watch()"
    ))
    .await;
    let victim = Session::of(&db).await;
    victim
        .get("select trax.enqueue('a'); select * from trax.tick()")
        .await;
    let job = victim.claim_one("").await;
    let complete = format!("select trax.complete({})", job.key());
    assert_eq!(victim.get(&complete).await, "t");
    assert_eq!(victim.get(&is_there).await, "f");
    let failing = "select value from trax.status() where item = 'cleanup steps that fail'";
    let failing = victim.get(failing).await;
    assert!(
        failing.starts_with("partitions of trax.run") && failing.contains("_mallory"),
        "{failing}"
    );
    let refusal = victim
        .refusal("select trax.grant_access('pg_monitor', 'reader')")
        .await;
    assert_eq!(refusal.code, "55000", "{refusal}");
    assert_eq!(
        told(&s).await,
        "code_of_others|Drop it, or, if you trust what it does: alter function shop.watch() owner to postgres"
    );
    assert_eq!(is_superuser(&s, &role).await, "f");
    // Neither an event trigger for another command nor one owned by a superuser is reported.
    s.get(
        "drop event trigger watch;
         create event trigger watch on ddl_command_end when tag in ('CREATE FUNCTION') execute function shop.watch()",
    )
    .await;
    assert_eq!(told(&s).await, "");
    s.get("drop event trigger watch").await;
    let victim = Session::of(&db).await;
    victim.get("select * from trax.tick()").await;
    assert_eq!(victim.get(&is_there).await, "t");
    s.assert_healthy().await;
}
