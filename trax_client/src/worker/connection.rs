//! Opening connections, hearing their notifications, bounding calls, and waiting before the next
//! try.

use std::collections::hash_map::RandomState;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hasher};
use std::ops::Deref;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::{AsyncMessage, Client, Config};

use crate::address::Address;
use crate::error::{Blame, Error, Result};

/// How long one host may take at most until it is connected, its handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A peer that acknowledges nothing for this long is gone, if a lease does not make it shorter.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(15);
/// How long an answer that has arrived may take to be read.
const AFTERWARDS: Duration = Duration::from_millis(100);
/// How long a connection that nobody uses any more may take to end in an orderly way.
const FAREWELL: Duration = Duration::from_secs(1);

/// The configuration of a worker's connections: what the caller said, and a bound on every wait.
pub(crate) fn hardened(mut address: Address, name: &str, lease: Duration) -> Address {
    if address.get_application_name().is_none() {
        address.application_name(format!("trax worker {name}"));
    }
    if address.get_connect_timeout().is_none() {
        let limit = CONNECT_TIMEOUT.min(lease / 6);
        address.connect_timeout(limit.max(Duration::from_secs(1)));
    }
    // On Linux it also decides, in place of the number of probes, when an idle peer is gone.
    if address.get_tcp_user_timeout().is_none() {
        let limit = TCP_USER_TIMEOUT.min(lease / 2);
        address.tcp_user_timeout(limit.max(Duration::from_secs(1)));
    }
    // A connection whose other end is gone is known to be broken before the lease is over. The
    // driver's own first probe comes after two hours; whoever set another time keeps it.
    if address.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        let probe = (lease / 4).max(Duration::from_secs(1));
        address
            .keepalives_idle(probe)
            .keepalives_interval(probe)
            .keepalives_retries(2);
    }
    // Of several hosts only the primary can claim; a lone standby is an error worth seeing.
    if address.get_target_session_attrs() == TargetSessionAttrs::Any {
        address.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    address
}

/// A client whose connection ends with it, also when a call is still unanswered.
pub(crate) struct Connection {
    client: Client,
    _open: oneshot::Sender<()>,
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// One connection, driven by its own task on the current runtime; the task ends with the client.
pub(crate) async fn open(address: &Address) -> Result<Connection> {
    Ok(driven(address).await?.0)
}

/// A connection that hears of work, where the server and what is between let it: behind a
/// transaction pooler, or without a scheduler, it is merely a connection.
pub(crate) async fn open_listening(
    address: &Address,
    limit: Duration,
) -> Result<(Connection, Notices)> {
    let (client, notices) = driven(address).await?;
    let listening = async { Ok(client.batch_execute("listen trax_work").await?) };
    match answered(limit, listening).await {
        Err(broken) if broken.blame() == Blame::Connection => Err(broken),
        // Whoever refuses it may let jobs be claimed: polling finds them.
        Ok(()) | Err(_) => Ok((client, notices)),
    }
}

async fn driven(address: &Address) -> Result<(Connection, Notices)> {
    let (client, mut connection) = address.open().await?;
    let (bell, heard) = watch::channel(());
    let (open, closed) = oneshot::channel();
    tokio::spawn(async move {
        let drive = async {
            // On an error the client sees the same on its next call.
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(_) = message {
                    bell.send_replace(());
                }
            }
        };
        tokio::pin!(drive);
        tokio::select! {
            () = &mut drive => {}
            // It has no word to send, it is dropped.
            _ = closed => if timeout(FAREWELL, drive).await.is_err() {},
        }
    });
    let connection = Connection {
        client,
        _open: open,
    };
    Ok((connection, Notices(Some(heard))))
}

/// The answer to a call, if it comes within `limit`; otherwise the connection is no good any more.
///
/// The server is not asked to give the call up: PgBouncer 1.18 ends when a client does that as the
/// driver does.
pub(crate) async fn answered<T>(
    limit: Duration,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::pin!(call);
    if let Ok(answer) = timeout(limit, &mut call).await {
        return answer;
    }
    // Handlers may have blocked the thread all the time: what has arrived is read now.
    tokio::select! {
        biased;
        answer = &mut call => answer,
        () = everything_had_its_turn() => Err(Error::unanswered(limit)),
    }
}

async fn everything_had_its_turn() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(AFTERWARDS).await;
}

/// What one connection hears; many notifications that nobody waited for are one.
pub(crate) struct Notices(Option<watch::Receiver<()>>);

/// What was heard.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Notice {
    /// Work may exist.
    Work,
    /// The connection is gone; told once.
    Gone,
}

impl Notices {
    /// Of no connection.
    pub(crate) fn none() -> Self {
        Notices(None)
    }

    /// The next one; never without a connection. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Notice {
        let Some(heard) = &mut self.0 else {
            return std::future::pending().await;
        };
        if heard.changed().await.is_ok() {
            return Notice::Work;
        }
        self.0 = None;
        Notice::Gone
    }
}

/// Exponential backoff with full jitter.
pub(crate) struct Backoff {
    tries: u32,
    cap: Duration,
}

impl Backoff {
    const BASE: Duration = Duration::from_millis(100);
    /// The most that lies between two tries of a server: back for at most so long it is found
    /// again.
    const CAP: Duration = Duration::from_secs(1);
    /// How far the delay grows while a server says that it is about to start.
    const WAKING: u32 = 2;

    pub(crate) fn new(cap: Duration) -> Self {
        Backoff {
            tries: 0,
            cap: cap.min(Self::CAP),
        }
    }

    /// The highest delay that the next try may wait.
    fn ceiling(&self) -> Duration {
        Self::BASE
            .saturating_mul(2_u32.saturating_pow(self.tries.min(16)))
            .min(self.cap)
    }

    /// The delay after an error; one that comes from a server which answers makes it grow little.
    pub(crate) fn after(&mut self, error: &Error) -> Duration {
        if error.is_waking() {
            self.tries = self.tries.min(Self::WAKING);
        }
        self.next()
    }

    pub(crate) fn next(&mut self) -> Duration {
        let delay = self.ceiling().mul_f64(fraction());
        self.tries = self.tries.saturating_add(1);
        delay
    }

    pub(crate) fn reset(&mut self) {
        self.tries = 0;
    }
}

/// A random number of 64 bits: the standard library seeds every hasher's keys anew.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A random number in 0..1.
pub(crate) fn fraction() -> f64 {
    (random() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_peer_is_noticed_within_a_lease() {
        for lease in [4, 10, 30, 600].map(Duration::from_secs) {
            let config = hardened(Config::new().into(), "w", lease);
            let probe = config.get_keepalives_interval().unwrap_or(lease);
            let probes = config.get_keepalives_retries().unwrap_or(9);
            let silent = config.get_keepalives_idle() + probe * probes;
            assert!(config.get_keepalives() && silent < lease, "{silent:?}");
            // The kernel looks at each probe whether the time is over.
            let limit = config.get_tcp_user_timeout().copied().unwrap_or(lease);
            let unheard = limit.max(config.get_keepalives_idle()) + probe;
            assert!(unheard <= lease, "{unheard:?} of {lease:?}");
        }
        let lease = Duration::from_secs(30);
        let mut own = Config::new();
        own.keepalives_idle(Duration::from_secs(7));
        let config = hardened(own.into(), "w", lease);
        assert_eq!(config.get_keepalives_idle(), Duration::from_secs(7));
    }

    #[test]
    fn a_backoff_doubles_up_to_its_cap() {
        let mut backoff = Backoff::new(Duration::from_secs(10));
        let ceilings: Vec<Duration> = (0..40)
            .map(|_| {
                let ceiling = backoff.ceiling();
                assert!(backoff.next() <= ceiling);
                ceiling
            })
            .collect();
        assert_eq!(ceilings[0], Duration::from_millis(100));
        assert_eq!(ceilings[3], Duration::from_millis(800));
        assert_eq!(ceilings[39], Duration::from_secs(1));
    }

    #[test]
    fn fractions_differ_and_stay_below_one() {
        let some: Vec<f64> = (0..100).map(|_| fraction()).collect();
        assert!(some.iter().all(|f| (0.0..1.0).contains(f)));
        assert!(some.windows(2).any(|w| w[0] != w[1]));
    }
}
