//! Outcomes: how attempts end.
//!
//! Enters: a lease and its result (completed, failed, cancelled, overdue), or a waiting job that is
//! given up. Leaves: one row of `trax.run` per attempt; for a retry a row of the work queue; for a
//! job that failed for good a dead letter; for a manifest the time of its next run. Holds: an
//! attempt has one outcome, recorded by the holder of the token; a stale worker changes nothing;
//! all consequences of an outcome commit with it.
//!
//! Rows are locked in the order that `server/lock.rs` describes.
//!
//! Cost of recording 100 completions with warm caches: 405 buffers, 4 per job: a probe of
//! `lease_pkey`, and the row and its one index entry in the partition of the day.

mod cancel;
mod completion;
mod ending;
mod expire;
mod given_up;
mod release;
mod returned;

use crate::changes::Claimable;
use crate::columns::{Leased, Outcome};
use crate::error::{Error, Result};
use crate::job_steps;
use crate::lease;
use crate::lease::{FREE_LOSSES, Held, Locked, Overdue, Reaper};
use crate::limit::{self, Shared};
use crate::manifest_state;
use crate::manifest_state::job_ended;
use crate::manifest_state::job_ended::Ended;
use crate::metrics;
use crate::metrics::Stale;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::spi;
use crate::server::spi::{Spi, arg, array_arg, row, statement};
use crate::{changes, rate, unique_key, unreadable_job, unseen, wake, work_queue};
pub(crate) use cancel::{cancel_because, cancel_trees, jobs_of_manifest, lock_trees};
use ending::Ending;
pub(crate) use ending::Failure;
pub(crate) use expire::{EXPIRE_AT_MOST, expire_queued};
use given_up::{GivenUp, given_up};
use pgrx::{Uuid, pg_sys};
pub(crate) use release::{Return, release, suspend};
pub(crate) use returned::{Returned, outputs};
use std::collections::HashSet;

/// The most looks in one cycle for leases behind those that cannot end now.
const LOOKS_AT_MOST: usize = 10;
/// The most leases that one look isolates because their end cannot be recorded; the others follow.
const BAD_AT_MOST: usize = 32;

statement!(
    RunFail, "outcome/run_fail.sql",
    {
        job_ids: INT8ARRAYOID,
        states: TEXTARRAYOID,
        failure_kinds: TEXTARRAYOID,
        errors: TEXTARRAYOID,
        details: JSONBARRAYOID,
        retry_times: TIMESTAMPTZARRAYOID,
        reasons: TEXTARRAYOID,
        now: TIMESTAMPTZOID,
        begun: BOOLARRAYOID,
        lost_input: JSONBOID,
        acknowledged: BOOLARRAYOID,
    } -> Claimable
);
row! {
    struct Lost {
        job_id: i64,
        times: i64,
    }
}
statement!(
    RunFreeLosses, "outcome/run_free_losses.sql",
    { job_ids: INT8ARRAYOID, attempts: INT4ARRAYOID } -> Lost
);

sql_function!(trax_complete, pg_finfo_trax_complete, |call| {
    spi::require_primary()?;
    let job_id = call.required::<i64>(0, "job_id")?;
    let held = Held {
        job_ids: vec![job_id],
        tokens: vec![call.required::<Uuid>(1, "token")?],
    };
    let output = call.datum(2);
    output.map_or(Ok(()), |output| work_queue::check_size("output", output))?;
    let detail = call.datum(3);
    detail.map_or(Ok(()), |detail| work_queue::check_size("detail", detail))?;
    let returned = [Returned { output, detail }];
    let recorded = spi::connected(|spi| complete(spi, &held, &returned, Timestamp::now()))?;
    Ok(call.value(!recorded.is_empty()))
});

sql_function!(trax_complete_many, pg_finfo_trax_complete_many, |call| {
    let held = Held::from_call(call)?;
    let outputs = outputs(call, 2, held.job_ids.len())?;
    let mut rows = call.rows();
    for job_id in spi::connected(|spi| complete(spi, &held, &outputs, Timestamp::now()))? {
        rows.push(&[arg(job_id)]);
    }
    Ok(rows.end())
});

sql_function!(trax_fail, pg_finfo_trax_fail, |call| {
    let job_id = call.required::<i64>(0, "job_id")?;
    let token = call.required::<Uuid>(1, "token")?;
    let failure = Failure {
        error: call
            .beginning(2)
            .ok_or_else(|| Error::null_argument("error"))?,
        detail: call.datum(3),
        retry_in: call.optional_not_negative(4, "retry_in")?,
        permanent: call.optional::<bool>(5).unwrap_or(false),
        was_told_to_stop: false,
    };
    let detail = failure.detail;
    detail.map_or(Ok(()), |detail| work_queue::check_size("detail", detail))?;
    let closes_rate_for = rate::closing(call, 6, failure.retry_in)?;
    let now = Timestamp::now();
    let outcome = spi::connected(|spi| {
        if let Some(time) = closes_rate_for {
            rate::close_of_job(spi, job_id, token, now.plus(time))?;
        }
        Ok(fail(spi, job_id, token, failure, now))
    })?;
    Ok(call.value(outcome))
});

/// Records that an attempt has failed; returns the resulting state of its job.
pub(crate) fn fail(
    spi: &Spi,
    job_id: i64,
    token: Uuid,
    failure: Failure,
    now: Timestamp,
) -> &'static str {
    let Some(lease) = lease::take(spi, job_id, token) else {
        metrics::stale(Stale::Fail, 1);
        return "lost";
    };
    let ending = Ending::failed(lease, failure, now);
    let outcome = if ending.retry_at.is_some() {
        "retrying"
    } else {
        "dead"
    };
    end(spi, &[ending], now, true);
    outcome
}

/// Records completions; returns the jobs whose lease was still held.
pub(crate) fn complete(
    spi: &Spi,
    held: &Held,
    returned: &[Returned],
    now: Timestamp,
) -> Result<Vec<i64>> {
    let leases = completion::record(spi, held, returned, now)?;
    leases
        .iter()
        .for_each(|lease| changes::lease_ended(lease.number(Leased::JobId)));
    if leases.len() < returned.len() && spi::keeps_snapshot() {
        let ended: HashSet<i64> = leases
            .iter()
            .map(|lease| lease.number(Leased::JobId))
            .collect();
        let (job_ids, tokens) = held.without(|job_id| ended.contains(&job_id));
        unseen::refuse_lease(spi, job_ids, tokens);
    }
    metrics::completed(&leases, now);
    metrics::stale(Stale::Complete, returned.len() - leases.len());
    let ended: Vec<Ended> = leases
        .iter()
        .map(|lease| Ended {
            job_id: lease.number(Leased::JobId),
            manifest_id: lease.get(Leased::ManifestId),
            unique_key: lease.get(Leased::UniqueKey),
            parent_job_id: lease.get(Leased::ParentJobId),
            succeeded: true,
            done: true,
        })
        .collect();
    let job_ids = ended.iter().map(|job| job.job_id).collect();
    let shared = leases
        .iter()
        .flat_map(|lease| {
            Shared::of(
                lease.get(Leased::ConcurrencyKey),
                lease.get(Leased::ManifestId),
            )
        })
        .collect();
    let groups: Vec<String> = leases
        .iter()
        .filter(|lease| lease.get(Leased::Limited) == Some(true))
        .filter_map(|lease| lease.get(Leased::GroupName))
        .collect();
    make_room(spi, shared, &groups, true);
    finish_jobs(spi, ended, now);
    Ok(job_ids)
}

/// The result of a look by the reaper.
#[derive(Default)]
pub(crate) struct Reaped {
    pub(crate) count: usize,
    /// The jobs whose attempts are spent.
    pub(crate) spent: Vec<i64>,
    /// Another look right now would find more.
    pub(crate) more: bool,
}

/// Takes away the leases that are overdue at `ended_by`: their attempts have failed. Looks again at
/// once when leases that cannot end now may have hidden others. Also returns an error when the end
/// of some could not be recorded.
pub(crate) fn reap_expired_leases(
    spi: &Spi,
    now: Timestamp,
    ended_by: Timestamp,
    reaper: &mut Reaper,
) -> Result<(Reaped, Option<Error>)> {
    let mut reaped = Reaped::default();
    let mut failure = None;
    for _ in 0..LOOKS_AT_MOST {
        let put_off = reap(spi, now, ended_by, reaper, &mut reaped, &mut failure)?;
        if !reaped.more || put_off == 0 {
            break;
        }
    }
    Ok((reaped, failure))
}

/// Runs the reaper once; returns how many were put off.
fn reap(
    spi: &Spi,
    now: Timestamp,
    ended_by: Timestamp,
    reaper: &mut Reaper,
    reaped: &mut Reaped,
    failure: &mut Option<Error>,
) -> Result<usize> {
    let overdue = lease::take_overdue(spi, ended_by, reaper);
    // A worker that keeps the transaction of its outcome open must not stop the cycle: the lease
    // waits for a later one.
    let manifests = overdue
        .iter()
        .filter_map(|(lease, _)| lease.manifest_id)
        .collect();
    let busy: HashSet<i64> = manifest_state::busy(spi, manifests).into_iter().collect();
    let is_busy = |lease: &Locked| lease.manifest_id.is_some_and(|id| busy.contains(&id));
    let (waiting, overdue): (Vec<_>, Vec<_>) =
        overdue.into_iter().partition(|(lease, _)| is_busy(lease));
    if !waiting.is_empty() {
        let job_ids = waiting.iter().map(|(lease, _)| lease.job_id).collect();
        lease::put_off(spi, job_ids, ended_by);
    }
    let overdue = count_repeated_losses(spi, overdue);
    let mut endings: Vec<Ending> = overdue
        .into_iter()
        .map(|(lease, overdue)| Ending::overdue(lease, overdue, now))
        .collect();
    endings.sort_by_key(|ending| ending.lease.job_id);
    let (mut bad, mut untried) = (Vec::new(), Vec::new());
    end_overdue(spi, &endings, now, reaped, &mut bad, &mut untried)?;
    reaper.take_back(untried);
    reaped.more = reaper.has_more();
    let put_off = waiting.len() + bad.len();
    if !bad.is_empty() {
        // Put off, so that they do not hide others; they are tried again.
        let job_ids = bad.iter().map(|(job_id, _)| *job_id).collect();
        lease::put_off(spi, job_ids, ended_by);
        let (unreadable, others): (Vec<_>, Vec<_>) = bad
            .into_iter()
            .partition(|(_, error)| error.is_unreadable());
        unreadable_job::note(spi, &unreadable, now);
        *failure = others.into_iter().last().map(|(_, error)| error);
    }
    Ok(put_off)
}

/// Ends overdue leases together, and if that fails each half by itself, so that a bad row fails
/// alone and is added to `bad`. A failure of the server is a failure of all.
fn end_overdue(
    spi: &Spi,
    endings: &[Ending],
    now: Timestamp,
    reaped: &mut Reaped,
    bad: &mut Vec<(i64, Error)>,
    untried: &mut Vec<i64>,
) -> Result<()> {
    if endings.is_empty() {
        return Ok(());
    }
    if bad.len() >= BAD_AT_MOST {
        untried.extend(endings.iter().map(|ending| ending.lease.job_id));
        return Ok(());
    }
    let mut done = spi::isolated(|| {
        end(spi, endings, now, false);
        Ok(())
    });
    // A cancelled job does not need its input.
    if let (Err(error), [ending]) = (&done, endings)
        && error.is_unreadable()
        && ending.outcome == Outcome::Cancelled
    {
        let lost = unreadable_job::placeholder(error);
        done = spi::isolated(|| {
            end_with(spi, endings, now, false, lost);
            Ok(())
        });
    }
    match done {
        Ok(()) => {
            reaped.count += endings.len();
            let spent = endings.iter().filter(|ending| ending.reason.is_some());
            reaped.spent.extend(spent.map(|ending| ending.lease.job_id));
        }
        Err(error) if error.is_of_the_server() && !error.is_unreadable() => return Err(error),
        Err(error) if endings.len() == 1 => bad.push((endings[0].lease.job_id, error)),
        Err(_) => {
            let (first, second) = endings.split_at(endings.len() / 2);
            end_overdue(spi, first, now, reaped, bad, untried)?;
            end_overdue(spi, second, now, reaped, bad, untried)?;
        }
    }
    Ok(())
}

/// Counts a job as begun that was fetched ahead and lost too often in a row: it may be the cause of
/// its workers' ends.
fn count_repeated_losses(spi: &Spi, mut overdue: Vec<(Locked, Overdue)>) -> Vec<(Locked, Overdue)> {
    let not_begun = overdue
        .iter()
        .filter(|(_, overdue)| *overdue == Overdue::NotBegun);
    let (job_ids, attempts): (Vec<i64>, Vec<i32>) = not_begun
        .map(|(lease, _)| (lease.job_id, lease.attempt))
        .unzip();
    if job_ids.is_empty() {
        return overdue;
    }
    let rows = spi.query(RunFreeLosses {
        job_ids: arg(job_ids),
        attempts: arg(attempts),
    });
    let too_often: HashSet<i64> = rows
        .iter()
        .filter(|lost| lost.times >= FREE_LOSSES)
        .map(|lost| lost.job_id)
        .collect();
    for (lease, overdue) in &mut overdue {
        if too_often.contains(&lease.job_id) {
            *overdue = Overdue::LeaseExpired;
        }
    }
    overdue
}

/// Records attempts that did not complete, in the order of their jobs, with all consequences.
fn end(spi: &Spi, endings: &[Ending], now: Timestamp, may_wait: bool) {
    end_with(spi, endings, now, may_wait, None);
}

/// Does the same with another input in history, for a row whose own input cannot be read.
fn end_with(
    spi: &Spi,
    endings: &[Ending],
    now: Timestamp,
    may_wait: bool,
    lost_input: Option<pg_sys::Datum>,
) {
    let column = |value: fn(&Ending) -> Option<pg_sys::Datum>, element| {
        array_arg(element, &endings.iter().map(value).collect::<Vec<_>>())
    };
    let text = pg_sys::TEXTOID;
    let fail = RunFail {
        job_ids: column(|ending| arg(ending.lease.job_id), pg_sys::INT8OID),
        states: column(|ending| arg(ending.outcome.state()), text),
        failure_kinds: column(|ending| ending.outcome.failure_kind().and_then(arg), text),
        errors: column(|ending| ending.error.as_deref().and_then(arg), text),
        details: column(|ending| ending.detail, pg_sys::JSONBOID),
        retry_times: column(
            |ending| ending.retry_at.and_then(arg),
            pg_sys::TIMESTAMPTZOID,
        ),
        reasons: column(|ending| ending.reason.and_then(arg), text),
        now: arg(now),
        begun: column(|ending| arg(ending.begun), pg_sys::BOOLOID),
        lost_input,
        acknowledged: column(|ending| arg(ending.acknowledged), pg_sys::BOOLOID),
    };
    let counted = endings.iter().map(|ending| metrics::Ended {
        task: &ending.lease.task,
        started_at: ending.lease.started_at,
        outcome: ending.outcome,
        is_retried: ending.retry_at.is_some(),
        at: now,
    });
    metrics::ended(&counted.collect::<Vec<_>>());
    endings
        .iter()
        .for_each(|ending| changes::lease_ended(ending.lease.job_id));
    // Steps that were recorded until the leases were locked are seen at any isolation level.
    changes::rows_claimable(&spi.change_latest(fail));
    if endings
        .iter()
        .any(|ending| ending.retry_at.is_some_and(|at| at > now))
    {
        wake::mark(wake::DUE);
    }
    let shared = endings
        .iter()
        .flat_map(|ending| {
            let lease = &ending.lease;
            Shared::of(lease.concurrency_key.clone(), lease.manifest_id)
        })
        .collect();
    let groups: Vec<String> = endings
        .iter()
        .filter_map(|ending| ending.lease.limited_group.clone())
        .collect();
    let ended = endings
        .iter()
        .filter(|ending| ending.retry_at.is_none())
        .map(|ending| Ended {
            job_id: ending.lease.job_id,
            manifest_id: ending.lease.manifest_id,
            unique_key: ending.lease.unique_key.clone(),
            parent_job_id: ending.lease.parent_job_id,
            succeeded: false,
            done: ending.outcome == Outcome::Cancelled || ending.acknowledged,
        })
        .collect();
    make_room(spi, shared, &groups, may_wait);
    finish_jobs(spi, ended, now);
}

/// Lets in jobs that a limit held back when other jobs no longer run. Runs before manifests are
/// locked: it may wait for the lock of a key that a claim holds until its commit, and before that
/// the claim's transaction may complete a job, for which it waits for the row of a manifest.
fn make_room(spi: &Spi, shared: Vec<Shared>, limited_groups: &[String], may_wait: bool) {
    wake::mark(wake::ENDED);
    for group in limited_groups {
        wake::mark(wake::WORK);
        changes::group_changed(group);
    }
    limit::free(spi, shared.into_iter(), may_wait);
}

/// Applies the consequences for jobs that ended for good, with any outcome: wakes the sessions that
/// wait for them, frees their unique keys and lets their manifests continue.
fn finish_jobs(spi: &Spi, ended: Vec<Ended>, now: Timestamp) {
    changes::jobs_ended(ended.iter().map(|job| job.job_id));
    let (keys, job_ids): (Vec<String>, Vec<i64>) = ended
        .iter()
        .filter_map(|job| job.unique_key.clone().map(|key| (key, job.job_id)))
        .unzip();
    unique_key::release(spi, keys, job_ids, now);
    job_steps::ended(spi, &ended, now);
    job_ended::continue_manifests(spi, &ended, now);
}
