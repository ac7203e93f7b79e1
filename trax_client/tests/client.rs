//! The client's calls against a real server.

use std::error::Error as StdError;
use std::time::Duration;

use trax_client::testkit::{Database, Server};
use trax_client::tokio_postgres;
use trax_client::{Access, Client, Error, Manifest, NewJob, SchedulerStart};

type Result<T = ()> = std::result::Result<T, Box<dyn StdError>>;

async fn database(server: &Server) -> Result<Database> {
    Ok(server.database("calls").await?)
}

/// The one value that `sql` gives, as text.
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
    assert!(
        matches!(unknown, Err(Error::UnknownManifest(_))),
        "{unknown:?}"
    );
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
    // A name that only quotes keep whole.
    let name = "Pro \"1\"";
    db.batch_execute("create role \"Pro \"\"1\"\"\" login")
        .await?;
    let mut config = database.config();
    config.user(name);
    let (role, connection) = config.connect(tokio_postgres::NoTls).await?;
    let connection = tokio::spawn(connection);
    let refused = Client::new(&role).enqueue(&NewJob::new("t", 1)).await;
    assert!(
        matches!(refused, Err(Error::NotPermitted(_))),
        "{refused:?}"
    );
    client.grant_access(name, Access::Producer).await?;
    Client::new(&role).enqueue(&NewJob::new("t", 1)).await?;
    let refused = Client::new(&role).tick().await;
    assert!(
        matches!(refused, Err(Error::NotPermitted(_))),
        "{refused:?}"
    );
    for level in [Access::Reader, Access::Worker, Access::Admin] {
        client.grant_access(name, level).await?;
    }
    Client::new(&role).tick().await?;
    let nobody = client.grant_access("nobody there", Access::Reader).await;
    assert!(
        matches!(nobody, Err(Error::UnknownManifest(_))),
        "{nobody:?}"
    );
    drop(role);
    connection.await??;
    Ok(())
}
