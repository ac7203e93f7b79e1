//! The work of a manifest: a task of workers with its input, or a statement and the role that runs
//! it.
//!
//! Enters: the work that a change names. Leaves: the work to store. Holds: the stored role stays
//! unless the change names another one. Only that role, or a member of it whose change names the
//! role, may change the statement and the role. Otherwise a superuser who changes a schedule would
//! run its statement as a superuser, and an administrator of manifests could have a statement run
//! as a superuser.

use super::definition::Locked;
use crate::columns::SQL_TASK;
use crate::error::{Error, Result};
use crate::server::json;
use crate::server::quote::{identifier, literal};
use crate::server::rights::{Caller, is_member, role_oid};
use crate::{sql_job, work_queue};
use pgrx::{PgSqlErrorCode, pg_sys};

/// The work that a change names; without a task it keeps the stored work.
pub(super) struct Work {
    pub(super) task: Option<String>,
    pub(super) input: Option<pg_sys::Datum>,
    /// The role that runs the statement, if any.
    pub(super) run_as: Option<String>,
    statement: Option<Statement>,
}

/// A statement as the change contains it.
struct Statement {
    command: String,
    /// The role that the change names.
    run_as: Option<String>,
    caller: pg_sys::Oid,
}

impl Work {
    pub(super) fn of(
        task: Option<String>,
        input: Option<pg_sys::Datum>,
        sql: Option<String>,
        run_as: Option<String>,
        caller: Caller,
    ) -> Result<Self> {
        let Some(sql) = sql else {
            if run_as.is_some() {
                return Err(Error::invalid("argument \"run_as\" needs a statement")
                    .detail("Only a statement runs as a role; a task runs as its worker.")
                    .hint("Specify the statement: sql => 'vacuum analyze orders'"));
            }
            if let Some(task) = &task {
                work_queue::refuse_sql_task(task)?;
            }
            return Ok(Self {
                task,
                input,
                run_as: None,
                statement: None,
            });
        };
        if task.is_some() || input.is_some() {
            return Err(Error::invalid("a statement has no task and no input")
                .detail("The manifest specifies sql together with a task or an input.")
                .hint("Specify sql => '...', or task => '...' with its input."));
        }
        let role = sql_job::role(caller.user, run_as.clone())?;
        Ok(Self {
            task: Some(SQL_TASK.to_owned()),
            input: Some(sql_job::input(&sql, &role)?),
            run_as: Some(role),
            statement: Some(Statement {
                command: sql,
                run_as,
                caller: caller.user,
            }),
        })
    }

    /// Fills in the stored task or statement if none is named, and keeps the role of a stored
    /// statement. A kept input lives until SPI is closed.
    ///
    /// # Errors
    /// 42501 when the caller may not change the statement or its role.
    pub(super) fn complete(&mut self, before: &Locked) -> Result<()> {
        let stored = &before.definition;
        if self.task.is_none() {
            stored.refuse_input(self.input)?;
            self.task = Some(stored.task.clone());
            self.run_as.clone_from(&stored.run_as);
            return Ok(());
        }
        let (Some(statement), Some(stored_role)) = (&self.statement, &stored.run_as) else {
            return Ok(());
        };
        if statement.run_as.is_none() && before.command()?.as_ref() == Some(&statement.command) {
            // As stored, with the oid of the role: another role may have its name now.
            self.input = before.input;
            self.run_as = Some(stored_role.clone());
            return Ok(());
        }
        let role = role_oid(stored_role);
        let may_change = match statement.run_as {
            None => role == Some(statement.caller),
            Some(_) => role.is_some_and(|role| is_member(statement.caller, role)),
        };
        match may_change {
            true => Ok(()),
            false if role.is_none() => Err(orphaned(&stored.name, stored_role)),
            false => Err(refusal(&stored.name, stored_role)),
        }
    }
}

impl Locked {
    /// Returns the stored statement, if the manifest is one.
    fn command(&self) -> Result<Option<String>> {
        let input = self
            .input
            .map(|input| json::value(input, "the stored statement"));
        let input = input.transpose()?;
        Ok(input.and_then(|input| Some(input.get("command")?.as_str()?.to_owned())))
    }
}

fn denied(name: &str) -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
        format!("permission denied to change the statement of manifest \"{name}\""),
    )
}

fn orphaned(name: &str, role: &str) -> Error {
    denied(name)
        .detail(format!(
            "Its statement runs as role \"{role}\", which does not exist."
        ))
        .hint(format!(
            "Type first: select trax.unschedule({})",
            literal(name)
        ))
}

fn refusal(name: &str, role: &str) -> Error {
    denied(name)
        .detail(format!("Its statement runs as role \"{role}\"."))
        .hint(format!(
            "Type first: set role {}; or, as a member of that role, specify: run_as => {}",
            identifier(role),
            literal(role)
        ))
}
