//! Wake-ups: those who wait for work are woken when the transaction that made it has committed.
//!
//! Words: a *bell* is the place in shared memory where one database records that something
//! happened; it is *rung* once for a transaction, after it has committed, however many jobs it
//! made.
//!
//! Enters: marks by whatever makes a job claimable or due. Leaves: sessions in `trax.wait_for_work`
//! woken at once; the scheduler woken, which sends one notification for all that rang meanwhile
//! (`NOTIFY` in the producing transaction would serialize the commits of the whole server), and one
//! that names the jobs whose workers are asked to stop. Holds: hints only. Without shared memory
//! and in a database beyond the last bell, waiters poll.

use crate::error::Error;
use crate::memory;
use crate::memory::Bell;
use crate::server::call::sql_function;
use crate::server::hash::name_hash_64;
use crate::server::latch;
use crate::server::spi;
use crate::server::spi::{arg, statement};
use crate::server::transaction;
use crate::server::wait_event::WaitEvent;
use pgrx::{PgSqlErrorCode, pg_sys};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

statement!(Notify, "wake/notify.sql");
statement!(NotifyRoom, "wake/notify_room.sql" -> bool);
statement!(NotifyCancelled, "wake/notify_cancelled.sql", { job_ids: TEXTOID });

pub(crate) use crate::memory::WORK;
/// Something is due, perhaps before the scheduler would wake by itself.
pub(crate) const DUE: u32 = 2;

/// A job no longer runs: who found the database full may find room.
pub(crate) const ENDED: u32 = 4;

/// Jobs are taken or blocked: if that is undone they are claimable again, and somebody may have
/// stepped over them.
pub(crate) const CLAIMED: u32 = 8;

/// How often a waiter looks where nobody can wake it.
const POLL: Duration = Duration::from_millis(500);
/// How long a session waits at most that left something to another transaction, whose end rings no
/// bell.
const STAND_BACK: Duration = Duration::from_millis(10);
/// The longest wait of a session that was notified of work and has not tried to claim: another may
/// look for it.
const AGAIN: Duration = Duration::from_secs(1);

/// Workers are asked to stop a job.
pub(crate) const CANCELLED: u32 = 16;

/// A statement was queued, or an executor has taken one or is gone: the scheduler looks whether
/// more executors are needed.
pub(crate) const SQL: u32 = 32;

/// What this transaction has marked.
static MARKED: AtomicU32 = AtomicU32::new(0);
/// The state of the bell when this session last found nothing to claim, plus one; 0 is unknown.
static SEEN: AtomicU64 = AtomicU64::new(0);
/// Whether something was left to others then.
static STOOD_BACK: AtomicBool = AtomicBool::new(false);
/// Whether that look was for some tasks or groups only.
static FILTERED: AtomicBool = AtomicBool::new(false);
/// The state of the bell, plus one, when a wait last ended because of work that such a look had not
/// been for.
static TOLD_OF_OTHERS: AtomicU64 = AtomicU64::new(0);
/// Whether a wait has ended since this session last looked.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Classes of names, a bit for each, of whose tokens this transaction has given some back, or taken
/// some.
static TOKENS_FREED: AtomicU64 = AtomicU64::new(0);
static TOKENS_TAKEN: AtomicU64 = AtomicU64::new(0);

sql_function!(trax_has_bell, pg_finfo_trax_has_bell, |call| {
    Ok(call.value(!memory::available() || memory::bell().is_some()))
});

/// Notes what this transaction makes; the bell is rung when it has committed.
pub(crate) fn mark(what: u32) {
    if !memory::available() {
        return;
    }
    MARKED.fetch_or(what, Ordering::Relaxed);
    transaction::listen();
}

/// Returns the class of a name of tokens.
pub(crate) fn token_class(name: &str) -> usize {
    (name_hash_64(&[name]) % memory::TOKEN_CLASSES as u64) as usize
}

/// Marks that a token may be free once this transaction has committed.
pub(crate) fn token_freed(name: &str) {
    if memory::available() {
        TOKENS_FREED.fetch_or(1 << token_class(name), Ordering::Relaxed);
        transaction::listen();
    }
}

/// Marks that a token may be free again if this transaction is undone.
pub(crate) fn token_taken(name: &str) {
    if memory::available() {
        TOKENS_TAKEN.fetch_or(1 << token_class(name), Ordering::Relaxed);
        transaction::listen();
    }
}

fn tokens_at_end(committed: bool) {
    let freed = TOKENS_FREED.swap(0, Ordering::Relaxed);
    let taken = TOKENS_TAKEN.swap(0, Ordering::Relaxed);
    let classes = if committed { freed } else { taken };
    if classes != 0
        && let Some(bell) = memory::bell()
    {
        bell.ring_tokens(classes);
    }
}

/// Wakes those who wait for what the transaction did, after its commit.
pub(crate) fn committed() {
    tokens_at_end(true);
    let marked = MARKED.swap(0, Ordering::Relaxed) & !CLAIMED;
    if marked != 0
        && let Some(bell) = memory::bell()
    {
        // After the commit: who counts from now on sees the room, who counted before has said so.
        let room = marked & ENDED != 0 && bell.found_full();
        let what = (marked & !ENDED) | if room { WORK } else { 0 };
        if what != 0 {
            bell.ring(what);
        }
    }
}

/// Wakes those who may find again what the transaction had taken: it is undone.
pub(crate) fn undone() {
    tokens_at_end(false);
    claimable_again(MARKED.swap(0, Ordering::Relaxed));
}

/// Wakes those who may claim again what an undone part of the transaction had claimed.
pub(crate) fn part_undone() {
    claimable_again(MARKED.load(Ordering::Relaxed));
}

/// Ends the marks of a transaction that is prepared; returns whether it had any.
pub(crate) fn prepared() -> bool {
    let marked = u64::from(MARKED.swap(0, Ordering::Relaxed));
    let freed = TOKENS_FREED.swap(0, Ordering::Relaxed);
    let taken = TOKENS_TAKEN.swap(0, Ordering::Relaxed);
    marked | freed | taken != 0
}

/// Wakes those who may claim again what was claimed.
fn claimable_again(marked: u32) {
    if marked & CLAIMED != 0 {
        SEEN.store(0, Ordering::Relaxed);
        if let Some(bell) = memory::bell() {
            bell.ring(WORK);
        }
    }
}

/// Wakes everybody: what happened is not known.
pub(crate) fn all() {
    memory::awaited::any_ended();
    if let Some(bell) = memory::bell() {
        bell.ring(WORK | DUE);
        bell.ring_tokens(u64::MAX);
    }
}

/// Notes, before counting, that a claim may find the database full; the next end of a job then
/// rings.
pub(crate) fn may_be_full() {
    if let Some(bell) = memory::bell() {
        bell.may_be_full();
    }
}

/// Returns the state of the bell, to be read before looking for work.
pub(crate) fn state() -> u64 {
    memory::bell().map_or(0, Bell::count)
}

/// What a look for work found, and the state of the bell before it.
#[derive(Clone, Copy)]
pub(crate) enum Look {
    /// Nothing is left that this session may claim.
    All(u64),
    /// Something was left to another transaction that was claiming of it.
    StoodBack(u64),
    /// More may be there.
    Part,
}

/// Remembers what a look for work found, for the next wait; `filtered` is whether it was for some
/// tasks or groups only.
pub(crate) fn looked(look: Look, filtered: bool) {
    let (seen, stood_back) = match look {
        Look::All(state) => (state + 1, false),
        Look::StoodBack(state) => (state + 1, true),
        Look::Part => (0, false),
    };
    SEEN.store(seen, Ordering::Relaxed);
    STOOD_BACK.store(stood_back, Ordering::Relaxed);
    FILTERED.store(filtered, Ordering::Relaxed);
    TOLD.store(false, Ordering::Relaxed);
}

/// Returns 25001: a procedure that waits was called where it may not end its transaction.
pub(crate) fn in_transaction_block(procedure: &str, example: &str) -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_ACTIVE_SQL_TRANSACTION,
        format!("{procedure} cannot run inside a transaction block"),
    )
    .detail("It would hold the transaction's snapshot while it waits.")
    .hint(format!("Commit first, then type: call {example}"))
}

/// Returns when work may exist that this session has not looked for, or when the time is up.
/// `may_find` is whether there is something that a claim may find; it leaves no snapshot.
pub(crate) fn wait(timeout: Duration, may_find: impl Fn() -> bool) {
    let seen = SEEN.load(Ordering::Relaxed);
    // Before the look: what comes after it rings.
    let before = seen.checked_sub(1).unwrap_or_else(state);
    let longest = if seen != 0 && !TOLD.load(Ordering::Relaxed) {
        if STOOD_BACK.load(Ordering::Relaxed) {
            STAND_BACK
        } else if FILTERED.load(Ordering::Relaxed)
            && TOLD_OF_OTHERS.load(Ordering::Relaxed) != seen
            && may_find()
        {
            // Once: a session that then looks for the same tasks does not want the others.
            TOLD_OF_OTHERS.store(seen, Ordering::Relaxed);
            Duration::ZERO
        } else {
            timeout
        }
    } else if !may_find() {
        timeout
    } else if seen == 0 {
        Duration::ZERO
    } else {
        AGAIN
    };
    let longest = longest.min(timeout);
    match memory::bell() {
        _ if longest.is_zero() => {}
        Some(bell) => bell.wait_while(before, longest),
        None => poll(longest, may_find),
    }
    SEEN.store(state() + 1, Ordering::Relaxed);
    TOLD.store(true, Ordering::Relaxed);
}

/// Waits where nobody can wake it.
fn poll(timeout: Duration, may_find: impl Fn() -> bool) {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        latch::sleep(left.min(POLL), WaitEvent::Work);
        if left <= POLL || may_find() {
            return;
        }
    }
}

/// Releases the snapshots of the CALL, so that the wait holds back no vacuum.
pub(crate) fn drop_snapshots() {
    // SAFETY: plain values of this backend.
    let (of_transaction, wrote) = unsafe {
        (
            pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32,
            pg_sys::GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId,
        )
    };
    // That of a REPEATABLE READ transaction goes with the transaction only. What a caller's loop
    // has written is its own to commit.
    if of_transaction && !wrote {
        spi::commit();
    }
    // SAFETY: outside a transaction block nothing after the CALL needs them; this is what COMMIT in
    // a procedure does, so that portals know that theirs is gone.
    unsafe {
        pg_sys::ForgetPortalSnapshots();
        pg_sys::InvalidateCatalogSnapshot();
    }
}

/// Returns whether a notification can be sent; inside a transaction of the scheduler.
pub(crate) fn may_notify() -> bool {
    let has_room = spi::connected_anyhow(|spi| Ok(spi.query(NotifyRoom).one()));
    has_room.unwrap_or_else(|error| error.raise())
}

/// Sends the notification for all that rang; inside a transaction of the scheduler.
pub(crate) fn notify() {
    let sent = spi::connected_anyhow(|spi| Ok(spi.execute(Notify)));
    assert!(sent.is_ok(), "a select without a table succeeds or raises");
}

/// Sends the notification that workers are asked to stop these jobs, or some that nobody can name;
/// inside a transaction of the scheduler.
pub(crate) fn notify_cancelled(job_ids: Option<&[i64]>) {
    let names: Vec<String> = job_ids
        .iter()
        .copied()
        .flatten()
        .map(i64::to_string)
        .collect();
    let sent = spi::connected_anyhow(|spi| {
        Ok(spi.execute(NotifyCancelled {
            job_ids: arg(names.join(",")),
        }))
    });
    assert!(sent.is_ok(), "a select without a table succeeds or raises");
}
