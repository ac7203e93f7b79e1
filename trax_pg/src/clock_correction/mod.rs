//! Corrections after the server's clock was ahead: rows that it wrote lie too far in the future.
//!
//! Enters: leases that the reaper has found; tokens, rates, next runs, retries and waiting jobs,
//! from the sweep of each minute; all of them when the clock has gone back. Leaves: rows with times
//! that the current clock would have given them, and a line in the log. Holds, for all of them: a
//! row is corrected only if the time at which it was *written* lies more than
//! [`TOLERANCE_MICROS`] after now, so a time that a user chose stays, however far ahead it is.
//! `now` is the later one of the two times of `believed_clock`.

mod lease;
mod next_run;
mod rate;
mod token;
mod waiting_job;

use crate::server::clock::Timestamp;
use crate::server::spi::Spi;
pub(crate) use lease::correct_leases;

#[cfg(doc)]
use crate::server::clock::TOLERANCE_MICROS;

/// Runs each correction as a step of its own, by name; `went_back` checks all rows.
pub(crate) fn sweep(
    spi: &Spi,
    now: Timestamp,
    went_back: bool,
    step: impl Fn(&'static str, &dyn Fn()),
) {
    step("next runs that lie too far ahead", &|| {
        next_run::correct(spi, now, went_back);
    });
    step("extensions that lie too far ahead", &|| {
        lease::forget_extensions_ahead(spi, now);
    });
    step("retries that lie too far ahead", &|| {
        waiting_job::correct_retries(spi, now);
    });
    if went_back {
        step("jobs that were ready too early", &|| {
            waiting_job::correct_ready(spi, now);
        });
    }
    step("tokens that lie too far ahead", &|| {
        token::correct(spi, now);
    });
    step("rates that are used too far ahead", &|| {
        rate::correct(spi, now);
    });
}

/// Logs a number of corrected rows.
fn log(count: usize, rows: &str) {
    if count > 0 {
        pgrx::warning!("trax: {count} {rows}; the clock of this server may have been wrong");
    }
}
