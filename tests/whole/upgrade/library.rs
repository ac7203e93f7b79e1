//! The library of one version with the SQL of another: says what to type, and works after that.

use super::{old_session, restored};
use harness::process::{Scratch, trax_binary};
use harness::scheduler::{
    a_cycle_runs, connect, execute, live_server, new_name, scheduler_of, value,
};
use harness::session::{Session, session};
use harness::{PATIENCE, eventually, shared_server};
use std::process::Command;

const NEW: &str = env!("CARGO_PKG_VERSION");

#[tokio::test]
async fn every_call_with_older_sql_says_what_to_type_and_works_after_it() {
    let (_db, s) = old_session("test_older_sql").await;
    let calls = "select format(
            '%s trax.%I(%s)',
            case p.prokind when 'p' then 'call' else 'select * from' end,
            p.proname,
            (
                select string_agg('null::' || format_type(a.type, null), ', ' order by a.place)
                from unnest(
                    case p.prokind when 'p' then coalesce(p.proallargtypes, p.proargtypes) else p.proargtypes end
                ) with ordinality a (type, place)
            )
        )
        from pg_proc p
        join pg_language l on l.oid = p.prolang
        where p.pronamespace = 'trax'::regnamespace
            and l.lanname = 'c'
            and p.prorettype not in ('trigger'::regtype, 'fdw_handler'::regtype)
            and p.prosrc <> 'trax_installed'";
    let calls = s.get(calls).await;
    assert!(calls.lines().count() > 35, "{calls}");
    for call in calls.lines() {
        let refusal = s.refusal(call).await;
        assert_eq!(
            (
                refusal.code.as_str(),
                refusal.message.as_str(),
                refusal.hint.as_str()
            ),
            (
                "55000",
                format!("trax 0.1.0 is installed here, the library is {NEW}").as_str(),
                "Type: alter extension trax update"
            ),
            "{call}"
        );
    }
    let refusal = s
        .refusal("insert into trax.new_job (task) values ('a')")
        .await;
    assert_eq!(
        refusal.hint, "Type: alter extension trax update",
        "{refusal}"
    );
    s.get("alter extension trax update; select trax.enqueue('a')")
        .await;
    assert_eq!(s.claim("").await.len(), 1, "in the same session");
    s.assert_healthy().await;
}

/// Returns the exit code and the output of `trax`.
fn run(database: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(trax_binary());
    let (socket, port) = (shared_server().socket_dir(), shared_server().port());
    command
        .env("PGHOST", socket)
        .env("PGPORT", port.to_string());
    command
        .env("PGUSER", "postgres")
        .env("PGDATABASE", database);
    let output = command.env_remove("DATABASE_URL").args(arguments).output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), said)
}

#[tokio::test]
async fn a_server_that_refuses_every_call_is_critical_to_all_who_look() {
    let (db, s) = old_session("test_refused").await;
    let older = format!("trax 0.1.0 is installed here, the library is {NEW}");
    for (database, words) in [(db.name(), older.as_str()), ("test_refused_too", "99.0")] {
        if database != db.name() {
            let made = shared_server().database(database).await;
            let newer = Session::of(&made.expect("a database is made")).await;
            newer
                .get("update pg_extension set extversion = '99.0' where extname = 'trax'")
                .await;
            let refusal = newer.refusal("select * from trax.status()").await;
            assert_eq!(refusal.code, "55000", "{refusal}");
        }
        for command in ["status", "check"] {
            let (code, said) = run(database, &[command, "--json"]);
            assert_eq!(code, Some(2), "{command}: {said}");
            let rows: serde_json::Value = serde_json::from_str(&said).expect("it is JSON");
            let first = rows[0].to_string();
            assert!(first.contains(words), "{command}: {first}");
        }
        let (code, said) = run(database, &["doctor"]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("Every call is refused: trax "), "{said}");
    }
    s.get("alter extension trax update").await;
    let (_, said) = run(db.name(), &["check", "--json"]);
    assert_eq!(said.trim(), "[]");
}

#[tokio::test]
async fn calls_with_newer_sql_ask_for_the_restart() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    // Every update creates a function.
    s.get(
        "update pg_extension set extversion = '99.0' where extname = 'trax';
        create function of_the_update() returns void language sql as ''",
    )
    .await;
    let refusal = s.refusal("select * from trax.claim_next()").await;
    assert_eq!(refusal.code, "55000");
    assert_eq!(
        refusal.message,
        format!("trax 99.0 is installed here, the library is {NEW}")
    );
    assert!(refusal.hint.contains("Restart PostgreSQL"), "{refusal}");
}

/// An update of 0.1.0's library ends like this: it has none of the new symbols.
#[tokio::test]
async fn a_library_of_another_version_cannot_be_updated_to() {
    let (_db, s) = old_session("test_older_library").await;
    let script = include_str!("../../../sql/api/library.sql");
    let older = script.replace("'trax_library_version'", "'trax_library_version_0'");
    let refusal = s
        .refusal(&older.replace("MODULE_PATHNAME", "$libdir/trax"))
        .await;
    assert_eq!(refusal.code, "55000", "{refusal}");
    assert_eq!(
        refusal.message,
        "this server has loaded an older library of trax"
    );
    assert!(refusal.hint.contains("Restart PostgreSQL"), "{refusal}");
    // A library of another version that has the symbol reports the mismatch itself.
    let refusal = s
        .refusal(&script.replace("MODULE_PATHNAME", "$libdir/trax"))
        .await;
    assert_eq!(
        refusal.message,
        "this server has loaded another library of trax"
    );
    assert_eq!(
        refusal.detail,
        format!("The library is version {NEW}, the SQL version 0.1.0.")
    );
}

/// The path of libraries may have changed since the server started. The loaded library under
/// another name is not a second one.
#[tokio::test]
async fn a_second_library_in_one_process_is_refused() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    let folder = Scratch::new("second-library");
    let installed = s
        .get("select setting || '/trax.so' from pg_config where name = 'PKGLIBDIR'")
        .await;
    let copy = folder.path().join("trax.so");
    std::fs::copy(&installed, &copy).expect("it is copied");
    let refusal = s.refusal(&format!("load '{}'", copy.display())).await;
    assert_eq!(refusal.code, "55000", "{refusal}");
    assert_eq!(
        refusal.detail,
        format!("The loaded file is version {NEW}, the other file is version {NEW}.")
    );
    assert!(refusal.hint.contains("Restart PostgreSQL"), "{refusal}");
    s.get(&format!("load '{installed}'")).await;
    assert_eq!(s.claim("").await.len(), 1, "in the same session");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_scheduler_waits_for_the_update_and_then_works() {
    let name = new_name("old_scheduler");
    let (db, _s) = restored(live_server(), &name).await;
    let client = connect(&db).await;
    scheduler_of(&client, &name, PATIENCE).await;
    eventually("the scheduler's warning", PATIENCE, async || {
        let log = std::fs::read_to_string(live_server().log_file()).map_err(|e| e.to_string())?;
        let words = "the trax scheduler waits: it is version";
        log.lines()
            .find(|line| line.contains(words) && line.contains("the extension is version 0.1.0"))
            .map(|_| ())
            .ok_or("nothing".to_owned())
    })
    .await;
    execute(&client, "alter extension trax update; select trax.adopt()").await;
    a_cycle_runs(&client, PATIENCE).await;
    let healthy: i64 = value(&client, "select count(*) from trax.check()").await;
    assert_eq!(healthy, 0);
}
