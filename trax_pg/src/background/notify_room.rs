//! Room for notifications: when the server's queue of them is full, NOTIFY fails.

use super::SCHEDULER;
use crate::wake;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::time::{Duration, Instant};

/// How long the last check of the queue is valid.
const NOTIFY_ROOM_INTERVAL: Duration = Duration::from_secs(1);

/// Whether the server's queue of notifications has room.
pub(super) struct NotifyRoom {
    looked_at: Option<Instant>,
    is_there: bool,
}

impl Default for NotifyRoom {
    fn default() -> Self {
        Self {
            looked_at: None,
            is_there: true,
        }
    }
}

impl NotifyRoom {
    /// Returns whether there was room at most a second ago; logs once when there is none.
    pub(super) fn is_there(&mut self) -> bool {
        let is_fresh = |at: Instant| at.elapsed() < NOTIFY_ROOM_INTERVAL;
        if self.looked_at.is_some_and(is_fresh) {
            return self.is_there;
        }
        self.looked_at = Some(Instant::now());
        let was_there = std::mem::replace(&mut self.is_there, wake::may_notify());
        if was_there && !self.is_there {
            ErrorReport::new(
                PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
                format!("{SCHEDULER}: no notification is sent while the server's queue of them is full"),
                function_name!(),
            )
            .set_detail("Workers find jobs and cancels by polling.")
            .set_hint("Find and end the session that listens and stays in a transaction: select * from trax.diagnose()")
            .report(PgLogLevel::WARNING);
        }
        self.is_there
    }
}
