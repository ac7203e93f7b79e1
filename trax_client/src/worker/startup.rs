//! The one-time work when a worker first reaches the server: it stores its manifests and reports
//! waiting jobs without a handler.

use std::collections::BTreeMap;

use super::calls::Db;
use super::event::{Event, Events};
use crate::error::{Error, Result};
use crate::job::ClaimOptions;
use crate::manifest::Manifest;

/// The one-time work when a worker first reaches the server.
pub(crate) struct Startup {
    pub(crate) schedules: Vec<Manifest>,
    /// Sources, and all of the manifests of each.
    pub(crate) declared: BTreeMap<String, Vec<Manifest>>,
}

/// Returns an error that ends the run, unless a retry may succeed.
fn refused(error: Error, what: &str) -> Error {
    if error.is_transient() {
        return error;
    }
    Error::Setup(format!("{what}: {error}"))
}

/// Stores the schedules, and reports the tasks with waiting jobs that have no handler here.
pub(super) async fn start_up(
    client: &Db<'_>,
    startup: &Startup,
    options: &ClaimOptions,
    events: &Events,
) -> Result<()> {
    for manifest in &startup.schedules {
        client.schedule(manifest).await.map_err(|error| {
            refused(
                error,
                &format!("the schedule \"{}\" was refused", manifest.name()),
            )
        })?;
    }
    for (source, manifests) in &startup.declared {
        let declared = client.declare(source, manifests).await;
        let changes = declared.map_err(|error| {
            refused(
                error,
                &format!("the manifests of \"{source}\" were refused"),
            )
        })?;
        if !changes.is_empty() {
            let source = source.clone();
            events.emit(Event::Declared { source, changes });
        }
    }
    let Some(handled) = &options.tasks else {
        return Ok(());
    };
    match client.waiting_tasks(options.groups.as_deref()).await {
        Ok(mut tasks) => {
            tasks.retain(|task| !handled.contains(task));
            if !tasks.is_empty() {
                events.emit(Event::Unhandled { tasks });
            }
            Ok(())
        }
        Err(error) if error.is_transient() => Err(error),
        // This report is only advice; a real problem also makes the claim fail.
        Err(_) => Ok(()),
    }
}
