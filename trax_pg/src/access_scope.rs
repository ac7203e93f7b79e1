//! Access scopes: the tasks and groups that a role may queue jobs of, or claim.
//!
//! Words: a role is *limited* when `trax.grant_access` named tasks or groups; its *scope* is what
//! it named, a row of `trax.access_scope`. The mark of a limited role is that it may execute
//! `trax.limited_access`: it travels with dumps and renamed roles, so a role whose row is lost may
//! do nothing, rather than everything. Holds: a right is as wide as the roles that grant it. Of a
//! member of several, each with the right to make this call, one without a scope makes it
//! unlimited.
//!
//! A session keeps what it has found until a function of ours is granted or revoked, or a role or a
//! membership changes. With no limited role in the database a call pays for reading one flag.

use crate::error::{Error, Result};
use crate::server::call::sql_function;
use crate::server::quote::{identifier, literal};
use crate::server::rights;
use crate::server::rights::Caller;
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use pgrx::{PgSqlErrorCode, pg_sys};
use std::cell::RefCell;
use std::rc::Rc;

row! {
    /// A role that has a right, and the scope that narrows it.
    struct Right {
        role: Option<String>,
        is_limited: bool,
        level: Option<String>,
        tasks: Option<Vec<String>>,
        groups: Option<Vec<String>>,
    }
}
row! {
    struct JobNames {
        task: String,
        group_name: String,
    }
}
statement!(AccessScopeAny, "access_scope/any.sql" -> bool);
statement!(AccessScopeOf, "access_scope/of.sql", { role: OIDOID, function: OIDOID, table: OIDOID } -> Right);
statement!(AccessScopeRegrant, "access_scope/regrant.sql", { role: OIDOID, level: TEXTOID } -> bool);
statement!(AccessScopeJob, "access_scope/job.sql", { job_id: INT8OID } -> JobNames);

sql_function!(trax_regrant_access, pg_finfo_trax_regrant_access, |call| {
    regrant(call.required(0, "role")?, call.text(1, "level")?)?;
    Ok(call.null())
});

/// Implements `trax.regrant_access()`: what an extension's script grants is taken for rights of the
/// extension, which a dump leaves out and dropping the role leaves behind.
fn regrant(role: pg_sys::Oid, level: String) -> Result<()> {
    // SAFETY: a flag of the server, read by its only thread.
    let is_script = unsafe { pg_sys::creating_extension };
    // SAFETY: as above; after an error the server resets it itself, as the script has failed.
    unsafe { pg_sys::creating_extension = false };
    let granted = spi::connected(|spi| {
        spi.query(AccessScopeRegrant {
            role: arg(role),
            level: arg(level),
        })
        .one();
        Ok(())
    });
    // SAFETY: as above.
    unsafe { pg_sys::creating_extension = is_script };
    granted
}

/// Names of a scope that an error lists.
const NAMES_SHOWN: usize = 10;

/// What a caller may queue or claim; `None` is everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Scope(Option<Rc<[Part]>>);

/// What one role grants: these tasks in these groups; `None` is all of them.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Part {
    role: String,
    level: String,
    tasks: Option<Vec<String>>,
    groups: Option<Vec<String>>,
}

impl Part {
    fn has_task(&self, task: &str) -> bool {
        has(self.tasks.as_deref(), task)
    }

    fn has_group(&self, group: &str) -> bool {
        has(self.groups.as_deref(), group)
    }
}

fn has(names: Option<&[String]>, name: &str) -> bool {
    names.is_none_or(|names| names.iter().any(|one| one == name))
}

impl Scope {
    pub(crate) fn allows(&self, task: &str, group: &str) -> bool {
        match &self.0 {
            None => true,
            Some(parts) => parts
                .iter()
                .any(|part| part.has_task(task) && part.has_group(group)),
        }
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.0.is_some()
    }

    /// Refuses what is outside.
    pub(crate) fn require(&self, task: &str, group: &str) -> Result<()> {
        if self.allows(task, group) {
            return Ok(());
        }
        Err(self.refusal(Some(task), Some(group)))
    }

    /// Refuses what is outside without a word of its task and group, which the caller did not name.
    pub(crate) fn require_of(
        &self,
        task: &str,
        group: &str,
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        if self.allows(task, group) {
            return Ok(());
        }
        Err(self.refusal_of(&what(), None, None))
    }

    /// Refuses what was done to a job of others; an error takes it back. Looking before would miss
    /// one that commits in between.
    pub(crate) fn require_job(&self, spi: &Spi, job_id: i64) -> Result<()> {
        self.require_job_as(spi, job_id, || format!("job {job_id}"))
    }

    /// Does the same, with other words for the job.
    pub(crate) fn require_job_as(
        &self,
        spi: &Spi,
        job_id: i64,
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        if !self.is_limited() {
            return Ok(());
        }
        match spi
            .query(AccessScopeJob {
                job_id: arg(job_id),
            })
            .first()
        {
            Some(job) => self.require_of(&job.task, &job.group_name, what),
            None => Ok(()),
        }
    }

    /// Refuses names that a claim asks for and can never have; those that it leaves out are
    /// narrowed by [`Self::allows`].
    pub(crate) fn require_filter(
        &self,
        tasks: Option<&[String]>,
        groups: Option<&[String]>,
    ) -> Result<()> {
        let Some(parts) = &self.0 else {
            return Ok(());
        };
        let any = |names: Option<&[String]>, is_in: &dyn Fn(&str) -> bool| {
            names.is_none_or(|names| names.iter().any(|name| is_in(name)))
        };
        for task in tasks.unwrap_or_default() {
            let is_possible = parts
                .iter()
                .any(|part| part.has_task(task) && any(groups, &|name| part.has_group(name)));
            if !is_possible {
                return Err(self.refusal(
                    Some(task),
                    groups.and_then(|groups| Some(groups.first()?.as_str())),
                ));
            }
        }
        for group in groups.unwrap_or_default() {
            let is_possible = parts
                .iter()
                .any(|part| part.has_group(group) && any(tasks, &|name| part.has_task(name)));
            if !is_possible {
                return Err(self.refusal(
                    tasks.and_then(|tasks| Some(tasks.first()?.as_str())),
                    Some(group),
                ));
            }
        }
        Ok(())
    }

    fn refusal(&self, task: Option<&str>, group: Option<&str>) -> Error {
        let what = match (task, group) {
            (Some(task), Some(group)) => format!("task \"{task}\" in group \"{group}\""),
            (Some(task), None) => format!("task \"{task}\""),
            (None, Some(group)) => format!("group \"{group}\""),
            (None, None) => "what is asked for".to_owned(),
        };
        self.refusal_of(&what, task, group)
    }

    fn refusal_of(&self, what: &str, task: Option<&str>, group: Option<&str>) -> Error {
        let error = Error::new(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            format!("permission denied for {what}"),
        );
        let parts = self.0.as_deref().unwrap_or_default();
        let Some(first) = parts.first() else {
            return error
                .detail("The role is limited, and its row in trax.access_scope is gone.")
                .hint(
                    "As an admin of trax, type: select trax.grant_access(role, level, tasks => ..., groups => ...)",
                );
        };
        let limits: Vec<String> = parts
            .iter()
            .map(|part| {
                format!(
                    "Role \"{}\" may use {} in {}.",
                    part.role,
                    listed("task", part.tasks.as_deref()),
                    listed("group", part.groups.as_deref())
                )
            })
            .collect();
        let widened = |names: &Option<Vec<String>>, name: Option<&str>| {
            let mut names = names.clone()?;
            names.extend(
                name.filter(|name| !names.iter().any(|one| one == name))
                    .map(str::to_owned),
            );
            Some(names)
        };
        let also = match (task, group) {
            (None, None) => ", with its task and its group added",
            _ => "",
        };
        error.detail(limits.join(" ")).hint(format!(
            "If it should, as an admin of trax type{also}: select trax.grant_access({}, {}{}{})",
            literal(&identifier(&first.role)),
            literal(&first.level),
            argument("tasks", widened(&first.tasks, task)),
            argument("groups", widened(&first.groups, group)),
        ))
    }
}

fn listed(what: &str, names: Option<&[String]>) -> String {
    let Some(names) = names else {
        return format!("every {what}");
    };
    let shown: Vec<String> = names
        .iter()
        .take(NAMES_SHOWN)
        .map(|name| format!("\"{name}\""))
        .collect();
    let more = match names.len().checked_sub(NAMES_SHOWN) {
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} more"),
    };
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("{what}{plural} {}{more}", shown.join(", "))
}

fn argument(name: &str, names: Option<Vec<String>>) -> String {
    names.map_or(String::new(), |names| {
        let names: Vec<String> = names.iter().map(|name| literal(name)).collect();
        format!(", {name} => array[{}]", names.join(", "))
    })
}

/// What a session has found.
#[derive(Default)]
struct Known {
    /// As [`rights::changes`] was before it was read.
    changes: u64,
    is_any_limited: Option<bool>,
    of: Vec<(pg_sys::Oid, Object, Scope)>,
}

/// What a right is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Function(pg_sys::Oid),
    Table(pg_sys::Oid),
}

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// Returns what is kept, if it still holds.
fn known<T>(read: impl FnOnce(&Known) -> Option<T>) -> Option<T> {
    let changes = rights::changes();
    KNOWN.with_borrow(|known| (known.changes == changes).then(|| read(known)).flatten())
}

/// Keeps what was read when as many changes were known; dropped when there have been others
/// meanwhile.
fn keep(changes: u64, keep: impl FnOnce(&mut Known)) {
    KNOWN.with_borrow_mut(|known| {
        if known.changes != changes {
            *known = Known {
                changes,
                ..Known::default()
            };
        }
        keep(known);
    });
}

/// Returns what the caller of a function may queue or claim by it.
pub(crate) fn of_caller(spi: &Spi, caller: Caller) -> Scope {
    of(spi, caller.user, Object::Function(caller.function))
}

/// Returns what a role may queue or claim by a right on `object`.
pub(crate) fn of(spi: &Spi, user: pg_sys::Oid, object: Object) -> Scope {
    let is_any_limited = known(|known| known.is_any_limited).unwrap_or_else(|| {
        let changes = rights::changes();
        let any = spi.query_latest(AccessScopeAny).one();
        keep(changes, |known| known.is_any_limited = Some(any));
        any
    });
    if !is_any_limited {
        return Scope::default();
    }
    let kept = known(|known| {
        let mut all = known.of.iter();
        all.find(|(of, on, _)| *of == user && *on == object)
            .map(|(.., scope)| scope.clone())
    });
    kept.unwrap_or_else(|| {
        let changes = rights::changes();
        let scope = read(spi, user, object);
        // A grant on a table invalidates nothing in other sessions.
        if matches!(object, Object::Function(_)) {
            keep(changes, |known| {
                known.of.push((user, object, scope.clone()))
            });
        }
        scope
    })
}

fn read(spi: &Spi, user: pg_sys::Oid, object: Object) -> Scope {
    let (function, table) = match object {
        Object::Function(oid) => (arg(oid), None),
        Object::Table(oid) => (None, arg(oid)),
    };
    let rows = spi.query_latest(AccessScopeOf {
        role: arg(user),
        function,
        table,
    });
    let is_unlimited = rows.iter().any(|right| !right.is_limited);
    // A right on all tables (pg_write_all_data) is nobody's level.
    if is_unlimited || (rows.len() == 0 && table.is_some()) {
        return Scope::default();
    }
    let parts = rows.iter().filter_map(|right| {
        Some(Part {
            role: right.role?,
            level: right.level?,
            tasks: right.tasks,
            groups: right.groups,
        })
    });
    Scope(Some(parts.collect()))
}
