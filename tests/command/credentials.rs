//! The credentials that the command uses, and those that a worker's programs can find.

use super::exec::program;
use super::{bare, text};
use harness::process::{Scratch, run, trax_binary};
use harness::scheduler::{connect, execute};
use harness::{database, shared_server};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use trax_client::testkit::{Database, Server};

/// Prints the passwords found in the environments of its parent and of the parent's other children.
const LOOK: &str = r#"
for process in $PPID $(pgrep -P $PPID | grep -vx $$); do
    seen="$seen$(tr '\0' ' ' < /proc/$process/environ | grep -o s3cret)"
done 2> /dev/null
if true < /proc/$PPID/mem; then seen="$seen memory"; fi 2> /dev/null
printf '"%s"' "$seen""#;

/// Runs under another account than root, since root can read everything.
fn trax_with_password(database: &Database) -> Command {
    let binary = trax_binary();
    let mut command = shared_server().command(binary.to_str().expect("a path in UTF-8"));
    command
        .env("PGDATABASE", database.name())
        .env("PGPASSWORD", "s3cret");
    command
}

#[tokio::test]
async fn a_program_finds_no_credentials_in_the_processes_around_it() {
    let database = database().await;
    let client = connect(&database).await;
    let files = Scratch::new("look");
    let look = program(&files, "look.sh", LOOK);
    execute(&client, "select trax.enqueue('look')").await;
    let mut worker = trax_with_password(&database);
    worker.args(["worker", "--until-empty", "--all-tasks", "--exec", &look]);
    let (code, _, errors) = run(&mut worker);
    assert_eq!(code, Some(0), "{errors}");
    let output = "select coalesce(output #>> '{}', error, state) from trax.run";
    assert_eq!(text(&client, output).await, "", "{errors}");
    let mut lock = trax_with_password(&database);
    lock.args(["lock", "n", "--", "sh", "-c", &look]);
    let (code, output, errors) = run(&mut lock);
    assert_eq!((code, output.as_str()), (Some(0), "\"\""), "{errors}");
}

#[tokio::test]
async fn a_password_file_is_read_as_psql_reads_it_unless_others_may() {
    let server = Server::options().setting("listen_addresses", "127.0.0.1");
    let server = server.start().expect("a server starts");
    let database = server.database("app").await;
    let database = database.expect("a database with the extension is made");
    let client = connect(&database).await;
    execute(
        &client,
        "create role ada login password 's3c:ret'; select trax.grant_access('ada', 'reader')",
    )
    .await;
    let files = Scratch::new("password");
    let path = files.path().join("pass");
    let line = format!("127.0.0.1:{}:app:ada:s3c\\:ret\n", server.port());
    std::fs::write(&path, line).expect("a file can be written");
    let url = format!("postgres://ada@127.0.0.1:{}/app", server.port());
    let with_parameter = format!("{url}?passfile={}", path.display());
    let variable = path.to_str().expect("a path in UTF-8");
    let check = |url: &str, mode: u32| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, permissions).expect("its maker may change it");
        let mut command = bare();
        command.args(["--database-url", url, "check"]);
        run(match url.contains("passfile") {
            true => &mut command,
            false => command.env("PGPASSFILE", variable),
        })
    };
    for url in [&url, &with_parameter] {
        let (code, _, errors) = check(url, 0o600);
        assert_eq!(code, Some(0), "{errors}");
        let (code, _, errors) = check(url, 0o644);
        assert_eq!(code, Some(1), "{errors}");
        for part in [&format!("chmod 600 {}", path.display()), "PGPASSFILE"] {
            assert!(errors.contains(part), "{errors}");
        }
    }
}
