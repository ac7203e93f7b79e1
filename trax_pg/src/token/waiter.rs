//! Waiting for a token: first come, first served, in the order of `waiter_id`.
//!
//! A waiter is a row, and a lock that its session holds while it waits. The lock shows that the
//! session still waits: it is released however the wait ends (granted, timed out, cancelled, the
//! session or its client gone, the server restarted). A row whose lock is free is ignored, and
//! removed by the next session that reads it.
//!
//! Only the first waiter of a name looks at its tokens. Each of the others checks the lock of the
//! waiter before it, which needs no query and no transaction. With the preloaded library a ring
//! (`memory/waiting.rs`) wakes them at once, and each also looks once a second; without it, twice a
//! second.

use super::grant::{Granted, Outcome, Refused, grant};
use super::{Request, acquire};
use crate::error::{Error, Result};
use crate::memory;
use crate::memory::waiting::Subject;
use crate::server::backend::{end_if_client_is_gone, my_pid};
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::latch;
use crate::server::lock::Lock;
use crate::server::procedure::Procedure;
use crate::server::spi;
use crate::server::spi::{Spi, arg, statement};
use crate::server::wait_event::WaitEvent;
use crate::wake;
use pgrx::{pg_guard, pg_sys};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest sleep of a waiter that a ring can wake; then it checks whether its client is gone.
const LOOK: Duration = Duration::from_secs(1);
/// Longest sleep of a waiter that no session can wake.
const POLL: Duration = Duration::from_millis(500);
/// Longest sleep if a transaction that has not ended may have locked a free slot.
const BUSY_POLL: Duration = Duration::from_millis(50);

statement!(
    WaiterAdd, "token/waiter_add.sql",
    {
        name: TEXTOID,
        max_holders: INT4OID,
        holder: TEXTOID,
        pid: INT4OID,
        now: TIMESTAMPTZOID,
    } -> i64
);
statement!(WaiterList, "token/waiter_list.sql", { name: TEXTOID } -> i64);
statement!(WaiterAhead, "token/waiter_ahead.sql", { name: TEXTOID, waiter_id: INT8OID } -> i64);
statement!(WaiterLimit, "token/waiter_limit.sql", { waiter_id: INT8OID } -> i32);
statement!(WaiterSetLimit, "token/waiter_set_limit.sql", { name: TEXTOID, max_holders: INT4OID });
statement!(WaiterRemove, "token/waiter_remove.sql", { waiter_ids: INT8ARRAYOID });
statement!(WaiterSweep, "token/waiter_sweep.sql", { at_most: INT8OID } -> i64);

sql_function!(trax_await_token, pg_finfo_trax_await_token, |call| {
    let request = Request::from_call(call)?;
    let wait = call
        .optional_not_negative(4, "wait")?
        .ok_or_else(|| Error::null_argument("wait"))?;
    // SAFETY: reads the state of the transaction.
    if call.is_atomic() || unsafe { pg_sys::IsSubTransaction() } {
        return Err(wake::in_transaction_block(
            "trax.await_token()",
            "trax.await_token('name', 'holder', 1, '30 s', '5 min', null, null, null)",
        ));
    }
    spi::require_primary()?;
    let procedure = Procedure::new(call);
    let granted = await_turn(&procedure, &request, Duration::from_micros(wait as u64))?;
    let mut columns = granted.map_or([None; 3], |granted| granted.columns());
    Ok(call.record(&mut columns))
});

fn await_turn(procedure: &Procedure, request: &Request, wait: Duration) -> Result<Option<Granted>> {
    let deadline = Instant::now() + wait;
    // Ends the transaction of the CALL, so that the first step has a snapshot of its own.
    procedure.commit();
    let granted = procedure.step(|spi| Ok(acquire(spi, request)))?;
    procedure.commit();
    if granted.is_some() || wait.is_zero() {
        return Ok(granted);
    }
    let waiter = procedure.step(|spi| Ok(Waiter::join(spi, request)))?;
    procedure.commit();
    loop {
        end_if_client_is_gone();
        let rings = waiter.subject.rings();
        let look = procedure.step(|spi| Ok(waiter.look(spi, request)))?;
        procedure.commit();
        let turn = match look {
            Attempt::Granted(granted) => return Ok(Some(granted)),
            Attempt::NotYet(turn) => turn,
        };
        if Instant::now() >= deadline {
            procedure.step(|spi| {
                remove(spi, &[waiter.id]);
                Ok(())
            })?;
            procedure.commit();
            return Ok(None);
        }
        procedure.rest(|| match turn {
            Turn::Behind(other) => waiter.sleep_behind(other, deadline),
            Turn::First(refused) => waiter.sleep_as_first(&refused, rings, deadline),
        });
    }
}

/// The result of a look for a token.
enum Attempt {
    Granted(Granted),
    NotYet(Turn),
}

/// The position of a waiter.
enum Turn {
    /// Behind another waiter: the nearest one before it.
    Behind(i64),
    /// First in the queue; no token was granted for this reason.
    First(Refused),
}

/// A session's position in the queue of a name; dropping it leaves the queue.
struct Waiter {
    id: i64,
    subject: Subject,
}

impl Waiter {
    fn join(spi: &Spi, request: &Request) -> Self {
        let id = spi.change_latest(WaiterAdd {
            name: arg(request.name.as_str()),
            max_holders: arg(request.max_holders),
            holder: arg(request.holder.as_str()),
            pid: arg(my_pid()),
            now: arg(Timestamp::now()),
        });
        let id = id.one();
        // Locked before other sessions can see the row.
        assert!(
            Lock::TokenWaiter(id).take_for_session(),
            "a new waiter's lock is free"
        );
        let subject = Subject::token(&request.name);
        ring_at_exit(subject);
        Self { id, subject }
    }

    /// Takes a token if it is this waiter's turn and one is free.
    fn look(&self, spi: &Spi, request: &Request) -> Attempt {
        let mut before = self.id;
        loop {
            let rows = spi.query_latest(WaiterAhead {
                name: arg(request.name.as_str()),
                waiter_id: arg(before),
            });
            let Some(ahead) = rows.first() else {
                break;
            };
            if is_alive(ahead) {
                return Attempt::NotYet(Turn::Behind(ahead));
            }
            remove(spi, &[ahead]);
            before = ahead;
        }
        let rows = spi.query_latest(WaiterLimit {
            waiter_id: arg(self.id),
        });
        let limit = rows.first().unwrap_or(request.max_holders);
        match grant(spi, request, limit, 0, Timestamp::now()) {
            Outcome::Granted(granted) => {
                remove(spi, &[self.id]);
                Attempt::Granted(granted)
            }
            Outcome::Refused(refused) => Attempt::NotYet(Turn::First(refused)),
        }
    }

    /// Sleeps until the waiter `other` is gone, at most until `deadline`.
    fn sleep_behind(&self, other: i64, deadline: Instant) {
        loop {
            let rings = self.subject.rings();
            if !is_alive(other) || Instant::now() >= deadline {
                return;
            }
            self.sleep(rings, deadline, LOOK);
            end_if_client_is_gone();
        }
    }

    /// Sleeps until a token may be free, at most until `deadline`.
    fn sleep_as_first(&self, refused: &Refused, rings: u64, deadline: Instant) {
        let mut longest = if refused.busy { BUSY_POLL } else { LOOK };
        if let Some(micros) = refused.left {
            // Sleeps last whole milliseconds: round up.
            let millis = Duration::from_millis(micros as u64 / 1000 + 1);
            longest = longest.min(millis);
        }
        self.sleep(rings, deadline, longest);
    }

    fn sleep(&self, rings: u64, deadline: Instant, longest: Duration) {
        let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        let longest = longest.min(left);
        if memory::available() {
            self.subject.wait_while(rings, longest, WaitEvent::Token);
        } else {
            latch::sleep(longest.min(POLL), WaitEvent::Token);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        Lock::TokenWaiter(self.id).give_back_for_session();
        LEAVING.take();
        self.subject.ring();
    }
}

/// Returns the number of waiters of a name; removes the rows of sessions that no longer wait.
pub(super) fn living(spi: &Spi, name: &str) -> usize {
    let rows = spi.query_latest(WaiterList { name: arg(name) });
    let (living, gone): (Vec<i64>, Vec<i64>) = rows.iter().partition(|&id| is_alive(id));
    if !gone.is_empty() {
        remove(spi, &gone);
    }
    living.len()
}

/// Stores the limit of a call for the waiters of its name.
pub(super) fn set_limit(spi: &Spi, request: &Request) {
    let set = WaiterSetLimit {
        name: arg(request.name.as_str()),
        max_holders: arg(request.max_holders),
    };
    if spi.change_latest(set).len() > 0 {
        wake::token_freed(&request.name);
    }
}

/// Removes the rows of sessions that no longer wait, for any name.
pub(super) fn sweep(spi: &Spi, at_most: i64) {
    let rows = spi.query_latest(WaiterSweep {
        at_most: arg(at_most),
    });
    let gone: Vec<i64> = rows.iter().filter(|&id| !is_alive(id)).collect();
    if !gone.is_empty() {
        remove(spi, &gone);
    }
}

fn remove(spi: &Spi, ids: &[i64]) {
    spi.change_latest(WaiterRemove {
        waiter_ids: arg(ids.to_vec()),
    });
}

/// Returns whether the session of a waiter still waits.
fn is_alive(id: i64) -> bool {
    Lock::TokenWaiter(id).is_taken()
}

thread_local! {
    /// The tokens for which this session waits.
    static LEAVING: Cell<Option<Subject>> = const { Cell::new(None) };
}
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Wakes the waiters behind this one if the session ends while it waits.
fn ring_at_exit(subject: Subject) {
    LEAVING.set(Some(subject));
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the callback lives as long as the library, which is never unloaded.
        unsafe { pg_sys::on_shmem_exit(Some(at_exit), pg_sys::Datum::from(0)) };
    }
}

/// Runs after the session's locks are released, and before its process entry is freed.
#[pg_guard]
unsafe extern "C-unwind" fn at_exit(_code: std::ffi::c_int, _argument: pg_sys::Datum) {
    if let Some(subject) = LEAVING.take() {
        subject.ring();
    }
}
