//! Dependencies: manifests that run when others have succeeded.
//!
//! Words: an *edge* leads from a dependent (child) to a parent. It is *satisfied* by a success of
//! the parent and *consumed* when the child is queued. A *dormant* dependent is queued only by its
//! running parent.
//!
//! Holds: completing the last parent that is needed and making the child due is one commit; of many
//! parents that complete at once, each waits for the lock on the child's state and sees the edges
//! of those before it, so that exactly one of them fires the child; edges form no circle.

use crate::error::{Error, Result};
use crate::manifest_state;
use crate::server::clock::Timestamp;
use crate::server::lock::{Lock, Mode};
use crate::server::spi::{Spi, arg, statement};
use pgrx::PgSqlErrorCode;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

statement!(
    DEPENDENCY_CHILDREN,
    "manifest_state/dependency_children.sql",
    INT8ARRAYOID
);
statement!(
    DEPENDENCY_SATISFY,
    "manifest_state/dependency_satisfy.sql",
    INT8ARRAYOID,
    INT8ARRAYOID,
    TIMESTAMPTZOID,
    INT8ARRAYOID
);
statement!(
    DEPENDENCY_FIRE,
    "manifest_state/dependency_fire.sql",
    INT8ARRAYOID,
    TIMESTAMPTZOID
);
statement!(
    DEPENDENCY_CONSUME,
    "manifest_state/dependency_consume.sql",
    INT8ARRAYOID
);
statement!(
    DEPENDENCY_SATISFIED,
    "manifest_state/dependency_satisfied.sql",
    INT8OID
);
statement!(
    DEPENDENCY_REPLACE,
    "manifest_state/dependency_replace.sql",
    INT8OID,
    INT8ARRAYOID
);
statement!(
    DEPENDENCY_PARENTS,
    "manifest_state/dependency_parents.sql",
    INT8ARRAYOID
);
statement!(
    DEPENDENCY_READY,
    "manifest_state/dependency_ready.sql",
    INT8ARRAYOID
);
statement!(MANIFEST_NAMES, "manifest_state/names.sql", INT8ARRAYOID);
statement!(
    DEPENDENCY_DEPENDENTS,
    "manifest_state/dependency_dependents.sql",
    INT8OID
);
statement!(
    DEPENDENCY_RUNNING_PARENT,
    "manifest_state/dependency_running_parent.sql",
    INT8OID
);
statement!(MANIFEST_IDS, "manifest_state/ids.sql", TEXTARRAYOID);

/// The children of manifests.
pub(crate) fn children(spi: &Spi, parents: &[i64]) -> Vec<i64> {
    let rows = spi.query_latest(&DEPENDENCY_CHILDREN, &[arg(parents.to_vec())]);
    rows.iter().map(|row| row.must(1)).collect()
}

/// Satisfies the edges to parents that have succeeded, and makes the children due that need no
/// more. The states of the children are locked by the caller.
pub(crate) fn satisfy(spi: &Spi, succeeded: &[(i64, i64)], children: &[i64], now: Timestamp) {
    if children.is_empty() {
        return;
    }
    let parents: Vec<i64> = succeeded.iter().map(|&(parent, _)| parent).collect();
    let jobs: Vec<i64> = succeeded.iter().map(|&(_, job)| job).collect();
    spi.execute(
        &DEPENDENCY_SATISFY,
        &[arg(parents), arg(jobs), arg(now), arg(children.to_vec())],
    );
    // Under the locks of the children's states, whatever the isolation level: the parents before us
    // have committed.
    let rows = spi.query_latest(&DEPENDENCY_READY, &[arg(children.to_vec())]);
    let ready: Vec<i64> = rows.iter().map(|row| row.must(1)).collect();
    if !ready.is_empty() {
        spi.execute(&DEPENDENCY_FIRE, &[arg(ready), arg(now)]);
    }
}

/// Uses up what satisfied children that are queued now.
pub(crate) fn consume(spi: &Spi, children: Vec<i64>) {
    if !children.is_empty() {
        spi.execute(&DEPENDENCY_CONSUME, &[arg(children)]);
    }
}

/// Whether a dependent has all it waits for.
pub(crate) fn is_satisfied(spi: &Spi, child: i64) -> bool {
    spi.query_latest(&DEPENDENCY_SATISFIED, &[arg(child)])
        .first()
        .is_some_and(|row| row.get(1).unwrap_or(false))
}

/// Sets the parents of a manifest. Refuses unknown names (42704) and circles (22023, with the
/// path).
pub(crate) fn replace(spi: &Spi, child: i64, child_name: &str, parents: &[String]) -> Result<()> {
    lock_edges();
    // The state of a child is locked before its edges, as a parent's completion does.
    manifest_state::hold(spi, vec![child]);
    let ids = ids(spi, parents)?;
    if let Some(path) = path(spi, &ids, child) {
        let rows = spi.query_latest(&MANIFEST_NAMES, &[arg(path)]);
        let path: Vec<String> = rows.iter().map(|row| row.must(1)).collect();
        let circle: Vec<&str> = std::iter::once(child_name)
            .chain(path.iter().map(String::as_str))
            .collect();
        return Err(
            Error::invalid(format!("manifest \"{child_name}\" would depend on itself"))
                .detail(format!("The circle is {}.", circle.join(" -> ")))
                .hint("Leave out one of these edges: depends_on => array['...']"),
        );
    }
    spi.execute(&DEPENDENCY_REPLACE, &[arg(child), arg(ids)]);
    Ok(())
}

/// The shortest way up from one of `parents` to `wanted`, both included. Each manifest is visited
/// once, in rounds of one statement, so that a wide and deep net costs no more than its edges.
fn path(spi: &Spi, parents: &[i64], wanted: i64) -> Option<Vec<i64>> {
    let mut came_from: HashMap<i64, Option<i64>> =
        parents.iter().map(|&parent| (parent, None)).collect();
    let mut round = parents.to_vec();
    while !round.is_empty() && !came_from.contains_key(&wanted) {
        let rows = spi.query_latest(&DEPENDENCY_PARENTS, &[arg(std::mem::take(&mut round))]);
        for row in rows.iter() {
            let (child, parent) = (row.must::<i64>(1), row.must::<i64>(2));
            if let Entry::Vacant(new) = came_from.entry(parent) {
                new.insert(Some(child));
                round.push(parent);
            }
        }
    }
    came_from.contains_key(&wanted).then(|| {
        let mut path = vec![wanted];
        while let Some(Some(before)) = came_from.get(&path[path.len() - 1]) {
            path.push(*before);
        }
        path.reverse();
        path
    })
}

/// Taken before any definition that may get or lose edges.
pub(crate) fn lock_edges() {
    Lock::Edges.take(Mode::Alone);
}

fn ids(spi: &Spi, names: &[String]) -> Result<Vec<i64>> {
    let rows = spi.query_latest(&MANIFEST_IDS, &[arg(names.to_vec())]);
    let mut ids = Vec::with_capacity(names.len());
    for row in rows.iter() {
        let name: String = row.must(1);
        ids.push(
            row.get::<i64>(2)
                .ok_or_else(|| Error::unknown_manifest(&name))?,
        );
    }
    Ok(ids)
}

/// Refuses to forget a manifest that others wait for.
pub(crate) fn refuse_with_dependents(spi: &Spi, id: i64, name: &str) -> Result<()> {
    let rows = spi.query(&DEPENDENCY_DEPENDENTS, &[arg(id)]);
    let names: Vec<String> = rows.first().map(|row| row.must(1)).unwrap_or_default();
    if names.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("other manifests depend on manifest \"{name}\""),
    )
    .detail(format!("They are: {}.", names.join(", ")))
    .hint("Unschedule them first, or give them other parents with trax.schedule(..., depends_on => ...)."))
}

/// Whether a declared parent of a manifest is being executed.
pub(crate) fn has_running_parent(spi: &Spi, child: i64) -> bool {
    spi.query(&DEPENDENCY_RUNNING_PARENT, &[arg(child)]).len() > 0
}
