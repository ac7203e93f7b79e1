//! Code of others on our tables: it would run as the owner of the extension, a superuser, and never
//! does.

use harness::session::{Session, session};
use trax_client::testkit::Database;

/// A role that may make functions in a schema of its own, and a session as it.
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
         create operator shop.@@ (function = shop.like, leftarg = text, rightarg = text)"
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

/// Causes that are critical because of others, each with what to type.
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
    assert_eq!(
        s.get(&format!(
            "select rolsuper from pg_roles where rolname = '{role}'"
        ))
        .await,
        "f"
    );
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
    // A superuser's is trusted for as long as it is his.
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
    s.assert_healthy().await;
}
