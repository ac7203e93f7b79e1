//! Decides when a manifest runs next after a change of its definition.
//!
//! Enters: the stored definition, which is locked, and the one before the change. Leaves: the
//! change of its state, which [`manifest_state::rearm`](crate::manifest_state::rearm) writes.

use super::definition::Definition;
use crate::error::Result;
use crate::manifest_state::dependency;
use crate::manifest_state::{NextRun, ParkedOn, Rearm};
use crate::outcome;
use crate::server::clock::Timestamp;
use crate::server::random::random;
use crate::server::spi::Spi;
use crate::timing::{Kind, Plan};

/// Returns the effect of a call of `trax.schedule`, or of a document.
pub(super) fn after_change(
    spi: &Spi,
    before: Option<&Definition>,
    after: &Definition,
    now: Timestamp,
) -> Result<Rearm> {
    let plan = after.timing.plan()?;
    match before.filter(|before| runs_as(before, after)) {
        None => {
            plan.refuse_if_never(now)?;
            Ok(Rearm::At(first_run(spi, after, &plan, now)?))
        }
        Some(before) if before.enabled != after.enabled => after_switch(spi, after, now),
        Some(before) => Ok(Rearm::Kept {
            continues: after.continues && !before.continues,
        }),
    }
}

/// Returns the effect of a switch of `enabled`. An occurrence that came meanwhile is due, and late,
/// when the manifest is enabled again, as after its group was disabled; its misfire policy decides
/// about it.
pub(super) fn after_switch(spi: &Spi, after: &Definition, now: Timestamp) -> Result<Rearm> {
    if !after.enabled {
        return Ok(Rearm::Off);
    }
    if after.has_had_its_run() {
        return Ok(Rearm::At(NextRun::Parked(ParkedOn::Ended)));
    }
    let next = first_run(spi, after, &after.timing.plan()?, now)?;
    Ok(match after.timing.cron {
        Some(_) => Rearm::Resumed(next),
        None => Rearm::At(next),
    })
}

/// Returns whether both run at the same times, when they are enabled.
fn runs_as(before: &Definition, after: &Definition) -> bool {
    before.timing == after.timing
        && before.parents == after.parents
        && before.depends_mode == after.depends_mode
        && before.dormant == after.dormant
}

/// Returns the first run of a schedule that begins, or begins again, now.
fn first_run(spi: &Spi, after: &Definition, plan: &Plan, now: Timestamp) -> Result<NextRun> {
    if !after.enabled {
        return Ok(NextRun::Parked(ParkedOn::Disabled));
    }
    match plan.kind {
        Kind::Never => Ok(NextRun::Never),
        Kind::Depends if !after.dormant && dependency::is_satisfied(spi, after.id) => {
            Ok(NextRun::At(now, now))
        }
        Kind::Depends => Ok(NextRun::Never),
        // Its only run was queued already; only the outcome is still to come.
        Kind::At(at) if after.last_scheduled_for == Some(plan.once(at).at) => {
            let live = outcome::jobs_of_manifest(spi, after.id);
            Ok(NextRun::Parked(match live.is_empty() {
                false => ParkedOn::Outcome,
                true => ParkedOn::Ended,
            }))
        }
        Kind::Cron(_) | Kind::Every(_) | Kind::At(_) => {
            Ok(match plan.first(now, after.last_success_at) {
                Some(first) => NextRun::At(plan.vary(first.at, random()), first.at),
                None => NextRun::Parked(ParkedOn::Ended),
            })
        }
    }
}
