//! Dependencies: manifests that run when others have succeeded.
//!
//! Words: an *edge* leads from a dependent (child) to a parent. A success of the parent *satisfies*
//! the edge, and queueing the child *consumes* that. A *dormant* dependent is queued only by its
//! running parent.
//!
//! Holds: completing the last required parent and making the child due is one commit; of many
//! parents that complete at once, each waits for the lock on the child's state and sees the edges
//! of earlier ones, so that exactly one of them fires the child; edges form no circle.

use crate::error::{Error, Result};
use crate::server::clock::Timestamp;
use crate::server::lock::{Lock, Mode};
use crate::server::spi::{Spi, arg, row, statement};
use pgrx::PgSqlErrorCode;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

row! {
    struct Edge {
        child_id: i64,
        parent_id: i64,
    }
}
row! {
    struct Named {
        name: String,
        manifest_id: Option<i64>,
    }
}
statement!(
    DependencyChildren, "manifest_state/dependency_children.sql",
    { parent_ids: INT8ARRAYOID } -> i64
);
statement!(
    DependencySatisfy, "manifest_state/dependency_satisfy.sql",
    {
        parent_ids: INT8ARRAYOID,
        job_ids: INT8ARRAYOID,
        now: TIMESTAMPTZOID,
        child_ids: INT8ARRAYOID,
    }
);
statement!(
    DependencyFire, "manifest_state/dependency_fire.sql",
    { child_ids: INT8ARRAYOID, now: TIMESTAMPTZOID }
);
statement!(DependencyConsume, "manifest_state/dependency_consume.sql", { child_ids: INT8ARRAYOID });
statement!(
    DependencySatisfied, "manifest_state/dependency_satisfied.sql",
    { child_id: INT8OID } -> Option<bool>
);
statement!(
    DependencyReplace, "manifest_state/dependency_replace.sql",
    { child_id: INT8OID, parent_ids: INT8ARRAYOID }
);
statement!(
    DependencyParents, "manifest_state/dependency_parents.sql",
    { child_ids: INT8ARRAYOID } -> Edge
);
statement!(
    DependencyHasParents, "manifest_state/dependency_has_parents.sql",
    { name: TEXTOID } -> bool
);
statement!(
    DependencyReady, "manifest_state/dependency_ready.sql",
    { child_ids: INT8ARRAYOID } -> i64
);
statement!(ManifestNames, "manifest_state/names.sql", { manifest_ids: INT8ARRAYOID } -> String);
statement!(
    DependencyDependents, "manifest_state/dependency_dependents.sql",
    { parent_id: INT8OID } -> Vec<String>
);
statement!(
    DependencyRunningParent, "manifest_state/dependency_running_parent.sql",
    { child_id: INT8OID }
);
statement!(ManifestIds, "manifest_state/ids.sql", { names: TEXTARRAYOID } -> Named);

/// Returns the children of manifests.
pub(crate) fn children(spi: &Spi, parents: &[i64]) -> Vec<i64> {
    let rows = spi.query_latest(DependencyChildren {
        parent_ids: arg(parents.to_vec()),
    });
    rows.iter().collect()
}

/// Satisfies the edges to parents that have succeeded, and makes the children due whose edges
/// suffice. The caller has locked the states of the children.
pub(crate) fn satisfy(spi: &Spi, succeeded: &[(i64, i64)], children: &[i64], now: Timestamp) {
    if children.is_empty() {
        return;
    }
    let parents: Vec<i64> = succeeded.iter().map(|&(parent, _)| parent).collect();
    let jobs: Vec<i64> = succeeded.iter().map(|&(_, job)| job).collect();
    spi.execute(DependencySatisfy {
        parent_ids: arg(parents),
        job_ids: arg(jobs),
        now: arg(now),
        child_ids: arg(children.to_vec()),
    });
    // Under the locks of the children's states, whatever the isolation level: earlier parents have
    // committed.
    let rows = spi.query_latest(DependencyReady {
        child_ids: arg(children.to_vec()),
    });
    let ready: Vec<i64> = rows.iter().collect();
    if !ready.is_empty() {
        spi.execute(DependencyFire {
            child_ids: arg(ready),
            now: arg(now),
        });
    }
}

/// Consumes the successes of the edges of queued children.
pub(crate) fn consume(spi: &Spi, children: Vec<i64>) {
    if !children.is_empty() {
        spi.execute(DependencyConsume {
            child_ids: arg(children),
        });
    }
}

/// Returns whether the edges of a dependent are satisfied.
pub(crate) fn is_satisfied(spi: &Spi, child: i64) -> bool {
    spi.query_latest(DependencySatisfied {
        child_id: arg(child),
    })
    .first()
    .flatten()
    .unwrap_or(false)
}

/// Sets the parents of a manifest whose state is locked, as it is when a parent's job completes.
/// Returns an error for unknown names (42704) and circles (22023, with the path).
pub(crate) fn replace(spi: &Spi, child: i64, child_name: &str, parents: &[String]) -> Result<()> {
    lock_edges();
    let ids = ids(spi, parents)?;
    if let Some(path) = path(spi, &ids, child) {
        let rows = spi.query_latest(ManifestNames {
            manifest_ids: arg(path),
        });
        let path: Vec<String> = rows.iter().collect();
        let circle: Vec<&str> = std::iter::once(child_name)
            .chain(path.iter().map(String::as_str))
            .collect();
        return Err(
            Error::invalid(format!("manifest \"{child_name}\" would depend on itself"))
                .detail(format!("The circle is {}.", circle.join(" -> ")))
                .hint("Leave out one of these edges: depends_on => array['...']"),
        );
    }
    spi.execute(DependencyReplace {
        child_id: arg(child),
        parent_ids: arg(ids),
    });
    Ok(())
}

/// Returns the shortest way up from one of `parents` to `wanted`, both included. Each manifest is
/// visited once, in rounds of one statement, so that a wide and deep graph costs no more than its
/// edges.
fn path(spi: &Spi, parents: &[i64], wanted: i64) -> Option<Vec<i64>> {
    let mut came_from: HashMap<i64, Option<i64>> =
        parents.iter().map(|&parent| (parent, None)).collect();
    let mut round = parents.to_vec();
    while !round.is_empty() && !came_from.contains_key(&wanted) {
        let rows = spi.query_latest(DependencyParents {
            child_ids: arg(std::mem::take(&mut round)),
        });
        for edge in rows.iter() {
            if let Entry::Vacant(new) = came_from.entry(edge.parent_id) {
                new.insert(Some(edge.child_id));
                round.push(edge.parent_id);
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

/// Returns whether a manifest depends on others.
pub(crate) fn has_parents(spi: &Spi, name: &str) -> bool {
    spi.query(DependencyHasParents { name: arg(name) }).one()
}

/// Locks the edges; taken before any definition that may get or lose edges.
pub(crate) fn lock_edges() {
    Lock::Edges.take(Mode::Alone);
}

fn ids(spi: &Spi, names: &[String]) -> Result<Vec<i64>> {
    let rows = spi.query_latest(ManifestIds {
        names: arg(names.to_vec()),
    });
    let mut ids = Vec::with_capacity(names.len());
    for row in rows.iter() {
        let id = row.manifest_id;
        ids.push(id.ok_or_else(|| Error::unknown_manifest(&row.name))?);
    }
    Ok(ids)
}

/// Returns an error for the removal of a manifest on which others depend.
pub(crate) fn refuse_with_dependents(spi: &Spi, id: i64, name: &str) -> Result<()> {
    let names = spi
        .query_latest(DependencyDependents { parent_id: arg(id) })
        .one();
    if names.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("other manifests depend on manifest \"{name}\""),
    )
    .detail(format!("They are: {}.", names.join(", ")))
    .hint("Unschedule them first, or change their parents with trax.schedule(..., depends_on => ...)."))
}

/// Returns whether a declared parent of a manifest is being executed.
pub(crate) fn has_running_parent(spi: &Spi, child: i64) -> bool {
    spi.query(DependencyRunningParent {
        child_id: arg(child),
    })
    .len()
        > 0
}
