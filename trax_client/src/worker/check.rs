//! Checks of a worker's configuration before it starts.

use super::handlers::Handlers;
use crate::error::{Error, Result};
use crate::manifest::Manifest;

/// Checks the configuration of a worker before it starts.
pub(crate) fn check<'m, S: Send + Sync + 'static>(
    handlers: &Handlers<S>,
    mut manifests: impl Iterator<Item = &'m Manifest>,
) -> Result<()> {
    let mistake = handlers.mistake().or_else(|| {
        let unhandled = manifests
            .find(|manifest| !handlers.knows(manifest.task()))?;
        Some(format!(
            "the schedule \"{}\" runs task \"{}\", for which this worker has no handler; add one, or store the \
             schedule elsewhere",
            unhandled.name(),
            unhandled.task()
        ))
    });
    mistake.map_or(Ok(()), |mistake| Err(Error::Setup(mistake)))
}

/// Returns every manifest that a worker stores at startup.
pub(crate) fn declared_by<'m>(
    schedules: &'m [Manifest],
    declared: &'m Option<(String, Vec<Manifest>)>,
) -> impl Iterator<Item = &'m Manifest> {
    let declared = declared.iter().flat_map(|(_, manifests)| manifests);
    schedules.iter().chain(declared)
}
