//! A worker of several databases: a branch for each, and those that a router gets to know.

use tokio::task::JoinSet;

use super::branch::{Branches, place};
use super::event::Event;
use super::router::{PERIOD, Router};
use super::shutdown::Phase;
use super::summary::{Counts, Stopped, Summary};
use crate::address::Address;
use crate::error::{Error, Result};

/// Runs a branch for each address, and for each shard of the router, until all have ended.
///
/// # Errors
/// The first error of a branch; the others are stopped then, and end as in any stop. Of the shards
/// of a router one alone may fail: it is tried again.
pub(super) async fn run<S: Send + Sync + 'static>(
    branches: Branches<S>,
    addresses: Vec<Address>,
    router: Option<Address>,
) -> Result<Summary> {
    let mut running: JoinSet<(String, Result<Summary>)> = JoinSet::new();
    let mut known = Vec::new();
    branches.health.has_branches();
    let mut total: Option<Summary> = None;
    let mut failed = None;
    let mut phase = branches.shutdown.subscribe();
    let mut router = router.map(|address| Router::new(address, branches.events.clone()));
    for address in addresses {
        begin(&branches, &mut known, &mut running, address)?;
    }
    loop {
        let is_stopping = *phase.borrow_and_update() != Phase::Running;
        if running.is_empty() && (is_stopping || router.is_none() || total.is_some()) {
            break;
        }
        let next = async {
            match &mut router {
                Some(router) if !is_stopping => router.shards().await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(ended) = running.join_next() => match ended.map_err(|error| Error::Conversion(error.into()))? {
                (_, Ok(summary)) => total.get_or_insert_with(empty).add(&summary),
                // A shard that refuses stops its own jobs only; the router is asked again for it.
                (name, Err(error)) if router.is_some() && !running.is_empty() => {
                    known.iter_mut().filter(|one| one.name == name).for_each(|one| one.runs = false);
                    let retry_in = PERIOD;
                    let error = error.to_string();
                    branches.events.at(&name).emit(Event::Trouble { during: "claim", error, retry_in });
                }
                (_, Err(error)) => {
                    branches.shutdown.drain();
                    failed.get_or_insert(error);
                }
            },
            shards = next => match shards {
                Ok(shards) => {
                    for address in shards {
                        begin(&branches, &mut known, &mut running, address)?;
                    }
                }
                Err(error) => {
                    branches.shutdown.drain();
                    failed.get_or_insert(error);
                    router = None;
                }
            },
            Ok(()) = phase.changed() => {}
        }
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(total.unwrap_or_else(empty)),
    }
}

/// A database that a branch was begun for.
struct Known {
    name: String,
    counts: Counts,
    runs: bool,
}

/// Begins a branch, unless there is one of this address.
fn begin<S: Send + Sync + 'static>(
    branches: &Branches<S>,
    known: &mut Vec<Known>,
    running: &mut JoinSet<(String, Result<Summary>)>,
    address: Address,
) -> Result<()> {
    let name = place(&address);
    let before = known.iter_mut().find(|one| one.name == name);
    if before.as_ref().is_some_and(|one| one.runs) {
        return Ok(());
    }
    let counts = match before {
        Some(before) => {
            before.runs = true;
            before.counts.clone()
        }
        None => {
            let counts = branches.counts.branch();
            known.push(Known {
                name: name.clone(),
                counts: counts.clone(),
                runs: true,
            });
            counts
        }
    };
    let branch = branches.another(address, counts)?;
    running.spawn(async move { (name, branch.run().await) });
    Ok(())
}

/// The summary to which those of branches are added.
fn empty() -> Summary {
    Summary {
        stopped: Stopped::Drained,
        ..Summary::default()
    }
}
