//! Audit: the acts of operators.
//!
//! Enters: an act of an operator, inside its own transaction. Leaves: a row of `trax.audit` when
//! that commits. Enqueueing, claiming and outcomes are recorded in `trax.run` instead.

use crate::error::cut;
use crate::server::clock::{Timestamp, micros};
use crate::server::spi::{Spi, arg, statement};
use crate::setting;
use crate::stored_settings::Difference;

statement!(
    AuditRecord, "audit/record.sql",
    { action: TEXTOID, kind: TEXTOID, name: TEXTOID, note: TEXTOID }
);
statement!(AuditForget, "audit/forget.sql", { before: TIMESTAMPTZOID, at_most: INT8OID });

/// The most rows that one look deletes.
const FORGET_AT_MOST: i64 = 10_000;

/// The object of an act.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    DeadLetter,
    Group,
    Job,
    Manifest,
    Rate,
    Scheduler,
    Task,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DeadLetter => "dead_letter",
            Self::Group => "group",
            Self::Job => "job",
            Self::Manifest => "manifest",
            Self::Rate => "rate",
            Self::Scheduler => "scheduler",
            Self::Task => "task",
        }
    }
}

/// Records an act of the caller.
pub(crate) fn record(spi: &Spi, action: &str, kind: Kind, name: &str, note: Option<&str>) {
    write(spi, action, kind, Some(name), note);
}

/// Records an act of the caller on the scheduler of this database.
pub(crate) fn record_here(spi: &Spi, action: &str, note: Option<&str>) {
    write(spi, action, Kind::Scheduler, None, note);
}

/// Records a change of a manifest, a group, a rate or a task, unless nothing changed.
pub(crate) fn record_change(
    spi: &Spi,
    action: &str,
    kind: Kind,
    name: &str,
    difference: &Difference,
) {
    let note = match difference {
        Difference::Created => "created",
        Difference::Changed(changes) => changes,
        Difference::None => return,
    };
    record(spi, action, kind, name, Some(note));
}

fn write(spi: &Spi, action: &str, kind: Kind, name: Option<&str>, note: Option<&str>) {
    spi.execute(AuditRecord {
        action: arg(action),
        kind: arg(kind.name()),
        name: name.and_then(arg),
        note: note.map(|note| cut(note.to_owned())).and_then(arg),
    });
}

/// Deletes records older than `trax.audit_retention`.
pub(crate) fn forget(spi: &Spi, now: Timestamp) {
    let before = now.plus(-micros(setting::audit_retention()));
    spi.execute(AuditForget {
        before: arg(before),
        at_most: arg(FORGET_AT_MOST),
    });
}
