//! Outboxes whose rows do not become jobs: nobody carries them, they wait long, or the database
//! refused them.

use std::time::Duration;

use super::connection::Reached;
use super::{Finding, Severity};
use crate::outbox::{self, Outbox};
use trax_client::Error;

/// Returns what is wrong with each; `patience` is how long rows may wait, and a relay be silent.
pub(super) async fn findings(reached: &Reached, patience: Duration) -> Result<Vec<Finding>, Error> {
    if !reached.installed {
        return Ok(Vec::new());
    }
    let outboxes = outbox::all(&reached.client).await?;
    Ok(outboxes
        .iter()
        .flat_map(|outbox| of(outbox, patience))
        .collect())
}

fn of(outbox: &Outbox, patience: Duration) -> Vec<Finding> {
    let Outbox {
        id,
        name,
        waiting,
        refused,
        ..
    } = outbox;
    let seconds = |length: Duration| length.as_secs();
    let mut found = Vec::new();
    // It says something each minute.
    if outbox.silent > patience.max(Duration::from_secs(90)) {
        found.push(Finding::new(
            Severity::Warning,
            "relay_silent",
            format!(
                "No relay has reported for {} s that it carries the outbox in \"{name}\" ({id}); {waiting} rows waited then.",
                seconds(outbox.silent)
            ),
            format!("trax relay --from 'dbname={name}' --to URL; if that outbox is gone: delete from trax_relay.source where source = '{id}'"),
        ));
    } else if outbox.oldest > patience {
        found.push(Finding::new(
            Severity::Warning,
            "relay_behind",
            format!(
                "{waiting} rows wait in the outbox in \"{name}\" ({id}), the oldest for {} s.",
                seconds(outbox.oldest)
            ),
            "Look at what the relay prints; many rows at once need a larger --batch.",
        ));
    }
    if *refused > 0 {
        found.push(Finding::new(
            Severity::Warning,
            "relay_refused",
            format!("This database refused {refused} rows of the outbox in \"{name}\" ({id})."),
            "There: select id, error, hint from trax_outbox.refused; then trax_outbox.retry(id), or delete the row",
        ));
    }
    found
}
