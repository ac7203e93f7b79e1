//! An executor: runs the SQL jobs of one role, one after the other, in a session of that role.
//!
//! The scheduler starts it when a job is due, and it ends when there has been none for a minute,
//! when another role needs its place, or when its role or the role's settings have changed. One in
//! which a statement has loaded a library hands its place over to a fresh one: that library may
//! keep something for the next statement. A claim commits before its statement begins; a statement
//! and the record of its completion commit together. What refuses to run in a transaction block is
//! undone and runs again outside, and its completion is recorded after it.
//!
//! The process is authenticated as the role, so no statement can make it anybody else. Its own work
//! on the tables of trax it does with the rights of the extension's owner.

use super::{
    EXECUTOR, LIBRARY, in_transaction, late_settings, receive_signals, reload_if_asked, wait,
};
use crate::claim;
use crate::claim::SqlJob;
use crate::error::Error;
use crate::instance::State;
use crate::lease::Held;
use crate::memory::executor as seats;
use crate::outcome::Failure;
use crate::server::backend::{my_database, my_pid};
use crate::server::clock::Timestamp;
use crate::server::durability;
use crate::server::rights::with_rights_of;
use crate::server::spi;
use crate::server::spi::{arg, row, statement};
use crate::server::sql_log;
use crate::server::sql_report;
use crate::server::sql_report::{ServerError, guarded};
use crate::server::sql_result::{Collector, jsonb, quote};
use crate::server::sql_session;
use crate::server::sql_text::{Done, Parsed};
use crate::server::version;
use crate::{instance, memory, outcome, setting, wake};
use pgrx::bgworkers::BackgroundWorkerBuilder;
use pgrx::prelude::*;
use std::ffi::{CStr, CString};
use std::time::{Duration, Instant};

row! {
    /// What an executor rests on: when it changes, another one takes over.
    #[derive(PartialEq)]
    struct Ground {
        extversion: String,
        extowner: pg_sys::Oid,
        role_name: Option<String>,
        is_superuser: Option<bool>,
        may_connect: Option<bool>,
        settings: Option<String>,
    }
}
statement!(ExecutorGround, "background/executor_ground.sql", { role: OIDOID, database: OIDOID } -> Ground);

/// The SQLSTATE of a statement that was cancelled.
const QUERY_CANCELED: &str = "57014";
/// How often a transaction that lost against another one runs again at once.
const CONFLICTS: usize = 3;

/// Returns the registration with which the postmaster starts an executor that takes a place.
pub(super) fn registration(place: usize) -> BackgroundWorkerBuilder {
    BackgroundWorkerBuilder::new(EXECUTOR)
        .set_library(LIBRARY)
        .set_function("trax_executor_main")
        .set_argument(Some(pg_sys::Datum::from(place)))
        .enable_spi_access()
}

/// Returns the name under which the leases of an executor are.
pub(super) fn worker(pid: i32) -> String {
    format!("{EXECUTOR}:{pid}")
}

/// Runs an executor: the entry point of its process.
#[pg_guard]
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn trax_executor_main(argument: pg_sys::Datum) {
    let place = argument.value();
    // Registered before the connection is, so it runs after that has left the process array.
    // SAFETY: the callback has the right signature and lives as long as the library.
    unsafe { pg_sys::on_shmem_exit(Some(leave), argument) };
    let Some(seat) = seats::enter(place, my_pid()) else {
        return;
    };
    if memory::is_closed(seat.database) {
        return;
    }
    receive_signals();
    // SAFETY: a worker that was registered with a database connection, connecting for the first
    // time; it refuses a role that may not log in.
    unsafe { pg_sys::BackgroundWorkerInitializeConnectionByOid(seat.database, seat.role, 0) };
    sql_report::install();
    let ground = in_transaction(c"trax: start", || {
        sql_session::begin();
        let ground = ground(seat.role);
        ground.filter(|_| !late_settings::any(seat.role, || ()))
    });
    let role_name = ground.as_ref().and_then(|ground| ground.role_name.clone());
    if let (Some(ground), Some(role_name)) = (ground, role_name)
        && ground.extversion == version::LIBRARY
    {
        let executor = Executor {
            place,
            role: seat.role,
            role_name,
            worker: worker(my_pid()),
            ground,
            libraries: sql_session::libraries(),
        };
        executor.serve();
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn leave(_code: i32, argument: pg_sys::Datum) {
    // SAFETY: the process ends; an error may have left locks behind that nobody will release.
    unsafe { pg_sys::LWLockReleaseAll() };
    seats::leave(argument.value(), my_pid());
    ring();
}

/// Asks the scheduler to look.
fn ring() {
    if let Some(bell) = memory::bell() {
        bell.ring(wake::SQL);
    }
}

/// Returns what this process rests on; `None` without the extension.
fn ground(role: pg_sys::Oid) -> Option<Ground> {
    let found = spi::connected_anyhow(|spi| {
        let query = ExecutorGround {
            role: arg(role),
            database: arg(my_database()),
        };
        Ok(spi.query(query).first())
    });
    found.unwrap_or_else(|error| error.raise())
}

struct Executor {
    place: usize,
    role: pg_sys::Oid,
    role_name: String,
    worker: String,
    ground: Ground,
    /// How many libraries were loaded before the first statement.
    libraries: usize,
}

/// How the statement of a job ended.
enum Ended {
    /// It is recorded, or the lease was lost and all is undone.
    Recorded,
    /// It ran outside of a transaction: its completion is to be recorded.
    Outside(Vec<u8>),
    Failed {
        error: Box<ServerError>,
        permanent: bool,
    },
}

impl Executor {
    fn serve(&self) {
        let mut last = Instant::now();
        while !seats::retires(self.place) {
            let idle = setting::sql_worker_idle_timeout().saturating_sub(last.elapsed());
            if idle.is_zero() {
                return;
            }
            if sql_session::libraries() != self.libraries {
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
                Claim::None => wait(idle),
                Claim::Over => return,
            }
        }
    }

    /// Has another process go on in this one's place. Where the server has no worker to give, the
    /// scheduler starts one when a job waits.
    fn hand_over(&self) {
        seats::hand_over(self.place, Timestamp::now().0);
        if registration(self.place).load_dynamic().is_err() {
            seats::clear(self.place);
        }
    }

    /// Claims a job, in a transaction of its own.
    fn claim(&self) -> Claim {
        let claim = in_transaction(c"trax: looking for SQL jobs", || {
            let stands = || ground(self.role).is_some_and(|now| now == self.ground);
            if !stands() {
                return Claim::Over;
            }
            let claimed = with_rights_of(self.ground.extowner, || {
                spi::connected(|spi| {
                    if instance::state(spi) != State::Running {
                        return Ok(None);
                    }
                    claim::sql_job(spi, &self.role_name, &self.worker)
                })
            });
            match claimed.unwrap_or_else(|error| error.raise()) {
                Some(job) => {
                    // An update that came since the look at the version has made us wait above.
                    version::require();
                    // The job may have come after another setting, and that after the first look.
                    if !stands() {
                        self.release(&job);
                        return Claim::Over;
                    }
                    // Before the commit that shows the lease: one that nobody has is lost.
                    seats::executes(self.place, job.job_id);
                    // A statement that crashes the server has spent an attempt.
                    durability::must_last();
                    Claim::Job(job)
                }
                None => Claim::None,
            }
        });
        if matches!(claim, Claim::Job(_))
            && seats::of(my_database()).len() < setting::max_sql_workers()
        {
            ring();
        }
        claim
    }

    fn execute(&self, job: &SqlJob) {
        let (ended, notices) = sql_report::with_notices(|| self.run(job));
        let recorded = match ended {
            Ended::Recorded => Ok(()),
            Ended::Outside(output) => self.record(|| {
                if !self.complete(job, output) {
                    took_effect_late(job);
                }
            }),
            Ended::Failed { error, .. }
                if error.sqlstate == QUERY_CANCELED && seats::is_paused(self.place) =>
            {
                self.record(|| self.release(job))
            }
            Ended::Failed { error, permanent } => {
                self.record(|| self.fail(job, &error, &notices, permanent))
            }
        };
        let reset = guarded(sql_session::reset);
        if reset.is_err() {
            sql_session::abort();
        }
        if recorded.is_err() || reset.is_err() || !sql_session::is_of(self.role) {
            // What is left in this session is not for the next job; a lease that is left is lost.
            // SAFETY: ends the process in the server's own way.
            unsafe { pg_sys::proc_exit(1) };
        }
        seats::executes(self.place, 0);
    }

    /// Records an outcome in a transaction of its own; a cancel that comes now is too late.
    fn record(&self, work: impl FnOnce()) -> Result<(), Box<ServerError>> {
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

    fn run(&self, job: &SqlJob) -> Ended {
        let Some(text) = job
            .command
            .as_deref()
            .and_then(|text| CString::new(text).ok())
        else {
            return permanently(Error::invalid("the job has no command"));
        };
        if !job.is_for(self.role) {
            return permanently(another_role(&self.role_name));
        }
        sql_session::show(&text);
        let ended = self.run_text(job, &text);
        sql_session::hide();
        ended
    }

    fn run_text(&self, job: &SqlJob, text: &CStr) -> Ended {
        let mut conflicts = 0;
        let mut is_logged = None;
        loop {
            let parsed = match guarded(|| Parsed::new(text)) {
                Ok(parsed) => parsed,
                Err(error) => {
                    sql_session::abort();
                    return failed(error);
                }
            };
            if let Err(error) = parsed.refuse() {
                return permanently(error);
            }
            let is_logged = *is_logged.get_or_insert_with(|| parsed.log_statement());
            let error = match guarded(|| self.run_in_transaction(job, &parsed)) {
                Ok(true) => {
                    sql_log::duration(text, is_logged);
                    return Ended::Recorded;
                }
                Ok(false) => {
                    sql_session::abort();
                    return Ended::Recorded;
                }
                Err(error) => error,
            };
            sql_session::abort();
            if parsed.needs_no_transaction(&error.sqlstate) {
                drop(parsed);
                return run_outside(text, is_logged);
            }
            let is_conflict = ["40001", "40P01"].contains(&error.sqlstate.as_str());
            if !is_conflict || conflicts == CONFLICTS {
                return failed(error);
            }
            conflicts += 1;
        }
    }

    /// Runs the statements and records the completion; false when the lease is another's by now,
    /// and all is to be undone.
    fn run_in_transaction(&self, job: &SqlJob, parsed: &Parsed) -> bool {
        sql_session::begin_run();
        sql_session::begin_block();
        let mut collector = Collector::new();
        let mut last = None;
        for place in 0..parsed.count() {
            last = Some(sql_session::one_statement(|| {
                parsed.run(place, &mut collector)
            }));
        }
        let done = last.expect("a text without a statement is refused");
        sql_session::end_block(|| self.complete(job, output(&done, &collector, true)))
    }

    /// Records the completion in the current transaction; returns whether the lease is still ours.
    fn complete(&self, job: &SqlJob, output: Vec<u8>) -> bool {
        version::require();
        let held = Held {
            job_ids: vec![job.job_id],
            tokens: vec![job.token],
        };
        let recorded = with_rights_of(self.ground.extowner, || {
            spi::connected(|spi| {
                outcome::complete(spi, &held, &[Some(jsonb(output))], Timestamp::now())
            })
        });
        !recorded.unwrap_or_else(|error| error.raise()).is_empty()
    }

    /// Lets the job wait until its group is switched on again.
    fn release(&self, job: &SqlJob) {
        version::require();
        let released = with_rights_of(self.ground.extowner, || {
            spi::connected(|spi| {
                outcome::release(spi, job.job_id, job.token, 0, Timestamp::now());
                Ok(())
            })
        });
        released.unwrap_or_else(|error| error.raise());
    }

    fn fail(&self, job: &SqlJob, error: &ServerError, notices: &[u8], permanent: bool) {
        version::require();
        let recorded = with_rights_of(self.ground.extowner, || {
            spi::connected(|spi| {
                let failure = Failure {
                    error: error.message.clone(),
                    detail: Some(jsonb(error.json(notices))),
                    retry_in: None,
                    permanent,
                };
                outcome::fail(spi, job.job_id, job.token, failure, Timestamp::now());
                Ok(())
            })
        });
        recorded.unwrap_or_else(|error| error.raise());
    }
}

enum Claim {
    Job(SqlJob),
    None,
    /// What the executor rests on has changed.
    Over,
}

fn failed(error: Box<ServerError>) -> Ended {
    Ended::Failed {
        error,
        permanent: false,
    }
}

fn another_role(name: &str) -> Error {
    Error::wrong_state(format!(
        "role \"{name}\" is not the one that this statement was queued for"
    ))
    .detail("That role was dropped or renamed, and this one has its name.")
    .hint("Queue the statement again: select trax.enqueue_sql('...'), or trax.schedule('name', sql => '...').")
}

/// Says that a statement took effect whose job is recorded otherwise, or will run again.
fn took_effect_late(job: &SqlJob) {
    let error = Error::wrong_state(format!(
        "the statement of SQL job {} took effect after its lease was lost",
        job.job_id
    ));
    let detail = "It ran outside of a transaction. Its job has ended otherwise, or runs again.";
    error.detail(detail).warn();
}

/// Returns a failure that another attempt would only repeat.
fn permanently(error: Error) -> Ended {
    let error = ServerError::of(error);
    sql_session::abort();
    Ended::Failed {
        error,
        permanent: true,
    }
}

/// Runs a text that is one statement by itself.
fn run_outside(text: &CStr, is_logged: bool) -> Ended {
    let ran = guarded(|| {
        let parsed = Parsed::new(text);
        let mut collector = Collector::new();
        sql_session::begin_run();
        let done = sql_session::one_statement(|| parsed.run(0, &mut collector));
        sql_log::duration(text, is_logged);
        output(&done, &collector, false)
    });
    match ran {
        Ok(output) => Ended::Outside(output),
        Err(mut error) => {
            sql_session::abort();
            error.in_transaction = false;
            failed(error)
        }
    }
}

/// Returns what `trax.run.output` says of a text, as JSON.
fn output(done: &Done, collector: &Collector, in_transaction: bool) -> Vec<u8> {
    let mut json = b"{\"command\":".to_vec();
    quote(&mut json, done.tag.as_bytes());
    json.extend_from_slice(format!(",\"rows\":{}", done.rows).as_bytes());
    collector.write(&mut json);
    json.extend_from_slice(b",\"notices\":[");
    json.extend_from_slice(&sql_report::notices());
    let millis = |duration: Duration| duration.as_micros() as f64 / 1000.0;
    let rest = format!(
        "],\"plan_ms\":{},\"run_ms\":{},\"transaction\":{in_transaction}}}",
        millis(done.planned_in),
        millis(done.ran_in)
    );
    json.extend_from_slice(rest.as_bytes());
    json
}
