//! Wake-ups: after a commit, the sessions and the scheduler that wait for its changes are woken.
//!
//! Enters: *marks*, by each statement that makes a job claimable or due. A transaction rings once
//! after its commit, however many jobs it made. Leaves: sessions in `trax.wait_for_work` and
//! `trax.await_token` woken at once (`memory/waiting.rs`); the scheduler woken (`memory/bell.rs`),
//! which sends one notification for all rings since the last (`NOTIFY` in the producing transaction
//! would serialize the commits of the whole server), and one that names the jobs whose workers must
//! stop. Holds: all of these are hints. Without shared memory sessions poll.

use crate::error::Error;
use crate::memory;
use crate::memory::waiting;
use crate::memory::waiting::Subject;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::latch;
use crate::server::spi;
use crate::server::spi::{arg, statement};
use crate::server::transaction;
use crate::server::wait_event::WaitEvent;
use pgrx::{PgSqlErrorCode, pg_sys};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::time::{Duration, Instant};

statement!(Notify, "wake/notify.sql");
statement!(NotifyRoom, "wake/notify_room.sql" -> bool);
statement!(NotifyCancelled, "wake/notify_cancelled.sql", { job_ids: TEXTOID });

/// A job has become claimable.
pub(crate) const WORK: u32 = 1;
/// A time may be due before the scheduler would look by itself.
pub(crate) const DUE: u32 = 2;
/// A job no longer runs: a session that found the database full may find room.
pub(crate) const ENDED: u32 = 4;
/// Jobs are taken or blocked: if that is undone they are claimable again, and other sessions may
/// have stepped over them.
pub(crate) const CLAIMED: u32 = 8;
/// Workers must stop a job.
pub(crate) const CANCELLED: u32 = 16;
/// A statement was queued, or an executor has taken one or has ended: the scheduler looks whether
/// more executors are needed.
pub(crate) const SQL: u32 = 32;

/// Interval at which a session looks that cannot be woken.
const POLL: Duration = Duration::from_millis(500);
/// Longest wait of a session that left rows to another transaction, which may end without a ring.
const LEFT_ROWS_WAIT: Duration = Duration::from_millis(10);
/// The least time between two rings for rates that have room.
const OPENING_SPACING_MICROS: i64 = 10_000;
/// Longest wait of a session that was woken for work and has not tried to claim since.
const AGAIN: Duration = Duration::from_secs(1);
/// Most names of tokens that one transaction marks; beyond that all sessions are woken.
const TOKENS_AT_MOST: usize = 1000;

/// The marks of this transaction.
#[derive(Default)]
struct Marks {
    what: u32,
    /// Names of tokens of which it has freed some, or taken some.
    freed: HashSet<Subject>,
    taken: HashSet<Subject>,
}

/// The state of this session's last look for work, for its next wait.
#[derive(Clone, Copy, Default)]
struct LastLook {
    /// How often work had rung before the look; `None` if rows may have been left.
    rings: Option<u64>,
    /// When a rate has room for rows that were left.
    opens_at: Option<i64>,
    /// Rows were left to another transaction.
    has_left_rows: bool,
    /// The look was for some tasks or groups only.
    is_filtered: bool,
    /// A wait has ended since.
    has_waited: bool,
}

thread_local! {
    static MARKS: RefCell<Marks> = RefCell::default();
    static LAST_LOOK: Cell<LastLook> = Cell::default();
    /// How often work had rung when a wait last ended because rows exist that a filtered look did
    /// not concern.
    static OTHER_ROWS_AT: Cell<Option<u64>> = const { Cell::new(None) };
}

sql_function!(trax_has_bell, pg_finfo_trax_has_bell, |call| {
    Ok(call.value(!memory::available() || memory::bell().is_some()))
});

/// Marks a change of this transaction, which rings after its commit.
pub(crate) fn mark(what: u32) {
    if memory::available() {
        MARKS.with_borrow_mut(|marks| marks.what |= what);
        transaction::listen();
    }
}

/// Marks that a token is free after the commit of this transaction.
pub(crate) fn token_freed(name: &str) {
    mark_token(name, |marks| &mut marks.freed);
}

/// Marks that a token is free again if this transaction is undone.
pub(crate) fn token_taken(name: &str) {
    mark_token(name, |marks| &mut marks.taken);
}

fn mark_token(name: &str, names: fn(&mut Marks) -> &mut HashSet<Subject>) {
    if memory::available() {
        MARKS.with_borrow_mut(|marks| {
            let names = names(marks);
            if names.len() <= TOKENS_AT_MOST {
                names.insert(Subject::token(name));
            }
        });
        transaction::listen();
    }
}

fn ring_tokens(names: &HashSet<Subject>) {
    if names.len() > TOKENS_AT_MOST {
        waiting::ring_all();
    } else {
        names.iter().for_each(|name| name.ring());
    }
}

/// Wakes the sessions that wait for work, if that is among `what`, and the scheduler.
pub(crate) fn ring(what: u32) {
    if what & WORK != 0 {
        Subject::work().ring();
    }
    if let Some(bell) = memory::bell() {
        bell.ring(what);
    }
}

/// Wakes the sessions that wait for changes of this transaction, after its commit.
pub(crate) fn committed() {
    let marks = MARKS.take();
    ring_tokens(&marks.freed);
    let marked = marks.what & !CLAIMED;
    // After the commit: a count that begins now sees the room, and an earlier count that found none
    // has said so.
    let has_room = marked & ENDED != 0 && memory::bell().is_some_and(|bell| bell.found_full());
    let what = (marked & !ENDED) | if has_room { WORK } else { 0 };
    if what != 0 {
        ring(what);
    }
}

/// Wakes the sessions that can claim or take again the rows and tokens of this transaction, which
/// is undone.
pub(crate) fn undone() {
    let marks = MARKS.take();
    ring_tokens(&marks.taken);
    claimable_again(marks.what);
}

/// Wakes the sessions that can claim again the rows of an undone part of this transaction.
pub(crate) fn part_undone() {
    claimable_again(MARKS.with_borrow(|marks| marks.what));
}

/// Takes the marks of a transaction that is prepared; returns whether it had any.
pub(crate) fn prepared() -> bool {
    let marks = MARKS.take();
    marks.what != 0 || !marks.freed.is_empty() || !marks.taken.is_empty()
}

fn claimable_again(marked: u32) {
    if marked & CLAIMED != 0 {
        LAST_LOOK.set(LastLook::default());
        ring(WORK);
    }
}

/// Wakes all sessions of this database that wait, and the scheduler: the changes are not known.
pub(crate) fn all() {
    waiting::ring_all();
    ring(WORK | DUE);
}

/// Notes before a count that a claim may find the database full; the next end of a job then rings.
pub(crate) fn may_be_full() {
    if let Some(bell) = memory::bell() {
        bell.may_be_full();
    }
}

/// Returns how often work has rung, to be read before a look for work.
pub(crate) fn rings() -> u64 {
    Subject::work().rings()
}

/// The result of a look for work, with the number of rings before it.
#[derive(Clone, Copy)]
pub(crate) enum Searched {
    /// No row is left that this session may claim.
    All(u64),
    /// Rows were left to another transaction that was claiming them.
    LeftRows(u64),
    /// More rows may be left.
    Part,
}

/// Remembers the result of a look for work, for the next wait; `is_filtered` if the look was for
/// some tasks or groups only. At `opens_at` a rate has room for rows that were left: the session
/// looks again then, and so do workers that wait for a notification.
pub(crate) fn looked(look: Searched, is_filtered: bool, opens_at: Option<i64>) {
    if let Some(at) = opens_at
        && let Some(bell) = memory::bell()
    {
        bell.opens_at(at.max(Timestamp::now().0 + OPENING_SPACING_MICROS));
    }
    let (rings, has_left_rows) = match look {
        Searched::All(rings) => (Some(rings), false),
        Searched::LeftRows(rings) => (Some(rings), true),
        Searched::Part => (None, false),
    };
    LAST_LOOK.set(LastLook {
        rings,
        opens_at,
        has_left_rows,
        is_filtered,
        has_waited: false,
    });
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

/// Returns when work may exist for which this session has not looked, or after `timeout`.
/// `may_find` returns whether a claim may find a row; it leaves no snapshot.
pub(crate) fn wait(timeout: Duration, may_find: impl Fn() -> bool) {
    let last = LAST_LOOK.get();
    // Read before `may_find` looks: a later commit rings.
    let before = last.rings.unwrap_or_else(rings);
    let longest = match last.rings {
        Some(_) if !last.has_waited && last.has_left_rows => LEFT_ROWS_WAIT,
        // Once only: if the session then looks for the same tasks again, the other rows are not
        // for it.
        Some(_)
            if !last.has_waited
                && last.is_filtered
                && OTHER_ROWS_AT.get() != last.rings
                && may_find() =>
        {
            OTHER_ROWS_AT.set(last.rings);
            Duration::ZERO
        }
        Some(_) if !last.has_waited => timeout,
        _ if !may_find() => timeout,
        Some(_) => AGAIN,
        None => Duration::ZERO,
    };
    let opens_in = last.opens_at.filter(|_| !last.has_waited).map(|at| {
        let micros = at.saturating_sub(Timestamp::now().0).max(0);
        Duration::from_micros(micros.unsigned_abs())
    });
    let longest = longest.min(timeout).min(opens_in.unwrap_or(timeout));
    if memory::available() {
        Subject::work().wait_while(before, longest, WaitEvent::Work);
    } else {
        poll(longest, may_find);
    }
    LAST_LOOK.set(LastLook {
        rings: Some(rings()),
        has_waited: true,
        ..last
    });
}

/// Waits where no session can wake it.
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
    // The snapshot of a REPEATABLE READ transaction ends only with it. The caller's loop commits
    // its own changes.
    if of_transaction && !wrote {
        spi::commit();
    }
    // SAFETY: outside a transaction block nothing after the CALL needs them; COMMIT in a procedure
    // does the same, so that portals know that their snapshots are gone.
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

/// Sends the notification for all rings since the last; inside a transaction of the scheduler.
pub(crate) fn notify() {
    let sent = spi::connected_anyhow(|spi| Ok(spi.execute(Notify)));
    assert!(sent.is_ok(), "a select without a table succeeds or raises");
}

/// Sends the notification that workers must stop these jobs, or `None` for unknown ones; inside a
/// transaction of the scheduler.
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
