//! The tokens of the distributed semaphore.

use super::Client;
use std::time::Duration;

use tokio_postgres::GenericClient;

use crate::error::Result;
use crate::id::Token;
use crate::sql::{Call, Interval};
use crate::token::{Grant, TokenRequest};

impl<C: GenericClient + Sync> Client<'_, C> {
    /// Takes the lowest free slot of a name; `None` when all are held, or reserved for those who
    /// wait. Commit at once.
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

    /// Waits for a slot of a name, first come, first served; `None` on timeout.
    ///
    /// Every other call on the connection waits for it. The server notices within about a second
    /// when the connection ends, and serves the next waiter.
    ///
    /// # Errors
    /// [`Error::WrongState`] inside a transaction.
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

    /// Extends a token to `ttl` from now; false when it is lost, for example because it has
    /// expired.
    pub async fn extend_token(&self, name: &str, token: Token, ttl: Duration) -> Result<bool> {
        let ttl = Interval(ttl);
        Call::new("extend_token")
            .arg("name", &name)
            .arg("token", &token.0)
            .arg("ttl", &ttl)
            .value(self.db)
            .await
    }

    /// Releases a token; false when it was lost.
    pub async fn release_token(&self, name: &str, token: Token) -> Result<bool> {
        Call::new("release_token")
            .arg("name", &name)
            .arg("token", &token.0)
            .value(self.db)
            .await
    }
}
