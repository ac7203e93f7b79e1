//! The outbox in a database without the extension, and `trax relay`, which carries its rows.

mod blocked;
mod carry;
mod failover;
mod fault;
mod killed;
mod outbox;
mod result;
mod several;
mod slow;
mod stranger;
mod text;

use harness::process::{Process, run, run_quietly, trax_binary};
use harness::scheduler::new_name;
use harness::session::{Session, session as session_with_trax};
use harness::shared_server;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use trax_client::testkit::{Database, Server};

/// A file of `sql/relay/`.
fn sql_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../sql/relay")
        .join(name)
}

/// Runs a file of `sql/relay/` as its header says.
pub(crate) fn play(server: &Server, database: &Database, file: &str) {
    let mut psql = server.command("psql");
    psql.args(["-q", "-v", "ON_ERROR_STOP=1", "--single-transaction"])
        .args(["-d", database.name(), "-f"])
        .arg(sql_file(file))
        .env("PGOPTIONS", "-c client_min_messages=warning");
    run_quietly(&mut psql);
}

const JOBS: &str = "select count(*) || ' ' || count(distinct task) from trax.work_queue";
const WAITING: &str = "select count(*) from trax_outbox.entry";

/// A new database of a server, with an outbox and without the extension, and a session in it.
async fn outbox_on(server: &Server) -> (Database, Session) {
    let name = new_name("outbox");
    harness::database::drop_after_test(server, &name);
    let database = server.plain_database(&name).await;
    let database = database.expect("a database is made");
    play(server, &database, "outbox.sql");
    let session = Session::of(&database).await;
    (database, session)
}

/// A database and a session in it.
struct Side {
    database: Database,
    session: Session,
}

impl Side {
    fn database(&self) -> &Database {
        &self.database
    }
}

impl Deref for Side {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

/// An outbox and a target for it, on the shared server.
async fn pair() -> (Side, Side) {
    let (database, session) = outbox_on(shared_server()).await;
    (Side { database, session }, a_target().await)
}

/// A target for an outbox, on the shared server.
async fn a_target() -> Side {
    let (database, session) = session_with_trax().await;
    play(shared_server(), &database, "relay.sql");
    Side { database, session }
}

/// A relay to start: its addresses and arguments.
struct Relay {
    from: Vec<Config>,
    to: Config,
    also_to: Vec<Config>,
    arguments: Vec<String>,
}

fn trax_relay(source: &Side, target: &Side) -> Relay {
    Relay {
        from: vec![source.database.config()],
        to: target.database.config(),
        also_to: Vec::new(),
        arguments: Vec::new(),
    }
}

/// The address of a database as an argument of the command, without TLS, which the tests' proxies
/// do not support.
fn url(config: &Config) -> String {
    let host = match &config.get_hosts()[0] {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    };
    format!(
        "host={host} port={} user={} dbname={} sslmode=disable",
        config.get_ports()[0],
        config.get_user().expect("a user"),
        config.get_dbname().expect("a database")
    )
}

/// The address of the same database through a proxy.
fn through(config: &Config, port: u16) -> Config {
    let mut proxied = Config::new();
    proxied
        .host("127.0.0.1")
        .port(port)
        .user(config.get_user().expect("a user"))
        .dbname(config.get_dbname().expect("a database"));
    proxied
}

impl Relay {
    fn side(database: Database, session: Session) -> Side {
        Side { database, session }
    }

    fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments
            .extend(arguments.iter().map(|&text| text.to_owned()));
        self
    }

    fn role(mut self, role: &str) -> Self {
        self.from[0].user(role);
        self.to.user(role);
        self
    }

    fn and(mut self, source: &Side) -> Self {
        self.from.push(source.database.config());
        self
    }

    fn and_to(mut self, target: &Side) -> Self {
        self.also_to.push(target.database.config());
        self
    }

    fn source_port(mut self, port: u16) -> Self {
        self.from[0] = through(&self.from[0], port);
        self
    }

    fn target_port(mut self, port: u16) -> Self {
        self.to = through(&self.to, port);
        self
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(trax_binary());
        command.arg("relay").args(["--to", &url(&self.to)]);
        for to in &self.also_to {
            command.args(["--to", &url(to)]);
        }
        for from in &self.from {
            command.args(["--from", &url(from)]);
        }
        command.args(&self.arguments).args(more);
        command
    }

    fn start(&self) -> Process {
        Process::start(self.command(&[]))
    }

    /// Carries the waiting rows; must succeed.
    fn once(&self) {
        let (code, _, said) = run(&mut self.command(&["--once"]));
        assert_eq!(code, Some(0), "{said}");
    }
}
