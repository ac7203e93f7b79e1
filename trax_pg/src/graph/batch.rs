//! Batches: jobs are added until the batch is sealed, and its own job runs after all of them.

use crate::access_scope;
use crate::access_scope::Scope;
use crate::error::Result;
use crate::job_graph;
use crate::job_needs;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::lock::{Lock, Mode};
use crate::server::rights::as_owner;
use crate::server::spi;
use crate::server::spi::{Spi, arg, statement};
use crate::unique_key::KeyTaken;
use crate::work_queue;
use crate::work_queue::{NewJob, Placed, check_size, empty_object};
use pgrx::pg_sys;

statement!(GraphCount, "graph/count.sql", { graph_id: INT8OID } -> i64);

sql_function!(trax_open_batch, pg_finfo_trax_open_batch, |call| {
    as_owner(call, |caller| {
        let job = NewJob {
            waits_for_jobs: true,
            // Jobs can be added to it: no full group drops it.
            is_admitted: false,
            ..NewJob::from_call(call, Timestamp::now())?
        };
        let input = call.datum(1).unwrap_or_else(empty_object);
        check_size("input", input)?;
        let batch = spi::connected(|spi| {
            let scope = access_scope::of_caller(spi, caller);
            open(spi, &scope, &job, input)
        })?;
        Ok(call.value(batch))
    })
});

sql_function!(trax_seal_batch, pg_finfo_trax_seal_batch, |call| {
    as_owner(call, |caller| {
        spi::require_primary()?;
        let batch = call.required::<i64>(0, "batch")?;
        let count = spi::connected(|spi| {
            // Waits for the transactions that have added jobs.
            Lock::Batch(batch).take(Mode::Alone);
            access_scope::of_caller(spi, caller)
                .require_job_as(spi, batch, || format!("batch {batch}"))?;
            job_graph::require_batch(spi, batch)?;
            job_needs::seal_batch(spi, batch);
            let count = GraphCount {
                graph_id: arg(batch),
            };
            Ok(spi.query_latest(count).one())
        })?;
        Ok(call.value(count))
    })
});

/// Queues the job of a batch and returns its number, or that of the job that has its unique key.
fn open(spi: &Spi, scope: &Scope, job: &NewJob, input: pg_sys::Datum) -> Result<i64> {
    scope.require(&job.task, &job.group)?;
    if let Some(outer) = job.batch {
        job_graph::keep_open(spi, scope, outer, None)?;
    }
    let batch = match work_queue::enqueue_new(spi, scope, job, Some(input)) {
        Ok(Placed::Queued(batch)) => batch,
        Ok(placed) => return Ok(placed.id()),
        Err(KeyTaken { job_id, .. }) => {
            work_queue::require_keeper(spi, scope, job_id)?;
            return Ok(job_id);
        }
    };
    // A batch has no unique key of its own.
    let added = job_graph::add(spi, batch, true, None, job.now);
    added.expect("a graph without a key is new");
    job_needs::open_batch(batch);
    if let Some(outer) = job.batch {
        job_graph::add_to_batch(outer, &[batch]);
    }
    Ok(batch)
}
