//! Forks: a new job like one that has ended, with the steps up to a place already recorded.

use crate::access_scope;
use crate::audit;
use crate::columns::SQL_TASK;
use crate::error::{Error, Result};
use crate::job_steps;
use crate::rate;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::quote::literal;
use crate::server::rights::as_owner;
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::work_queue;
use crate::work_queue::NewJob;
use pgrx::pg_sys;

row! {
    struct Ended {
        task: String,
        group_name: String,
        priority: i16,
        input: Option<pg_sys::Datum>,
        steps: Option<pg_sys::Datum>,
        version: Option<String>,
        rate: Option<String>,
        rate_key: Option<String>,
        cost: Option<i32>,
        max_retries: Option<i32>,
        timeout: Option<pg_sys::Datum>,
        retry_delay: Option<pg_sys::Datum>,
        concurrency_key: Option<String>,
        trace: Option<pg_sys::Datum>,
        succeeded: bool,
    }
}
statement!(ForkSource, "workflow/ended_job.sql", { job_id: INT8OID } -> Ended);
statement!(ForkLives, "workflow/lives.sql", { job_id: INT8OID } -> bool);
statement!(
    ForkPlace, "workflow/place.sql",
    { steps: JSONBOID, step: TEXTOID } -> Option<i64>
);
statement!(
    ForkUndone, "workflow/undone.sql",
    { steps: JSONBOID, before: INT8OID } -> String
);

sql_function!(trax_fork, pg_finfo_trax_fork, |call| {
    as_owner(call, |caller| {
        spi::require_primary()?;
        let job_id = call.required::<i64>(0, "job_id")?;
        let from_step = call.optional_name(1, "from_step")?;
        let input = call.datum(2);
        input.map_or(Ok(()), |input| work_queue::check_size("input", input))?;
        let new = spi::connected(|spi| {
            access_scope::of_caller(spi, caller).require_job(spi, job_id)?;
            fork(spi, job_id, from_step.as_deref(), input)
        })?;
        Ok(call.value(new))
    })
});

fn fork(
    spi: &Spi,
    job_id: i64,
    from_step: Option<&str>,
    input: Option<pg_sys::Datum>,
) -> Result<i64> {
    let source = ForkSource {
        job_id: arg(job_id),
    };
    let Some(ended) = spi.query(source).first() else {
        return Err(not_ended(spi, job_id));
    };
    if ended.task == SQL_TASK {
        return Err(Error::invalid(format!("job {job_id} is a SQL job"))
            .detail("A statement has no steps.")
            .hint("Queue it again: select trax.enqueue_sql('...')"));
    }
    let before = match from_step {
        Some(step) => Some(place_of(spi, job_id, &ended, step)?),
        None => None,
    };
    if !ended.succeeded {
        refuse_undone(spi, job_id, &ended, before)?;
    }
    let now = Timestamp::now();
    let job = NewJob {
        priority: i32::from(ended.priority),
        max_retries: ended.max_retries,
        timeout: ended.timeout,
        retry_delay: ended.retry_delay,
        concurrency_key: ended.concurrency_key,
        trace: ended.trace,
        version: ended.version,
        rate: rate::OfJob::of_ended(ended.rate, ended.rate_key, ended.cost)?,
        ..NewJob::plain(ended.task, ended.group_name, now)
    };
    let id = work_queue::next_id();
    let steps = ended
        .steps
        .map_or(0, |steps| job_steps::restore(spi, id, steps, before));
    let job = NewJob { steps, ..job };
    let input = input.or(ended.input);
    work_queue::enqueue_as(&job, id, input.unwrap_or_else(work_queue::empty_object));
    let note = match from_step {
        Some(step) => format!("as job {id}, from step {step}"),
        None => format!("as job {id}"),
    };
    let name = job_id.to_string();
    audit::record(spi, "fork", audit::Kind::Job, &name, Some(&note));
    Ok(id)
}

fn place_of(spi: &Spi, job_id: i64, ended: &Ended, step: &str) -> Result<i64> {
    let place = ForkPlace {
        steps: ended.steps,
        step: arg(step),
    };
    spi.query(place).one().ok_or_else(|| {
        Error::invalid(format!("job {job_id} has no step \"{step}\""))
            .detail("The steps before this one would be taken over.")
            .hint(format!(
                "List its steps: select step, kind from trax.read_steps({job_id})"
            ))
    })
}

/// Returns 55000 when one of the steps that a fork would take over is undone: the job would
/// continue after work that does not hold any more.
fn refuse_undone(spi: &Spi, job_id: i64, ended: &Ended, before: Option<i64>) -> Result<()> {
    let undone = ForkUndone {
        steps: ended.steps,
        before: before.and_then(arg),
    };
    let Some(step) = spi.query(undone).first() else {
        return Ok(());
    };
    let from = literal(&step);
    Err(Error::wrong_state(format!("step \"{step}\" of job {job_id} is undone"))
        .detail("The job has failed or was cancelled, and what undoes its steps was queued.")
        .hint(format!(
            "Fork from this step or from one before it: select trax.fork({job_id}, from_step => {from})"
        )))
}

fn not_ended(spi: &Spi, job_id: i64) -> Error {
    let lives = ForkLives {
        job_id: arg(job_id),
    };
    if spi.query_latest(lives).first().is_some() {
        return Error::wrong_state(format!("job {job_id} has not ended"))
            .detail("A fork takes over the steps of a job that has ended.")
            .hint(format!(
                "Wait for its end, or end it: select trax.cancel({job_id})"
            ));
    }
    Error::unknown(format!("job {job_id} does not exist"))
        .detail("No job that waits, runs or has ended within trax.run_retention has this id.")
        .hint("Specify the id that trax.enqueue returned.")
}
