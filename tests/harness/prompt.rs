//! Promised times on a loaded machine: a slow try is repeated, or compared with the time that
//! PostgreSQL itself needs at the same moment. A product that is always slow fails either test.

use crate::session::Session;
use std::time::{Duration, Instant};
use trax_client::testkit::Database;

/// The number of tries.
const TRIES: usize = 5;

/// Checks that one of a few tries is fast enough; each returns its duration.
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

/// Returns the median.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Two sessions, one of which wakes the other with an advisory lock, to measure the current time of
/// a wake-up.
pub struct Handover {
    giver: Session,
    taker: Option<Session>,
}

impl Handover {
    /// Opens two sessions of this database.
    pub async fn of(database: &Database) -> Self {
        let (giver, taker) = (Session::of(database).await, Session::of(database).await);
        Handover {
            giver,
            taker: Some(taker),
        }
    }

    /// Returns the time from the call that releases the lock to the moment when the other session
    /// has received it.
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
