//! New jobs as rows: the foreign table `trax.new_job` accepts rows from the server's COPY and
//! INSERT and turns them into jobs.
//!
//! Enters: a row for each job, whose columns are the arguments of `trax.enqueue`; a null is an
//! omitted argument. Leaves: waiting jobs, in the order of the rows, as `trax.enqueue` would have
//! queued them. Holds: a row is checked when it comes, so that an error names it; at most
//! [`JOBS_AT_ONCE`] rows and about [`BYTES_AT_ONCE`] wait here; all are in the queue when the
//! statement ends.
//!
//! Cost of a row: CPU time of the backend in one COPY of 200,000 on a busy machine, median of
//! three, in parentheses that of COPY into a table with the columns and indexes of the work queue:
//! text 3.1 µs (3.7), binary 3.3 µs (3.3), each with its own concurrency key 4.0 µs (3.5), with a
//! unique key 9.0 µs.

mod wrapper;

use crate::access_scope::Scope;
use crate::error::{Error, Result};
use crate::server::call::Call;
use crate::server::clock::Timestamp;
use crate::server::rights::with_rights_of;
use crate::server::spi;
use crate::work_queue;
use crate::work_queue::{Alike, NewJob, OnDuplicate, check_size, empty_object};
use pgrx::{PgSqlErrorCode, pg_sys, varlena_to_byte_slice};
use std::ffi::CStr;

/// The most jobs that wait here.
const JOBS_AT_ONCE: usize = 1000;
/// Jobs go to the queue when their values take this much memory.
const BYTES_AT_ONCE: usize = 4 << 20;
/// The approximate memory of a job without its values.
const BYTES_OF_A_JOB: usize = 64;

const TASK: usize = 0;
const INPUT: usize = 1;
const RATE: usize = 13;

/// How the server passes the values of a type.
#[derive(Clone, Copy)]
enum Passed {
    ByValue,
    Fixed(usize),
    Varying,
}

/// The columns: those of `trax.new_job` and the arguments of `trax.enqueue`, in their order.
const COLUMNS: [(&CStr, pg_sys::Oid, Passed); 18] = [
    (c"task", pg_sys::TEXTOID, Passed::Varying),
    (c"input", pg_sys::JSONBOID, Passed::Varying),
    (c"run_at", pg_sys::TIMESTAMPTZOID, Passed::ByValue),
    (c"group_name", pg_sys::TEXTOID, Passed::Varying),
    (c"priority", pg_sys::INT4OID, Passed::ByValue),
    (c"max_retries", pg_sys::INT4OID, Passed::ByValue),
    (
        c"timeout",
        pg_sys::INTERVALOID,
        Passed::Fixed(size_of::<pg_sys::Interval>()),
    ),
    (c"unique_key", pg_sys::TEXTOID, Passed::Varying),
    (c"concurrency_key", pg_sys::TEXTOID, Passed::Varying),
    (c"trace", pg_sys::JSONBOID, Passed::Varying),
    (
        c"retry_delay",
        pg_sys::INTERVALOID,
        Passed::Fixed(size_of::<pg_sys::Interval>()),
    ),
    (
        c"unique_for",
        pg_sys::INTERVALOID,
        Passed::Fixed(size_of::<pg_sys::Interval>()),
    ),
    (c"version", pg_sys::TEXTOID, Passed::Varying),
    (c"batch", pg_sys::INT8OID, Passed::ByValue),
    (c"rate", pg_sys::TEXTOID, Passed::Varying),
    (c"rate_key", pg_sys::TEXTOID, Passed::Varying),
    (c"cost", pg_sys::INT4OID, Passed::ByValue),
    (c"on_duplicate", pg_sys::TEXTOID, Passed::Varying),
];

type Values = [Option<pg_sys::Datum>; COLUMNS.len()];

/// The rows of one statement on their way into the queue.
struct Gathered {
    /// The owner of the table, who may write to the queue.
    owner: pg_sys::Oid,
    /// The tasks and groups that the inserting role may queue.
    scope: Scope,
    /// Contains the values of the rows; reset when they are queued.
    memory: pg_sys::MemoryContext,
    jobs: Vec<Alike>,
    /// The values of the last of `jobs`, without its inputs.
    newest: Values,
    count: usize,
    bytes: usize,
    /// The number of the row, from 1.
    row: u64,
}

impl Gathered {
    fn new(owner: pg_sys::Oid, scope: Scope, memory: pg_sys::MemoryContext) -> Self {
        Self {
            owner,
            scope,
            memory,
            jobs: Vec::new(),
            newest: [None; COLUMNS.len()],
            count: 0,
            bytes: 0,
            row: 0,
        }
    }

    fn take(&mut self, row: &Values) -> Result<()> {
        self.row += 1;
        self.add(row).map_err(|error| error.of_row(self.row))?;
        if self.count >= JOBS_AT_ONCE || self.bytes >= BYTES_AT_ONCE {
            self.flush()?;
        }
        Ok(())
    }

    fn add(&mut self, row: &Values) -> Result<()> {
        if !self.is_like_newest(row) || self.newest_replaces() {
            self.begin_jobs_like(row)?;
        }
        if let Some(input) = row[INPUT] {
            check_size("input", input)?;
        }
        let jobs = self.jobs.last_mut().expect("jobs like this one");
        self.count += 1;
        self.bytes += BYTES_OF_A_JOB;
        // The first job has the key, and the others queue nothing.
        if jobs.job.unique_key.is_none() || jobs.inputs.is_empty() {
            let input = in_memory(self.memory, || match row[INPUT] {
                Some(input) => copied(input, Passed::Varying),
                None => (empty_object(), 0),
            });
            jobs.inputs.push(Some(input.0));
            self.bytes += input.1;
        }
        Ok(())
    }

    fn is_like_newest(&self, row: &Values) -> bool {
        !self.jobs.is_empty()
            && COLUMNS
                .iter()
                .zip(self.newest.iter().zip(row))
                .enumerate()
                .all(|(index, ((_, _, passed), values))| match values {
                    _ if index == INPUT => true,
                    (None, None) => true,
                    (Some(newest), Some(value)) => are_equal(*newest, *value, *passed),
                    _ => false,
                })
    }

    /// Returns whether each of the newest rows may replace the job of the one before.
    fn newest_replaces(&self) -> bool {
        let newest = self.jobs.last();
        newest.is_some_and(|jobs| jobs.job.on_duplicate != OnDuplicate::Keep)
    }

    fn begin_jobs_like(&mut self, row: &Values) -> Result<()> {
        if row[TASK].is_none() {
            return Err(Error::new(
                PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED,
                "column \"task\" must not be null",
            )
            .detail("The row has no task.")
            .hint("Specify the task of each job: copy trax.new_job (task, input) from stdin"));
        }
        let mut values: Values = [None; COLUMNS.len()];
        let mut bytes = 0;
        let job = in_memory(self.memory, || {
            for (index, (_, _, passed)) in COLUMNS.iter().enumerate() {
                if let Some(value) = row[index].filter(|_| index != INPUT) {
                    let (value, size) = copied(value, *passed);
                    values[index] = Some(value);
                    bytes += size;
                }
            }
            let job = || NewJob::from_call(&Call::with(&values), Timestamp::now());
            match values[RATE] {
                // A look at the rates, which the inserting role may not read.
                Some(_) => with_rights_of(self.owner, job),
                None => job(),
            }
        })?;
        self.scope.require(&job.task, &job.group)?;
        self.newest = values;
        self.bytes += bytes + size_of::<Alike>();
        self.jobs.push(Alike {
            job,
            inputs: Vec::new(),
        });
        Ok(())
    }

    /// Queues the collected rows.
    fn flush(&mut self) -> Result<()> {
        if self.jobs.is_empty() {
            return Ok(());
        }
        with_rights_of(self.owner, || {
            spi::connected(|spi| work_queue::enqueue_each(spi, &self.scope, &self.jobs))
        })?;
        self.jobs.clear();
        (self.count, self.bytes) = (0, 0);
        // SAFETY: nothing points to its values any more.
        unsafe { pg_sys::MemoryContextReset(self.memory) };
        Ok(())
    }
}

fn in_memory<T>(memory: pg_sys::MemoryContext, work: impl FnOnce() -> T) -> T {
    // SAFETY: the context is alive; after an error, the abort sets another one.
    unsafe {
        let before = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = memory;
        let result = work();
        pg_sys::CurrentMemoryContext = before;
        result
    }
}

/// Returns a copy in the current memory context, and its size. The copy is neither compressed nor
/// stored out of line.
fn copied(value: pg_sys::Datum, passed: Passed) -> (pg_sys::Datum, usize) {
    // SAFETY: the value is of a type that is passed so.
    unsafe {
        match passed {
            Passed::ByValue => (value, 0),
            Passed::Fixed(size) => {
                let copy = pg_sys::palloc(size).cast::<u8>();
                copy.copy_from_nonoverlapping(value.cast_mut_ptr(), size);
                (pg_sys::Datum::from(copy), size)
            }
            Passed::Varying => {
                let copy = pg_sys::pg_detoast_datum_copy(value.cast_mut_ptr());
                (pg_sys::Datum::from(copy), varlena_to_byte_slice(copy).len())
            }
        }
    }
}

/// Returns whether a copy has the value of `other`.
fn are_equal(copy: pg_sys::Datum, other: pg_sys::Datum, passed: Passed) -> bool {
    // SAFETY: both are of a type that is passed so, and a copy is plain.
    unsafe {
        match passed {
            Passed::ByValue => copy == other,
            Passed::Fixed(size) => {
                let bytes = |value: pg_sys::Datum| {
                    std::slice::from_raw_parts(value.cast_mut_ptr::<u8>(), size)
                };
                bytes(copy) == bytes(other)
            }
            Passed::Varying => {
                let stored = other.cast_mut_ptr();
                let plain = pg_sys::pg_detoast_datum_packed(stored);
                let equal =
                    varlena_to_byte_slice(copy.cast_mut_ptr()) == varlena_to_byte_slice(plain);
                // Memory of the statement: it would keep one copy for each row.
                if plain != stored {
                    pg_sys::pfree(plain.cast());
                }
                equal
            }
        }
    }
}
