//! The outbox of a database without the extension, and `trax relay`, which carries its rows.

mod outbox;

use harness::process::run_quietly;
use harness::scheduler::new_name;
use harness::session::Session;
use std::path::{Path, PathBuf};
use trax_client::testkit::{Database, Server};

/// A file of `sql/`.
fn sql_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../sql")
        .join(name)
}

/// Runs a file of `sql/` as its head says.
fn play(server: &Server, database: &Database, file: &str) {
    let mut psql = server.command("psql");
    psql.args(["-q", "-v", "ON_ERROR_STOP=1", "--single-transaction"])
        .args(["-d", database.name(), "-f"])
        .arg(sql_file(file))
        .env("PGOPTIONS", "-c client_min_messages=warning");
    run_quietly(&mut psql);
}

/// A new database of a server with an outbox and without the extension, and a session in it.
async fn outbox_on(server: &Server) -> (Database, Session) {
    let database = server.plain_database(&new_name("outbox")).await;
    let database = database.expect("a database is made");
    play(server, &database, "outbox.sql");
    let session = Session::of(&database).await;
    (database, session)
}
