//! The shards behind a router: their pages, and pages that combine all of them.
//!
//! The pages of a *shard* are those of one database, under `shards/N`. Without a number the page
//! combines all shards: a list has a part for each.
//!
//! Invariants: all shards are queried concurrently as the user. A shard that does not answer is
//! named, and the results of the others are shown. If the router is unavailable, the shards it
//! named before stay visible. An act is performed on each shard independently.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::response::Response;
use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::types::Type;
use trax_client::Address;

use crate::acts::{self, Scope, Target};
use crate::database::Database;
use crate::dispatch::{self, Shared};
use crate::identity::Person;
use crate::trouble::Trouble;
use crate::visit::{Place, Values, Visit};
use crate::work::{Purpose, Work};
use crate::{live, pages};

const SHARDS: &str = include_str!("query/shard_list.sql");
const SHARDS_OF_GROUP: &str = include_str!("query/group_shards.sql");

/// How long the router's answer is cached.
const FRESH: Duration = Duration::from_secs(1);
/// How long a page of all shards waits for one of them.
const PATIENCE: Duration = Duration::from_secs(5);

/// The known state of the database at the address.
pub(crate) struct Cluster {
    address: Address,
    known: Mutex<Known>,
}

enum Known {
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

impl Cluster {
    pub(crate) fn of(address: Address) -> Self {
        Cluster {
            address,
            known: Mutex::new(Known::Nothing(None)),
        }
    }

    /// Returns the shards if the database is a router.
    pub(crate) async fn shards(&self, shared: &Shared) -> Result<Option<Shards>, Trouble> {
        let mut known = self.known.lock().await;
        let before = match &*known {
            Known::Database => return Ok(None),
            Known::Router {
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
            Known::Nothing(Some((asked, trouble))) if asked.elapsed() < FRESH => {
                return Err(trouble.clone());
            }
            Known::Nothing(_) => None,
        };
        let answer = self.ask(shared, before.as_deref()).await;
        let (shards, trouble) = match (answer, before) {
            (Ok(Some(shards)), _) => (shards, None),
            (Ok(None), _) => {
                *known = Known::Database;
                return Ok(None);
            }
            (Err(trouble), Some(before)) => (before, Some(trouble.words())),
            (Err(trouble), None) => {
                *known = Known::Nothing(Some((Instant::now(), trouble.clone())));
                return Err(trouble);
            }
        };
        *known = Known::Router {
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
    async fn ask(
        &self,
        shared: &Shared,
        before: Option<&[Shard]>,
    ) -> Result<Option<Arc<[Shard]>>, Trouble> {
        let nobody = Person::default();
        let work = shared.database.pool.begin(&nobody, Purpose::Read).await?;
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
                    Arc::new(Database::new(shard, shared.options.connections))
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
            .ok_or_else(|| Trouble::unknown("its address is no address").of_shard(self.number))
    }
}

impl Shards {
    /// Invalidates all cached answers after an act, which may have used the router.
    fn forget(&self) {
        for database in self.all.iter().filter_map(|shard| shard.database.as_ref()) {
            database.glances.forget();
        }
    }

    fn find(&self, number: i32) -> Result<&Shard, Trouble> {
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
                let asked = shard.database().map(|d| ask(number, Arc::clone(d)));
                async move {
                    let answer = match asked {
                        Ok(asked) => timeout(PATIENCE, asked).await,
                        Err(trouble) => return (number, Err(trouble)),
                    };
                    let answer =
                        answer.unwrap_or_else(|_| Err(Trouble::unknown("no answer within 5 s")));
                    (number, answer.map_err(|trouble| trouble.of_shard(number)))
                }
            })
            .collect();
        join_all(asked).await
    }
}

/// Returns the shards if the address is a router's, and records them in the visit.
pub(crate) async fn enter(shared: &Shared, visit: &mut Visit) -> Result<Option<Shards>, Trouble> {
    let shards = shared.cluster.shards(shared).await?;
    if let Some(shards) = &shards {
        visit.place = Some(Place {
            home: visit.base.clone(),
            shards: shards.all.iter().map(|shard| shard.number).collect(),
            shard: None,
        });
    }
    Ok(shards)
}

/// Returns the shard that a path names, and the rest of the path.
fn split<'s>(shards: &'s Shards, path: &str) -> Result<Option<(&'s Shard, String)>, Trouble> {
    let mut words = path.splitn(3, '/');
    let (Some("shards"), Some(number)) = (words.next(), words.next()) else {
        return Ok(None);
    };
    let number = number
        .parse()
        .map_err(|_| Trouble::missing("there is no such page"))?;
    let rest = words.next().unwrap_or_default().to_owned();
    shards.find(number).map(|shard| Some((shard, rest)))
}

/// Returns the page of a path.
pub(crate) async fn show(
    shared: &Arc<Shared>,
    shards: &Shards,
    visit: &mut Visit,
) -> Result<Response, Trouble> {
    if let Some((shard, path)) = split(shards, &visit.path)? {
        let home = std::mem::replace(visit, visit.of_shard(shard.number, &path));
        let shown =
            dispatch::show(shared, shard.database()?, shared.home(Some(shards)), visit).await;
        return match (shown, visit.words().as_slice()) {
            // Its group may have moved to another shard.
            (Err(trouble), ["jobs", id]) if trouble.status == StatusCode::NOT_FOUND => {
                dispatch::redirect(&home.link(&format!("jobs/{id}")))
            }
            (shown, _) => shown.map_err(|trouble| trouble.of_shard(shard.number)),
        };
    }
    match visit.words().as_slice() {
        ["live"] => live::of_shards(shared, shards, visit).await,
        ["act", name] => {
            let targets = targets(shared, shards, visit, name, &visit.query).await?;
            Ok(dispatch::page(acts::ask(&targets, visit, name).await?))
        }
        [kind @ ("jobs" | "manifests"), name] => {
            let shard = pages::shard_that_has(shards, visit, kind, name).await?;
            dispatch::redirect(&format!("{}/shards/{shard}/{}", visit.base, visit.path))
        }
        words => Ok(dispatch::page(
            pages::show_all(shared, shards, visit, words).await?,
        )),
    }
}

/// Performs the act of a form: on the shard in the path, or on all shards that it concerns.
pub(crate) async fn act(
    shared: &Arc<Shared>,
    shards: &Shards,
    visit: &mut Visit,
    form: &Values,
) -> Result<Response, Trouble> {
    if let Some((shard, path)) = split(shards, &visit.path)? {
        *visit = visit.of_shard(shard.number, &path);
        let done = dispatch::act(shard.database()?, shared.home(Some(shards)), visit, form).await;
        shards.forget();
        return done.map_err(|trouble| trouble.of_shard(shard.number));
    }
    let name = visit.act()?;
    let targets = targets(shared, shards, visit, name, form).await?;
    Ok(dispatch::page(
        acts::perform(&targets, visit, name, form).await?,
    ))
}

/// Returns the shards on which the act is performed.
async fn targets<'s>(
    shared: &'s Shared,
    shards: &'s Shards,
    visit: &Visit,
    name: &str,
    values: &Values,
) -> Result<Vec<Target<'s>>, Trouble> {
    let home = shared.home(Some(shards));
    let target = |shard: &'s Shard| Target::of(shard.number, shard.database(), home);
    match acts::scope(name)? {
        Scope::Database => Ok(shards.all.iter().map(target).collect()),
        Scope::Row => Err(Trouble::invalid("this is done on the page of one shard")),
        Scope::Group => {
            let group = values.get("group");
            let work = shared
                .database
                .pool
                .begin(&visit.person, Purpose::Read)
                .await?;
            let numbers = group_shards(&work, group).await?;
            work.commit().await?;
            numbers
                .into_iter()
                .map(|number| Ok(target(shards.find(number)?)))
                .collect()
        }
    }
}

async fn group_shards(work: &Work<'_>, group: Option<&str>) -> Result<Vec<i32>, Trouble> {
    let rows = work.rows(SHARDS_OF_GROUP, &[(&group, Type::TEXT)]).await?;
    let number = |row: &tokio_postgres::Row| Ok(row.try_get("number")?);
    rows.iter().map(number).collect()
}
