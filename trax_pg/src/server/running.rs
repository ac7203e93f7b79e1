//! Other transactions that had not ended at the time of a check.

use pgrx::pg_sys;

/// A running transaction, in a form that shared memory can hold: all zero is valid.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Running {
    is_virtual: bool,
    number: [u32; 2],
}

impl Running {
    pub(crate) fn of(transaction: pg_sys::TransactionId) -> Self {
        Self {
            is_virtual: false,
            number: [transaction.into_inner(), 0],
        }
    }

    pub(crate) fn of_virtual(transaction: pg_sys::VirtualTransactionId) -> Self {
        Self {
            is_virtual: true,
            // SAFETY: two numbers of 32 bits, whose names differ between versions.
            number: unsafe {
                std::mem::transmute::<pg_sys::VirtualTransactionId, [u32; 2]>(transaction)
            },
        }
    }

    /// Returns whether it has ended; a prepared transaction has not. Call it inside a transaction.
    pub(crate) fn has_ended(self) -> bool {
        let [first, _] = self.number;
        // SAFETY: reads shared memory of the server; the numbers are those that `new` had.
        unsafe {
            if self.is_virtual {
                pg_sys::VirtualXactLock(
                    std::mem::transmute::<[u32; 2], pg_sys::VirtualTransactionId>(self.number),
                    false,
                )
            } else {
                !pg_sys::TransactionIdIsInProgress(pg_sys::TransactionId::from_inner(first))
            }
        }
    }
}
