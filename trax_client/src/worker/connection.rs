//! Opens connections, receives their notifications, limits calls, and delays retries.

use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::error::DbError;
use tokio_postgres::{AsyncMessage, Client, Config};

use crate::address::Address;
use crate::error::{Blame, Error, Result};
use crate::neighbor::Neighbor;

/// The limit for connecting to one host, including the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A peer that acknowledges nothing for this long counts as gone. Shorter leases reduce it.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(15);
/// How long reading an answer that has arrived may take.
const READ_TIME: Duration = Duration::from_millis(100);
/// How long a connection no longer in use may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Linux refuses pauses of more than nine hours between probes; a dead connection is noticed well
/// before a long lease ends.
const LONGEST_PROBE: Duration = Duration::from_secs(150);

/// Returns the address for a worker's connections: the caller's, with a limit on every wait.
pub(crate) fn hardened(mut address: Address, name: &str, lease: Duration) -> Address {
    if address.get_application_name().is_none() {
        address.application_name(format!("trax worker {name}"));
    }
    if address.get_connect_timeout().is_none() {
        let limit = CONNECT_TIMEOUT.min(lease / 6);
        address.connect_timeout(limit.max(Duration::from_secs(1)));
    }
    // On Linux this setting, and not the number of probes, also decides when an idle peer counts as
    // gone.
    if address.get_tcp_user_timeout().is_none() {
        let limit = TCP_USER_TIMEOUT.min(lease / 2);
        address.tcp_user_timeout(limit.max(Duration::from_secs(1)));
    }
    // A dead connection must be noticed before the lease ends, and the driver's default first probe
    // comes after two hours. A value set by the caller is kept.
    if address.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        let probe = (lease / 4).clamp(Duration::from_secs(1), LONGEST_PROBE);
        address
            .keepalives_idle(probe)
            .keepalives_interval(probe)
            .keepalives_retries(2);
    }
    // Of several hosts only the primary can claim. A lone standby is reported as an error.
    if address.get_target_session_attrs() == TargetSessionAttrs::Any {
        address.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    address
}

/// A client whose connection closes when it is dropped, even while a call is unanswered.
pub(crate) struct Connection {
    client: Client,
    /// Whether the server announced the end of the session, other than in the answer to a call.
    ended: Arc<AtomicBool>,
    _open: oneshot::Sender<()>,
}

impl Connection {
    /// Returns whether the server announced the end of the session, other than in the answer to a
    /// call: in a notice after the crash of another session, or in an error to an idle session.
    pub(crate) fn was_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Opens a connection. A task on the current runtime drives it until the client is dropped.
pub(crate) async fn open(address: &Address) -> Result<Connection> {
    let connection = driven(address, |_| {}).await?;
    Neighbor::Trax.is_in(&connection.client).await?;
    Ok(connection)
}

/// Opens a connection that receives notifications of work where possible. Behind a transaction
/// pooler, or without a scheduler, none arrive.
pub(crate) async fn open_listening(
    address: &Address,
    limit: Duration,
) -> Result<(Connection, Notifications)> {
    let (notify, notified) = watch::channel(());
    let heard = move |_: &tokio_postgres::Notification| {
        notify.send_replace(());
    };
    let client = driven(address, heard).await?;
    listen(&client, "listen trax_work", limit).await?;
    Ok((client, Notifications(Some(notified))))
}

/// Opens a connection that calls `heard` with the jobs whose workers are asked to stop.
pub(crate) async fn open_hearing_cancels(
    address: &Address,
    limit: Duration,
    heard: impl Fn(&str) + Send + Sync + 'static,
) -> Result<Connection> {
    // A pooler may pass on notifications of other clients' channels.
    let heard = move |notification: &tokio_postgres::Notification| {
        if notification.channel() == "trax_cancel" {
            heard(notification.payload());
        }
    };
    let client = driven(address, heard).await?;
    listen(&client, "listen trax_cancel", limit).await?;
    Ok(client)
}

async fn listen(client: &Connection, statement: &str, limit: Duration) -> Result<()> {
    let listening = async { Ok(client.batch_execute(statement).await?) };
    match answer_within(limit, listening).await {
        Err(broken) if broken.blame() == Blame::Connection => return Err(broken),
        // If LISTEN is refused, other calls may still work; they find new work later.
        Ok(()) | Err(_) => {}
    }
    // Functions of another owner under these names must not be called.
    let genuine = Neighbor::Trax.is_in(&client.client);
    answer_within(limit, genuine).await.map(drop)
}

/// Opens a connection and passes its notifications to `heard`.
async fn driven(
    address: &Address,
    heard: impl Fn(&tokio_postgres::Notification) + Send + Sync + 'static,
) -> Result<Connection> {
    let (client, mut connection) = address.open().await?;
    let (open, closed) = oneshot::channel();
    let ended = Arc::new(AtomicBool::new(false));
    let was_ended = Arc::clone(&ended);
    tokio::spawn(async move {
        let drive = async {
            // On an error the client's next call finds the connection closed.
            while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
                match message {
                    Ok(AsyncMessage::Notification(notification)) => heard(&notification),
                    Ok(AsyncMessage::Notice(notice)) if ends(&notice) => {
                        was_ended.store(true, Ordering::SeqCst);
                    }
                    Ok(_) => {}
                    Err(error) => {
                        was_ended.fetch_or(error.as_db_error().is_some(), Ordering::SeqCst);
                        break;
                    }
                }
            }
        };
        tokio::pin!(drive);
        tokio::select! {
            () = &mut drive => {}
            // The sender never sends; this branch means it was dropped. A connection that does not
            // close in time is dropped too.
            _ = closed => {
                timeout(CLOSE_TIMEOUT, drive).await.ok();
            }
        }
    });
    Ok(Connection {
        client,
        ended,
        _open: open,
    })
}

/// Returns whether a notice announces the end of the session.
fn ends(notice: &DbError) -> bool {
    notice.code().code().starts_with("57P")
}

/// Returns the answer to a call if it arrives within `limit`. Otherwise the connection must be
/// replaced.
///
/// The call is not cancelled in the server: PgBouncer 1.18 exits on a cancel request as the driver
/// sends it.
pub(crate) async fn answer_within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::pin!(call);
    if let Ok(answer) = timeout(limit, &mut call).await {
        return answer;
    }
    // Handlers may have blocked the thread all this time, so read any answer that has arrived.
    tokio::select! {
        biased;
        answer = &mut call => answer,
        () = let_pending_io_run() => Err(Error::unanswered(limit)),
    }
}

async fn let_pending_io_run() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(READ_TIME).await;
}

/// The notifications of one connection. Several that arrive between waits count as one.
pub(crate) struct Notifications(Option<watch::Receiver<()>>);

/// An event of the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Notification {
    /// Work may exist.
    Work,
    /// The connection is gone. Reported once.
    Gone,
}

impl Notifications {
    /// Returns the notifications of no connection.
    pub(crate) fn none() -> Self {
        Notifications(None)
    }

    /// Waits for the next event; forever without a connection. Cancel safe.
    pub(crate) async fn next(&mut self) -> Notification {
        let Some(notified) = &mut self.0 else {
            return std::future::pending().await;
        };
        if notified.changed().await.is_ok() {
            return Notification::Work;
        }
        self.0 = None;
        Notification::Gone
    }
}

/// Exponential backoff with full jitter.
pub(crate) struct Backoff {
    tries: u32,
    cap: Duration,
}

impl Backoff {
    const BASE: Duration = Duration::from_millis(100);
    /// The maximum delay between two attempts to reach a server, and so the time within which a
    /// recovered server is found.
    const CAP: Duration = Duration::from_secs(1);
    /// The maximum number of doublings while a server reports that it is starting.
    const STARTING: u32 = 2;

    pub(crate) fn new(cap: Duration) -> Self {
        Backoff {
            tries: 0,
            cap: cap.min(Self::CAP),
        }
    }

    /// Returns the maximum delay before the next attempt.
    fn ceiling(&self) -> Duration {
        Self::BASE
            .saturating_mul(2_u32.saturating_pow(self.tries.min(16)))
            .min(self.cap)
    }

    /// Returns the delay after an error. The delay grows little while a server reports that it is
    /// starting.
    pub(crate) fn after(&mut self, error: &Error) -> Duration {
        if error.is_starting() {
            self.tries = self.tries.min(Self::STARTING);
        }
        self.next()
    }

    pub(crate) fn next(&mut self) -> Duration {
        let delay = self.ceiling().mul_f64(rand::random());
        self.tries = self.tries.saturating_add(1);
        delay
    }

    pub(crate) fn reset(&mut self) {
        self.tries = 0;
    }
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
            // The kernel checks the limit at each probe.
            let limit = config.get_tcp_user_timeout().copied().unwrap_or(lease);
            let unheard = limit.max(config.get_keepalives_idle()) + probe;
            assert!(unheard <= lease, "{unheard:?} of {lease:?}");
        }
        let config = hardened(Config::new().into(), "w", Duration::from_secs(2 * 86_400));
        assert_eq!(config.get_keepalives_idle(), LONGEST_PROBE);
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
    fn delays_differ_and_stay_below_the_ceiling() {
        let mut backoff = Backoff::new(Duration::from_secs(1));
        for _ in 0..9 {
            backoff.next();
        }
        let delays: Vec<Duration> = (0..100).map(|_| backoff.next()).collect();
        assert!(delays.iter().all(|delay| *delay < Duration::from_secs(1)));
        assert!(delays.windows(2).any(|two| two[0] != two[1]));
    }
}
