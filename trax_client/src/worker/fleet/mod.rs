//! A worker of several databases: one branch for each, including shards that a router adds later.
//!
//! A database *refuses* if it answers the first claim with an error that no retry resolves: a
//! missing right, extension or database. When the worker starts, a refusal ends it, as nothing
//! works yet and an operator is likely watching. Later, or while other shards of a router work, a
//! refusal is reported as trouble and the database is tried again. A worker that ends with its
//! queues then fails at the end, as it has not seen the queue of a database that refused.

mod router;

use tokio::task::JoinSet;

use self::router::{PERIOD, Router};
use super::branch::{Branches, place};
use super::event::Event;
use super::shutdown::Phase;
use super::summary::{Counts, Stopped, Summary};
use crate::address::Address;
use crate::error::{Error, Result};

const NO_SHARD: &str = "the router has no shard, so there is no queue to empty; to add a shard, type there: \
    select trax_router.add_shard(1, 'host=... dbname=...')";

/// Runs a branch for each address, and for each shard of the router, until all have ended.
///
/// # Errors
/// The first refusal that ends the worker; the other branches are then stopped as in any stop. Also
/// the refusal of a shard, if all other queues are empty, and, for a worker that ends with its
/// queues, a router without shards.
pub(super) async fn run<S: Send + Sync + 'static>(
    branches: Branches<S>,
    addresses: Vec<Address>,
    router: Option<Address>,
) -> Result<Summary> {
    branches.health.has_branches();
    let mut phase = branches.shutdown.subscribe();
    let mut router = router.map(|address| Router::new(address, branches.events.clone()));
    let mut fleet = Fleet {
        branches,
        known: Vec::new(),
        running: JoinSet::new(),
        total: Summary::default(),
        unreadable: None,
        failed: None,
    };
    fleet.begin(addresses)?;
    loop {
        let is_stopping = *phase.borrow_and_update() != Phase::Running;
        if fleet.running.is_empty() && (is_stopping || router.is_none()) {
            break;
        }
        let next = async {
            match &mut router {
                Some(router) if !is_stopping => router.shards().await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(ended) = fleet.running.join_next() => {
                match ended {
                    Ok((_, Ok(summary))) => fleet.total.add(&summary),
                    Ok((at, Err(error))) if router.is_some() && fleet.goes_on() => {
                        fleet.try_again(at, error);
                    }
                    Ok((_, Err(error))) => fleet.fail(error),
                    // The branch panicked. The other branches release their jobs.
                    Err(error) => fleet.fail(Error::Conversion(error.into())),
                }
            }
            shards = next => match shards {
                Ok(shards) => {
                    fleet.unreadable = shards.unreadable;
                    fleet.begin(shards.addresses)?;
                    if fleet.known.is_empty() && fleet.branches.setup.until_empty {
                        return Err(Error::Setup(NO_SHARD.to_owned()));
                    }
                }
                Err(error) => {
                    fleet.fail(error);
                    router = None;
                }
            },
            Ok(()) = phase.changed() => {}
        }
    }
    match fleet.failed.take().or_else(|| fleet.unseen()) {
        Some(error) => Err(error),
        None => Ok(fleet.total),
    }
}

/// Returns a key with the hosts, ports and database name. Two addresses that differ in any of them
/// count as two databases.
fn way(address: &Address) -> String {
    let ports = match address.get_ports() {
        [] => &[5432],
        ports => ports,
    };
    format!(
        "{:?} {:?} {ports:?} {:?}",
        address.get_hosts(),
        address.get_hostaddrs(),
        address.get_dbname().or(address.get_user()),
    )
}

struct Fleet<S> {
    branches: Branches<S>,
    known: Vec<KnownDatabase>,
    /// The running branches, each with its index in `known`.
    running: JoinSet<(usize, Result<Summary>)>,
    total: Summary,
    /// The reason why a shard has no branch: its address is invalid.
    unreadable: Option<Error>,
    /// The first refusal that ends the worker.
    failed: Option<Error>,
}

/// A database for which a branch was started, as one role.
struct KnownDatabase {
    /// The key returned by `way`.
    way: String,
    place: String,
    user: Option<String>,
    /// The name of the database in logs.
    name: String,
    counts: Counts,
    runs: bool,
    /// The reason why the last branch ended.
    refusal: Option<Error>,
}

impl<S: Send + Sync + 'static> Fleet<S> {
    /// Starts a branch for each address that has none. All are created before the first runs, as
    /// otherwise it would not wait for the queue of a branch unknown to it.
    fn begin(&mut self, addresses: Vec<Address>) -> Result<()> {
        let mut begun = Vec::new();
        for address in addresses {
            let at = self.known(&address);
            let known = &mut self.known[at];
            if known.runs {
                continue;
            }
            (known.runs, known.refusal) = (true, None);
            let counts = known.counts.clone();
            match self.branches.another(address, &known.name, counts) {
                Ok(branch) => begun.push((at, branch)),
                // Out of threads or file descriptors: branches that work continue.
                Err(error) if self.goes_on() => self.try_again(at, error),
                Err(error) => return Err(error),
            }
        }
        for (at, branch) in begun {
            self.running.spawn(async move { (at, branch.run().await) });
        }
        Ok(())
    }

    /// Returns the index of an address' database in `known`. Another role may claim other jobs, so
    /// each role has its own branch.
    fn known(&mut self, address: &Address) -> usize {
        let (place, user) = (place(address), address.get_user());
        let way = way(address);
        let is_same = |known: &KnownDatabase| known.way == way && known.user.as_deref() == user;
        if let Some(at) = self.known.iter().position(is_same) {
            return at;
        }
        let is_alone = !self.known.iter().any(|known| known.place == place);
        let name = match user {
            Some(user) if !is_alone => format!("{place} as {user}"),
            _ => place.clone(),
        };
        self.known.push(KnownDatabase {
            way,
            place,
            user: user.map(str::to_owned),
            name,
            counts: self.branches.counts.branch(),
            runs: false,
            refusal: None,
        });
        self.known.len() - 1
    }

    /// Ends the worker with an error, as a stop does.
    fn fail(&mut self, error: Error) {
        self.branches.shutdown.drain();
        self.failed.get_or_insert(error);
    }

    /// Returns whether the worker continues when a shard refuses: other branches work, or have
    /// worked.
    fn goes_on(&self) -> bool {
        !self.running.is_empty() || self.branches.start.is_over()
    }

    /// Schedules another query of the router for a shard that refused.
    fn try_again(&mut self, at: usize, refusal: Error) {
        let known = &mut self.known[at];
        known.runs = false;
        self.branches.events.at(&known.name).emit(Event::Trouble {
            during: "claim",
            error: refusal.to_string(),
            retry_in: PERIOD,
        });
        known.refusal = Some(refusal);
    }

    /// Returns why the end of a queue is unknown although the worker reports all queues as empty.
    fn unseen(&mut self) -> Option<Error> {
        if self.total.stopped != Stopped::Empty {
            return None;
        }
        let mut refusals = self.known.iter_mut().map(|known| known.refusal.take());
        refusals
            .find_map(|refusal| refusal)
            .or_else(|| self.unreadable.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_that_differ_in_any_host_are_two() {
        let way = |text: &str| way(&text.parse().expect("it is an address"));
        for (one, other) in [
            (
                "hostaddr=10.0.0.1 dbname=jobs",
                "hostaddr=10.0.0.2 dbname=jobs",
            ),
            (
                "host=db hostaddr=10.0.0.1 dbname=jobs",
                "host=db hostaddr=10.0.0.2 dbname=jobs",
            ),
            ("host=a,b dbname=jobs", "host=a,c dbname=jobs"),
            ("host=a port=1 dbname=jobs", "host=a port=2 dbname=jobs"),
            ("host=a dbname=jobs", "host=a dbname=more"),
        ] {
            assert_ne!(way(one), way(other));
        }
        for (one, other) in [
            ("host=a dbname=jobs", "host=a port=5432 dbname=jobs"),
            ("host=a user=jobs", "host=a user=jobs dbname=jobs"),
        ] {
            assert_eq!(way(one), way(other));
        }
    }
}
