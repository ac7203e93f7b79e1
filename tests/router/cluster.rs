//! Three servers as shards, and a database as their router.

use harness::session::Session;
use harness::shared_server;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use trax_client::testkit::{Database, Server};

/// Whether this PostgreSQL has PL/Proxy.
pub(crate) fn has_plproxy() -> bool {
    harness::has_plproxy(shared_server())
}

/// A server for a shard; its databases have no schedulers, and the tests call `trax.tick()`.
pub(crate) fn shard_server() -> Server {
    harness::options()
        .fast()
        // An acknowledged commit must survive a kill.
        .setting("synchronous_commit", "on")
        .setting("trax.databases", "no_database_has_this_name")
        .start()
        .expect("a server starts")
}

/// The servers of the shards 1, 2 and 3, shared by all tests that do not stop one.
pub(crate) fn servers() -> &'static [Server; 3] {
    static SERVERS: OnceLock<[Server; 3]> = OnceLock::new();
    SERVERS.get_or_init(|| [shard_server(), shard_server(), shard_server()])
}

/// A router on the shared server, with a session in it and one in each shard.
pub(crate) struct Cluster {
    pub(crate) database: Database,
    pub(crate) router: Session,
    pub(crate) shards: Vec<(Database, Session)>,
}

/// Returns the arguments `number` and `address` of a shard.
pub(crate) fn address(server: &Server, database: &Database, number: usize) -> String {
    format!(
        "{number}, 'host=127.0.0.1 port={} dbname={}'",
        server.port(),
        database.name()
    )
}

/// A new database with the extension and this shard number on a server.
pub(crate) async fn shard(server: &Server, number: usize) -> (Database, Session) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("shard_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let database = harness::database::clone(server, &name).await;
    let database = database.expect("a database is made");
    let session = Session::of(&database).await;
    session
        .get(&format!("select trax.set_shard({number})"))
        .await;
    (database, session)
}

impl Cluster {
    /// A cluster of the shards from 1 to `count`.
    pub(crate) async fn of(count: usize) -> Self {
        Self::on(&servers().each_ref()[..count]).await
    }

    /// A cluster with shards on these servers, numbered from 1.
    pub(crate) async fn on(servers: &[&Server]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("router_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let made = shared_server().plain_database(&name).await;
        let database = made.expect("a database is made");
        let router = Session::of(&database).await;
        router.get("create extension trax_router cascade").await;
        let mut cluster = Cluster {
            database,
            router,
            shards: Vec::new(),
        };
        for server in servers {
            cluster.add(server).await;
        }
        cluster
            .router
            .get("select trax_router.spread_places()")
            .await;
        cluster
    }

    /// Adds a shard, which has no place yet.
    pub(crate) async fn add(&mut self, server: &Server) {
        let number = self.shards.len() + 1;
        let (database, session) = shard(server, number).await;
        let add = format!(
            "select trax_router.add_shard({})",
            address(server, &database, number)
        );
        self.router.get(&add).await;
        self.shards.push((database, session));
    }

    /// Returns a group name whose hash belongs to this shard.
    pub(crate) async fn group_on(&self, shard: usize) -> String {
        let sql = format!(
            "select 'g' || n from generate_series(1, 1000) n
            where trax_router.shard_of_group('g' || n) = {shard} limit 1"
        );
        self.router.get(&sql).await
    }

    /// The session in a shard.
    pub(crate) fn shard(&self, number: usize) -> &Session {
        &self.shards[number - 1].1
    }
}
