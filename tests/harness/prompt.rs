//! Promises about time, on a machine that others load: tried again when a try was slow, or measured
//! beside what PostgreSQL itself does in the same moment. A product that is always slow keeps
//! neither.

use crate::session::Session;
use std::time::{Duration, Instant};
use trax_client::testkit::Database;

/// How often a promise is tried.
const TRIES: usize = 5;

/// A promise that one of a few tries keeps; each gives how long it took.
pub async fn takes_less_than(
    limit: Duration,
    what: &str,
    mut attempt: impl AsyncFnMut() -> Duration,
) {
    let mut took = Vec::new();
    for _ in 0..TRIES {
        took.push(attempt().await);
        if took.last().is_some_and(|took| *took < limit) {
            return;
        }
    }
    panic!("{what} takes longer than {limit:?} in each of {TRIES} tries: {took:?}");
}

/// The middle of some times.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Two sessions of which one wakes the other by plain means, an advisory lock: how long waking up
/// takes just now.
pub struct Handover {
    giver: Session,
    taker: Option<Session>,
}

impl Handover {
    /// Two sessions of this database.
    pub async fn of(database: &Database) -> Self {
        let (giver, taker) = (Session::of(database).await, Session::of(database).await);
        Handover {
            giver,
            taker: Some(taker),
        }
    }

    /// From the call that gives the lock back to the moment in which the other session knows that
    /// it has it.
    pub async fn time(&mut self) -> Duration {
        let taker = self.taker.take().expect("it comes back after each time");
        let key = self.giver.pid();
        let take = format!("select pg_advisory_lock({key})");
        let give = format!("select pg_advisory_unlock({key})");
        self.giver.get(&take).await;
        let pid = taker.pid();
        let (take, and_give) = (take, give.clone());
        let taken = tokio::spawn(async move {
            taker.get(&take).await;
            let at = Instant::now();
            taker.get(&and_give).await;
            (taker, at)
        });
        self.giver.sees_waiting(pid).await;
        let given = Instant::now();
        self.giver.get(&give).await;
        let (taker, at) = taken.await.expect("the lock is taken");
        self.taker = Some(taker);
        at.saturating_duration_since(given)
    }
}
