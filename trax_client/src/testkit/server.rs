//! A throw-away server, from its copy of the template to its removal.

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tokio_postgres::Config;

use super::Error;
use super::database::Database;
use super::directory::Directory;
use super::install::{Install, output};
use super::options::Options;
use super::port::free_port;
use super::spawn::{signal, spawn};
use crate::sql::quoted;

const START_DEADLINE: Duration = Duration::from_secs(90);
const STOP_DEADLINE: Duration = Duration::from_secs(90);
/// The number of ports to try if other processes take them at the same moment.
const PORTS: usize = 5;
const POLL: Duration = Duration::from_millis(5);

/// The way to stop a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stop {
    /// Ends sessions and writes a checkpoint: SIGINT.
    Fast,
    /// Stops without a checkpoint, as in a crash: SIGQUIT. The next start recovers.
    Immediate,
}

impl Options {
    /// Makes and starts the server. Returns once it accepts connections.
    pub fn start(self) -> Result<Server, Error> {
        Server::make(&self)
    }
}

/// A running or stopped throw-away server.
pub struct Server {
    install: Install,
    dir: Directory,
    port: u16,
    /// The password of the superuser, if the server listens on 127.0.0.1.
    password: Option<String>,
    postmaster: Option<Child>,
    /// The length of the log before the last start.
    log_before: u64,
}

impl Server {
    /// Returns the options of a server that preloads trax.
    pub fn options() -> Options {
        Options::default()
    }

    fn make(options: &Options) -> Result<Self, Error> {
        let install = Install::find()?;
        let home = install.home()?;
        let template = install.template(&home)?;
        let dir = Directory::make(&install, &home)?;
        let mut server = Server {
            install,
            dir,
            port: 0,
            password: None,
            postmaster: None,
            log_before: 0,
        };
        let mut copy = server.install.foreign_command("cp");
        output(
            copy.args(["-a", "--reflink=auto"])
                .arg(&template)
                .arg(server.data_dir()),
        )?;
        server.add_rules(&options.rules())?;
        if options.tcp {
            server.set_password()?;
        }
        let mut tries = 0;
        loop {
            tries += 1;
            server.port = free_port()?;
            server.append_settings(&options.lines(server.port, server.socket_dir()))?;
            match server.start() {
                Err(_) if tries < PORTS && server.port_was_taken() => {}
                started => return started.map(|()| server),
            }
        }
    }

    /// Returns a running streaming standby of this server. Once promoted it is a normal server.
    pub fn standby(&self) -> Result<Self, Error> {
        let mut standby = Server {
            install: self.install.clone(),
            dir: Directory::make(&self.install, &self.install.home()?)?,
            port: free_port()?,
            password: self.password.clone(),
            postmaster: None,
            log_before: 0,
        };
        let mut backup = self.command("pg_basebackup");
        backup.args(["--checkpoint=fast", "--no-sync", "--write-recovery-conf"]);
        output(backup.arg("--pgdata").arg(standby.data_dir()))?;
        let socket_dir = standby.socket_dir().display().to_string();
        let port = standby.port;
        standby.append_settings(&format!(
            "port = '{port}'\nunix_socket_directories = '{socket_dir}'\n"
        ))?;
        standby.start()?;
        Ok(standby)
    }

    fn add_rules(&self, rules: &str) -> Result<(), Error> {
        let path = self.data_dir().join("pg_hba.conf");
        let old = fs::read_to_string(&path).map_err(Error::of(path.display()))?;
        fs::write(&path, rules.to_owned() + &old).map_err(Error::of(path.display()))
    }

    /// Sets a random password for the superuser, before the server listens.
    fn set_password(&mut self) -> Result<(), Error> {
        let password = format!("{:032x}", rand::random::<u128>());
        let mut single = self.install.command("postgres");
        single.args(["--single", "-D"]).arg(self.data_dir());
        single.arg("postgres").stdin(Stdio::piped());
        single.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut single = single.spawn().map_err(Error::of("postgres --single"))?;
        let statement = format!("alter role postgres password '{password}'\n");
        let mut input = single.stdin.take();
        if let Some(input) = &mut input {
            let written = input.write_all(statement.as_bytes());
            written.map_err(Error::of("postgres --single"))?;
        }
        drop(input);
        let ended = single.wait_with_output();
        let ended = ended.map_err(Error::of("postgres --single"))?;
        // In single-user mode the server continues after an error and exits with status 0.
        let said = String::from_utf8_lossy(&ended.stderr);
        if !ended.status.success() || said.contains("ERROR") {
            return Err(Error::new(format!("postgres --single: {}", said.trim())));
        }
        self.password = Some(password);
        Ok(())
    }

    /// Adds lines to the configuration. They take effect at the next start or reload.
    pub fn append_settings(&self, text: &str) -> Result<(), Error> {
        let path = self.data_dir().join("postgresql.auto.conf");
        let old = fs::read_to_string(&path).map_err(Error::of(path.display()))?;
        fs::write(&path, old + text).map_err(Error::of(path.display()))
    }

    /// Starts a stopped or killed server. Returns once it accepts connections.
    pub fn start(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            self.launch()?;
            match self.wait_until_ready(deadline)? {
                None => return Ok(()),
                // After a kill the old backends may hold the shared memory a moment longer.
                Some(_) if Instant::now() < deadline && self.memory_was_in_use() => {
                    std::thread::sleep(POLL);
                }
                Some(status) => {
                    let log = self.log_tail();
                    let remedy = match log.contains("could not access file \"trax\"") {
                        true => {
                            "; install trax there, or name another PostgreSQL: PG_CONFIG=/path/to/bin/pg_config"
                        }
                        false => "",
                    };
                    return Err(Error::new(format!(
                        "{} did not start ({status}){remedy}; its log ends:\n{log}",
                        self.install
                            .command("postgres")
                            .get_program()
                            .to_string_lossy()
                    )));
                }
            }
        }
    }

    fn launch(&mut self) -> Result<(), Error> {
        if self.postmaster.is_some() {
            return Err(Error::new("the server is already running"));
        }
        let log = self.log_file();
        let log = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(Error::of(log.display()))?;
        self.log_before = log.metadata().map_err(Error::of("log"))?.len();
        let mut command = self.install.command("postgres");
        command.arg("-D").arg(self.data_dir()).stdin(Stdio::null());
        command
            .stdout(log.try_clone().map_err(Error::of("log"))?)
            .stderr(log);
        self.postmaster = Some(spawn(command).map_err(Error::of("postgres"))?);
        Ok(())
    }

    /// Waits until the server is ready. Returns the exit status if it ended instead.
    fn wait_until_ready(&mut self, deadline: Instant) -> Result<Option<ExitStatus>, Error> {
        let pid_file = self.data_dir().join("postmaster.pid");
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(Some(status));
            }
            // The first line of postmaster.pid is the process id, which may still be that of the
            // previous process; the eighth is the state, which exists for this purpose.
            let said = fs::read_to_string(&pid_file).unwrap_or_default();
            let mut lines = said.lines();
            let pid = lines.next().and_then(|line| line.trim().parse().ok());
            let state = lines.nth(6).map(str::trim);
            if pid == self.pid() && matches!(state, Some("ready" | "standby")) {
                return Ok(None);
            }
            if Instant::now() >= deadline {
                return Err(Error::new(format!(
                    "the server was not ready in time; its log ends:\n{}",
                    self.log_tail()
                )));
            }
            std::thread::sleep(POLL);
        }
    }

    fn try_wait(&mut self) -> Result<Option<ExitStatus>, Error> {
        let Some(postmaster) = &mut self.postmaster else {
            return Err(Error::new("the server is not running"));
        };
        let ended = postmaster.try_wait().map_err(Error::of("postgres"))?;
        if ended.is_some() {
            self.postmaster = None;
        }
        Ok(ended)
    }

    fn port_was_taken(&self) -> bool {
        self.said_at_start("Address already in use")
    }

    fn memory_was_in_use(&self) -> bool {
        self.said_at_start("shared memory block")
    }

    /// Returns whether the log has a text since the last start.
    fn said_at_start(&self, text: &str) -> bool {
        let log = fs::read(self.log_file()).unwrap_or_default();
        let before = (self.log_before as usize).min(log.len());
        String::from_utf8_lossy(&log[before..]).contains(text)
    }

    /// Stops the server and returns how long that took.
    pub fn stop(&mut self, how: Stop) -> Result<Duration, Error> {
        let number = match how {
            Stop::Fast => libc::SIGINT,
            Stop::Immediate => libc::SIGQUIT,
        };
        self.end(number)
    }

    /// Kills the postmaster with SIGKILL. Its children notice and end.
    pub fn kill(&mut self) -> Result<(), Error> {
        self.end(libc::SIGKILL).map(|_| ())
    }

    /// Reloads the configuration: SIGHUP.
    pub fn reload(&self) -> Result<(), Error> {
        match &self.postmaster {
            Some(postmaster) => signal(postmaster, libc::SIGHUP).map_err(Error::of("reload")),
            None => Err(Error::new("the server is not running")),
        }
    }

    /// Stops the server in mode `Fast` and starts it again.
    pub fn restart(&mut self) -> Result<(), Error> {
        self.stop(Stop::Fast)?;
        self.start()
    }

    fn end(&mut self, number: i32) -> Result<Duration, Error> {
        let begun = Instant::now();
        let Some(postmaster) = &self.postmaster else {
            return Err(Error::new("the server is not running"));
        };
        signal(postmaster, number).map_err(Error::of("signal"))?;
        while self.try_wait()?.is_none() {
            if begun.elapsed() >= STOP_DEADLINE {
                return Err(Error::new(format!(
                    "the server did not stop in time; its log ends:\n{}",
                    self.log_tail()
                )));
            }
            std::thread::sleep(POLL);
        }
        Ok(begun.elapsed())
    }

    /// Returns whether the postmaster runs.
    pub fn is_running(&mut self) -> bool {
        self.postmaster.is_some() && matches!(self.try_wait(), Ok(None))
    }

    /// Returns the postmaster's process id.
    pub fn pid(&self) -> Option<u32> {
        self.postmaster.as_ref().map(Child::id)
    }

    /// Returns the port, which is part of the socket's name and is used on 127.0.0.1 if the server
    /// listens there.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the directory of the socket.
    pub fn socket_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Returns the path of the server's log.
    pub fn log_file(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// Returns the last lines of the log.
    pub fn log_tail(&self) -> String {
        let log = fs::read(self.log_file()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Returns a command for a program of the same installation (`psql`, `pg_dump`), set to connect
    /// to this server.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.install.command(program);
        command
            .env("PGHOST", self.dir.path())
            .env("PGPORT", self.port.to_string());
        command.env("PGUSER", "postgres");
        command
    }

    /// Returns the connection settings of a database of this server: over its socket, as the
    /// superuser.
    pub fn config(&self, database: &str) -> Config {
        let mut config = Config::new();
        config
            .host_path(self.dir.path())
            .port(self.port)
            .user("postgres")
            .dbname(database);
        config
    }

    /// Returns the URL of a database for other programs, as the superuser: through 127.0.0.1 with
    /// the password if the server was made with [`Options::tcp`], otherwise through its socket.
    pub fn url(&self, database: &str) -> String {
        let port = self.port;
        let name = percent_encode(database.as_bytes(), NON_ALPHANUMERIC);
        match &self.password {
            Some(password) => {
                format!("postgresql://postgres:{password}@127.0.0.1:{port}/{name}")
            }
            None => {
                let directory = self.dir.path().as_os_str().as_bytes();
                let directory = percent_encode(directory, NON_ALPHANUMERIC);
                format!("postgresql://postgres@/{name}?host={directory}&port={port}")
            }
        }
    }

    /// Returns the command that opens psql on a database.
    pub fn psql(&self, database: &str) -> String {
        format!(
            "psql -h {} -p {} -U postgres {database}",
            self.dir.path().display(),
            self.port
        )
    }

    /// Returns an existing database.
    pub fn existing(&self, name: &str) -> Database {
        Database {
            name: name.to_owned(),
            config: self.config(name),
        }
    }

    /// Returns a new, empty database.
    pub async fn plain_database(&self, name: &str) -> Result<Database, Error> {
        let client = self.existing("postgres").connect().await?;
        client
            .batch_execute(&format!("create database {}", quoted(name)))
            .await?;
        Ok(self.existing(name))
    }

    /// Returns a new database with the extension.
    pub async fn database(&self, name: &str) -> Result<Database, Error> {
        let database = self.plain_database(name).await?;
        database
            .connect()
            .await?
            .batch_execute("create extension trax")
            .await?;
        Ok(database)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.is_running()
            && let Err(error) = self.stop(Stop::Immediate)
        {
            eprintln!("trax testkit: {error}");
        }
    }
}
