//! Ends a transaction that used trax: the callbacks, in their order.

use crate::server::durability;
use crate::server::transaction::End;
use crate::{changes, memory, metrics, prepared, wake};

pub(crate) fn ended(end: End) {
    durability::ended(end);
    if !memory::available() {
        return;
    }
    match end {
        End::Committing => changes::committing(),
        End::Committed => {
            // Bounds and gates first: woken sessions read them.
            changes::committed();
            wake::committed();
            metrics::committed();
        }
        End::Undone => {
            changes::undone(true);
            wake::undone();
            metrics::undone(0);
        }
        End::Prepared => {
            if wake::prepared() {
                prepared::prepared();
            } else {
                changes::undone(true);
            }
            metrics::undone(0);
        }
        End::PartUndone(subtransaction) => {
            changes::undone(false);
            wake::part_undone();
            metrics::undone(subtransaction);
        }
    }
}
