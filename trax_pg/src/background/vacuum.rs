//! Vacuum of the work queue, of leases and of the events of needs: a short-lived worker when enough
//! of their rows are dead.
//!
//! At 60,000 jobs a second, the first two leave a gigabyte of dead rows per minute, the interval at
//! which autovacuum looks. The scheduler looks every two seconds, and starts a worker for a table
//! with many dead rows, or when a crash has lost the server's count of them. The worker vacuums
//! without delays, then ends: an idle database needs no worker slot. Each table has its own worker:
//! at that rate a vacuum of the queue takes so long that leases would grow behind it.
//!
//! Holds, for each table: while a snapshot keeps the horizon where it was at the last vacuum, no
//! other vacuum starts. After a vacuum that failed or left half of the dead rows, the pause is
//! twice as long as that vacuum's, up to a minute.

use super::own_session::isolate_session;
use super::{LIBRARY, receive_signals};
use crate::columns::Waiting;
use crate::memory;
use crate::memory::worker_slot;
use crate::server::backend::{my_database, my_pid};
use crate::server::clock;
use crate::server::spi::{Spi, arg, row, statement};
use crate::server::table;
use crate::setting;
use pgrx::bgworkers::BackgroundWorkerBuilder;
use pgrx::prelude::*;
use std::ffi::CStr;
use std::time::{Duration, Instant};

row! {
    /// The statistics of a table.
    struct Seen {
        name: String,
        /// The dead rows are worth a vacuum.
        is_due: bool,
        is_under_way: bool,
        dead_rows: i64,
        vacuums: i64,
    }
}
statement!(VacuumDue, "background/vacuum_due.sql", { dead_rows: INT8OID } -> Seen);

/// The name and the `backend_type` of the worker.
const VACUUM: &str = "trax vacuum";
/// This many dead rows, and a fifth of the live ones, are worth a vacuum.
const DEAD_ROWS: i64 = 100_000;

/// The tables by the number in the worker's argument, above the oid of the database.
const COMMANDS: [(&str, &CStr); memory::VACUUMS] = [
    (
        "work_queue",
        c"vacuum (skip_locked, truncate false) trax.work_queue",
    ),
    ("lease", c"vacuum (skip_locked, truncate false) trax.lease"),
    (
        "need_event",
        c"vacuum (skip_locked, truncate false) trax.need_event",
    ),
];

/// A scheduler's state of its database's vacuums, by table.
#[derive(Default)]
pub(super) struct Vacuums([Vacuum; memory::VACUUMS]);

#[derive(Default)]
struct Vacuum {
    /// The horizon when the last worker was started: rows that died after it stayed.
    horizon: pg_sys::TransactionId,
    /// The statistics when the last worker was started.
    before: Option<Before>,
    /// The least time between that start and the next.
    pause: Duration,
}

struct Before {
    at: Instant,
    dead_rows: i64,
    vacuums: i64,
}

/// The pause after a useful vacuum, and the longest pause.
const PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl Vacuums {
    /// Starts a worker for each table that is due, inside a transaction of the scheduler.
    pub(super) fn consider(&mut self, spi: &Spi) {
        if !setting::vacuum() {
            return;
        }
        let rows = spi.query(VacuumDue {
            dead_rows: arg(DEAD_ROWS),
        });
        for row in rows.iter() {
            let table = COMMANDS.iter().position(|(table, _)| *table == row.name);
            if let Some(table) = table.filter(|_| !row.is_under_way) {
                self.0[table].consider(table, &row);
            }
        }
    }
}

impl Vacuum {
    fn consider(&mut self, table: usize, seen: &Seen) {
        if !seen.is_due || self.was_of_use(seen) {
            self.pause = PAUSE;
        }
        let waits = |before: &Before| before.at.elapsed() < self.pause;
        if !seen.is_due || self.before.as_ref().is_some_and(waits) {
            return;
        }
        let horizon = table::horizon(Waiting::TABLE);
        // SAFETY: reads a counter of shared memory.
        let next = unsafe { pg_sys::ReadNextTransactionId() };
        if horizon == self.horizon && horizon != next {
            // A snapshot holds the horizon where it was, and another vacuum would remove nothing.
            return;
        }
        // Without a free slot, the next look tries again.
        let is_short = memory::available() && worker_slot::is_short(clock::Timestamp::now().0);
        if !is_short && registration(my_database(), table).load_dynamic().is_ok() {
            self.horizon = horizon;
            self.before = Some(Before {
                at: Instant::now(),
                dead_rows: seen.dead_rows,
                vacuums: seen.vacuums,
            });
            self.pause = (self.pause * 2).clamp(PAUSE, LONGEST_PAUSE);
        }
    }

    /// Returns whether the last vacuum finished and removed most dead rows. At the full rate,
    /// enough rows are dead again at each look, so whether a vacuum is due does not show that.
    fn was_of_use(&self, seen: &Seen) -> bool {
        self.before.as_ref().is_some_and(|before| {
            seen.vacuums > before.vacuums && seen.dead_rows < before.dead_rows / 2
        })
    }
}

fn registration(database: pg_sys::Oid, table: usize) -> BackgroundWorkerBuilder {
    let argument = (table << 32) | database.to_u32() as usize;
    BackgroundWorkerBuilder::new(VACUUM)
        .set_library(LIBRARY)
        .set_function("trax_vacuum_main")
        .set_argument(Some(pg_sys::Datum::from(argument)))
        .enable_spi_access()
}

/// Runs the vacuum: the entry point of its process.
#[pg_guard]
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn trax_vacuum_main(argument: pg_sys::Datum) {
    let (database, table) = of_argument(argument);
    let Some((_, command)) = COMMANDS.get(table) else {
        return;
    };
    if memory::available() {
        // Registered before the connection is, so it runs after that has left the process array.
        // SAFETY: the callback has the right signature and lives as long as the library.
        unsafe { pg_sys::on_shmem_exit(Some(leave), argument) };
        if !memory::vacuum_enters(database, table, my_pid()) {
            return;
        }
    }
    receive_signals();
    // SAFETY: a worker that was registered with a database connection, connecting for the first
    // time.
    unsafe { pg_sys::BackgroundWorkerInitializeConnectionByOid(database, pg_sys::InvalidOid, 0) };
    isolate_session();
    run(command);
}

fn of_argument(argument: pg_sys::Datum) -> (pg_sys::Oid, usize) {
    let database = pg_sys::Oid::from(argument.value() as u32);
    (database, argument.value() >> 32)
}

unsafe extern "C-unwind" fn leave(_code: i32, argument: pg_sys::Datum) {
    // SAFETY: releases locks that an error on the way here may have left.
    unsafe { pg_sys::LWLockReleaseAll() };
    let (database, table) = of_argument(argument);
    memory::vacuum_leaves(database, table, my_pid());
}

/// Runs a VACUUM as a separate statement: it begins and ends transactions.
fn run(command: &CStr) {
    // SAFETY: outside a transaction; the statement lives in a context that its transactions do not
    // reset, and VACUUM puts there what must outlive them.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn after(dead_rows: i64, vacuums: i64) -> bool {
        let vacuum = Vacuum {
            before: Some(Before {
                at: Instant::now(),
                dead_rows: 400_000,
                vacuums: 7,
            }),
            ..Vacuum::default()
        };
        vacuum.was_of_use(&Seen {
            name: String::new(),
            is_due: true,
            is_under_way: false,
            dead_rows,
            vacuums,
        })
    }

    #[test]
    fn a_vacuum_is_of_use_when_it_ended_and_most_is_gone() {
        assert!(after(120_000, 8), "enough is dead again, and it is due");
        assert!(!after(120_000, 7), "it failed, or skipped a locked table");
        assert!(!after(390_000, 8), "somebody's snapshot kept the rows");
    }
}
