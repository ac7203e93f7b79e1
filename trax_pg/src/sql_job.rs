//! SQL jobs: a statement that the server runs by itself, in a session of the role that queued it.
//!
//! Enters: a text, and the calling role. Leaves: a waiting job with the task `sql`, whose `run_as`
//! an executor (`background/executor.rs`) takes for its session. Holds: the role is the caller,
//! inside a function with `security definer` its owner, or a role of which the caller is a member;
//! no input becomes a statement.

use crate::access_scope;
use crate::claim::{COMMAND, ROLE_OID};
use crate::columns::SQL_TASK;
use crate::error::{Error, Result};
use crate::server::backend::my_database;
use crate::server::call::{Call, sql_function};
use crate::server::clock::Timestamp;
use crate::server::quote::identifier;
use crate::server::rights::{as_owner, is_member, may_connect, role_oid};
use crate::server::spi;
use crate::server::spi::{Spi, arg, statement};
use crate::server::sql_text::Parsed;
use crate::server::transaction;
use crate::work_queue::{NewJob, check_size, enqueue_within};
use crate::{memory, wake};
use pgrx::{PgSqlErrorCode, pg_guard, pg_sys};
use std::ffi::{CStr, CString};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

statement!(SqlJobRebind, "sql_job/rebind.sql");
statement!(SqlJobRename, "sql_job/rename.sql");

/// Whether a role may have been renamed since the last call of [`follow_renames`].
static RENAMED: AtomicBool = AtomicBool::new(true);
static LISTEN: Once = Once::new();

sql_function!(trax_enqueue_sql, pg_finfo_trax_enqueue_sql, |call| {
    as_owner(call, |caller| {
        let command = command(call, 0, "command")?;
        let command = command.ok_or_else(|| Error::null_argument("command"))?;
        let run_as = call.optional_name(10, "run_as")?;
        let run_as = role(caller.user, run_as)?;
        let input = input(&command, &run_as)?;
        check_size("input", input)?;
        let job = NewJob {
            run_as: Some(run_as),
            ..NewJob::of_any_task(&as_enqueue(call), Timestamp::now())?
        };
        let id = spi::connected(|spi| {
            let scope = access_scope::of_caller(spi, caller);
            Ok(enqueue_within(spi, &scope, &job, &[Some(input)])?[0])
        })?;
        Ok(call.value(id))
    })
});

/// Returns an argument that is a statement.
pub(crate) fn command(call: &Call, index: usize, name: &str) -> Result<Option<String>> {
    if let Some(command) = call.datum(index) {
        check_size(name, command)?;
    }
    Ok(call.measured_text(index))
}

/// Returns the call as a call of `trax.enqueue`.
fn as_enqueue(call: &Call) -> Call {
    let [
        run_at,
        group,
        priority,
        retries,
        timeout,
        unique_key,
        key,
        delay,
        unique_for,
    ] = std::array::from_fn(|index| call.datum(index + 1));
    // After it comes the role.
    let on_duplicate = call.datum(11);
    Call::with(&[
        arg(SQL_TASK),
        None,
        run_at,
        group,
        priority,
        retries,
        timeout,
        unique_key,
        key,
        None,
        delay,
        unique_for,
        None,
        None,
        None,
        None,
        None,
        on_duplicate,
    ])
}

/// Returns the name of the role in whose session the caller's statement runs.
pub(crate) fn role(caller: pg_sys::Oid, wanted: Option<String>) -> Result<String> {
    let Some(name) = wanted else {
        // SAFETY: a lookup in a transaction; the role makes the call, so it exists.
        let name = unsafe { CStr::from_ptr(pg_sys::GetUserNameFromId(caller, false)) };
        let name = name.to_string_lossy().into_owned();
        require_connect(&name, caller)?;
        return Ok(name);
    };
    let Some(oid) = role_oid(&name) else {
        return Err(Error::unknown(format!("role \"{name}\" does not exist"))
            .detail("The argument run_as is the name of a role.")
            .hint("List the roles with: select rolname from pg_roles order by rolname"));
    };
    if !is_member(caller, oid) {
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            format!("permission denied to run a statement as role \"{name}\""),
        )
        .detail("A statement runs as its caller, or as a role that the caller is a member of.")
        .hint("Leave run_as out, or have an owner of the role grant it to you."));
    }
    require_connect(&name, oid)?;
    Ok(name)
}

/// Returns the error of a statement when its role cannot have a session here.
pub(crate) fn no_session(role: &str) -> String {
    format!("role \"{role}\" may not log in, or not connect to this database")
}

fn require_connect(name: &str, oid: pg_sys::Oid) -> Result<()> {
    if may_connect(oid) {
        return Ok(());
    }
    // SAFETY: a lookup in a transaction; a session has a database.
    let database = unsafe { CStr::from_ptr(pg_sys::get_database_name(my_database())) };
    let hint = format!(
        "Type: alter role {0} login connection limit -1; grant connect on database {1} to {0}; or specify another role: run_as => ...",
        identifier(name),
        identifier(&database.to_string_lossy())
    );
    Err(Error::wrong_state(no_session(name))
        .detail("A statement runs in a session of its role.")
        .hint(hint))
}

/// Returns whether a role may have been renamed since the last call of [`follow_renames`]. Call it
/// inside a transaction.
pub(crate) fn may_be_renamed() -> bool {
    LISTEN.call_once(|| {
        let roles = pg_sys::SysCacheIdentifier::AUTHOID as i32;
        let none = pg_sys::Datum::from(0);
        // SAFETY: the callback has the right signature and lives as long as the library.
        unsafe { pg_sys::CacheRegisterSyscacheCallback(roles, Some(role_changed), none) };
    });
    // SAFETY: in a transaction.
    unsafe { pg_sys::AcceptInvalidationMessages() };
    RENAMED.load(Ordering::Relaxed)
}

#[pg_guard]
unsafe extern "C-unwind" fn role_changed(_argument: pg_sys::Datum, _cache: i32, _hash: u32) {
    RENAMED.store(true, Ordering::Relaxed);
}

/// Updates the role names of statements after renames: the oid identifies a role. Only where the
/// oids are of this server: not in a copy that was not adopted. Returns whether any changed.
pub(crate) fn follow_renames(spi: &Spi) -> bool {
    RENAMED.store(false, Ordering::Relaxed);
    transaction::unless_committed(|| RENAMED.store(true, Ordering::Relaxed));
    let any = spi.execute(SqlJobRename) > 0;
    if any {
        // Some lanes have lost rows, and others have new ones.
        memory::forget();
        wake::mark(wake::WORK | wake::SQL);
    }
    any
}

/// Binds the statements of a copy to the roles that have the names here.
pub(crate) fn rebind(spi: &Spi) {
    spi.execute(SqlJobRebind);
}

/// Returns the input of a job with this statement, which the server can parse. The input names the
/// role for people; a column that no input reaches determines the role. The oid is included because
/// another role may get the name.
pub(crate) fn input(command: &str, run_as: &str) -> Result<pg_sys::Datum> {
    let text = CString::new(command).expect("a text of the server has no zero byte");
    spi::isolated(|| Ok(Parsed::new(&text)))
        .map_err(|error| error.of_statement(command))?
        .refuse()?;
    let name = CString::new(run_as).expect("a text of the server has no zero byte");
    // SAFETY: a lookup in a transaction.
    let role = unsafe { pg_sys::get_role_oid(name.as_ptr(), false) };
    let value = serde_json::json!({ COMMAND: command, "run_as": run_as, ROLE_OID: role.to_u32() });
    Ok(pgrx::datum::IntoDatum::into_datum(pgrx::JsonB(value)).expect("an object is not null"))
}
