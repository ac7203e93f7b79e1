//! Upgrades: a database updated from 0.1.0 equals a new one, and keeps all its jobs.
//!
//! The SQL is the frozen install script, and the jobs are a dump that the library of 0.1.0 wrote
//! (`0.1.0.dump`). The library is the new one: the old library's behavior with the new SQL was
//! tested by hand, and is simulated here by its missing symbols.

mod failure;
mod fleet;
mod library;
mod pg_upgrade;
mod rights;

use harness::process::{Scratch, run_quietly};
use harness::session::{Session, session};
use harness::shared_server;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use trax_client::testkit::{Database, Server};

const CATALOG: &str = include_str!("catalog.sql");
/// The statement that pg_dump writes, and the one to type instead to get the version of the dump.
const CREATE: &str = "CREATE EXTENSION IF NOT EXISTS trax WITH SCHEMA trax";

fn sql_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sql")
}

/// A database with the SQL of 0.1.0 on the shared server.
async fn old_session(name: &str) -> (Database, Session) {
    let db = shared_server().plain_database(name).await;
    let db = db.expect("a database is made");
    let s = Session::of(&db).await;
    s.get("create extension trax version '0.1.0'").await;
    (db, s)
}

/// The dump, with a statement that creates the extension of this version.
fn dump_into(version: &str) -> String {
    let dump = include_str!("0.1.0.dump");
    assert!(dump.contains(CREATE), "a dump makes its extension");
    dump.replace(CREATE, &format!("{CREATE} VERSION '{version}'"))
}

/// A database restored from a dump of 0.1.0 as documented: with the SQL of 0.1.0.
async fn restored(server: &Server, name: &str) -> (Database, Session) {
    let db = server.plain_database(name).await.expect("it is made");
    let folder = Scratch::new("upgrade");
    let dump = folder.path().join("dump");
    std::fs::write(&dump, dump_into("0.1.0")).expect("it can be written");
    let mut psql = server.command("psql");
    psql.args([
        "-qX",
        "-v",
        "ON_ERROR_STOP=1",
        "-o",
        "/dev/null",
        "-d",
        name,
    ]);
    run_quietly(psql.arg("-f").arg(&dump));
    let s = Session::of(&db).await;
    (db, s)
}

/// Everything in the catalogs that belongs to trax, a line each.
async fn catalog(s: &Session) -> BTreeSet<String> {
    s.get(CATALOG)
        .await
        .split('\u{1e}')
        .map(str::to_owned)
        .collect()
}

/// Fails with the objects that only one of the catalogs has.
fn assert_equal(upgraded: &BTreeSet<String>, fresh: &BTreeSet<String>) {
    assert!(fresh.len() > 1000, "{} objects", fresh.len());
    let only = |one: &BTreeSet<String>, other: &BTreeSet<String>| {
        let lines: Vec<String> = one.difference(other).cloned().collect();
        lines.join("\n  ")
    };
    assert!(
        upgraded == fresh,
        "sql/trax--A--B.sql does not lead to what sql/install_order makes.\nonly upgraded:\n  {}\nonly fresh:\n  {}",
        only(upgraded, fresh),
        only(fresh, upgraded)
    );
}

#[tokio::test]
async fn an_upgraded_catalog_is_a_fresh_one() {
    let (_fresh_db, fresh) = session().await;
    let (_db, s) = old_session("test_upgraded_catalog").await;
    s.get("alter extension trax update").await;
    assert_equal(&catalog(&s).await, &catalog(&fresh).await);
    s.assert_healthy().await;
}

/// A released script never changes, since users have installed it.
#[test]
fn released_scripts_never_change() {
    let mut check = Command::new("sha256sum");
    check.args(["--check", "--quiet", "--strict", "released.sha256"]);
    run_quietly(check.current_dir(sql_folder()));
    let digests = std::fs::read_to_string(sql_folder().join("released.sha256"));
    let digests = digests.expect("the digests can be read");
    let next = format!("--{}.sql", env!("CARGO_PKG_VERSION"));
    for entry in std::fs::read_dir(sql_folder()).expect("the folder can be read") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_string_lossy();
        if name.starts_with("trax--") && !name.ends_with(&next) {
            assert!(digests.contains(name.as_ref()), "{name} is released");
        }
    }
}
