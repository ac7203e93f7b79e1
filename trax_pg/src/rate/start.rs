//! Starts: uses rates for a job or for a call of `trax.consume_rate`.

use super::unknown;
use crate::columns::{Closure, Rate};
use crate::error::Result;
use crate::memory;
use crate::memory::rate::{Answer, Demand, Grant, Limit};
use crate::server::clock::{Timestamp, interval_micros};
use crate::server::hash::name_hash;
use crate::server::lock::{Lock, Mode};
use crate::server::spi::Spi;
use crate::server::table::{Index, Key, Row, Table, View};
use pgrx::datum::Interval;
use std::collections::HashMap;

/// The most rates that are locked at once.
const LOCKED_AT_MOST: usize = 24;

/// What a start uses of one rate.
#[derive(Clone, Copy)]
pub(crate) struct Use<'a> {
    pub(crate) rate: &'a str,
    /// Empty for the rate without a key.
    pub(crate) key: &'a str,
    pub(crate) cost: i64,
}

/// The answer to a start.
pub(crate) enum Start {
    Granted(Grant),
    /// The use with this number must wait until a time: forever for a rate that does not exist, or
    /// that is closed until it is opened.
    Later {
        number: usize,
        at: i64,
        micros: i64,
        /// When a cost of 1 may start.
        one_at: i64,
    },
    /// The first use costs more than the burst, which was lowered: it waits until that is raised.
    AboveBurst,
    /// The rate is being configured.
    Busy,
}

impl Start {
    fn never(number: usize) -> Self {
        Self::until(number, i64::MAX, i64::MAX)
    }

    /// Nothing starts before this time.
    fn until(number: usize, at: i64, micros: i64) -> Self {
        Self::Later {
            number,
            at,
            micros,
            one_at: at,
        }
    }
}

impl Use<'_> {
    /// Returns whether both are of one key.
    pub(crate) fn is_of(&self, other: &Use) -> bool {
        self.rate == other.rate && self.key == other.key
    }

    /// Returns the number that identifies the key.
    fn key(&self) -> u128 {
        name_hash(&["rate", self.rate, self.key])
    }
}

/// The tables of rates, open for reading. The settings of a rate that was read cannot change until
/// the tables are closed.
pub(crate) struct Rates {
    rates: Table,
    by_name: Index,
    closures: Table,
    by_key: Index,
    /// The rates that are locked; `None` for one that does not exist.
    known: HashMap<String, Option<Limit>>,
}

impl Rates {
    pub(crate) fn open() -> Self {
        let rates = Table::open(Rate::TABLE, Rate::ALL);
        let closures = Table::open(Closure::TABLE, Closure::ALL);
        Self {
            by_name: Index::open(&rates, c"rate_pkey"),
            by_key: Index::open(&closures, c"rate_closure_pkey"),
            rates,
            closures,
            known: HashMap::new(),
        }
    }

    /// Uses all of these rates, or none.
    pub(crate) fn start(&mut self, uses: &[Use]) -> Start {
        if self.known.len() + uses.len() > LOCKED_AT_MOST {
            self.unlock();
        }
        let mut demands = Vec::with_capacity(uses.len());
        for (number, wanted) in uses.iter().enumerate() {
            let Some(limit) = self.limit(wanted.rate) else {
                return Start::Busy;
            };
            let Some(limit) = limit else {
                return Start::never(number);
            };
            let now = Timestamp::now();
            if let Some(until) = self.closed_until(wanted, now) {
                let micros = if until.is_finite() {
                    until.0 - now.0
                } else {
                    i64::MAX
                };
                return Start::until(number, until.0, micros);
            }
            if wanted.cost > limit.burst() {
                return Start::AboveBurst;
            }
            let (key, cost) = (wanted.key(), wanted.cost);
            demands.push(Demand { key, limit, cost });
        }
        match memory::rate::consume(&demands) {
            Some(Answer::Granted(grant)) => Start::Granted(grant),
            Some(Answer::Later {
                demand,
                at,
                micros,
                one_at,
            }) => Start::Later {
                number: demand,
                at: at.0,
                micros,
                one_at: one_at.0,
            },
            None => Start::never(0),
        }
    }

    /// Returns how much of a key may start now, and when the cost may, infinity for one above the
    /// burst; `None` for a rate that does not exist or is being configured.
    pub(crate) fn left(&mut self, wanted: &Use) -> Option<(i64, Timestamp)> {
        let limit = self.limit(wanted.rate).flatten()?;
        if let Some(until) = self.closed_until(wanted, Timestamp::now()) {
            return Some((0, until));
        }
        let (key, cost) = (wanted.key(), wanted.cost);
        let (available, at) = memory::rate::left(&Demand { key, limit, cost })?;
        let at = if cost > limit.burst() {
            Timestamp(i64::MAX)
        } else {
            at
        };
        Some((available, at))
    }

    /// Returns the limit of a rate that exists, as it is committed; an error when there is none.
    /// `spi` looks for a name like it.
    pub(crate) fn require(&self, spi: &Spi, name: &str) -> Result<Limit> {
        self.find(name).ok_or_else(|| unknown(spi, name))
    }

    fn find(&self, name: &str) -> Option<Limit> {
        find(&self.by_name, [Key::equals_text(1, name)], limit_of).flatten()
    }

    /// Returns the limit of a rate, `None` if it does not exist; `None` outside when it is being
    /// configured.
    fn limit(&mut self, name: &str) -> Option<Option<Limit>> {
        if let Some(known) = self.known.get(name) {
            return Some(*known);
        }
        if !Lock::Rate(name).take_if_free(Mode::Share) {
            return None;
        }
        let limit = self.find(name);
        self.known.insert(name.to_owned(), limit);
        Some(limit)
    }

    /// Returns until when a key is closed by itself or with the whole rate.
    fn closed_until(&self, wanted: &Use, now: Timestamp) -> Option<Timestamp> {
        let of_key = |key| {
            let keys = [Key::equals_text(1, wanted.rate), Key::equals_text(2, key)];
            find(&self.by_key, keys, |row| row.get(Closure::ClosedUntil)).flatten()
        };
        let whole: Option<Timestamp> = of_key("");
        let own = match wanted.key {
            "" => None,
            key => of_key(key),
        };
        whole.max(own).filter(|&until| until > now)
    }

    fn unlock(&mut self) {
        for name in std::mem::take(&mut self.known).into_keys() {
            Lock::Rate(&name).give_back(Mode::Share);
        }
    }

    pub(crate) fn close(mut self) {
        self.unlock();
        self.by_key.close();
        self.closures.close();
        self.by_name.close();
        self.rates.close();
    }
}

/// Returns what `read` reads from the row that meets the conditions, as it is committed now.
fn find<T, const N: usize>(index: &Index, keys: [Key; N], read: impl Fn(&Row) -> T) -> Option<T> {
    let view = View::latest();
    let scan = index.scan(&view, N as i32);
    scan.seek(keys);
    let found = scan.next().then(|| read(&scan.row()));
    scan.end();
    view.end();
    found
}

/// Returns the limit in a row; `None` for one that was written by hand and is impossible.
fn limit_of(row: &Row) -> Option<Limit> {
    let allowed = i64::from(row.get::<i32>(Rate::Allowed)?);
    let period = interval_micros(&row.get::<Interval>(Rate::Period)?);
    let burst = row.get::<i32>(Rate::Burst).map_or(allowed, i64::from);
    let (created_at, changed_at) = (row.get(Rate::CreatedAt)?, row.get(Rate::ChangedAt)?);
    Limit::new((allowed, period, burst), created_at, changed_at)
}
