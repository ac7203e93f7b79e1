//! `trax relay`: carries rows of an outbox (`sql/outbox.sql`) to a database with trax as jobs.
//!
//! Words: the *source* has the outbox, the *target* has trax and `sql/relay.sql`. A row is
//! *carried* when its job and the row of `trax_relay.carried` with its key have committed in the
//! target, *settled* when it has left `trax_outbox.entry`. The *epoch* of a source counts the
//! relays that it has had.
//!
//! Enters: rows that have committed in the source. Leaves: jobs in the target; rows that it does
//! not take in `trax_outbox.refused`; on request what became of the jobs in `trax_outbox.result`.
//! Holds: a row becomes one job, wherever the relay, a connection or a server ends; a row waits for
//! no other that is not visible yet; a row that is refused delays no other.
//!
//! Each look reads what is visible now, the lowest ids first, and keeps no high-water mark: a row
//! with a lower id that commits later is in the next look. What is read is carried, then settled,
//! then the next look follows.
//!
//! The races:
//! - The relay ends between carrying and settling: the next one reads the row again, finds its key
//!   in `carried`, and settles it with the job that it already has.
//! - Two relays: one holds an advisory lock of the source, the other waits for it. A relay that
//!   lost the lock without noticing, because it or its connection stood still, has an older epoch
//!   than its successor: each transaction in the target locks the row of the source and looks at
//!   the epoch first, and carries nothing with an older one.
//! - The source fails over and forgets that rows were settled: they are read again, and their keys
//!   are known. They are kept for an hour, and longer while the source still has the row.
//! - The source fails over and its sequence repeats: ids repeat, keys are random and do not.
//! - The target fails over and forgets what was carried: as any job there, a row is as durable as
//!   its server makes commits; with a synchronous standby nothing is lost.
//! - A producer sees the relay awake, and commits after that has looked a last time and sleeps: the
//!   next look, a poll later, finds the row.
//!
//! What the relay keeps in the target is a schema of its own (`sql/relay.sql`) rather than a part
//! of the extension: it is two plain tables that nothing else reads, a dump of the database has
//! them with the jobs that they speak of, and `trax.enqueue` is called by the relay's own role, so
//! that its level and its limits hold.

mod source;
mod target;

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::{Client, Config};
use trax_client::{Address, Error};

use source::Source;
use target::Target;

/// Makes an outbox in a database without trax.
pub const OUTBOX_SQL: &str = include_str!("../../../sql/outbox.sql");
/// Makes in the target what a relay keeps there.
pub const TARGET_SQL: &str = include_str!("../../../sql/relay.sql");

/// How long one step may take: a look, a batch, settling it.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest pause after trouble.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The shortest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two looks whether the relay before has ended.
const LOCK_PERIOD: Duration = Duration::from_secs(1);
/// How often old keys are removed, and a relay says how far it is although nothing changed.
const ROUND: Duration = Duration::from_secs(60);
/// How often it says so when something changed.
const REPORT_PERIOD: Duration = Duration::from_secs(10);

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

/// Carries the rows of one source, until it is dropped; with `once` until nothing waits. `log` gets
/// lines for people.
///
/// # Errors
/// With `once` the first trouble; else none: trouble is logged, and passes.
pub async fn run(
    source: &Address,
    target: &Address,
    options: &Options,
    log: impl Fn(&str),
) -> Result<()> {
    let (source, target) = (hardened(source), hardened(target));
    let mut pause = SHORTEST_PAUSE;
    loop {
        let begin = Instant::now();
        let Err(trouble) = serve(&source, &target, options, &log).await else {
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

/// Carries with one connection to each side, until one of them breaks.
async fn serve(
    source: &Address,
    target: &Address,
    options: &Options,
    log: &impl Fn(&str),
) -> Result<()> {
    let mut source = Source::open(source).await?;
    let mut is_told = false;
    while !step(source.take_lock()).await? {
        if !is_told {
            log("another relay carries the rows of this outbox; this one waits for its end");
            is_told = true;
        }
        sleep(options.poll.min(LOCK_PERIOD)).await;
    }
    let mut target = Target::open(target, step(source.identity()).await?).await?;
    log(&format!(
        "carries, as relay number {} of this outbox",
        target.epoch()
    ));
    let mut numbers = Numbers::default();
    let mut reported = None;
    let begin = Instant::now();
    let (mut next_report, mut next_round) = (begin, begin + ROUND);
    loop {
        let rows = step(source.waiting(options.batch)).await?;
        if !rows.is_empty() {
            step(source.set_asleep(false)).await?;
            let outcomes = step(target.carry(&rows)).await?;
            step(source.settle(&outcomes, options.results)).await?;
            numbers.count(&outcomes);
        }
        if options.results {
            step(write_results(&mut source, &target)).await?;
        }
        let now = Instant::now();
        let is_over = options.once && rows.is_empty();
        let is_round = is_over || now >= next_round;
        if is_round {
            step(forget(&source, &mut target)).await?;
            next_round = now + ROUND;
        }
        if is_round || now >= next_report {
            let lag = step(source.lag()).await?;
            if is_round || reported != Some(lag) {
                step(target.report(&lag)).await?;
                reported = Some(lag);
            }
            if is_round {
                numbers.report(&lag, log);
            }
            next_report = now + REPORT_PERIOD;
        }
        if is_over {
            return Ok(());
        }
        if !rows.is_empty() {
            continue;
        }
        // A last look follows the word that the relay sleeps.
        if step(source.set_asleep(true)).await? {
            continue;
        }
        let is_behind = reported.is_some_and(|lag: source::Lag| lag.waiting > 0);
        let next = if is_behind { next_report } else { next_round };
        let until = next.saturating_duration_since(Instant::now());
        source.sleep(options.poll.min(until)).await;
    }
}

/// Returns what a step returns, if it ends in time.
async fn step<T>(doing: impl Future<Output = Result<T>>) -> Result<T> {
    match timeout(PATIENCE, doing).await {
        Ok(done) => done,
        Err(_) => Err(Trouble::new("a server does not answer")),
    }
}

/// Writes back what became of jobs, a page of them.
async fn write_results(source: &mut Source, target: &Target) -> Result<()> {
    let open = source.unfinished().await?;
    if open.is_empty() {
        return Ok(());
    }
    let ended = target.ended(&open).await?;
    source.finish(&ended).await
}

/// Removes keys that are old and that the source does not have any more.
async fn forget(source: &Source, target: &mut Target) -> Result<()> {
    let old = target.old_keys().await?;
    let gone = source.without_row(old).await?;
    target.forget(&gone).await
}

/// What was done since the last report.
#[derive(Default)]
struct Numbers {
    carried: usize,
    refused: usize,
}

impl Numbers {
    fn count(&mut self, outcomes: &[target::Outcome]) {
        let carried = outcomes.iter().filter(|outcome| outcome.became.is_ok());
        let carried = carried.count();
        self.carried += carried;
        self.refused += outcomes.len() - carried;
    }

    fn report(&mut self, lag: &source::Lag, log: &impl Fn(&str)) {
        let Numbers { carried, refused } = std::mem::take(self);
        let source::Lag { waiting, age, .. } = lag;
        if carried + refused > 0 || *waiting > 0 {
            log(&format!(
                "carried {carried}, refused {refused}; {waiting} wait, the oldest for {age:.1} s"
            ));
        }
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
