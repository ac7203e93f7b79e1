//! Writes the effect of a change on the state of a manifest.

use super::{NextRun, ParkedOn, arm, job_ended, resume, switch_off, unpark};
use crate::server::clock::Timestamp;
use crate::server::spi::Spi;

/// The effect of a change of a definition on its state.
pub(crate) enum Rearm {
    /// The schedule is the same. The group may be another one, which is enabled: the next cycle
    /// checks. With `continues`, dead letters do not stop it any more.
    Kept { continues: bool },
    /// The manifest was disabled.
    Off,
    /// The manifest was enabled: due if an occurrence came meanwhile, otherwise at this run.
    Resumed(NextRun),
    /// The schedule begins at this run.
    At(NextRun),
}

/// Writes the effect of a change on the state of a manifest.
pub(crate) fn rearm(spi: &Spi, manifest_id: i64, group: &str, rearm: Rearm, now: Timestamp) {
    match rearm {
        Rearm::Kept { continues } => {
            let reasons = [ParkedOn::GroupDisabled, ParkedOn::DeadLetter];
            let ended = &reasons[..1 + usize::from(continues)];
            unpark(spi, manifest_id, Some(group), ended);
            if continues {
                job_ended::settle_only_run(spi, manifest_id, now);
            }
        }
        Rearm::Off => switch_off(spi, manifest_id, group, now),
        Rearm::Resumed(next) => {
            if !resume(spi, manifest_id, group, now) {
                arm(spi, manifest_id, group, next, now);
            }
        }
        Rearm::At(next) => arm(spi, manifest_id, group, next, now),
    }
}

/// Lets a manifest continue that no dead letter stops any more.
pub(crate) fn continue_manifest(spi: &Spi, manifest_id: i64, now: Timestamp) {
    unpark(spi, manifest_id, None, &[ParkedOn::DeadLetter]);
    job_ended::settle_only_run(spi, manifest_id, now);
}
