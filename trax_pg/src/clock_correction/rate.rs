//! Rates that a clock ahead of now has used or changed.

use super::log;
use crate::changes;
use crate::memory;
use crate::server::clock::{TOLERANCE_MICROS, Timestamp};
use crate::server::spi::{Spi, arg, statement};

statement!(
    RatesAhead, "clock_correction/rates.sql",
    { now: TIMESTAMPTZOID, latest: TIMESTAMPTZOID }
);

pub(super) fn correct(spi: &Spi, now: Timestamp) {
    let ahead = RatesAhead {
        now: arg(now),
        latest: arg(now.plus(TOLERANCE_MICROS)),
    };
    let corrected = spi.execute(ahead) + memory::rate::correct(now);
    if corrected > 0 {
        changes::rates_opened();
    }
    log(
        corrected,
        "rates and keys of rates were used too far ahead and were corrected",
    );
}
