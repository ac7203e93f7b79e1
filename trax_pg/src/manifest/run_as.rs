//! The role that runs the statement of a manifest.
//!
//! Enters: a change of a stored manifest. Leaves: the change with the role to store. Holds: the
//! stored role stays unless the change names another one. Only that role, or a member of it whose
//! change names the role, may change the statement and the role. Otherwise a superuser who changes
//! a schedule would run its statement as a superuser, and an administrator of manifests could have
//! a statement run as a superuser.

use super::change::Change;
use crate::error::{Error, Result};
use crate::server::quote::{identifier, literal};
use crate::server::rights::{is_member, role_oid};
use crate::server::spi::{Spi, arg, row, statement};
use pgrx::{PgSqlErrorCode, pg_sys};

row! {
    struct Stored {
        command: Option<String>,
        input: Option<pg_sys::Datum>,
        run_as: String,
    }
}
statement!(ManifestStatement, "manifest/statement.sql", { name: TEXTOID } -> Stored);

/// The statement in a change of a manifest.
pub(super) struct Statement {
    pub(super) command: String,
    /// The role that the change names.
    pub(super) run_as: Option<String>,
    pub(super) caller: pg_sys::Oid,
}

/// Makes a change of a stored manifest keep its role. A kept input lives until SPI is closed.
///
/// # Errors
/// 42501 when the caller may not change the statement or its role.
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
        // As stored, with the oid of the role: another role may have its name now.
        change.input = stored.input;
        change.run_as = Some(stored.run_as);
        return Ok(());
    }
    let role = role_oid(&stored.run_as);
    let may = match wanted {
        None => role == Some(statement.caller),
        Some(_) => role.is_some_and(|role| is_member(statement.caller, role)),
    };
    match may {
        true => Ok(()),
        false => Err(refusal(&change.name, &stored.run_as)),
    }
}

fn refusal(name: &str, role: &str) -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
        format!("permission denied to change the statement of manifest \"{name}\""),
    )
    .detail(format!("Its statement runs as role \"{role}\"."))
    .hint(format!(
        "Type first: set role {}; or, as a member of that role, specify: run_as => {}",
        identifier(role),
        literal(role)
    ))
}
