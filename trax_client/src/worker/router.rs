//! The shards that a router knows.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_postgres::{Client, Notification};

use super::connection::Backoff;
use super::event::{Event, Events};
use crate::address::Address;
use crate::error::{Error, Result};
use crate::neighbor::Neighbor;

/// How often the router is asked for new shards.
pub(super) const PERIOD: Duration = Duration::from_secs(10);
/// How long it may take to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Asks a router for its shards, again and again.
pub(super) struct Router {
    address: Address,
    events: Events,
    client: Option<Client>,
    /// Rung when a shard was added, or the connection is lost.
    bell: Arc<Notify>,
    /// When it is asked.
    next: Instant,
    backoff: Backoff,
    has_answered: bool,
    failing: bool,
    /// What was said of addresses that are none.
    told: HashSet<String>,
}

/// What a router knows.
pub(super) struct Shards {
    pub(super) addresses: Vec<Address>,
    /// What is wrong with the first address that is none; the other shards are worked for.
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

    /// Returns the addresses of all shards: at once the first time, later when one was added, or
    /// after ten seconds. Waits for a router that cannot be reached. Safe to drop and call again.
    ///
    /// # Errors
    /// Before the first answer, when the database refuses to give one, or no address is one.
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
                // Through a pooler nothing is heard: it is asked again all the same.
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
    /// Returns this address with the user, the password and each TLS parameter of another that it
    /// does not set: a shard is reached as its router is. It may ask for more than that, not for
    /// less: the router's `sslmode`, `channel_binding` and oldest protocol are the least.
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
        // A key belongs to its certificate.
        let router = address("host=r sslcert=/r.crt sslkey=/r.key");
        let own = address("host=s sslcert=/s.crt").completed_by(&router);
        assert_eq!(own.environment(), [("PGSSLCERT", "/s.crt")]);
    }
}
