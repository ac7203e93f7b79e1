//! Rates: how much may start in a time, by key.
//!
//! A *rate* allows a number of starts in each period, for the rate without a key and for each of
//! its keys by itself. Enters: the rates that are configured, jobs and groups that name one, and
//! calls of other programs. Leaves: starts, each with the time for which it was granted, which is
//! the `started_at` of a job. Holds:
//! - In any window of these times no more of a key starts than burst + allowed * window / period,
//!   costs counted, whoever asks, and whatever ends: how far each key is used is in shared memory
//!   (`memory/rate.rs`), which begins as if all were just used up.
//! - A job uses its own rate and that of its group, or neither.
//! - Nothing starts before the time until which its key or its rate is *closed*. A closure is a
//!   row, so it outlives the server.
//! - From the commit of a change on each start uses the new settings: a start holds a shared lock
//!   on the rate while it reads and uses it. Nothing starts while a change is not committed.
//! - A job whose cost is above the burst, which was lowered, never starts; others pass it.
//!
//! No start writes a row, so the number of starts leaves no dead rows behind a snapshot. A start
//! of a claim that is rolled back has used its rate.

mod settings;
mod start;

use crate::audit;
use crate::audit::Kind;
use crate::changes;
use crate::error::{Error, Result};
use crate::memory::rate::Limit;
use crate::server::backend::is_standby;
use crate::server::call::{Call, sql_function};
use crate::server::clock::{Timestamp, interval};
use crate::server::lock::{Lock, Mode};
use crate::server::quote::literal;
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use pgrx::Uuid;
pub(crate) use settings::{Settings, adopt, lock_use, remove, store};
pub(crate) use start::{Rates, Start, Use};

/// After how long a rate that is being configured is asked again.
const CONFIGURED_MICROS: i64 = 100_000;
/// The most closures that one sweep removes.
const SWEEP_AT_MOST: i64 = 10_000;

statement!(RateNames, "rate/names.sql" -> String);
statement!(
    RateClose, "rate/close.sql",
    { name: TEXTOID, key: TEXTOID, until: TIMESTAMPTZOID }
);
statement!(RateOpen, "rate/open.sql", { name: TEXTOID, key: TEXTOID });
row! {
    /// The rate and the key of a running job.
    struct OfLease {
        rate: Option<String>,
        key: String,
    }
}
statement!(RateOfLease, "rate/of_lease.sql", { job_id: INT8OID, token: UUIDOID } -> OfLease);
statement!(RateSweep, "rate/sweep.sql", { over_by: TIMESTAMPTZOID, at_most: INT8OID });

sql_function!(trax_consume_rate, pg_finfo_trax_consume_rate, |call| {
    let name = call.name(0, "name")?;
    let key = call.optional_name(1, "key")?.unwrap_or_default();
    let cost = cost(call, 2)?;
    spi::require_primary()?;
    let mut rows = call.rows();
    let mut rates = Rates::open();
    let consumed = spi::connected(|spi| {
        require_cost(&name, rates.require(spi, &name)?, cost)?;
        let wanted = Use {
            rate: &name,
            key: &key,
            cost,
        };
        Ok(match rates.start(&[wanted]) {
            Start::Granted(_) => [arg(true), None],
            Start::Later { micros, .. } if micros < i64::MAX => {
                [arg(false), arg(interval(micros)?)]
            }
            Start::Later { .. } | Start::AboveBurst => [arg(false), None],
            Start::Busy => [arg(false), arg(interval(CONFIGURED_MICROS)?)],
        })
    })?;
    rates.close();
    rows.push(&consumed);
    Ok(rows.end())
});

sql_function!(trax_read_rate, pg_finfo_trax_read_rate, |call| {
    let name = call.name(0, "name")?;
    let key = call.optional_name(1, "key")?.unwrap_or_default();
    let mut rows = call.rows();
    let wanted = Use {
        rate: &name,
        key: &key,
        cost: cost(call, 2)?,
    };
    // A standby grants nothing, and what the primary has granted is not known here.
    if is_standby() {
        return Ok(rows.end());
    }
    let mut rates = Rates::open();
    if let Some((available, free_at)) = rates.left(&wanted) {
        let free_at = (available < wanted.cost).then_some(free_at);
        let available = i32::try_from(available).unwrap_or(i32::MAX);
        rows.push(&[arg(available), free_at.and_then(arg)]);
    }
    rates.close();
    Ok(rows.end())
});

sql_function!(trax_close_rate, pg_finfo_trax_close_rate, |call| {
    let name = call.name(0, "name")?;
    let key = call.optional_name(1, "key")?.unwrap_or_default();
    let until = call.required::<Timestamp>(2, "until")?;
    spi::connected(|spi| {
        require(spi, &name)?;
        let note = (!key.is_empty()).then(|| format!("key {key}"));
        if until > Timestamp::now() {
            close(spi, &name, &key, until);
            audit::record(spi, "close", Kind::Rate, &name, note.as_deref());
            return Ok(());
        }
        let open = RateOpen {
            name: arg(name.as_str()),
            key: arg(key.as_str()),
        };
        if spi.execute(open) > 0 {
            changes::rates_opened();
            audit::record(spi, "open", Kind::Rate, &name, note.as_deref());
        }
        Ok(())
    })?;
    Ok(call.null())
});

fn close(spi: &Spi, name: &str, key: &str, until: Timestamp) {
    changes::rate_closed();
    spi.execute(RateClose {
        name: arg(name),
        key: arg(key),
        until: arg(until),
    });
}

/// Returns for how long the argument `close_rate` of `trax.fail` closes the rate, if it does.
pub(crate) fn closing(call: &Call, index: usize, retry_in: Option<i64>) -> Result<Option<i64>> {
    if !call.optional::<bool>(index).unwrap_or(false) {
        return Ok(None);
    }
    retry_in.map(Some).ok_or_else(|| {
        Error::invalid("argument \"close_rate\" needs retry_in")
            .detail("The rate is closed for as long as the job waits for its retry.")
            .hint("Specify how long, for example: retry_in => '30 s', close_rate => true")
    })
}

/// Closes the rate and the key under which a running job started, or the rate of its group; an
/// error when it has none. Nothing changes when the lease is lost.
pub(crate) fn close_of_job(spi: &Spi, job_id: i64, token: Uuid, until: Timestamp) -> Result<()> {
    let of_lease = RateOfLease {
        job_id: arg(job_id),
        token: arg(token),
    };
    match spi.query_latest(of_lease).first() {
        Some(OfLease {
            rate: Some(rate),
            key,
        }) => close(spi, &rate, &key, until),
        Some(OfLease { rate: None, .. }) => {
            return Err(Error::invalid(format!("job {job_id} has no rate to close"))
                .detail("Neither the job nor its group names one.")
                .hint("Enqueue it with a rate: select trax.enqueue(task, rate => '...'); or leave out close_rate."));
        }
        None => {}
    }
    Ok(())
}

/// The rate that a new job names, its key and its cost.
#[derive(Clone)]
pub(crate) struct OfJob {
    pub(crate) name: String,
    pub(crate) key: Option<String>,
    pub(crate) cost: i32,
}

impl OfJob {
    /// Returns the arguments rate, rate_key and cost, which begin at `first`. Until the transaction
    /// ends, the rate stays.
    pub(crate) fn from_call(call: &Call, first: usize) -> Result<Option<Self>> {
        let name = call.optional_name(first, "rate")?;
        let key = call.optional_name(first + 1, "rate_key")?;
        Self::checked(name, key, cost(call, first + 2)?)
    }

    /// Returns the rate of this name, which stays until the transaction ends, with a key and a cost
    /// that it can have.
    pub(crate) fn checked(
        name: Option<String>,
        key: Option<String>,
        cost: i64,
    ) -> Result<Option<Self>> {
        let Some(name) = name else {
            let argument = match &key {
                Some(_) => "rate_key",
                None if cost > 1 => "cost",
                None => return Ok(None),
            };
            return Err(Error::invalid(format!("argument \"{argument}\" needs a rate"))
                .detail("The argument rate is null or left out.")
                .hint("Name the rate, for example: rate => 'mail api', rate_key => 'customer 7', cost => 2"));
        };
        let limit = spi::connected(|spi| {
            Lock::RateUse(&name).take(Mode::Share);
            let rates = Rates::open();
            let limit = rates.require(spi, &name);
            rates.close();
            limit
        })?;
        require_cost(&name, limit, cost)?;
        let cost = cost as i32;
        Ok(Some(Self { name, key, cost }))
    }

    /// Returns the rate of a job that is queued again, which must exist and have so high a burst.
    pub(crate) fn of_ended(
        name: Option<String>,
        key: Option<String>,
        cost: Option<i32>,
    ) -> Result<Option<Self>> {
        Self::checked(name, key, cost.unwrap_or(1).into())
    }

    /// Returns its name and its key, empty if it has none.
    pub(crate) fn names(&self) -> (&str, &str) {
        (&self.name, self.key.as_deref().unwrap_or(""))
    }

    pub(crate) fn stored(
        name: Option<String>,
        key: Option<String>,
        cost: Option<i32>,
    ) -> Option<Self> {
        let cost = cost.unwrap_or(1);
        name.map(|name| Self { name, key, cost })
    }
}

/// Returns an error for a rate that does not exist; until the transaction ends, one that does
/// stays.
pub(crate) fn require(spi: &Spi, name: &str) -> Result<()> {
    Lock::RateUse(name).take(Mode::Share);
    let rates = Rates::open();
    let limit = rates.require(spi, name);
    rates.close();
    limit.map(|_| ())
}

fn cost(call: &Call, index: usize) -> Result<i64> {
    let cost = call.optional_within(index, "cost", 1, i32::MAX)?;
    Ok(i64::from(cost.unwrap_or(1)))
}

fn require_cost(name: &str, limit: Limit, cost: i64) -> Result<()> {
    let burst = limit.burst();
    if cost <= burst {
        return Ok(());
    }
    Err(Error::invalid(format!("cost {cost} is more than rate \"{name}\" ever has"))
        .detail(format!("At most {burst} of it may start at once: that is its burst."))
        .hint(format!(
            "Specify a cost from 1 to {burst}, or raise the burst: select trax.configure_rate({}, ..., burst => {cost})",
            literal(name)
        )))
}

/// Returns the error for a rate that does not exist, with the name of one that is nearly the same.
fn unknown(spi: &Spi, name: &str) -> Error {
    let names: Vec<String> = spi.query_latest(RateNames).iter().collect();
    let near = names
        .iter()
        .map(|known| (distance(known, name), known))
        .filter(|&(distance, _)| distance <= 1 + name.len() / 4)
        .min();
    let error = Error::unknown(format!("rate \"{name}\" does not exist"));
    let configure = format!(
        "select trax.configure_rate({}, 100, '1 min')",
        literal(name)
    );
    match near {
        Some((_, near)) => error
            .detail(format!("There is a rate \"{near}\"."))
            .hint(format!("Name that one, or type: {configure}")),
        None => error
            .detail("No rate has this name, nor one that is nearly the same.")
            .hint(format!(
                "Name one of them: select name from trax.rate_state order by name; or type: {configure}"
            )),
    }
}

/// Returns how many characters must be changed, added or removed to turn one text into the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, from) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, to) in other.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

/// Removes closures that are over.
pub(crate) fn sweep(spi: &Spi, over_by: Timestamp) {
    spi.execute(RateSweep {
        over_by: arg(over_by),
        at_most: arg(SWEEP_AT_MOST),
    });
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn names_that_differ_little_are_near() {
        let distances = [
            ("api", "api"),
            ("api", "appi"),
            ("mail", "mial"),
            ("", "abc"),
            ("ä", "a"),
        ];
        let distances = distances.map(|(one, other)| distance(one, other));
        assert_eq!(distances, [0, 1, 2, 3, 1]);
    }
}
