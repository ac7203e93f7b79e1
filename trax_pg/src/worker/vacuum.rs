//! Vacuum of the work queue and of leases: a short-lived worker when enough of them is dead.
//!
//! At 60,000 jobs a second both leave a gigabyte of dead rows a minute, as often as autovacuum
//! looks. The scheduler looks every two seconds, and starts this worker when much is dead, or when
//! a crash has made the server forget how much. The worker vacuums what is due, without delays, and
//! ends: an idle database needs no worker slot.
//!
//! Holds: while somebody's snapshot keeps the horizon where it was at the last vacuum, there is no
//! other; and where one follows another at once, because it removed little or failed, each waits
//! twice as long as the one before, up to a minute.

use super::{LIBRARY, my_pid, receive_signals, scheduler};
use crate::columns::Waiting;
use crate::memory;
use crate::server::spi::{Spi, arg, statement};
use crate::server::table;
use crate::setting;
use pgrx::bgworkers::BackgroundWorkerBuilder;
use pgrx::prelude::*;
use std::ffi::CStr;
use std::time::{Duration, Instant};

statement!(VACUUM_DUE, "worker/vacuum_due.sql", INT8OID);

/// The name and the `backend_type` of the worker.
const VACUUM: &str = "trax vacuum";
/// So many dead rows are worth a vacuum, and a fifth of those that live.
const DEAD_ROWS: i64 = 100_000;

/// The tables by the bits of the worker's argument, above the oid of the database.
const COMMANDS: [(&str, &CStr); 2] = [
    (
        "work_queue",
        c"vacuum (skip_locked, truncate false) trax.work_queue",
    ),
    ("lease", c"vacuum (skip_locked, truncate false) trax.lease"),
];

/// What a scheduler knows of the vacuums of its database.
#[derive(Default)]
pub(super) struct Vacuums {
    /// The horizon when the last worker was started: what died after it stayed.
    horizon: pg_sys::TransactionId,
    /// When the last worker was started, and how long the next one waited for is put off.
    started: Option<Instant>,
    pause: Duration,
}

/// Between two vacuums when the first was of use, and at most.
const PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl Vacuums {
    /// Starts a worker when it is time, inside a transaction of the scheduler.
    pub(super) fn consider(&mut self, spi: &Spi) {
        if !setting::vacuum() {
            return;
        }
        let rows = spi.query(&VACUUM_DUE, &[arg(DEAD_ROWS)]);
        let mut tables = 0;
        for row in rows.iter() {
            let name: String = row.must(1);
            let place = COMMANDS.iter().position(|(table, _)| *table == name);
            let (is_due, is_under_way) = (row.must::<bool>(2), row.must::<bool>(3));
            match place {
                Some(_) if is_under_way => return,
                Some(place) if is_due => tables |= 1usize << place,
                _ => {}
            }
        }
        if tables == 0 {
            // What was due is done.
            self.pause = PAUSE;
            return;
        }
        if self.started.is_some_and(|at| at.elapsed() < self.pause) {
            return;
        }
        let horizon = table::horizon(Waiting::TABLE);
        // SAFETY: reads a counter of shared memory.
        let next = unsafe { pg_sys::ReadNextTransactionId() };
        if horizon == self.horizon && horizon != next {
            // Somebody holds it where it was, and another vacuum would remove nothing.
            return;
        }
        // Without a free slot it is tried again at the next look.
        if registration(super::my_database(), tables)
            .load_dynamic()
            .is_ok()
        {
            self.horizon = horizon;
            self.started = Some(Instant::now());
            self.pause = (self.pause * 2).clamp(PAUSE, LONGEST_PAUSE);
        }
    }
}

fn registration(database: pg_sys::Oid, tables: usize) -> BackgroundWorkerBuilder {
    let argument = (tables << 32) | database.to_u32() as usize;
    BackgroundWorkerBuilder::new(VACUUM)
        .set_library(LIBRARY)
        .set_function("trax_vacuum_main")
        .set_argument(Some(pg_sys::Datum::from(argument)))
        .enable_spi_access()
}

/// The worker's process.
#[pg_guard]
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn trax_vacuum_main(argument: pg_sys::Datum) {
    let database = pg_sys::Oid::from(argument.value() as u32);
    if memory::available() {
        // Registered before the connection is, so it runs after that has left the process array.
        // SAFETY: the callback has the right signature and lives as long as the library.
        unsafe { pg_sys::on_shmem_exit(Some(leave), pg_sys::Datum::from(database)) };
        if !memory::vacuum_enters(database, my_pid()) {
            return;
        }
    }
    receive_signals();
    // SAFETY: a worker that was registered with a database connection, connecting for the first
    // time.
    unsafe { pg_sys::BackgroundWorkerInitializeConnectionByOid(database, pg_sys::InvalidOid, 0) };
    scheduler::settle_session();
    for (place, (_, command)) in COMMANDS.iter().enumerate() {
        if (argument.value() >> 32) & (1 << place) != 0 {
            run(command);
        }
    }
}

unsafe extern "C-unwind" fn leave(_code: i32, argument: pg_sys::Datum) {
    // SAFETY: releases what an error on the way here may have left.
    unsafe { pg_sys::LWLockReleaseAll() };
    memory::vacuum_leaves(pg_sys::Oid::from(argument.value() as u32), my_pid());
}

/// Runs a VACUUM as a statement of its own: it begins and ends transactions.
fn run(command: &CStr) {
    // SAFETY: outside a transaction; the statement lives in a context that its transactions leave
    // alone, where it also puts what must outlive them.
    unsafe {
        let context = pg_sys::AllocSetContextCreateInternal(
            pg_sys::TopMemoryContext,
            c"trax vacuum".as_ptr(),
            pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
        );
        pg_sys::PortalContext = context;
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, command.as_ptr());
        pg_sys::CurrentMemoryContext = context;
        let parsed = pg_sys::raw_parser(command.as_ptr(), pg_sys::RawParseMode::RAW_PARSE_DEFAULT);
        let raw = pgrx::PgList::<pg_sys::RawStmt>::from_pg(parsed);
        let raw = raw.head().expect("a command is one statement");
        let state = pg_sys::make_parsestate(std::ptr::null_mut());
        pg_sys::ExecVacuum(state, (*raw).stmt.cast(), true);
        pg_sys::CommitTransactionCommand();
        pg_sys::CurrentMemoryContext = pg_sys::TopMemoryContext;
        pg_sys::PortalContext = std::ptr::null_mut();
        pg_sys::MemoryContextDelete(context);
        pg_sys::pgstat_report_stat(true);
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_IDLE, std::ptr::null());
    }
}
