//! Access scopes: the tasks and groups that a role may queue jobs of, or claim.
//!
//! Words: a role is *limited* when `trax.grant_access` named tasks or groups; its *scope*, a row of
//! `trax.access_scope`, lists them. A limited role is marked by the right to execute
//! `trax.limited_access`. Dumps and renames of the role keep that mark, so a limited role whose row
//! is lost may do nothing, rather than everything. Holds: a member of several roles has the union
//! of their scopes; if a role that may make this call has no scope, the member is unlimited.
//!
//! A session caches its result until a function of the extension is granted or revoked, or a role
//! or a membership changes. In a database without limited roles, a call only reads one flag.

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
    struct RoleScope {
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
statement!(AccessScopeOf, "access_scope/of.sql", { role: OIDOID, function: OIDOID, table: OIDOID } -> RoleScope);
statement!(AccessScopeRegrant, "access_scope/regrant.sql", { role: OIDOID, level: TEXTOID } -> bool);
statement!(AccessScopeJob, "access_scope/job.sql", { job_id: INT8OID } -> JobNames);

sql_function!(trax_regrant_access, pg_finfo_trax_regrant_access, |call| {
    regrant(call.required(0, "role")?, call.text(1, "level")?)?;
    Ok(call.null())
});

/// Implements `trax.regrant_access()`. PostgreSQL takes the grants of an extension's script for
/// rights of the extension, which a dump leaves out and dropping the role leaves behind.
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

/// The most names of a scope that an error lists.
const NAMES_SHOWN: usize = 10;

/// The tasks and groups that a caller may queue or claim; `None` is everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Scope(Option<Rc<[Part]>>);

/// The grant of one role: these tasks in these groups; `None` is all of them.
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

    /// Returns an error for a task or group outside the scope.
    pub(crate) fn require(&self, task: &str, group: &str) -> Result<()> {
        if self.allows(task, group) {
            return Ok(());
        }
        Err(self.refusal(Some(task), Some(group)))
    }

    /// Does the same for a task in the group of a job.
    pub(crate) fn require_in_group_of(&self, spi: &Spi, task: &str, job_id: i64) -> Result<()> {
        if !self.is_limited() {
            return Ok(());
        }
        let job = AccessScopeJob {
            job_id: arg(job_id),
        };
        match spi.query_latest(job).first() {
            Some(job) => self.require(task, &job.group_name),
            None => Ok(()),
        }
    }

    /// Does the same without naming the task and group, which the caller did not name.
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

    /// Returns an error after a change of a job outside the scope; the error rolls the change back.
    /// A check before the change would miss a job that commits in between.
    pub(crate) fn require_job(&self, spi: &Spi, job_id: i64) -> Result<()> {
        self.require_job_as(spi, job_id, || format!("job {job_id}"))
    }

    /// Does the same, with another description of the job.
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

    /// Returns an error for names in a claim's filter that are outside the scope. [`Self::allows`]
    /// narrows an omitted filter.
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
            (None, None) => "this call".to_owned(),
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
                .detail("The role is limited to tasks and groups, but has no row in trax.access_scope.")
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

/// The cached results of a session.
#[derive(Default)]
struct ScopeCache {
    /// The value of [`rights::changes`] before the read.
    changes: u64,
    is_any_limited: Option<bool>,
    of: Vec<(pg_sys::Oid, Object, Scope)>,
}

/// The object of a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Function(pg_sys::Oid),
    Table(pg_sys::Oid),
}

thread_local! {
    static KNOWN: RefCell<ScopeCache> = RefCell::default();
}

/// Returns the cached value, if it still holds.
fn known<T>(read: impl FnOnce(&ScopeCache) -> Option<T>) -> Option<T> {
    let changes = rights::changes();
    KNOWN.with_borrow(|known| (known.changes == changes).then(|| read(known)).flatten())
}

/// Caches a value that was read when `changes` was current; drops it if there were changes since.
fn keep(changes: u64, keep: impl FnOnce(&mut ScopeCache)) {
    KNOWN.with_borrow_mut(|known| {
        if known.changes != changes {
            *known = ScopeCache {
                changes,
                ..ScopeCache::default()
            };
        }
        keep(known);
    });
}

/// Returns what the caller of a function may queue or claim with it.
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
    // A right on all tables (pg_write_all_data) belongs to no level.
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
