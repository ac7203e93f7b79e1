//! The testbed of a campaign: a server and its standby, routes to it, a pooler, roles, groups and
//! manifests.

use crate::fact::{Kind, Schedule};
use crate::graph::RATE;
use crate::wire::Wire;
use crate::workflow;
use harness::pooler::Pooler;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio_postgres::{Client, Config, NoTls};
use trax_client::testkit::{Options, Server};

/// The database of the campaign.
pub(crate) const DATABASE: &str = "chaos";
/// The prefix of a shard's database name; its number follows.
pub(crate) const SHARD: &str = "shard_";
/// The time limit of the driver's own actions.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The number of routes to the server: two for workers, and one each for the pooler, the producers,
/// the SQL callers and the workers in other languages.
pub(crate) const ROUTES: usize = 6;
pub(crate) const POOLER: usize = 1;
pub(crate) const PRODUCERS: usize = 3;
pub(crate) const CALLERS: usize = 4;
pub(crate) const OTHERS: usize = 5;

/// Groups with a limit.
pub(crate) const GROUPS: [(&str, i64); 2] = [("two", 2), ("five", 5)];

/// The group whose limit changes, and its usual limit.
pub(crate) const CHANGED: (&str, i64) = GROUPS[1];

/// The limit on running jobs of the database.
pub(crate) const DATABASE_LIMIT: i64 = 20;

/// Manifests that may run more than one job at once.
pub(crate) const MANIFEST_LIMITS: [(&str, i64); 1] = [("wide", 2)];

/// A manifest in the zone whose data changes; never due during a campaign.
pub(crate) const ZONED: &str = "zoned";

/// The manifests: name, arguments of `trax.schedule`, and expected occurrences.
const MANIFESTS: [(&str, &str, Kind); 9] = [
    ("seconds", "cron => '* * * * * *'", Kind::Some(1)),
    (
        "all",
        "cron => '*/2 * * * * *', misfire => 'fire_all', misfire_threshold => '1 s', misfire_limit => 100000",
        Kind::All(2),
    ),
    ("minutes", "cron => '* * * * *'", Kind::Some(60)),
    (
        "wide",
        "cron => '* * * * * *', max_concurrency => 2, input => '{\"nap\": 1500}'",
        Kind::Some(1),
    ),
    ("steady", "every => '3 s'", Kind::Every(3)),
    ("child", "depends_on => '{steady}'", Kind::After(Cow::Borrowed("steady"))),
    (
        "grandchild",
        "depends_on => '{child}'",
        Kind::After(Cow::Borrowed("child")),
    ),
    (
        ZONED,
        "cron => format('0 %s * * *', to_char(now() at time zone 'Europe/Berlin' + interval '12 h', 'FMHH24')),
            timezone => 'Europe/Berlin'",
        Kind::Some(3600),
    ),
    (
        "once",
        "run_at => clock_timestamp() + interval '15 s'",
        Kind::Once,
    ),
];

/// Microseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
}

/// The address of the primary, shared with sessions that bypass the routes.
#[derive(Clone)]
pub(crate) struct Address(Arc<Mutex<Config>>);

impl Address {
    /// A database of a server.
    pub(crate) fn of(server: &Server, database: &str) -> Self {
        Address(Arc::new(Mutex::new(server.config(database))))
    }

    fn set(&self, server: &Server) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = server.config(DATABASE);
    }

    /// Opens a superuser session.
    pub(crate) async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        self.connect_as("postgres").await
    }

    /// Opens a session of another role.
    pub(crate) async fn connect_as(&self, role: &str) -> Result<Client, tokio_postgres::Error> {
        let mut config = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        // The driver must not wait for a synchronous standby that is down, since it has to start
        // it.
        connect(config.user(role).options("-c synchronous_commit=local")).await
    }
}

/// A superuser session, once the server accepts connections.
pub(crate) async fn admin(address: &Address, server: &Server) -> Client {
    harness::eventually("the server takes a session", PATIENCE, async || {
        let client = address.connect().await;
        let client = client.map_err(|error| format!("{error}; {}", server.log_tail()))?;
        let answer = client.simple_query("select 1").await;
        answer.map(|_| client).map_err(|error| error.to_string())
    })
    .await
}

/// The server options of every campaign.
pub(crate) fn options() -> Options {
    harness::options()
        // The machine itself does not crash, so completed writes are kept.
        .setting("fsync", "off")
        .setting("full_page_writes", "off")
        .setting("max_worker_processes", "32")
        .setting("shared_buffers", "64MB")
}

/// Settings of trax that make failed jobs retry soon.
pub(crate) fn with_trax(options: Options, database: &str) -> Options {
    options
        .setting("trax.retry_delay", "300 ms")
        .setting("trax.retry_backoff", "1")
        .setting("trax.databases", database)
}

/// Opens a session.
pub(crate) async fn connect(config: &Config) -> Result<Client, tokio_postgres::Error> {
    let mut config = config.clone();
    config.connect_timeout(Duration::from_secs(5));
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(async move {
        // The client receives the same error on its next call.
        connection.await.ok();
    });
    Ok(client)
}

/// The servers, and the routes between them and the clients.
pub(crate) struct Testbed {
    pub(crate) primary: Server,
    pub(crate) standby: Option<Server>,
    /// Whether a commit waits for the standby.
    pub(crate) synchronous: bool,
    pub(crate) wire: Wire,
    pub(crate) address: Address,
    pooler: Pooler,
}

impl Testbed {
    /// Creates the servers, the database, roles, groups and manifests.
    pub(crate) async fn new(synchronous: bool) -> Self {
        let primary = with_trax(options(), DATABASE)
            .setting("max_prepared_transactions", "10")
            .setting("max_connections", "100")
            .setting("hot_standby_feedback", "on")
            // Keeps WAL that a standby has not received yet because it is down or stalled.
            .setting("wal_keep_size", "2GB")
            .setting("wal_receiver_timeout", "10s")
            .setting("trax.max_active_jobs", DATABASE_LIMIT.to_string())
            .start()
            .expect("a server starts");
        let database = primary.database(DATABASE).await;
        let client = database.expect("a database is made").connect().await;
        prepare(&client.expect("the server takes us")).await;
        let standby = primary.standby().expect("a standby starts");
        if synchronous {
            // The standby also gets the setting, since it may become the primary.
            for server in [&primary, &standby] {
                let text = "synchronous_standby_names = '*'\n";
                let written = server.append_settings(text);
                written.expect("the configuration can be written");
                server.reload().expect("the server runs");
            }
        }
        let wire = Wire::new(ROUTES, primary.port()).await;
        let place = format!("host=127.0.0.1 port={} user=worker", wire.port(POOLER));
        let pooler = Pooler::to(&primary, &place, 8).await;
        Testbed {
            address: Address::of(&primary, DATABASE),
            primary,
            standby: Some(standby),
            synchronous,
            wire,
            pooler,
        }
    }

    /// The connection settings of a client on a route.
    pub(crate) fn route(&self, route: usize, role: &str) -> Config {
        let port = match route {
            POOLER => self.pooler.port(),
            _ => self.wire.port(route),
        };
        let mut config = Config::new();
        config
            .host("127.0.0.1")
            .port(port)
            .user(role)
            .dbname(DATABASE);
        config
    }

    /// The same as a URL.
    pub(crate) fn url(&self, route: usize, role: &str) -> String {
        let port = self.route(route, role).get_ports()[0];
        format!("postgresql://{role}@127.0.0.1:{port}/{DATABASE}")
    }

    /// A superuser session, once the server accepts connections.
    pub(crate) async fn admin(&self) -> Client {
        admin(&self.address, &self.primary).await
    }

    /// Makes the standby the primary and drops the old primary.
    pub(crate) fn take_over(&mut self) {
        if let Some(standby) = self.standby.take() {
            self.primary = standby;
            self.address.set(&self.primary);
            self.wire.move_to(self.primary.port());
        }
    }
}

async fn prepare(client: &Client) {
    let mut sql = "
        create role producer login;
        create role worker login;
        create role caller login;
        create role watcher login;
        select trax.grant_access('watcher', 'reader');
        select trax.grant_access('producer', 'producer');
        select trax.grant_access('worker', 'worker');
        select trax.grant_access('caller', 'admin');
        create table public.ledger (job_id bigint not null, nonce text not null, at timestamptz default clock_timestamp());
        grant insert, select on public.ledger to caller;
    "
    .to_owned();
    sql += workflow::TABLE;
    for (group, limit) in GROUPS {
        sql += &format!("select trax.configure_group('{group}', max_active_jobs => {limit});\n");
    }
    sql += &format!(
        "select trax.configure_rate('{}', {}, '1 s', {});\n",
        RATE.name, RATE.allowed, RATE.burst
    );
    for (name, when, _) in MANIFESTS {
        sql += &format!("select trax.schedule('{name}', 'tick', {when}, max_retries => 1000);\n");
    }
    client
        .batch_execute(&sql)
        .await
        .expect("the testbed is prepared");
}

/// The expected occurrences of the manifests.
pub(crate) fn schedules() -> Vec<Schedule> {
    let schedule = |(name, _, kind): (&str, &str, Kind)| Schedule {
        name: name.to_owned(),
        kind,
    };
    MANIFESTS.into_iter().map(schedule).collect()
}
