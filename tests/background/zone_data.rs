//! A server whose directory of time zones is missing.

use harness::process::run;
use harness::scheduler::{connect, execute, scheduler_of, scheduling, value, violations};
use harness::{PATIENCE, eventually};
use std::process::Command;

/// Empties the time zone directories for its child processes only.
const WITHOUT_ZONES: &str = r#"for zones in "$("${PG_CONFIG:-pg_config}" --sharedir)/timezone" /usr/share/zoneinfo; do
    [ ! -d "$zones" ] || mount -t tmpfs none "$zones" || exit
done
exec "$@""#;

/// Returns a command with its own mount namespace, which root can create.
fn apart(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]);
    command
}

#[test]
fn a_scheduler_starts_and_runs_what_is_in_utc_while_the_zone_data_is_missing() {
    let possible = apart(WITHOUT_ZONES).arg("true").output();
    if !possible.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: only root may hide the zone data from a server");
        return;
    }
    let this = std::env::current_exe().expect("a process knows its program");
    let (code, output, errors) = run(apart(WITHOUT_ZONES).arg(this).args([
        "--ignored",
        "--exact",
        "background::zone_data::without_zones",
    ]));
    assert_eq!(code, Some(0), "{output}{errors}");
    assert!(output.contains("1 passed"), "{output}");
}

#[tokio::test]
#[ignore = "the test above starts it as a child process"]
async fn without_zones() {
    let server = scheduling()
        .setting("timezone", "GMT")
        .setting("log_timezone", "GMT")
        .start()
        .expect("a server starts");
    let database = server.database("zoned").await.expect("a database is made");
    let client = connect(&database).await;
    let zones: i64 = value(&client, "select count(*) from pg_timezone_names").await;
    assert_eq!(zones, 0);
    scheduler_of(&client, "zoned", PATIENCE).await;
    execute(
        &client,
        "select trax.schedule('m', 'a', cron => '* * * * * *');
         select trax.schedule('n', 'a', cron => '* * * * * *', timezone => 'UTC')",
    )
    .await;
    eventually("both are queued", PATIENCE, async || {
        let sql = "select count(distinct manifest) from trax.work_queue";
        match value::<i64>(&client, sql).await {
            2 => Ok(()),
            seen => Err(seen.to_string()),
        }
    })
    .await;
    let refused = client
        .batch_execute("select trax.schedule('b', 'a', timezone => 'Europe/Berlin')")
        .await;
    assert!(refused.is_err(), "no such zone is there");
    assert_eq!(violations(&client).await, Vec::<String>::new());
}
