//! Throw-away servers are really thrown away, and survive being killed.

use std::error::Error;
use trax_client::testkit::{Server, Stop};

type Outcome = Result<(), Box<dyn Error>>;

async fn number(server: &Server) -> Result<i32, Box<dyn Error>> {
    let client = server.existing("mine").connect().await?;
    Ok(client.query_one("select n from t", &[]).await?.get(0))
}

#[tokio::test]
async fn a_server_survives_every_way_to_stop_and_removes_itself() -> Outcome {
    let mut server = Server::options()
        .not_preloaded()
        .setting("work_mem", "7MB")
        .start()?;
    let database = server.plain_database("mine").await?;
    let client = database.connect().await?;
    client
        .batch_execute("create table t (n int); insert into t values (1)")
        .await?;
    let work_mem: String = client.query_one("show work_mem", &[]).await?.get(0);
    assert_eq!(work_mem, "7MB");

    server.restart()?;
    assert_eq!(number(&server).await?, 1);
    server.stop(Stop::Immediate)?;
    assert!(!server.is_running());
    server.start()?;
    assert_eq!(number(&server).await?, 1);
    let busy = server.existing("mine").connect().await?;
    let sleeping = tokio::spawn(async move { busy.batch_execute("select pg_sleep(60)").await });
    server.kill()?;
    server.start()?;
    assert_eq!(number(&server).await?, 1);
    assert!(sleeping.await?.is_err());

    let dir = server.data_dir();
    drop(server);
    assert!(!dir.exists());
    Ok(())
}

#[test]
fn servers_do_not_share_a_port_or_a_directory() -> Outcome {
    let one = Server::options().not_preloaded().fast().start()?;
    let two = Server::options().not_preloaded().fast().start()?;
    assert_ne!(one.port(), two.port());
    assert_ne!(one.data_dir(), two.data_dir());
    Ok(())
}
