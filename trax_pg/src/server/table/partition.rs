//! Partitions: the partition in which the server itself would store a row of a table that is
//! partitioned by ranges of a time.

use super::Table;
use super::direct_write;
use super::direct_write::{Write, obstacle_of};
use super::known::relation_oid;
use pgrx::pg_sys;
use std::cell::{Cell, RefCell};
use std::ffi::CStr;

/// How often the search is repeated when the partition is dropped meanwhile.
const LOOKS: usize = 5;

impl Table {
    /// Returns the partition for rows of this time, if they can be written there directly.
    pub(crate) fn partition_for(&self, time: i64) -> Option<Table> {
        if !self.direct.insert {
            return None;
        }
        for _ in 0..LOOKS {
            let oid = route(self.relation, time)?;
            // SAFETY: null when it has been dropped.
            let relation =
                unsafe { pg_sys::try_relation_open(oid, pg_sys::RowExclusiveLock as i32) };
            if relation.is_null() {
                continue;
            }
            // Another partition may have been attached during the wait for the lock. From now on
            // none can be: attaching takes the default partition's lock.
            if route(self.relation, time) == Some(oid) {
                if obstacle(relation, self.columns).is_none() {
                    return Some(Table {
                        relation,
                        name: self.name,
                        columns: self.columns,
                        direct: direct_write::direct(relation, self.columns),
                        may_delete: Cell::new(false),
                        to_delete: RefCell::default(),
                    });
                }
                close(relation);
                return None;
            }
            close(relation);
        }
        None
    }
}

fn close(relation: pg_sys::Relation) {
    // SAFETY: opened by `partition_for`; the lock stays until the transaction ends.
    unsafe { pg_sys::relation_close(relation, pg_sys::NoLock as i32) }
}

/// Returns the obstacle to adding rows to an open partition directly.
pub(super) fn obstacle(partition: pg_sys::Relation, columns: &[&CStr]) -> Option<String> {
    // SAFETY: an open relation.
    let class = unsafe { &*(*partition).rd_rel };
    if class.relkind as u8 != pg_sys::RELKIND_RELATION || !class.relispartition {
        return Some("a partition that is no plain table".to_owned());
    }
    if direct_write::has_columns(partition, columns).is_err() {
        return Some("a partition whose columns have another order".to_owned());
    }
    if direct_write::direct(partition, columns).insert {
        return None;
    }
    direct_write::obstacle(partition, columns, Write::Insert)
}

/// Returns the partition for rows of this time, including the default one; `None` where the server
/// must decide.
pub(super) fn route(parent: pg_sys::Relation, time: i64) -> Option<pg_sys::Oid> {
    // SAFETY: an open relation; a range table has one more index than bounds, and one column, the
    // time.
    unsafe {
        if (*(*parent).rd_rel).relkind as u8 != pg_sys::RELKIND_PARTITIONED_TABLE {
            return None;
        }
        let partitions = &*pg_sys::RelationGetPartitionDesc(parent, true);
        let bounds = partitions.boundinfo.as_ref()?;
        // PARTITION_STRATEGY_RANGE, a constant in version 15 and a member of a type later.
        if bounds.strategy as u8 != b'r' {
            return None;
        }
        let (mut low, mut high) = (0, bounds.ndatums as usize);
        while low < high {
            let middle = (low + high) / 2;
            let at_most = match **bounds.kind.add(middle) {
                pg_sys::PartitionRangeDatumKind::PARTITION_RANGE_DATUM_MINVALUE => true,
                pg_sys::PartitionRangeDatumKind::PARTITION_RANGE_DATUM_MAXVALUE => false,
                _ => (**bounds.datums.add(middle)).value() as i64 <= time,
            };
            if at_most {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let mut index = *bounds.indexes.add(low);
        if index < 0 {
            index = bounds.default_index;
        }
        (index >= 0).then(|| *partitions.oids.add(index as usize))
    }
}

/// Returns why rows of `trax.<name>`, which is partitioned by time, or of its partition of one
/// time, are added by statements, if they are.
pub(crate) fn history_obstacle(
    name: &'static CStr,
    columns: &'static [&'static CStr],
    time: i64,
) -> Option<String> {
    obstacle_of(name, columns, &[Write::Insert]).or_else(|| {
        let oid = relation_oid(name);
        let lock = pg_sys::AccessShareLock as i32;
        // SAFETY: closed before it returns; null when it has been dropped.
        unsafe {
            let relation = pg_sys::try_relation_open(oid, lock);
            if relation.is_null() {
                return None;
            }
            let found = match route(relation, time) {
                None => Some("its partitions".to_owned()),
                Some(partition) => {
                    let partition = pg_sys::try_relation_open(partition, lock);
                    if partition.is_null() {
                        None
                    } else {
                        let found = obstacle(partition, columns);
                        pg_sys::relation_close(partition, lock);
                        found
                    }
                }
            };
            pg_sys::relation_close(relation, lock);
            found
        }
    })
}
