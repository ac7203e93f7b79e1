//! The calls of a claim connection, each with limits on its answer and on waits for locks.

use std::future::Future;
use std::time::Duration;

use super::connection::{Connection, answer_within};
use crate::client::Client;
use crate::error::{Error, Result};

/// The maximum number of jobs in a claim, and of completions in a call.
pub(crate) const BATCH: usize = 1000;

/// A client over a connection of a worker.
pub(crate) type Db<'a> = Client<'a, tokio_postgres::Client>;

/// Calls over the connection with limits on their answer and on waits for locks.
#[derive(Clone, Copy)]
pub(crate) struct BoundedCalls<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) limit: Duration,
    pub(crate) lock_timeout: Duration,
}

impl<'a> BoundedCalls<'a> {
    pub(crate) fn client(&self) -> Db<'a> {
        Client::new(&**self.connection).lock_timeout(self.lock_timeout)
    }

    /// Returns whether this error of a call may be due to the data it sent.
    pub(crate) fn may_be_of_the_message(&self, error: &Error) -> bool {
        error.may_be_of_the_message() && !self.connection.was_ended()
    }

    pub(crate) async fn bounded<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        answer_within(self.limit, call).await
    }
}
