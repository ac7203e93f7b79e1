//! The settings of rates: created and changed by `trax.configure_rate` and by documents.

use super::unknown;
use crate::audit;
use crate::audit::Kind;
use crate::changes;
use crate::error::{Error, Result};
use crate::memory;
use crate::memory::rate::{LONGEST_BURST, Limit};
use crate::server::call::{Call, sql_function};
use crate::server::clock::Timestamp;
use crate::server::lock::{Lock, Mode};
use crate::server::quote::literal;
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::stored_settings::{Difference, StoredSettings};
use pgrx::pg_sys;

/// How many of the jobs that cost too much are counted.
const COUNT_AT_MOST: i64 = 1000;

statement!(
    RateConfigure, "rate/configure.sql",
    {
        name: TEXTOID,
        allowed: INT4OID,
        period: INTERVALOID,
        burst: INT4OID,
        now: TIMESTAMPTZOID,
        applied: BOOLOID,
        source: TEXTOID,
    }
);
row! {
    /// The waiting jobs of a rate that cost more than its burst.
    struct AboveBurst {
        count: i64,
        highest: i32,
    }
}
statement!(
    RateAboveBurst, "rate/above_burst.sql",
    { name: TEXTOID, burst: INT4OID, at_most: INT8OID } -> AboveBurst
);
statement!(RateUser, "rate/user.sql", { name: TEXTOID } -> String);
statement!(RateDrop, "rate/drop.sql", { name: TEXTOID });
statement!(RateAdopt, "rate/adopt.sql", { now: TIMESTAMPTZOID });

sql_function!(trax_configure_rate, pg_finfo_trax_configure_rate, |call| {
    let settings = Settings::from_call(call)?;
    spi::connected(|spi| {
        let difference = store(spi, &settings)?;
        audit::record_change(spi, "configure", Kind::Rate, &settings.name, &difference);
        Ok(())
    })?;
    Ok(call.null())
});

sql_function!(trax_drop_rate, pg_finfo_trax_drop_rate, |call| {
    let name = call.name(0, "name")?;
    let names = [name];
    lock_use(&names);
    spi::connected(|spi| {
        let [name] = &names;
        remove(spi, name)?;
        audit::record(spi, "drop", Kind::Rate, name, None);
        Ok(())
    })?;
    Ok(call.null())
});

/// Settings of a rate that it can have.
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) allowed: i32,
    pub(crate) period: pg_sys::Datum,
    /// The period, in microseconds.
    pub(crate) micros: i64,
    pub(crate) burst: Option<i32>,
    /// They come from `trax.apply`.
    pub(crate) applied: bool,
    /// The source of their document.
    pub(crate) source: Option<String>,
}

impl Settings {
    fn from_call(call: &Call) -> Result<Self> {
        let name = call.new_name(0, "name")?;
        let allowed = call.optional_within(1, "allowed", 1, i32::MAX)?;
        let allowed = allowed.ok_or_else(|| Error::null_argument("allowed"))?;
        let micros = call.positive(2, "period")?;
        let period = call.datum(2);
        Self {
            name,
            allowed,
            period: period.ok_or_else(|| Error::null_argument("period"))?,
            micros,
            burst: call.optional_within(3, "burst", 1, i32::MAX)?,
            applied: false,
            source: None,
        }
        .checked()
    }

    fn burst(&self) -> i32 {
        self.burst.unwrap_or(self.allowed)
    }

    /// Returns them; an error for a rate that is faster or longer than its times can be computed.
    pub(crate) fn checked(self) -> Result<Self> {
        let now = Timestamp::now();
        let (allowed, burst) = (self.allowed, self.burst());
        let numbers = (i64::from(allowed), self.micros, i64::from(burst));
        if Limit::new(numbers, now, now).is_some() {
            return Ok(self);
        }
        if i64::from(allowed) > self.micros {
            return Err(Error::invalid("the rate is too fast")
                .detail(format!(
                    "{allowed} in {} seconds are more than 1000000 a second.",
                    self.micros as f64 / 1e6
                ))
                .hint("Allow at most 1000000 a second, for example: allowed => 10000, period => '1 s'"));
        }
        let years = LONGEST_BURST / 366 / 86_400 / 1_000_000_000;
        Err(
            Error::invalid("argument \"burst\" is too large for this rate")
                .detail(format!(
                    "The rate allows {burst} starts in more than {years} years."
                ))
                .hint("Specify a smaller burst, or a shorter period."),
        )
    }
}

/// Stores the settings of a rate, whose lock stays if they differ; returns the difference.
pub(crate) fn store(spi: &Spi, settings: &Settings) -> Result<Difference> {
    require_memory()?;
    // Before the time at which the rate is created: its keys are known to be unused.
    memory::rate::begin();
    let name = settings.name.as_str();
    Lock::Rate(name).take(Mode::Alone);
    let before = StoredSettings::of_rate(spi, name);
    let changed = spi.execute(RateConfigure {
        name: arg(name),
        allowed: arg(settings.allowed),
        period: Some(settings.period),
        burst: settings.burst.and_then(arg),
        now: arg(Timestamp::now()),
        applied: arg(settings.applied),
        source: settings.source.as_deref().and_then(arg),
    });
    if changed > 0 {
        changes::rates_opened();
    }
    warn_above_burst(spi, settings);
    Ok(before.difference(&StoredSettings::of_rate(spi, name)))
}

/// Tells the caller how many waiting jobs cost more than the burst and so never start.
fn warn_above_burst(spi: &Spi, settings: &Settings) {
    let name = settings.name.as_str();
    let burst = settings.burst();
    let above = RateAboveBurst {
        name: arg(name),
        burst: arg(burst),
        at_most: arg(COUNT_AT_MOST),
    };
    if let Some(AboveBurst { count, highest }) = spi.query_latest(above).first()
        && count > 0
    {
        let at_least = if count < COUNT_AT_MOST {
            ""
        } else {
            "at least "
        };
        pgrx::notice!(
            "{at_least}{count} jobs that wait cost up to {highest} of rate \"{name}\", more than its burst of {burst}, and do not start; to see what to do: select detail, fix from trax.diagnose()"
        );
    }
}

fn require_memory() -> Result<()> {
    if memory::available() {
        return Ok(());
    }
    Err(Error::wrong_state("rates need the shared memory of trax")
        .detail("The server was started without trax in shared_preload_libraries.")
        .hint("Set shared_preload_libraries = 'trax' in postgresql.conf, and restart the server."))
}

/// Lets all keys of a copy count as just used up.
pub(crate) fn adopt(spi: &Spi, now: Timestamp) {
    spi.execute(RateAdopt { now: arg(now) });
    changes::rates_opened();
}

/// Waits for the transactions that have queued jobs of these rates; from then on none does.
pub(crate) fn lock_use(names: &[String]) {
    for name in names {
        Lock::RateUse(name).take(Mode::Alone);
    }
}

/// Removes a rate whose use is locked; an error if it does not exist, or is in use.
pub(crate) fn remove(spi: &Spi, name: &str) -> Result<()> {
    Lock::Rate(name).take(Mode::Alone);
    if let Some(user) = spi.query_latest(RateUser { name: arg(name) }).first() {
        return Err(Error::wrong_state(format!("rate \"{name}\" is in use"))
            .detail(format!("It is named by {user}."))
            .hint(format!(
                "To hold nothing back: select trax.configure_rate({}, 1000000, '1 s')",
                literal(name)
            )));
    }
    if spi.execute(RateDrop { name: arg(name) }) == 0 {
        return Err(unknown(spi, name));
    }
    Ok(())
}
