//! Grants: the leases of the jobs that a claim has picked.

use super::{COLUMNS, Picked, Request};
use crate::columns::Leased;
use crate::columns::Waiting;
use crate::error::Result;
use crate::server::clock::{Timestamp, interval, later, micros};
use crate::server::random::random_uuids;
use crate::server::spi::arg;
use crate::server::table::{Inserter, Table};
use crate::setting;
use pgrx::pg_sys;

/// Columns that a lease copies from the waiting row.
const SAME: [(Leased, Waiting); 22] = [
    (Leased::JobId, Waiting::JobId),
    (Leased::LaneId, Waiting::LaneId),
    (Leased::QueuedAt, Waiting::QueuedAt),
    (Leased::RunAt, Waiting::RunAt),
    (Leased::ScheduledFor, Waiting::ScheduledFor),
    (Leased::ExpiresAt, Waiting::ExpiresAt),
    (Leased::ManifestId, Waiting::ManifestId),
    (Leased::MaxRetries, Waiting::MaxRetries),
    (Leased::Priority, Waiting::Priority),
    (Leased::Task, Waiting::Task),
    (Leased::GroupName, Waiting::GroupName),
    (Leased::Manifest, Waiting::Manifest),
    (Leased::Timeout, Waiting::Timeout),
    (Leased::RetryDelay, Waiting::RetryDelay),
    (Leased::UniqueKey, Waiting::UniqueKey),
    (Leased::ConcurrencyKey, Waiting::ConcurrencyKey),
    (Leased::RunAs, Waiting::RunAs),
    (Leased::ParentJobId, Waiting::ParentJobId),
    (Leased::Version, Waiting::Version),
    (Leased::Rate, Waiting::Rate),
    (Leased::RateKey, Waiting::RateKey),
    (Leased::Cost, Waiting::Cost),
];

/// Adds a lease for each job, and passes its row, as `trax.claim_next` returns it, to `push`.
pub(super) fn grant(
    request: &Request,
    picked: &[Picked],
    now: Timestamp,
    mut push: impl FnMut(&[Option<pg_sys::Datum>; COLUMNS]),
) -> Result<()> {
    let default_timeout = arg(interval(micros(setting::default_timeout()))?);
    let default_retries = setting::default_max_retries();
    let after_timeout = micros(setting::cancel_grace()) + micros(setting::default_lease());
    let default_timeout_at = later(now, default_timeout);
    let worker = arg(request.worker.as_str());
    let tokens = random_uuids(picked.len());
    let table = Table::open(Leased::TABLE, Leased::ALL);
    let mut leases = Inserter::begin(&table, picked.len());
    for (job, token) in picked.iter().zip(&tokens) {
        let waiting = &job.row;
        let own_timeout = waiting.value(Waiting::Timeout);
        let timeout = own_timeout.or(default_timeout);
        let timeout_at = own_timeout.map_or(default_timeout_at, |own| later(now, Some(own)));
        // An executor sends no heartbeats while it runs a statement: its process shows that it
        // lives.
        let expires_at = match &request.run_as {
            Some(_) => timeout_at.plus(after_timeout),
            None => now.plus(request.lease_micros),
        };
        let attempt = waiting.number(Waiting::Attempts) as i32;
        let attempt = attempt.saturating_add(1);
        let retries = waiting.get(Waiting::MaxRetries);
        let max_attempts = retries.unwrap_or(default_retries).saturating_add(1);
        // Fewer retries may be allowed since the last attempt: this one is the last.
        let max_attempts = max_attempts.max(attempt);
        let attempt = arg(attempt);
        let token = Some(pg_sys::Datum::from(token.as_ptr()));
        let mut lease = leases.row();
        for (to, from) in SAME {
            lease.set(to, waiting.value(from));
        }
        lease.set(Leased::Token, token);
        // The time for which a rate granted the start.
        lease.set(Leased::StartedAt, arg(job.started_at.unwrap_or(now)));
        lease.set(Leased::LeaseExpiresAt, arg(expires_at));
        lease.set(Leased::TimeoutAt, arg(timeout_at));
        lease.set(Leased::Attempt, attempt);
        lease.set(Leased::CancelRequested, arg(false));
        lease.set(Leased::Cancelled, arg(false));
        lease.set(Leased::TimedOut, arg(false));
        lease.set(Leased::Limited, arg(job.limited));
        lease.set(Leased::Ahead, arg(request.places.is_some()));
        lease.set(Leased::Worker, worker);
        lease.set(Leased::Input, waiting.value(Waiting::Input));
        lease.set(Leased::Trace, waiting.value(Waiting::Trace));
        push(&[
            waiting.value(Waiting::JobId),
            attempt,
            token,
            waiting.value(Waiting::Task),
            waiting.value(Waiting::Input),
            waiting.value(Waiting::Manifest),
            waiting.value(Waiting::GroupName),
            waiting.value(Waiting::ScheduledFor),
            arg(expires_at),
            timeout,
            waiting.value(Waiting::Trace),
            arg(max_attempts),
            waiting.value(Waiting::QueuedAt),
            arg(waiting.get::<i32>(Waiting::Steps).unwrap_or(0)),
        ]);
    }
    leases.end();
    table.close();
    Ok(())
}
