//! `trax relay`: moves rows of outboxes (`sql/relay/outbox.sql`) to databases with trax, where they
//! become jobs.
//!
//! The *source* is the database with the outbox; the *target* has trax and `sql/relay/relay.sql`. A
//! row is *carried* when its job and the row of `trax_relay.carried` with its key have committed in
//! the target, and *settled* when it has been removed from `trax_outbox.entry`. The *epoch* of a
//! source counts its relays in a target. A row is *held* when the target currently neither accepts
//! nor refuses it.
//!
//! Input: rows committed in the source. Output: jobs in the target; refused rows in
//! `trax_outbox.refused`; on request the results of jobs in `trax_outbox.result`. Invariants: a row
//! becomes exactly one job, wherever the relay, a connection or a server fails; no row waits for
//! one that is not visible yet; a refused or held row delays only rows with the same unique key.
//!
//! A relay is a pair of one source and one target. Several sources or targets form as many pairs,
//! which share nothing but the seats (`seat.rs`), so an unavailable target delays only its own
//! rows. The target of a row is written into the row before it is carried, and never changes, even
//! if other targets are configured later. `trax_outbox.placement` maps each group to a target. The
//! mapping is written when a group first appears, by a hash over the targets reached so far. If a
//! group moves, its later rows go to the new target. A target is identified by the identity in its
//! tables, not by its address, which may change. Order is kept per target.
//!
//! Each poll reads the visible rows with the lowest ids and keeps no high-water mark: a row with a
//! lower id that commits later is found by the next poll. The rows are carried, then settled, then
//! the next poll follows. A batch that fails is halved until the failing row is alone. The row is
//! refused if the target's error is about the row, otherwise held and tried again. An error about
//! rights, the extension or the server is trouble: all rows wait.
//!
//! Races and their handling:
//! - The relay ends between carrying and settling: the next relay reads the row again, finds its
//!   key in `carried`, and settles it with the existing job.
//! - Two relays run for one pair: the target's row in the source names the session of one, and the
//!   other waits until that session has ended. A relay that lost its place unnoticed, because it or
//!   its connection was suspended, has an older epoch than its successor. Each transaction in the
//!   target first locks the source's row and checks the epoch, and carries nothing if the epoch is
//!   outdated.
//! - A relay or its host hangs: the session that holds the place ends after three times the
//!   patience without use, and the next relay takes over.
//! - The source fails over and loses settlements: the rows are read again and their keys are found.
//!   Keys are kept for an hour, and longer while the source still has the row.
//! - The source fails over and its sequence repeats: ids repeat, but keys are random and do not.
//! - The target fails over and loses carried rows: a row is as durable as any job there. With a
//!   synchronous standby nothing is lost.
//! - A producer sees the relay awake and commits after the relay's last poll before it sleeps: the
//!   next poll finds the row after one interval.
//!
//! A router cannot be a target: its functions commit on a shard, outside the transaction that
//! records the key.
//!
//! The relay's state in the target is a separate schema (`sql/relay/relay.sql`), not part of the
//! extension, for three reasons: it consists of plain tables that only relays read, a dump of the
//! database contains it together with the jobs it refers to, and `trax.enqueue` is called by the
//! relay's own role, so that role's level and limits apply.

mod held;
mod pair;
mod row;
mod seat;
mod source;
mod target;

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::{Client, Config};
use trax_client::{Address, Error};

pub use seat::Seat;

/// Creates an outbox in a database without trax.
pub const OUTBOX_SQL: &str = include_str!("../../../sql/relay/outbox.sql");
/// Creates the relay's schema in a target.
pub const TARGET_SQL: &str = include_str!("../../../sql/relay/relay.sql");

/// The maximum pause after trouble.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The minimum pause after trouble.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// The options of a relay.
#[derive(Clone, Debug)]
pub struct Options {
    /// The maximum number of rows in a transaction of the target.
    pub batch: i64,
    /// How long the relay sleeps without a notification.
    pub poll: Duration,
    /// Whether to write results of jobs back to the source.
    pub results: bool,
    /// Whether to end when no row waits, and at the first trouble.
    pub once: bool,
    /// The time limit of a step: a poll, a batch, settling it. A relay that is inactive for three
    /// times as long is replaced by a waiting one.
    pub patience: Duration,
}

/// The reason why carrying has stopped for now.
#[derive(Debug)]
pub struct Trouble {
    /// A single line of text.
    pub message: String,
    /// The action to take, often a command.
    pub hint: Option<String>,
}

impl Trouble {
    fn new(message: impl Into<String>) -> Self {
        Trouble {
            message: message.into(),
            hint: None,
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Converts an error of one side.
    fn of(side: &str, error: impl Into<Error>) -> Self {
        let error = error.into();
        let mut trouble = Trouble::new(format!("{side}: {error}"));
        trouble.hint = error.report().and_then(|report| report.hint.clone());
        trouble
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

type Result<T, E = Trouble> = std::result::Result<T, E>;

/// Returns the trouble if the database can never be a target, because it is a router.
pub async fn refusal(client: &Client) -> Result<Option<Trouble>> {
    let (is_router, ..) = target::rights(client).await?;
    Ok(is_router.then(target::router))
}

/// Carries the rows of one source for one target, until the future is dropped; with `once`, until
/// no row waits. `seat` is the target's seat among those of the source. `log` is called with lines
/// of text.
///
/// # Errors
/// With `once`, the first trouble. Otherwise none: trouble is logged and retried.
pub async fn run(
    source: &Address,
    target: &Address,
    seat: &Seat,
    options: &Options,
    log: impl Fn(&str),
) -> Result<()> {
    let (source, target) = (hardened(source), hardened(target));
    let mut pause = SHORTEST_PAUSE;
    let mut last = None;
    loop {
        let begin = Instant::now();
        let served = pair::serve((&source, &target), seat, options, &log, last.take()).await;
        seat.tried();
        let Err(trouble) = served else {
            return Ok(());
        };
        if options.once {
            return Err(trouble);
        }
        log(&format!("carrying stopped: {trouble}; it will be retried"));
        if begin.elapsed() > LONGEST_PAUSE {
            pause = SHORTEST_PAUSE;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        last = Some(trouble);
    }
}

/// Returns the address with a limit on every wait. Of several hosts only the primary is used.
fn hardened(address: &Address) -> Address {
    let mut address = address.clone();
    if address.get_application_name().is_none() {
        address.application_name("trax relay");
    }
    if address.get_connect_timeout().is_none() {
        address.connect_timeout(Duration::from_secs(5));
    }
    if address.get_tcp_user_timeout().is_none() {
        address.tcp_user_timeout(Duration::from_secs(15));
    }
    if address.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        let probe = Duration::from_secs(5);
        address
            .keepalives_idle(probe)
            .keepalives_interval(probe)
            .keepalives_retries(2);
    }
    if address.get_target_session_attrs() == TargetSessionAttrs::Any {
        address.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    address
}

/// Returns the result of a step, or trouble if it exceeds the time limit.
async fn step<T>(patience: Duration, doing: impl Future<Output = Result<T>>) -> Result<T> {
    match timeout(patience, doing).await {
        Ok(done) => done,
        Err(_) => Err(Trouble::new("a server does not answer")),
    }
}

/// Runs a statement without preparing it: names of types and tables may change while a relay runs
/// for months.
async fn rows(
    side: &str,
    client: &Client,
    sql: &str,
    arguments: &[(
        &(dyn tokio_postgres::types::ToSql + Sync),
        tokio_postgres::types::Type,
    )],
) -> Result<Vec<tokio_postgres::Row>> {
    let asked = client.query_typed(sql, arguments).await;
    asked.map_err(|error| Trouble::of(side, error))
}
