//! The database of the demo, on a throw-away server or a given one, and its files.

use std::fmt::Write;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tokio::process::Command;
use tokio_postgres::config::Host;
use trax_client::Address;
use trax_client::testkit::Server;

use crate::output::Options;
use trax_terminal::Failure;
use trax_terminal::address;
use trax_terminal::print;

const CREATE_EXTENSION: &str = "  create extension trax;";

/// The database of the demo, and the server if the demo started it.
pub(crate) struct DemoDatabase {
    server: Option<Server>,
    given: Option<Address>,
    database: String,
}

impl DemoDatabase {
    pub(crate) async fn make(url: Option<&str>, output: Options) -> Result<Self, Failure> {
        let place = match url {
            None => {
                output.print("Starting a private PostgreSQL server, preloaded with trax ...")?;
                let server = tokio::task::spawn_blocking(|| Server::options().start())
                    .await
                    .map_err(|error| Failure::new(error.to_string()))??;
                let (port, socket) = (server.port(), server.socket_dir());
                let socket = socket.display();
                output.print(&format!(
                    "  psql --host={socket} --port={port} --username=postgres demo"
                ))?;
                output.print(CREATE_EXTENSION)?;
                server.plain_database("demo").await?;
                DemoDatabase {
                    server: Some(server),
                    given: None,
                    database: "demo".to_owned(),
                }
            }
            Some(url) => {
                let given = address::from_environment(Some(url))?;
                let database = format!("trax_demo_{}", std::process::id());
                let connection = address::connect(&given).await?;
                let server = address::describe(&given);
                let making = format!("Creating database {database} on {server} ...");
                output.print(&print::folded(&making, 2))?;
                output.print(CREATE_EXTENSION)?;
                connection
                    .batch_execute(&format!("create database {database}"))
                    .await?;
                DemoDatabase {
                    server: None,
                    given: Some(given),
                    database,
                }
            }
        };
        let connection = address::connect(&place.config()).await?;
        connection.batch_execute("create extension trax").await?;
        Ok(place)
    }

    pub(crate) fn config(&self) -> Address {
        match (&self.server, &self.given) {
            (Some(server), _) => server.config(&self.database).into(),
            (None, Some(given)) => {
                let mut config = given.clone();
                config.dbname(&self.database);
                config
            }
            (None, None) => tokio_postgres::Config::new().into(),
        }
    }

    pub(crate) fn is_own(&self) -> bool {
        self.server.is_some()
    }

    /// Returns the psql command for the database.
    pub(crate) fn psql(&self) -> String {
        match &self.server {
            Some(server) => server.psql(&self.database),
            None => format!(
                "psql {}    (on the server that you specified)",
                self.database
            ),
        }
    }

    pub(crate) async fn remove(self, keep: bool) -> Result<(), Failure> {
        if let Some(given) = &self.given
            && !keep
        {
            let connection = address::connect(given).await?;
            let sql = format!("drop database {} with (force)", self.database);
            connection.batch_execute(&sql).await?;
        }
        // Dropping a temporary server stops it and removes its directory.
        tokio::task::spawn_blocking(move || drop(self))
            .await
            .map_err(|error| Failure::new(error.to_string()))
    }
}

/// Passes the address to a child process in its environment, as a password must not appear in the
/// list of processes.
pub(crate) fn environment(command: &mut Command, config: &Address) -> Result<(), Failure> {
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(dir) => dir.display().to_string(),
        })
        .collect();
    let ports: Vec<String> = config.get_ports().iter().map(u16::to_string).collect();
    command
        .env_remove("DATABASE_URL")
        .env("PGHOST", hosts.join(","));
    if !ports.is_empty() {
        command.env("PGPORT", ports.join(","));
    }
    command.env("PGUSER", config.get_user().unwrap_or("postgres"));
    command.env("PGDATABASE", config.get_dbname().unwrap_or("postgres"));
    if let Some(password) = config.get_password() {
        let password = std::str::from_utf8(password)
            .map_err(|_| Failure::usage("the password is not UTF-8"))?;
        command.env("PGPASSWORD", password);
    }
    command.envs(config.environment());
    Ok(())
}

/// Real files for a real program. Removed on drop.
pub(crate) struct Files {
    dir: PathBuf,
    script: PathBuf,
    paths: Vec<PathBuf>,
}

impl Files {
    const COUNT: usize = 40;

    /// Reads {"path": ...}, prints {"sha256": ...}: a program that does not depend on trax.
    const SCRIPT: &str = r#"set -e
path=$(sed 's/.*"path": *"\([^"]*\)".*/\1/')
test -r "$path" || { echo "cannot read $path" >&2; exit 65; }
printf '{"sha256":"%s"}\n' "$(sha256sum "$path" | cut -d' ' -f1)"
"#;

    pub(crate) fn make() -> Result<Self, Failure> {
        let random = RandomState::new().build_hasher().finish();
        // An existing directory may belong to another user and contain another script.
        let dir = std::env::temp_dir().join(format!("trax-demo-{random:016x}"));
        fs::DirBuilder::new().mode(0o700).create(&dir)?;
        let script = dir.join("digest.sh");
        fs::write(&script, Self::SCRIPT)?;
        let mut paths = Vec::new();
        for number in 0..Self::COUNT {
            let path = dir.join(format!("file-{number:02}.txt"));
            let mut text = String::new();
            for line in 0..=number * 500 {
                writeln!(text, "file {number}, line {line}")
                    .map_err(|error| Failure::new(error.to_string()))?;
            }
            fs::write(&path, text)?;
            paths.push(path);
        }
        Ok(Files { dir, script, paths })
    }

    pub(crate) fn script(&self) -> &Path {
        &self.script
    }

    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            print::log("trax", &format!("{}: {error}", self.dir.display()));
        }
    }
}
