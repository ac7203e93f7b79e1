//! `outbox.sql` and `relay.sql` when a superuser runs them in a database where another role has
//! objects or rights.

use super::{JOBS, pair, play, sql_file, trax_relay};
use harness::PATIENCE;
use harness::rights::{assert_matrix, default_privileges_for, rights};
use harness::scheduler::new_name;
use harness::session::Session;
use harness::shared_server;
use trax_client::testkit::Database;

/// Each file with its schema, and a table with columns that the file writes.
const FILES: [(&str, &str, &str); 2] = [
    (
        "outbox.sql",
        "trax_outbox",
        "relay (source uuid not null default gen_random_uuid(), only_row boolean default true primary key)",
    ),
    (
        "relay.sql",
        "trax_relay",
        "target (target uuid not null default gen_random_uuid(), only_row boolean default true primary key)",
    ),
];

/// A new database, and a role that may create schemas in it.
async fn with_a_stranger() -> (Database, Session, String) {
    let database = shared_server().plain_database(&new_name("stranger")).await;
    let database = database.expect("a database is made");
    let session = Session::of(&database).await;
    let role = new_name("dev");
    session
        .get(&format!(
            "create role {role} login; grant create on database {} to {role}",
            database.name()
        ))
        .await;
    (database, session, role)
}

/// A trigger function that makes its owner a superuser if a superuser runs it.
fn rise(schema: &str, role: &str) -> String {
    format!(
        "create function {schema}.rise() returns trigger language plpgsql as
            'begin execute ''alter role {role} superuser''; return new; end'"
    )
}

#[tokio::test]
async fn a_schema_in_which_others_have_a_hand_is_refused() {
    for (file, schema, table) in FILES {
        let name = table.split(' ').next().unwrap_or_default();
        for (what, by_superuser, by_stranger, then, message) in [
            (
                "its owner",
                String::new(),
                format!(
                    "create schema {schema}; create table {schema}.{table}; RISE;
                     create trigger t before insert on {schema}.{name} for each row execute function {schema}.rise()"
                ),
                String::new(),
                format!("schema \"{schema}\" belongs to another role"),
            ),
            (
                "who may create in it",
                format!("create schema {schema}; grant create on schema {schema} to ROLE"),
                String::new(),
                String::new(),
                format!("roles other than its owner may create objects in schema \"{schema}\""),
            ),
            (
                "who made an object there",
                format!("create schema {schema}; grant create, usage on schema {schema} to ROLE"),
                "RISE".to_owned(),
                format!("revoke create on schema {schema} from ROLE"),
                format!("schema \"{schema}\" contains an object of another role"),
            ),
            (
                "whose function a trigger calls",
                format!(
                    "create schema {schema}; create table {schema}.{table};
                     grant usage on schema {schema} to ROLE; grant trigger on {schema}.{name} to ROLE"
                ),
                format!(
                    "create schema mine; {};
                     create trigger t before insert on {schema}.{name} for each row execute function mine.rise()",
                    rise("mine", "ROLE")
                ),
                String::new(),
                format!("schema \"{schema}\" contains an object of another role"),
            ),
        ] {
            let (database, session, role) = with_a_stranger().await;
            let stranger = Session::as_role(&database, &role).await;
            let written = |sql: &str| {
                let rise = rise(schema, &role);
                sql.replace("RISE", &rise).replace("ROLE", &role)
            };
            session.get(&written(&by_superuser)).await;
            stranger.get(&written(&by_stranger)).await;
            session.get(&written(&then)).await;
            let text = std::fs::read_to_string(sql_file(file)).expect("it is text");
            let refusal = session.refusal(&text).await;
            assert_eq!(
                (refusal.code.as_str(), &refusal.message),
                ("42501", &message),
                "{file}, {what}: {refusal}"
            );
            assert!(!refusal.hint.is_empty(), "{refusal}");
            let is_superuser = format!("select rolsuper from pg_roles where rolname = '{role}'");
            assert_eq!(session.get(&is_superuser).await, "f", "{file}, {what}");
        }
    }
}

#[tokio::test]
async fn each_level_may_do_what_the_matrices_say_and_nothing_else() {
    let outbox = &["producer", "relay", "reader"][..];
    for ((file, schema, _), (levels, matrix)) in FILES.into_iter().zip([
        (outbox, include_str!("outbox_matrix.txt")),
        (&["relay", "reader"], include_str!("relay_matrix.txt")),
    ]) {
        let (database, session, nobody) = with_a_stranger().await;
        play(shared_server(), &database, file);
        let mut roles = vec![("PUBLIC", nobody)];
        for level in levels {
            let role = new_name(level);
            let grant = format!("select {schema}.grant_access('{role}', '{level}')");
            session.get(&format!("create role {role}; {grant}")).await;
            roles.push((*level, role));
        }
        assert_matrix(&session, schema, &roles, matrix).await;
    }
}

#[tokio::test]
async fn default_privileges_give_no_rights_in_the_files_schemas() {
    for (file, schema, _) in FILES {
        let (database, session, role) = with_a_stranger().await;
        default_privileges_for(
            &session,
            &role,
            &["tables", "sequences", "functions", "schemas"],
        )
        .await;
        let has = async || rights(&session, &role, schema).await;
        play(shared_server(), &database, file);
        assert_eq!(has().await, "", "{file}");
        // A second run of the file keeps the rights from grant_access, and adds none.
        session
            .get(&format!("select {schema}.grant_access('{role}', 'relay')"))
            .await;
        let given = has().await;
        assert!(given.contains("SELECT"), "{given}");
        play(shared_server(), &database, file);
        assert_eq!(has().await, given, "{file}");
        session
            .get(&format!(
                "drop function {schema}.grant_access(regrole, text)"
            ))
            .await;
        play(shared_server(), &database, file);
        assert_eq!(has().await, given, "{file}");
        // The file revokes earlier rights.
        session
            .get(&format!(
                "grant all on all tables in schema {schema} to {role};
                 grant all on all sequences in schema {schema} to {role};
                 grant all on all functions in schema {schema} to {role};
                 select {schema}.grant_access('{role}', 'none')"
            ))
            .await;
        assert_eq!(has().await, "", "{file}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_others_keep_no_relay_away() {
    let (source, target) = pair().await;
    let role = new_name("dev");
    source.get(&format!("create role {role} login")).await;
    let stranger = Session::as_role(source.database(), &role).await;
    let relay = trax_relay(&source, &target).start();
    relay.says("relay number 1", PATIENCE).await;
    // Any role may wait for the relay's locks.
    let keys = "select string_agg(format('pg_advisory_lock(%s)', (classid::bigint << 32) | objid::bigint), ', ')
        from pg_locks where locktype = 'advisory' and pid <> pg_backend_pid()
            and database = (select oid from pg_database where datname = current_database())";
    let locks = stranger.get(keys).await;
    assert!(!locks.is_empty());
    let pid = stranger.pid();
    let waiting = stranger.spawn(format!("select {locks}"));
    source.sees_waiting(pid).await;
    drop(relay);
    let (_stranger, taken) = waiting.await.expect("it ends");
    taken.expect("the locks are taken");
    let next = trax_relay(&source, &target).start();
    next.says("relay number 2", PATIENCE).await;
    source.get("select trax_outbox.enqueue('t')").await;
    target.reaches(&next, JOBS, "1 1").await;
}
