//! Outboxes whose rows do not become jobs: no relay carries them, they wait for long, or the
//! database refused them.

use std::time::Duration;

use super::connection::Reached;
use super::{Finding, Severity};
use crate::outbox::Outboxes;
use trax_client::Address;
use trax_terminal::Failure;
use trax_terminal::outbox::Problem;

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
    let problems = found.flat_map(|outbox| outbox.problems(patience));
    let warning = |p: Problem| Finding::new(Severity::Warning, p.cause, p.detail, p.fix);
    let mut findings: Vec<Finding> = problems.map(warning).collect();
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
