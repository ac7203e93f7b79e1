//! The drills of `docs/drills.md`, on a separate server: they restore over its database, copy its
//! files, and stop it in the end.

use super::{path_with, root, text};
use harness::markdown::{blocks, play};
use harness::scheduler::scheduling;
use std::path::Path;

#[tokio::test]
async fn the_drills_of_restore_recovery_and_failover_succeed() {
    let server = scheduling()
        .setting("archive_mode", "on")
        .setting("trax.home", "production")
        .setting("trax.tick_interval", "50ms")
        .start()
        .expect("a server starts");
    server
        .plain_database("app")
        .await
        .expect("a database is made");
    let psql = server.command("psql");
    let path = path_with(&[Path::new(psql.get_program())]);
    let document = root().join("docs/drills.md");
    // Runs under the server's account, which owns the copies made by the drills.
    play("docs/drills.md", &blocks(&text(&document)), |program| {
        let program = if program == "bash" {
            "/bin/bash"
        } else {
            program
        };
        let mut command = server.command(program);
        command
            .env("PATH", &path)
            .env("PGOPTIONS", "-c client_min_messages=warning")
            .env("PGDATABASE", "app");
        command
    });
}
