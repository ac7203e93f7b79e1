//! Granting: finds a free slot of a name, and grants it if the limit allows it.
//!
//! A transaction that grants a slot holds a lock on it until it ends, so no other transaction
//! grants the same slot, and none waits for its commit. While no slot above the limit is held or
//! being granted, this alone keeps the limit, because only the slots up to the limit are granted.
//! After a limit was lowered the tokens must be counted: then a grant locks the name exclusively.

use super::Request;
use crate::believed_clock;
use crate::columns::Token;
use crate::server::clock::Timestamp;
use crate::server::lock::{Lock, Mode};
use crate::server::spi::{Spi, arg, row, statement};
use crate::server::table::{Index, Key, Table};
use crate::wake;
use pgrx::pg_sys;
use std::collections::HashMap;

statement!(TokenList, "token/list.sql", { name: TEXTOID } -> TakenSlot);
statement!(
    TokenInsert, "token/insert.sql",
    {
        name: TEXTOID,
        slot: INT4OID,
        max_holders: INT4OID,
        holder: TEXTOID,
        now: TIMESTAMPTZOID,
        expires_at: TIMESTAMPTZOID,
    } -> Granted
);
statement!(
    TokenTakeOver, "token/take_over.sql",
    {
        name: TEXTOID,
        slot: INT4OID,
        max_holders: INT4OID,
        holder: TEXTOID,
        over_by: TIMESTAMPTZOID,
        now: TIMESTAMPTZOID,
        expires_at: TIMESTAMPTZOID,
    } -> Granted
);

row! {
    /// A token that was granted: the columns of the result.
    pub(super) struct Granted {
        slot: i32,
        token: pgrx::Uuid,
        expires_at: Timestamp,
    }
}
row! {
    /// A slot with a token, which may have expired.
    struct TakenSlot {
        slot: i32,
        expires_at: Timestamp,
    }
}

impl Granted {
    pub(super) fn columns(&self) -> [Option<pg_sys::Datum>; 3] {
        [arg(self.slot), arg(self.token), arg(self.expires_at)]
    }
}

/// The reason why no token was granted.
pub(super) struct Refused {
    /// The time until the first of the held tokens expires, in microseconds.
    pub(super) left: Option<i64>,
    /// A slot may be free, but a transaction that has not ended has locked it.
    pub(super) busy: bool,
}

pub(super) enum Outcome {
    Granted(Granted),
    Refused(Refused),
}

/// The tokens of a name: the time at which each slot is free again.
struct TakenSlots(HashMap<i32, Timestamp>);

impl TakenSlots {
    fn read(spi: &Spi, name: &str) -> Self {
        let rows = spi.query_latest(TokenList { name: arg(name) });
        Self(
            rows.iter()
                .map(|held| (held.slot, held.expires_at))
                .collect(),
        )
    }

    fn live(&self, over_by: Timestamp) -> impl Iterator<Item = (i32, Timestamp)> {
        let slots = self.0.iter().map(|(&slot, &until)| (slot, until));
        slots.filter(move |&(_, until)| until > over_by)
    }

    fn refused(&self, over_by: Timestamp, busy: bool) -> Outcome {
        let left = self.live(over_by).map(|(_, until)| until.0 - over_by.0);
        let left = left.min();
        Outcome::Refused(Refused { left, busy })
    }

    /// Returns whether more slots are free than `others` may take.
    fn has_room(&self, limit: i32, others: usize, over_by: Timestamp) -> bool {
        self.live(over_by).count() + others < limit as usize
    }

    fn any_above(&self, limit: i32, over_by: Timestamp) -> bool {
        self.live(over_by).any(|(slot, _)| slot > limit)
    }
}

/// Grants the lowest free slot up to `limit`, if more slots are free than are reserved for
/// `others`, the number of earlier waiters.
pub(super) fn grant(
    spi: &Spi,
    request: &Request,
    limit: i32,
    others: usize,
    now: Timestamp,
) -> Outcome {
    let jump = believed_clock::jump(spi, now);
    let (over_by, now) = (jump.earlier(now), jump.later(now));
    let mut slots = TakenSlots::read(spi, &request.name);
    if !slots.has_room(limit, others, over_by) {
        return slots.refused(over_by, false);
    }
    let shrunk = slots.any_above(limit, over_by);
    let mode = if shrunk { Mode::Alone } else { Mode::Share };
    if !Lock::Token(&request.name).take_if_free(mode) {
        return slots.refused(over_by, true);
    }
    if !shrunk && is_granting_above(&request.name, limit) {
        return slots.refused(over_by, true);
    }
    if shrunk {
        // Only a read under the lock shows all tokens.
        slots = TakenSlots::read(spi, &request.name);
        if !slots.has_room(limit, others, over_by) {
            return slots.refused(over_by, false);
        }
    }
    let mut busy = false;
    for slot in 1..=limit {
        let until = slots.0.get(&slot).copied();
        if until.is_some_and(|until| until > over_by) {
            continue;
        }
        let expired = until.map(|_| over_by);
        let lock = Lock::TokenSlot(&request.name, slot);
        let granted = lock
            .take_if_free(Mode::Alone)
            .then(|| take(spi, request, limit, slot, expired, now));
        match granted {
            Some(Some(granted)) => {
                wake::token_taken(&request.name);
                return Outcome::Granted(granted);
            }
            // Another session has just taken the slot, or is extending its token.
            Some(None) => lock.give_back(Mode::Alone),
            None => {}
        }
        busy = true;
    }
    slots.refused(over_by, busy)
}

/// Returns whether a transaction that has not ended has granted a slot above the limit. A higher
/// limit allowed it, and its token may soon be held in addition to those of the lower slots.
fn is_granting_above(name: &str, limit: i32) -> bool {
    let tokens = Table::open(Token::TABLE, Token::ALL);
    let by_name = Index::open(&tokens, c"concurrency_token_pkey");
    let found = by_name.is_being_written([Key::equals_text(1, name), Key::above_int(2, limit)]);
    by_name.close();
    tokens.close();
    found
}

/// Takes a slot whose lock is held. If it has a token, that has expired by the time `expired`.
fn take(
    spi: &Spi,
    request: &Request,
    limit: i32,
    slot: i32,
    expired: Option<Timestamp>,
    now: Timestamp,
) -> Option<Granted> {
    let name = arg(request.name.as_str());
    let holder = arg(request.holder.as_str());
    let (slot, max_holders, granted_at) = (arg(slot), arg(limit), arg(now));
    let expires_at = arg(now.plus(request.ttl_micros));
    let taken_over = expired.map(|over_by| {
        spi.change_latest(TokenTakeOver {
            name,
            slot,
            max_holders,
            holder,
            over_by: arg(over_by),
            now: granted_at,
            expires_at,
        })
    });
    taken_over.and_then(|rows| rows.first()).or_else(|| {
        let inserted = spi.change_latest(TokenInsert {
            name,
            slot,
            max_holders,
            holder,
            now: granted_at,
            expires_at,
        });
        inserted.first()
    })
}
