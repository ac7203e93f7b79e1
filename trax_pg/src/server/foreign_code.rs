//! Foreign code: refuses to run while another role's code would run with the rights of the
//! extension's owner, a superuser.
//!
//! Code attached to a table (a trigger, a constraint, a default, an index, a rule, a policy) runs
//! with the rights of the role that writes to the table, here the extension's owner. Functions of a
//! superuser or of the table's owner are safe. Another role could use its function to do anything
//! as superuser, so no function of the extension runs until that code is gone.
//!
//! A session checks once, and again when one of the tables, or one of the functions found there,
//! changes. The checks come before anything else, and before each of the extension's statements
//! that waited for the lock of a table which has changed meanwhile.
//!
//! Event triggers run when a table is created or dropped, and when rights are granted: only
//! functions that do this check their owners ([`refuse_for_ddl`]).

use crate::error::{Error, Result};
use crate::server::call::sql_function;
use crate::server::catalog;
use crate::server::spi::connection;
use crate::server::spi::connection::{Spi, connected_anyhow};
use crate::server::spi::row::{Rows, row};
use crate::server::spi::statement::statement;
use crate::server::spi::value::arg;
use pgrx::{pg_guard, pg_sys};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Once;

row! {
    /// A function that runs when a table of the extension is written or created.
    struct Code {
        relation: Option<String>,
        /// `None` when it has been dropped since the snapshot.
        object: Option<String>,
        function: Option<String>,
        owner: String,
        is_trusted: bool,
        function_oid: Option<pg_sys::Oid>,
    }
}
statement!(ForeignCode, "server/foreign_code.sql" -> Code);
statement!(EventTriggers, "server/event_triggers.sql" -> Code);

sql_function!(
    trax_refuse_foreign_code,
    pg_finfo_trax_refuse_foreign_code,
    |call| {
        connected_anyhow(|spi| {
            refuse(spi)?;
            refuse_for_ddl(spi)
        })?;
        Ok(call.null())
    }
);

sql_function!(trax_code_of_others, pg_finfo_trax_code_of_others, |call| {
    let mut rows = call.rows();
    connected_anyhow(|spi| {
        let found = spi.query_latest(ForeignCode);
        let of_events = spi.query_latest(EventTriggers);
        let found = found.iter().chain(of_events.iter());
        for code in found.filter(|code| code.object.is_some()) {
            rows.push(&[
                code.relation.and_then(arg),
                code.object.and_then(arg),
                code.function.and_then(arg),
                arg(code.owner),
                arg(code.is_trusted),
                code.function_oid.and_then(arg),
            ]);
        }
        Ok(())
    })?;
    Ok(rows.end())
});

/// Whether the session has checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    Needed,
    UnderWay,
    Done,
}

/// The objects whose change requires a new check.
#[derive(Default)]
struct Watched {
    tables: HashSet<pg_sys::Oid>,
    functions: HashSet<u32>,
    /// Whether the tables use types whose owners and constraints count.
    has_types: bool,
}

impl Watched {
    /// Returns whether another role's code was found.
    fn any(&self) -> bool {
        self.has_types || !self.functions.is_empty()
    }
}

thread_local! {
    static CHECK: Cell<Check> = const { Cell::new(Check::Needed) };
    static WATCHED: RefCell<Watched> = RefCell::default();
}
static LISTEN: Once = Once::new();

fn changed(is_watched: impl FnOnce(&Watched) -> bool) {
    match CHECK.get() {
        Check::Needed => {}
        Check::UnderWay => CHECK.set(Check::Needed),
        Check::Done => {
            if WATCHED.with_borrow(is_watched) {
                CHECK.set(Check::Needed);
            }
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn table_changed(_argument: pg_sys::Datum, relation: pg_sys::Oid) {
    changed(|watched| relation == pg_sys::InvalidOid || watched.tables.contains(&relation));
}

#[pg_guard]
unsafe extern "C-unwind" fn function_changed(_argument: pg_sys::Datum, _cache: i32, hash: u32) {
    changed(|watched| hash == 0 || watched.functions.contains(&hash));
}

/// Checks owners again after a role has changed: it may have lost superuser.
#[pg_guard]
unsafe extern "C-unwind" fn role_changed(_argument: pg_sys::Datum, _cache: i32, _hash: u32) {
    changed(Watched::any);
}

/// Checks again after the owner of a type, or a constraint, possibly of a domain, has changed.
#[pg_guard]
unsafe extern "C-unwind" fn type_changed(_argument: pg_sys::Datum, _cache: i32, _hash: u32) {
    changed(|watched| watched.has_types);
}

fn listen() {
    use pg_sys::SysCacheIdentifier as Cache;
    let none = pg_sys::Datum::from(0);
    // SAFETY: the callbacks have the right signatures and live as long as the library.
    unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(table_changed), none);
        pg_sys::CacheRegisterSyscacheCallback(Cache::PROCOID as i32, Some(function_changed), none);
        pg_sys::CacheRegisterSyscacheCallback(Cache::AUTHOID as i32, Some(role_changed), none);
        pg_sys::CacheRegisterSyscacheCallback(Cache::TYPEOID as i32, Some(type_changed), none);
        pg_sys::CacheRegisterSyscacheCallback(Cache::CONSTROID as i32, Some(type_changed), none);
    }
}

/// Returns an error when another role's code would run with the rights of the extension's owner.
pub(crate) fn refuse(spi: &Spi) -> Result<()> {
    if CHECK.get() == Check::Done {
        return Ok(());
    }
    LISTEN.call_once(listen);
    // A change from here on, or an error, makes the next caller check again.
    CHECK.set(Check::UnderWay);
    let tables = catalog::own_tables();
    let called = catalog::called(&tables);
    let watched = Watched {
        tables: tables.into_iter().collect(),
        functions: called.functions.into_iter().map(function_hash).collect(),
        has_types: called.has_types,
    };
    if watched.any() {
        refuse_foreign(spi)?;
    }
    connection::calls_foreign_code(watched.any());
    WATCHED.set(watched);
    if CHECK.get() == Check::UnderWay {
        CHECK.set(Check::Done);
    }
    Ok(())
}

/// Returns an error when one of the functions, or a domain, belongs to neither a superuser nor the
/// table's owner.
fn refuse_foreign(spi: &Spi) -> Result<()> {
    let Some((object, code)) = first_foreign(&spi.query_latest(ForeignCode)) else {
        return Ok(());
    };
    CHECK.set(Check::Needed);
    let relation = code.relation.unwrap_or_default();
    let detail = match code.function {
        Some(function) => format!(
            "The {object} calls {function}(), which would run with the rights of the owner of trax, a superuser."
        ),
        None => format!(
            "A column or an expression uses the {object}, and constraints that its owner can add would run with the rights of the owner of trax, a superuser."
        ),
    };
    let message = format!("the table {relation} runs code of role \"{}\"", code.owner);
    Err(foreign(message, detail))
}

/// Returns the first untrusted function that still exists, with its description.
fn first_foreign(found: &Rows<Code>) -> Option<(String, Code)> {
    let mut untrusted = found.iter().filter(|code| !code.is_trusted);
    untrusted.find_map(|mut code| Some((code.object.take()?, code)))
}

fn foreign(message: String, detail: String) -> Error {
    Error::wrong_state(message)
        .detail(detail)
        .hint("Drop it, or make a superuser its owner: see select * from trax.diagnose()")
}

/// Refuses to create or drop tables, or to grant rights, when that would run the function of an
/// event trigger that does not belong to a superuser.
fn refuse_for_ddl(spi: &Spi) -> Result<()> {
    let Some((object, code)) = first_foreign(&spi.query_latest(EventTriggers)) else {
        return Ok(());
    };
    Err(foreign(
        format!("the {object} runs code of role \"{}\"", code.owner),
        format!(
            "The {object} calls {}(), which would run with the rights of the owner of trax, a superuser, when a table is created or a right is granted.",
            code.function.unwrap_or_default()
        ),
    ))
}

static mut NEXT: pg_sys::ExecutorStart_hook_type = None;

// Declared without pgrx's guard: a statement's error must pass through this library unchanged.
unsafe extern "C-unwind" {
    fn standard_ExecutorStart(query: *mut pg_sys::QueryDesc, flags: i32);
}

/// Installs the hook; for `_PG_init`.
pub(crate) fn install() {
    // SAFETY: a process with one thread, which loads the library once.
    unsafe {
        NEXT = pg_sys::ExecutorStart_hook;
        pg_sys::ExecutorStart_hook = Some(executor_start);
    }
}

/// Checks a statement that may write once it has its locks, when nothing can be attached any more.
/// Nothing in this frame needs dropping: a statement's error jumps over it.
unsafe extern "C-unwind" fn executor_start(query: *mut pg_sys::QueryDesc, flags: i32) {
    // SAFETY: the server passes a statement with its plan; `install` has set the next hook.
    unsafe {
        if CHECK.get() != Check::Done
            && connection::runs_statement()
            && ((*query).operation != pg_sys::CmdType::CMD_SELECT
                || (*(*query).plannedstmt).hasModifyingCTE)
        {
            check_under_lock();
        }
        NEXT.unwrap_or(standard_ExecutorStart)(query, flags);
    }
}

/// Runs the check before the statement. Its error becomes the statement's error.
#[pg_guard]
unsafe extern "C-unwind" fn check_under_lock() {
    if let Err(error) = connected_anyhow(refuse) {
        error.raise()
    }
}

fn function_hash(function: pg_sys::Oid) -> u32 {
    let none = pg_sys::Datum::from(0);
    // SAFETY: the cache has one key, an oid.
    unsafe {
        pg_sys::GetSysCacheHashValue(
            pg_sys::SysCacheIdentifier::PROCOID as i32,
            pg_sys::Datum::from(function),
            none,
            none,
            none,
        )
    }
}
