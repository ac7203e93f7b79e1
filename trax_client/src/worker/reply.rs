//! The reply of an exchange: the answers of the server, and the outcomes left to report.

use std::time::Duration;

use super::connection::Notifications;
use super::polling::More;
use super::unreported::{Answer, UnreportedOutcome};
use crate::clock::Moment;
use crate::id::{JobId, Token};
use crate::job::Claimed;

/// The result of an exchange.
#[derive(Default)]
pub(crate) struct Reply {
    pub(crate) answers: Vec<(JobId, Token, Answer)>,
    /// Outcomes that the next exchange reports again.
    pub(crate) unreported: Vec<UnreportedOutcome>,
    /// Outcomes that are reported again after `retry_in`.
    pub(crate) retries: Vec<UnreportedOutcome>,
    pub(crate) retry_in: Duration,
    pub(crate) claimed: Vec<Claimed>,
    /// Whether more jobs may be waiting than the claim returned.
    pub(crate) more: More,
    /// When the claim was sent. Leases are counted from this moment, which is before they begin.
    pub(crate) sent: Option<Moment>,
    /// The server cannot be reached: nothing is sent for this long.
    pub(crate) pause_for: Option<Duration>,
    /// The claim failed: no claim is sent for this long.
    pub(crate) no_claim_for: Option<Duration>,
    /// The notifications of a connection that this exchange opened.
    pub(crate) notifications: Option<Notifications>,
}

impl Reply {
    /// Records the result of a claim.
    pub(crate) fn take(&mut self, sent: Moment, claimed: Vec<Claimed>, more: More) {
        self.sent = Some(sent);
        self.claimed = claimed;
        self.more = more;
    }
}
