//! Waiting for work: `trax.wait_for_work`.
//!
//! The wait depends on the last claim of the session (`wake`):
//! - If it got fewer jobs than it asked for and left no row, the session waits for the next ring.
//!   After a claim with a filter it looks first, as below, once for each ring.
//! - If it left rows because another transaction has locked their limit, the session waits for 10
//!   ms at most, because the end of that transaction may not ring.
//! - If it got all jobs that it asked for, or the session has not claimed, the session looks first.
//!   It returns at once if a lane whose gate is open has a row, also a row that is locked.
//!
//! The session is expected to claim after each wait. If it waits again instead, and a lane has a
//! row, it waits for the next ring, for 1 s at most; so it does not spin.

use super::lane::List;
use super::scan::Queue;
use crate::error::Error;
use crate::memory;
use crate::server::call::sql_function;
use crate::server::clock::{Timestamp, interval_micros};
use crate::server::procedure::Procedure;
use crate::server::spi::Spi;
use crate::wake;
use pgrx::datum::Interval;
use pgrx::pg_sys;
use std::time::Duration;

const DEFAULT_WAIT_MICROS: i64 = 30_000_000;

sql_function!(trax_wait_for_work, pg_finfo_trax_wait_for_work, |call| {
    let timeout = call
        .optional::<Interval>(0)
        .map(|interval| interval_micros(&interval));
    let timeout = timeout.unwrap_or(DEFAULT_WAIT_MICROS);
    if timeout < 0 {
        return Err(Error::invalid("argument \"timeout\" must not be negative")
            .detail(format!("timeout is {} seconds.", timeout as f64 / 1e6))
            .hint("Specify an interval, for example: call trax.wait_for_work('30 s')"));
    }
    if call.is_atomic() {
        return Err(wake::in_transaction_block(
            "trax.wait_for_work()",
            "trax.wait_for_work()",
        ));
    }
    let procedure = Procedure::new(call);
    wake::drop_snapshots();
    wake::wait(Duration::from_micros(timeout as u64), || {
        may_find(&procedure)
    });
    Ok(call.null())
});

/// Returns whether a claim may find a row; true if this session cannot look. Leaves no lock and no
/// snapshot.
fn may_find(procedure: &Procedure) -> bool {
    // SAFETY: plain values of the server and of this backend.
    let (standby, wrote) = unsafe {
        (
            pg_sys::RecoveryInProgress(),
            pg_sys::GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId,
        )
    };
    // A look would end the transaction of a loop in a procedural language, and one in which a
    // pipeline has written.
    if standby || wrote || procedure.is_nested() {
        return true;
    }
    let found = procedure.step(|spi| Ok(first_row(spi)));
    procedure.commit();
    wake::drop_snapshots();
    found.expect("a look does not fail")
}

fn first_row(spi: &Spi) -> bool {
    if memory::has_skips() {
        return true;
    }
    let mut queue = Queue::open(List::of_all(spi), Timestamp::now(), None);
    let candidate = queue.next();
    let found = candidate.is_some();
    if let Some(candidate) = candidate {
        queue.end(candidate);
    }
    // Private, because this look ends at its first candidate.
    queue.close(true, |_| Vec::new());
    found
}
