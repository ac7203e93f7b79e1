//! Statements: the only file that opens SPI.
//!
//! A [`Statement`] is planned once for each backend, as a generic plan, and kept. It is planned
//! with settings of our own ([`PlannerSettings`]), so that neither the caller's settings nor a
//! fresh or empty table's statistics choose a plan that scans.

mod isolated;
mod value;

use crate::error::{Error, Result};
use crate::server::own_code;
pub(crate) use isolated::isolated;
use pgrx::datum::FromDatum;
use pgrx::{PgSqlErrorCode, pg_sys};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
pub(crate) use value::{arg, array_arg, array_elements, value_bytes};

/// `PLAN_CACHE_MODE_AUTO`: lets the generic plan that each statement asks for stand.
const PLAN_CACHE_AUTO: i32 = 0;

/// One statement of `sql/query`, planned on first use in each backend.
pub(crate) struct Statement {
    sql: &'static str,
    types: &'static [pg_sys::Oid],
    plan: AtomicPtr<pg_sys::_SPI_plan>,
}

impl Statement {
    /// `types` are those of `$1`, `$2` and so on.
    pub(crate) const fn new(sql: &'static str, types: &'static [pg_sys::Oid]) -> Self {
        Self {
            sql,
            types,
            plan: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    fn plan(&self) -> pg_sys::SPIPlanPtr {
        let kept = self.plan.load(Ordering::Relaxed);
        if !kept.is_null() {
            return kept;
        }
        let sql = CString::new(self.sql).expect("a statement of ours has no zero byte");
        let mut types = self.types.to_vec();
        // SAFETY: SPI is connected (only `Spi` calls this); the text and types outlive the call,
        // and a kept plan outlives the connection.
        unsafe {
            let plan = pg_sys::SPI_prepare_cursor(
                sql.as_ptr(),
                types.len() as i32,
                types.as_mut_ptr(),
                pg_sys::CURSOR_OPT_GENERIC_PLAN as i32,
            );
            assert!(
                !plan.is_null(),
                "a statement of ours prepares: {}",
                self.sql
            );
            pg_sys::SPI_keepplan(plan);
            self.plan.store(plan, Ordering::Relaxed);
            plan
        }
    }
}

thread_local! {
    static KEPT: RefCell<HashMap<String, &'static Statement>> = RefCell::default();
}

/// A statement whose text follows from the columns of a table of ours; there are few, and each is
/// kept.
pub(crate) fn kept(sql: &str, types: &[pg_sys::Oid]) -> &'static Statement {
    if let Some(kept) = KEPT.with_borrow(|kept| kept.get(sql).copied()) {
        return kept;
    }
    let statement: &'static Statement = Box::leak(Box::new(Statement::new(
        Box::leak(sql.to_owned().into_boxed_str()),
        Box::leak(types.to_vec().into_boxed_slice()),
    )));
    KEPT.with_borrow_mut(|kept| kept.insert(sql.to_owned(), statement));
    statement
}

/// A connection to SPI, open while `work` of [`connected`] runs.
pub(crate) struct Spi(PhantomData<*const ()>);

/// Opens SPI for `work`. Rows and by-reference values live until it returns. Refuses where code of
/// others would run with the owner's rights.
pub(crate) fn connected<T>(work: impl FnOnce(&Spi) -> Result<T>) -> Result<T> {
    connected_anyhow(|spi| {
        own_code::require(spi)?;
        work(spi)
    })
}

/// The same, wherever: for what changes no table of ours, and for what says why it does nothing.
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

/// Commits as COMMIT in a procedure does; a new transaction follows. Only in a procedure that was
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
    pub(crate) fn query(
        &self,
        statement: &Statement,
        arguments: &[Option<pg_sys::Datum>],
    ) -> SpiRows<'_> {
        self.run(statement, arguments, Snapshot::OfTransaction)
    }

    /// Reads what has committed until now, whatever the isolation level of the transaction.
    pub(crate) fn query_latest(
        &self,
        statement: &Statement,
        arguments: &[Option<pg_sys::Datum>],
    ) -> SpiRows<'_> {
        self.run(statement, arguments, Snapshot::Latest { read_only: true })
    }

    /// Changes what has committed until now, whatever the isolation level of the transaction, and
    /// returns its rows.
    pub(crate) fn change_latest(
        &self,
        statement: &Statement,
        arguments: &[Option<pg_sys::Datum>],
    ) -> SpiRows<'_> {
        self.run(statement, arguments, Snapshot::Latest { read_only: false })
    }

    fn run(
        &self,
        statement: &Statement,
        arguments: &[Option<pg_sys::Datum>],
        snapshot: Snapshot,
    ) -> SpiRows<'_> {
        assert_eq!(
            statement.types.len(),
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
        let settings = PlannerSettings::ours();
        // SAFETY: connected; one value and one flag for each parameter of the plan.
        let (table, count) = unsafe {
            let (snapshot, read_only) = match snapshot {
                Snapshot::OfTransaction => (std::ptr::null_mut(), false),
                Snapshot::Latest { read_only } => {
                    // What this transaction has just written counts too.
                    pg_sys::CommandCounterIncrement();
                    (pg_sys::GetLatestSnapshot(), read_only)
                }
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
            assert!(code > 0, "a statement of ours runs: {}", statement.sql);
            (pg_sys::SPI_tuptable, pg_sys::SPI_processed as usize)
        };
        drop(settings);
        SpiRows {
            table,
            count,
            lifetime: PhantomData,
        }
    }

    /// Runs a statement for its effect and returns the number of rows it touched.
    pub(crate) fn execute(
        &self,
        statement: &Statement,
        arguments: &[Option<pg_sys::Datum>],
    ) -> usize {
        self.query(statement, arguments).count
    }
}

/// What a statement sees.
#[derive(Clone, Copy)]
enum Snapshot {
    /// A new snapshot, in REPEATABLE READ and SERIALIZABLE that of the transaction.
    OfTransaction,
    /// What has committed until now.
    Latest { read_only: bool },
}

/// What a statement returned.
pub(crate) struct SpiRows<'spi> {
    table: *mut pg_sys::SPITupleTable,
    count: usize,
    lifetime: PhantomData<&'spi Spi>,
}

impl SpiRows<'_> {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = SpiRow<'_>> {
        (0..self.count).map(|index| self.row(index))
    }

    pub(crate) fn first(&self) -> Option<SpiRow<'_>> {
        (self.count > 0).then(|| self.row(0))
    }

    pub(crate) fn row(&self, index: usize) -> SpiRow<'_> {
        assert!(index < self.count, "a row that the statement returned");
        // SAFETY: `index` is within the rows of a table that lives as long as the connection.
        unsafe {
            SpiRow {
                tuple: *(*self.table).vals.add(index),
                shape: (*self.table).tupdesc,
                lifetime: PhantomData,
            }
        }
    }
}

/// One row that a statement returned.
pub(crate) struct SpiRow<'rows> {
    tuple: pg_sys::HeapTuple,
    shape: pg_sys::TupleDesc,
    lifetime: PhantomData<&'rows ()>,
}

impl SpiRow<'_> {
    /// The column at `index`, from 1; `None` when it is null.
    pub(crate) fn get<T: FromDatum>(&self, index: usize) -> Option<T> {
        let datum = self.datum(index)?;
        // SAFETY: the statement selects a value of the SQL type that T reads.
        unsafe { T::from_polymorphic_datum(datum, false, pg_sys::InvalidOid) }
    }

    /// The column at `index`, which the statement never gives as null.
    pub(crate) fn must<T: FromDatum>(&self, index: usize) -> T {
        self.get(index).expect("a column that is declared not null")
    }

    pub(crate) fn datum(&self, index: usize) -> Option<pg_sys::Datum> {
        let mut is_null = false;
        // SAFETY: the row and its shape are alive; the server checks the index.
        let datum = unsafe {
            pg_sys::SPI_getbinval(self.tuple, self.shape, index as i32, &raw mut is_null)
        };
        (!is_null).then_some(datum)
    }
}

/// Planner settings in force while a statement of ours is planned and run; put back on drop, which
/// unwinding does too. Without them a plan made on an empty table scans it for ever, and
/// `enable_indexscan = off` in a caller's session would make every claim a sort.
struct PlannerSettings {
    flags: [bool; 8],
    plan_cache_mode: i32,
    ours: i32,
}

/// How deep in triggers the statement of ours is that is running; negative when there is none.
static OURS: AtomicI32 = AtomicI32::new(-1);

/// Whether the statement that fires this trigger is ours, not one written by hand, nor one that a
/// trigger of others runs because of ours.
pub(crate) fn is_ours() -> bool {
    OURS.load(Ordering::Relaxed) == trigger_depth() - 1
}

fn trigger_depth() -> i32 {
    // SAFETY: the function takes nothing and gives a number.
    let depth = unsafe { pgrx::direct_function_call(pg_sys::pg_trigger_depth, &[]) };
    depth.expect("a depth is a number")
}

/// The server's variables in the order of `PlannerSettings::flags`, and our value for each.
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
    fn ours() -> Self {
        // SAFETY: a backend has one thread, and the variables are plain values that the planner
        // reads.
        unsafe {
            let saved = Self {
                flags: server_flags().map(|flag| *flag),
                plan_cache_mode: pg_sys::plan_cache_mode,
                ours: OURS.swap(trigger_depth(), Ordering::Relaxed),
            };
            for (flag, value) in server_flags().into_iter().zip(OUR_FLAGS) {
                *flag = value;
            }
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
        OURS.store(self.ours, Ordering::Relaxed);
    }
}

/// Loads a statement of `sql/query` with the types of its parameters.
macro_rules! statement {
    ($name:ident, $file:literal $(, $type:ident)* $(,)?) => {
        static $name: $crate::server::spi::Statement = $crate::server::spi::Statement::new(
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../sql/query/", $file)),
            &[$(::pgrx::pg_sys::$type),*],
        );
    };
}
pub(crate) use statement;

/// Whether later statements see no more than the first one of the transaction.
pub(crate) fn keeps_snapshot() -> bool {
    // SAFETY: a plain number of this backend.
    unsafe { pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 }
}

/// Refuses where only the primary may write, with words better than the server's.
pub(crate) fn require_primary() -> Result<()> {
    // SAFETY: reads a flag of the server.
    if unsafe { pg_sys::RecoveryInProgress() } {
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_READ_ONLY_SQL_TRANSACTION,
            "this server is a standby",
        )
        .hint("Connect to the primary: target_session_attrs=read-write"));
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
            matches!(&found[..], [this] if this.ends_with("spi/mod.rs")),
            "{found:?}"
        );
    }
}
