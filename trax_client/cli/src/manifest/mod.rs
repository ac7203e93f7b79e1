//! `trax manifest`: the stored definitions of work and its schedules.

mod apply;
mod change;
mod difference;
mod document;
mod export;
mod forecast;
mod list;
mod show;

use crate::command::commands;

commands! {
    /// The manifests, with their schedules and next runs
    List(list::Arguments) => list::run,
    /// Everything about a manifest: definition, state, next and last runs
    Show(show::Arguments) => show::run,
    /// Create and change the manifests, groups, rates and tasks of files; shows the difference
    /// first, and asks
    Apply(apply::Arguments) => apply::run,
    /// Show what apply would change
    Diff(apply::DiffArguments) => apply::diff,
    /// Print the stored manifests, groups, rates and tasks as a file that apply reads
    Export(export::Arguments) => export::run,
    /// Enable manifests; their misfire policy decides about the runs that they missed
    Enable(change::Arguments) => change::enable,
    /// Disable manifests; jobs that wait or run continue
    Disable(change::Arguments) => change::disable,
    /// Queue a job of a manifest now; prints its id
    Trigger(change::TriggerArguments) => change::trigger,
    /// The next runs of a manifest
    Preview(forecast::Arguments) => forecast::preview,
    /// Why a manifest does or does not run now
    Why(forecast::WhyArguments) => forecast::why,
    /// Remove manifests and cancel their waiting jobs; asks
    Delete(change::DeleteArguments) => change::delete,
}
