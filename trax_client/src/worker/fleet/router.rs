//! The shards that a router lists.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_postgres::{Client, Notification};

use super::super::connection::Backoff;
use super::super::event::{Event, Events};
use crate::address::Address;
use crate::error::{Error, Result};
use crate::neighbor::Neighbor;

/// The time between queries of the router.
pub(super) const PERIOD: Duration = Duration::from_secs(10);
/// The time limit of a query.
const LIMIT: Duration = Duration::from_secs(10);

/// Queries a router for its shards periodically.
pub(super) struct Router {
    address: Address,
    events: Events,
    client: Option<Client>,
    /// Notified when a shard was added, or the connection is lost.
    bell: Arc<Notify>,
    /// The time of the next query.
    next: Instant,
    backoff: Backoff,
    has_answered: bool,
    failing: bool,
    /// Errors already reported about invalid addresses.
    told: HashSet<String>,
}

/// The shards of a router.
pub(super) struct Shards {
    pub(super) addresses: Vec<Address>,
    /// The error for the first invalid address. The other shards are still used.
    pub(super) unreadable: Option<Error>,
}

impl Router {
    pub(super) fn new(address: Address, events: Events) -> Self {
        Router {
            address,
            events,
            client: None,
            bell: Arc::default(),
            next: Instant::now(),
            backoff: Backoff::new(PERIOD),
            has_answered: false,
            failing: false,
            told: HashSet::new(),
        }
    }

    /// Returns the addresses of all shards: at once on the first call, later when a shard was added
    /// or after ten seconds. Waits for a router that cannot be reached. Cancel safe.
    ///
    /// # Errors
    /// Before the first answer: if the database refuses the query, or no address is valid.
    pub(super) async fn shards(&mut self) -> Result<Shards> {
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(self.next.into()) => {}
                () = self.bell.notified(), if self.client.is_some() => {}
            }
            let answer = tokio::time::timeout(LIMIT, self.ask()).await;
            let error = match answer {
                Ok(Ok(shards)) => {
                    self.next = Instant::now() + PERIOD;
                    self.backoff.reset();
                    self.has_answered = true;
                    if std::mem::take(&mut self.failing) {
                        self.events.emit(Event::Recovered { during: "router" });
                    }
                    return Ok(shards);
                }
                Ok(Err(error)) if !self.has_answered && !error.is_transient() => return Err(error),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {} s", LIMIT.as_secs()),
            };
            self.client = None;
            let retry_in = self.backoff.next();
            self.next = Instant::now() + retry_in;
            self.failing = true;
            self.events.emit(Event::Trouble {
                during: "router",
                error,
                retry_in,
            });
        }
    }

    async fn ask(&mut self) -> Result<Shards> {
        let client = match &mut self.client {
            Some(client) if !client.is_closed() => client,
            client => {
                let bell = Arc::clone(&self.bell);
                let heard = move |_: Option<&Notification>| bell.notify_one();
                let opened = self.address.connect_hearing(heard).await?;
                // Behind a pooler no notification arrives; the periodic query still finds new
                // shards.
                opened.batch_execute("listen trax_router").await?;
                client.insert(opened)
            }
        };
        if !Neighbor::Router.is_in(client).await? {
            return Err(Error::Setup(
                "this database is no router: create extension trax_router cascade makes one, trax_router.add_shard() \
                 adds shards"
                    .to_owned(),
            ));
        }
        let sql = "select number, address from trax_router.shards()";
        let rows = client.query_typed(sql, &[]).await?;
        let mut shards = Shards {
            addresses: Vec::new(),
            unreadable: None,
        };
        for row in &rows {
            let (number, text): (i32, &str) = (row.try_get(0)?, row.try_get(1)?);
            match text.parse::<Address>() {
                Ok(shard) => shards.addresses.push(shard.completed_by(&self.address)),
                Err(error) => {
                    let error = Error::Address(format!("the address of shard {number}: {error}"));
                    if self.told.insert(error.to_string()) {
                        self.events.emit(Event::Trouble {
                            during: "router",
                            error: error.to_string(),
                            retry_in: PERIOD,
                        });
                    }
                    shards.unreadable.get_or_insert(error);
                }
            }
        }
        match shards.unreadable {
            Some(error) if shards.addresses.is_empty() => Err(error),
            _ => Ok(shards),
        }
    }
}

impl Address {
    /// Returns this address, completed by the router's user, password and TLS parameters where it
    /// sets none. A shard may require more than its router, but not less: the router's `sslmode`,
    /// `channel_binding` and minimum protocol version are lower bounds.
    #[must_use]
    pub fn completed_by(mut self, router: &Address) -> Self {
        if let (None, Some(user)) = (self.get_user(), router.get_user()) {
            self.user(user);
        }
        if let (None, Some(password)) = (self.get_password(), router.get_password()) {
            self.password(password);
        }
        self.complete_tls(router);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SslMode;

    #[test]
    fn a_shard_is_reached_as_the_router_is_unless_its_address_says_otherwise() {
        let address = |text: &str| text.parse::<Address>().expect("it is one");
        let router = address("host=router user=app password=x sslmode=require");
        let shard = address("host=one dbname=jobs").completed_by(&router);
        assert_eq!(shard.get_user(), Some("app"));
        assert_eq!(shard.get_password(), Some(&b"x"[..]));
        assert_eq!(shard.get_dbname(), Some("jobs"));
        assert_eq!(shard.sslmode(), SslMode::Require);
        let own = address("host=one user=me sslmode=disable").completed_by(&router);
        assert_eq!(
            (own.get_user(), own.sslmode()),
            (Some("me"), SslMode::Require)
        );
    }

    #[test]
    fn no_word_of_a_shard_takes_away_what_the_router_demands() {
        let address = |text: &str| text.parse::<Address>().expect("it is one");
        let router = address("host=r sslmode=verify-full sslrootcert=/ca channel_binding=require");
        for word in [
            "sslmode=disable",
            "sslmode=prefer",
            "sslsni=0",
            "channel_binding=disable",
            "sslrootcert=/other",
        ] {
            let shard = address(&format!("host=s {word}")).completed_by(&router);
            assert_eq!(shard.sslmode(), SslMode::VerifyFull, "{word}");
            let said = shard.environment();
            assert!(said.contains(&("PGCHANNELBINDING", "require")), "{word}");
        }
        let stricter = address("host=s sslmode=verify-full sslrootcert=/other");
        let stricter = stricter.completed_by(&address("host=r sslmode=prefer sslrootcert=/ca"));
        assert_eq!(stricter.sslmode(), SslMode::VerifyFull);
        assert!(
            stricter
                .environment()
                .contains(&("PGSSLROOTCERT", "/other"))
        );
        let quiet = address("host=s sslmode=disable").completed_by(&address("host=r"));
        assert_eq!(quiet.sslmode(), SslMode::Disable, "nothing was demanded");
        // A key is useful only with its own certificate.
        let router = address("host=r sslcert=/r.crt sslkey=/r.key");
        let own = address("host=s sslcert=/s.crt").completed_by(&router);
        assert_eq!(own.environment(), [("PGSSLCERT", "/s.crt")]);
    }
}
