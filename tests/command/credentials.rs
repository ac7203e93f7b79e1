//! The credentials that a worker's programs can find.

use super::exec::program;
use super::text;
use harness::process::{Scratch, run, trax_binary};
use harness::scheduler::{connect, execute};
use harness::{database, shared_server};
use std::process::Command;
use trax_client::testkit::Database;

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
