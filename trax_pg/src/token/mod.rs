//! Concurrency tokens: semaphores with names, for any program.
//!
//! A name has *slots*, numbered 1 to `max_holders`; a *token* is the right to one slot until a
//! time; a *waiter* is a session in `trax.await_token` (`waiter`). Enters: a name, a holder, a
//! limit and a duration. Leaves: one row of `trax.concurrency_token` for each held token. Holds:
//! - The call that takes a token never makes the number of held ones exceed its limit (`grant`).
//! - The `max_holders` of the last call counts: a higher limit applies at once; a lower one takes
//!   no token away, and no token is granted until fewer are held.
//! - A call gets no slot that is reserved for a waiter.
//! - A token that has expired by the server's clock, as far as that is trusted (`believed_clock`),
//!   is lost: it can be neither extended nor released, and its slot is free without a cycle.
//! - The uuid of each grant serves as the fencing token. There is no fencing number, because a
//!   sequence repeats after a failover. A holder that writes into this database calls
//!   `extend_token` in the transaction of the write: until that has committed no other session gets
//!   the slot, even if the token expires meanwhile.
//! - A name without tokens has no row. Expired tokens are deleted once a minute.
//!
//! There is no row for each slot, as in `limit`: it would be written for idle names too.

mod grant;
mod waiter;

use crate::believed_clock;
use crate::error::{Error, Result};
use crate::server::call::{Call, sql_function};
use crate::server::clock::Timestamp;
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::wake;
use grant::{Granted, Outcome, grant};
use pgrx::Uuid;
use std::sync::{Mutex, PoisonError};

/// Most slots of a name: a grant reads all its tokens.
const HIGHEST_LIMIT: i32 = 1000;
/// How long an expired token stays visible for people, in microseconds.
const SWEEP_AFTER_MICROS: i64 = 60 * 1_000_000;
/// Most tokens, and most waiters, that one sweep reads.
const SWEEP_AT_MOST: i64 = 10_000;

statement!(
    TokenExtend, "token/extend.sql",
    {
        name: TEXTOID,
        token: UUIDOID,
        over_by: TIMESTAMPTZOID,
        now: TIMESTAMPTZOID,
        expires_at: TIMESTAMPTZOID,
    } -> bool
);
statement!(
    TokenRelease, "token/release.sql",
    { name: TEXTOID, token: UUIDOID, now: TIMESTAMPTZOID }
);
row! {
    struct Reached {
        name: String,
        slot: i32,
    }
}
statement!(
    TokenSweep, "token/sweep.sql",
    { expired_before: TIMESTAMPTZOID, name: TEXTOID, slot: INT4OID, at_most: INT8OID } -> Reached
);

/// The arguments of a request for a token.
struct Request {
    name: String,
    holder: String,
    max_holders: i32,
    ttl_micros: i64,
}

impl Request {
    /// Returns the first four arguments of a call.
    fn from_call(call: &Call) -> Result<Self> {
        Ok(Self {
            name: call.name(0, "name")?,
            holder: call.name(1, "holder")?,
            max_holders: call
                .optional_within(2, "max_holders", 1, HIGHEST_LIMIT)?
                .ok_or_else(|| Error::null_argument("max_holders"))?,
            ttl_micros: call.positive(3, "ttl")?,
        })
    }
}

sql_function!(trax_acquire_token, pg_finfo_trax_acquire_token, |call| {
    let request = Request::from_call(call)?;
    spi::require_primary()?;
    let mut rows = call.rows();
    spi::connected(|spi| {
        if let Some(granted) = acquire(spi, &request) {
            rows.push(&granted.columns());
        }
        Ok(())
    })?;
    Ok(rows.end())
});

/// Takes a token, if a slot is free in addition to those reserved for waiters, and stores the
/// limit for the waiters.
fn acquire(spi: &Spi, request: &Request) -> Option<Granted> {
    let waiting = waiter::living(spi, &request.name);
    if waiting > 0 {
        waiter::set_limit(spi, request);
    }
    match grant(spi, request, request.max_holders, waiting, Timestamp::now()) {
        Outcome::Granted(granted) => Some(granted),
        Outcome::Refused(_) => None,
    }
}

sql_function!(trax_extend_token, pg_finfo_trax_extend_token, |call| {
    let name = call.name(0, "name")?;
    let token = call.required::<Uuid>(1, "token")?;
    let ttl = call.positive(2, "ttl")?;
    spi::require_primary()?;
    let extended = spi::connected(|spi| {
        let now = Timestamp::now();
        let jump = believed_clock::jump(spi, now);
        let over_by = arg(jump.earlier(now));
        let now = jump.later(now);
        let extend = TokenExtend {
            name: arg(name.as_str()),
            token: arg(token),
            over_by,
            now: arg(now),
            expires_at: arg(now.plus(ttl)),
        };
        let ends_earlier = spi.query(extend).first();
        if ends_earlier == Some(true) {
            wake::token_freed(&name);
        }
        Ok(ends_earlier.is_some())
    })?;
    Ok(call.value(extended))
});

sql_function!(trax_release_token, pg_finfo_trax_release_token, |call| {
    let name = call.name(0, "name")?;
    let token = call.required::<Uuid>(1, "token")?;
    spi::require_primary()?;
    let released = spi::connected(|spi| {
        let now = Timestamp::now();
        let release = TokenRelease {
            name: arg(name.as_str()),
            token: arg(token),
            now: arg(believed_clock::jump(spi, now).earlier(now)),
        };
        Ok(spi.execute(release) > 0)
    })?;
    if released {
        wake::token_freed(&name);
    }
    Ok(call.value(released))
});

/// Where this backend's last sweep stopped.
static SWEPT_TO: Mutex<Option<(String, i32)>> = Mutex::new(None);

/// Removes tokens that expired a while ago, and the rows of sessions that no longer wait.
pub(crate) fn sweep(spi: &Spi, now: Timestamp) {
    let mut swept_to = SWEPT_TO.lock().unwrap_or_else(PoisonError::into_inner);
    let (name, slot) = swept_to.take().unwrap_or_default();
    let sweep = TokenSweep {
        expired_before: arg(now.plus(-SWEEP_AFTER_MICROS)),
        name: arg(name),
        slot: arg(slot),
        at_most: arg(SWEEP_AT_MOST),
    };
    let reached = spi.query(sweep).first();
    *swept_to = reached.map(|at| (at.name, at.slot));
    waiter::sweep(spi, SWEEP_AT_MOST);
}
