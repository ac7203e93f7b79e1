//! The connection to SPI, and the run of a statement. The only file that opens SPI.
//!
//! Planning uses fixed settings ([`PlannerSettings`]), so that neither the caller's settings nor
//! the statistics of a new or empty table lead to a plan that scans.

use super::row::Rows;
use super::statement::{Query, Statement};
use crate::error::{Error, Result};
use crate::server::snapshot::latest_snapshot;
use pgrx::{PgSqlErrorCode, pg_sys};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// `PLAN_CACHE_MODE_AUTO`: keeps the generic plan that each statement asks for.
const PLAN_CACHE_AUTO: i32 = 0;

/// A connection to SPI, open while `work` of [`connected_anyhow`] runs.
pub(crate) struct Spi(PhantomData<*const ()>);

/// Opens SPI for `work`. Rows and by-reference values live until it returns. No check for another
/// role's code: for work that changes no table of the extension, and for reports of why the
/// extension does nothing.
pub(crate) fn connected_anyhow<T>(work: impl FnOnce(&Spi) -> Result<T>) -> Result<T> {
    // SAFETY: finished below; when `work` raises, the aborting transaction closes the connection.
    unsafe {
        let code = pg_sys::SPI_connect();
        assert_eq!(
            code,
            pg_sys::SPI_OK_CONNECT as i32,
            "SPI connects inside a function"
        );
    }
    let result = work(&Spi(PhantomData));
    // SAFETY: connected above.
    unsafe { pg_sys::SPI_finish() };
    result
}

/// Commits as COMMIT in a procedure does; a new transaction follows. Only for a procedure that was
/// called outside a transaction block.
pub(crate) fn commit() {
    // SAFETY: the caller is such a procedure, so SPI may end its transaction; the connection is
    // finished here, and by an aborting transaction when the commit raises.
    unsafe {
        let code = pg_sys::SPI_connect_ext(pg_sys::SPI_OPT_NONATOMIC as i32);
        assert_eq!(
            code,
            pg_sys::SPI_OK_CONNECT as i32,
            "SPI connects inside a procedure"
        );
        pg_sys::SPI_commit();
        pg_sys::SPI_finish();
    }
}

impl Spi {
    /// Runs a statement with a new snapshot and returns its rows. Assigns no transaction id by
    /// itself.
    pub(crate) fn query<Q: Query>(&self, query: Q) -> Rows<'_, Q::Row> {
        self.run(query, Snapshot::OfTransaction)
    }

    /// Reads all that is committed now, whatever the isolation level of the transaction.
    pub(crate) fn query_latest<Q: Query>(&self, query: Q) -> Rows<'_, Q::Row> {
        self.run(query, Snapshot::Latest { read_only: true })
    }

    /// Changes all that is committed now, whatever the isolation level of the transaction, and
    /// returns its rows.
    pub(crate) fn change_latest<Q: Query>(&self, query: Q) -> Rows<'_, Q::Row> {
        self.run(query, Snapshot::Latest { read_only: false })
    }

    /// Runs a statement for its effect and returns the number of rows it touched.
    pub(crate) fn execute(&self, query: impl Query) -> usize {
        self.query(query).len()
    }

    fn run<Q: Query>(&self, query: Q, snapshot: Snapshot) -> Rows<'_, Q::Row> {
        let statement = query.statement();
        let (table, count) = query.run(|arguments| run(statement, arguments, snapshot));
        Rows::new(table, count)
    }
}

/// Runs a statement while SPI is connected; returns its rows and their number.
fn run(
    statement: &Statement,
    arguments: &[Option<pg_sys::Datum>],
    snapshot: Snapshot,
) -> (*mut pg_sys::SPITupleTable, usize) {
    assert_eq!(
        statement.parameters(),
        arguments.len(),
        "a value for each parameter"
    );
    let mut values: Vec<pg_sys::Datum> = arguments
        .iter()
        .map(|value| value.unwrap_or(pg_sys::Datum::from(0)))
        .collect();
    let nulls: Vec<std::ffi::c_char> = arguments
        .iter()
        .map(|value| if value.is_none() { b'n' } else { b' ' } as _)
        .collect();
    let ours = Ours::begin();
    let settings = PlannerSettings::ours();
    // Triggers of other roles are planned and run with the session's settings.
    let settings = if CALLS_FOREIGN_CODE.load(Ordering::Relaxed) {
        statement.plan_anew();
        drop(settings);
        PlannerSettings::for_plan()
    } else {
        settings
    };
    // SAFETY: connected; one value and one flag for each parameter of the plan.
    let ran = unsafe {
        let (snapshot, read_only) = match snapshot {
            Snapshot::OfTransaction => (std::ptr::null_mut(), false),
            Snapshot::Latest { read_only } => (latest_snapshot(), read_only),
        };
        let code = pg_sys::SPI_execute_snapshot(
            statement.plan(),
            values.as_mut_ptr(),
            nulls.as_ptr(),
            snapshot,
            std::ptr::null_mut(),
            read_only,
            true,
            0,
        );
        assert!(code > 0, "{} runs", statement.file());
        (pg_sys::SPI_tuptable, pg_sys::SPI_processed as usize)
    };
    drop(settings);
    drop(ours);
    if ran.1 == 0 {
        statement.refuse_if_nothing_is_left();
    }
    ran
}

/// The snapshot of a statement.
#[derive(Clone, Copy)]
enum Snapshot {
    /// A new snapshot; in REPEATABLE READ and SERIALIZABLE the transaction's.
    OfTransaction,
    /// All that is committed now.
    Latest { read_only: bool },
}

/// Planner settings in force while one of the extension's statements is planned and run; restored
/// on drop, also while unwinding. Without them a plan made on an empty table always scans it, and
/// `enable_indexscan = off` in a caller's session would make every claim a sort.
struct PlannerSettings {
    flags: [bool; 8],
    plan_cache_mode: i32,
}

/// Marks that the extension's statement runs; the enclosing one, if any, continues on drop.
struct Ours(i32);

impl Ours {
    fn begin() -> Self {
        Self(OURS.swap(trigger_depth(), Ordering::Relaxed))
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        OURS.store(self.0, Ordering::Relaxed);
    }
}

/// Whether another role's code may run because of one of the extension's statements.
static CALLS_FOREIGN_CODE: AtomicBool = AtomicBool::new(false);

/// Stores whether another role's code may run because of one of the extension's statements.
pub(crate) fn calls_foreign_code(may_call: bool) {
    CALLS_FOREIGN_CODE.store(may_call, Ordering::Relaxed);
}

/// The trigger depth of the extension's statement that is running; negative when there is none.
static OURS: AtomicI32 = AtomicI32::new(-1);

/// Returns whether the statement that fires this trigger is the extension's, not one written by
/// hand or run by another role's trigger within it.
pub(crate) fn is_ours() -> bool {
    OURS.load(Ordering::Relaxed) == trigger_depth() - 1
}

/// Returns whether one of the extension's statements, or code that it called, is running.
pub(crate) fn runs_statement() -> bool {
    OURS.load(Ordering::Relaxed) >= 0
}

fn trigger_depth() -> i32 {
    // SAFETY: the function takes nothing and returns a number.
    let depth = unsafe { pgrx::direct_function_call(pg_sys::pg_trigger_depth, &[]) };
    depth.expect("a depth is a number")
}

/// The server's variables in the order of `PlannerSettings::flags`, and the extension's values.
const OUR_FLAGS: [bool; 8] = [false, false, false, true, true, true, true, false];

fn server_flags() -> [*mut bool; 8] {
    [
        &raw mut pg_sys::enable_seqscan,
        &raw mut pg_sys::enable_hashjoin,
        &raw mut pg_sys::enable_mergejoin,
        &raw mut pg_sys::enable_indexscan,
        &raw mut pg_sys::enable_nestloop,
        &raw mut pg_sys::enable_tidscan,
        &raw mut pg_sys::enable_sort,
        &raw mut pg_sys::jit_enabled,
    ]
}

impl PlannerSettings {
    /// Puts all of the extension's values in force.
    fn ours() -> Self {
        let saved = Self::for_plan();
        // SAFETY: a backend has one thread, and the variables are plain values that the planner
        // reads.
        unsafe {
            for (flag, value) in server_flags().into_iter().zip(OUR_FLAGS) {
                *flag = value;
            }
        }
        saved
    }

    /// Sets only the values that make the server use an up-to-date plan.
    fn for_plan() -> Self {
        // SAFETY: as above.
        unsafe {
            let saved = Self {
                flags: server_flags().map(|flag| *flag),
                plan_cache_mode: pg_sys::plan_cache_mode,
            };
            pg_sys::plan_cache_mode = PLAN_CACHE_AUTO;
            saved
        }
    }
}

impl Drop for PlannerSettings {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe {
            for (flag, value) in server_flags().into_iter().zip(self.flags) {
                *flag = value;
            }
            pg_sys::plan_cache_mode = self.plan_cache_mode;
        }
    }
}

/// Returns whether later statements see no more than the transaction's first one.
pub(crate) fn keeps_snapshot() -> bool {
    // SAFETY: a plain number of this backend.
    unsafe { pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 }
}

/// Returns an error where nothing can be written, with a better message than the server's. The
/// server does not check rows that are written without a statement.
pub(crate) fn require_primary() -> Result<()> {
    // SAFETY: reads flags of the server.
    let (is_standby, is_read_only) =
        unsafe { (pg_sys::RecoveryInProgress(), pg_sys::XactReadOnly) };
    let refusal = |message| Error::new(PgSqlErrorCode::ERRCODE_READ_ONLY_SQL_TRANSACTION, message);
    if is_standby {
        return Err(refusal("this server is a standby")
            .hint("Connect to the primary: target_session_attrs=read-write"));
    }
    if is_read_only {
        return Err(refusal("this transaction is read-only").hint("Type: begin read write"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn files_that_open_spi(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("the sources are there") {
            let path = entry.expect("it is read").path();
            if path.is_dir() {
                files_that_open_spi(&path, found);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("it is text");
            if text.contains(concat!("Spi", "::connect"))
                || text.contains(concat!("SPI", "_connect"))
            {
                found.push(path.display().to_string());
            }
        }
    }

    #[test]
    fn no_other_file_opens_spi() {
        let mut found = Vec::new();
        files_that_open_spi(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
            &mut found,
        );
        assert!(
            matches!(&found[..], [this] if this.ends_with("spi/connection.rs")),
            "{found:?}"
        );
    }
}
