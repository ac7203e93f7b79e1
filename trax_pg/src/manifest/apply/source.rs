//! The source of a document: the objects that it created before, and those of other sources.

use super::Parts;
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
    {
        groups: TEXTARRAYOID,
        manifests: TEXTARRAYOID,
        rates: TEXTARRAYOID,
        tasks: TEXTARRAYOID,
        source: TEXTOID,
    } -> Owned
);
statement!(
    RatePrunable, "rate/prunable.sql",
    { kept: TEXTARRAYOID, source: TEXTOID } -> String
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
    pub(super) rates: Vec<String>,
}

impl Gone {
    pub(super) fn find(spi: &Spi, parts: &Parts, source: Option<&str>) -> Self {
        let source = || source.and_then(arg);
        let groups = spi.query(GroupPrunable {
            kept: arg(parts.names_of_groups()),
            source: source(),
        });
        let manifests = spi.query(ManifestPrunable {
            kept: arg(parts.names_of_manifests()),
            source: source(),
        });
        let rates = spi.query(RatePrunable {
            kept: arg(parts.names_of_rates()),
            source: source(),
        });
        let manifest = |row: Prunable| (row.manifest_id, row.name);
        Self {
            groups: groups.iter().map(group::Settings::none).collect(),
            manifests: manifests.iter().map(manifest).collect(),
            rates: rates.iter().collect(),
        }
    }
}

impl Parts<'_> {
    fn names_of_groups(&self) -> Vec<String> {
        self.groups.iter().map(|group| group.name.clone()).collect()
    }

    fn names_of_manifests(&self) -> Vec<String> {
        let names = self.manifests.iter().map(|entry| entry.name.clone());
        names.collect()
    }

    fn names_of_rates(&self) -> Vec<String> {
        self.rates.iter().map(|rate| rate.name.clone()).collect()
    }

    fn names_of_tasks(&self) -> Vec<String> {
        names_of_tasks(&self.tasks)
    }
}

pub(super) fn names_of_tasks(tasks: &[task::Settings]) -> Vec<String> {
    tasks.iter().map(|task| task.name.clone()).collect()
}

/// Returns an error for objects of another source: two sources that both name an object would undo
/// each other's changes.
pub(super) fn refuse_others(spi: &Spi, parts: &Parts, source: &str) -> Result<()> {
    let others = spi.query(ManifestOfAnotherSource {
        groups: arg(parts.names_of_groups()),
        manifests: arg(parts.names_of_manifests()),
        rates: arg(parts.names_of_rates()),
        tasks: arg(parts.names_of_tasks()),
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
