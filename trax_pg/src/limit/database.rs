//! The limit of the whole database.

use super::{Counter, Room};
use crate::memory::Bound;
use crate::server::clock::Timestamp;
use crate::server::lock::{Lock, Mode};
use crate::server::table::Key;
use crate::{memory, setting, wake};
use pgrx::pg_sys;

/// How long a published limit is used, in microseconds. The scheduler publishes it whenever it
/// wakes, at least every two seconds.
const PUBLISHED_MICROS: i64 = 15_000_000;

/// Publishes the limit of the scheduler's database by the settings that were stored at `read_at`,
/// for sessions that were connected before it was changed.
pub(crate) fn publish_limit(read_at: Timestamp) {
    if let Some(bell) = memory::bell()
        && bell.publish_limit(setting::max_active_jobs(), read_at.0, Timestamp::now().0)
    {
        wake::ring(wake::WORK);
    }
}

fn limit() -> Option<usize> {
    let own = setting::max_active_jobs();
    let since = Timestamp::now().0 - PUBLISHED_MICROS;
    // SAFETY: written once, when the session begins.
    let connected_at = unsafe { pg_sys::MyStartTimestamp };
    match memory::bell().and_then(|bell| bell.published_limit(since, connected_at)) {
        Some(published) if published != own && !setting::chose_max_active_jobs() => published,
        _ => own,
    }
}

/// Returns how many more jobs may run in the whole database. The result holds until the transaction
/// ends.
pub(crate) fn room(counter: &Counter) -> Room {
    let Some(limit) = limit() else {
        return Room::Unlimited;
    };
    if !Lock::Database.take_if_free(Mode::Alone) {
        return Room::Busy;
    }
    wake::may_be_full();
    let limit = limit as i64;
    Room::For(limit - count(counter, limit))
}

/// Returns how many jobs run in the database, up to `limit`.
fn count(counter: &Counter, limit: i64) -> i64 {
    let what = |from| [Key::at_least(1, from)];
    Counter::count(&counter.by_job, Bound::of_database(), what, limit).count
}

/// Lowers the bound to a job that is being claimed under the limit of the database.
pub(crate) fn lower_bound(job_id: i64) {
    Bound::of_database().lower(job_id);
}
