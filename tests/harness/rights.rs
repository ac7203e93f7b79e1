//! Default privileges, and the rights of a role.

use crate::session::Session;

/// Sets default privileges: all rights on new objects of these kinds for a role and for PUBLIC.
pub async fn default_privileges_for(s: &Session, role: &str, kinds: &[&str]) {
    for kind in kinds {
        let defaults = format!("alter default privileges grant all on {kind} to {role}, public");
        s.get(&defaults).await;
    }
}

/// Returns the rights of a role and of PUBLIC on a schema and its objects, as names and privileges.
pub async fn rights(s: &Session, role: &str, schema: &str) -> String {
    s.get(&format!(
        "select coalesce(string_agg(distinct o.name || ' ' || a.privilege_type, ', '), '')
         from (
             select n.nspname::text as name, n.nspowner as owner, n.nspacl as acl, n.oid as namespace
             from pg_namespace n
             union all
             select c.relname, c.relowner, c.relacl, c.relnamespace from pg_class c
             union all
             select p.proname, p.proowner, coalesce(p.proacl, acldefault('f', p.proowner)), p.pronamespace
             from pg_proc p
         ) o
         cross join aclexplode(o.acl) a
         where o.namespace = '{schema}'::regnamespace
             and a.grantee in (0, '{role}'::regrole)"
    ))
    .await
}
