//! The client's calls against a real server.

use std::error::Error as StdError;
use std::time::Duration;

use serde_json::json;
use trax_client::testkit::{Database, Server};
use trax_client::tokio_postgres;
use trax_client::{
    Access, ClaimOptions, Client, Context, DeadLetters, Error, Failure, Group, HandlerResult,
    JobOptions, Json, Manifest, NewJob, SchedulerStart, Worker,
};

type Result<T = ()> = std::result::Result<T, Box<dyn StdError>>;

async fn database(server: &Server) -> Result<Database> {
    Ok(server.database("calls").await?)
}

/// Returns the one value that `sql` returns, as text.
async fn text(db: &tokio_postgres::Client, sql: &str) -> Result<String> {
    Ok(db.query_one(sql, &[]).await?.get(0))
}

#[tokio::test]
async fn a_manifest_is_switched_off_and_on() -> Result {
    let server = Server::options().not_preloaded().fast().start()?;
    let db = database(&server).await?.connect().await?;
    let client = Client::new(&db);
    client
        .schedule(&Manifest::new("beat", "beat").every(Duration::from_secs(1)))
        .await?;
    let state = "select enabled::text from trax.manifest where name = 'beat'";
    client.disable_manifest("beat").await?;
    assert_eq!(text(&db, state).await?, "false");
    client.enable_manifest("beat").await?;
    assert_eq!(text(&db, state).await?, "true");
    let unknown = client.disable_manifest("none").await;
    assert!(matches!(unknown, Err(Error::UnknownName(_))), "{unknown:?}");
    Ok(())
}

#[tokio::test]
async fn a_scheduler_is_started_paused_resumed_and_adopts() -> Result {
    let server = Server::options().not_preloaded().fast().start()?;
    let db = database(&server).await?.connect().await?;
    let client = Client::new(&db);
    assert_eq!(client.start_scheduler().await?, SchedulerStart::Started);
    assert_eq!(
        client.start_scheduler().await?,
        SchedulerStart::AlreadyRunning
    );
    let reason = "select coalesce(pause_reason, 'none') || ' ' || (paused_at is not null) \
                  from trax.instance";
    client.pause(Some("a move")).await?;
    assert_eq!(text(&db, reason).await?, "a move true");
    client.resume().await?;
    assert_eq!(text(&db, reason).await?, "none false");
    client.pause(None).await?;
    assert_eq!(text(&db, reason).await?, "none true");
    client.resume().await?;

    let home = "select (database_oid = (select oid from pg_database \
                where datname = current_database()))::text from trax.instance";
    db.batch_execute("update trax.instance set database_oid = 1")
        .await?;
    assert_eq!(text(&db, home).await?, "false");
    client.adopt().await?;
    assert_eq!(text(&db, home).await?, "true");
    Ok(())
}

#[tokio::test]
async fn a_role_gets_what_its_level_needs_and_no_more() -> Result {
    let server = Server::options().not_preloaded().fast().start()?;
    let database = database(&server).await?;
    let db = database.connect().await?;
    let client = Client::new(&db);
    // A name that must be quoted.
    let name = "Pro \"1\"";
    db.batch_execute("create role \"Pro \"\"1\"\"\" login")
        .await?;
    let mut config = database.config();
    config.user(name);
    let (role, connection) = config.clone().connect(tokio_postgres::NoTls).await?;
    let connection = tokio::spawn(connection);
    let refused = Client::new(&role).enqueue(&NewJob::new("t", 1)).await;
    let refused = refused.expect_err("the role has no right");
    assert!(matches!(refused, Error::NotPermitted(_)), "{refused:?}");
    let typed = "type: select trax.grant_access('ROLE', 'producer')";
    assert!(refused.to_string().contains(typed), "{refused}");
    assert!(
        refused.to_string().ends_with(Access::KEEPS_BOTH),
        "{refused}"
    );
    client.grant_access(name, Access::Producer).await?;
    Client::new(&role).enqueue(&NewJob::new("t", 1)).await?;
    let refused = Client::new(&role).tick().await;
    let refused = refused.expect_err("the level is too low");
    let typed = "type: select trax.grant_access('ROLE', 'admin')";
    assert!(refused.to_string().ends_with(typed), "{refused}");
    // In this address the worker's role has no level either.
    let run = Worker::new(config)
        .without_signals()
        .handle("t", |_: Json, _: Context| async { HandlerResult::Ok(()) })
        .manifests("app", [Manifest::new("m", "t")])
        .run();
    let refused = run.await.expect_err("the role is no admin").to_string();
    assert!(refused.ends_with(typed), "{refused}");
    for level in [Access::Reader, Access::Worker, Access::Admin] {
        client.grant_access(name, level).await?;
    }
    Client::new(&role).tick().await?;
    let nobody = client.grant_access("nobody there", Access::Reader).await;
    assert!(matches!(nobody, Err(Error::UnknownName(_))), "{nobody:?}");
    drop(role);
    connection.await??;
    Ok(())
}

#[tokio::test]
async fn manifests_are_applied_previewed_explained_triggered_and_cancelled() -> Result {
    let server = Server::options().not_preloaded().fast().start()?;
    let db = database(&server).await?.connect().await?;
    let client = Client::new(&db);
    let document = json!({
        "groups": [{"name": "etl", "priority": 3}],
        "manifests": [{"name": "extract", "task": "extract", "cron": "0 4 * * *", "group_name": "etl"}]
    });
    let planned = client.apply(&document, false, true).await?;
    let names: Vec<&str> = planned.iter().map(|change| &change.name[..]).collect();
    assert_eq!(names, ["etl", "extract"], "{planned:?}");
    assert_eq!(
        text(&db, "select count(*)::text from trax.manifest").await?,
        "0"
    );
    client.apply(&document, false, false).await?;
    let dependent = Manifest::new("load", "load")
        .depends_on(["extract"])
        .overlap("skip")
        .exclusions(json!({"days_of_week": ["SUN"]}));
    client.schedule(&dependent).await?;

    let upcoming = client.preview("extract", 3).await?;
    assert!(upcoming.is_sorted_by_key(|run| run.run_at) && upcoming.len() == 3);
    let reasons = client.explain_manifest("load").await?;
    assert_eq!(reasons[0].reason, "waits_for_parent", "{reasons:?}");

    let later = client
        .trigger_in("extract", Some(json!(7).into()), Duration::from_secs(3600))
        .await?;
    let waits = format!(
        "select input::text || ' ' || waits_for from trax.work_queue where job_id = {later}"
    );
    assert_eq!(text(&db, &waits).await?, "7 time");
    assert_eq!(client.trigger_group("etl").await?, 1);
    assert_eq!(client.cancel_manifest("extract").await?, 2);
    client
        .configure_group("etl", &Group::new().enabled(true))
        .await?;
    client.trigger("extract", None).await?;
    assert_eq!(client.cancel_group("etl").await?, 1);
    let refused = client.activate("load", None).await;
    assert!(matches!(refused, Err(Error::WrongState(_))), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn many_dead_letters_are_queued_again_by_what_they_are() -> Result {
    let server = Server::options().not_preloaded().fast().start()?;
    let db = database(&server).await?.connect().await?;
    let client = Client::new(&db);
    for task in ["a", "a", "a", "b"] {
        client.enqueue(&NewJob::new(task, ())).await?;
    }
    for job in client.claim(&ClaimOptions::new().max_jobs(9)).await? {
        client
            .fail(job.job_id, job.token, &Failure::new("no").permanent())
            .await?;
    }
    let two = DeadLetters::new().task("a").max_count(2);
    assert_eq!(client.requeue_dead_letters(&two).await?, 2);
    let none = DeadLetters::new().since(std::time::SystemTime::now() + Duration::from_secs(60));
    assert_eq!(client.requeue_dead_letters(&none).await?, 0);
    assert_eq!(client.requeue_dead_letters(&DeadLetters::new()).await?, 2);
    Ok(())
}

#[tokio::test]
async fn a_job_waits_no_longer_than_its_limit() -> Result {
    let server = Server::options().not_preloaded().fast().start()?;
    let db = database(&server).await?.connect().await?;
    let client = Client::new(&db);
    let limit = Duration::from_micros(1);
    let kept = client.enqueue(&NewJob::new("a", ())).await?;
    let late = client.enqueue(&NewJob::new("a", ())).await?;
    for job in [kept, late] {
        assert!(client.limit_queue_time(job, Some(limit)).await?);
    }
    assert!(client.limit_queue_time(kept, None).await?);
    client.tick().await?;
    let states = "select string_agg(state, ' ' order by job_id) from trax.job";
    assert_eq!(text(&db, states).await?, "queued failed");
    assert!(!client.limit_queue_time(late, Some(limit)).await?);
    Ok(())
}

#[tokio::test]
async fn a_length_of_time_that_is_too_long_is_refused_with_its_name() -> Result {
    let server = Server::options().not_preloaded().fast().start()?;
    let db = database(&server).await?.connect().await?;
    let client = Client::new(&db);
    let job = || NewJob::new("t", 1);
    let manifest = Manifest::new("m", "t").every(Duration::MAX);
    for (refused, name) in [
        (
            client
                .enqueue(&job().with(JobOptions::new().timeout(Duration::MAX)))
                .await
                .err(),
            "timeout",
        ),
        (
            client
                .enqueue_all([job().with(JobOptions::new().retry_delay(Duration::MAX))])
                .await
                .err(),
            "retry_delay",
        ),
        (client.schedule(&manifest).await.err(), "every"),
        (
            client
                .declare("app", std::slice::from_ref(&manifest))
                .await
                .err(),
            "every",
        ),
    ] {
        let refused = refused.expect("it is longer than ten years");
        assert!(matches!(refused, Error::InvalidArgument(_)), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains(name) && text.contains("10 years"), "{text}");
    }
    Ok(())
}
