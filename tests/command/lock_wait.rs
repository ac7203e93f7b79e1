//! A command that waits for the lock of another session.

use super::trax;
use harness::process::Process;
use harness::scheduler::{connect, execute, value};
use harness::{PATIENCE, database};

#[tokio::test]
async fn a_command_that_waits_for_a_lock_names_its_holder_and_goes_on_waiting() {
    let database = database().await;
    let holder = connect(&database).await;
    let pid: i32 = value(&holder, "select pg_backend_pid()").await;
    execute(
        &holder,
        "begin; lock table trax.work_queue in access exclusive mode",
    )
    .await;
    let mut commands: Vec<Process> = [&["jobs", "list"][..], &["status"], &["doctor"]]
        .iter()
        .map(|words| Process::start(trax(&database, words)))
        .collect();
    for command in &commands {
        let words = format!("waiting for a lock of process {pid} (");
        let said = command.says(&words, PATIENCE).await;
        assert!(said.contains("lock table trax.work_queue"), "{said}");
        assert!(
            said.contains(&format!("select pg_terminate_backend({pid})")),
            "{said}"
        );
    }
    execute(&holder, "rollback").await;
    for command in &mut commands {
        assert!(command.ends(PATIENCE).await.code().is_some());
    }
}
