//! Rights after an upgrade.

use super::{assert_equal, catalog, old_session};
use harness::session::Session;
use harness::shared_server;

/// Creates roles with the rights of a fresh database and of a database of 0.1.0.
async fn grant(s: &Session, name: &str) {
    for level in ["reader", "producer", "worker", "admin"] {
        s.get(&format!(
            "select trax.grant_access('{name}_{level}', '{level}')"
        ))
        .await;
    }
}

#[tokio::test]
async fn an_upgrade_leaves_each_role_the_rights_of_its_level_and_nobody_others() {
    let name = "test_upgraded_rights";
    let (_db, s) = old_session(name).await;
    for level in [
        "reader", "producer", "worker", "admin", "given", "hand", "both",
    ] {
        s.get(&format!("create role {name}_{level} login")).await;
    }
    grant(&s, name).await;
    s.get(&format!(
        "select trax.grant_access('{name}_both', 'worker');
         select trax.grant_access('{name}_both', 'producer');
         grant select on trax.run to {name}_hand, public;
         grant execute on function trax.complete_many(bigint[], uuid[], jsonb[]) to public;
         alter default privileges grant all on tables to {name}_given, public;
         alter default privileges grant all on sequences to {name}_given;
         alter default privileges grant execute on functions to {name}_given, public;
         alter extension trax update"
    ))
    .await;
    let db = shared_server()
        .plain_database(&format!("{name}_fresh"))
        .await;
    let fresh = Session::of(&db.expect("a database is made")).await;
    fresh.get("create extension trax").await;
    grant(&fresh, name).await;
    fresh
        .get(&format!(
            "select trax.grant_access('{name}_both', 'worker')"
        ))
        .await;
    assert_equal(&catalog(&s).await, &catalog(&fresh).await);
    // Revokes everything that would keep the roles from being dropped.
    s.get(&format!(
        "alter default privileges revoke all on tables from {name}_given, public;
         alter default privileges revoke all on sequences from {name}_given;
         alter default privileges revoke execute on functions from {name}_given;
         drop role {name}_given, {name}_hand"
    ))
    .await;
}

#[tokio::test]
async fn what_another_superuser_updates_belongs_to_the_owner() {
    let name = "test_upgraded_owner";
    let (db, s) = old_session(name).await;
    s.get(&format!("create role {name}_other login superuser"))
        .await;
    let other = Session::as_role(&db, &format!("{name}_other")).await;
    other.get("alter extension trax update").await;
    let owned = format!(
        "select count(*) from pg_shdepend d where d.deptype = 'o' and d.refobjid = '{name}_other'::regrole"
    );
    assert_eq!(s.get(&owned).await, "0");
    s.get(&format!("drop role {name}_other")).await;
}

#[tokio::test]
async fn a_schema_that_others_may_fill_is_refused_by_the_update_too() {
    let name = "test_upgraded_schema";
    let (_db, s) = old_session(name).await;
    s.get(&format!(
        "create role {name}_other login; grant create on schema trax to {name}_other"
    ))
    .await;
    let refusal = s.refusal("alter extension trax update").await;
    assert_eq!(refusal.code, "42501", "{refusal}");
    assert!(
        refusal.hint.contains("revoke create on schema trax"),
        "{refusal}"
    );
    s.get(&format!(
        "set role {name}_other;
         create function trax.lane_of(text, text) returns bigint language sql as 'select 1';
         reset role; revoke create on schema trax from {name}_other"
    ))
    .await;
    let refusal = s.refusal("alter extension trax update").await;
    assert_eq!(refusal.code, "42501", "{refusal}");
    assert!(
        refusal.detail.contains("trax.lane_of(text,text)"),
        "{refusal}"
    );
    s.get("drop function trax.lane_of(text, text); alter extension trax update")
        .await;
    s.assert_healthy().await;
}

/// A level is not given for one of its functions, and no right is lost silently.
#[tokio::test]
async fn an_upgrade_raises_no_role() {
    let name = "test_upgraded_parts";
    let (db, s) = old_session(name).await;
    for (role, rights) in [
        ("pauses", "execute on function trax.pause(text)"),
        (
            "completes",
            "execute on function trax.complete(bigint, uuid, jsonb)",
        ),
        ("looks", "execute on function trax.status()"),
        (
            "works",
            "execute on function trax.preview(text, timestamptz, int)",
        ),
        ("reads", "select on trax.run"),
    ] {
        s.get(&format!("create role {name}_{role}; grant usage on schema trax to {name}_{role}; grant {rights} to {name}_{role}"))
            .await;
    }
    for role in ["works", "reads"] {
        s.get(&format!(
            "select trax.grant_access('{name}_{role}', 'worker')"
        ))
        .await;
    }
    let mut psql = shared_server().command("psql");
    psql.args(["-XAtc", "alter extension trax update", db.name()]);
    let output = psql.output().expect("psql runs");
    let warned = String::from_utf8_lossy(&output.stderr);
    for (role, said) in [
        ("pauses", "had rights that no level has"),
        ("completes", "had rights that no level has"),
        ("looks", "had rights that no level has"),
        ("works", "had other rights than those of the level worker"),
        ("reads", "had other rights than those of the level worker"),
    ] {
        let said = format!("Role {name}_{role} {said}");
        assert!(warned.contains(&said), "{said}: {warned}");
    }
    for (role, functions) in [
        ("pauses", ""),
        ("completes", ""),
        ("looks", ""),
        ("works", "claim_next"),
        ("reads", "claim_next"),
    ] {
        let may = format!(
            "select string_agg(distinct p.proname, ' ') from pg_proc p where p.pronamespace = 'trax'::regnamespace
             and p.proname in ('claim_next', 'pause', 'grant_access', 'cancel', 'status')
             and has_function_privilege('{name}_{role}', p.oid, 'execute')"
        );
        assert_eq!(s.get(&may).await, functions, "{role}");
    }
    s.get(&format!(
        "drop owned by {name}_pauses, {name}_completes, {name}_looks, {name}_works, {name}_reads;
         drop role {name}_pauses, {name}_completes, {name}_looks, {name}_works, {name}_reads"
    ))
    .await;
}
