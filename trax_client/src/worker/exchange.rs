//! The claim connection, either idle or in an exchange that runs concurrently with the worker's
//! loop.

use std::future::Future;
use std::pin::Pin;

use super::claim_connection::{ClaimConnection, Want};
use super::reply::Reply;
use super::unreported::UnreportedOutcome;
use crate::error::Result;

type Exchanging = Pin<Box<dyn Future<Output = (Box<ClaimConnection>, Result<Reply>)> + Send>>;

pub(crate) enum Exchange {
    Idle(Box<ClaimConnection>),
    Running {
        exchanging: Exchanging,
        /// The number of outcomes that it sends.
        outcomes: u64,
    },
    /// Only during a change of state.
    Changing,
}

impl Exchange {
    pub(crate) fn new(connection: ClaimConnection) -> Self {
        Exchange::Idle(Box::new(connection))
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self, Exchange::Idle(_))
    }

    /// Begins to report `outbox` and to claim the jobs of `want`, after extending the leases if
    /// `extends` is set. Does nothing unless idle.
    pub(crate) fn begin(&mut self, outbox: Vec<UnreportedOutcome>, want: Want, extends: bool) {
        if let Exchange::Idle(mut connection) = std::mem::replace(self, Exchange::Changing) {
            let outcomes = outbox.len() as u64;
            let exchanging = Box::pin(async move {
                let reply = connection.exchange(outbox, want, extends).await;
                (connection, reply)
            });
            *self = Exchange::Running {
                exchanging,
                outcomes,
            };
        }
    }

    /// Waits for the reply of the exchange; forever if none runs. Cancel safe.
    pub(crate) async fn reply(&mut self) -> Result<Reply> {
        let Exchange::Running { exchanging, .. } = self else {
            return std::future::pending().await;
        };
        let (connection, reply) = exchanging.await;
        *self = Exchange::Idle(connection);
        reply
    }

    /// Returns the number of outcomes sent and not yet answered.
    pub(crate) fn in_flight(&self) -> u64 {
        match self {
            Exchange::Running { outcomes, .. } => *outcomes,
            Exchange::Idle(_) | Exchange::Changing => 0,
        }
    }
}
