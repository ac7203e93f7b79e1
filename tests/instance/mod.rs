//! `trax.home`: distinguishes copies of a server's files from the original.

mod shard;

use harness::PATIENCE;
use harness::scheduler::{
    a_cycle_runs, connect, execute, scheduler_of, scheduler_wakes, scheduling, status,
    status_becomes, value,
};
use harness::standby::Standby;
use tokio_postgres::Client;

/// A promoted copy of a server whose database was adopted under the home "production".
async fn promoted(copy: &Standby, written: &str) -> Client {
    let client = copy.connect("prod").await;
    copy.has_replayed(&client, written).await;
    execute(&client, "select pg_promote(wait => true)").await;
    scheduler_of(&client, "prod", PATIENCE).await;
    client
}

async fn refuses(client: &Client, call: &str) -> String {
    let error = client.query(call, &[]).await.expect_err(call);
    let error = error.as_db_error().expect("the server refuses");
    assert_eq!(error.code().code(), "55000", "{error:?}");
    let hint = error.hint().expect("a hint");
    assert!(hint.contains("select trax.adopt()"), "{hint}");
    error.detail().expect("a detail").to_owned()
}

/// Checks that a copy with this home waits until it is adopted.
async fn a_physical_copy_waits(home: &str, named: &str) {
    let server = scheduling()
        .setting("trax.home", "production")
        .setting("trax.tick_interval", "50ms")
        .start()
        .expect("a server starts");
    let database = server.database("prod").await.expect("a database is made");
    let client = connect(&database).await;
    execute(&client, "select trax.enqueue('waiting')").await;
    let copy = Standby::of(&server, &[&format!("trax.home={home}")]).await;
    let written: String = value(&client, "select pg_current_wal_insert_lsn()::text").await;
    let other = promoted(&copy, &written).await;
    execute(
        &other,
        "select trax.schedule('due', 'due', every => '1 hour')",
    )
    .await;
    scheduler_wakes(&other, "prod", 5).await;
    let jobs = "select count(*) from trax.work_queue";
    assert_eq!(value::<i64>(&other, jobs).await, 1, "nothing was queued");
    for call in [
        "select * from trax.claim_next()",
        "select * from trax.tick()",
    ] {
        let detail = refuses(&other, call).await;
        assert!(
            detail.contains("\"production\"") && detail.contains(named),
            "{detail}"
        );
    }
    let (said, healthy, hint) = status(&other, "scheduler").await;
    assert_eq!(
        (said.as_str(), healthy),
        ("waiting for trax.adopt()", false)
    );
    assert!(hint.is_some_and(|hint| hint.contains("\"production\"")));
    a_cycle_runs(&client, PATIENCE).await;

    execute(&other, "select trax.adopt()").await;
    status_becomes(&other, "scheduler", "running", PATIENCE).await;
    a_cycle_runs(&other, PATIENCE).await;
    drop(copy);
}

#[tokio::test]
async fn a_copy_of_the_files_under_another_home_runs_nothing_until_it_is_adopted() {
    a_physical_copy_waits("staging", "\"staging\"").await;
}

#[tokio::test]
async fn a_copy_of_the_files_without_a_home_runs_nothing_until_it_is_adopted() {
    a_physical_copy_waits("", "no trax.home").await;
}

#[tokio::test]
async fn a_home_that_changes_is_seen_at_once_and_one_that_nobody_adopted_under_is_not_asked_for() {
    let server = scheduling().start().expect("a server starts");
    let database = server.database("prod").await.expect("a database is made");
    let client = connect(&database).await;
    let set = async |home: &str| {
        server
            .append_settings(&format!("trax.home = '{home}'\n"))
            .expect("the file can be written");
        server.reload().expect("the server runs");
        harness::eventually("the new home", PATIENCE, async || {
            let seen: String = value(&client, "select current_setting('trax.home')").await;
            if seen == home { Ok(()) } else { Err(seen) }
        })
        .await;
    };
    let causes = "select coalesce(string_agg(cause, ' ' order by cause), '') from trax.diagnose()
        where cause like 'home%'";
    set("one").await;
    a_cycle_runs(&client, PATIENCE).await;
    assert_eq!(
        value::<String>(&client, causes).await,
        "home_not_remembered home_travels_with_copies"
    );
    execute(&client, "select trax.adopt()").await;
    a_cycle_runs(&client, PATIENCE).await;
    assert_eq!(
        value::<String>(&client, causes).await,
        "home_travels_with_copies"
    );
    set("two").await;
    let detail = refuses(&client, "select * from trax.claim_next()").await;
    assert!(
        detail.contains("\"one\"") && detail.contains("\"two\""),
        "{detail}"
    );
    set("one").await;
    a_cycle_runs(&client, PATIENCE).await;
}

#[tokio::test]
async fn the_home_is_not_set_where_a_copy_would_bring_it_along() {
    let server = scheduling().start().expect("a server starts");
    let database = server.database("prod").await.expect("a database is made");
    let client = connect(&database).await;
    for call in [
        "alter system set trax.home = 'here'",
        "alter database prod set trax.home = 'here'",
        "set trax.home = 'here'",
    ] {
        let error = client.batch_execute(call).await.expect_err(call);
        let code = error.code().map(|code| code.code());
        assert_eq!(code, Some("55P02"), "{call}: {error:?}");
    }
}
