//! The role that runs the statement of a manifest, and who may change either.
//!
//! Enters: a change of a manifest, and what is stored. Leaves: the change with the role that is to
//! be stored. Holds: the role stays unless the change says another; the statement and the role are
//! changed only by that role, or by a member of it that says whose the statement is to be. Else
//! whoever gives a schedule another time would run its statement as themselves, and whoever may
//! change one would have theirs run as another.

use super::change::Change;
use crate::error::{Error, Result};
use crate::server::rights::is_member;
use crate::server::spi::{Spi, arg, row, statement};
use pgrx::{PgSqlErrorCode, pg_sys};
use std::ffi::CString;

row! {
    struct Stored {
        command: Option<String>,
        input: Option<pg_sys::Datum>,
        run_as: String,
    }
}
statement!(ManifestStatement, "manifest/statement.sql", { name: TEXTOID } -> Stored);

/// The statement that a change gives a manifest.
pub(super) struct Statement {
    pub(super) command: String,
    /// The role that the change names.
    pub(super) run_as: Option<String>,
    pub(super) caller: pg_sys::Oid,
}

/// Has a change keep the stored role.
///
/// # Errors
/// 42501 when the caller may not change the statement or its role. What the change keeps of the
/// stored input lives until SPI is closed.
pub(super) fn keep(spi: &Spi, change: &mut Change) -> Result<()> {
    let Some(statement) = &change.statement else {
        return Ok(());
    };
    let query = ManifestStatement {
        name: arg(change.name.as_str()),
    };
    let Some(stored) = spi.query(query).first() else {
        return Ok(());
    };
    let wanted = statement.run_as.as_deref();
    let is_same = stored.command.as_deref() == Some(statement.command.as_str());
    if is_same && wanted.is_none() {
        // As it is stored, with the oid of the role: another one may have its name now.
        change.input = stored.input;
        change.run_as = Some(stored.run_as);
        return Ok(());
    }
    let role = role(&stored.run_as);
    let may = match wanted {
        None => role == Some(statement.caller),
        Some(_) => role.is_some_and(|role| is_member(statement.caller, role)),
    };
    match may {
        true => Ok(()),
        false => Err(refusal(&change.name, &stored.run_as)),
    }
}

fn role(name: &str) -> Option<pg_sys::Oid> {
    let name = CString::new(name).expect("a text of the server has no zero byte");
    // SAFETY: a lookup in a transaction.
    let oid = unsafe { pg_sys::get_role_oid(name.as_ptr(), true) };
    (oid != pg_sys::InvalidOid).then_some(oid)
}

fn refusal(name: &str, role: &str) -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
        format!("permission denied to change the statement of manifest \"{name}\""),
    )
    .detail(format!("Its statement runs as role \"{role}\"."))
    .hint(format!(
        "Type before it: set role \"{role}\"; or, as a member of that role, specify whose it is: run_as => '{role}'."
    ))
}
