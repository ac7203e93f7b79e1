//! Reading: the rows of a table in the order in which they are stored.

use super::scan::slot_value;
use super::unguarded;
use super::unguarded::guarded;
use super::{METHOD, Table, View};
use pgrx::datum::FromDatum;
use pgrx::itemptr::item_pointer_set_all;
use pgrx::pg_sys;
use std::ops::Range;

/// The server needs no such method of a table access method; heap has it.
const TID_RANGES: &str = "an access method that scans ranges of places";

/// A scan of a table, with its current row.
pub(crate) struct StoredRows {
    scan: pg_sys::TableScanDesc,
    slot: *mut pg_sys::TupleTableSlot,
    /// How many columns are read of every row.
    columns: i32,
}

impl StoredRows {
    /// Begins a scan of the rows in some pages. The columns up to `last` are read of every row at
    /// once, which takes less time than a call for each.
    pub(crate) fn of_pages(
        table: &Table,
        view: &View,
        pages: Range<u32>,
        last: impl Into<usize>,
    ) -> Self {
        use pg_sys::ScanOptions::{SO_ALLOW_PAGEMODE, SO_ALLOW_STRAT, SO_TYPE_TIDRANGESCAN};
        let columns = last.into() as i32 + 1;
        let [mut first, mut end] = [pg_sys::ItemPointerData::default(); 2];
        item_pointer_set_all(&mut first, pages.start, 1);
        item_pointer_set_all(&mut end, pages.end.saturating_sub(1), u16::MAX);
        // SAFETY: table and snapshot are open until after `end`; the scan copies the two places.
        unsafe {
            let kind = &*(*table.relation).rd_tableam;
            let begin = kind.scan_begin.expect(METHOD);
            let limit = kind.scan_set_tidrange.expect(TID_RANGES);
            let scan = guarded(|| {
                let none = std::ptr::null_mut();
                let flags = SO_TYPE_TIDRANGESCAN | SO_ALLOW_PAGEMODE | SO_ALLOW_STRAT;
                let scan = begin(
                    table.relation,
                    view.snapshot,
                    0,
                    none,
                    std::ptr::null_mut(),
                    flags,
                );
                limit(scan, &raw mut first, &raw mut end);
                scan
            });
            Self {
                scan,
                slot: table.slot(),
                columns,
            }
        }
    }

    /// Goes to the next row that the snapshot sees; returns false at the end.
    pub(crate) fn next(&self) -> bool {
        let forward = pg_sys::ScanDirection::ForwardScanDirection;
        // SAFETY: the scan and its slot are open.
        unsafe {
            let kind = &*(*(*self.scan).rs_rd).rd_tableam;
            let next = kind.scan_getnextslot_tidrange.expect(TID_RANGES);
            guarded(|| {
                let is_row = next(self.scan, forward, self.slot);
                if is_row {
                    unguarded::slot_getsomeattrs_int(self.slot, self.columns);
                }
                is_row
            })
        }
    }

    /// Returns a value of the current row.
    pub(crate) fn get<T: FromDatum>(&self, column: impl Into<usize>) -> Option<T> {
        // SAFETY: the slot holds a row of the table; the column has the SQL type that T reads.
        unsafe {
            let datum = slot_value(self.slot, column.into())?;
            T::from_polymorphic_datum(datum, false, pg_sys::InvalidOid)
        }
    }

    /// Returns a value that is passed by value, of a column that is not null.
    pub(crate) fn number(&self, column: impl Into<usize>) -> i64 {
        // SAFETY: the slot holds a row of the table.
        unsafe { slot_value(self.slot, column.into()) }.map_or(0, |datum| datum.value() as i64)
    }

    pub(crate) fn end(self) {
        // SAFETY: ends what `of_pages` began.
        unsafe {
            let kind = &*(*(*self.scan).rs_rd).rd_tableam;
            let end = kind.scan_end.expect(METHOD);
            guarded(|| end(self.scan));
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
        }
    }
}
