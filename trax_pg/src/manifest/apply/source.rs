//! The source of a document: the objects that it created before, and those of other sources.

use super::Entry;
use crate::error::{Error, Result};
use crate::group;
use crate::server::quote::literal;
use crate::server::spi::{Spi, arg, row, statement};
use crate::task;

row! {
    struct Prunable {
        manifest_id: i64,
        name: String,
    }
}
row! {
    struct Owned {
        kind: String,
        name: String,
        source: String,
    }
}
statement!(
    ManifestPrunable, "manifest/prunable.sql",
    { kept: TEXTARRAYOID, source: TEXTOID } -> Prunable
);
statement!(
    ManifestOfAnotherSource, "manifest/of_another_source.sql",
    { groups: TEXTARRAYOID, manifests: TEXTARRAYOID, tasks: TEXTARRAYOID, source: TEXTOID } -> Owned
);
statement!(
    GroupPrunable, "manifest/group_prunable.sql",
    { kept: TEXTARRAYOID, source: TEXTOID } -> String
);

/// The objects that an earlier apply created and that the document no longer contains.
#[derive(Default)]
pub(super) struct Gone {
    pub(super) groups: Vec<group::Settings>,
    pub(super) manifests: Vec<(i64, String)>,
}

impl Gone {
    pub(super) fn find(
        spi: &Spi,
        groups: &[group::Settings],
        manifests: &[Entry],
        source: Option<&str>,
    ) -> Self {
        let rows = spi.query(GroupPrunable {
            kept: arg(names_of_groups(groups)),
            source: source.and_then(arg),
        });
        let groups = rows.iter().map(group::Settings::none).collect();
        let rows = spi.query(ManifestPrunable {
            kept: arg(names_of(manifests)),
            source: source.and_then(arg),
        });
        let manifests = rows.iter().map(|row| (row.manifest_id, row.name)).collect();
        Self { groups, manifests }
    }
}

fn names_of_groups(groups: &[group::Settings]) -> Vec<String> {
    groups.iter().map(|group| group.name.clone()).collect()
}

pub(super) fn names_of_tasks(tasks: &[task::Settings]) -> Vec<String> {
    tasks.iter().map(|task| task.name.clone()).collect()
}

fn names_of(manifests: &[Entry]) -> Vec<String> {
    manifests.iter().map(|entry| entry.name.clone()).collect()
}

/// Returns an error for objects of another source: two sources that both name an object would undo
/// each other's changes.
pub(super) fn refuse_others(
    spi: &Spi,
    groups: &[group::Settings],
    manifests: &[Entry],
    tasks: &[task::Settings],
    source: &str,
) -> Result<()> {
    let others = spi.query(ManifestOfAnotherSource {
        groups: arg(names_of_groups(groups)),
        manifests: arg(names_of(manifests)),
        tasks: arg(names_of_tasks(tasks)),
        source: arg(source),
    });
    let Some(Owned {
        kind,
        name,
        source: owner,
    }) = others.iter().next()
    else {
        return Ok(());
    };
    Err(
        Error::wrong_state(format!("{kind} \"{name}\" belongs to source \"{owner}\""))
            .detail(format!(
                "A document of source \"{owner}\" defined it, and this document is of source \"{source}\"."
            ))
            .hint(format!(
                "Remove it from that document and apply that with prune => true, or apply this one with source => {}",
                literal(&owner)
            )),
    )
}
