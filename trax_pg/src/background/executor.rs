//! An executor: runs the SQL jobs of one role, one after the other, in a session of that role.
//!
//! The scheduler starts it when a job is due; it ends after a minute without a job, when another
//! role needs its seat, or when its role or the role's settings have changed. An executor in which
//! a statement has loaded a library hands its seat over to a new process: that library may keep
//! state for the next statement. A claim commits before its statement begins; a statement and the
//! record of its completion commit together, after its deferred constraints. A statement that is
//! the only one in its job may commit by itself: its completion is recorded in the last of its
//! transactions. For a statement that cannot be rolled back, such as CREATE DATABASE, it is
//! recorded afterwards.
//!
//! The process is authenticated as the role, so no statement can turn it into another role. The
//! executor works on trax's tables with the rights of the extension's owner.

use super::record::{Record, took_effect_late};
use super::run::{Ended, run};
use super::{
    EXECUTOR, LIBRARY, in_transaction, late_settings, receive_signals, reload_if_asked, wait,
};
use crate::claim;
use crate::claim::SqlJob;
use crate::instance::State;
use crate::memory::executor as seats;
use crate::memory::failed_start;
use crate::memory::failed_start::FailedStart;
use crate::server::backend::{my_database, my_pid};
use crate::server::clock::Timestamp;
use crate::server::durability;
use crate::server::rights::with_rights_of;
use crate::server::spi;
use crate::server::spi::{arg, row, statement};
use crate::server::sql_report;
use crate::server::sql_report::{QUERY_CANCELED, ServerError, guarded};
use crate::server::sql_session;
use crate::server::version;
use crate::{instance, memory, setting, wake, worker_registry};
use pgrx::bgworkers::BackgroundWorkerBuilder;
use pgrx::prelude::*;
use std::time::Instant;

row! {
    /// The state that an executor depends on: when it changes, another executor takes over.
    #[derive(PartialEq)]
    struct Preconditions {
        extversion: String,
        extowner: pg_sys::Oid,
        role_name: Option<String>,
        is_superuser: Option<bool>,
        may_connect: Option<bool>,
        settings: Option<String>,
    }
}
statement!(ExecutorPreconditions, "background/executor_preconditions.sql", { role: OIDOID, database: OIDOID } -> Preconditions);

/// How long a job waits after its role was renamed, in microseconds.
const RENAMED_WAIT: i64 = 500_000;

/// Returns the registration with which the postmaster starts an executor that takes a seat.
pub(super) fn registration(seat: usize) -> BackgroundWorkerBuilder {
    BackgroundWorkerBuilder::new(EXECUTOR)
        .set_library(LIBRARY)
        .set_function("trax_executor_main")
        .set_argument(Some(pg_sys::Datum::from(seat)))
        .enable_spi_access()
}

/// Returns the worker name of an executor's leases.
pub(super) fn worker(pid: i32) -> String {
    format!("{EXECUTOR}:{pid}")
}

/// Runs an executor: the entry point of its process.
#[pg_guard]
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn trax_executor_main(argument: pg_sys::Datum) {
    let seat = argument.value();
    // Registered before the connection is, so it runs after that has left the process array.
    // SAFETY: the callback has the right signature and lives as long as the library.
    unsafe { pg_sys::on_shmem_exit(Some(leave), argument) };
    let Some(reserved) = seats::enter(seat, my_pid()) else {
        return;
    };
    if memory::is_closed(reserved.database) {
        return;
    }
    receive_signals();
    sql_report::install();
    // SAFETY: a worker that was registered with a database connection, connecting for the first
    // time; it refuses a role that may not log in.
    unsafe {
        pg_sys::BackgroundWorkerInitializeConnectionByOid(reserved.database, reserved.role, 0)
    };
    let preconditions = in_transaction(c"trax: start", || {
        sql_session::begin();
        let preconditions = preconditions(reserved.role);
        preconditions.filter(|_| !late_settings::any(reserved.role, || ()))
    });
    sql_report::started();
    let role_name = preconditions
        .as_ref()
        .and_then(|preconditions| preconditions.role_name.clone());
    if let (Some(preconditions), Some(role_name)) = (preconditions, role_name)
        && preconditions.extversion == version::LIBRARY
    {
        let executor = Executor {
            seat,
            role: reserved.role,
            role_name,
            worker: worker(my_pid()),
            record: Record::of(preconditions.extowner),
            preconditions,
            libraries: sql_session::libraries(),
        };
        executor.serve();
        executor.leave_registry();
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn leave(_code: i32, argument: pg_sys::Datum) {
    // SAFETY: the process ends; an error may have left locks behind that nothing else would
    // release.
    unsafe { pg_sys::LWLockReleaseAll() };
    let reserved = seats::leave(argument.value(), my_pid());
    if let (Some(reserved), Some((sqlstate, message))) = (reserved, sql_report::start_error()) {
        let failed = FailedStart {
            role: reserved.role,
            sqlstate: sqlstate.clone(),
            message: message.clone(),
        };
        failed_start::add(reserved.database, &failed, Timestamp::now().0);
    }
    wake::ring(wake::SQL);
}

/// Returns the state that this process depends on; `None` without the extension.
fn preconditions(role: pg_sys::Oid) -> Option<Preconditions> {
    let found = spi::connected_anyhow(|spi| {
        let query = ExecutorPreconditions {
            role: arg(role),
            database: arg(my_database()),
        };
        Ok(spi.query(query).first())
    });
    found.unwrap_or_else(|error| error.raise())
}

struct Executor {
    seat: usize,
    role: pg_sys::Oid,
    role_name: String,
    worker: String,
    record: Record,
    preconditions: Preconditions,
    /// How many libraries were loaded before the first statement.
    libraries: usize,
}

impl Executor {
    fn serve(&self) {
        let mut last = Instant::now();
        while !seats::retires(self.seat) {
            let idle = setting::sql_worker_idle_timeout().saturating_sub(last.elapsed());
            if idle.is_zero() {
                return;
            }
            if sql_session::libraries() != self.libraries || sql_session::is_worn() {
                return self.hand_over();
            }
            reload_if_asked();
            if !setting::enabled() {
                return;
            }
            match self.claim() {
                Claim::Job(job) => {
                    self.execute(&job);
                    last = Instant::now();
                }
                Claim::None => {
                    seats::found_none(self.seat, Timestamp::now().0);
                    wait(idle);
                }
                Claim::Over => return,
            }
        }
    }

    /// Removes this process from the registry of workers, at a normal end.
    fn leave_registry(&self) {
        in_transaction(c"trax: end", || {
            let is_same = |now: &Preconditions| {
                now.extversion == self.preconditions.extversion
                    && now.extowner == self.preconditions.extowner
            };
            if !preconditions(self.role).as_ref().is_some_and(is_same) {
                return;
            }
            let left = with_rights_of(self.preconditions.extowner, || {
                spi::connected(|spi| {
                    worker_registry::left(spi, &self.worker);
                    Ok(())
                })
            });
            left.unwrap_or_else(|error| error.raise());
        });
    }

    /// Starts another process to take this one's seat. If the server has no free worker slot, the
    /// scheduler starts one when a job waits.
    fn hand_over(&self) {
        seats::hand_over(self.seat, Timestamp::now().0);
        if registration(self.seat).load_dynamic().is_err() {
            seats::clear(self.seat);
        }
    }

    /// Claims a job, in a transaction of its own.
    fn claim(&self) -> Claim {
        let claim = in_transaction(c"trax: looking for SQL jobs", || {
            let stands = || preconditions(self.role).is_some_and(|now| now == self.preconditions);
            if !stands() {
                return Claim::Over;
            }
            let claimed = with_rights_of(self.preconditions.extowner, || {
                spi::connected(|spi| {
                    if instance::state(spi) != State::Running {
                        return Ok(None);
                    }
                    claim::sql_job(spi, &self.role_name, &self.worker)
                })
            });
            match claimed.unwrap_or_else(|error| error.raise()) {
                Some(job) => {
                    // An update that came since the version was read has made the claim wait.
                    version::require();
                    // The job may have come after a change of settings that the first check did not
                    // see.
                    if !stands() {
                        self.record.release(&job, 0);
                        return Claim::Over;
                    }
                    if !job.is_for(self.role) && job.has_role() {
                        // Its role was renamed, and the scheduler is about to store the new name.
                        self.record.release(&job, RENAMED_WAIT);
                        return Claim::None;
                    }
                    // Before the commit that shows the lease: a lease without an executor counts as
                    // lost.
                    seats::executes(self.seat, job.job_id);
                    // A statement that crashes the server has used an attempt.
                    durability::commit_durably();
                    Claim::Job(job)
                }
                None => Claim::None,
            }
        });
        if matches!(claim, Claim::Job(_))
            && seats::of(my_database()).len() < setting::max_sql_workers()
        {
            wake::ring(wake::SQL);
        }
        claim
    }

    fn execute(&self, job: &SqlJob) {
        let (ended, notices) =
            sql_report::with_notices(|| run(&self.record, self.role, &self.role_name, job));
        let recorded = match ended {
            Ended::Recorded => Ok(()),
            Ended::Outside(output) => self.recorded(|| {
                if !self.record.complete(job, output) {
                    took_effect_late(job);
                }
            }),
            Ended::Failed { error, .. }
                if error.sqlstate == QUERY_CANCELED && seats::is_paused(self.seat) =>
            {
                self.recorded(|| self.record.release(job, 0))
            }
            Ended::Failed { error, permanent } => {
                self.recorded(|| self.record.fail(job, &error, &notices, permanent))
            }
        };
        let reset = guarded(sql_session::reset);
        if reset.is_err() {
            sql_session::abort();
        }
        if recorded.is_err() || reset.is_err() || !sql_session::is_of(self.role) {
            // This session's remaining state is not for the next job; a remaining lease is lost.
            // SAFETY: ends the process in the server's own way.
            unsafe { pg_sys::proc_exit(1) };
        }
        seats::executes(self.seat, 0);
    }

    /// Records an outcome in a transaction of its own; a cancel that comes now is too late.
    fn recorded(&self, work: impl FnOnce()) -> Result<(), Box<ServerError>> {
        let recorded = guarded(|| {
            sql_session::without_cancel(|| in_transaction(c"trax: recording an outcome", work));
        });
        if let Err(error) = &recorded {
            sql_session::abort();
            pgrx::warning!(
                "an outcome of a SQL job could not be recorded: {}",
                error.message
            );
        }
        recorded
    }
}

enum Claim {
    Job(SqlJob),
    None,
    /// The state that the executor depends on has changed.
    Over,
}
