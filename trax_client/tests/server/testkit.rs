//! Throw-away servers are removed, even after they are killed.

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

#[tokio::test]
async fn a_server_listens_on_its_socket_alone_unless_it_is_asked_to() -> Outcome {
    let server = Server::options().not_preloaded().fast().start()?;
    let there = ("127.0.0.1", server.port());
    assert!(std::net::TcpStream::connect(there).is_err());
    assert_eq!(role_at(&server.url("postgres")).await?, "postgres");
    Ok(())
}

#[tokio::test]
async fn a_server_with_a_port_asks_for_its_password_and_its_standby_too() -> Outcome {
    let server = Server::options().not_preloaded().fast().tcp().start()?;
    let standby = server.standby()?;
    let one = Server::options().not_preloaded().fast().tcp().start()?;
    for server in [&server, &standby, &one] {
        assert_eq!(role_at(&server.url("postgres")).await?, "postgres");
        let guessed = format!("postgresql://postgres@127.0.0.1:{}/postgres", server.port());
        assert!(role_at(&guessed).await.is_err());
    }
    let password = |server: &Server| server.url("").split('@').next().map(str::to_owned);
    assert_ne!(password(&server), password(&one));
    assert_eq!(password(&server), password(&standby));
    Ok(())
}

#[test]
fn a_rule_of_access_comes_before_those_of_the_server() -> Outcome {
    let refuses = Server::options().access("local all all reject");
    let server = refuses.not_preloaded().fast().start()?;
    let output = server.command("psql").arg("postgres").output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("pg_hba.conf rejects connection"), "{said}");
    Ok(())
}

async fn role_at(url: &str) -> Result<String, Box<dyn Error>> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client
        .query_one("select current_user::text", &[])
        .await?
        .get(0))
}
