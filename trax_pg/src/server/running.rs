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

    /// Waits until it has ended.
    pub(crate) fn wait(self) {
        let [first, _] = self.number;
        // SAFETY: the numbers are those that `of` or `of_virtual` had.
        unsafe {
            if self.is_virtual {
                let number = self.number;
                pg_sys::VirtualXactLock(
                    std::mem::transmute::<[u32; 2], pg_sys::VirtualTransactionId>(number),
                    true,
                );
            } else {
                pg_sys::XactLockTableWait(
                    pg_sys::TransactionId::from_inner(first),
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    pg_sys::XLTW_Oper::XLTW_None,
                );
            }
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
