//! Commands that affect the server, the session or other sessions.

use super::{failed, live, output};
use harness::PATIENCE;
use harness::scheduler::violations;
use tokio_postgres::{AsyncMessage, NoTls};

#[tokio::test]
async fn functions_that_look_for_a_client_find_one_without_tls() {
    let (_database, s) = live().await;
    let has = "select count(*) from pg_available_extensions where name = 'sslinfo'";
    if s.number(has).await == 0 {
        eprintln!("skipped: no sslinfo");
        return;
    }
    s.get("create extension sslinfo").await;
    let sql = "select ssl_is_used(), ssl_version(), ssl_client_cert_present(), inet_client_addr(), inet_server_port()";
    let seen = output(&s, sql).await;
    assert_eq!(
        seen["result"][0].to_string(),
        "[false,null,false,null,null]",
        "{seen}"
    );
}

#[tokio::test]
async fn commands_about_the_server_do_what_they_do_in_a_session_or_fail_with_words() {
    let (database, s) = live().await;
    let other = format!("{}_other", database.name());
    for (command, in_transaction) in [
        ("alter system reset work_mem", false),
        ("create database OTHER", false),
        ("drop database OTHER", false),
        (
            "create subscription OTHER connection 'dbname=x' publication p with (connect = false)",
            true,
        ),
        ("alter subscription OTHER set (slot_name = none)", true),
        ("drop subscription OTHER", true),
        (
            "set local work_mem = '5MB'; set constraints all deferred",
            true,
        ),
        ("checkpoint", true),
    ] {
        let command = command.replace("OTHER", &other);
        let done = output(&s, &command).await;
        assert_eq!(done["transaction"], in_transaction, "{command}: {done}");
        let seen = output(&s, "select current_setting('work_mem')").await;
        assert_eq!(seen["result"][0][0], "4MB", "{command}");
    }
    for (command, code) in [
        ("drop database THIS", "55006"),
        ("do $$ begin execute 'listen mine'; end $$", "0A000"),
        (
            "do $$ begin execute 'prepare transaction $q$x$q$'; end $$",
            "0A000",
        ),
        ("select 1; create database never", "25001"),
        (
            "create subscription OTHER connection 'host=/nowhere dbname=x' publication p",
            "08006",
        ),
        (
            "do $$ begin raise exception using errcode = '57P01', message = 'no'; end $$",
            "57P01",
        ),
    ] {
        let command = command
            .replace("OTHER", &other)
            .replace("THIS", database.name());
        let error = failed(&s, &command).await;
        assert_eq!(error["sqlstate"], code, "{command}: {error}");
    }
    output(&s, "select 1").await;
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_statement_that_ends_its_own_session_is_a_lost_lease_and_the_next_one_runs() {
    let (_database, s) = live().await;
    s.get("create table t (a int)").await;
    let error = failed(
        &s,
        "insert into t values (1); select pg_terminate_backend(pg_backend_pid())",
    )
    .await;
    assert_eq!(error["kind"], "lease_expired", "{error}");
    assert_eq!(s.get("select count(*) from t").await, "0");
    output(&s, "select 1").await;
    let error = failed(
        &s,
        "select pg_cancel_backend(pg_backend_pid()), pg_sleep(1e9)",
    )
    .await;
    assert_eq!(error["sqlstate"], "57014", "{error}");
    output(&s, "select 1").await;
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_notification_of_a_statement_is_heard_when_it_commits() {
    let (database, s) = live().await;
    let (client, mut connection) = database
        .config()
        .connect(NoTls)
        .await
        .expect("the server takes a connection");
    let (send, mut heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut next =
            async || std::future::poll_fn(|context| connection.poll_message(context)).await;
        while let Some(Ok(message)) = next().await {
            if let AsyncMessage::Notification(notice) = message {
                send.send(notice.payload().to_owned()).ok();
            }
        }
    });
    client
        .batch_execute("listen heard")
        .await
        .expect("it listens");
    failed(&s, "notify heard, 'undone'; select 1 / 0").await;
    output(&s, "notify heard, 'done'").await;
    let first = tokio::time::timeout(PATIENCE, heard.recv()).await;
    assert_eq!(first.expect("it comes").as_deref(), Some("done"));
}
