//! `trax relay`: carries rows of outboxes (`sql/outbox.sql`) to databases with trax as jobs.
//!
//! Words: the *source* has the outbox, the *target* has trax and `sql/relay.sql`. A row is
//! *carried* when its job and the row of `trax_relay.carried` with its key have committed in the
//! target, *settled* when it has left `trax_outbox.entry`. The *epoch* of a source counts the
//! relays that it has had in a target. A row is *held back* when the target neither takes nor
//! refuses it now.
//!
//! Enters: rows that have committed in the source. Leaves: jobs in the target; rows that it does
//! not take in `trax_outbox.refused`; on request what became of the jobs in `trax_outbox.result`.
//! Holds: a row becomes one job, wherever the relay, a connection or a server ends; a row waits for
//! no other that is not visible yet; a row that is refused or held back delays no other, but those
//! with its unique key.
//!
//! A relay is a pair of one source and one target: several of either are as many pairs, which share
//! nothing but the seats (`seat.rs`), so that a target that is down holds up only its own rows.
//! Which target a row is for is written in the row before it is carried, and never changes,
//! whatever targets are given later. The group decides: `trax_outbox.placement` says where the rows
//! of a group go, and is written when a group is first met, by a hash over the targets that have
//! been reached. A group that moves, moves with its next rows. A target is known by the identity
//! in its tables, not by its address, which may change. Order is kept for each target.
//!
//! Each look reads what is visible now, the lowest ids first, and keeps no high-water mark: a row
//! with a lower id that commits later is in the next look. What is read is carried, then settled,
//! then the next look follows. A batch that fails is halved until the row that fails is alone: it
//! is refused if the target says that the fault is the row's, else held back and tried again.
//! What says that rights, the extension or the server are the fault is trouble: all rows wait.
//!
//! The races:
//! - The relay ends between carrying and settling: the next one reads the row again, finds its key
//!   in `carried`, and settles it with the job that it already has.
//! - Two relays of a pair: the row of the target in the source names the session of one, the other
//!   waits until that has ended. One that lost its place without noticing, because it or its
//!   connection stood still, has an older epoch than its successor: each transaction in the target
//!   locks the row of the source and looks at the epoch first, and carries nothing with an older
//!   one.
//! - A relay or its host hangs: the session that has the place ends when it was not used for three
//!   times the patience, and the next relay takes over.
//! - The source fails over and forgets that rows were settled: they are read again, and their keys
//!   are known. They are kept for an hour, and longer while the source still has the row.
//! - The source fails over and its sequence repeats: ids repeat, keys are random and do not.
//! - The target fails over and forgets what was carried: as any job there, a row is as durable as
//!   its server makes commits; with a synchronous standby nothing is lost.
//! - A producer sees the relay awake, and commits after that has looked a last time and sleeps: the
//!   next look, a poll later, finds the row.
//!
//! A router cannot be a target: what is called there commits on a shard, outside the transaction
//! that remembers the key.
//!
//! What the relay keeps in the target is a schema of its own (`sql/relay.sql`) rather than a part
//! of the extension: it is three plain tables that nothing else reads, a dump of the database has
//! them with the jobs that they speak of, and `trax.enqueue` is called by the relay's own role, so
//! that its level and its limits hold.

mod held;
mod pair;
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

/// Makes an outbox in a database without trax.
pub const OUTBOX_SQL: &str = include_str!("../../../sql/outbox.sql");
/// Makes in the target what a relay keeps there.
pub const TARGET_SQL: &str = include_str!("../../../sql/relay.sql");

/// The longest pause after trouble.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The shortest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// How a relay works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most rows in one transaction of the target.
    pub batch: i64,
    /// How long it sleeps when nothing wakes it.
    pub poll: Duration,
    /// Whether what became of the jobs is written back.
    pub results: bool,
    /// Ends when nothing waits, and at the first trouble.
    pub once: bool,
    /// How long one step may take: a look, a batch, settling it. Who does nothing for three times
    /// as long is replaced by a relay that waits.
    pub patience: Duration,
}

/// Why carrying stopped for now.
#[derive(Debug)]
pub struct Trouble {
    /// One line.
    pub message: String,
    /// What to type.
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

    /// Returns the trouble that an error of one side is.
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

/// Returns the trouble of a target that cannot be one, whatever is done about it: a router.
pub async fn refusal(client: &Client) -> Result<Option<Trouble>> {
    let (is_router, ..) = target::rights(client).await?;
    Ok(is_router.then(target::router))
}

/// Carries the rows of one source for one target, until it is dropped; with `once` until nothing
/// waits. `seat` is the target's among those of the source. `log` gets lines for people.
///
/// # Errors
/// With `once` the first trouble; else none: trouble is logged, and passes.
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
        log(&format!(
            "carrying stopped: {trouble}; it goes on by itself"
        ));
        if begin.elapsed() > LONGEST_PAUSE {
            pause = SHORTEST_PAUSE;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        last = Some(trouble);
    }
}

/// Returns the address with a limit on every wait; of several hosts only the primary will do.
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

/// Returns what a step returns, if it ends in time.
async fn step<T>(patience: Duration, doing: impl Future<Output = Result<T>>) -> Result<T> {
    match timeout(patience, doing).await {
        Ok(done) => done,
        Err(_) => Err(Trouble::new("a server does not answer")),
    }
}

/// Runs a statement of one side that is never prepared: names of types and tables may change under
/// a relay that runs for months.
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
