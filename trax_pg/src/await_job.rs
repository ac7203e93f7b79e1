//! Results: the outcomes of jobs, and waiting until they have ended (`trax.await_job`).
//!
//! A job has *ended* when nothing more will happen to it under its id: it completed, failed for
//! good (which may leave a dead letter) or was cancelled; a job that waits for its next attempt has
//! not ended. A dead letter that is queued again is another job.
//!
//! Enters: jobs and a timeout. Leaves: the tables' data once a job has ended. Holds:
//! - A session registers the jobs it waits for (`memory::waiting`) before it reads the tables, and
//!   reads those again whose end was rung; only the tables decide. The session holds no lock
//!   meanwhile.
//! - Twice a minute it also reads all of them, one probe per job, for an end that did not ring: a
//!   row that was not changed by the extension's statements. Where nothing can wake it (the library
//!   is not preloaded, a standby, no entry left) it reads them twice a second.
//! - A session keeps its list from call to call, so that a call with nearly the same jobs as the
//!   last reads only those that are new or have rung.

use crate::access_scope;
use crate::error::{Error, Result};
use crate::memory::waiting;
use crate::server::backend::{client_has_sent, end_if_client_is_gone, is_standby, my_user};
use crate::server::call::{Call, sql_function};
use crate::server::clock::Timestamp;
use crate::server::latch;
use crate::server::procedure::Procedure;
use crate::server::rights::{Caller, as_owner};
use crate::server::spi;
use crate::server::spi::{arg, row, statement};
use crate::server::wait_event::WaitEvent;
use crate::wake;
use pgrx::pg_sys;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The most jobs that one call of `trax.await_jobs` returns.
const ENDED_AT_MOST: usize = 1000;
/// The longest sleep of a session, after which it notices that its client is gone.
const SLEEP: Duration = Duration::from_secs(5);
/// How often it reads jobs whose end would wake it.
const LOOK: Duration = Duration::from_secs(30);
/// How often it does where nothing can wake it.
const POLL: Duration = Duration::from_millis(500);

thread_local! {
    /// When this session reads all its jobs again.
    static LOOK_AT_ALL: Cell<Option<Instant>> = const { Cell::new(None) };
}

row! {
    /// The state of a job; nulls when it does not exist.
    struct AwaitedJob {
        job_id: i64,
        state: Option<String>,
        task: Option<String>,
        group_name: Option<String>,
    }
}
row! {
    struct AwaitedResult {
        state: pg_sys::Datum,
        output: Option<pg_sys::Datum>,
        error: Option<pg_sys::Datum>,
    }
}
row! {
    /// A row of `trax.job` without the input.
    struct ShownJob {
        job_id: i64,
        state: pg_sys::Datum,
        attempt: i32,
        task: String,
        manifest: Option<pg_sys::Datum>,
        group_name: String,
        priority: i32,
        run_at: Timestamp,
        scheduled_for: Option<Timestamp>,
        queued_at: Timestamp,
        started_at: Option<Timestamp>,
        finished_at: Option<Timestamp>,
        worker: Option<pg_sys::Datum>,
        error: Option<pg_sys::Datum>,
        output: Option<pg_sys::Datum>,
        progress: Option<pg_sys::Datum>,
    }
}
statement!(AwaitedJobs, "await_job/look.sql", { job_ids: INT8ARRAYOID } -> AwaitedJob);
statement!(Read, "await_job/read.sql", { job_id: INT8OID } -> AwaitedResult);
statement!(Get, "await_job/get.sql", { job_ids: INT8ARRAYOID } -> ShownJob);

sql_function!(trax_get_jobs, pg_finfo_trax_get_jobs, |call| {
    as_owner(call, |caller| {
        let job_ids = jobs_of(call)?;
        let mut rows = call.rows();
        spi::connected(|spi| {
            let scope = access_scope::of_caller(spi, caller);
            let get = Get {
                job_ids: arg(job_ids),
            };
            for job in spi.query(get).iter() {
                scope.require_of(&job.task, &job.group_name, || format!("job {}", job.job_id))?;
                rows.push(&[
                    arg(job.job_id),
                    Some(job.state),
                    arg(job.attempt),
                    arg(job.task),
                    job.manifest,
                    arg(job.group_name),
                    arg(job.priority),
                    arg(job.run_at),
                    job.scheduled_for.and_then(arg),
                    arg(job.queued_at),
                    job.started_at.and_then(arg),
                    job.finished_at.and_then(arg),
                    job.worker,
                    job.error,
                    job.output,
                    job.progress,
                ]);
            }
            Ok(())
        })?;
        Ok(rows.end())
    })
});

sql_function!(trax_await_job, pg_finfo_trax_await_job, |call| {
    let job_id = call.required::<i64>(0, "job_id")?;
    let example = "trax.await_job(7, '1 min', null, null, null)";
    let wait = Wait::begin(call, vec![job_id], "trax.await_job()", example)?;
    wait.until_one_has_ended(false)?;
    waiting::forget_jobs(&[job_id]);
    let answer = wait.procedure.step(|spi| {
        let scope = access_scope::of_caller(spi, wait.caller);
        scope.require_job(spi, job_id)?;
        let read = Read {
            job_id: arg(job_id),
        };
        let answer = spi.query(read).first().ok_or_else(|| unknown(job_id))?;
        Ok([Some(answer.state), answer.output, answer.error].map(|value| value.map(spi::outlive)))
    });
    let mut columns = answer?;
    // The rest of the caller's procedure runs in a transaction with the session's own settings.
    wait.procedure.commit();
    Ok(call.record(&mut columns))
});

sql_function!(trax_await_jobs, pg_finfo_trax_await_jobs, |call| {
    let job_ids = jobs_of(call)?;
    let until_message = call.optional::<bool>(2).unwrap_or(false);
    let example = "trax.await_jobs(array[7, 8], '1 min', null)";
    let wait = Wait::begin(call, job_ids, "trax.await_jobs()", example)?;
    let ended = wait.until_one_has_ended(until_message)?;
    Ok(call.record(&mut [arg(ended)]))
});

/// Returns 42704: the job never existed, or its history was deleted.
fn unknown(job_id: i64) -> Error {
    Error::unknown(format!("job {job_id} does not exist"))
        .detail("No job that waits, runs or has ended within trax.run_retention has this id.")
        .hint("Specify the id that trax.enqueue returned.")
}

fn jobs_of(call: &Call) -> Result<Vec<i64>> {
    let mut job_ids = call.array::<i64>(0, "job_ids")?;
    job_ids.sort_unstable();
    job_ids.dedup();
    Ok(job_ids)
}

/// A waiting call.
struct Wait {
    procedure: Procedure,
    caller: Caller,
    job_ids: Vec<i64>,
    deadline: Instant,
}

impl Wait {
    fn begin(call: &Call, job_ids: Vec<i64>, name: &str, example: &str) -> Result<Self> {
        let timeout = call
            .optional_not_negative(1, "timeout")?
            .ok_or_else(|| Error::null_argument("timeout"))?;
        // SAFETY: reads the state of the transaction.
        if call.is_atomic() || unsafe { pg_sys::IsSubTransaction() } {
            return Err(wake::in_transaction_block(name, example));
        }
        let wait = Self {
            procedure: Procedure::new(call),
            caller: Caller {
                user: my_user(),
                function: call.function(),
            },
            job_ids,
            deadline: Instant::now() + Duration::from_micros(timeout as u64),
        };
        // Ends the snapshot of the CALL, which must not be used.
        wait.procedure.commit();
        Ok(wait)
    }

    /// Returns the jobs that have ended or do not exist, as soon as there is one; none at the
    /// timeout. An `impatient` wait also ends when its client has sent something.
    fn until_one_has_ended(&self, impatient: bool) -> Result<Vec<i64>> {
        let is_impatient = impatient && !self.procedure.is_nested();
        waiting::wait_for_jobs(&self.job_ids);
        let has_places = waiting::waits_for_jobs(&self.job_ids);
        let mut has_heard = false;
        loop {
            end_if_client_is_gone();
            let is_wakeable = has_places && is_primary();
            let now = Instant::now();
            let look_at_all = LOOK_AT_ALL.get().unwrap_or(now + LOOK);
            let job_ids = if is_wakeable && now < look_at_all {
                LOOK_AT_ALL.set(Some(look_at_all));
                waiting::jobs_to_look_at(&self.job_ids)
            } else {
                // Changes that were replayed before a promotion rang no bell.
                LOOK_AT_ALL.set(Some(if is_wakeable { now + LOOK } else { now }));
                self.job_ids.clone()
            };
            let ended = self.look(job_ids)?;
            if !ended.is_empty() || has_heard || now >= self.deadline {
                return Ok(ended);
            }
            let until = if is_wakeable { now + SLEEP } else { now + POLL };
            let until = until.min(self.deadline);
            self.procedure
                .rest(|| has_heard = sleep(until, is_impatient));
        }
    }

    /// Returns the jobs that have ended or do not exist; returns an error for jobs that the caller
    /// may not see.
    fn look(&self, job_ids: Vec<i64>) -> Result<Vec<i64>> {
        if job_ids.is_empty() {
            return Ok(job_ids);
        }
        let (alive, mut ended) = self.procedure.step(|spi| {
            let scope = access_scope::of_caller(spi, self.caller);
            let rows = spi.query(AwaitedJobs {
                job_ids: arg(job_ids),
            });
            let (mut alive, mut ended) = (Vec::new(), Vec::new());
            for seen in rows.iter() {
                if let (Some(task), Some(group)) = (&seen.task, &seen.group_name) {
                    scope.require_of(task, group, || format!("job {}", seen.job_id))?;
                }
                match seen.state.as_deref() {
                    Some("queued" | "in_progress") => alive.push(seen.job_id),
                    _ => ended.push(seen.job_id),
                }
            }
            Ok((alive, ended))
        })?;
        self.procedure.commit();
        waiting::looked_at_jobs(&alive);
        // The next call reads the others again.
        ended.truncate(ENDED_AT_MOST);
        waiting::forget_jobs(&ended);
        Ok(ended)
    }
}

/// Returns whether jobs end here: on a standby nothing would wake a session that waits for one.
fn is_primary() -> bool {
    !is_standby()
}

/// Sleeps until a job that this session waits for may have ended, or, if `is_impatient`, until its
/// client has sent something; returns whether the client has.
fn sleep(until: Instant, is_impatient: bool) -> bool {
    loop {
        if is_impatient && client_has_sent() {
            return true;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || waiting::has_job_rung() {
            return false;
        }
        let has_heard = if is_impatient {
            latch::wait_or_client(left, WaitEvent::Job)
        } else {
            latch::wait(left, WaitEvent::Job);
            false
        };
        pgrx::check_for_interrupts!();
        if has_heard {
            return true;
        }
    }
}
