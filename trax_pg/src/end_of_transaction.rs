//! What happens when a transaction that used trax ends, in this order.

use crate::transaction::End;
use crate::{durability, hint, shmem, tally, two_phase, wake};

pub(crate) fn ended(end: End) {
    durability::ended(end);
    if !shmem::available() {
        return;
    }
    match end {
        End::Committing => hint::committing(),
        End::Committed => {
            // Bounds and gates first: whoever is woken reads them.
            hint::committed();
            wake::committed();
            tally::committed();
        }
        End::Undone => {
            hint::undone(true);
            wake::undone();
            tally::undone(0);
        }
        End::Prepared => {
            if wake::prepared() {
                two_phase::prepared();
            } else {
                hint::undone(true);
            }
            tally::undone(0);
        }
        End::PartUndone(subtransaction) => {
            hint::undone(false);
            wake::part_undone();
            tally::undone(subtransaction);
        }
    }
}
