//! The believed clock: how far a clock that has jumped is believed.
//!
//! Words: the server's clock *shows* a time, and has *jumped* when it moved by more than
//! [`MAX_DRIFT`] relative to the machine's uptime, which cannot be set. The *believed* time
//! continues from before the jump until the new time has held for [`HELD_FOR`], or a user confirms
//! it (`trax.believe_clock`); then the shown time is believed. A clock that returns to the believed
//! time has not jumped.
//!
//! Enters: the shown time, and `trax.believed_clock`: the shown and the believed time of one
//! moment, the uptime then, and the start of the machine from which the uptime counts. Leaves: a
//! [`Jump`], which yields two times. History, keys, leases, timeouts and tokens end by the
//! *earlier* one, because nothing brings them back. Rows that a wrong clock wrote are corrected by
//! the *later* one. Schedules and delays go by the shown time.
//!
//! Holds: only the holder of the cycle's lock writes the row, also a paused scheduler. A process
//! whose clock has not jumped since its last look reads no row. After another start of the machine,
//! or on another machine, the uptime is useless: there a clock is believed that shows a time less
//! than [`TOLERANCE_MICROS`] away from the row, which is rewritten every [`RECORD_AFTER`]. So after
//! a machine was off for hours, nothing is deleted for ten minutes. A dump contains no row: a copy
//! begins with the shown time of its server.

use crate::error::Result;
use crate::server::call::sql_function;
use crate::server::clock;
use crate::server::clock::{Reading, TOLERANCE_MICROS, Timestamp};
use crate::server::lock::{Lock, Mode};
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::{audit, wake};
use std::sync::atomic::{AtomicI64, Ordering};

/// Up to here two clocks of one machine may drift apart without a jump, in microseconds.
const MAX_DRIFT: i64 = 2_000_000;
/// How long a clock that has jumped must hold before it is believed.
const HELD_FOR: i64 = 10 * 60 * 1_000_000;
/// The age at which a row is rewritten, and the drift from it that rewrites it earlier.
const RECORD_AFTER: i64 = 10 * 60 * 1_000_000;
const RECORD_DRIFT: i64 = MAX_DRIFT / 4;

row! {
    /// The shown and the believed time of one moment: of the last recorded look, or, while they
    /// differ, of the first after the jump.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Believed {
        shown_at: Timestamp,
        believed_at: Timestamp,
        uptime: i64,
        boot: String,
    }
}
statement!(BelievedClockRead, "believed_clock/read.sql" -> Believed);
statement!(
    BelievedClockWrite, "believed_clock/write.sql",
    { shown_at: TIMESTAMPTZOID, believed_at: TIMESTAMPTZOID, uptime: INT8OID, boot: TEXTOID }
);

/// How far the shown time is ahead of the believed time, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Jump(i64);

impl Jump {
    const NONE: Self = Self(0);

    /// Returns the time by which things end that nothing brings back.
    pub(crate) fn earlier(self, now: Timestamp) -> Timestamp {
        now.plus(self.0.max(0).saturating_neg())
    }

    /// Returns the time by which rows lie too far ahead, and from which rows that can be lost last.
    pub(crate) fn later(self, now: Timestamp) -> Timestamp {
        now.plus(self.0.min(0).saturating_neg())
    }
}

sql_function!(trax_believe_clock, pg_finfo_trax_believe_clock, |call| {
    spi::require_primary()?;
    wake::mark(wake::DUE);
    let had_jumped = spi::connected(|spi| {
        Lock::Cycle.take(Mode::Alone);
        let reading = Reading::now();
        let jump = look(spi, reading).map_or(Jump::NONE, |row| row.jump());
        if jump != Jump::NONE {
            audit::record_here(spi, "believe_clock", None);
        }
        write(spi, &Believed::shown(reading));
        Ok(jump != Jump::NONE)
    })?;
    Ok(call.value(had_jumped))
});

sql_function!(trax_clock_jump, pg_finfo_trax_clock_jump, |call| {
    let mut rows = call.rows();
    spi::connected_anyhow(|spi| {
        let reading = Reading::now();
        let jumped = look(spi, reading).filter(|row| row.jump() != Jump::NONE);
        if let Some(row) = jumped {
            rows.push(&[
                arg(reading.shown.plus(-row.jump().0)),
                arg(row.shown_at),
                arg(row.shown_at.plus(HELD_FOR)),
            ]);
        }
        Ok(())
    })?;
    Ok(rows.end())
});

/// The difference between clock and uptime when this process last believed the clock.
static BELIEVED_DIFFERENCE: AtomicI64 = AtomicI64::new(i64::MIN);

/// Returns how far a time that the clock has just shown is to be believed.
pub(crate) fn jump(spi: &Spi, now: Timestamp) -> Jump {
    let reading = Reading::of(now);
    if is_near(
        BELIEVED_DIFFERENCE.load(Ordering::Relaxed),
        difference(reading),
        MAX_DRIFT,
    ) {
        return Jump::NONE;
    }
    let jump = look(spi, reading).map_or(Jump::NONE, |row| row.jump());
    if jump == Jump::NONE {
        BELIEVED_DIFFERENCE.store(difference(reading), Ordering::Relaxed);
    }
    jump
}

/// Records the shown time and how far it is believed, and logs a jump once; returns whether the
/// later of the two times went back, so that rows written by it lie too far ahead. The caller holds
/// the lock of the cycle.
pub(crate) fn record(spi: &Spi) -> Result<bool> {
    /// The last recorded values that this process has seen.
    static RECORDED_DIFFERENCE: AtomicI64 = AtomicI64::new(i64::MIN);
    static RECORDED_UPTIME: AtomicI64 = AtomicI64::new(i64::MIN);
    let reading = Reading::now();
    let is_fresh = |difference_then: i64, uptime: i64| {
        is_near(difference_then, difference(reading), RECORD_DRIFT)
            && (0..RECORD_AFTER).contains(&reading.uptime.saturating_sub(uptime))
    };
    if is_fresh(
        RECORDED_DIFFERENCE.load(Ordering::Relaxed),
        RECORDED_UPTIME.load(Ordering::Relaxed),
    ) {
        return Ok(false);
    }
    let boot = clock::boot();
    let stored = spi.query_latest(BelievedClockRead).first();
    let next = match &stored {
        Some(stored) => stored.at(reading, &boot),
        None => Believed::shown(reading),
    };
    match &stored {
        Some(stored) if *stored == next => {}
        Some(stored)
            if next.jump() == Jump::NONE
                && stored.jump() == Jump::NONE
                && stored.boot == boot
                && is_fresh(stored.difference(), stored.uptime) =>
        {
            RECORDED_DIFFERENCE.store(stored.difference(), Ordering::Relaxed);
            RECORDED_UPTIME.store(stored.uptime, Ordering::Relaxed);
        }
        _ => {
            RECORDED_DIFFERENCE.store(i64::MIN, Ordering::Relaxed);
            write(spi, &next);
            if next.jump() != Jump::NONE {
                pgrx::warning!(
                    "trax: the clock of this server has jumped by {} seconds; until ten minutes have passed without another jump, nothing is dropped, deleted or timed out by it; if it is right, type: select trax.believe_clock()",
                    next.jump().0 / 1_000_000
                );
            }
        }
    }
    Ok(stored.is_some_and(|stored| next.is_far_before(&stored)))
}

/// Returns the row as of a look now; `None` when there is none.
fn look(spi: &Spi, reading: Reading) -> Option<Believed> {
    let stored = spi.query_latest(BelievedClockRead).first()?;
    Some(stored.at(reading, &clock::boot()))
}

fn write(spi: &Spi, row: &Believed) {
    spi.execute(BelievedClockWrite {
        shown_at: arg(row.shown_at),
        believed_at: arg(row.believed_at),
        uptime: arg(row.uptime),
        boot: arg(row.boot.as_str()),
    });
}

fn difference(reading: Reading) -> i64 {
    reading.shown.0.saturating_sub(reading.uptime)
}

fn is_near(one: i64, other: i64, most: i64) -> bool {
    one.abs_diff(other) <= most.unsigned_abs()
}

impl Believed {
    /// Returns the row of a clock that is believed.
    fn shown(reading: Reading) -> Self {
        Self {
            shown_at: reading.shown,
            believed_at: reading.shown,
            uptime: reading.uptime,
            boot: clock::boot(),
        }
    }

    fn jump(&self) -> Jump {
        Jump(self.shown_at.0.saturating_sub(self.believed_at.0))
    }

    fn difference(&self) -> i64 {
        self.shown_at.0.saturating_sub(self.uptime)
    }

    /// Returns whether the later of its times is further back than a tolerance plus the time that
    /// passed since the other row.
    fn is_far_before(&self, other: &Self) -> bool {
        let later = |row: &Self| row.shown_at.max(row.believed_at);
        let passed = if self.boot == other.boot {
            self.uptime.saturating_sub(other.uptime).max(0)
        } else {
            0
        };
        later(self).plus(TOLERANCE_MICROS) < later(other).plus(passed)
    }

    /// Returns the row after a look at the clock: unchanged while a clock that has jumped holds.
    fn at(&self, reading: Reading, boot: &str) -> Self {
        let passed = reading.uptime.saturating_sub(self.uptime);
        let is_same_start = self.boot == boot && passed >= 0;
        let (passed, most) = if is_same_start {
            (passed, MAX_DRIFT)
        } else {
            (0, TOLERANCE_MICROS)
        };
        let believed_at = self.believed_at.plus(passed);
        let is_believed = is_near(believed_at.0, reading.shown.0, most);
        let holds = is_same_start
            && self.jump() != Jump::NONE
            && is_near(self.shown_at.plus(passed).0, reading.shown.0, MAX_DRIFT);
        let boot = boot.to_owned();
        if is_believed || (holds && passed >= HELD_FOR) {
            Self {
                shown_at: reading.shown,
                believed_at: reading.shown,
                uptime: reading.uptime,
                boot,
            }
        } else if holds {
            self.clone()
        } else {
            Self {
                shown_at: reading.shown,
                believed_at,
                uptime: reading.uptime,
                boot,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Believed, HELD_FOR, Jump, MAX_DRIFT, Reading, TOLERANCE_MICROS, Timestamp};

    const SECOND: i64 = 1_000_000;
    const DAY: i64 = 86_400 * SECOND;

    fn reading(shown: i64, uptime: i64) -> Reading {
        Reading {
            shown: Timestamp(shown),
            uptime,
        }
    }

    /// Shown 100 days after the epoch, at an uptime of a day.
    fn begun() -> Believed {
        Believed {
            shown_at: Timestamp(100 * DAY),
            believed_at: Timestamp(100 * DAY),
            uptime: DAY,
            boot: "a".to_owned(),
        }
    }

    #[test]
    fn a_clock_that_goes_on_is_believed_however_long_nobody_looks() {
        let later = begun().at(reading(130 * DAY + MAX_DRIFT, 31 * DAY), "a");
        assert_eq!(later.jump(), Jump::NONE);
        assert_eq!(later.shown_at, Timestamp(130 * DAY + MAX_DRIFT));
    }

    #[test]
    fn a_clock_that_jumps_is_believed_after_ten_minutes() {
        let jumped = begun().at(reading(109 * DAY, DAY + 60 * SECOND), "a");
        let ahead = 9 * DAY - 60 * SECOND;
        assert_eq!(jumped.jump(), Jump(ahead));
        let again = jumped.at(
            reading(109 * DAY + HELD_FOR - 1, DAY + 60 * SECOND + HELD_FOR - 1),
            "a",
        );
        assert_eq!(again, jumped);
        let held = jumped.at(
            reading(109 * DAY + HELD_FOR, DAY + 60 * SECOND + HELD_FOR),
            "a",
        );
        assert_eq!(held.jump(), Jump::NONE);
    }

    #[test]
    fn a_clock_that_goes_back_has_not_jumped_and_one_that_jumps_on_begins_again() {
        let jumped = begun().at(reading(109 * DAY, DAY), "a");
        let back = jumped.at(reading(100 * DAY + SECOND, DAY + SECOND), "a");
        assert_eq!(back.jump(), Jump::NONE);
        assert!(back.is_far_before(&jumped) && !jumped.is_far_before(&begun()));
        let behind = begun().at(reading(91 * DAY, DAY), "a");
        assert!(!behind.is_far_before(&begun()), "it may come back");
        let held = behind.at(reading(91 * DAY + HELD_FOR, DAY + HELD_FOR), "a");
        assert!(held.is_far_before(&behind));
        let on = jumped.at(reading(110 * DAY + HELD_FOR - 1, DAY + HELD_FOR - 1), "a");
        assert_eq!(on.jump(), Jump(10 * DAY));
        assert_eq!(on.uptime, DAY + HELD_FOR - 1);
    }

    #[test]
    fn after_another_start_of_the_machine_only_a_clock_near_the_record_is_believed() {
        let near = begun().at(reading(100 * DAY + TOLERANCE_MICROS, SECOND), "b");
        assert_eq!(near.jump(), Jump::NONE);
        let far = begun().at(reading(100 * DAY + TOLERANCE_MICROS + 1, SECOND), "b");
        assert_eq!(far.jump(), Jump(TOLERANCE_MICROS + 1));
        let held = begun().at(reading(109 * DAY, SECOND), "b");
        let held = held.at(reading(109 * DAY + HELD_FOR, SECOND + HELD_FOR), "b");
        assert_eq!(held.jump(), Jump::NONE);
    }

    #[test]
    fn what_ends_goes_by_the_earlier_time_and_what_lies_ahead_by_the_later() {
        let now = Timestamp(0);
        assert_eq!(
            (Jump(5).earlier(now), Jump(5).later(now)),
            (Timestamp(-5), now)
        );
        assert_eq!(
            (Jump(-5).earlier(now), Jump(-5).later(now)),
            (now, Timestamp(5))
        );
    }
}
