//! Direct writes: whether the rows of a table may be written without statements.
//!
//! A direct write maintains everything that the access methods do: indexes, unique and exclusion
//! constraints at once, TOAST, another access method or tablespace. The inserter evaluates not null
//! constraints and other check constraints than the extension's. Everything else that an
//! administrator may have added is run by the executor only: it is an *obstacle*, and the rows of
//! that table are written by statements.

use super::Table;
use super::known;
use super::known::{Constraints, Direct, relation_oid};
use crate::server::spi::attribute;
use pgrx::pg_sys;
use std::ffi::CStr;
use std::rc::Rc;

/// The extension's own triggers, all for statements by hand: direct writes need not fire them.
const OUR_TRIGGERS: [&CStr; 4] = [
    c"work_queue_changed_manually",
    c"lease_changed_manually",
    c"lease_deadline_changed_manually",
    c"lease_deadline_moved_manually",
];

/// The extension's own check constraints, which each insert must satisfy by itself.
const OUR_CHECKS: [&CStr; 30] = [
    c"work_queue_only_sql_runs_as_a_role",
    c"work_queue_waits_for_known",
    c"work_queue_priority_range",
    c"work_queue_attempts_not_negative",
    c"work_queue_max_retries_not_negative",
    c"work_queue_timeout_range",
    c"work_queue_retry_delay_range",
    c"work_queue_manifest_has_id",
    c"work_queue_scheduled_entry_is_fresh",
    c"work_queue_steps_positive",
    c"work_queue_wait_until_of_suspended",
    c"work_queue_cost_of_rate",
    c"work_queue_rate_key_of_rate",
    c"lease_attempt_positive",
    c"lease_cancel_has_a_cause",
    c"lease_manifest_has_id",
    c"lease_priority_range",
    c"lease_max_retries_not_negative",
    c"lease_timeout_range",
    c"lease_retry_delay_range",
    c"run_state_known",
    c"run_failure_kind_known",
    c"run_failure_kind_only_when_failed",
    c"run_only_failures_are_retried",
    c"run_attempt_not_negative",
    c"step_kind_known",
    c"step_only_waits_are_open",
    c"step_attempt_positive",
    c"need_condition_known",
    c"graph_job_condition_known",
];

/// A kind of statement that writes rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    Insert,
    Update,
    Delete,
}

impl Write {
    fn trigger_event(self) -> u32 {
        match self {
            Self::Insert => pg_sys::TRIGGER_TYPE_INSERT,
            Self::Update => pg_sys::TRIGGER_TYPE_UPDATE,
            Self::Delete => pg_sys::TRIGGER_TYPE_DELETE,
        }
    }

    fn command(self) -> pg_sys::CmdType::Type {
        match self {
            Self::Insert => pg_sys::CmdType::CMD_INSERT,
            Self::Update => pg_sys::CmdType::CMD_UPDATE,
            Self::Delete => pg_sys::CmdType::CMD_DELETE,
        }
    }
}

/// Returns the writes that need no statement for an open relation with these columns.
pub(super) fn direct(relation: pg_sys::Relation, columns: &[&CStr]) -> Direct {
    // SAFETY: an open relation.
    let oid = unsafe { (*relation).rd_id };
    known::direct(oid).unwrap_or_else(|| {
        let is_free = |write| obstacle(relation, columns, write).is_none();
        let direct = Direct {
            insert: is_free(Write::Insert),
            update: is_free(Write::Update),
            delete: is_free(Write::Delete),
        };
        known::keep_direct(oid, direct);
        direct
    })
}

/// Checks that the first columns are these, of the expected types; otherwise returns the
/// difference.
pub(super) fn has_columns(relation: pg_sys::Relation, columns: &[&CStr]) -> Result<(), String> {
    // SAFETY: an open relation; its descriptor has as many attributes as it says.
    unsafe {
        if known::direct((*relation).rd_id).is_some() {
            return Ok(());
        }
        let shape = (*relation).rd_att;
        if ((*shape).natts as usize) < columns.len() {
            return Err("its columns are others".to_owned());
        }
        for (index, name) in columns.iter().enumerate() {
            let attribute = &*attribute(shape, index);
            if CStr::from_ptr(attribute.attname.data.as_ptr()) != *name {
                return Err("its columns are others".to_owned());
            }
            let known = type_of(name);
            if known != pg_sys::InvalidOid && attribute.atttypid != known {
                let name = name.to_string_lossy();
                return Err(format!("its column {name} has another type"));
            }
        }
    }
    Ok(())
}

/// Returns the type of a column: one name has one type in all the tables that every job goes
/// through.
fn type_of(column: &CStr) -> pg_sys::Oid {
    match column.to_bytes() {
        b"job_id" | b"lane_id" | b"manifest_id" | b"parent_job_id" => pg_sys::INT8OID,
        b"attempt" | b"attempts" | b"max_retries" | b"cost" | b"allowed" | b"burst" => {
            pg_sys::INT4OID
        }
        b"cancel_requested" | b"cancelled" | b"timed_out" | b"limited" | b"final"
        | b"scheduled" => pg_sys::BOOLOID,
        b"token" => pg_sys::UUIDOID,
        b"timeout" | b"retry_delay" | b"period" => pg_sys::INTERVALOID,
        b"input" | b"trace" | b"detail" | b"output" => pg_sys::JSONBOID,
        b"waits_for" | b"task" | b"group_name" | b"manifest" | b"unique_key" | b"version"
        | b"concurrency_key" | b"rate" | b"rate_key" | b"worker" | b"state" | b"failure_kind"
        | b"error" => pg_sys::TEXTOID,
        b"scheduled_for" => pg_sys::TIMESTAMPTZOID,
        name if name.ends_with(b"_at") => pg_sys::TIMESTAMPTZOID,
        _ => pg_sys::InvalidOid,
    }
}

/// Returns the obstacle to writing rows of an open relation directly; its first columns are
/// known.
pub(super) fn obstacle(
    relation: pg_sys::Relation,
    columns: &[&CStr],
    write: Write,
) -> Option<String> {
    // SAFETY: an open relation; descriptor, triggers and rules have as many entries as they say.
    unsafe {
        let class = &*(*relation).rd_rel;
        let shape = (*relation).rd_att;
        if let Some(trigger) = trigger_of_others((*relation).trigdesc, write) {
            return Some(format!("trigger \"{trigger}\""));
        }
        let rules = (*relation).rd_rules;
        let has_rule = !rules.is_null() && {
            let rules = std::slice::from_raw_parts((*rules).rules, (*rules).numLocks as usize);
            rules.iter().any(|rule| (**rule).event == write.command())
        };
        if has_rule {
            return Some("a rule".to_owned());
        }
        // Otherwise policies do not apply to the owner, with whose rights this runs.
        if class.relrowsecurity && class.relforcerowsecurity {
            return Some("row security".to_owned());
        }
        // A column that was added and dropped again keeps its position.
        let added = (columns.len()..(*shape).natts as usize)
            .map(|index| &*attribute(shape, index))
            .find(|attribute| !attribute.attisdropped);
        if let Some(added) = added.filter(|_| write != Write::Delete) {
            let name = CStr::from_ptr(added.attname.data.as_ptr()).to_string_lossy();
            return Some(format!("column \"{name}\""));
        }
        // Only the partitions of a partitioned table have rows.
        let kinds = [pg_sys::RELKIND_RELATION, pg_sys::RELKIND_PARTITIONED_TABLE];
        if !kinds.contains(&(class.relkind as u8)) {
            return Some("what it is: no plain table".to_owned());
        }
    }
    None
}

unsafe fn trigger_of_others(triggers: *const pg_sys::TriggerDesc, write: Write) -> Option<String> {
    if triggers.is_null() {
        return None;
    }
    // SAFETY: as many triggers as it says, each with a name.
    unsafe {
        let all =
            std::slice::from_raw_parts((*triggers).triggers, (*triggers).numtriggers as usize);
        all.iter()
            .filter(|one| one.tgenabled as u8 != pg_sys::TRIGGER_DISABLED)
            .filter(|one| one.tgtype as u32 & write.trigger_event() != 0)
            .map(|one| CStr::from_ptr(one.tgname))
            .find(|name| !OUR_TRIGGERS.contains(name))
            .map(|name| name.to_string_lossy().into_owned())
    }
}

/// Returns the constraints on rows of an open relation that the inserter must evaluate.
pub(super) fn constraints(relation: pg_sys::Relation) -> Rc<Constraints> {
    // SAFETY: an open relation.
    let oid = unsafe { (*relation).rd_id };
    known::constraints(oid).unwrap_or_else(|| {
        let found = Rc::new(Constraints {
            not_null: not_null(relation),
            checks_of_others: has_checks_of_others(relation),
        });
        known::keep_constraints(oid, found.clone());
        found
    })
}

fn has_checks_of_others(relation: pg_sys::Relation) -> bool {
    // SAFETY: an open relation; as many constraints as it says, each with a name.
    unsafe {
        let constraints = (*(*relation).rd_att).constr;
        !constraints.is_null()
            && (0..usize::from((*constraints).num_check)).any(|index| {
                let name = CStr::from_ptr((*(*constraints).check.add(index)).ccname);
                !OUR_CHECKS.contains(&name)
            })
    }
}

fn not_null(relation: pg_sys::Relation) -> Vec<usize> {
    // SAFETY: an open relation; the descriptor has as many attributes as it says.
    unsafe {
        let shape = (*relation).rd_att;
        (0..(*shape).natts as usize)
            .filter(|&index| (*attribute(shape, index)).attnotnull)
            .collect()
    }
}

/// Returns why rows of `trax.<name>` are written by statements, if they are, for any of `writes`.
/// The caller needs no right to write to the table.
pub(crate) fn obstacle_of(
    name: &'static CStr,
    columns: &[&CStr],
    writes: &[Write],
) -> Option<String> {
    let oid = relation_oid(name);
    let lock = pg_sys::AccessShareLock as i32;
    // SAFETY: closed before it returns; null when it has been dropped.
    unsafe {
        let relation = pg_sys::try_relation_open(oid, lock);
        if relation.is_null() {
            return None;
        }
        let found = (writes.iter()).find_map(|&write| obstacle(relation, columns, write));
        pg_sys::relation_close(relation, lock);
        found
    }
}

impl Table {
    /// Returns whether rows are added to it directly: it stores rows itself, and nothing requires a
    /// statement.
    pub(super) fn is_insertable(&self) -> bool {
        // SAFETY: an open relation.
        let kind = unsafe { (*(*self.relation).rd_rel).relkind } as u8;
        self.direct.insert && kind == pg_sys::RELKIND_RELATION
    }
}
