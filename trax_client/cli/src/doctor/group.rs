//! Groups that are used but not configured while a configured one has a similar name.

use super::connection::Reached;
use super::{Finding, Severity};
use crate::similar::distance;
use trax_terminal::quote;

/// At most $1 names: configured groups, and those used by manifests and live jobs.
const GROUPS: &str = include_str!("../query/group_used.sql");
const COMPARED: i64 = 5000;

/// Returns a notice for each. Empty for a role that may not read the tables, which is a separate
/// finding.
pub(super) async fn mistyped(reached: &Reached) -> Vec<Finding> {
    if !reached.installed {
        return Vec::new();
    }
    let arguments = [(&COMPARED as _, tokio_postgres::types::Type::INT8)];
    let Ok(rows) = reached.client.query_typed(GROUPS, &arguments).await else {
        return Vec::new();
    };
    let groups: Vec<(String, bool)> = rows
        .iter()
        .filter_map(|row| Some((row.try_get(0).ok()?, row.try_get(1).ok()?)))
        .collect();
    let (configured, used): (Vec<_>, Vec<_>) = groups.into_iter().partition(|(_, is)| *is);
    let alike = |name: &str| {
        let mut configured = configured.iter().map(|(other, _)| other.as_str());
        configured.find(|other| distance(name, other) == 1)
    };
    used.iter()
        .filter_map(|(name, _)| alike(name).map(|other| finding(name, other)))
        .collect()
}

fn finding(name: &str, other: &str) -> Finding {
    Finding::new(
        Severity::Notice,
        "group_like_another",
        format!(
            "Group \"{name}\" is used and has no settings; group \"{other}\", which has some, differs from it by one letter."
        ),
        format!(
            "If \"{other}\" is meant, correct the name where it is used. If not: trax group set {} --priority 0",
            quote::word(name)
        ),
    )
}
