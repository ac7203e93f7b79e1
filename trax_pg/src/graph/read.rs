//! Reading: the jobs of a graph, and what a job needed.

use crate::access_scope;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::rights::as_owner;
use crate::server::spi;
use crate::server::spi::{arg, row, statement};
use pgrx::pg_sys;

row! {
    /// A row of `trax.read_graph`.
    struct ShownMember {
        name: Option<pg_sys::Datum>,
        job_id: i64,
        task: Option<pg_sys::Datum>,
        state: Option<pg_sys::Datum>,
        needs: Option<pg_sys::Datum>,
        condition: Option<pg_sys::Datum>,
        waits_for: Option<pg_sys::Datum>,
        attempt: Option<i32>,
        started_at: Option<Timestamp>,
        finished_at: Option<Timestamp>,
        error: Option<pg_sys::Datum>,
    }
}
row! {
    /// A row of `trax.read_needs`.
    struct ShownNeed {
        name: Option<pg_sys::Datum>,
        job_id: i64,
        state: Option<pg_sys::Datum>,
        output: Option<pg_sys::Datum>,
        error: Option<pg_sys::Datum>,
    }
}
statement!(GraphRead, "graph/read.sql", { job_id: INT8OID } -> ShownMember);
statement!(GraphNeeds, "graph/needs.sql", { job_id: INT8OID } -> ShownNeed);

sql_function!(trax_read_graph, pg_finfo_trax_read_graph, |call| {
    as_owner(call, |caller| {
        let job_id = call.required::<i64>(0, "id")?;
        let mut rows = call.rows();
        spi::connected(|spi| {
            access_scope::of_caller(spi, caller).require_job(spi, job_id)?;
            let read = GraphRead {
                job_id: arg(job_id),
            };
            for job in spi.query(read).iter() {
                rows.push(&[
                    job.name,
                    arg(job.job_id),
                    job.task,
                    job.state,
                    job.needs,
                    job.condition,
                    job.waits_for,
                    job.attempt.and_then(arg),
                    job.started_at.and_then(arg),
                    job.finished_at.and_then(arg),
                    job.error,
                ]);
            }
            Ok(())
        })?;
        Ok(rows.end())
    })
});

sql_function!(trax_read_needs, pg_finfo_trax_read_needs, |call| {
    as_owner(call, |caller| {
        let job_id = call.required::<i64>(0, "id")?;
        let mut rows = call.rows();
        spi::connected(|spi| {
            access_scope::of_caller(spi, caller).require_job(spi, job_id)?;
            let read = GraphNeeds {
                job_id: arg(job_id),
            };
            for need in spi.query(read).iter() {
                rows.push(&[
                    need.name,
                    arg(need.job_id),
                    need.state,
                    need.output,
                    need.error,
                ]);
            }
            Ok(())
        })?;
        Ok(rows.end())
    })
});
