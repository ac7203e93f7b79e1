//! A streaming standby of a throw-away server, in that server's own directory.

use crate::process::{Process, run_quietly};
use crate::{PATIENCE, eventually};
use tokio_postgres::{Client, NoTls};
use trax_client::testkit::{Server, free_port};

/// A running standby; ends when this value is dropped, which must happen before its primary's.
pub struct Standby {
    process: Process,
    port: u16,
    socket_dir: std::path::PathBuf,
}

impl Standby {
    /// Copies the server with `pg_basebackup` and starts the copy as its standby, with its own
    /// settings.
    pub async fn of(primary: &Server, settings: &[&str]) -> Self {
        let data = primary.socket_dir().join("standby");
        let mut backup = primary.command("pg_basebackup");
        backup
            .args([
                "--checkpoint=fast",
                "--no-sync",
                "--write-recovery-conf",
                "--pgdata",
            ])
            .arg(&data);
        run_quietly(&mut backup);
        let port = free_port().expect("a port is free");
        // The kernel ends the standby if this process is killed. The program's path stays
        // unchanged.
        let mut command = primary.command("/usr/bin/setpriv");
        command
            .args(["--pdeathsig", "QUIT"])
            .arg(primary.command("postgres").get_program());
        command
            .arg("-D")
            .arg(&data)
            .arg("-c")
            .arg(format!("port={port}"));
        for setting in settings {
            command.args(["-c", setting]);
        }
        let process = Process::start(command);
        let standby = Standby {
            process,
            port,
            socket_dir: primary.socket_dir().to_owned(),
        };
        eventually("the standby takes connections", PATIENCE, async || {
            standby.try_connect("postgres").await.map(|_| ())
        })
        .await;
        standby
    }

    /// The port, for 127.0.0.1 and the socket's name.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Connects as superuser.
    pub async fn connect(&self, database: &str) -> Client {
        self.try_connect(database)
            .await
            .expect("the standby takes a connection")
    }

    async fn try_connect(&self, database: &str) -> Result<Client, String> {
        let mut config = tokio_postgres::Config::new();
        config
            .host_path(&self.socket_dir)
            .port(self.port)
            .user("postgres")
            .dbname(database);
        let (client, connection) = config
            .connect(NoTls)
            .await
            .map_err(|error| format!("{error:?}; it said: {}", self.process.output()))?;
        tokio::spawn(async move {
            // The client receives the same error on its next call.
            connection.await.ok();
        });
        Ok(client)
    }

    /// Waits until the standby has replayed the primary's WAL up to `lsn`.
    pub async fn has_replayed(&self, client: &Client, lsn: &str) {
        eventually("the standby has caught up", PATIENCE, async || {
            let sql = "select coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)";
            let row = client
                .query_one(sql, &[&lsn])
                .await
                .map_err(|error| format!("{error:?}"))?;
            if row.get(0) {
                Ok(())
            } else {
                Err(format!("not yet at {lsn}"))
            }
        })
        .await;
    }
}
