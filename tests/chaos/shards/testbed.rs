//! The testbed of a campaign over shards: a router and its shards, each a separate server behind
//! routes, with roles, groups and manifests. The router knows the routes as the shards' addresses,
//! and workers learn them from the router.

use crate::fact::{Kind, Schedule};
use crate::producer::Market;
use crate::testbed::{Address, DATABASE_LIMIT, SHARD, admin, options, with_trax};
use crate::wire::Wire;
use crate::workflow::TABLE;
use harness::has_plproxy;
use tokio_postgres::{Client, Config};
use trax_client::testkit::Server;

/// The router's database.
const ROUTER: &str = "router";
/// Routes to the router: for the producers, the fleet and the movers.
pub(crate) const PRODUCERS: usize = 0;
pub(crate) const FLEET: usize = 1;
pub(crate) const MOVER: usize = 2;
/// The number of routes to the router, and to a shard.
const ROUTES: [usize; 2] = [3, 1];

/// Groups that stay where they are, and their limits.
pub(crate) const STILL: [(&str, i64); 2] = [("two", 2), ("five", 5)];
/// Groups that move all the time, and their limits.
pub(crate) const MOVING: [(&str, Option<i64>); 3] = [
    ("moving", None),
    ("moving three", Some(3)),
    ("moving clock", None),
];
/// The groups that producers use.
pub(crate) const MARKET: Market = Market {
    groups: &[
        "default",
        "default",
        "two",
        "five",
        "free",
        "moving",
        "moving",
        "moving three",
    ],
    moving: &["moving", "moving three", "moving clock"],
    has_router: true,
};

/// Manifests of the first shard's clock group and of the moving group: the name without the group,
/// and the schedule.
const MANIFESTS: [(&str, &str); 5] = [
    ("seconds", "cron => '* * * * * *'"),
    (
        "all",
        "cron => '*/2 * * * * *', misfire => 'fire_all', misfire_threshold => '1 s', misfire_limit => 100000",
    ),
    ("steady", "every => '3 s'"),
    ("child", "depends_on => '{GROUP steady}'"),
    ("once", "run_at => clock_timestamp() + interval '15 s'"),
];

/// A server and the routes to it.
pub(crate) struct Site {
    pub(crate) name: String,
    /// The shard number; `None` for the router.
    pub(crate) number: Option<i32>,
    pub(crate) server: Server,
    pub(crate) wire: Wire,
    pub(crate) address: Address,
    /// Whether all its processes are stopped.
    pub(crate) is_frozen: bool,
}

impl Site {
    async fn new(number: Option<i32>) -> Option<Self> {
        let (name, options) = match number {
            Some(number) => {
                let name = format!("{SHARD}{number}");
                let limit = DATABASE_LIMIT.to_string();
                let options = with_trax(options(), &name).setting("trax.max_active_jobs", limit);
                (name, options)
            }
            None => (ROUTER.to_owned(), options().not_preloaded()),
        };
        let server = options.start().expect("a server starts");
        if number.is_none() && !has_plproxy(&server) {
            return None;
        }
        let made = match number {
            Some(_) => server.database(&name).await,
            None => server.plain_database(&name).await,
        };
        made.expect("a database is made");
        let routes = ROUTES[usize::from(number.is_some())];
        let wire = Wire::new(routes, server.port()).await;
        let site = Site {
            address: Address::of(&server, &name),
            name,
            number,
            wire,
            server,
            is_frozen: false,
        };
        site.prepare().await;
        Some(site)
    }

    /// Creates the roles and their rights in a shard.
    async fn prepare(&self) {
        let mut sql = "
            create role producer login;
            create role worker login;
            create role watcher login;
            create role mover login superuser;
        "
        .to_owned();
        sql += &match self.number {
            Some(number) => format!(
                "select trax.set_shard({number});
                select trax.grant_access('producer', 'admin');
                select trax.grant_access('worker', 'worker');
                select trax.grant_access('watcher', 'reader');
                {TABLE}"
            ),
            None => "create extension trax_router cascade;".to_owned(),
        };
        let prepared = self.admin().await.batch_execute(&sql).await;
        prepared.expect("the site is prepared");
    }

    /// A superuser session, once the server accepts connections.
    pub(crate) async fn admin(&self) -> Client {
        admin(&self.address, &self.server).await
    }

    /// The connection settings of a role over a route.
    pub(crate) fn route(&self, route: usize, role: &str) -> Config {
        let mut config = Config::new();
        config
            .host("127.0.0.1")
            .port(self.wire.port(route))
            .user(role)
            .dbname(&self.name);
        config
    }

    /// The same as a URL.
    pub(crate) fn url(&self, route: usize, role: &str) -> String {
        let port = self.wire.port(route);
        format!("postgresql://{role}@127.0.0.1:{port}/{}", self.name)
    }
}

/// The group of a shard that never moves.
pub(crate) fn clock(shard: i32) -> String {
    format!("clock {shard}")
}

/// The statements that add a shard to the cluster, which may be repeated; each runs separately.
pub(crate) fn joining(shard: &Site) -> Vec<String> {
    let number = shard.number.expect("it is a shard");
    let (port, clock) = (shard.wire.port(0), clock(number));
    vec![
        format!(
            "select trax_router.add_shard({number}, 'host=127.0.0.1 port={port} dbname={}')",
            shard.name
        ),
        "select trax_router.spread_places()".to_owned(),
        format!("select trax_router.place_group('{clock}', {number})"),
        // The router checks the rights of its users; rights inside the shards stay as they are.
        "select trax.grant_access('producer', 'admin'), trax.grant_access('worker', 'worker')"
            .to_owned(),
        schedule(&clock, MANIFESTS[0]),
    ]
}

fn schedule(group: &str, (name, when): (&str, &str)) -> String {
    let when = when.replace("{GROUP", &format!("{{{group}"));
    format!(
        "select trax.schedule('{group} {name}', 'tick', {when}, max_retries => 1000, group_name => '{group}')"
    )
}

/// Groups that have all the manifests.
fn clocks() -> [String; 2] {
    [clock(1), MOVING[2].0.to_owned()]
}

/// The expected occurrences of the manifests.
pub(crate) fn schedules(shards: i32) -> Vec<Schedule> {
    let mut schedules = Vec::new();
    let mut known = |name: String, kind| schedules.push(Schedule { name, kind });
    for group in clocks() {
        known(format!("{group} all"), Kind::All(2));
        known(format!("{group} steady"), Kind::Every(3));
        known(
            format!("{group} child"),
            Kind::After(format!("{group} steady").into()),
        );
        known(format!("{group} once"), Kind::Once);
    }
    for group in (1..=shards).map(clock).chain([MOVING[2].0.to_owned()]) {
        known(format!("{group} seconds"), Kind::Some(1));
    }
    schedules
}

/// The router and its shards.
pub(crate) struct Testbed {
    pub(crate) router: Site,
    pub(crate) shards: Vec<Site>,
}

impl Testbed {
    /// Makes this many shards. The last one is not yet known to the router, if there are enough.
    /// Returns `None` if PL/Proxy is not installed.
    pub(crate) async fn new(shards: i32) -> Option<Self> {
        let router = Site::new(None).await?;
        let mut made = Vec::new();
        for number in 1..=shards {
            made.extend(Site::new(Some(number)).await);
        }
        let testbed = Testbed {
            router,
            shards: made,
        };
        let client = testbed.router.admin().await;
        let first = testbed.shards.len().saturating_sub(1).max(1);
        let mut sql: Vec<String> = testbed.shards[..first].iter().flat_map(joining).collect();
        for (group, limit) in STILL {
            sql.push(format!(
                "select trax.configure_group('{group}', max_active_jobs => {limit})"
            ));
        }
        for (group, limit) in MOVING {
            let limit = limit.map_or("null".to_owned(), |limit| limit.to_string());
            sql.push(format!(
                "select trax.configure_group('{group}', max_active_jobs => {limit})"
            ));
        }
        for group in clocks() {
            sql.extend(MANIFESTS.map(|manifest| schedule(&group, manifest)));
        }
        for sql in sql {
            let done = client.batch_execute(&sql).await;
            done.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        }
        Some(testbed)
    }

    /// The router, then the shards.
    pub(crate) fn sites(&self) -> impl Iterator<Item = &Site> {
        std::iter::once(&self.router).chain(&self.shards)
    }

    /// Returns a site; 0 is the router.
    pub(crate) fn site(&mut self, place: usize) -> &mut Site {
        match place {
            0 => &mut self.router,
            _ => &mut self.shards[place - 1],
        }
    }

    /// A superuser session in each shard.
    pub(crate) async fn in_shards(&self) -> Vec<Client> {
        let mut sessions = Vec::new();
        for shard in &self.shards {
            sessions.push(shard.admin().await);
        }
        sessions
    }
}
