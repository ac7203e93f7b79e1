//! Outboxes whose rows do not become jobs: no relay carries them, they wait for long, or the
//! database refused them.

use std::time::Duration;

use super::connection::Reached;
use super::{Finding, Severity};
use crate::outbox::{Outbox, Outboxes};
use trax_client::Address;
use trax_terminal::{Failure, quote};

/// Returns findings for each outbox. `patience` is how long rows may wait, and how long a relay may
/// be silent.
pub(super) async fn findings(
    reached: &Reached,
    address: &Address,
    patience: Duration,
) -> Result<Vec<Finding>, Failure> {
    if !reached.installed {
        return Ok(Vec::new());
    }
    let outboxes = Outboxes::of(&reached.client, address).await?;
    let found = outboxes.found.iter();
    let mut findings: Vec<Finding> = found.flat_map(|outbox| of(outbox, patience)).collect();
    // An unavailable shard is a separate finding, unless only this program cannot reach it.
    findings.extend(outboxes.away.iter().map(|failure| {
        Finding::new(
            Severity::Notice,
            "outboxes_unseen",
            format!("Outboxes were not checked: {failure}"),
            failure.advice().unwrap_or(
                "Run trax doctor on a machine that reaches this shard at the router's address",
            ),
        )
    }));
    Ok(findings)
}

fn of(outbox: &Outbox, patience: Duration) -> Vec<Finding> {
    let Outbox {
        id,
        name,
        waiting,
        refused,
        trouble,
        ..
    } = outbox;
    let why = match trouble {
        Some(trouble) => format!(" {trouble}."),
        None => String::new(),
    };
    let seconds = |length: Duration| length.as_secs();
    let at = match outbox.shard {
        Some(shard) => format!("Shard {shard}: "),
        None => String::new(),
    };
    let mut found = Vec::new();
    // A relay reports once a minute.
    if outbox.silent > patience.max(Duration::from_secs(90)) {
        found.push(Finding::new(
            Severity::Warning,
            "relay_silent",
            format!(
                "{at}No relay has reported for {} s that it carries the outbox in \"{name}\" ({id}); {waiting} rows waited then.",
                seconds(outbox.silent)
            ),
            format!(
                "trax relay --from {} --to URL; if that outbox is gone: delete from trax_relay.source where source = '{id}'",
                quote::word(&format!("dbname={}", quote::conninfo(name)))
            ),
        ));
    } else if outbox.oldest > patience {
        found.push(Finding::new(
            Severity::Warning,
            "relay_behind",
            format!(
                "{at}{waiting} rows wait in the outbox in \"{name}\" ({id}), the oldest for {} s.{why}",
                seconds(outbox.oldest)
            ),
            "Check the relay's log; many rows at once need a larger --batch.",
        ));
    } else if trouble.is_some() {
        found.push(Finding::new(
            Severity::Warning,
            "relay_stopped",
            format!("{at}{waiting} rows wait in the outbox in \"{name}\" ({id}).{why}"),
            "Fix the problem that the relay reports; it then continues by itself.",
        ));
    }
    if *refused > 0 {
        found.push(Finding::new(
            Severity::Warning,
            "relay_refused",
            format!("{at}This database refused {refused} rows of the outbox in \"{name}\" ({id})."),
            "There: select id, error, hint from trax_outbox.refused; then trax_outbox.retry(id), or delete the row",
        ));
    }
    found
}
