//! Workflows: steps, waits, signals and children of jobs that are executed.
//!
//! Words: a *step* is a named result that a job keeps; a *wait* is a step in which a job may be
//! *suspended*: it goes back to the queue (`waits_for` = time, signal or jobs) without a lease and
//! without using the attempt. A wait is *settled* when its end is recorded.
//!
//! Enters: calls of the holder of a lease, and signals. Leaves: rows of `trax.step` and
//! `trax.signal`, and suspended jobs. Holds:
//! - The first write of a step wins; a later attempt gets what is kept.
//! - Only the holder of the lease records: a step locks the key of the lease's row until the
//!   transaction ends, and every end of an attempt deletes that row. Heartbeats and other steps
//!   do not wait for that lock.
//! - A job is suspended and its wait recorded in one transaction.
//! - No wait is missed: a job that waits for a signal locks the place that the next signal takes
//!   (`signal.rs`); a job that waits for others leaves an event (`job_needs`).
//!
//! What a living job remembers, and what happens to it at the end, is `job_steps.rs`.

mod child;
mod fork;
mod record;
mod signal;
mod wait;

use crate::access_scope;
use crate::error::{Error, Result};
use crate::job_steps;
use crate::lease;
use crate::server::call::{Call, sql_function};
use crate::server::clock::Timestamp;
use crate::server::rights::as_owner;
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::server::table::RowLock;
use crate::work_queue;
use pgrx::{Uuid, pg_sys};

row! {
    /// The answer to an attempt to record a step.
    struct Answer {
        recorded: bool,
        /// The kind of the job's step of this name.
        kind: String,
        is_settled: bool,
        timed_out: bool,
        output: Option<pg_sys::Datum>,
        /// When the wait ends that was recorded.
        wait_until: Option<Timestamp>,
    }
}
row! {
    /// A row of `trax.read_steps`.
    struct Shown {
        step: pg_sys::Datum,
        kind: pg_sys::Datum,
        output: Option<pg_sys::Datum>,
        attempt: i32,
        recorded_at: Option<Timestamp>,
        timed_out: bool,
        wait: Option<pg_sys::Datum>,
        undo: Option<pg_sys::Datum>,
    }
}
statement!(StepFind, "workflow/find.sql", { job_id: INT8OID, step: TEXTOID } -> Answer);
statement!(
    StepSettle, "workflow/settle.sql",
    {
        job_id: INT8OID,
        token: UUIDOID,
        step: TEXTOID,
        now: TIMESTAMPTZOID,
        timed_out: BOOLOID,
        output: JSONBOID,
    }
);
statement!(StepsRead, "workflow/read.sql", { job_id: INT8OID } -> Shown);

/// The kind of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Step,
    Sleep,
    Signal,
    Child,
    Jobs,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Sleep => "sleep",
            Self::Signal => "signal",
            Self::Child => "child",
            Self::Jobs => "jobs",
        }
    }
}

/// A step of a job that a call names, and the proof that the caller holds the job's lease.
struct Place {
    job_id: i64,
    token: Uuid,
    step: String,
    kind: Kind,
    now: Timestamp,
}

/// The contents of a new step.
#[derive(Default)]
struct Contents<'contents> {
    /// Its end is recorded later.
    is_open: bool,
    output: Option<pg_sys::Datum>,
    undo: Option<pg_sys::Datum>,
    /// When a wait ends at the latest.
    until: Option<Timestamp>,
    /// The name of a signal, or a mode.
    waited_for: Option<&'contents str>,
}

sql_function!(trax_record_step, pg_finfo_trax_record_step, |call| {
    as_owner(call, |caller| {
        let place = Place::from_call(call, Kind::Step)?;
        let output = call.datum(3);
        output.map_or(Ok(()), |output| work_queue::check_size("output", output))?;
        let undo = call.datum(4);
        let undo_task = undo.map(job_steps::checked_undo).transpose()?;
        let extension = call.optional_positive(5, "lease")?;
        let mut rows = call.rows();
        spi::connected(|spi| {
            if let Some(micros) = extension {
                lease::extend_one(place.job_id, place.token, micros)?;
            }
            let contents = Contents {
                output,
                undo,
                ..Contents::default()
            };
            if let Some(answer) = place.record(spi, contents)? {
                let kept = if answer.recorded {
                    output
                } else {
                    answer.output
                };
                if let Some(task) = undo_task.filter(|_| answer.recorded) {
                    let scope = access_scope::of_caller(spi, caller);
                    scope.require_in_group_of(spi, &task, place.job_id)?;
                }
                rows.push(&[arg(answer.recorded), kept]);
            }
            Ok(())
        })?;
        Ok(rows.end())
    })
});

sql_function!(trax_read_steps, pg_finfo_trax_read_steps, |call| {
    as_owner(call, |caller| {
        let job_id = call.required::<i64>(0, "job_id")?;
        let mut rows = call.rows();
        spi::connected(|spi| {
            access_scope::of_caller(spi, caller).require_job(spi, job_id)?;
            let read = StepsRead {
                job_id: arg(job_id),
            };
            for step in spi.query(read).iter() {
                rows.push(&[
                    Some(step.step),
                    Some(step.kind),
                    step.output,
                    arg(step.attempt),
                    step.recorded_at.and_then(arg),
                    arg(step.timed_out),
                    step.wait,
                    step.undo,
                ]);
            }
            Ok(())
        })?;
        Ok(rows.end())
    })
});

impl Place {
    fn from_call(call: &Call, kind: Kind) -> Result<Self> {
        spi::require_primary()?;
        Ok(Self {
            job_id: call.required::<i64>(0, "job_id")?,
            token: call.required::<Uuid>(1, "token")?,
            step: call.new_name(2, "step")?,
            kind,
            now: Timestamp::now(),
        })
    }

    /// Records the step, unless the job has it; returns `None` when the lease is lost, and 22023
    /// when the job has a step of this name and of another kind.
    fn record(&self, spi: &Spi, contents: Contents<'_>) -> Result<Option<Answer>> {
        match lease::keep(spi, self.job_id, self.token, RowLock::KeyShare)? {
            Some(kept) => self.record_in(spi, kept.attempt, contents).map(Some),
            None => Ok(None),
        }
    }

    /// Records the step in an attempt whose lease this transaction keeps.
    fn record_in(&self, spi: &Spi, attempt: i32, contents: Contents<'_>) -> Result<Answer> {
        if self.add(attempt, &contents)? {
            return Ok(Answer {
                recorded: true,
                kind: self.kind.name().to_owned(),
                is_settled: !contents.is_open,
                timed_out: false,
                output: contents.output,
                wait_until: contents.until,
            });
        }
        let find = StepFind {
            job_id: arg(self.job_id),
            step: arg(self.step.as_str()),
        };
        let answer = spi
            .query_latest(find)
            .first()
            .ok_or_else(Error::changed_since_snapshot)?;
        self.require_kind(&answer)?;
        Ok(answer)
    }

    fn require_kind(&self, answer: &Answer) -> Result<()> {
        let kind = &answer.kind;
        if kind == self.kind.name() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "step \"{}\" of job {} is of another kind",
            self.step, self.job_id
        ))
        .detail(format!(
            "It was recorded as {kind}; this call would record it as {}.",
            self.kind.name()
        ))
        .hint("Give each step of a job a name of its own."))
    }

    /// Records how an open wait has ended.
    fn settle(&self, spi: &Spi, timed_out: bool, output: Option<pg_sys::Datum>) {
        spi.execute(StepSettle {
            job_id: arg(self.job_id),
            token: arg(self.token),
            step: arg(self.step.as_str()),
            now: arg(self.now),
            timed_out: arg(timed_out),
            output,
        });
    }
}
