//! Concurrency tokens: the right to one of a limited number of slots of a name, and a guard that
//! maintains it.

use std::thread;
use std::time::{Duration, SystemTime};

use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tokio_postgres::Row;

use crate::address::Address;
use crate::client::Client;
use crate::clock::{CHECK_PERIOD, Moment};
use crate::error::{Error, Result};
use crate::id::Token;
use crate::worker::connection::{Backoff, Connection, hardened, open};

/// How long a dropped guard tries to release its token.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// How much longer than the server the client waits for an answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// Keepalive probes are timed as for a lease of at most this length, with four probes in it.
const LONGEST_SILENCE: Duration = Duration::from_secs(120);
/// The shortest time to live that a guard can maintain over a network.
const SHORTEST_TTL: Duration = Duration::from_millis(30);

/// A granted token.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Grant {
    /// The number of the slot, from 1.
    pub slot: i32,
    /// Identifies this grant. A stale token can neither be extended nor released.
    pub token: Token,
    /// When the token expires unless it is extended, by the server's clock.
    pub expires_at: SystemTime,
}

impl Grant {
    pub(crate) const COLUMNS: &'static str = "slot, token, expires_at";

    /// Returns `None` if the columns are null, which means that the wait timed out.
    pub(crate) fn from_row(row: &Row) -> Result<Option<Self>> {
        let Some(slot) = row.try_get(0)? else {
            return Ok(None);
        };
        Ok(Some(Grant {
            slot,
            token: Token(row.try_get(1)?),
            expires_at: row.try_get(2)?,
        }))
    }
}

/// A request for a token: the name to hold, the holder, the number of slots, and the time to live.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TokenRequest {
    pub(crate) name: String,
    pub(crate) holder: String,
    pub(crate) max_holders: i32,
    pub(crate) ttl: Duration,
}

impl TokenRequest {
    /// Returns a request for a name with a single slot and a time to live of 30 s.
    pub fn new(name: impl Into<String>, holder: impl Into<String>) -> Self {
        TokenRequest {
            name: name.into(),
            holder: holder.into(),
            max_holders: 1,
            ttl: Duration::from_secs(30),
        }
    }

    /// Sets how many holders the name may have at once, 1 to 1000. The value in the most recent
    /// call of any program applies.
    pub fn max_holders(mut self, holders: i32) -> Self {
        self.max_holders = holders;
        self
    }

    /// Sets the time to live: how long the token is held without an extension.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }
}

/// Holds a token and extends it three times per time to live, on a dedicated connection and thread,
/// so that a program that blocks does not lose it.
///
/// ```no_run
/// # async fn example(address: trax_client::Address) -> trax_client::Result<()> {
/// use std::time::Duration;
/// use trax_client::{TokenGuard, TokenRequest};
///
/// let request = TokenRequest::new("nightly import", "import@host7");
/// let Some(guard) = TokenGuard::wait(address, request, Duration::from_secs(300)).await? else {
///     return Ok(()); // others held it the whole time
/// };
/// tokio::select! {
///     () = guard.lost() => {}  // stop at once: someone else may hold it now
///     () = import() => {
///         guard.release().await?;
///     }
/// }
/// # Ok(())
/// # }
/// # async fn import() {}
/// ```
///
/// Dropping the guard releases the token in the background if possible. A program about to exit
/// should call [`TokenGuard::release`].
#[derive(Debug)]
pub struct TokenGuard {
    grant: Grant,
    lost: watch::Receiver<bool>,
    /// If dropped without a message, the token is released and no caller waits for the result.
    stop: oneshot::Sender<oneshot::Sender<Result<bool>>>,
}

impl TokenGuard {
    /// Takes a token if one is free, without waiting.
    pub async fn try_acquire(
        address: impl Into<Address>,
        request: TokenRequest,
    ) -> Result<Option<Self>> {
        Self::begin(address.into(), request, None).await
    }

    /// Waits for a token, first come, first served; `None` on timeout. Dropping the future leaves
    /// the queue.
    pub async fn wait(
        address: impl Into<Address>,
        request: TokenRequest,
        wait: Duration,
    ) -> Result<Option<Self>> {
        Self::begin(address.into(), request, Some(wait)).await
    }

    async fn begin(
        mut address: Address,
        request: TokenRequest,
        wait: Option<Duration>,
    ) -> Result<Option<Self>> {
        if address.get_application_name().is_none() {
            address.application_name(format!("trax token {}", request.name));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::Conversion(error.into()))?;
        let (answer, answered) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let (report, lost) = watch::channel(false);
        let keeper = Keeper {
            // A waiting connection sends nothing, yet a lost server must be noticed.
            address: hardened(address, &request.holder, request.ttl.min(LONGEST_SILENCE)),
            request: TokenRequest {
                ttl: request.ttl.max(SHORTEST_TTL),
                ..request
            },
            connection: None,
            lost: report,
        };
        thread::Builder::new()
            .name("trax-token".to_owned())
            .spawn(move || runtime.block_on(keeper.run(wait, answer, stopped)))
            .map_err(|error| Error::Conversion(error.into()))?;
        let grant = answered
            .await
            .map_err(|_| Error::Connection("the thread that keeps the token has ended".into()))??;
        Ok(grant.map(|grant| TokenGuard { grant, lost, stop }))
    }

    /// Returns the grant.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Returns whether the token is lost.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Completes when the token is lost: the server reported the loss, or could not be reached
    /// until the token had expired.
    pub async fn lost(&self) {
        let mut lost = self.lost.clone();
        // An error means that the thread has ended, so the token is lost as well.
        lost.wait_for(|lost| *lost).await.ok();
    }

    /// Releases the token. Returns false if it was lost.
    pub async fn release(self) -> Result<bool> {
        let (answer, answered) = oneshot::channel();
        if self.stop.send(answer).is_err() {
            return Ok(false);
        }
        answered.await.unwrap_or(Ok(false))
    }
}

/// The thread behind a guard.
struct Keeper {
    address: Address,
    request: TokenRequest,
    connection: Option<Connection>,
    lost: watch::Sender<bool>,
}

impl Keeper {
    async fn run(
        mut self,
        wait: Option<Duration>,
        mut answer: oneshot::Sender<Result<Option<Grant>>>,
        mut stopped: oneshot::Receiver<oneshot::Sender<Result<bool>>>,
    ) {
        let granted = tokio::select! {
            granted = self.acquire(wait) => granted,
            // The caller has stopped waiting. Returning closes the connection.
            () = answer.closed() => return,
        };
        let (token, held_until) = match granted {
            Ok(Some((grant, held_until))) => {
                let token = grant.token;
                if answer.send(Ok(Some(grant))).is_err() {
                    return self.release_quietly(token).await;
                }
                (token, held_until)
            }
            nothing => {
                // Sending fails if the caller has stopped waiting.
                return drop(answer.send(nothing.map(|_| None)));
            }
        };
        let asked = tokio::select! {
            asked = &mut stopped => asked,
            () = self.keep(token, held_until) => {
                self.lost.send_replace(true);
                return;
            }
        };
        match asked {
            Ok(reply) => {
                let released = match timeout(ANSWER_PATIENCE, self.release(token)).await {
                    Ok(released) => released,
                    Err(_) => Err(no_answer()),
                };
                // The caller may have stopped waiting.
                reply.send(released).ok();
            }
            Err(_) => self.release_quietly(token).await,
        }
    }

    /// Takes the token. Returns the moment until which it is certainly held, by this machine's
    /// clock.
    async fn acquire(&mut self, wait: Option<Duration>) -> Result<Option<(Grant, Moment)>> {
        let connection = open(&self.address).await?;
        let client = Client::new(&*connection);
        let mut asked = Moment::now();
        let granted = match wait {
            None => client.acquire_token(&self.request).await?,
            Some(wait) => {
                let patience = wait.saturating_add(ANSWER_PATIENCE);
                let granted = timeout(patience, client.await_token(&self.request, wait)).await;
                granted.map_err(|_| no_answer())??
            }
        };
        let Some(grant) = granted else {
            return Ok(None);
        };
        if wait.is_some() {
            // Only the server knows at what moment of the wait the token was granted.
            asked = Moment::now();
            let (name, ttl) = (&self.request.name, self.request.ttl);
            if !client.extend_token(name, grant.token, ttl).await? {
                return Ok(None);
            }
        }
        self.connection = Some(connection);
        Ok(Some((grant, asked + self.request.ttl)))
    }

    /// Extends the token until it is lost.
    async fn keep(&mut self, token: Token, mut held_until: Moment) {
        let period = self.request.ttl / 3;
        let mut backoff = Backoff::new(period);
        let mut next = Moment::now() + period;
        loop {
            let asked = Moment::now();
            let Some(left) = held_until.after(asked) else {
                return;
            };
            if let Some(wait) = next.after(asked) {
                tokio::time::sleep(wait.min(left).min(CHECK_PERIOD)).await;
                continue;
            }
            match timeout(left.min(period), self.extend(token)).await {
                Ok(Ok(true)) => {
                    held_until = asked + self.request.ttl;
                    backoff = Backoff::new(period);
                    next = asked + period;
                }
                Ok(Ok(false)) => return,
                // Another connection is tried until the token has expired.
                Ok(Err(_)) | Err(_) => next = Moment::now() + backoff.next(),
            }
        }
    }

    async fn extend(&mut self, token: Token) -> Result<bool> {
        let connection = self.connected().await?;
        let (name, ttl) = (&self.request.name, self.request.ttl);
        let extended = Client::new(&*connection)
            .extend_token(name, token, ttl)
            .await?;
        self.connection = Some(connection);
        Ok(extended)
    }

    async fn release(&mut self, token: Token) -> Result<bool> {
        let connection = self.connected().await?;
        Client::new(&*connection)
            .release_token(&self.request.name, token)
            .await
    }

    /// Releases the token of a dropped guard. If that fails, the token expires.
    async fn release_quietly(&mut self, token: Token) {
        timeout(RELEASE_TIMEOUT, self.release(token)).await.ok();
    }

    /// Takes the connection out. A connection is put back only after it has answered.
    async fn connected(&mut self) -> Result<Connection> {
        match self.connection.take() {
            Some(connection) if !connection.is_closed() => Ok(connection),
            _ => open(&self.address).await,
        }
    }
}

fn no_answer() -> Error {
    Error::Connection("no answer in time".into())
}
