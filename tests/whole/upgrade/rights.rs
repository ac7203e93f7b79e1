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
