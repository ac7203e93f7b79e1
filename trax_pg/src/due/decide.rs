//! Decides about one due manifest.

use crate::error::{Error, Result};
use crate::manifest_state::{NextRun, ParkedOn};
use crate::server::clock::{Timestamp, interval_micros};
use crate::server::random::random;
use crate::server::spi::row;
use crate::timing;
use crate::timing::zone::ServerZone;
use crate::timing::{Every, Kind, Plan, Timing};
use pgrx::datum::Interval;
use pgrx::pg_sys;
use std::collections::HashMap;
use std::rc::Rc;

/// How long a manifest that could not be queued is put off, in microseconds: as long as it has been
/// failing, which doubles the time between tries, within these bounds.
const SHORTEST_RETRY_MICROS: i64 = 1_000_000;
const LONGEST_RETRY_MICROS: i64 = 60 * 1_000_000;

row! {
    /// A due manifest as stored, and the state that may keep it from being queued.
    pub(super) struct Judged {
        manifest_id: i64,
        next_run_at: Timestamp,
        next_scheduled_for: Option<Timestamp>,
        was_parked: bool,
        made_up: i32,
        blocked_on: Option<String>,
        cron: Option<String>,
        every: Option<Interval>,
        run_at: Option<Timestamp>,
        depends_mode: Option<String>,
        timezone: String,
        ends_at: Option<Timestamp>,
        misfire: String,
        misfire_threshold: Interval,
        misfire_limit: i32,
        overlap: String,
        variance: Option<Interval>,
        exclusions: Option<pg_sys::Datum>,
        group_name: String,
        task: String,
        run_as: Option<String>,
        evaluation_failures: i32,
        starts_at: Option<Timestamp>,
        max_concurrency: i32,
        evaluation_failed_since: Option<Timestamp>,
    }
}

/// A due manifest.
pub(super) struct Due {
    pub(super) manifest_id: i64,
    pub(super) group: String,
    pub(super) task: String,
    pub(super) run_as: Option<String>,
    pub(super) depends: bool,
    evaluation_failures: i32,
    run_at: Timestamp,
    /// When it first failed to be queued, if it has not been queued since.
    failed_since: Option<Timestamp>,
    /// The due occurrence; earlier than `run_at` by its part of the variance.
    occurrence: Timestamp,
    /// A user has set an earlier `run_at`: the due occurrence is not known.
    moved: bool,
    /// The manifest was parked since then: the next run stands for the occurrences in between.
    was_parked: bool,
    made_up: i32,
    pub(super) blocked_on: Option<ParkedOn>,
    timing: Timing,
    misfire: Misfire,
    threshold_micros: i64,
    misfire_limit: i32,
    skips_overlap: bool,
    from_start: bool,
}

/// How a late run is handled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Misfire {
    FireOnce,
    FireAll,
    Skip,
}

/// The result for a due manifest.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) manifest_id: i64,
    pub(super) queue_for: Option<Timestamp>,
    /// The last dropped occurrence, and the number of dropped ones.
    pub(super) skipped: Option<(Timestamp, i32)>,
    pub(super) next: NextRun,
    pub(super) parked_due_at: Option<Timestamp>,
    pub(super) made_up: i32,
    pub(super) failure: Option<Failure>,
    /// How many failures in a row its own definition caused.
    pub(super) failures: i32,
}

/// Why it could not be evaluated or queued.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) message: String,
    /// Its definition is at fault, not the server.
    pub(super) is_own: bool,
    /// The definition alone shows the failure; a failure to queue may have other causes.
    pub(super) is_certain: bool,
}

impl Decision {
    /// Puts off a manifest that could not be queued; the same occurrence is tried again. Errors
    /// with other causes do not count against it.
    pub(super) fn fail(&mut self, due: &Due, error: &Error, is_own: bool, now: Timestamp) {
        self.rest(due, error, is_own, false, now);
    }

    fn skip(&mut self, last: Timestamp, count: i32) {
        let (before, others) = self.skipped.unwrap_or((last, 0));
        self.skipped = Some((last.max(before), others + count));
    }

    fn rest(&mut self, due: &Due, error: &Error, is_own: bool, is_certain: bool, now: Timestamp) {
        let failing = due.failing_micros(now);
        let rest = failing.clamp(SHORTEST_RETRY_MICROS, LONGEST_RETRY_MICROS);
        self.queue_for = None;
        self.skipped = None;
        self.next = NextRun::At(now.plus(rest), due.occurrence);
        self.parked_due_at = due.was_parked.then_some(due.occurrence);
        self.made_up = due.made_up;
        self.failures = due.evaluation_failures + i32::from(is_own);
        self.failure = Some(Failure {
            message: error.message().to_string(),
            is_own,
            is_certain,
        });
    }
}

/// Plans of definitions seen in this cycle: many manifests share one.
#[derive(Default)]
pub(super) struct Plans(HashMap<String, Rc<Plan>>);

impl Plans {
    fn get(&mut self, timing: &Timing) -> Result<Rc<Plan>> {
        let key = format!("{timing:?}");
        if let Some(plan) = self.0.get(&key) {
            return Ok(Rc::clone(plan));
        }
        let plan = Rc::new(timing.plan()?);
        self.0.insert(key, Rc::clone(&plan));
        Ok(plan)
    }
}

impl Due {
    pub(super) fn of(row: Judged) -> Self {
        let run_at = row.next_run_at;
        let occurrence = row.next_scheduled_for.unwrap_or(run_at);
        Self {
            manifest_id: row.manifest_id,
            run_at,
            failed_since: row.evaluation_failed_since,
            occurrence: if row.run_at.is_some() {
                occurrence
            } else {
                occurrence.min(run_at)
            },
            moved: occurrence > run_at,
            was_parked: row.was_parked,
            made_up: row.made_up,
            blocked_on: row.blocked_on.as_deref().and_then(ParkedOn::parse),
            depends: row.depends_mode.is_some(),
            timing: Timing {
                cron: row.cron,
                every: row.every,
                run_at: row.run_at,
                depends: row.depends_mode.is_some(),
                timezone: row.timezone,
                starts_at: row.starts_at,
                ends_at: row.ends_at,
                variance: row.variance,
                exclusions: timing::stored_exclusions(row.exclusions),
            },
            misfire: match row.misfire.as_str() {
                "fire_all" => Misfire::FireAll,
                "skip" => Misfire::Skip,
                _ => Misfire::FireOnce,
            },
            threshold_micros: interval_micros(&row.misfire_threshold),
            misfire_limit: row.misfire_limit,
            skips_overlap: row.overlap == "skip",
            from_start: row.max_concurrency > 1,
            group: row.group_name,
            run_as: row.run_as,
            task: row.task,
            evaluation_failures: row.evaluation_failures,
        }
    }

    pub(super) fn decide(&self, plans: &mut Plans, now: Timestamp) -> Decision {
        let mut decision = Decision {
            manifest_id: self.manifest_id,
            queue_for: None,
            skipped: None,
            next: NextRun::Never,
            parked_due_at: None,
            made_up: 0,
            failure: None,
            failures: 0,
        };
        match self.blocked_on {
            Some(ParkedOn::Executing) if self.skips_overlap => {}
            Some(reason) => {
                decision.next = NextRun::Parked(reason);
                decision.parked_due_at = Some(self.occurrence);
                decision.made_up = self.made_up;
                return decision;
            }
            None => {}
        }
        match plans.get(&self.timing) {
            Ok(plan) => self.fire(&plan, now, &mut decision),
            Err(error) => {
                // The zone was known when the manifest was scheduled: its file is missing or
                // unreadable.
                let is_known = ServerZone::named(&self.timing.timezone).is_ok();
                let is_own = is_known && !error.is_of_the_server();
                decision.rest(self, &error, is_own, true, now);
            }
        }
        decision
    }

    fn fire(&self, plan: &Plan, now: Timestamp, decision: &mut Decision) {
        if let Some(start) = plan.starts_at().filter(|&start| start > now) {
            decision.next = NextRun::At(start, self.occurrence);
            return;
        }
        if plan.is_over(self.occurrence) {
            decision.next = NextRun::Parked(ParkedOn::Ended);
            return;
        }
        match plan.kind {
            Kind::Cron(_) => self.fire_cron(plan, now, decision),
            Kind::Every(every) => self.fire_every(plan, every, now, decision),
            Kind::At(_) => self.fire_once(plan, now, decision),
            Kind::Depends | Kind::Never => decision.queue_for = Some(self.occurrence),
        }
        if self.blocked_on.is_some() {
            // Skipped because the previous run has not ended.
            decision.skip(self.occurrence, 1);
            decision.queue_for = None;
        }
    }

    /// Returns when queueing it first failed, if it has not been queued since.
    pub(super) fn failed_since(&self) -> Option<Timestamp> {
        self.failed_since
    }

    /// Returns for how long queueing it has failed.
    pub(super) fn failing_micros(&self, now: Timestamp) -> i64 {
        self.failed_since
            .map_or(0, |since| now.0.saturating_sub(since.0))
    }

    fn is_late(&self, now: Timestamp) -> bool {
        let due_at = self
            .failed_since
            .map_or(self.run_at, |since| since.min(self.run_at));
        due_at.plus(self.threshold_micros) < now
    }

    /// Returns the due occurrence: after a change by hand, the first one from the time that was
    /// set.
    fn due_occurrence(&self, plan: &Plan, now: Timestamp) -> Timestamp {
        if !self.moved {
            return self.occurrence;
        }
        let first = plan.after(self.run_at.plus(-1)).map(|first| first.at);
        first.filter(|&at| at <= now).unwrap_or(self.run_at)
    }

    fn fire_cron(&self, plan: &Plan, now: Timestamp, decision: &mut Decision) {
        let late = self.is_late(now);
        let occurrence = self.due_occurrence(plan, now);
        let newest = || plan.latest(occurrence, now).unwrap_or(occurrence);
        let after = match self.misfire {
            Misfire::FireAll => {
                decision.queue_for = Some(occurrence);
                let made_up = if late { self.made_up + 1 } else { 0 };
                if late && made_up >= self.misfire_limit {
                    // An occurrence that is not late yet is not missed.
                    let late_until = now.plus(-self.threshold_micros).plus(-1).max(occurrence);
                    skip(plan, occurrence.plus(1), late_until, decision);
                    late_until
                } else {
                    decision.made_up = made_up;
                    occurrence
                }
            }
            Misfire::Skip if late => {
                let newest = plan.latest(now.plus(-self.threshold_micros), now);
                decision.queue_for = newest;
                if newest != Some(occurrence) {
                    decision.skip(occurrence, 1);
                    let to = newest.map_or(now, |at| at.plus(-1));
                    skip(plan, occurrence.plus(1), to, decision);
                }
                now
            }
            Misfire::FireOnce | Misfire::Skip if late || self.was_parked => {
                decision.queue_for = Some(newest());
                now
            }
            Misfire::FireOnce | Misfire::Skip => {
                decision.queue_for = Some(occurrence);
                occurrence
            }
        };
        decision.next = match plan.after(after) {
            Some(next) => NextRun::At(plan.vary(next.at, random()), next.at),
            None => NextRun::Parked(ParkedOn::Ended),
        };
    }

    fn fire_every(&self, plan: &Plan, every: Every, now: Timestamp, decision: &mut Decision) {
        let put_off = plan.put_off(now);
        if put_off.at > now {
            decision.next = NextRun::At(put_off.at, put_off.at);
            return;
        }
        let skip = self.misfire == Misfire::Skip && self.is_late(now);
        if skip {
            decision.skip(self.occurrence, 1);
        } else {
            decision.queue_for = Some(self.occurrence);
        }
        decision.next = if skip || self.from_start {
            // Several may run at once: the interval counts from the start.
            let next = every.after(now);
            NextRun::At(plan.vary(next, random()), next)
        } else {
            NextRun::Parked(ParkedOn::Outcome)
        };
    }

    fn fire_once(&self, plan: &Plan, now: Timestamp, decision: &mut Decision) {
        let put_off = plan.put_off(now);
        if put_off.at > now {
            decision.next = NextRun::At(put_off.at, self.occurrence);
        } else if self.misfire == Misfire::Skip && self.is_late(now) {
            decision.skip(self.occurrence, 1);
            decision.next = NextRun::Parked(ParkedOn::Ended);
        } else {
            decision.queue_for = Some(self.occurrence);
            decision.next = NextRun::Parked(ParkedOn::Outcome);
        }
    }
}

/// Records the occurrences of a period as dropped.
fn skip(plan: &Plan, from: Timestamp, to: Timestamp, decision: &mut Decision) {
    if let Some(last) = plan.latest(from, to) {
        decision.skip(last, plan.count(from, last));
    }
}
