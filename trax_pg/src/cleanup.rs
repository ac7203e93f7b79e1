//! Cleanup: partitions of history made ahead and dropped behind, resolved dead letters, workers that are gone, expired tokens and copies of lanes forgotten.
//!
//! Holds: history is dropped by whole days, never row by row; a lock that is not free, of a row too, is left for the next
//! cycle.

use crate::clock::{Timestamp, micros};
use crate::spi::{self, Spi, arg, statement};
use crate::{
    dead_letter, limit, manifest_state, progress, registry, setting, token, work_queue, zone_data,
};
use std::sync::atomic::{AtomicI64, Ordering};

/// How often a backend looks after partitions, in microseconds.
const INTERVAL_MICROS: i64 = 60 * 1_000_000;

statement!(
    CLEANUP_PARTITIONS,
    "cleanup_partitions.sql",
    TIMESTAMPTZOID,
    TIMESTAMPTZOID
);

/// When this backend last looked: a hint that spares the catalog lookups of most cycles.
static LAST_LOOK: AtomicI64 = AtomicI64::new(i64::MIN);

/// What a cleanup did.
#[derive(Default)]
pub(crate) struct Cleaned {
    pub(crate) partitions_made: i64,
    pub(crate) partitions_dropped: i64,
    pub(crate) dead_letters: i64,
}

/// Cleans up at most once a minute in each backend.
pub(crate) fn clean_up(spi: &Spi, now: Timestamp) -> Cleaned {
    let last = Timestamp(LAST_LOOK.load(Ordering::Relaxed));
    let same_day = last.is_finite() && last.unix_day() == now.unix_day();
    if same_day && last <= now && now < last.plus(INTERVAL_MICROS) {
        return Cleaned::default();
    }
    LAST_LOOK.store(now.0, Ordering::Relaxed);
    let mut cleaned = Cleaned::default();
    let before = now.plus(-micros(setting::dead_letter_retention()));
    cleaned.dead_letters = dead_letter::forget_resolved(spi, before) as i64;
    if let Err(error) = spi::isolated(|| zone_data::catch_up(spi, now)) {
        let message = error.message();
        pgrx::warning!(
            "trax: next runs were not corrected after an update of the zone data: {message}"
        );
    }
    manifest_state::sweep(spi, now);
    registry::forget_gone(spi, now);
    limit::sweep(spi);
    progress::sweep(spi, now);
    token::sweep(spi, now);
    work_queue::deduplicate_lanes(spi);
    // Last: dropping one locks the whole of history until the cycle has committed.
    let partitions = spi::isolated(|| {
        let before = now.plus(-micros(setting::run_retention()));
        let rows = spi.query(&CLEANUP_PARTITIONS, &[arg(now), arg(before)]);
        let row = rows
            .first()
            .expect("a select without a table gives one row");
        Ok((row.must::<i32>(1), row.must::<i32>(2)))
    });
    match partitions {
        Ok((made, dropped)) => {
            cleaned.partitions_made = i64::from(made);
            cleaned.partitions_dropped = i64::from(dropped);
        }
        Err(error) => {
            let message = error.message();
            pgrx::warning!("trax: partitions of trax.run were not looked after: {message}");
        }
    }
    cleaned
}
