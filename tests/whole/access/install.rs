//! Objects that exist before or beside the extension give no rights: default privileges, and a
//! schema that other roles may fill.

use harness::session::{Session, session};
use harness::shared_server;
use trax_client::testkit::Database;

/// The rights of a role in the schema, as `role: right on object`.
async fn rights(s: &Session, role: &str) -> String {
    s.get(&format!(
        "select string_agg(p.proname, ' ' order by p.proname)
         from pg_proc p
         where p.pronamespace = 'trax'::regnamespace and has_function_privilege('{role}', p.oid, 'execute')
         union all
         select string_agg(c.relname || ' ' || p.privilege, ', ' order by c.relname, p.privilege)
         from pg_class c, unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']) p (privilege)
         where c.relnamespace = 'trax'::regnamespace
             and c.relkind in ('r', 'p', 'v', 'f')
             and has_table_privilege('{role}', c.oid, p.privilege)
         union all
         select string_agg(c.relname || ' ' || p.privilege, ', ')
         from pg_class c, unnest(array['usage', 'select', 'update']) p (privilege)
         where c.relnamespace = 'trax'::regnamespace
             and c.relkind = 'S'
             and has_sequence_privilege('{role}', c.oid, p.privilege)"
    ))
    .await
}

/// A database without the extension, and a session in it.
async fn plain_session(name: &str) -> (Database, Session) {
    let db = shared_server()
        .plain_database(name)
        .await
        .expect("a database is made");
    let s = Session::of(&db).await;
    (db, s)
}

#[tokio::test]
async fn default_privileges_give_no_right_at_the_install_nor_later() {
    let name = "test_default_privileges";
    let (db, s) = plain_session(name).await;
    s.get(&format!(
        "create role {name}_app login; create role {name}_plain login;
         alter default privileges grant all on tables to {name}_app, public;
         alter default privileges grant all on sequences to {name}_app;
         alter default privileges grant execute on functions to {name}_app;
         create extension trax;
         select trax.grant_access('{name}_app', 'producer');
         select trax.grant_access('{name}_plain', 'producer');
         select trax.make_run_partitions(now() + interval '9 days', 0)"
    ))
    .await;
    let plain = rights(&s, &format!("{name}_plain")).await;
    assert!(plain.contains("enqueue"), "{plain}");
    assert_eq!(rights(&s, &format!("{name}_app")).await, plain);
    let app = Session::as_role(&db, &format!("{name}_app")).await;
    let grants = format!("select trax.grant_access('{name}_app', 'admin')");
    assert_eq!(app.refusal(&grants).await.code, "42501");
    s.assert_healthy().await;
}

#[tokio::test]
async fn check_names_rights_that_no_level_gives() {
    let (db, s) = session().await;
    let role = format!("{} Other", db.name());
    s.get(&format!(
        "create role \"{role}\";
         grant update on trax.work_queue to \"{role}\";
         grant select (job_id), update (token) on trax.lease to \"{role}\";
         grant select on trax.job to \"{role}\" with grant option;
         grant select on trax.run to \"{role}\";
         grant execute on function trax.tallies to \"{role}\";
         grant execute on function trax.status to public;
         grant create on schema trax to \"{role}\""
    ))
    .await;
    let found = s
        .get("select detail from trax.check() where rule = 'a right is of a level' order by 1")
        .await;
    let named = |what: &str| format!("role \"{role}\" has {what}");
    let expected = [
        "PUBLIC has execute on routine trax.status()".to_owned(),
        named("create on schema trax"),
        named("execute on routine trax.tallies()"),
        named("select on table trax.job and may grant it"),
        named("update (token) on table trax.lease"),
        named("update on table trax.work_queue"),
    ];
    assert_eq!(found, expected.join("\n"));
    s.get(&format!(
        "select trax.revoke_access('\"{role}\"'); revoke all on function trax.status from public"
    ))
    .await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_schema_that_others_may_fill_is_refused() {
    let name = "test_schema_of_others";
    let (_db, s) = plain_session(name).await;
    s.get(&format!("create role {name} login; create schema trax"))
        .await;
    for (before, code, word, after) in [
        (
            format!("grant create on schema trax to {name}"),
            "42501",
            name,
            format!("revoke create on schema trax from {name}"),
        ),
        (
            "grant create on schema trax to public".to_owned(),
            "42501",
            "public",
            "revoke create on schema trax from public".to_owned(),
        ),
        (
            "create function trax.enqueue(task text, input text) returns bigint language sql as 'select 666::bigint'".to_owned(),
            "55000",
            "function trax.enqueue(text,text)",
            "drop function trax.enqueue(text, text)".to_owned(),
        ),
        (
            "create view trax.job as select 1".to_owned(),
            "55000",
            "trax.job",
            "drop view trax.job".to_owned(),
        ),
    ] {
        s.get(&before).await;
        let refusal = s.refusal("create extension trax").await;
        assert_eq!(refusal.code, code, "{before}: {refusal}");
        assert!(refusal.detail.contains(word), "{before}: {refusal}");
        assert!(!refusal.hint.is_empty(), "{before}: {refusal}");
        s.get(&after).await;
    }
    s.get(&format!("grant usage on schema trax to {name}; create extension trax; drop extension trax; create extension trax"))
        .await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_schema_of_a_role_that_is_no_superuser_is_refused() {
    let name = "test_schema_of_another";
    let (_db, s) = plain_session(name).await;
    s.get(&format!(
        "create role {name} login; create schema trax authorization {name}; revoke create on schema trax from {name}"
    ))
    .await;
    let refusal = s.refusal("create extension trax").await;
    assert_eq!(refusal.code, "42501", "{refusal}");
    assert!(
        refusal
            .message
            .contains("belongs to a role that is not a superuser"),
        "{refusal}"
    );
    assert!(!refusal.hint.is_empty(), "{refusal}");
    s.get("drop schema trax; create extension trax").await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_level_goes_down_as_well_as_up_and_away() {
    let (db, s) = session().await;
    let role = format!("{}_changing", db.name());
    s.get(&format!("create role {role} login")).await;
    let set = async |level: &str| {
        s.get(&format!("select trax.grant_access('{role}', '{level}')"))
            .await
    };
    let mut seen = Vec::new();
    for level in ["reader", "producer", "worker"] {
        set("admin").await;
        set(level).await;
        let other = format!("{}_{level}", db.name());
        s.get(&format!(
            "create role {other}; select trax.grant_access('{other}', '{level}')"
        ))
        .await;
        assert_eq!(rights(&s, &role).await, rights(&s, &other).await, "{level}");
        seen.push(rights(&s, &role).await);
    }
    seen.dedup();
    assert_eq!(seen.len(), 3, "they differ: {seen:?}");
    set("none").await;
    assert_eq!(rights(&s, &role).await, "\n\n");
    let them = Session::as_role(&db, &role).await;
    assert_eq!(them.refusal("select trax.enqueue('a')").await.code, "42501");
    set("admin").await;
    s.get(&format!("select trax.revoke_access('{role}')")).await;
    drop(them);
    s.get(&format!("drop role {role}")).await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn an_admin_can_take_levels_away_and_the_owner_keeps_all() {
    let (db, s) = session().await;
    let (admin, other) = (
        format!("{}_admin", db.name()),
        format!("{}_other", db.name()),
    );
    s.get(&format!(
        "create role {admin} login; create role {other};
         select trax.grant_access('{admin}', 'admin'); select trax.grant_access('{other}', 'worker')"
    ))
    .await;
    let them = Session::as_role(&db, &admin).await;
    them.get(&format!(
        "select trax.revoke_access('{other}'); select trax.grant_access('postgres', 'none')"
    ))
    .await;
    assert_eq!(rights(&s, &other).await, "\n\n");
    let owners = "select bool_and(a.privileges @> array['select', 'insert', 'update', 'delete'])
        from (
            select c.oid, array_agg(lower(x.privilege_type)) as privileges
            from pg_class c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) x
            where c.relnamespace = 'trax'::regnamespace and c.relkind = 'r' and x.grantee = c.relowner
            group by 1
        ) a";
    assert_eq!(s.get(owners).await, "t");
    s.assert_healthy().await;
}
