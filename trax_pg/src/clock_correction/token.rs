//! Tokens that a clock ahead of now has granted or extended: they last one length from now.

use super::log;
use crate::server::clock::{TOLERANCE_MICROS, Timestamp};
use crate::server::spi::{Spi, arg, row, statement};
use crate::wake;

row! {
    struct Moved {
        name: String,
    }
}
statement!(
    TokensAhead, "clock_correction/tokens.sql",
    { now: TIMESTAMPTZOID, latest: TIMESTAMPTZOID } -> Moved
);

pub(super) fn correct(spi: &Spi, now: Timestamp) {
    let moved = spi.query(TokensAhead {
        now: arg(now),
        latest: arg(now.plus(TOLERANCE_MICROS)),
    });
    for token in moved.iter() {
        // Waiters learn when it ends.
        wake::token_freed(&token.name);
    }
    log(
        moved.len(),
        "tokens expired too far ahead and were corrected",
    );
}
