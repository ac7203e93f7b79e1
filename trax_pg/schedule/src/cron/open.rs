//! The wall times of a schedule that its exclusions leave.

use super::Cron;
use crate::calendar::{DAY, day_of_week};
use crate::exclusion::Exclusions;
use crate::zone::REACH;

/// A wall time that never comes, in seconds: far beyond every instant and far from overflow.
const NEVER: i64 = i64::MAX / 4;

/// A schedule and its exclusions, on the wall clock.
pub(super) struct Open<'a> {
    cron: &'a Cron,
    exclusions: &'a Exclusions,
    /// The days of the week with a time of the schedule that no window closes, bits 0 to 6.
    days_of_week: u8,
}

impl<'a> Open<'a> {
    pub(super) fn new(cron: &'a Cron, exclusions: &'a Exclusions) -> Open<'a> {
        let mut open = Open {
            cron,
            exclusions,
            days_of_week: 0,
        };
        for day in 0..7 {
            open.days_of_week |= u8::from(open.second_from(day, 0).is_some()) << day;
        }
        open
    }

    /// Returns whether a wall time is not excluded.
    pub(super) fn allows(&self, wall: i64) -> bool {
        self.exclusions.is_open(wall)
    }

    /// Returns the first wall time that matches the schedule, is not excluded and is not before
    /// `meant`, which matches; [`NEVER`] when it is after `until`.
    pub(super) fn wall_from(&self, meant: i64, until: i64) -> i64 {
        let day = meant.div_euclid(DAY);
        if self.exclusions.is_open_day(day)
            && let Some(second) = self.second_from(day_of_week(day), meant.rem_euclid(DAY) as u32)
        {
            return day * DAY + i64::from(second);
        }
        let wanted = |year, month| self.cron.days_in(year, month);
        self.exclusions
            .open_day_after(day, (until + REACH) / DAY + 1, self.days_of_week, wanted)
            .and_then(|day| Some(day * DAY + i64::from(self.second_from(day_of_week(day), 0)?)))
            .unwrap_or(NEVER)
    }

    /// Returns the first second of a day of the week that matches the schedule, that no window
    /// closes, and that is not before `second`. Visits each window once.
    fn second_from(&self, day_of_week: u32, second: u32) -> Option<u32> {
        let mut meant = self.cron.second_from(second)?;
        loop {
            let open = self.exclusions.open_second(day_of_week, meant)?;
            if open == meant {
                return Some(meant);
            }
            meant = self.cron.second_from(open)?;
        }
    }
}
