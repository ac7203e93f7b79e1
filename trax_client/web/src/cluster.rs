//! The shards behind a router.
//!
//! Invariants: all shards are queried concurrently as the user. A shard that does not answer is
//! named, and the results of the others are shown; later pages do not wait for it until it answers
//! again. If the router is unavailable, the shards it named before stay visible.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::timeout;
use trax_client::Address;

use crate::database::Database;
use crate::identity::Person;
use crate::moment::length;
use crate::trouble::Trouble;
use crate::work::Purpose;

const SHARDS: &str = include_str!("query/shard_list.sql");

/// How long the router's answer is cached.
const FRESH: Duration = Duration::from_secs(1);
/// How long a page of all shards waits for one of them, if it answered before.
const PATIENCE: Duration = Duration::from_secs(2);

/// The known state of the database at the address.
pub(crate) struct Cluster {
    address: Address,
    /// The database of the address.
    database: Arc<Database>,
    /// The maximum number of connections to a shard.
    connections: usize,
    known: Mutex<Topology>,
}

enum Topology {
    /// The database did not answer; when it was last queried, and the reason.
    Nothing(Option<(Instant, Trouble)>),
    /// The database is not a router.
    Database,
    Router {
        asked: Instant,
        shards: Arc<[Shard]>,
        /// The error of the last query, if it failed.
        trouble: Option<String>,
    },
}

/// A shard as the router lists it.
#[derive(Clone)]
pub(crate) struct Shard {
    pub(crate) number: i32,
    /// The reason why its calls are refused, if it is closed.
    closed: Option<String>,
    address: String,
    database: Option<Arc<Database>>,
}

/// The shards, and the router's last error.
#[derive(Clone)]
pub(crate) struct Shards {
    pub(crate) all: Arc<[Shard]>,
    /// The reason why the router does not answer.
    pub(crate) trouble: Option<String>,
}

/// The database that the site was started for.
#[derive(Clone, Copy)]
pub(crate) struct Home<'d> {
    /// The address where jobs are queued; at a router, which knows the shards of their groups.
    pub(crate) address: &'d Arc<Database>,
    /// The shards of the router.
    pub(crate) shards: Option<&'d Shards>,
}

impl Cluster {
    pub(crate) fn of(address: Address, database: Arc<Database>, connections: usize) -> Self {
        Cluster {
            address,
            database,
            connections,
            known: Mutex::new(Topology::Nothing(None)),
        }
    }

    /// Returns the shards if the database is a router.
    pub(crate) async fn shards(&self) -> Result<Option<Shards>, Trouble> {
        let mut known = self.known.lock().await;
        let before = match &*known {
            Topology::Database => return Ok(None),
            Topology::Router {
                asked,
                shards,
                trouble,
            } => {
                if asked.elapsed() < FRESH {
                    return Ok(Some(Shards {
                        all: Arc::clone(shards),
                        trouble: trouble.clone(),
                    }));
                }
                Some(Arc::clone(shards))
            }
            // Callers that waited for the lock share the failed answer.
            Topology::Nothing(Some((asked, trouble))) if asked.elapsed() < FRESH => {
                return Err(trouble.clone());
            }
            Topology::Nothing(_) => None,
        };
        // Without a list from before there is nothing to show meanwhile.
        let answer = match &before {
            Some(shards) => patiently(&self.database, self.ask(Some(shards))).await,
            None => self.ask(None).await,
        };
        let (shards, trouble) = match (answer, before) {
            (Ok(Some(shards)), _) => (shards, None),
            (Ok(None), _) => {
                *known = Topology::Database;
                return Ok(None);
            }
            (Err(trouble), Some(before)) => (before, Some(trouble.words())),
            (Err(trouble), None) => {
                *known = Topology::Nothing(Some((Instant::now(), trouble.clone())));
                return Err(trouble);
            }
        };
        *known = Topology::Router {
            asked: Instant::now(),
            shards: Arc::clone(&shards),
            trouble: trouble.clone(),
        };
        Ok(Some(Shards {
            all: shards,
            trouble,
        }))
    }

    /// Queries the database. Connections to shards with an unchanged address are kept.
    async fn ask(&self, before: Option<&[Shard]>) -> Result<Option<Arc<[Shard]>>, Trouble> {
        let nobody = Person::default();
        let work = self.database.pool.begin(&nobody, Purpose::Read).await?;
        if !work.is_router().await? {
            work.commit().await?;
            return Ok(None);
        }
        let rows = work.rows(SHARDS, &[]).await?;
        work.commit().await?;
        let shard = |row: &tokio_postgres::Row| -> Result<Shard, Trouble> {
            let (number, address): (i32, String) =
                (row.try_get("number")?, row.try_get("address")?);
            let kept = before.unwrap_or_default().iter();
            let mut kept = kept.filter(|shard| shard.number == number && shard.address == address);
            let database = match kept.next() {
                Some(shard) => shard.database.clone(),
                // A shard with an invalid address counts as unavailable.
                None => address.parse::<Address>().ok().map(|shard| {
                    let shard = shard.completed_by(&self.address);
                    Arc::new(Database::new(shard, self.connections))
                }),
            };
            Ok(Shard {
                number,
                closed: row.try_get("closed")?,
                address,
                database,
            })
        };
        rows.iter().map(shard).collect::<Result<_, _>>().map(Some)
    }
}

impl Shard {
    /// Returns the shard's database, unless the shard is closed.
    pub(crate) fn database(&self) -> Result<&Arc<Database>, Trouble> {
        if let Some(why) = &self.closed {
            let message = format!("shard {} is closed", self.number);
            let mut trouble = Trouble::new(StatusCode::SERVICE_UNAVAILABLE, message);
            trouble.detail = Some(why.clone());
            return Err(trouble.hint(format!(
                "When it may be called again, type at the router: select trax_router.open_shard({})",
                self.number
            )));
        }
        self.database
            .as_ref()
            .ok_or_else(|| Trouble::unknown("its address is not valid").of_shard(self.number))
    }
}

impl Shards {
    /// Invalidates all cached answers after an act, which may have used the router.
    pub(crate) fn forget(&self) {
        for database in self.all.iter().filter_map(|shard| shard.database.as_ref()) {
            database.glances.forget();
        }
    }

    pub(crate) fn find(&self, number: i32) -> Result<&Shard, Trouble> {
        let found = self.all.iter().find(|shard| shard.number == number);
        found.ok_or_else(|| Trouble::missing(format!("the router has no shard {number}")))
    }

    /// Queries all shards concurrently. A shard that does not answer in time yields an error.
    pub(crate) async fn each<T, F>(
        &self,
        ask: impl Fn(i32, Arc<Database>) -> F,
    ) -> Vec<(i32, Result<T, Trouble>)>
    where
        F: Future<Output = Result<T, Trouble>>,
    {
        let asked: Vec<_> = self
            .all
            .iter()
            .map(|shard| {
                let number = shard.number;
                let asked = shard.database().map(|d| (d, ask(number, Arc::clone(d))));
                async move {
                    let answer = match asked {
                        Ok((database, asked)) => patiently(database, asked).await,
                        Err(trouble) => return (number, Err(trouble)),
                    };
                    (number, answer.map_err(|trouble| trouble.of_shard(number)))
                }
            })
            .collect();
        join_all(asked).await
    }
}

/// Waits for the answer of a database for a while, but not if it did not answer before.
async fn patiently<T>(
    database: &Arc<Database>,
    asked: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    if let Some(since) = database.silent_since() {
        let seconds = since.elapsed().as_secs_f64();
        return Err(
            Trouble::unknown(format!("no answer for {}", length(seconds)))
                .hint("This page does not wait for it, and shows it again when it answers."),
        );
    }
    match timeout(PATIENCE, asked).await {
        Ok(answer) => answer,
        Err(_) => {
            database.watch();
            let cause = format!("no answer within {} s", PATIENCE.as_secs());
            Err(Trouble::unknown(cause))
        }
    }
}
