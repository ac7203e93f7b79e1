//! Cleanup: creates partitions of history ahead and drops old ones; deletes resolved dead letters,
//! unique keys that are over, workers that are gone and expired tokens.
//!
//! Holds: history is dropped by whole days, never row by row; a lock that is not free, also of a
//! row, is left for the next cycle; each part that may fail is a step of its own (`step.rs`). After
//! a jump of the clock nothing is deleted early, and nothing counts as too far ahead
//! (`believed_clock.rs`).

use crate::believed_clock::Jump;
use crate::clock_correction;
use crate::error::Result;
use crate::manifest::zone_update;
use crate::server::clock::{Timestamp, micros};
use crate::server::spi::{Spi, arg, row, statement};
use crate::step::isolated;
use crate::{
    audit, dead_letter, job_graph, lease, progress, rate, setting, token, unique_key,
    unreadable_job, worker_registry,
};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// How often a backend checks everything, in microseconds.
const INTERVAL_MICROS: i64 = 60 * 1_000_000;

row! {
    /// Which kinds of rows have been kept long enough, and how many partitions there are.
    struct Looked {
        has_old_runs: bool,
        has_old_letters: bool,
        has_keys: bool,
        partitions: i64,
    }
}
row! {
    /// How many partitions were created and dropped.
    struct Partitions {
        made: i32,
        dropped: i32,
    }
}
statement!(
    CleanupLook, "cleanup/look.sql",
    { runs_before: TIMESTAMPTZOID, letters_before: TIMESTAMPTZOID, now: TIMESTAMPTZOID } -> Looked
);
statement!(
    CleanupPartitions, "cleanup/partitions.sql",
    { now: TIMESTAMPTZOID, keep_since: TIMESTAMPTZOID } -> Partitions
);

/// When this backend last checked everything: a hint that spares most cycles the catalog lookups.
static LAST_LOOK: AtomicI64 = AtomicI64::new(i64::MIN);
/// The number of partitions and the retention when this backend last checked them.
static PARTITIONS: AtomicI64 = AtomicI64::new(-1);
static RETENTION: AtomicI64 = AtomicI64::new(-1);
/// Whether that failed: the next try comes after a minute.
static FAILED_LAST: AtomicBool = AtomicBool::new(false);

/// The counts of a cleanup.
#[derive(Default)]
pub(crate) struct Cleaned {
    pub(crate) partitions_made: i64,
    pub(crate) partitions_dropped: i64,
    pub(crate) dead_letters: i64,
}

/// Corrects what a cycle depends on before it queues due jobs.
pub(crate) fn before_due(spi: &Spi, now: Timestamp) {
    if !zone_update::is_corrected() {
        isolated(spi, now, false, "zone data", || {
            zone_update::correct_before_queueing(spi, now)
        });
    }
}

/// Returns whether this cycle is one that also repairs and checks everything: once a minute in each
/// backend, and when the clock `went_back`.
pub(crate) fn checks_everything(now: Timestamp, jump: Jump, went_back: bool) -> bool {
    let last = Timestamp(LAST_LOOK.load(Ordering::Relaxed));
    let latest = jump.later(now);
    let same_day = last.is_finite() && last.unix_day() == latest.unix_day();
    let is_recent = last <= latest && latest < last.plus(INTERVAL_MICROS);
    let is_due = !same_day || !is_recent || went_back;
    if is_due {
        LAST_LOOK.store(latest.0, Ordering::Relaxed);
    }
    is_due
}

/// Deletes rows that have been kept long enough; `everything` also corrects what a clock that was
/// ahead and `went_back` has left. With `keeps_runs`, no history is dropped.
pub(crate) fn clean_up(
    spi: &Spi,
    now: Timestamp,
    jump: Jump,
    went_back: bool,
    everything: bool,
    keeps_runs: bool,
) -> Cleaned {
    if everything {
        sweep(spi, now, jump, went_back);
    }
    // Last: dropping a partition locks the whole of history until the cycle has committed.
    isolated(spi, now, everything, "retention", || {
        retain(spi, now, jump, everything, keeps_runs)
    })
    .unwrap_or_default()
}

/// Removes what transactions have left, and corrects what a clock did that was ahead and
/// `went_back`.
fn sweep(spi: &Spi, now: Timestamp, jump: Jump, went_back: bool) {
    let (over_by, latest) = (jump.earlier(now), jump.later(now));
    let step = |name, work: &dyn Fn()| {
        isolated(spi, now, true, name, || {
            work();
            Ok(())
        });
    };
    isolated(spi, now, true, "zone data", || {
        zone_update::catch_up(spi, now)
    });
    clock_correction::sweep(spi, latest, went_back, step);
    step("workers that are gone", &|| {
        worker_registry::forget_gone(spi, over_by);
    });
    step("jobs that cannot be read", &|| {
        unreadable_job::sweep(spi);
    });
    step("progress", &|| {
        progress::sweep(spi, over_by);
    });
    step("heartbeats of leases that others had", &|| {
        lease::forget_extensions(spi, over_by);
    });
    step("audit", &|| {
        audit::forget(spi, over_by);
    });
    step("tokens", &|| {
        token::sweep(spi, over_by);
    });
    step("graphs", &|| {
        job_graph::forget(spi, over_by.plus(-micros(setting::run_retention())));
    });
    step("closures of rates", &|| {
        rate::sweep(spi, over_by);
    });
}

/// Removes history, resolved dead letters and unique keys whose time is over. Unless `everything`
/// is set, partitions are checked only when there are old runs, or when their number or their
/// retention has changed, and not after a failure.
fn retain(
    spi: &Spi,
    now: Timestamp,
    jump: Jump,
    everything: bool,
    keeps_runs: bool,
) -> Result<Cleaned> {
    let over_by = jump.earlier(now);
    let retention = micros(setting::run_retention());
    let runs_before = match keeps_runs {
        true => Timestamp(i64::MIN),
        false => over_by.plus(-retention),
    };
    let letters_before = over_by.plus(-micros(setting::dead_letter_retention()));
    let look = CleanupLook {
        runs_before: arg(runs_before),
        letters_before: arg(letters_before),
        now: arg(over_by),
    };
    let Looked {
        has_old_runs,
        has_old_letters,
        has_keys,
        partitions,
    } = spi.query(look).one();
    let mut cleaned = Cleaned::default();
    if has_old_letters || everything {
        cleaned.dead_letters = isolated(spi, now, everything, "resolved dead letters", || {
            Ok(dead_letter::forget_resolved(spi, letters_before) as i64)
        })
        .unwrap_or_default();
    }
    if has_keys || everything {
        isolated(spi, now, everything, "unique keys that are over", || {
            Ok(unique_key::forget_over(spi, over_by))
        });
    }
    let others = PARTITIONS.load(Ordering::Relaxed) != partitions
        || RETENTION.load(Ordering::Relaxed) != retention;
    let at_once = (has_old_runs || others) && !FAILED_LAST.load(Ordering::Relaxed);
    if everything || at_once {
        let done = isolated(spi, now, true, "partitions of trax.run", || {
            Ok(maintain_partitions(spi, now, runs_before))
        });
        FAILED_LAST.store(done.is_none(), Ordering::Relaxed);
        let (made, dropped) = done.unwrap_or_default();
        (cleaned.partitions_made, cleaned.partitions_dropped) = (made, dropped);
        PARTITIONS.store(partitions + made - dropped, Ordering::Relaxed);
        RETENTION.store(retention, Ordering::Relaxed);
    }
    Ok(cleaned)
}

/// Creates partitions ahead and drops those before a time; returns how many.
fn maintain_partitions(spi: &Spi, now: Timestamp, before: Timestamp) -> (i64, i64) {
    let look_after = CleanupPartitions {
        now: arg(now),
        keep_since: arg(before),
    };
    let Partitions { made, dropped } = spi.query(look_after).one();
    (i64::from(made), i64::from(dropped))
}
