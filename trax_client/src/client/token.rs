//! The tokens of the distributed semaphore.

use super::Client;
use std::time::Duration;

use tokio_postgres::GenericClient;

use crate::error::Result;
use crate::id::Token;
use crate::sql::{Call, Interval};
use crate::token::{Grant, TokenRequest};

impl<C: GenericClient + Sync> Client<'_, C> {
    /// Takes the lowest free slot of a token. `None` if all slots are held, or reserved for
    /// sessions that wait. Commit at once.
    pub async fn acquire_token(&self, request: &TokenRequest) -> Result<Option<Grant>> {
        let ttl = Interval(request.ttl);
        let rows = Call::new("acquire_token")
            .arg("name", &request.name)
            .arg("holder", &request.holder)
            .arg("max_holders", &request.max_holders)
            .arg("ttl", &ttl)
            .rows(self.db, Grant::COLUMNS)
            .await?;
        rows.first().map_or(Ok(None), Grant::from_row)
    }

    /// Waits for a slot of a token, first come, first served. `None` on timeout.
    ///
    /// Other calls on the connection wait until this one returns. If the connection ends, the
    /// server notices within about a second and serves the next waiter.
    ///
    /// # Errors
    /// [`Error::WrongState`](crate::Error::WrongState) inside a transaction.
    pub async fn await_token(
        &self,
        request: &TokenRequest,
        wait: Duration,
    ) -> Result<Option<Grant>> {
        let (ttl, wait) = (Interval(request.ttl), Interval(wait));
        let rows = Call::new("await_token")
            .arg("name", &request.name)
            .arg("holder", &request.holder)
            .arg("max_holders", &request.max_holders)
            .arg("ttl", &ttl)
            .arg("wait", &wait)
            .procedure_with_results(self.db, Grant::COLUMNS)
            .await?;
        rows.first().map_or(Ok(None), Grant::from_row)
    }

    /// Extends a token to `ttl` from now. Returns false if the token is lost, for example because
    /// it has expired.
    pub async fn extend_token(&self, name: &str, token: Token, ttl: Duration) -> Result<bool> {
        let ttl = Interval(ttl);
        Call::new("extend_token")
            .arg("name", &name)
            .arg("token", &token.0)
            .arg("ttl", &ttl)
            .value(self.db)
            .await
    }

    /// Releases a token. Returns false if it was lost.
    pub async fn release_token(&self, name: &str, token: Token) -> Result<bool> {
        Call::new("release_token")
            .arg("name", &name)
            .arg("token", &token.0)
            .value(self.db)
            .await
    }
}
