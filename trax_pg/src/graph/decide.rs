//! The part of the cycle that decides which jobs of graphs and batches run, and which cannot.

use crate::job_needs;
use crate::job_needs::Decided;
use crate::outcome;
use crate::server::clock::Timestamp;
use crate::server::spi::Spi;

/// How often one cycle looks again, at the jobs that need those it has cancelled: a longer chain is
/// left to the next cycle, which follows at once.
const ROUNDS: usize = 100;

/// Lets the jobs run whose wait for others is over, and cancels those that cannot run any more and
/// the jobs that need them. The jobs to cancel are locked and done.
pub(crate) fn decide(spi: &Spi, now: Timestamp) -> Decided {
    let mut sum = Decided::default();
    for _ in 0..ROUNDS {
        let decided = job_needs::decide(spi, now);
        sum.woken += decided.woken;
        sum.is_held |= decided.is_held;
        sum.reads_again |= decided.reads_again;
        sum.more = decided.more && !sum.is_held;
        if decided.to_cancel.is_empty() {
            return sum;
        }
        outcome::cancel_because(spi, decided.to_cancel, now);
    }
    sum.more = true;
    sum
}
